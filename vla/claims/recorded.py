"""Picking numbers out of recorded runs, under the paper's names."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vla.claims.finding import Chart, Series
from vla.train.result import DONE

if TYPE_CHECKING:
    from vla.train.result import RunRow

FOUR = ("softmax", "linear", "authors_delta", "vla_authors")
"""The paper's four models, as its authors' code has them."""
PRINTED = {
    "softmax": "softmax",
    "linear": "linear",
    "authors_delta": "DeltaNet",
    "vla_authors": "VLA",
}
LOG = {"softmax": "softmax", "linear": "linear", "authors_delta": "deltanet", "vla_authors": "vla"}
HUES = {
    "softmax": "softmax",
    "linear": "linear",
    "authors_delta": "authors_delta",
    "vla_authors": "vla",
}
TOLERANCE = 0.03
"""Accuracies this near agree: about what another seed changes."""


def matching(rows: Iterable[RunRow], label: str, **fields: object) -> list[RunRow]:
    """Runs of a label whose dotted fields (``task__pairs=24``) have these values."""
    wanted = {name.replace("__", "."): value for name, value in fields.items()}
    return [
        row for row in rows
        if row.label == label and all(row.value(name) == value for name, value in wanted.items())
    ]  # fmt: skip


def accuracies(
    rows: Iterable[RunRow], label: str, *, split: str = "test", **fields: object
) -> list[float]:
    """Accuracy of each such run that ended well."""
    found = [row.accuracy(split) for row in matching(rows, label, **fields) if row.status == DONE]
    return [value for value in found if not math.isnan(value)]


def mean(values: Sequence[float]) -> float | None:
    """Mean, or ``None`` of nothing."""
    return statistics.fmean(values) if values else None


def at_step(row: RunRow, step: int, quantity: str = "accuracy") -> float | None:
    """A learning curve's value in the window that ends at a step, or nearest to it."""
    curve = row.result.curve
    if not curve.get("step"):
        return None
    near = min(range(len(curve["step"])), key=lambda i: abs(curve["step"][i] - step))
    return curve[quantity][near] if abs(curve["step"][near] - step) <= 50 else None


def first_at(row: RunRow, accuracy: float) -> int | None:
    """The end of the first window of the learning curve that reaches an accuracy."""
    windows = zip(
        row.result.curve.get("step", ()), row.result.curve.get("accuracy", ()), strict=True
    )
    return next((step for step, value in windows if value >= accuracy), None)


def curves_at(rows: Sequence[RunRow], step: int, quantity: str = "accuracy") -> list[float]:
    """The same for every run that has it."""
    found = [at_step(row, step, quantity) for row in rows]
    return [value for value in found if value is not None]


def beside(
    x: str,
    y: str,
    ours: dict[str, dict[float, float]],
    printed: dict[str, dict[float, float]],
    *,
    log_x: bool = True,
) -> Chart:
    """A line per model, its printed values hollow."""
    series = []
    for name, points in ours.items():
        if points:
            series.append(Series(f"{PRINTED.get(name, name)}, ours", tuple(points),
                                 tuple(points.values()), HUES.get(name, "")))  # fmt: skip
    for name, points in printed.items():
        if points:
            series.append(Series(f"{PRINTED.get(name, name)}, as published", tuple(points),
                                 tuple(points.values()), HUES.get(name, ""), published=True,
                                 line=False))  # fmt: skip
    return Chart(x, y, tuple(series), log_x=log_x)
