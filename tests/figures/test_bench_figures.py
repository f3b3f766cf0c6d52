"""Figures of timings: what is drawn is in the record, what isn't measured is said to be."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from vla.bench.record import read
from vla.errors import ArgumentError
from vla.figures import bench
from vla.figures.bench import DELTA, FAMILIES, LOOP, OURS, PAPER, PASSES, PRECISIONS, SOFTMAX
from vla.figures.theme import alt
from vla.rules import RULES

DATA = Path(__file__).parents[2] / "data" / "bench"


def timing(method: str, tokens: int, ms: float, **more: Any) -> dict[str, Any]:
    row = {
        "method": method, "shape": "B4 H16 d64", "batch": 4, "heads": 16, "width": 64,
        "tokens": tokens, "dtype": "bfloat16", "pass": "forward", "median_ms": ms,
        "low_ms": 0.9 * ms, "high_ms": 1.2 * ms, "repeats": 5, "tokens_per_s": 4e3 * tokens / ms,
        "floor_fraction": 0.25, "peak_bytes": 2**20 * tokens,
    }  # fmt: skip
    return {**row, **more}


def record(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"rows": list(rows), "crossovers": [], **more}


TIMES = {OURS: (1, 2, 4), SOFTMAX: (0.5, 2.5, 9), DELTA: (2, 2.5, 3)}
ROWS = [
    timing(method, 4096 * 2**i, ms) for method, times in TIMES.items() for i, ms in enumerate(times)
]


def trace(figure: Any, name: str) -> Any:
    return next(t for t in figure.data if t.name == name)


def test_families_and_precisions_of_every_method_that_is_measured() -> None:
    from vla.bench.cases import METHODS

    for method in METHODS:
        assert bench.family_of(method.name) in FAMILIES.values(), method.name
        assert bench.precision_of(method.name) in PRECISIONS
        assert bench.family_of(method.name).rule in RULES
    titles = [bench.named(method.name) for method in METHODS]
    assert len(set(titles)) == len(titles)
    assert not any("," in name for name in FAMILIES), "they are listed in an address"


@pytest.mark.parametrize("quantity", bench.QUANTITIES)
def test_lines_are_the_records_numbers(quantity: str) -> None:
    figure = bench.against_length(ROWS, quantity=quantity)
    line = trace(figure, "softmax (SDPA), bf16")
    wanted = {
        "latency": [0.5, 2.5, 9], "throughput": [4e3 * 4096 * 2**i / t for i, t in
                                                enumerate((0.5, 2.5, 9))],
        "memory": [4096, 8192, 16384], "times the floor": [4, 4, 4],
    }[quantity]  # fmt: skip
    assert list(line.x) == [4096, 8192, 16384]
    assert list(line.y) == pytest.approx(wanted)
    assert figure.layout.xaxis.type == figure.layout.yaxis.type == "log"
    assert "softmax (SDPA), bf16" in alt(figure)


def test_memory_that_was_not_measured_is_left_out() -> None:
    figure = bench.against_length([timing(LOOP, 512, 1, peak_bytes=None)], quantity="memory")
    assert not figure.data
    assert "Nothing of this was measured" in alt(figure)


def test_the_crossing_is_the_records_or_that_of_the_measured_lengths() -> None:
    where = ("B4 H16 d64", "forward")
    assert bench.crossover(record(*ROWS), *where) == (4096, 8192)
    narrowed = {"shape": where[0], "pass": where[1], "slower_at": 5000, "faster_from": 5064}
    assert bench.crossover(record(*ROWS, crossovers=[narrowed]), *where) == (5000, 5064)
    assert bench.crossover(record(), *where) == (None, None)
    figure = bench.against_length(ROWS, crossing=(5000, 5064))
    band = figure.layout.shapes[0]
    assert (band.x0, band.x1) == (5000, 5064)
    assert "VLA below softmax from T 5 064 on" in alt(figure)
    assert not bench.against_length(ROWS, crossing=(4096, None)).layout.shapes


def test_the_papers_crossing_is_dashed_and_called_extrapolated() -> None:
    figure = bench.against_length(ROWS, paper=True)
    drawn = [t for t in figure.data if t.name and "extrapolated" in t.name]
    assert [t.line.dash for t in drawn] == ["dash", "dash"]
    assert PAPER.kernel(43_000) == pytest.approx(PAPER.softmax(43_000))
    assert PAPER.kernel(4096) == pytest.approx(111.3)
    assert PAPER.softmax(30_000) < PAPER.kernel(30_000)
    assert "extrapolated from T ≤ 4 096 on a T4" in alt(figure)
    assert any("extrapolated" in note.text for note in figure.layout.annotations)
    assert "43 000" not in alt(bench.against_length(ROWS))


def test_the_floor_is_the_traffic_over_the_bandwidth() -> None:
    """B4 H16 d64 forward in bf16: q, k, v, o of 64 numbers and one β, two bytes each."""
    figure = bench.against_length(ROWS, bytes_per_s=1e12)
    floor = trace(figure, "bandwidth floor, bf16")
    assert floor.y[0] == pytest.approx(4096 * 4 * 16 * (4 * 64 + 1) * 2 / 1e12 * 1e3)
    drawn = bench.against_length(ROWS, quantity="memory", bytes_per_s=1e12)
    assert all(t.name != "bandwidth floor, bf16" for t in drawn.data)


def test_a_picture_has_the_chosen_rows_alone() -> None:
    rows = [*ROWS, timing("vla triton tf32", 4096, 3), timing(OURS, 4096, 9, shape="B8 H4 d32")]
    picked = bench.chosen(rows, "B4 H16 d64", "forward", ["VLA kernel"], ["tf32", "fp32"])
    assert [row["method"] for row in picked] == ["vla triton tf32"]
    assert bench.shapes(rows) == ["B4 H16 d64", "B8 H4 d32"]


def test_targets_are_met_missed_or_open() -> None:
    rows = [
        timing(OURS, 32_768, 4), timing(DELTA, 32_768, 2),
        timing(OURS, 2048, 1, shape="B8 H4 d32"), timing(LOOP, 2048, 1500, shape="B8 H4 d32"),
        timing(OURS, 8192, 1), timing(SOFTMAX, 8192, 2), timing(SOFTMAX, 32_768, 3),
    ]  # fmt: skip
    fault = {"case": "tokens 5", "errors": {"o": 2e-5, "dq": 1e-6}, "bound": 1e-5}
    found = bench.targets(record(*rows), [fault])
    assert [each.met for each in found] == [True, False, None, None, False, False]
    assert found[0].measured.startswith("1500 times")
    assert found[1].measured == "2.00 times (4.00 against 2.00 ms)"
    assert found[4].measured == "above it at T 32 768 (4.00 against 3.00 ms)"
    assert found[5].measured == "0 of 1 configurations measured"
    good = {**fault, "errors": {"o": 9e-6}}
    assert bench.targets(record(), [good])[5].met is True
    assert all(each.met is None for each in bench.targets(record()))


def test_errors_are_drawn_at_their_length_with_their_bound() -> None:
    rows = [
        {"case": "kind gaussian, tokens 17, lambda0 0.1", "dtype": "float32", "precision": "auto",
         "bound": 1e-5, "errors": {"o": 1e-6, "dq": 4e-6, "dbeta": 2e-6}},
        {"case": "kind gaussian, tokens 64", "dtype": "float32", "precision": "tf32",
         "bound": 2e-3, "errors": {"o": 1e-3}},
    ]  # fmt: skip
    figure = bench.errors(rows)
    assert list(trace(figure, "float32").x) == [17]
    assert list(trace(figure, "float32").y) == [4e-6]
    assert list(trace(figure, "tf32").y) == [1e-3]
    assert list(trace(figure, "its bound (tf32)").y) == [2e-3]
    assert list(trace(bench.errors(rows, output="o"), "float32").y) == [1e-6]
    gradients = bench.errors(rows, output="gradients")
    assert {t.name for t in gradients.data} == {"float32", "its bound (float32)"}
    with pytest.raises(ArgumentError, match="gradients"):
        bench.errors(rows, output="dwhat")


@pytest.mark.parametrize("look", ["light", "dark"])
def test_the_recorded_files_are_drawn_whole(look: str) -> None:
    speed, wrong = (read(DATA / name) for name in ("h200.json", "h200_errors.json"))
    before = copy.deepcopy(speed)
    for shape in bench.shapes(speed["rows"]):
        for which in PASSES:
            rows = bench.chosen(speed["rows"], shape, which, list(FAMILIES), PRECISIONS)
            figure = bench.against_length(
                rows, crossing=bench.crossover(speed, shape, which), theme_name=look
            )
            drawn = sum(len(t.x) for t in figure.data if t.mode == "lines+markers")
            assert drawn == len(rows)
    marks = bench.errors(wrong["rows"], theme_name=look)
    shown = sum(len(t.x) for t in marks.data if not t.name.startswith("its bound"))
    assert shown == len(wrong["rows"])
    assert speed == before
    assert len(bench.targets(speed, wrong["rows"])) == 6


def test_other_quantities_and_themes_are_refused() -> None:
    with pytest.raises(ValueError, match="latency"):
        bench.against_length(ROWS, quantity="speed")
    with pytest.raises(ValueError, match="light"):
        bench.against_length(ROWS, theme_name="blue")
