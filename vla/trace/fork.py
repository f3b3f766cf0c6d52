"""One timeline, forked at a token: two memories on one clock, that part and may heal.

Main branch and fork live through the same tokens but one. So that both keep one clock, a token that
is missing in a branch is a tick at which its memory holds still.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np
import torch

from vla.errors import ArgumentError, require_choice, require_integer
from vla.rules import Rule
from vla.tokens import Stream
from vla.trace import measure
from vla.trace.model import Array, Branch, Lane, Trace
from vla.trace.recorder import Rules, lane_rules, record

ACTS = ("edit", "drop", "repeat")


class Fork(NamedTuple):
    """Two streams of one length, and the step at which they first differ."""

    main: Stream
    branch: Stream
    step: int
    act: str


def fork(stream: Stream, act: str, token: int, other: Stream | None = None) -> Fork:
    """Fork a stream at one token: ``edit``, ``drop`` or ``repeat`` it.

    To edit is to take what ``other`` has there. ``other`` is a whole stream of the same length: in
    a trained layer an edited token changes the keys of those after it too. The main branch's label
    of the token says what the fork does.
    Raises ``ValueError`` for a token that only asks, since it leaves no trace in a memory, for one
    outside the stream, and for an ``other`` of another length.
    """
    require_choice("fork", act, ACTS)
    require_integer("fork at", token + 1, low=1, high=len(stream))
    if not stream.writes[token]:
        raise ArgumentError("fork at", f"step {token + 1}, which only asks", "a step that stores")
    if act == "drop":
        pair = _relabelled(stream, token, "dropped"), _holding(stream, token)
    elif act == "repeat":
        twice = _twice(stream, token)
        label = f"fork: {stream.labels[token]} again"
        pair = dataclasses.replace(_holding(twice, token + 1, label)), twice
    else:
        if other is None or len(other) != len(stream):
            raise ArgumentError("other", other and len(other), f"a stream of {len(stream)} tokens")
        pair = _relabelled(stream, token, other.labels[token]), other
    return Fork(*pair, token + 1 + (act == "repeat"), act)


def record_fork(rules: Rules, forked: Fork, *, dtype: torch.dtype = torch.float64) -> Trace:
    """Both branches recorded; every lane has the other branch's side in ``Lane.branch``.

    Pairs are the main branch's. The fork's recall of one is measured against what the fork stored
    at that token, and is NaN where it stored nothing. Raises ``ValueError`` as ``record`` does.
    """
    lanes = lane_rules(rules)
    main = record(lanes, forked.main, dtype=dtype)
    other = record(lanes, forked.branch, dtype=dtype)
    joined = tuple(
        dataclasses.replace(lane, branch=_branch(rule, main, lane, other, twin))
        for rule, lane, twin in zip(lanes.values(), main.lanes, other.lanes, strict=True)
    )
    return dataclasses.replace(main, lanes=joined, forked_at=forked.step)


def _branch(rule: Rule, main: Trace, lane: Lane, other: Trace, twin: Lane) -> Branch:
    gap = np.full(len(main), np.nan)
    D = np.subtract(lane.S, twin.S, where=np.isfinite(lane.S) & np.isfinite(twin.S),
                    out=np.full_like(lane.S, np.nan))  # fmt: skip
    if rule.has_matrix:
        gap[lane.kept] = measure.frobenius(torch.from_numpy(D)).numpy()
    recall = np.full(lane.recall.shape, np.nan)
    place = {int(token): column for column, token in enumerate(other.pairs)}
    for column, token in enumerate(main.pairs):
        if int(token) in place:
            recall[:, column] = twin.recall[:, place[int(token)]]
    return Branch(
        D=D, gap=gap, recall=recall, recall_mean=_mean(main, lane, recall), norm_S=twin.norm_S,
        answers=twin.answers, correct=twin.correct,
    )  # fmt: skip


def _mean(trace: Trace, lane: Lane, recall: Array) -> Array:
    """Mean over the main branch's live pairs that the fork stored too."""
    after = lane.kept[:, None]
    gone = trace.overwritten_at
    live = (trace.pairs < after) & ((gone < 0) | (after < gone)) & np.isfinite(recall)
    count = live.sum(1)
    mean = np.full(len(trace), np.nan)
    total = np.where(live, recall, 0.0).sum(1)
    mean[lane.kept[count > 0]] = total[count > 0] / count[count > 0]
    return mean


def _holding(stream: Stream, token: int, label: str | None = None) -> Stream:
    """The same stream with a tick that neither writes nor asks."""
    asks = torch.tensor(stream.asks())
    source = torch.where(asks, torch.tensor(stream.expected()), -1)
    writes = stream.writes.clone()
    writes[token] = False
    source[source == token] = -1
    labels = list(stream.labels)
    labels[token] = labels[token] if label is None else label
    held = dataclasses.replace(stream, writes=writes, source=source, labels=tuple(labels))
    # What was asked of the missing write is asked of the one before it, if there is one.
    if stream.source is None:
        again = dataclasses.replace(held, source=None).expected()
        source[asks] = torch.tensor(again)[asks]
    return held


def _twice(stream: Stream, token: int) -> Stream:
    """The same stream with one token written again right after itself."""
    order = torch.tensor([*range(token + 1), *range(token, len(stream))])
    names = ("k", "v", "q", "u", "writes", "key_id")
    rows = {name: getattr(stream, name)[order] for name in names}
    pick = order.tolist()
    return dataclasses.replace(
        stream, **rows,
        beta=None if stream.beta is None else stream.beta[order],
        labels=tuple(stream.labels[t] for t in pick),
        remarks=tuple(stream.remarks[t] for t in pick) if stream.remarks else (),
        source=None if stream.source is None else _moved(stream.source, token)[order],
    )  # fmt: skip


def _moved(source: torch.Tensor, token: int) -> torch.Tensor:
    """Places after the repeated token move down by one."""
    return source + (source > token).long()


def _relabelled(stream: Stream, token: int, words: str) -> Stream:
    labels = list(stream.labels)
    labels[token] = f"{labels[token]} · fork: {words}"
    return dataclasses.replace(stream, labels=tuple(labels))
