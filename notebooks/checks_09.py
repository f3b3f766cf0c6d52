"""The exercises of chapter 9: when numbers agree, where tables part, a check of one's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from checks import judge

from vla import paper
from vla.claims import CHANGED, FAILS, HOLDS, UNDECIDED, VERDICTS
from vla.claims.finding import Value

SHARED = ("n8", "n16", "n24")
"""Loads that Tables 11 and 13 both have."""


def agrees(answer: Callable[..., Any]) -> None:
    """Exercise 9.1: whether a printed number lies in the range of ours, widened by a tolerance."""
    cases = []
    for printed, ours, tolerance in (
        (0.990, (0.100, 0.284, 0.098), 0.03),
        (0.083, (0.074, 0.073, 0.077), 0.03),
        (0.500, (0.126, 0.144, 0.977), 0.03),
        (1.000, (0.950, 0.960, 0.955), 0.03),
    ):
        right = Value("", printed, ours).agrees(tolerance)
        given = (printed, torch.tensor(ours, dtype=torch.float64), tolerance)
        cases.append((f"{printed:.3f} in print and {ours} of ours", given, right))
    judge(answer, cases)


def worst_row(answer: Callable[..., Any]) -> None:
    """Exercise 9.2: the row in which two columns differ most; Tables 11 and 13 come first."""
    drawn = torch.randn(2, 7, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    cases = []
    for words, (first, second) in (
        ("the columns of Tables 11 and 13", columns()),
        ("two random columns", (drawn[0], drawn[1])),
        ("these two, changed over", (drawn[1], drawn[0])),
    ):
        apart = [abs(a - b) for a, b in zip(first.tolist(), second.tolist(), strict=True)]
        cases.append((words, (first, second), apart.index(max(apart))))
    judge(answer, cases)


def columns() -> tuple[torch.Tensor, torch.Tensor]:
    """Accuracy after 1 000 steps at n = 8, 16, 24, four models each: Tables 11 and 13."""
    eleven = [paper.number(row[n]) for n in SHARED for row in paper.table(11)[:4]]
    thirteen = [paper.number(row["id_acc"]) for row in paper.table(13)]
    first, second = (torch.tensor(each, dtype=torch.float64) for each in (eleven, thirteen))
    return first, second


def verdict(answer: Callable[..., Any]) -> None:
    """Exercise 9.3: a verdict on "at least so much, in every run, after the stated steps"."""
    many, few, none = _runs(0.997, 0.993, 0.999), _runs(0.1, 0.284, 0.098), _runs()
    for words, stated, longer, right in (
        ("good runs", many, none, HOLDS),
        ("bad runs that get good with more steps", few, many, CHANGED),
        ("bad runs that stay bad", few, few, FAILS),
        ("one bad run among good ones, and none that is longer", _runs(0.99, 0.4), none, FAILS),
        ("no runs at all", none, none, UNDECIDED),
        ("no runs of the stated steps", none, many, UNDECIDED),
    ):
        if trouble := _not_said(answer, (stated, longer, 0.9), right):
            return print(trouble.format(words=words))
    return print("Right.")


def _not_said(answer: Callable[..., Any], given: tuple[Any, ...], right: str) -> str:
    """What to tell whose function doesn't say the right word; empty if it does."""
    try:
        said = answer(*given)
    except Exception as error:
        stopped = repr(error).replace("{", "{{").replace("}", "}}")
        return f"Not yet: for {{words}} your function stopped with {stopped}."
    if said is None or said is ...:
        return "Not yet: replace the dots by your answer and run this cell again."
    if not isinstance(said, str) or said not in VERDICTS:
        return f"Not right yet: for {{words}} no verdict came; it is one of {', '.join(VERDICTS)}."
    if said != right:
        return f'Not right yet: for {{words}} "{said}" came, it should be "{right}".'
    return ""


def _runs(*accuracies: float) -> torch.Tensor:
    return torch.tensor(accuracies, dtype=torch.float64)
