"""Recorded runs as text: lists, comparisons, one run in full."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from vla.errors import ArgumentError
from vla.train.result import DONE, RunRow

COLUMNS = ("key", "status", "label", "task", "n", "T", "steps", "lr", "seed", "test", "device")


def listing(rows: Sequence[RunRow]) -> str:
    """One line a run, and how many there are."""
    table = grid([COLUMNS, *(_cells(row) for row in rows)]) if rows else ""
    return f"{table}\n{len(rows)} runs".lstrip()


def _cells(row: RunRow) -> tuple[str, ...]:
    accuracy = row.accuracy()
    return (
        row.key[:10],
        row.status,
        row.label or str(row.config.model),
        row.config.task.name,
        _text(row.value("task.pairs")),
        str(row.config.task.length),
        str(row.config.steps),
        f"{row.config.lr:g}",
        str(row.config.seed),
        "" if math.isnan(accuracy) else f"{accuracy:.3f}",
        row.result.device,
    )


def compare(rows: Sequence[RunRow], down: str, across: str) -> str:
    """Test accuracy by two fields: mean ± standard deviation over the runs in a cell, and how many.

    A cell with several learning rates shows the one that is best on validation.
    """
    lines, heads = _distinct(rows, down), _distinct(rows, across)
    cells = [
        [_text(line), *(_summary(_cell(rows, down, line, across, head)) for head in heads)]
        for line in lines
    ]
    return grid([[f"{down} \\ {across}", *map(_text, heads)], *cells])


def _cell(rows: Sequence[RunRow], down: str, line: Any, across: str, head: Any) -> list[RunRow]:
    return [row for row in rows if row.value(down) == line and row.value(across) == head]


def at_best_rate(rows: Sequence[RunRow]) -> list[RunRow]:
    """The runs at the learning rate with the best mean accuracy on validation.

    Rates are compared on the seeds that all of them have: otherwise a rate with one lucky seed wins
    against one that three seeds have tried. Among equals the rate with the most runs. Runs that
    ended badly count as no accuracy at all.
    """
    by_rate: dict[float, list[RunRow]] = defaultdict(list)
    for row in rows:
        by_rate[row.config.lr].append(row)
    seeds = [{row.config.seed for row in mine} for mine in by_rate.values()]
    shared = set.intersection(*seeds) if seeds else set()
    return max(
        by_rate.values(), key=lambda mine: (_validation(mine, shared), len(mine)), default=[]
    )


def _validation(rows: Sequence[RunRow], seeds: Collection[int]) -> float:
    """Mean accuracy on validation over the runs of ``seeds``, or over all where there are none."""
    return statistics.fmean(
        row.accuracy("validation") if row.status == DONE else -1.0
        for row in rows
        if row.config.seed in seeds or not seeds
    )


def _summary(rows: Sequence[RunRow]) -> str:
    chosen = at_best_rate(rows)
    values = [row.accuracy() for row in chosen if row.status == DONE]
    if not values:
        return ", ".join(sorted({row.status for row in chosen}))
    spread = f"±{statistics.stdev(values):.3f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.3f}{spread} ({len(values)})"


def show(rows: Sequence[RunRow], key: str) -> str:
    """All about the one run whose key begins so. Raises ``ArgumentError`` unless one does."""
    found = [row for row in rows if row.key.startswith(key)]
    if len(found) != 1:
        raise ArgumentError("show", key, f"the beginning of one run's key; {len(found)} match")
    row = found[0]
    result = row.result
    facts: dict[str, Any] = {
        "key": row.key, "status": row.status, "run": row.config, "label": row.label,
        "attempts": row.attempts, "note": result.note, "step": result.step,
        "parameters": result.parameters, "state": result.state, "device": result.device,
        "versions": result.versions, "commit": result.commit,
        "duration": f"{result.duration:.1f} s, up to {result.jobs} at once",
        "finished": result.finished, **result.evaluation, "config": row.config.canonical,
    }  # fmt: skip
    return grid([[name, _text(value)] for name, value in facts.items() if value not in ("", {}, 0)])


def matching(rows: Sequence[RunRow], wanted: Mapping[str, Any]) -> list[RunRow]:
    """The rows whose fields have these values. Raises ``ArgumentError`` for a field none has."""
    for name in wanted:
        if rows and all(row.value(name) is None for row in rows):
            raise ArgumentError("where", name, "a field of the runs, such as lr or task.pairs")
    return [row for row in rows if all(row.value(n) == v for n, v in wanted.items())]


def ordered(rows: Sequence[RunRow], name: str | None) -> list[RunRow]:
    """The rows in the order of a field; those that lack it come last."""
    if name is None:
        return list(rows)
    has = [row for row in rows if row.value(name) is not None]
    if rows and not has:
        raise ArgumentError("sort", name, "a field of the runs, such as lr or test.accuracy")
    return [*sorted(has, key=lambda row: row.value(name)), *(r for r in rows if r not in has)]


def grid(lines: Sequence[Sequence[str]]) -> str:
    """Columns lined up."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def _distinct(rows: Sequence[RunRow], name: str) -> list[Any]:
    """The values of a field; numbers in order, words as they come."""
    values = list(dict.fromkeys(row.value(name) for row in rows))
    if rows and set(values) == {None}:
        raise ArgumentError("compare", name, "a field of the runs, such as lr or task.pairs")
    numbers = all(isinstance(v, int | float) for v in values)
    return sorted(values) if numbers else values


def _text(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, dict):
        return ", ".join(f"{k} {_text(v)}" for k, v in value.items())
    return "" if value is None else str(value)
