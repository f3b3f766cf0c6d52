"""What is measured on a block of recorded steps: norms, spectra, the batch ridge answer.

Everything here runs in float64 on many steps at once, whatever precision the rule ran in. A matrix
with NaN or infinity in it (an exploded memory) measures as NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from vla.typing import Float, Tensor


def on_finite(
    measure: Callable[[Tensor], Tensor], matrices: Float[Tensor, "m r c"], width: int
) -> Float[Tensor, "m w"]:
    """``measure`` of every finite matrix, ``width`` numbers each; NaN rows for the others."""
    fine = matrices.flatten(1).sum(-1).isfinite()
    result = matrices.new_full((len(matrices), width), torch.nan)
    if fine.any():
        result[fine] = measure(matrices[fine]).reshape(-1, width)
    return result


def spectral_norms(matrices: Float[Tensor, "m r c"]) -> Float[Tensor, "m"]:
    """Largest singular value of each matrix, by SVD."""
    return on_finite(lambda x: torch.linalg.svdvals(x)[..., 0], matrices, 1)[:, 0]


def eigenvalues(matrices: Float[Tensor, "m d d"]) -> Float[Tensor, "m d"]:
    """Eigenvalues of each symmetric matrix, ascending."""
    return on_finite(torch.linalg.eigvalsh, matrices, matrices.shape[-1])


def transition_norm(
    decay: Float[Tensor, "m"], k: Float[Tensor, "m d"], gain: Float[Tensor, "m d"]
) -> Float[Tensor, "m"]:
    """Spectral norm of ``a I − k gᵀ`` in closed form.

    Only two singular values differ from ``a``. Their squares sum to ``2a² − 2a k·g + ‖k‖²‖g‖²`` and
    their product is ``|a (a − k·g)|``. For ``a = 1`` and unit k and g with cosine c it is
    ``(1 + √(5 − 4c))/2``, which is 1 only at c = 1: Proposition 2 (paper §4.2), corrected.
    """
    dot = (k * gain).sum(-1)
    if k.shape[-1] == 1:
        return (decay - dot).abs()
    total = 2 * decay**2 - 2 * decay * dot + (k**2).sum(-1) * (gain**2).sum(-1)
    product = (decay * (decay - dot)).abs()
    return ((total + 2 * product).sqrt() + (total - 2 * product).clamp_min(0).sqrt()) / 2


def ridge_solutions(
    moments: Float[Tensor, "m d d"], targets: Float[Tensor, "m dv d"]
) -> Float[Tensor, "m dv d"]:
    """``S* = (Σ w v kᵀ) (λ0 I + Σ w k kᵀ)⁻¹`` by Cholesky; NaN where that fails."""
    factor, failed = torch.linalg.cholesky_ex(moments)
    solved = torch.cholesky_solve(targets.mT, factor).mT
    return torch.where(failed[:, None, None] == 0, solved, torch.nan)


def relative_distance(
    S: Float[Tensor, "m dv d"], reference: Float[Tensor, "m dv d"]
) -> Float[Tensor, "m"]:
    """``‖S − S*‖/‖S*‖`` (Frobenius): 0 where both are empty, infinite for an exploded ``S``."""
    gap, size = frobenius(S - reference), frobenius(reference)
    distance = torch.where((gap == 0) & (size == 0), 0.0, gap / size)
    return distance.where(frobenius(S).isfinite(), torch.inf)


def frobenius(matrices: Float[Tensor, "*m r c"]) -> Float[Tensor, "*m"]:
    """Frobenius norm of each matrix."""
    return matrices.flatten(-2).norm(dim=-1)


def running_sum(start: Float[Tensor, "r c"], terms: Float[Tensor, "m r c"]) -> Tensor:
    """``start + terms[0]``, ``start + terms[0] + terms[1]``, …"""
    return terms.cumsum(0).add_(start)
