"""Two correlated keys: what the penalty does to the second write (paper §7.1 and §7.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from vla.errors import ArgumentError
from vla.rules import Rule, Token, make
from vla.typing import Float, Tensor

Array = np.ndarray


def overlap(
    rho: float | Float[Array, "*b"], lambda0: float | Float[Array, "*b"]
) -> Float[Array, "*b"]:
    """``α̂_2·k_1``: how far the second write still points along the first key, for ``u = k``.

    ``A_1 k_2 ∝ k_2 − ρ/(1 + λ0) k_1``, so that with r = ρ/(1 + λ0)::

        α̂_2·k_1 = (ρ − r) / √(1 − 2ρr + r²)

    The paper's §7.2 has r = ρ, which makes it 0; that is the limit λ0 → 0. The update by u_2 = k_2
    changes only the length of A k_2, so the post-update A_2 gives the same direction.

    >>> round(overlap(0.6, 1.0).item(), 3)
    0.351
    """
    p, lam = np.asarray(rho, dtype=float), np.asarray(lambda0, dtype=float)
    if np.any(np.abs(p) > 1):
        raise ArgumentError("rho", rho, "a cosine, from −1 to 1")
    if np.any(lam <= 0):
        raise ArgumentError("lambda0", lambda0, "a number > 0")
    r = p / (1 + lam)
    return (p - r) / np.sqrt(1 - 2 * p * r + r * r)


def overlap_measured(rho: float, lambda0: float, **settings: object) -> float:
    """The same overlap taken from the VLA rule after it wrote both pairs; settings go to the rule.

    >>> abs(overlap_measured(0.6, 0.1) - overlap(0.6, 0.1).item()) < 1e-12
    True
    """
    rule = make("vla", lambda0=lambda0, **settings)
    first, second = twins(rho)
    state = rule.step(rule.init(2, 2), Token(k=first, v=_E1))
    write = rule.step(state, Token(k=second, v=_E2)).write
    assert write is not None
    return float(torch.nn.functional.normalize(write.gain, dim=-1) @ first)


@dataclass(frozen=True)
class OverlapGrid:
    """``α̂_2·k_1`` over correlations and penalties: ``formula`` for all, ``measured`` for a few."""

    rho: Float[Array, "r"]
    lambda0: tuple[float, ...]
    formula: Float[Array, "l r"]
    measured_rho: Float[Array, "s"]
    measured: Float[Array, "l s"]


def overlap_grid(lambda0: Sequence[float] = (1e-3, 0.1, 1.0), *, points: int = 91) -> OverlapGrid:
    """Curves of :func:`overlap` for ρ from 0 to 0.99, and the rule's own value at ten of them."""
    rho = np.linspace(0.0, 0.99, points)
    few = rho[:: max(1, points // 9)]
    measured = [[overlap_measured(float(r), lam) for r in few] for lam in lambda0]
    formula = np.stack([overlap(rho, lam) for lam in lambda0])
    return OverlapGrid(rho, tuple(lambda0), formula, few, np.array(measured))


@dataclass(frozen=True)
class TwoPairs:
    """Recall errors after two writes, relative to the length of the value."""

    rule: str
    first: float
    second: float


def two_pairs(rule: Rule, rho: float) -> TwoPairs:
    """Write k_1 → v_1, then k_2 → v_2 with k_1·k_2 = ρ and orthogonal unit values; read both back.

    Linear attention reads ``v_1 + ρ v_2`` for k_1: an error of ρ on both pairs. The delta rule has
    the second pair exactly and an error of ``ρ √(1 + ρ²)`` on the first.
    Raises ``ValueError`` for a ρ outside [−1, 1].
    """
    first, second = twins(rho)
    state = rule.step(rule.init(2, 2), Token(k=first, v=_E1, u=first))
    state = rule.step(state, Token(k=second, v=_E2, u=second))
    errors = (rule.read(state, first) - _E1, rule.read(state, second) - _E2)
    return TwoPairs(rule.name, *(float(torch.linalg.vector_norm(e)) for e in errors))


def twins(rho: float) -> tuple[Float[Tensor, "2"], Float[Tensor, "2"]]:
    """Two unit keys in the plane with cosine ρ."""
    if not -1 <= rho <= 1:
        raise ArgumentError("rho", rho, "a cosine, from −1 to 1")
    second = torch.tensor([rho, math.sqrt(1 - rho * rho)], dtype=torch.float64)
    return _E1.clone(), second


_E1, _E2 = torch.eye(2, dtype=torch.float64)
