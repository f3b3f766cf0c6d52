"""How well each rule gives back what it stored, as the load grows (paper §4.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from vla.errors import require_integer, require_positive
from vla.rules import Rule, Token
from vla.rules.base import matvec
from vla.rules.features import to_unit
from vla.typing import Float, Tensor

LOADS = (8, 16, 24, 32, 48)


@dataclass(frozen=True)
class RecallCurve:
    """Mean relative recall error after ``n`` pairs; ``low`` and ``high`` are the extreme draws."""

    name: str
    title: str
    colour: str
    d: int
    pairs: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    draws: int
    seed: int
    reference: bool = False
    """A computed answer to hold the rules against, not a rule: drawn as open marks."""


def gaussian_pairs(
    n: int, d: int, *, draws: int, seed: int
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b n d"]]:
    """Unit Gaussian keys and Gaussian values; each draw and load has its own numbers."""
    generator = torch.Generator().manual_seed(seed * 1_000_003 + n)
    k = torch.randn(draws, n, d, generator=generator, dtype=torch.float64)
    v = torch.randn(draws, n, d, generator=generator, dtype=torch.float64)
    return to_unit(k), v


def recall_curve(
    rule: Rule,
    pairs: Sequence[int] = LOADS,
    *,
    d: int = 32,
    draws: int = 5,
    seed: int = 0,
    title: str | None = None,
) -> RecallCurve:
    """Store ``n`` random pairs by the rule, read all back, average ``‖read − v‖/‖v‖``.

    Proposition 3 of the paper has zero for n ≤ d. The unit-length gain leaves
    ``S_t k_t − v_t = −(1 − c_t) e_t`` behind at every write, so VLA doesn't reach it; exact least
    squares does as λ0 → 0. Raises ``ValueError`` for a load, width or count below 1.
    """
    errors = [_errors_after(rule, n, d, draws, seed) for n in _checked(pairs, d, draws)]
    return _curve(rule.name, title or rule.title, rule.colour, d, pairs, errors, seed)


def ridge_curve(
    pairs: Sequence[int] = LOADS,
    *,
    lambda0: float = 0.1,
    d: int = 32,
    draws: int = 5,
    seed: int = 0,
) -> RecallCurve:
    """The same for the batch answer ``argmin Σ ‖v − S k‖² + λ0 ‖S‖²``: no rule in sight.

    Exact RLS must coincide with it. Raises ``ValueError`` for ``lambda0 <= 0`` and as above.
    """
    require_positive("lambda0", lambda0)
    errors = [
        _relative(_ridge_reads(k, v, lambda0), v)
        for n in _checked(pairs, d, draws)
        for k, v in [gaussian_pairs(n, d, draws=draws, seed=seed)]
    ]
    curve = _curve("ridge", "batch ridge", "#56B4E9", d, pairs, errors, seed)
    return replace(curve, reference=True)


def _errors_after(rule: Rule, n: int, d: int, draws: int, seed: int) -> Float[Tensor, "b"]:
    k, v = gaussian_pairs(n, d, draws=draws, seed=seed)
    state = rule.init(d, d, batch=(draws,))
    for t in range(n):
        state = rule.step(state, Token(k=k[:, t], v=v[:, t], u=k[:, t]))
    reads = torch.stack([rule.read(state, k[:, t]) for t in range(n)], 1)
    return _relative(reads, v)


def _ridge_reads(k: Tensor, v: Tensor, lambda0: float) -> Float[Tensor, "b n d"]:
    penalty = k.mT @ k + lambda0 * torch.eye(k.shape[-1], dtype=k.dtype)
    S = torch.linalg.solve(penalty, k.mT @ v).mT
    return matvec(S[:, None], k)


def _relative(reads: Float[Tensor, "b n d"], v: Float[Tensor, "b n d"]) -> Float[Tensor, "b"]:
    norm = torch.linalg.vector_norm
    return (norm(reads - v, dim=-1) / norm(v, dim=-1)).mean(-1)


def _curve(
    name: str,
    title: str,
    colour: str,
    d: int,
    pairs: Sequence[int],
    errors: list[Tensor],
    seed: int,
) -> RecallCurve:
    return RecallCurve(
        name, title, colour, d, tuple(pairs),
        mean=tuple(float(e.mean()) for e in errors),
        low=tuple(float(e.min()) for e in errors),
        high=tuple(float(e.max()) for e in errors),
        draws=len(errors[0]) if errors else 0, seed=seed,
    )  # fmt: skip


def _checked(pairs: Sequence[int], d: int, draws: int) -> Sequence[int]:
    require_integer("d", d, low=1)
    require_integer("draws", draws, low=1)
    for n in pairs:
        require_integer("pairs", n, low=1)
    return pairs
