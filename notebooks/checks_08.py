"""The exercises of chapter 8: A fixed, a growing residual, seeds that miss, a rate well chosen."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from checks import judge
from torch.nn.functional import normalize


def fixed_step(answer: Callable[..., Any]) -> None:
    """Exercise 8.1: one step of VLA with ``A = I/λ0``, from the update as the paper writes it."""
    cases = []
    for d, d_v, lambda0 in ((2, 3, 0.1), (5, 2, 1.0), (8, 8, 3.0)):
        draw = torch.Generator().manual_seed(d)
        S, k, v = (_normal(draw, *shape) for shape in ((d_v, d), (d,), (d_v,)))
        k = normalize(k, dim=0)
        alpha = torch.eye(d, dtype=torch.float64) / lambda0 @ k
        right = S + torch.outer(v - S @ k, alpha / torch.linalg.vector_norm(alpha))
        cases.append((f"a memory of {d_v} x {d}", (S.clone(), k.clone(), v.clone()), right))
    judge(answer, cases)


def residual(answer: Callable[..., Any]) -> None:
    """Exercise 8.2: a residual after ``m`` writes of one pair, by writing it."""
    cases = []
    for c, m in ((0.5, 3), (10.0, 4), (1.9, 7)):
        S, left = 0.0, 1.0
        for _ in range(m):
            S, left = S + c * left, 1.0 - (S + c * left)
        cases.append((f"c = {c}, m = {m}", (c, m), abs(left)))
    judge(answer, cases)


def none_jumps(answer: Callable[..., Any]) -> None:
    """Exercise 8.3: by the binomial distribution."""
    cases = [
        (f"p = {p}, s = {s}", (p, s), math.comb(s, 0) * p**0 * math.exp(s * math.log1p(-p)))
        for p, s in ((0.5, 2), (1 / 3, 3), (0.9, 1))
    ]
    judge(answer, cases)


def chosen(answer: Callable[..., Any]) -> None:
    """Exercise 8.4: the test accuracy at the rate that is best on validation."""
    nan = math.nan
    tables = {
        "validation and test that disagree": (
            [[0.2, 0.3], [0.8, 0.7], [0.6, 0.5]],
            [[0.1, 0.2], [0.5, 0.7], [0.9, 0.9]],
        ),
        "a rate at which a seed diverged": (
            [[0.4, 0.5, 0.6], [0.9, nan, nan]],
            [[0.3, 0.5, 0.4], [0.95, nan, nan]],
        ),
        "one seed": ([[0.1], [0.3], [0.2]], [[0.2], [0.25], [0.9]]),
    }
    rights = (0.6, 0.4, 0.25)
    cases = [
        (words, tuple(torch.tensor(t, dtype=torch.float64) for t in pair), right)
        for (words, pair), right in zip(tables.items(), rights, strict=True)
    ]
    judge(answer, cases)


def _normal(draw: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)
