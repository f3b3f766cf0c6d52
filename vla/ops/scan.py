"""The token loop: each line beside its formula, any dtype, differentiated by autograd.

Every other backend is tested against this one.
"""

import torch

from vla.ops.gain import write_direction
from vla.ops.state import VLAState
from vla.typing import Float, Tensor


def scan(
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
) -> tuple[Float[Tensor, "b t h dv"], VLAState]:
    """VLA one token at a time (paper §3.2-3.3, eq. 8-10): ``t ≥ 1`` outputs and the state after."""
    outputs = []
    for t in range(k.shape[1]):
        token = (q[:, t], k[:, t], v[:, t], u[:, t], None if beta is None else beta[:, t])
        o, state = vla_step(
            *token, state, gain=gain, refresh_every=refresh_every, refresh_eps=refresh_eps
        )
        outputs.append(o)
    return torch.stack(outputs, dim=1), state


def vla_step(
    q: Float[Tensor, "b h d"],
    k: Float[Tensor, "b h d"],
    v: Float[Tensor, "b h dv"],
    u: Float[Tensor, "b h *r d"],
    beta: Float[Tensor, "b h"] | None,
    state: VLAState,
    *,
    gain: str,
    refresh_every: int,
    refresh_eps: float,
) -> tuple[Float[Tensor, "b h dv"], VLAState]:
    """One token: penalise ``u``, refresh if due, write ``v`` at ``k``, read ``q``."""
    S, A, step = state
    assert A is not None
    step += 1
    A = penalty_step(A, u, step, refresh_every, refresh_eps)
    direction = write_direction(_apply(A, k), k, gain)
    S = write(S, k, v, direction, beta)
    return _apply(S, q), VLAState(S, A, step)


def penalty_step(
    A: Float[Tensor, "*b d d"],
    u: Float[Tensor, "*b d"] | Float[Tensor, "*b r d"],
    step: int,
    refresh_every: int,
    refresh_eps: float,
) -> Tensor:
    """``A`` after token number ``step`` (from 1), refreshed if one is due.

    A ``u`` with as many axes as ``A`` holds r directions. One after the other they give what the
    Woodbury identity gives at once (:func:`vla.rules.inverse.woodbury`), without a factorisation.
    """
    for direction in u.unbind(-2) if u.ndim == A.ndim else (u,):
        A = sherman_morrison(A, direction)
    if refresh_every and step % refresh_every == 0:
        A = A + refresh_eps * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
    return A


def sherman_morrison(A: Float[Tensor, "*b d d"], u: Float[Tensor, "*b d"]) -> Tensor:
    """``A − z zᵀ/δ``, ``z = A u``, ``δ = 1 + u·z``: the inverse of ``A⁻¹ + u uᵀ`` (eq. 9)."""
    z = _apply(A, u)
    delta = 1 + (u * z).sum(-1, keepdim=True)
    return A - _outer(z / delta, z)


def write(
    S: Float[Tensor, "*b dv d"],
    k: Float[Tensor, "*b d"],
    v: Float[Tensor, "*b dv"],
    direction: Float[Tensor, "*b d"],
    beta: Float[Tensor, "*b"] | None,
    *,
    residual: bool = True,
) -> Tensor:
    """``S + β e α̂ᵀ`` with ``e = v − S k`` (eq. 10), or ``e = v`` without the residual."""
    e = v - _apply(S, k) if residual else v
    return S + _outer(e if beta is None else beta[..., None] * e, direction)


def fixed_scan(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    beta: Float[Tensor, "b t h"] | None,
    state: VLAState,
    *,
    residual: bool,
) -> tuple[Float[Tensor, "b t h dv"], VLAState]:
    """The same loop with ``A`` fixed and ``α̂ = k``: the delta rule, or linear attention."""
    S, outputs = state.S, []
    for t in range(k.shape[1]):
        S = write(
            S, k[:, t], v[:, t], k[:, t], None if beta is None else beta[:, t], residual=residual
        )
        outputs.append(_apply(S, q[:, t]))
    return torch.stack(outputs, dim=1), VLAState(S, None, state.step + k.shape[1])


def _apply(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector[..., None])[..., 0]


def _outer(x: Tensor, y: Tensor) -> Tensor:
    return x[..., :, None] * y[..., None, :]
