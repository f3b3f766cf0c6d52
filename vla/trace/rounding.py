"""The same rules in other number formats: how far each memory drifts from its float64 run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch

from vla.errors import require_positive
from vla.rules import Rule
from vla.tokens import Stream
from vla.trace import measure
from vla.trace.block import Runner
from vla.trace.model import FORMATS, Array, Lane, Trace
from vla.trace.tape import BLOCK
from vla.typing import Float, Tensor


def with_rounding(trace: Trace, rules: Mapping[str, Rule], *, threshold: float = 0.01) -> Trace:
    """The trace with every lane's ``error_float32`` and ``error_bfloat16``.

    Each is ``‖S_t − S_t*‖/‖S_t*‖``, S* being the same rule's memory in float64. Everything is
    rounded: keys, values, the state and each operation of a step. NaN for a rule without a matrix,
    infinite once a memory has overflowed. ``threshold`` is what ``Lane.passes`` reports against.
    ``rules`` are the trace's lanes, in their order.
    Raises ``ValueError`` for a threshold that isn't positive.
    """
    require_positive("threshold", threshold)
    lanes = tuple(
        dataclasses.replace(lane, error_float32=single, error_bfloat16=half)
        for lane, (single, half) in zip(
            trace.lanes, (_errors(rule, trace.stream) for rule in rules.values()), strict=True
        )
    )
    return dataclasses.replace(trace, lanes=lanes, threshold=threshold)


def first_passing(lane: Lane, name: str, threshold: float) -> int | None:
    """The first step at which a format's error passes the threshold; ``None`` if it never does."""
    errors = getattr(lane, f"error_{name}")
    if errors is None:
        return None
    past = np.flatnonzero(errors > threshold)
    return int(past[0]) if len(past) else None


@torch.no_grad()
def _errors(rule: Rule, stream: Stream) -> list[Array]:
    """One row for each format."""
    rows = {name: np.full(len(stream) + 1, np.nan) for name in FORMATS}
    if not rule.has_matrix:
        return list(rows.values())
    pairs = stream.writes.nonzero()[:, 0]
    formats = {name: Runner(rule, stream, pairs, getattr(torch, name)) for name in FORMATS}
    exact = Runner(rule, stream, pairs, torch.float64)
    for start in range(0, len(stream), BLOCK):
        stop = min(start + BLOCK, len(stream))
        wanted = _memories(exact, start, stop)
        for name, runner in formats.items():
            error = measure.relative_distance(_memories(runner, start, stop), wanted)
            rows[name][start + 1 : stop + 1] = error.numpy()
    for row in rows.values():
        row[0] = 0.0
    return list(rows.values())


def _memories(runner: Runner, start: int, stop: int) -> Float[Tensor, "m dv d"]:
    return torch.stack([state.S for state in runner.advance(start, stop, []).states]).double()
