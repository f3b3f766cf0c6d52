"""The S part of the chunk form: residual writes along given rows, forward and backward.

``S_t = S_{t−1} + e_t a_tᵀ``, ``e_t = v_t − S_{t−1} k_t``, ``o_t = S_t q_t``. VLA has ``a = β α̂``,
the delta rule ``a = β k``, linear attention ``a = β k`` and ``e = v``. Letters as in README.md.
"""

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vla.ops.layout import Block
from vla.typing import Float, Tensor


class Writes(Function):
    """``(q, k, v, a, S_0) → (o, S_T)``.

    Saved: ``q, k, a``, the residuals ``E``; per chunk ``S`` at its start and ``(I + N)⁻¹``.
    """

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "n t d"],
        k: Float[Tensor, "n t d"],
        v: Float[Tensor, "n t dv"],
        a: Float[Tensor, "n t d"],
        S: Float[Tensor, "n dv d"],
        blocks: list[Block],
        residual: bool,
    ) -> tuple[Float[Tensor, "n t dv"], Float[Tensor, "n dv d"]]:
        o, saved = torch.empty_like(v), []
        for block in blocks:
            Q, K, V, rows = (block.rows(x) for x in (q, k, v, a))
            inverse = _inverse(K, rows) if residual else None
            starts, E, S = _advance(K, V, rows, S, inverse)
            block.rows(o).copy_((Q @ rows.mT).tril_() @ E + Q @ starts.mT)
            saved += [starts, E, inverse]
        ctx.save_for_backward(q, k, a, *saved)
        ctx.blocks = blocks
        return o, S

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Tensor, dS: Tensor) -> tuple[Tensor | None, ...]:
        q, k, a, *saved = ctx.saved_tensors
        dq, dk, dv, da = (torch.empty_like(x) for x in (q, k, d_o, a))
        for i, block in reversed(list(enumerate(ctx.blocks))):
            starts, E, inverse = saved[3 * i : 3 * i + 3]
            Q, K, rows, dO = (block.rows(x) for x in (q, k, a, d_o))
            dE = (Q @ rows.mT).tril_().mT @ dO
            after, X, dS = _retreat(Q, K, rows, dO, dE, dS, inverse)
            weights = (dO @ E.mT).tril_()
            block.rows(dq).copy_(dO @ starts + weights @ rows)
            block.rows(dv).copy_(X)
            d_rows = weights.mT @ Q + E @ after
            if inverse is not None:
                dN = (X @ E.mT).tril_(-1)
                d_rows -= dN.mT @ K
                block.rows(dk).copy_(-(X @ starts) - dN @ rows)
            block.rows(da).copy_(d_rows)
        return dq, None if inverse is None else dk, dv, da, dS, None, None


def _inverse(K: Float[Tensor, "n c l d"], rows: Tensor) -> Float[Tensor, "n c l l"]:
    """``(I + N)⁻¹`` with ``N = tril(K aᵀ, −1)``, by substitution."""
    N = (K @ rows.mT).tril_(-1)
    eye = torch.eye(K.shape[2], dtype=K.dtype, device=K.device)
    return torch.linalg.solve_triangular(N, eye.expand_as(N), upper=False, unitriangular=True)


def _advance(
    K: Tensor, V: Tensor, rows: Tensor, S: Tensor, inverse: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """``S`` at each chunk's start, all residuals ``E``, and ``S`` at the end."""
    starts = S.new_empty(S.shape[0], K.shape[1], *S.shape[1:])
    E = V if inverse is None else inverse @ V
    Y = None if inverse is None else inverse @ K
    for c in range(K.shape[1]):
        starts[:, c] = S
        if Y is not None:
            E[:, c].baddbmm_(Y[:, c], S.mT, alpha=-1)
        S = torch.baddbmm(S, E[:, c].mT, rows[:, c])
    return starts, E, S


def _retreat(
    Q: Tensor,
    K: Tensor,
    rows: Tensor,
    dO: Tensor,
    dE: Tensor,
    dS: Tensor,
    inverse: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The adjoint of ``S`` behind each chunk, ``X`` (the adjoint of ``V``), and that of ``S_0``."""
    X = dE if inverse is None else inverse.mT @ dE
    Z = rows if inverse is None else inverse.mT @ rows
    after = dS.new_empty(dS.shape[0], K.shape[1], *dS.shape[1:])
    read = dO.mT @ Q
    for c in reversed(range(K.shape[1])):
        after[:, c] = dS
        X[:, c].baddbmm_(Z[:, c], dS.mT)
        dS = dS + read[:, c]
        if inverse is not None:
            dS.baddbmm_(X[:, c].mT, K[:, c], alpha=-1)
    return after, X, dS
