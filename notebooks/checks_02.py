"""The exercises of chapter 2: forgetting a pair, the share of a repeat, many rows at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from checks import judge

from vla.rules import Token, make


def forget(answer: Callable[..., Any]) -> None:
    """Exercise 2.1: ``(A⁻¹ − k kᵀ)⁻¹`` without inverting anything."""
    cases = []
    for d in (1, 3, 8):
        M, k = _penalty(d), _normal(d + 10, d)
        A = torch.linalg.inv(M + torch.outer(k, k))
        cases.append((f"a random A of width {d}", (A, k), torch.linalg.inv(M)))
    judge(answer, cases)


def share(answer: Callable[..., Any]) -> None:
    """Exercise 2.2: how far a pair written once more moves RLS's answer, per unit of residual."""
    cases = [
        (f"m = {m}, lambda0 = {lambda0}", (m, lambda0), _moved(m, lambda0))
        for m, lambda0 in ((1, 0.1), (4, 1.0), (0, 0.5))
    ]
    judge(answer, cases)


def update_by_rows(answer: Callable[..., Any]) -> None:
    """Exercise 2.3: ``(A⁻¹ + Uᵀ U)⁻¹`` for a few rows at once (Woodbury)."""
    cases = []
    for d, r in ((3, 1), (5, 2), (8, 4)):
        M, U = _penalty(d), _normal(d + 20, r, d)
        right = torch.linalg.inv(M + U.mT @ U)
        cases.append((f"width {d} and {r} rows", (torch.linalg.inv(M), U), right))
    judge(answer, cases)


def _moved(m: int, lambda0: float) -> float:
    rule = make("rls", lambda0=lambda0)
    key, told = torch.eye(2, dtype=torch.float64)
    state = rule.init(2, 2)
    for _ in range(m):
        state = rule.step(state, Token(k=key, v=told))
    before = rule.read(state, key)
    other = torch.tensor([3.0, -2.0], dtype=torch.float64)
    after = rule.read(rule.step(state, Token(k=key, v=other)), key)
    return float((after - before).norm() / (other - before).norm())


def _penalty(d: int) -> torch.Tensor:
    root = _normal(d, d, d)
    return root @ root.mT + torch.eye(d, dtype=torch.float64)


def _normal(seed: int, *shape: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=draw, dtype=torch.float64)
