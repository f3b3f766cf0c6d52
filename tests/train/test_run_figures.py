"""Figures of recorded runs: the numbers drawn are the runs', the published ones the paper's."""

import pytest

from tests.train.tiny import config
from vla import nn, tasks
from vla.errors import ArgumentError
from vla.figures import runs
from vla.figures.theme import alt
from vla.train import RunResult, RunRow
from vla.train.presets import BUDGETS, PRESETS, preset


def row(chosen, accuracy: float, label: str = "", status: str = "done", **sets: float) -> RunRow:
    scores = {"validation": accuracy, "test": accuracy, **sets}
    split = {k: {"accuracy": v, "loss": 1.0, "count": 1} for k, v in scores.items()}
    curve = {"step": [5, 10], "loss": [2.0, None], "accuracy": [accuracy / 2, accuracy]}
    result = RunResult(status=status, curve=curve, evaluation=split if status == "done" else {})
    return RunRow(chosen.key, chosen, status, result, label=label)


def pretend(name: str, budget: str) -> list[RunRow]:
    """A preset's runs, each with an accuracy of its own."""
    items = preset(name).wanted(budget)
    return [
        row(i.config, k / len(items), i.label, ood=k / len(items) / 2) for k, i in enumerate(items)
    ]


def mqar(pairs: int, **changes):
    return config(tasks.make("mqar_authors", pairs=pairs, vocab=32), **changes)


def trace(figure, name: str):
    return next(t for t in figure.data if t.name == name)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(("name", "budget"), [(n, b) for n in PRESETS for b in BUDGETS])
def test_every_preset_has_a_figure_with_all_its_labels(name, budget, theme):
    rows = pretend(name, budget)
    figure = runs.FIGURES[name](rows, theme_name=theme)
    drawn = {t.name for t in figure.data}
    longest = max(r.config.steps for r in rows)
    shown = [r for r in rows if name != "table4" or r.config.steps == longest]
    assert {runs.shown(r.label) for r in shown} <= drawn
    assert alt(figure)
    published = [t for t in figure.data if t.name and ("published" in t.name or "log" in t.name)]
    wanted = budget == "full" and name not in ("fair", "table4", "readme")
    assert bool(published) == wanted


def test_a_line_is_the_mean_and_a_band_the_extremes():
    rows = [row(mqar(n, seed=s), n / 10 + s / 100, "a") for n in (2, 4) for s in (0, 1, 2)]
    figure = runs.accuracy(rows)
    line = trace(figure, "a")
    assert list(line.x) == [2, 4]
    assert line.y == pytest.approx([0.21, 0.41])
    band = next(t for t in figure.data if t.fill == "toself")
    assert list(band.y) == pytest.approx([0.22, 0.42, 0.40, 0.20])
    assert "2: 0.210, 4: 0.410" in alt(figure)


def test_of_several_rates_the_best_on_validation_is_drawn():
    rows = [row(mqar(2, lr=lr, seed=s), score, "a")
            for lr, score in ((1e-3, 0.3), (1e-2, 0.8)) for s in (0, 1)]  # fmt: skip
    rows.append(row(mqar(2, lr=1e-1), 0.0, "a", status="nan"))
    assert list(trace(runs.accuracy(rows), "a").y) == [0.8]


def test_a_heatmap_has_a_cell_for_each_rate_and_load_and_says_what_ended_badly():
    rows = [row(mqar(n, lr=lr), n * lr, "a") for n in (2, 4) for lr in (0.1, 0.2)]
    rows.append(row(mqar(4, lr=0.4), 0, "a", status="nan"))
    heat = runs.rates(rows, label="a").data[0]
    assert list(heat.x) == ["2", "4"]
    assert list(heat.y) == ["0.1", "0.2", "0.4"]
    assert heat.z[1][1] == pytest.approx(0.8)
    assert heat.text[2][1] == "nan"
    with pytest.raises(ArgumentError, match="one of: a"):
        runs.rates(rows, label="b")


def test_learning_curves_skip_what_is_not_finite():
    rows = [row(mqar(2, seed=s), 0.4 + s / 10, "a") for s in (0, 1)]
    line = trace(runs.learning_curves(rows), "a")
    assert list(line.x) == [5, 10]
    assert list(line.y) == pytest.approx([0.225, 0.45])
    assert list(trace(runs.learning_curves(rows, quantity="loss"), "a").x) == [5]
    with pytest.raises(ArgumentError, match="quantity"):
        runs.learning_curves(rows, quantity="speed")
    with pytest.raises(ArgumentError, match="finished run"):
        runs.learning_curves([])


def test_published_numbers_are_the_papers():
    assert runs.table9().values["vla_authors"] == {24.0: 1.0}
    assert runs.capacity_log().values["authors_delta"][8.0] == 0.734
    assert runs.long_context_log().values["vla_authors"][512.0] == 0.982
    overload = runs.tables_10_and_11().values["vla_authors"]
    assert overload == {8.0: 0.997, 16.0: 0.990, 24.0: 0.994, 32.0: 0.623, 48.0: 0.044}
    assert runs.table4_values(16)["A fixed"] == 0.091
    assert runs.table4_values(48)["VLA (as run)"] == 0.044
    assert runs.table7_curves().values["softmax"][1500.0] == 1.0


def test_published_numbers_are_hollow_or_dashed():
    rows = pretend("figure5", "full")
    figure = runs.figure5(rows)
    log = trace(figure, "the authors' log, 3 000 steps")
    assert log.line.dash == "dash"
    table = trace(figure, "as published, Table 9")
    assert table.marker.symbol == "circle-open"


def test_table4_at_its_own_protocol_has_the_papers_numbers():
    figure = runs.table4(pretend("table4", "full"), load=16)
    assert (
        dict(zip(*(trace(figure, "as published")[k] for k in "yx"), strict=True))["A fixed"]
        == 0.091
    )


def test_the_readmes_ablations_at_one_rate():
    rows = pretend("readme", "full")
    figure = runs.readme(rows, lr=3e-4)
    first = [r.accuracy("test") for r in rows if r.label == "rank 4" and r.config.lr == 3e-4]
    marks = next(t for t in figure.data if t.name == "rank 4" and t.type == "scatter")
    assert list(marks.x) == first
    assert len(first) == 3
    assert "0.0003" in alt(figure)


def test_a_variant_that_never_ended_well_is_named():
    rows = [row(mqar(2), 0.5, "fine"), row(mqar(2, seed=1), 0, "broken", status="nan")]
    figure = runs.variants(rows)
    assert [note.text for note in figure.layout.annotations] == ["nan"]
    assert "broken no finished run" in alt(figure)


def test_the_exact_layer_has_the_colour_of_exact_rls():
    colours = {name: runs.colour_of(nn.model(name)) for name in nn.MODELS}
    assert colours["vla_exact"] == colours["rls"] != colours["vla_authors"]
