"""The inverse of a growing penalty, kept up to date: Sherman–Morrison, Woodbury, the refresh."""

import torch

from vla.rules.base import dot, matvec, outer
from vla.typing import Float, Tensor

MAX_RANK = 4
"""Directions that one token may raise."""


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


def woodbury(
    A: Float[Tensor, "*b d d"], U: Float[Tensor, "*b r d"]
) -> tuple[Float[Tensor, "*b d d"], Float[Tensor, "*b"]]:
    """``A − A U (I + UᵀA U)⁻¹ UᵀA``, the inverse of ``A⁻¹ + U Uᵀ``, and ``δ = det(I + UᵀA U)``.

    The formula has directions as columns, the tensor as rows. O(r d² + r² d): nothing d×d is
    inverted, only the r×r matrix in the middle (Woodbury 1950; ``src/maths`` of the authors'
    README). One direction goes by :func:`sherman_morrison`, and r of those in a row give the same
    ``A``, with ``δ`` the product of theirs.
    """
    if U.shape[-2] == 1:
        return sherman_morrison(A, U[..., 0, :])
    Z = U @ A
    # Half precision has no factorisation; through the factor A stays symmetric to the last bit.
    wide = torch.promote_types(A.dtype, torch.float32)
    middle = torch.eye(U.shape[-2], dtype=wide, device=A.device) + (Z @ U.mT).to(wide)
    L = torch.linalg.cholesky(middle)
    W = torch.linalg.solve_triangular(L, Z.to(wide), upper=False)
    delta = L.diagonal(dim1=-2, dim2=-1).prod(-1).square()
    return A - (W.mT @ W).to(A.dtype), delta.to(A.dtype)


def refresh(A: Float[Tensor, "*b d d"], step: int, every: int, eps: float) -> Tensor:
    """``A + eps·I`` at every ``every``-th step (0 = never): the paper's "identity refresh", §5.4.

    It isn't only numerical hygiene: it is the process noise of a Kalman filter whose target drifts,
    and it sets the floor below which ``A`` no longer falls.
    """
    if not every or step % every:
        return A
    return A + eps * torch.eye(A.shape[-1], dtype=A.dtype, device=A.device)
