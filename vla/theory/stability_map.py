"""How much is recalled, and how large the memory grows, over penalty and correlation at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vla.errors import require_integer, require_positive
from vla.rules import Rule, State, Token
from vla.rules.inverse import first_inverse
from vla.tokens import Stream, make_stream
from vla.trace.measure import frobenius
from vla.typing import Float, Tensor

LAMBDA0 = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
RHO = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999)
MEASURES = ("recall", "size")


@dataclass(frozen=True)
class StabilityMap:
    """One rule on every (λ0, ρ): rows are penalties, columns correlations."""

    lambda0: tuple[float, ...]
    rho: tuple[float, ...]
    recall: Float[Tensor, "l r"]
    """Mean relative recall error ``‖S k_i − v_i‖/‖v_i‖`` of all n pairs at the end."""
    size: Float[Tensor, "l r"]
    """``‖S‖`` (Frobenius) at the end."""


def stability_map(
    rule: Rule,
    *,
    n: int,
    d: int = 16,
    seed: int = 7,
    lambda0: Sequence[float] = LAMBDA0,
    rho: Sequence[float] = RHO,
) -> StabilityMap:
    """Write n pairs whose keys have cosine ρ, for every penalty and correlation in one batch.

    The pairs are those of ``make_stream("correlated", …)``, so that each cell is the end of one
    trace, in float64; only ρ turns the keys, values stay. A rule without an ``A`` has equal rows.
    Raises ``ValueError`` for ``n < 1`` and a penalty or correlation out of range.
    """
    require_integer("n", n, low=1)
    for penalty in lambda0:
        require_positive("lambda0", penalty)
    streams = [
        make_stream("correlated", n=n, d=d, d_v=d, queries=0, seed=seed, rho=each) for each in rho
    ]
    k, v, u = (_rows(streams, name, len(lambda0)) for name in ("k", "v", "u"))
    state = _begin(rule, streams[0], lambda0, len(rho))
    for t in range(n):
        token = Token(k=k[:, :, t], v=v[:, :, t], u=u[:, :, t])
        state = rule.step(state, token)._replace(write=None)
    errors = torch.linalg.vector_norm(_answers(rule, state, k) - v, dim=-1)
    recall = (errors / v.norm(dim=-1)).mean(-1)
    return StabilityMap(tuple(lambda0), tuple(rho), recall, frobenius(state.S))


def _rows(streams: list[Stream], name: str, copies: int) -> Float[Tensor, "l r n w"]:
    """The same tokens for every penalty."""
    rows = torch.stack([getattr(stream, name) for stream in streams])
    return rows.expand(copies, *rows.shape)


def _begin(rule: Rule, stream: Stream, lambda0: Sequence[float], columns: int) -> State:
    """Empty memories ``[l, r, …]``; λ0 enters a rule by the A it begins with alone."""
    state = rule.init(stream.d, stream.d_v, batch=(len(lambda0), columns))
    if state.A is None:
        return state
    A = torch.stack([first_inverse(state.S[0], penalty) for penalty in lambda0])
    return state._replace(A=A)


def _answers(rule: Rule, state: State, k: Float[Tensor, "l r n d"]) -> Float[Tensor, "l r n dv"]:
    """What each memory says to every key."""
    z = None if state.z is None else state.z[:, :, None]
    return rule.read(State(S=state.S[:, :, None], z=z), k)
