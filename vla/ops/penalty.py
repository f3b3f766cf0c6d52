"""The A part of the chunk form: ``α_t = A_t k_t`` for all tokens, forward and backward.

Letters as in README.md. ``Ũ = L⁻¹ U`` and ``W = Ũ A`` hold every Sherman-Morrison vector of a chunk
at once. A token may have r directions, its rows of ``U``: the masks then let it see all of its own.
All of it is done in float64, whatever the dtype of the sequences: ``A`` loses its small
eigenvalues first, and repeated keys would leave a float32 ``α`` without a correct digit.
"""

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vla.ops.layout import Block
from vla.typing import Float, Tensor


class PenalisedKeys(Function):
    """``(k, u, A_0) → (α, A_T)``. Saved: ``k``, ``u``, ``Ũ``, and ``A`` at each chunk's start.

    ``u`` has r rows per token, side by side; ``blocks`` count tokens.
    """

    @staticmethod
    def forward(
        ctx: Any,
        k: Float[Tensor, "n t d"],
        u: Float[Tensor, "n tr d"],
        A: Float[Tensor, "n d d"],
        blocks: list[Block],
        eps: float,
    ) -> tuple[Float[Tensor, "n t d"], Float[Tensor, "n d d"]]:
        ctx.set_materialize_grads(False)
        ctx.blocks, ctx.eps, ctx.rank = blocks, eps, u.shape[1] // k.shape[1]
        alpha, saved, last = torch.empty_like(k), [], A.double()
        for block in blocks:
            K, U = block.rows(k).double(), block.rows(u, ctx.rank).double()
            starts, tilde, W, last = _advance(U, last, block, eps)
            found = _pull(K, W, tilde, ctx.rank) @ starts
            block.rows(alpha).copy_(_add_at_refresh(found, K, block, eps))
            saved += [starts, tilde]
        ctx.save_for_backward(k, u, *saved)
        ctx.dtype = A.dtype
        return alpha, last.to(A.dtype)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_alpha: Tensor | None, d_last: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        k, u, *saved = ctx.saved_tensors
        d_alpha = torch.zeros_like(k) if d_alpha is None else d_alpha
        dk, du = torch.empty_like(k), torch.empty_like(u)
        adjoint = None if d_last is None else _twice_symmetric(d_last.double())
        for i, block in reversed(list(enumerate(ctx.blocks))):
            starts, tilde = saved[2 * i : 2 * i + 2]
            both = torch.cat([block.rows(k), block.rows(d_alpha)], dim=2).double()
            W = tilde @ starts
            pulled = _pull(both, W, tilde, ctx.rank)
            reached = pulled @ starts
            on = i > 0 or ctx.needs_input_grad[2]
            behind, adjoint = _carry_back(tilde, W, pulled, adjoint, on)
            U = block.rows(u, ctx.rank).double()
            found = _direction_gradient(U, reached, W, starts, behind, ctx.rank)
            block.rows(du, ctx.rank).copy_(found)
            (_, D), (_, b) = both.chunk(2, dim=2), reached.chunk(2, dim=2)
            block.rows(dk).copy_(_add_at_refresh(b, D, block, ctx.eps))
        first = None
        if adjoint is not None and ctx.needs_input_grad[2]:
            first = (adjoint / 2).to(ctx.dtype)
        return dk, du, first, None, None


def _advance(
    U: Float[Tensor, "n c l d"], A: Float[Tensor, "n d d"], block: Block, eps: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """``A`` at each chunk's start, ``Ũ``, ``W``, and ``A`` at the end: the one loop over chunks."""
    n, count, length, d = U.shape
    eye = torch.eye(length, dtype=U.dtype, device=U.device)
    starts, tilde, W = U.new_empty(n, count, d, d), torch.empty_like(U), torch.empty_like(U)
    for c, refreshed in enumerate(block.refreshed):
        starts[:, c] = A
        L, _ = torch.linalg.cholesky_ex(torch.baddbmm(eye, U[:, c] @ A, U[:, c].mT))
        tilde[:, c] = torch.linalg.solve_triangular(L, U[:, c], upper=False)
        torch.bmm(tilde[:, c], A, out=W[:, c])
        A = torch.baddbmm(A, W[:, c].mT, W[:, c], alpha=-1)
        if refreshed:
            A.diagonal(dim1=1, dim2=2).add_(eps)
    return starts, tilde, W, A


def _pull(rows: Tensor, W: Tensor, tilde: Tensor, rank: int) -> Tensor:
    """``x_t − tril(x Wᵀ)Ũ``, which is ``M A_t x_t`` with ``M`` the penalty at the chunk's start."""
    weights = _causal(rows, W, rank).flatten(0, 1)
    pulled = torch.baddbmm(rows.flatten(0, 1), weights, tilde.flatten(0, 1), alpha=-1)
    return pulled.view_as(rows)


def _causal(rows: Float[Tensor, "n c x d"], others: Float[Tensor, "n c y d"], rank: int) -> Tensor:
    """``tril(X Yᵀ)``, in which ``Y`` has ``rank`` rows per token.

    ``X`` may hold several blocks of the chunk's length, each masked alone.
    """
    products = rows @ others.mT
    length = others.shape[2] // rank
    by_token = products.unflatten(2, (-1, length))
    if rank > 1:
        by_token = by_token.unflatten(4, (length, rank)).movedim(5, 3)
    by_token.tril_()
    return products


def _direction_gradient(
    U: Tensor, reached: Tensor, W: Tensor, starts: Tensor, behind: Tensor | None, rank: int
) -> Tensor:
    """``dU = −(triu(U αᵀ) b + triu(U bᵀ) α + U R)``, ``α`` and ``b_t = A_t dα_t`` in ``reached``.

    ``R = A B A`` stands for all later chunks: ``B`` is ``behind``, ``A`` that of the chunk's end
    before a refresh.
    """
    alpha, b = reached.chunk(2, dim=2)
    by_alpha, by_b = _causal(reached, U, rank).chunk(2, dim=2)
    dU = by_alpha.mT @ b
    dU += by_b.mT @ alpha
    if behind is not None:
        ends = starts - W.mT @ W
        dU += U @ (ends @ behind @ ends)
    return dU.neg_()


def _carry_back(
    tilde: Tensor, W: Tensor, pulled: Tensor, B: Float[Tensor, "n d d"] | None, further: bool
) -> tuple[Float[Tensor, "n c d d"] | None, Float[Tensor, "n d d"] | None]:
    """``B``, twice the adjoint of ``A``, behind each chunk and, if ``further``, before the first.

    It crosses a chunk as ``J B Jᵀ`` with ``J = I − Ũᵀ W``. A refresh adds a constant to ``A`` and
    leaves ``B`` as it is; no inverse of ``A`` is taken. ``None`` is zero.
    """
    count = W.shape[1]
    if count == 1 and not further:
        return None if B is None else B[:, None], None
    if count == 1 and B is None:
        seen, b = pulled.chunk(2, dim=2)
        return None, _twice_symmetric(b.mT @ seen)[:, 0]
    J = torch.eye(W.shape[-1], dtype=W.dtype, device=W.device) - tilde.mT @ W
    seen, b = pulled.chunk(2, dim=2)
    injected = _twice_symmetric(b.mT @ seen)
    B = torch.zeros_like(injected[:, 0]) if B is None else B
    behind = torch.empty_like(injected)
    for c in reversed(range(count)):
        behind[:, c] = B
        if c > 0 or further:
            B = torch.baddbmm(injected[:, c], J[:, c] @ B, J[:, c].mT)
    return behind, B


def _add_at_refresh(rows: Tensor, of: Tensor, block: Block, eps: float) -> Tensor:
    """Add ``ε_r`` times the last row of ``of`` where a refresh precedes the use of ``A``."""
    if all(block.refreshed):
        rows[:, :, -1] += eps * of[:, :, -1]
        return rows
    for c, refreshed in enumerate(block.refreshed):
        if refreshed:
            rows[:, c, -1] += eps * of[:, c, -1]
    return rows


def _twice_symmetric(x: Tensor) -> Tensor:
    return x + x.mT
