"""The A part of the chunk form: ``α_t = A_t k_t`` for all tokens, forward and backward.

Letters as in the README beside this file. ``Ũ = L⁻¹ U`` and ``W = Ũ A`` hold every
Sherman-Morrison vector of a chunk at once, ``J = I − Ũᵀ W`` carries the adjoint of ``A`` back over
it. All of it is done in float64, whatever the dtype of the sequences: ``A`` loses its small
eigenvalues first, and these products are a small part of the work.
"""

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vla.ops.layout import Cuts, join, split
from vla.typing import Float, Tensor


class PenalisedKeys(Function):
    """``(k, u, A_0) → (α, A_T)``. Saved: ``k, u``, and per chunk ``A`` at its start and ``Ũ``."""

    @staticmethod
    def forward(
        ctx: Any,
        k: Float[Tensor, "n t d"],
        u: Float[Tensor, "n t d"],
        A: Float[Tensor, "n d d"],
        cuts: Cuts,
        eps: float,
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n d d"]]:
        K, U = split(k.double(), cuts), split(u.double(), cuts)
        starts, tilde, last = _advance(U, A.double(), cuts, eps)
        seen = K - torch.tril(K @ (tilde @ starts).mT) @ tilde
        alpha = _add_at_refresh(seen @ starts, K, cuts, eps)
        ctx.save_for_backward(k, u, starts, tilde)
        ctx.cuts, ctx.eps = cuts, eps
        return join(alpha, cuts).to(k.dtype), last.to(A.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_alpha: Tensor, d_last: Tensor) -> tuple[Tensor | None, ...]:
        k, u, starts, tilde = ctx.saved_tensors
        cuts, eps = ctx.cuts, ctx.eps
        K, U, D = (split(x.double(), cuts) for x in (k, u, d_alpha))
        W = tilde @ starts
        # Rows pulled back to the start of their chunk: M_c α_t and M_c A_t dα_t.
        seen = K - torch.tril(K @ W.mT) @ tilde
        pulled = D - torch.tril(D @ W.mT) @ tilde
        after, first = _retreat(tilde, W, _twice_symmetric(pulled.mT @ seen), d_last.double())
        alpha, b = seen @ starts, pulled @ starts
        ends = starts - W.mT @ W
        dU = torch.triu(U @ alpha.mT) @ b + torch.triu(U @ b.mT) @ alpha
        dU += U @ ends @ after @ ends
        dK = _add_at_refresh(b, D, cuts, eps)
        grads = (join(dK, cuts).to(k.dtype), join(-dU, cuts).to(u.dtype))
        return *grads, (first / 2).to(d_last.dtype), None, None


def _advance(
    U: Float[Tensor, "n c l d"], A: Float[Tensor, "n d d"], cuts: Cuts, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """``A`` at each chunk's start, ``Ũ``, and ``A`` at the end: the one loop over chunks."""
    length, d = U.shape[2:]
    eye = torch.eye(length, dtype=U.dtype, device=U.device)
    refresh = eps * torch.eye(d, dtype=U.dtype, device=U.device)
    starts, tilde = U.new_empty(U.shape[0], cuts.count, d, d), torch.empty_like(U)
    for c, refreshed in enumerate(cuts.refreshed):
        starts[:, c] = A
        gram = U[:, c] @ A @ U[:, c].mT + eye
        L, _ = torch.linalg.cholesky_ex(gram)
        tilde[:, c] = torch.linalg.solve_triangular(L, U[:, c], upper=False)
        W = tilde[:, c] @ A
        A = torch.baddbmm(A, W.mT, W, alpha=-1)
        if refreshed:
            A = A + refresh
    return starts, tilde, A


def _retreat(
    tilde: Tensor, W: Tensor, injected: Tensor, d_last: Float[Tensor, "n d d"]
) -> tuple[Float[Tensor, "n c d d"], Float[Tensor, "n d d"]]:
    """Twice the adjoint of ``A`` behind each chunk, and before the first.

    ``∂A`` crosses a chunk as ``J ∂A Jᵀ``; a refresh adds a constant and leaves it as it is.
    """
    J = torch.eye(W.shape[-1], dtype=W.dtype, device=W.device) - tilde.mT @ W
    adjoint, after = _twice_symmetric(d_last), torch.empty_like(injected)
    for c in reversed(range(W.shape[1])):
        after[:, c] = adjoint
        adjoint = torch.baddbmm(injected[:, c], J[:, c] @ adjoint, J[:, c].mT)
    return after, adjoint


def _add_at_refresh(rows: Tensor, of: Tensor, cuts: Cuts, eps: float) -> Tensor:
    """Add ``ε_r`` times the last row of ``of`` where a refresh precedes the use of ``A``."""
    if any(cuts.refreshed):
        at = torch.tensor(cuts.refreshed, device=rows.device)
        rows[:, at, -1] += eps * of[:, at, -1]
    return rows


def _twice_symmetric(x: Tensor) -> Tensor:
    return x + x.mT
