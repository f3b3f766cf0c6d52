"""The transcribed tables: complete, consistent with the text's numbers, readable."""

from __future__ import annotations

import pytest

from vla.errors import ArgumentError
from vla.paper import RUNS, about, number, run, table

ROWS = {1: 4, 2: 4, 3: 15, 4: 6, 5: 5, 6: 24, 7: 7, 8: 11, 9: 4, 10: 5, 11: 5, 12: 4, 13: 12}


@pytest.mark.parametrize("index", range(1, 14))
def test_every_table_is_whole(index: int) -> None:
    rows = table(index)
    assert len(rows) == ROWS[index]
    assert all(None not in row and None not in row.values() for row in rows)
    assert about(index)["table"] == str(index)
    assert about(index)["caption"]


def test_values_that_other_places_of_the_paper_repeat() -> None:
    """Table 9's means, Table 12's differences, Table 2's powers: printed digits agree."""
    for row in table(9):
        seeds = [number(row[f"seed_{seed}"]) or 0.0 for seed in (42, 123, 999)]
        assert sum(seeds) / 3 == pytest.approx(number(row["mean"]), abs=6e-4)
    for row in table(12):
        change = (number(row["steps_2000"]) or 0) - (number(row["steps_1000"]) or 0)
        assert change == pytest.approx(number(row["steps_effect"]), abs=1e-9)
    for row in table(2):
        power = (number(row["unnormalised_norm"]) or 0) ** 25
        assert power == pytest.approx(number(row["unnormalised_after_25"]), rel=0.06)


def test_accuracies_are_accuracies() -> None:
    for name in ("capacity", "capacity_training", "long_context"):
        for row in run(name):
            values = [number(cell) for cell in list(row.values())[1:]]
            assert all(value is not None and 0 <= value <= 1 for value in values)
    for row in table(13):
        drop = (number(row["id_acc"]) or 0) - (number(row["ood_acc"]) or 0)
        assert drop == pytest.approx(number(row["drop"]), abs=1.001e-3)


def test_the_columns_that_list_32_twice_are_kept_and_remarked() -> None:
    overload = {row["model"]: row["n48"] for row in table(10)}
    for row in table(11)[1:4]:
        assert row["n32_again"] == overload[row["model"].replace("Linear attn", "Linear")]
        assert row["n48"] == ""
    assert "n = 32 twice" in about(11)["remark"]


@pytest.mark.parametrize("name", RUNS)
def test_every_log_is_there(name: str) -> None:
    assert run(name)


def test_bad_requests_say_what_is_known() -> None:
    with pytest.raises(ArgumentError, match="from 1 to 13"):
        table(14)
    with pytest.raises(ArgumentError, match="capacity"):
        run("speed")
    assert number("NaN (d≥96)") is None
