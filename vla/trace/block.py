"""Step one rule through some tokens and collect what it did, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from vla.rules import Rule, State, Token, Write
from vla.rules.base import matvec, outer
from vla.tokens import Stream
from vla.typing import Bool, Float, Tensor


@dataclass
class Block:
    """Rows ``first …`` of a lane; vectors of queries are NaN, matrices are as they stood."""

    first: int
    S: Float[Tensor, "m dv d"]
    A: Float[Tensor, "m d d"] | None
    before: Float[Tensor, "dv d"]
    """S ahead of the first row."""
    writes: Bool[Tensor, "m"]
    k: Float[Tensor, "m d"]
    u: Float[Tensor, "m d"]
    gain: Float[Tensor, "m d"]
    v: Float[Tensor, "m dv"]
    error: Float[Tensor, "m dv"]
    delta: Float[Tensor, "m"]
    decay: Float[Tensor, "m r"]
    """One factor a step, or one for every value row."""
    taken: Bool[Tensor, "m"]
    """Whether the transition subtracts ``k gainᵀ``."""
    weight: Float[Tensor, "m"]
    read: Float[Tensor, "m dv"]
    recall: Float[Tensor, "j p"]
    """A row for each kept step of the block, a column for each pair of the whole stream."""


class Steps(NamedTuple):
    """Steps just made, as the rule returned them."""

    start: int
    before: Tensor
    states: list[State]
    """One for each token; a query repeats the state it found."""
    written: list[Write]
    """One for each writing token."""
    reads: list[Tensor]
    recalls: list[Tensor]


class Runner:
    """One rule on one stream: carries the state from block to block.

    Reads of a whole block go through ``rule.read`` as one batch. ``looped`` reads step by step: for
    rules that keep a growing cache, or whose reads don't batch over states.
    """

    def __init__(
        self, rule: Rule, stream: Stream, pairs: Tensor, dtype: torch.dtype, looped: bool = False
    ) -> None:
        self.rule, self.stream = rule, stream.to(dtype)
        self.pairs = pairs
        self.state = rule.init(stream.d, stream.d_v, dtype=dtype)
        self.looped = looped or self.state.cache is not None or type(self.state) is not State
        self.batches = True
        """Turns False when a batched read is found to differ from a read of one state."""
        self._keys, self._values = self.stream.k[pairs], self.stream.v[pairs].double()

    def tokens(self, start: int, stop: int) -> list[Token]:
        """Tokens of the stream as rules take them."""
        s = self.stream
        k, v, u = (x[start:stop].unbind(0) for x in (s.k, s.v, s.u))
        beta = [None] * len(k) if s.beta is None else s.beta[start:stop].unbind(0)
        return [Token(*parts) for parts in zip(k, v, beta, u, strict=True)]

    def advance(self, start: int, stop: int, kept: Sequence[int]) -> Steps:
        """Step through tokens ``start … stop − 1``, and no more: :meth:`block` does the rest."""
        steps = Steps(start, self.state.S.clone(), [], [], [], [])
        row = self.state._replace(S=steps.before)
        writes = self.stream.writes[start:stop].tolist()
        for t, token in enumerate(self.tokens(start, stop), start):
            if writes[t - start]:
                old, self.state = self.state, self.rule.step(self.state, token)
                row = _own_copy(self.state, old)
                steps.written.append(_what_it_did(self.rule, old, row, token))
            steps.states.append(row._replace(cache=None) if self.looped else row)
            if self.looped:
                steps.reads.append(self.rule.read(self.state, self.stream.q[t]))
                if t + 1 in kept:
                    steps.recalls.append(self._recall(_lead(self.state), t + 1))
        return steps

    def block(self, steps: Steps, kept: Sequence[int]) -> Block:
        """The steps as rows, with every read and the recall at the ``kept`` steps."""
        states = _stack(steps.states)
        if self.looped:
            read, recalls = torch.stack(steps.reads), steps.recalls
        else:
            read = self._read(states, steps)
            recalls = self._recalls(states, [t - steps.start - 1 for t in kept], steps.start)
        return self._block(steps, states, read, _cat(recalls, len(self.pairs)))

    def _read(self, states: State, steps: Steps) -> Tensor:
        stop = steps.start + len(steps.states)
        answers = self.rule.read(states, self.stream.q[steps.start : stop])
        single = self.rule.read(steps.states[-1], self.stream.q[stop - 1])
        close = torch.allclose(answers[-1], single, rtol=1e-2, atol=1e-6, equal_nan=True)
        self.batches = self.batches and close
        return answers

    def _recalls(self, states: State, rows: list[int], start: int) -> list[Tensor]:
        # A few steps at a time, so that the answers of a batch stay in the processor's cache.
        stored = int((self.pairs < start + len(states.S)).sum())
        size = max(1, 300_000 // max(1, stored * self._values.shape[1]))
        parts = [rows[i : i + size] for i in range(0, len(rows), size)]
        return [self._recall(_lead(_rows(states, x)), start + 1 + x[-1]) for x in parts]

    def _recall(self, states: State, last: int) -> Tensor:
        """Relative error of every pair written by step ``last``, in every state; NaN for the rest.

        A value of zero length has no relative error: its absolute one stands in.
        """
        count = int((self.pairs < last).sum())
        errors = torch.full((len(states.S), len(self.pairs)), torch.nan, dtype=torch.float64)
        if count:
            values = self._values[:count]
            answers = self.rule.read(states, self._keys[:count]).double()
            answers = _owned(answers).reshape(len(states.S), *values.shape)
            size = values.norm(dim=-1)
            few = max(1, 64_000 // values.numel())
            gaps = [torch.linalg.vector_norm(x.sub_(values), dim=-1) for x in answers.split(few)]
            errors[:, :count] = torch.cat(gaps) / size.where(size > 0, 1.0)
        return errors

    def _block(self, steps: Steps, states: State, read: Tensor, recall: Tensor) -> Block:
        start, written = steps.start, steps.written
        size, d, d_v = len(states.S), self.stream.d, self.stream.d_v
        writes = self.stream.writes[start : start + size]

        def rows(field: str, width: int) -> Tensor:
            found = [getattr(write, field) for write in written]
            out = torch.full((size, width), torch.nan, dtype=torch.float64)
            if found and found[0] is not None:
                out[writes] = torch.stack(found).double().reshape(-1, width)
            return out

        decays = [_decay(write) for write in written]
        width = max((x.numel() for x in decays), default=1)
        decay = torch.ones(size, width, dtype=torch.float64)
        if decays:
            decay[writes] = torch.stack([x.reshape(-1).expand(width) for x in decays])
        taken = torch.zeros(size, dtype=torch.bool)
        taken[writes] = torch.tensor([write.residual for write in written], dtype=torch.bool)
        return Block(
            first=start + 1, S=states.S.double(), before=steps.before.double(), writes=writes,
            A=None if states.A is None else states.A.double(),
            k=rows("k", d), u=rows("u", d), gain=rows("gain", d),
            v=rows("v", d_v), error=rows("error", d_v), delta=rows("delta", 1)[:, 0],
            decay=decay, taken=taken, weight=self._weights(start, start + size),
            read=read.double(), recall=recall,
        )  # fmt: skip

    def _weights(self, start: int, stop: int) -> Tensor:
        s = self.stream
        beta = None if s.beta is None else s.beta[start:stop]
        weight = self.rule.weight_of(Token(s.k[start:stop], s.v[start:stop], beta))
        given = torch.ones(stop - start) if weight is None else weight
        return torch.where(s.writes[start:stop], given.double(), 0.0)


def _own_copy(new: State, old: State) -> State:
    """A rule from outside may change its matrices in place; recorded rows must stay."""
    if new.S is not old.S and (new.A is None or new.A is not old.A):
        return new
    return new._replace(S=new.S.clone(), A=None if new.A is None else new.A.clone())


def _what_it_did(rule: Rule, old: State, new: State, token: Token) -> Write:
    """The step's own account, or one worked out from the states when the rule gives none."""
    if new.write is not None and new.write is not old.write:
        return new.write
    k = rule.features_of(token.k)
    error = token.v - matvec(old.S, k)
    change = new.S - old.S
    gain = matvec(change.mT, error) / (error * error).sum()
    off = (change - outer(error, gain)).norm()
    # Only a change of rank one along the residual has a gain; its transition stays unknown.
    gain = gain if bool(off <= 1e-6 * change.norm()) else torch.full_like(gain, torch.nan)
    return Write(k=k, v=token.v, error=error, gain=gain, decay=torch.full_like(k[0], torch.nan))


def _decay(write: Write) -> Tensor:
    return torch.ones(1, dtype=torch.float64) if write.decay is None else write.decay.double()


def _stack(states: list[State]) -> State:
    def together(name: str) -> Tensor | None:
        rows = [getattr(state, name) for state in states]
        return None if rows[0] is None else torch.stack(rows)

    S = torch.stack([state.S for state in states])
    return State(S=S, A=together("A"), z=together("z"))


def _rows(states: State, rows: list[int]) -> State:
    together = rows[-1] - rows[0] == len(rows) - 1
    index = slice(rows[0], rows[-1] + 1) if together else rows
    A, z = (None if x is None else x[index] for x in (states.A, states.z))
    return State(S=states.S[index], A=A, z=z)


def _lead(state: State) -> State:
    """A state with an axis more, so that it meets a row of queries; alone or one for each step."""
    single = state.S.ndim == 2

    def wide(x: Tensor | None, rank: int) -> Tensor | None:
        return None if x is None else x.reshape(-1, 1, *x.shape[x.ndim - rank :])

    if not single:
        return State(S=state.S[:, None], A=wide(state.A, 2), z=wide(state.z, 1))
    cache = None if state.cache is None else (state.cache[0][None], state.cache[1][None])
    return state._replace(S=state.S[None], A=wide(state.A, 2), z=wide(state.z, 1), cache=cache)


def _owned(answers: Tensor) -> Tensor:
    """Answers that may be overwritten: a read may return a view of the memory itself."""
    return answers if answers._base is None and answers.is_contiguous() else answers.clone()


def _cat(rows: list[Tensor], width: int) -> Tensor:
    return torch.cat(rows) if rows else torch.empty(0, width, dtype=torch.float64)
