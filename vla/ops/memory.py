"""The S part of the chunk form: residual writes along given rows, forward and backward.

``S_t = S_{t−1} + e_t a_tᵀ``, ``e_t = v_t − S_{t−1} k_t``, ``o_t = S_t q_t``. VLA has ``a = β α̂``,
the delta rule ``a = β k``, linear attention ``a = β k`` and ``e = v``. Letters as in README.md.
"""

from typing import Any

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vla.ops.layout import Cuts, join, split
from vla.typing import Float, Tensor


class Writes(Function):
    """``(q, k, v, a, S_0) → (o, S_T)``. Saved: ``q, k, a``; per chunk ``S``, ``E``, ``(I+N)⁻¹``."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Float[Tensor, "n t d"],
        k: Float[Tensor, "n t d"],
        v: Float[Tensor, "n t dv"],
        a: Float[Tensor, "n t d"],
        S: Float[Tensor, "n dv d"],
        cuts: Cuts,
        residual: bool,
    ) -> tuple[Float[Tensor, "n t dv"], Float[Tensor, "n dv d"]]:
        Q, K, V, rows = (split(x, cuts) for x in (q, k, v, a))
        inverse = _inverse(K, rows) if residual else None
        starts, E, last = _advance(K, V, rows, S, inverse)
        o = join(torch.tril(Q @ rows.mT) @ E + Q @ starts.mT, cuts)
        ctx.save_for_backward(q, k, a, starts, E, inverse)
        ctx.cuts = cuts
        return o, last

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_o: Tensor, d_last: Tensor) -> tuple[Tensor | None, ...]:
        q, k, a, starts, E, inverse = ctx.saved_tensors
        cuts = ctx.cuts
        Q, K, rows, dO = (split(x, cuts) for x in (q, k, a, d_o))
        dE = torch.tril(Q @ rows.mT).mT @ dO
        after, X, first = _retreat(Q, K, rows, dO, dE, d_last, inverse)
        weights = torch.tril(dO @ E.mT)
        dQ = dO @ starts + weights @ rows
        d_rows = weights.mT @ Q + E @ after
        dK = None
        if inverse is not None:
            dN = torch.tril(X @ E.mT, -1)
            d_rows -= dN.mT @ K
            dK = join(-(X @ starts) - dN @ rows, cuts)
        grads = (join(dQ, cuts), dK, join(X, cuts), join(d_rows, cuts))
        return *grads, first, None, None


def _inverse(K: Float[Tensor, "n c l d"], rows: Tensor) -> Float[Tensor, "n c l l"]:
    """``(I + N)⁻¹`` with ``N = tril(K aᵀ, −1)``, by substitution."""
    N = torch.tril(K @ rows.mT, -1)
    eye = torch.eye(K.shape[2], dtype=K.dtype, device=K.device)
    return torch.linalg.solve_triangular(N + eye, eye.expand_as(N), upper=False, unitriangular=True)


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
