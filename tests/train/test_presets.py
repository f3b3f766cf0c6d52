"""Presets: every run valid before it starts, budgets of the right size, grids that widen."""

import dataclasses
import hashlib
import math
from pathlib import Path

import pytest

from tests.train.tiny import config
from vla.errors import ArgumentError
from vla.train import RunResult, RunRow, load_rows
from vla.train.plan import estimate, tokens
from vla.train.presets import BUDGETS, PRESETS, SEEDS, best_rate, preset, widened

RUNS = Path(__file__).parents[2] / "data" / "runs"
KEYS_BEFORE_RANK = {
    ("figure5", "smoke"): "36b8e25998a54c30",  # 8
    ("figure5", "cpu"): "49d7bdd2fc3a7fcd",  # 8
    ("figure5", "full"): "d66c66c3b6422b27",  # 60
    ("table10", "smoke"): "22830775c12b5909",  # 5
    ("table10", "cpu"): "9d3faf20aba1ed2d",  # 10
    ("table10", "full"): "448b164954412480",  # 72
    ("figure6", "smoke"): "8c97fc0aea10f388",  # 12
    ("figure6", "cpu"): "ae863204d713767b",  # 16
    ("figure6", "full"): "e0a2e9a9c63c1ae3",  # 96: seeds, a second rate and DeltaNet came later
    ("table13", "smoke"): "7e71b144c935598f",  # 4
    ("table13", "cpu"): "bf48c6302618cadc",  # 10
    ("table13", "full"): "53203a7b11ccdf87",  # 39
    ("table4", "smoke"): "c378740fd9327686",  # 5
    ("table4", "cpu"): "2cb2382d96dfb31b",  # 28
    ("table4", "full"): "39700aabe0210974",  # 144: seeds 123 and 999 at 1e-3 came later
    ("table7", "smoke"): "08d000c1ba6b366a",  # 8
    ("table7", "cpu"): "3bdbb89d7b5a9525",  # 8
    ("table7", "full"): "712b83a1dab17912",  # 8
    ("fair", "smoke"): "d64af6bbf25d32e1",  # 4
    ("fair", "cpu"): "a2db68826378e848",  # 36
    ("fair", "full"): "4885c23d73de88d1",  # 105
}  # fmt: skip
"""sha256 of each preset's sorted keys, at commit 75aabb4: recorded runs are found by them."""

ALL = [(name, budget) for name in PRESETS for budget in BUDGETS]


@pytest.mark.parametrize(("name", "budget"), ALL)
def test_every_run_is_valid_and_asked_for_once(name, budget):
    items = preset(name).wanted(budget)
    assert items
    for item in items:
        item.config.check()
        assert item.label
    assert len({item.config.key for item in items}) == len(items)


@pytest.mark.parametrize(("name", "budget"), KEYS_BEFORE_RANK)
def test_no_key_changes_when_a_setting_is_added(name, budget):
    keys = sorted(item.config.key for item in preset(name).wanted(budget))
    digest = hashlib.sha256(" ".join(keys).encode()).hexdigest()
    assert digest[:16] == KEYS_BEFORE_RANK[name, budget]


@pytest.mark.parametrize("name", PRESETS)
def test_every_recorded_run_is_one_that_its_preset_asks_for(name):
    rows = load_rows(RUNS / f"{name}.parquet")
    items = preset(name).wanted("full", rows)
    wanted = {item.config.key: item.label for item in items}
    assert {row.key: row.label for row in rows}.items() <= wanted.items()
    assert len(wanted) == len(items), "a run is asked for twice"


def test_the_readme_preset_has_every_combination_once():
    items = preset("readme").wanted("full")
    assert len(items) == 12 * 2 * 3
    assert {(i.config.steps, i.config.task.pairs, i.config.batch) for i in items} == {
        (2000, 24, 64)
    }
    assert {i.config.lr for i in items} == {3e-4, 1e-3}
    found = {(m.rank, m.learned_lambda0, m.refresh_every) for m in (i.config.model for i in items)}
    assert found == {(r, c, p) for r in (None, 2, 4) for c in (None, True) for p in (0, 20)}
    every = [i for budget in BUDGETS for i in preset("readme").wanted(budget)]
    assert all(i.config.task.length >= 20 for i in every if i.label.endswith("no refresh"))
    table4 = {i.config.key: i.label for i in preset("table4").wanted("full")}
    shared = {i.label: table4[i.config.key] for i in items if i.config.key in table4}
    assert shared == {"rank 1": "VLA (as run)", "rank 1, no refresh": "no refresh"}


def test_figure5_is_the_papers():
    items = preset("figure5").wanted("full")
    assert len(items) == 4 * 5 * 3
    assert {i.config.task.pairs for i in items} == {4, 8, 12, 16, 24}
    assert {i.config.seed for i in items} == set(SEEDS)
    assert {(i.config.steps, i.config.lr, i.config.batch) for i in items} == {(2000, 3e-4, 64)}
    assert {(i.config.model.width, i.config.model.heads) for i in items} == {(128, 4)}


def test_the_published_protocols_are_in_the_full_budgets():
    def has(name: str, **wanted: object) -> bool:
        return any(
            all(getattr(i.config, k) == v for k, v in wanted.items())
            for i in preset(name).wanted("full")
        )

    assert has("table10", steps=1000, lr=3e-4, seed=42)
    assert has("table13", steps=1000, lr=3e-4, seed=42)
    assert has("table4", steps=1000, lr=3e-4, seed=42)
    assert has("table7", steps=1500, batch=32, lr=3e-4, seed=42)
    assert has("figure6", steps=2000, lr=3e-4, seed=42)
    for item in preset("table13").wanted("full"):
        assert dict(item.config.also_eval)["ood"].keys == (64, 127)


def test_unknown_names_and_budgets_are_named():
    with pytest.raises(ArgumentError, match="figure5"):
        preset("figure99")
    with pytest.raises(ArgumentError, match="smoke"):
        preset("figure5").wanted("huge")


GRID = (1e-3, 1e-2, 1e-1)


def test_a_grid_stays_until_it_is_known_and_then_widens_at_an_edge_that_is_best():
    assert widened(GRID, {}) == list(GRID)
    assert widened(GRID, {1e-3: 0.1, 1e-2: 0.9}) == list(GRID)
    assert widened(GRID, {1e-3: 0.1, 1e-2: 0.9, 1e-1: 0.2}) == list(GRID)
    assert widened(GRID, {1e-3: 0.1, 1e-2: 0.2, 1e-1: 0.9}) == [*GRID, 1.0]
    assert widened(GRID, {1e-3: 0.9, 1e-2: 0.2, 1e-1: 0.1}) == [1e-4, *GRID]


def test_widening_goes_on_and_ends():
    scores = {1e-3: 0.1, 1e-2: 0.2, 1e-1: 0.9, 1.0: 0.95}
    assert widened(GRID, scores) == [*GRID, 1.0, 10.0]
    assert widened(GRID, {**scores, 10.0: 1.0}, most=2) == [*GRID, 1.0, 10.0]
    assert widened(GRID, {**scores, 10.0: 0.1}) == [*GRID, 1.0, 10.0]
    assert widened(GRID, {1e-3: 0.1, 1e-2: 0.2, 1e-1: 0.9}, most=0) == list(GRID)


def test_equal_best_rates_widen_nothing_and_the_middle_one_is_taken():
    assert widened(GRID, dict.fromkeys(GRID, 1.0)) == list(GRID)
    assert best_rate(dict.fromkeys(GRID, 1.0), GRID) == 1e-2
    assert best_rate({1e-3: 0.1, 1e-2: 1.0, 1e-1: 1.0}, GRID) == 1e-2


def test_the_best_rate_waits_for_the_widened_grid():
    assert best_rate({1e-3: 0.1, 1e-2: 0.2, 1e-1: 0.9}, GRID) is None
    assert best_rate({1e-3: 0.1, 1e-2: 0.2, 1e-1: 0.9, 1.0: -1.0}, GRID) == 1e-1


def pretend(item, score: float, status: str = "done") -> RunRow:
    split = {"accuracy": score, "loss": 1.0, "count": 1}
    evaluation = {"validation": split, "test": {**split, "accuracy": 0.0}}
    result = RunResult(status=status, evaluation=evaluation if status == "done" else {})
    return RunRow(item.config.key, item.config, status, result, label=item.label)


def grown(budget: str, score) -> list[RunRow]:
    """The fair preset, run to its end with pretended results."""
    fair, rows = preset("fair"), {}
    for _ in range(10):
        items = fair.wanted(budget, list(rows.values()))
        new = [item for item in items if item.config.key not in rows]
        if not new:
            return list(rows.values())
        for item in new:
            rows[item.config.key] = pretend(item, *score(item.config))
    raise AssertionError("it never ends")


def test_fair_ends_with_three_seeds_at_each_best_rate():
    def score(chosen):
        if chosen.model.mixer == "softmax":
            return (0.0, "nan") if chosen.lr > 5e-3 else (0.5,)
        return (1 - abs(math.log10(chosen.lr) + 2),)

    rows = grown("full", score)
    groups = {row.config.shape_key for row in rows}
    for shape in groups:
        mine = [row for row in rows if row.config.shape_key == shape]
        best = [row.config.lr for row in mine if row.config.seed == 999]
        assert len(best) == 1
        rates = {row.config.lr for row in mine if row.config.seed == 42}
        assert len(rates) >= 5
        assert {row.config.seed for row in mine if row.config.lr == best[0]} == set(SEEDS)
        if mine[0].config.model.mixer != "softmax":
            assert best == [1e-2]


def test_fair_is_fair():
    items = preset("fair").wanted("full")
    main = [i for i in items if "," not in i.label]
    assert {i.config.model.short_conv for i in main} == {4}
    assert {i.config.model.output_norm for i in main} == {"layer"}
    assert {2 * i.config.task.pairs // i.config.model.d for i in main} == {1, 2, 4}
    bare = [i for i in items if "no short convolution" in i.label]
    assert {i.config.model.short_conv for i in bare} == {0}


def test_the_matched_delta_rule_carries_as_much_as_vla():
    from vla import nn

    items = preset("fair").wanted("full")
    pick = {i.label: i.config.model for i in items if i.config.task.pairs == 64}
    sizes = {}
    for label in ("delta, state as large as VLA's", "vla_exact"):
        sizes[label] = nn.state_size(nn.build(pick[label]), 10)
    (matched, exact) = sizes.values()
    assert matched["S"] == exact["S"] + exact["A"]


def test_an_estimate_adds_up_tokens():
    chosen = config(steps=100)
    assert tokens(chosen) == 100 * 4 * 6 + 2 * 2 * 4 * 6 // 3
    items = preset("table7").wanted("smoke")
    pace = {i.config.model.mixer: 1e-6 for i in items}
    total = estimate("table7", items, pace)
    assert total.runs == 8
    assert total.seconds == pytest.approx(1e-6 * sum(tokens(i.config) for i in items))
    assert "8 runs" in str(dataclasses.replace(total, seconds=90))
    assert "1.5 min" in str(dataclasses.replace(total, seconds=90))
