"""The A part of the chunk form: ``α_t = A_t k_t`` for all tokens, forward and backward.

Letters as in README.md. ``Ũ = L⁻¹ U`` and ``W = Ũ A`` hold every Sherman-Morrison vector of a chunk
at once. All of it is done in float64, whatever the dtype of the sequences: ``A`` loses its small
eigenvalues first, and repeated keys would leave a float32 ``α`` without a correct digit.
"""

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vla.ops.layout import Cuts, join, split
from vla.typing import Float, Tensor


class PenalisedKeys(Function):
    """``(k, u, A_0) → (α, A_T)``. Saved: ``k, u, A_T``, and ``Ũ`` and each chunk's first ``A``."""

    @staticmethod
    def forward(
        ctx: Any,
        k: Float[Tensor, "n t d"],
        u: Float[Tensor, "n t d"],
        A: Float[Tensor, "n d d"],
        cuts: Cuts,
        eps: float,
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n d d"]]:
        ctx.set_materialize_grads(False)
        K = split(k.double(), cuts)
        starts, tilde, W, last = _advance(split(u.double(), cuts), A.double(), cuts, eps)
        alpha = _add_at_refresh(_pull(K, W, tilde) @ starts, K, cuts, eps)
        ctx.save_for_backward(k, u, starts, tilde, last)
        ctx.cuts, ctx.eps = cuts, eps
        return join(alpha, cuts).to(k.dtype), last.to(A.dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_alpha: Tensor | None, d_last: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        k, u, starts, tilde, last = ctx.saved_tensors
        cuts, eps = ctx.cuts, ctx.eps
        d_alpha = torch.zeros_like(k) if d_alpha is None else d_alpha
        d_last = torch.zeros_like(last) if d_last is None else d_last.double()
        K, U, D = (split(x.double(), cuts) for x in (k, u, d_alpha))
        W = tilde @ starts
        pulled = _pull(torch.cat([K, D], dim=2), W, tilde)
        alpha, b = (pulled @ starts).chunk(2, dim=2)
        dU = _penalty_gradient(U, alpha, b, starts, last, d_last, cuts, eps)
        dK = _add_at_refresh(b, D, cuts, eps)
        first = _first_adjoint(tilde, W, pulled, d_last) if ctx.needs_input_grad[2] else None
        return (
            join(dK, cuts).to(k.dtype),
            join(dU, cuts).to(u.dtype),
            None if first is None else first.to(k.dtype),
            None,
            None,
        )


def _advance(
    U: Float[Tensor, "n c l d"], A: Float[Tensor, "n d d"], cuts: Cuts, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``A`` at each chunk's start, ``Ũ``, ``W``, and ``A`` at the end: the one loop over chunks."""
    length, d = U.shape[2:]
    eye = torch.eye(length, dtype=U.dtype, device=U.device)
    refresh = eps * torch.eye(d, dtype=U.dtype, device=U.device)
    starts = U.new_empty(U.shape[0], cuts.count, d, d)
    tilde, W = torch.empty_like(U), torch.empty_like(U)
    for c, refreshed in enumerate(cuts.refreshed):
        starts[:, c] = A
        L, _ = torch.linalg.cholesky_ex(torch.baddbmm(eye, U[:, c] @ A, U[:, c].mT))
        tilde[:, c] = torch.linalg.solve_triangular(L, U[:, c], upper=False)
        torch.bmm(tilde[:, c], A, out=W[:, c])
        A = torch.baddbmm(A, W[:, c].mT, W[:, c], alpha=-1)
        if refreshed:
            A = A + refresh
    return starts, tilde, W, A


def _pull(rows: Tensor, W: Tensor, tilde: Tensor) -> Tensor:
    """``x_t − tril(x Wᵀ)Ũ``, which is ``M A_t x_t`` with ``M`` the penalty at the chunk's start."""
    return rows - _causal(rows, W) @ tilde


def _causal(rows: Float[Tensor, "n c r d"], with_: Float[Tensor, "n c l d"]) -> Tensor:
    """``tril(X Yᵀ)``; ``X`` may hold several blocks of the chunk's length, each masked alone."""
    products = rows @ with_.mT
    return products.unflatten(2, (-1, with_.shape[2])).tril_().flatten(2, 3)


def _penalty_gradient(
    U: Tensor,
    alpha: Tensor,
    b: Tensor,
    starts: Tensor,
    last: Tensor,
    d_last: Tensor,
    cuts: Cuts,
    eps: float,
) -> Tensor:
    """``dU = −(triu(U αᵀ) b + triu(U bᵀ) α + U R)``, ``b_t = A_t dα_t``, ``R`` from later chunks."""
    injected = _twice_symmetric(b.mT @ alpha)
    later = _carry_back(injected, starts, last, d_last, cuts, eps)
    scores = _causal(torch.cat([alpha, b], dim=2), U)
    dU = U @ later
    dU += scores.mT @ torch.cat([b, alpha], dim=2)
    return dU.neg_()


def _carry_back(
    injected: Float[Tensor, "n c d d"],
    starts: Tensor,
    last: Float[Tensor, "n d d"],
    d_last: Float[Tensor, "n d d"],
    cuts: Cuts,
    eps: float,
) -> Float[Tensor, "n c d d"]:
    """``R`` behind every chunk: the sum over later tokens of ``bᵀα + αᵀb``.

    Backwards over a refresh it becomes ``X R X`` with ``X = I − ε_r M⁺``, ``M⁺`` the penalty just
    after.
    """
    later = torch.empty_like(injected)
    R = last @ _twice_symmetric(d_last) @ last
    for c in reversed(range(cuts.count)):
        if cuts.refreshed[c]:
            after = starts[:, c + 1] if c + 1 < cuts.count else last
            X = torch.eye(R.shape[-1], dtype=R.dtype, device=R.device) - eps * _inverse(after)
            R = X @ R @ X
        later[:, c] = R
        R = R + injected[:, c]
    return later


def _first_adjoint(
    tilde: Tensor, W: Tensor, pulled: Tensor, d_last: Float[Tensor, "n d d"]
) -> Float[Tensor, "n d d"]:
    """The adjoint of ``A_0``: it crosses a chunk as ``J ∂A Jᵀ``, ``J = I − Ũᵀ W = M_c A_{c+1}``.

    A refresh adds a constant and leaves it as it is. No inverse of ``A_0`` is taken.
    """
    J = torch.eye(W.shape[-1], dtype=W.dtype, device=W.device) - tilde.mT @ W
    seen, pulled = pulled.chunk(2, dim=2)
    injected = _twice_symmetric(pulled.mT @ seen)
    adjoint = _twice_symmetric(d_last)
    for c in reversed(range(W.shape[1])):
        adjoint = torch.baddbmm(injected[:, c], J[:, c] @ adjoint, J[:, c].mT)
    return adjoint / 2


def _inverse(A: Float[Tensor, "n d d"]) -> Float[Tensor, "n d d"]:
    return torch.cholesky_inverse(torch.linalg.cholesky_ex(A)[0])


def _add_at_refresh(rows: Tensor, of: Tensor, cuts: Cuts, eps: float) -> Tensor:
    """Add ``ε_r`` times the last row of ``of`` where a refresh precedes the use of ``A``."""
    if any(cuts.refreshed):
        at = torch.tensor(cuts.refreshed, device=rows.device)
        rows[:, at, -1] += eps * of[:, at, -1]
    return rows


def _twice_symmetric(x: Tensor) -> Tensor:
    return x + x.mT
