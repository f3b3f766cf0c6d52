"""How large memories get on long streams, and how much unnormalised writes stretch (paper §4, §6).

:func:`follow` runs in slices, so that a page can show progress and stop it at any point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import torch

from vla import paper
from vla.errors import require_choice, require_integer
from vla.ops import VLAState, delta_rule, linear_attention, vla_attention
from vla.rules import RULES, Rule, Token, names, transition
from vla.rules.delta import Delta
from vla.rules.linear import Linear
from vla.rules.rls import RLS
from vla.rules.vla import VLA
from vla.tokens import MAX_TOKENS, Stream, from_pairs
from vla.typing import Float, Int, Tensor

Array = np.ndarray
KEYS = ("gaussian", "elu+1")
TABLE_2_WIDTHS = (32, 64, 96, 128)
_AFTER = 25
_SLICE = 1024
"""Tokens run between two chances to stop."""


@dataclass
class Norms:
    """One rule's sizes at some steps; filled while it runs."""

    rule: str
    title: str
    colour: str
    steps: list[int] = field(default_factory=lambda: [0])
    norm_S: list[float] = field(default_factory=lambda: [0.0])
    norm_A: list[float] = field(default_factory=list)
    """Frobenius; empty for a rule that keeps no A."""
    eigen_A: list[list[float]] = field(default_factory=list)
    """Eigenvalues of A, ascending, at each step."""


@dataclass(frozen=True)
class Course:
    """How far a run has come."""

    length: int
    lanes: tuple[Norms, ...]
    done: float
    """Share of all tokens of all lanes."""


def long_stream(length: int, d: int, *, keys: str = "gaussian", seed: int = 0) -> Stream:
    """Random keys and Gaussian values, all independent. ELU+1 keys share a large common part.

    Raises ``ValueError`` for a length outside 1 to 100 000, a width below 1 or unknown keys.
    """
    require_integer("length", length, low=1, high=MAX_TOKENS)
    require_integer("d", d, low=1)
    require_choice("keys", keys, KEYS)
    draw = torch.Generator().manual_seed(seed)
    k = torch.randn(length, d, generator=draw, dtype=torch.float64)
    v = torch.randn(length, d, generator=draw, dtype=torch.float64)
    k = torch.nn.functional.elu(k) + 1 if keys == "elu+1" else k
    return from_pairs(k, v, seed=seed, name=f"{keys} keys")


def state_rules() -> list[str]:
    """Names of the rules that have a memory of fixed size; softmax attention's cache grows."""
    return [name for name in names() if RULES[name]().init(2, 2).cache is None]


def marks(length: int, count: int = 48) -> Int[Array, "m"]:
    """About ``count`` steps from 1 to ``length``, evenly spaced on a logarithmic axis."""
    require_integer("length", length, low=1)
    return np.unique(np.geomspace(1, length, count).round().astype(int))


@torch.no_grad()
def follow(rules: dict[str, Rule], stream: Stream, *, points: int = 48) -> Iterator[Course]:
    """Run every rule over the stream and yield after each slice of at most 1 024 tokens.

    Sizes are taken at :func:`marks`. Delta rule, linear attention, RLS and VLA with u = k go by
    their exact chunkwise form (``vla.ops``), every other rule token by token, all in float64.
    """
    length, total = len(stream), len(stream) * max(1, len(rules))
    lanes = tuple(Norms(name, rule.title, rule.colour) for name, rule in rules.items())
    at = [int(step) for step in marks(length, points)]
    for i, (lane, rule) in enumerate(zip(lanes, rules.values(), strict=True)):
        advance, A = _runner(rule, stream)
        _note_inverse(lane, A)
        for start, stop in _slices(at):
            S, A = advance(start, stop)
            if stop in at:
                lane.steps.append(stop)
                lane.norm_S.append(float(torch.linalg.matrix_norm(S)))
                _note_inverse(lane, A)
            yield Course(length, lanes, (i * length + stop) / total)


def _slices(at: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for stop in at:
        while start < stop:
            end = min(stop, start + _SLICE)
            yield start, end
            start = end


def _note_inverse(lane: Norms, A: Tensor | None) -> None:
    if A is not None:
        values = torch.linalg.eigvalsh(A) if A.isfinite().all() else A.diagonal() * math.nan
        lane.norm_A.append(float(torch.linalg.matrix_norm(A)))
        lane.eigen_A.append(values.tolist())


_Advance = Callable[[int, int], tuple[Tensor, Tensor | None]]


def _runner(rule: Rule, stream: Stream) -> tuple[_Advance, Tensor | None]:
    """Something that moves the memory from one step to another, and the first ``A``."""
    state = rule.init(stream.d, stream.d_v)
    fast = _chunkwise(rule)
    return (_by_token(rule, stream) if fast is None else _by_chunk(rule, stream, fast)), state.A


def _by_token(rule: Rule, stream: Stream) -> _Advance:
    state = rule.init(stream.d, stream.d_v)

    def advance(start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        nonlocal state
        for t in range(start, stop):
            state = rule.step(state, Token(k=stream.k[t], v=stream.v[t], u=stream.u[t]))
        return state.S, state.A

    return advance


def _by_chunk(rule: Rule, stream: Stream, run: Callable[..., tuple]) -> _Advance:
    keys, values = (x[None, :, None] for x in (rule.features_of(stream.k), stream.v))
    state: VLAState | None = None

    def advance(start: int, stop: int) -> tuple[Tensor, Tensor | None]:
        nonlocal state
        k, v = keys[:, start:stop], values[:, start:stop]
        _, state = run(k, k, v, initial_state=state, output_final_state=True, backend="chunk")
        assert state is not None
        return state.S[0, 0], None if state.A is None else state.A[0, 0]

    return advance


def _chunkwise(rule: Rule) -> Callable[..., tuple] | None:
    """The operator that does exactly what this rule does; ``None`` if there is none."""
    if type(rule) is Linear:
        return linear_attention
    if type(rule) is Delta and rule.beta == 1:
        return delta_rule
    if type(rule) is RLS and rule.beta == 1:
        return _vla(rule.lambda0, "rls", 0, 0.0)
    if type(rule) is VLA and rule == _plain(rule):
        return _vla(rule.lambda0, rule.gain, rule.refresh_every, rule.refresh_eps)
    return None


def _plain(rule: VLA) -> VLA:
    """The VLA rule of the same settings as far as ``vla_attention`` has them."""
    return VLA(
        lambda0=rule.lambda0, gain=rule.gain, refresh_every=rule.refresh_every,
        refresh_eps=rule.refresh_eps, features=rule.features, normalise_key=rule.normalise_key,
    )  # fmt: skip


def _vla(lambda0: float, gain: str, every: int, eps: float) -> Callable[..., tuple]:
    def run(q: Tensor, k: Tensor, v: Tensor, **more: object) -> tuple:
        settings = {"lambda0": lambda0, "gain": gain, "refresh_every": every, "refresh_eps": eps}
        return vla_attention(q, k, v, **settings, **more)  # type: ignore[arg-type]

    return run


@dataclass(frozen=True)
class Stretch:
    """Table 2 for one width: what is printed, and what was measured."""

    d: int
    printed_step: float
    printed_product: float
    step: float
    """Geometric mean of ‖J_t‖ over 25 tokens and the draws, un-normalised ("v2")."""
    product: float
    """Geometric mean of ‖J_1 ⋯ J_25‖ over the draws."""
    unit_step: float
    """The same with unit keys and unit gain ("v3"); the paper prints 1.000."""
    unit_product: float


def table_2(*, draws: int = 4, seed: int = 0) -> list[Stretch]:
    """Measure what the paper's Table 2 prints, for each of its widths.

    v2 has raw ELU+1 keys, a ``u`` of its own and α at its length; v3 has unit keys and α̂. Keys are
    ELU+1 of Gaussians, u independent Gaussian of unit length, λ0 = 0.1: the paper doesn't say its
    own. The printed product is the printed norm to the 25th power, not a measured product.
    """
    return [_stretch(row, draws, seed) for row in paper.table(2)]


def _stretch(row: dict[str, str], draws: int, seed: int) -> Stretch:
    d = int(row["d_h"])
    form = VLA(features="elu+1", direction="token", unit_direction=True)
    raw = _jacobians(form.with_(normalise_key=False, gain="rls"), d, draws, seed)
    unit = _jacobians(form, d, draws, seed)
    printed = [paper.number(row[name]) for name in ("unnormalised_norm", "unnormalised_after_25")]
    return Stretch(
        d, float(printed[0] or math.nan), float(printed[1] or math.nan),
        *_sizes(raw), *_sizes(unit),
    )  # fmt: skip


@torch.no_grad()
def _jacobians(rule: Rule, d: int, draws: int, seed: int) -> Float[Tensor, "t b d d"]:
    draw = torch.Generator().manual_seed(seed)
    k, u, v = torch.randn(3, _AFTER, draws, d, generator=draw, dtype=torch.float64)
    state = rule.init(d, d, batch=(draws,))
    each = []
    for t in range(_AFTER):
        state = rule.step(state, Token(k=k[t], v=v[t], u=u[t]))
        assert state.write is not None
        each.append(transition(state.write))
    return torch.stack(each)


def _sizes(J: Float[Tensor, "t b d d"]) -> tuple[float, float]:
    product = J[0]
    for each in J[1:]:
        product = product @ each
    step, whole = (torch.linalg.matrix_norm(x, 2).log().mean().exp() for x in (J, product))
    return float(step), float(whole)
