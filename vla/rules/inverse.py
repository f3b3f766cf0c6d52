"""The inverse of a growing penalty, kept up to date: Sherman–Morrison and the refresh."""

import torch

from vla.rules.base import dot, matvec, outer
from vla.typing import Float, Tensor


def first_inverse(S: Float[Tensor, "*b dv d"], lambda0: float) -> Float[Tensor, "*b d d"]:
    """``A_0 = I/λ0``, one for every memory ``S``."""
    d = S.shape[-1]
    eye = torch.eye(d, dtype=S.dtype, device=S.device) / lambda0
    return eye.expand(*S.shape[:-2], d, d).clone()


def sherman_morrison(
    A: Float[Tensor, "*b d d"], u: Float[Tensor, "*b d"]
) -> tuple[Float[Tensor, "*b d d"], Float[Tensor, "*b"]]:
    """``(A⁻¹ + u uᵀ)⁻¹`` and ``δ = 1 + u·A u``, in O(d²) (paper eq. 9)."""
    z = matvec(A, u)
    delta = 1 + dot(u, z)
    return A - outer(z, z) / delta[..., None, None], delta


def refresh(A: Float[Tensor, "*b d d"], step: int, every: int, eps: float) -> Tensor:
    """``A + eps·I`` at every ``every``-th step (0 = never): the paper's "identity refresh", §5.4.

    It isn't only numerical hygiene: it is the process noise of a Kalman filter whose target drifts,
    and it sets the floor below which ``A`` no longer falls.
    """
    if not every or step % every:
        return A
    return A + eps * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
