"""``vla bench``: records that say what they hold, the arithmetic on them, a run without a GPU."""

import argparse
import json
from pathlib import Path

import pytest
import torch

from vla import bench
from vla.bench import analysis, cases, errors, measure, record, run

DATA = Path(__file__).parents[2] / "data" / "bench"
ROW = {
    "method": "m",
    "shape": "B1 H1 d16",
    "batch": 1,
    "heads": 1,
    "width": 16,
    "tokens": 512,
    "dtype": "float32",
    "pass": "forward",
    "median_ms": 1.0,
    "low_ms": 0.9,
    "high_ms": 1.1,
    "repeats": 3,
    "tokens_per_s": 5e5,
    "floor_fraction": 0.1,
    "peak_bytes": None,
}


def options(*words):
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)


def a_record(**changes):
    head = run.head("speed", "cpu", "abc")
    return {**head, "left_out": [], "rows": [{**ROW, **changes}]}


def test_a_record_survives_the_disk(tmp_path):
    path = tmp_path / "new" / "r.json"
    record.write(path, a_record())
    (row,) = bench.load(path)
    assert row["median_ms"] == 1.0
    assert row["commit"] == "abc"
    assert row["device"].startswith("CPU")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"median_ms": float("nan")}, "median_ms"),
        ({"tokens": "512"}, "tokens"),
        ({"repeats": True}, "repeats"),
    ],
)
def test_a_wrong_row_is_named(tmp_path, changes, word):
    wrong = record.validate(a_record(**changes))
    assert len(wrong) == 1
    assert word in wrong[0]
    with pytest.raises(ValueError, match=word):
        record.write(tmp_path / "r.json", a_record(**changes))


@pytest.mark.parametrize(
    ("text", "word"),
    [("{", "JSON"), ("[]", "object"), ("{}", "schema"), (None, "cannot be read")],
)
def test_what_is_no_record_is_refused_in_words(tmp_path, text, word):
    path = tmp_path / "r.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match=word):
        bench.load(path)


def test_another_schema_or_kind_is_refused():
    assert "schema 2" in record.validate({**a_record(), "schema": 2})[0]
    assert "kind" in record.validate({**a_record(), "kind": "weather"})[0]
    lacking = a_record()
    del lacking["rows"][0]["tokens"]
    assert record.validate(lacking) == ["row 0 lacks 'tokens'"]


@pytest.mark.parametrize("name", ["h200.json", "h200_errors.json"])
def test_recorded_runs_are_plottable_without_a_gpu(name):
    rows = bench.load(DATA / name)
    assert rows
    assert {r["device"] for r in rows} == {"NVIDIA H200"}


def test_recorded_errors_are_within_their_bounds():
    rows = bench.load(DATA / "h200_errors.json")
    assert len(rows) > 50
    above = [r["case"] for r in rows if max(r["errors"].values()) > r["bound"]]
    assert not above


def test_slope_of_a_power_law():
    assert analysis.slope([(512 * 2**i, 3 * (512 * 2**i) ** 1.5) for i in range(5)]) == (
        pytest.approx(1.5)
    )
    with pytest.raises(ValueError, match="two lengths"):
        analysis.slope([(512, 1.0)])


def test_bracket_and_bisect_find_the_crossing():
    lengths = [512, 1024, 2048, 4096, 8192]
    linear = [(t, 10 + t / 1000) for t in lengths]
    quadratic = [(t, t * t / 5e5) for t in lengths]
    assert analysis.bracket(linear, quadratic) == (2048, 4096)
    assert analysis.bracket(quadratic, linear) == (8192, None)
    assert analysis.bracket([(t, 0.0) for t in lengths], linear) == (None, 512)
    crossing = next(t for t in range(1, 9999) if 10 + t / 1000 < t * t / 5e5)
    low, high = analysis.bisect(2048, 4096, lambda t: 10 + t / 1000 < t * t / 5e5)
    assert low < crossing <= high
    assert high - low <= 128


def test_traffic_counts_every_tensor_once():
    shape = cases.Shape(2, 3, 32)
    forward = cases.traffic(shape, 10, torch.bfloat16, False)
    assert forward == 2 * 10 * 3 * (4 * 32 + 1) * 2
    assert cases.traffic(shape, 10, torch.float32, True) > 5 * forward


def test_inputs_are_the_same_for_every_method():
    one, two = (cases.make_inputs(cases.Shape(1, 2, 16), 8, torch.float32, "cpu") for _ in "ab")
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert torch.allclose(one.k.norm(dim=-1), torch.ones(1, 8, 2))


def test_timing_counts_what_it_calls():
    calls = []
    timing = measure.time_call(lambda: calls.append(1), "cpu", 5.0)
    assert len(calls) == timing.repeats + 2
    assert timing.low_ms <= timing.median_ms <= timing.high_ms


def test_the_bound_is_float32s_where_m_is_ill_conditioned():
    well = errors.bound_of("gaussian", torch.float32, "auto", 100, 0.1)
    ill = errors.bound_of("repeated", torch.float32, "auto", 10_000, 1e-3)
    assert well == 1e-5
    assert ill == pytest.approx(4 * torch.finfo(torch.float32).eps * 1e7)


def test_bad_options_are_told_in_words(capsys):
    assert bench.main(options("--shapes", "4,16")) == 2
    assert "4,16,64" in capsys.readouterr().err
    assert bench.main(options("--methods", "nonesuch", "--device", "cpu")) == 2
    assert "nonesuch" in capsys.readouterr().err


@pytest.mark.timeout(120)
def test_a_machine_without_a_gpu_measures_what_it_can(tmp_path, capsys):
    path = tmp_path / "cpu.json"
    words = ["--device", "cpu", "--lengths", "128", "--shapes", "1,1,16", "--output", str(path)]
    assert bench.main(options(*words)) == 0
    printed = capsys.readouterr().out
    assert "vla scan fp32" in printed
    assert "need a CUDA device" in printed
    found = json.loads(path.read_text())
    assert {r["method"] for r in found["rows"]} == {"vla scan fp32"}
    assert {d["method"] for d in found["decode"]} == {"scan", "chunk"}
    assert any("triton" in left["what"] for left in found["left_out"])
