"""The paper's §3.4: the memory update as an associative scan over affine maps, corrected.

``S_t = S_{t−1} F_t + G_t`` with ``F_t = I − β k α̂ᵀ`` and ``G_t = β v α̂ᵀ``. The paper multiplies by
``F_t`` on the left and has the residual in ``G_t``; the residual depends on ``S_{t−1}``, so that is
no map of ``S_{t−1}`` alone. Maps compose as ``(F₁, G₁) then (F₂, G₂) = (F₁F₂, G₁F₂ + G₂)``.

Depth O(log T), but every composition multiplies d×d matrices: O(T d³) work and O(T d²) memory,
against O(T d²) work for the token loop and for the chunk form. It is kept for reading and for
comparison. ``A`` is found token by token, as in the loop.
"""

import torch

from vla.ops.gain import write_direction
from vla.ops.scan import penalty_step
from vla.ops.state import VLAState
from vla.typing import Float, Tensor

Map = tuple[Tensor, Tensor]


def associative_scan(
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
    """VLA by an associative scan over the tokens' affine maps (paper §3.4, corrected)."""
    S, A, step = state
    assert A is not None
    alphas = []
    for t in range(k.shape[1]):
        step += 1
        A = penalty_step(A, u[:, t], step, refresh_every, refresh_eps)
        alphas.append((A @ k[:, t, ..., None])[..., 0])
    direction = write_direction(torch.stack(alphas, dim=1), k, gain)
    F, G = prefix_maps(token_maps(k, v, direction, beta))
    states = S[:, None] @ F + G
    return (states @ q[..., None])[..., 0], VLAState(states[:, -1], A, step)


def token_maps(k: Tensor, v: Tensor, direction: Tensor, beta: Tensor | None) -> Map:
    """``F = I − β k α̂ᵀ`` and ``G = β v α̂ᵀ`` of every token."""
    row = (direction if beta is None else beta[..., None] * direction)[..., None, :]
    identity = torch.eye(k.shape[-1], dtype=k.dtype, device=k.device)
    return identity - k[..., None] * row, v[..., None] * row


def compose(first: Map, then: Map) -> Map:
    """The map ``S ↦ (S F₁ + G₁) F₂ + G₂``."""
    return first[0] @ then[0], first[1] @ then[0] + then[1]


def prefix_maps(maps: Map) -> Map:
    """The composition of maps 1…t for every t along axis 1: 2T compositions, depth 2 log₂ T."""
    F, G = maps
    length = F.shape[1]
    if length == 1:
        return maps
    even = (F[:, 0::2], G[:, 0::2])
    odd = (F[:, 1::2], G[:, 1::2])
    half = length // 2
    through_odd = prefix_maps(compose((even[0][:, :half], even[1][:, :half]), odd))
    before = (length + 1) // 2 - 1
    shifted = compose(
        (through_odd[0][:, :before], through_odd[1][:, :before]), (even[0][:, 1:], even[1][:, 1:])
    )
    return tuple(  # type: ignore[return-value]
        _interleave(torch.cat([start[:, :1], later], dim=1), at_odd)
        for start, later, at_odd in zip(even, shifted, through_odd, strict=True)
    )


def _interleave(even: Tensor, odd: Tensor) -> Tensor:
    """``even[0], odd[0], even[1], …`` along axis 1; ``even`` may be one longer."""
    pairs = torch.stack([even[:, : odd.shape[1]], odd], dim=2).flatten(1, 2)
    return torch.cat([pairs, even[:, odd.shape[1] :]], dim=1)
