"""The sentence of a step, in plain words."""

from __future__ import annotations

import numpy as np

from vla.trace.model import Lane, Trace

_HURT = 0.005
"""Changes of recall error below this aren't worth a word."""


def describe(trace: Trace, lane: Lane | str, step: int) -> str:
    """What the step did to the lane's memory: the write, its numbers, and what it did to others.

    Raises ``KeyError`` for a lane that isn't traced and ``IndexError`` for a step outside it.
    """
    lane = trace.lane(lane) if isinstance(lane, str) else lane
    if not 0 <= step < len(trace):
        raise IndexError(f"step {step} of a trace with steps 0 to {len(trace) - 1}")
    if step == 0:
        return "The memory is empty."
    token = step - 1
    if not trace.stream.writes[token]:
        return _query(trace, lane, step)
    if trace.stream.source is not None and trace.stream.source[token] >= 0:
        return f"{_query(trace, lane, step)} {_write(trace, lane, step)}"
    return " ".join([_write(trace, lane, step), *_neighbours(trace, lane, step)])


def _query(trace: Trace, lane: Lane, step: int) -> str:
    label, answer = trace.stream.labels[step - 1].removeprefix("? "), lane.answers[step]
    verdict = {1: "right", 0: "wrong", -1: "nothing to compare it with"}[int(lane.correct[step])]
    wanted = trace.stream.expected()[step - 1]
    vocabulary = trace.stream.vocabulary
    if answer and vocabulary is not None:
        right = vocabulary.nearest(trace.stream.v[wanted])[0] if wanted >= 0 else ""
        tail = f", but {right} was stored" if verdict == "wrong" and right else ""
        return f"{label} is asked: the answer is {answer}, {verdict}{tail}."
    return f"{label} is asked: the nearest stored value is {verdict}; the memory stays as it is."


def _write(trace: Trace, lane: Lane, step: int) -> str:
    label = trace.stream.labels[step - 1].removeprefix("? ")
    parts = [f"{label} is written: error {_three(lane.norm_error[step])}"]
    if np.isfinite(lane.cosine[step]):
        parts.append(f"k·α̂ = {_three(lane.cosine[step])}")
    if np.isfinite(lane.delta[step]):
        parts.append(f"δ = {_three(lane.delta[step])}")
    return "; ".join(parts) + "."


def _neighbours(trace: Trace, lane: Lane, step: int) -> list[str]:
    """The pair just written, then the pair whose recall this step changed most."""
    row = int(np.searchsorted(lane.kept, step))
    if (
        row == 0
        or row >= len(lane.kept)
        or lane.kept[row] != step
        or lane.kept[row - 1] != step - 1
    ):
        return []
    now, before = lane.recall[row], lane.recall[row - 1]
    own = int(np.flatnonzero(trace.pairs == step - 1)[0])
    sentences = [f"It now reads back with error {_three(now[own])}."]
    gone = trace.overwritten_at
    alive = (trace.pairs < step - 1) & ((gone < 0) | (gone > step))
    change = np.where(alive, now - before, 0.0)
    change = np.nan_to_num(change)
    worst = int(np.abs(change).argmax())
    if abs(change[worst]) > _HURT:
        name = trace.stream.labels[int(trace.pairs[worst])].split(" → ")[0]
        verb = "worse" if change[worst] > 0 else "better"
        sentences.append(
            f"{name} reads back {verb}: error {_three(now[worst])} (was {_three(before[worst])})."
        )
    return sentences


def _three(value: float) -> str:
    """Three significant digits, without a sign for a rounded zero."""
    return f"{value:.3g}" if abs(value) >= 1e-12 else "0"
