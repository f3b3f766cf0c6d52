"""What the rows say: slopes of log time against log length, and where two curves meet."""

import math
from collections.abc import Callable, Iterable
from typing import Any

Row = dict[str, Any]


def slope(points: Iterable[tuple[int, float]]) -> float:
    """Least-squares slope of log time against log tokens; 1 is linear, 2 quadratic.

    :raises ValueError: with fewer than two lengths.
    """
    logs = [(math.log(t), math.log(ms)) for t, ms in points]
    if len({x for x, _ in logs}) < 2:
        raise ValueError("a slope needs two lengths")
    mean_x = sum(x for x, _ in logs) / len(logs)
    mean_y = sum(y for _, y in logs) / len(logs)
    spread = sum((x - mean_x) ** 2 for x, _ in logs)
    return sum((x - mean_x) * (y - mean_y) for x, y in logs) / spread


def curve(rows: Iterable[Row], method: str, shape: str, which: str) -> list[tuple[int, float]]:
    """``(tokens, median ms)`` of one method, shape and pass, by length."""
    chosen = [r for r in rows if (r["method"], r["shape"], r["pass"]) == (method, shape, which)]
    return sorted((r["tokens"], r["median_ms"]) for r in chosen)


def bracket(
    ours: list[tuple[int, float]], theirs: list[tuple[int, float]]
) -> tuple[int | None, int | None]:
    """The measured lengths between which ``ours`` becomes the faster one, and stays it.

    ``(None, T)``: faster at every length from the shortest, T, on. ``(T, None)``: never.
    """
    other = dict(theirs)
    lengths = [t for t, _ in ours if t in other]
    mine = dict(ours)
    slower = [t for t in lengths if mine[t] >= other[t]]
    if not slower:
        return None, (lengths[0] if lengths else None)
    last = slower[-1]
    after = [t for t in lengths if t > last]
    return last, (after[0] if after else None)


def bisect(
    low: int, high: int, faster: Callable[[int], bool], *, step: int = 64, rounds: int = 4
) -> tuple[int, int]:
    """Narrow a bracket by measuring in its middle: ``faster(T)`` says whether ours is, at T."""
    for _ in range(rounds):
        middle = round((low + high) / 2 / step) * step
        if middle in (low, high):
            break
        low, high = (low, middle) if faster(middle) else (middle, high)
    return low, high
