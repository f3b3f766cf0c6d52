"""The exact chunkwise form in plain PyTorch, with an analytic backward: README.md derives it."""

import torch

from vla.ops.gain import write_direction
from vla.ops.layout import cut, heads_first, tokens_first
from vla.ops.memory import Writes
from vla.ops.penalty import PenalisedKeys
from vla.ops.state import VLAState
from vla.typing import Float, Tensor


def chunk_vla(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    u: Float[Tensor, "b t h *r d"],
    beta: Float[Tensor, "b t h"] | None,
    state: VLAState,
    *,
    gain: str = "unit",
    refresh_every: int = 0,
    refresh_eps: float = 1e-3,
    chunk_size: int = 64,
) -> tuple[Float[Tensor, "b t h dv"], VLAState]:
    """VLA for ``t ≥ 1`` tokens, the same numbers as :func:`vla.ops.scan.scan`.

    Of the A part a chunk holds at most ``chunk_size`` directions, however many a token has.
    """
    assert state.A is not None
    tokens, rank = k.shape[1], u.shape[3] if u.ndim == 5 else 1
    blocks = cut(tokens, max(1, chunk_size // rank), state.step, refresh_every)
    keys, directions = heads_first(k), heads_first(u).view(-1, tokens * rank, u.shape[-1])
    alpha, A = PenalisedKeys.apply(keys, directions, state.A.flatten(0, 1), blocks, refresh_eps)
    rows = _weighted(write_direction(alpha, keys, gain), beta)
    o, S = _write(q, keys, v, rows, state.S, chunk_size, residual=True)
    return o, VLAState(S, A.view_as(state.A), state.step + tokens)


def chunk_fixed(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    beta: Float[Tensor, "b t h"] | None,
    state: VLAState,
    *,
    residual: bool,
    chunk_size: int = 64,
) -> tuple[Float[Tensor, "b t h dv"], VLAState]:
    """The same with ``A`` fixed and ``α̂ = k``: the delta rule, or linear attention."""
    keys = heads_first(k)
    o, S = _write(q, keys, v, _weighted(keys, beta), state.S, chunk_size, residual=residual)
    return o, VLAState(S, None, state.step + k.shape[1])


def _write(
    q: Tensor,
    keys: Tensor,
    v: Tensor,
    rows: Tensor,
    S: Tensor,
    chunk_size: int,
    *,
    residual: bool,
) -> tuple[Tensor, Tensor]:
    blocks = cut(keys.shape[1], chunk_size)
    o, last = Writes.apply(
        heads_first(q), keys, heads_first(v), rows, S.flatten(0, 1), blocks, residual
    )
    return tokens_first(o, q.shape[0]), last.view_as(S)


def _weighted(rows: Float[Tensor, "n t d"], beta: Float[Tensor, "b t h"] | None) -> Tensor:
    """``β`` times each row; ``beta`` still has batch, tokens and heads apart."""
    if beta is None:
        return rows
    return torch.mul(rows, beta.transpose(1, 2).reshape(*rows.shape[:2], 1))
