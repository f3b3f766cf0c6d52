"""How much one write can stretch the old memory: the transition ``J = I − k α̂ᵀ`` (paper §4.2)."""

from __future__ import annotations

import numpy as np

from vla.errors import ArgumentError
from vla.typing import Float

Array = np.ndarray


def step_norm(cosine: float | Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Spectral norm of ``I − k α̂ᵀ`` for unit ``k`` and ``α̂`` with ``c = k·α̂``: (1 + √(5 − 4c))/2.

    It is 1 at c = 1 only, that is for α̂ = k. Proposition 2 of the paper states 1 for every c: it
    holds for the eigenvalues, while the spectral norm is the largest singular value. Outside the
    plane of k and α̂ nothing happens, and inside it the matrix is 2 × 2 with determinant 1 − c and
    squared Frobenius norm 3 − 2c, which gives ``σ₁ + σ₂ = √(5 − 4c)`` and ``σ₁ − σ₂ = 1``.

    Raises ``ValueError`` for a cosine outside [−1, 1] (NaN passes through).

    >>> step_norm(1.0).item(), step_norm(-1.0).item()
    (1.0, 2.0)
    """
    c = np.asarray(cosine, dtype=float)
    if np.any(np.abs(c) > 1 + 1e-9):
        raise ArgumentError("cosine", cosine, "a cosine, from −1 to 1")
    return (1 + np.sqrt(5 - 4 * np.clip(c, -1, 1))) / 2


def cosine_floor(condition: float | Float[Array, "*b"]) -> Float[Array, "*b"]:
    """Least cosine between ``k`` and ``A k`` for an SPD ``A`` of this condition number.

    Kantorovich's inequality: ``c ≥ 2√κ/(1 + κ)``. Raises ``ValueError`` for κ < 1.

    >>> cosine_floor(1.0).item()
    1.0
    """
    kappa = np.asarray(condition, dtype=float)
    if np.any(kappa < 1):
        raise ArgumentError("condition", condition, "a condition number, at least 1")
    return 2 * np.sqrt(kappa) / (1 + kappa)
