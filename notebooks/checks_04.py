"""The exercises of chapter 4: the norm for any gain, products of steps, where a refresh ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from checks import judge

from vla.rules import Token, make, transition
from vla.rules.features import to_unit


def gain_norm(answer: Callable[..., Any]) -> None:
    """Exercise 4.1: spectral norm of ``I − k gᵀ`` from ``a = k·g`` and ``ell = ‖g‖``."""
    cases = []
    for a, ell in ((0.6, 1.0), (0.3, 0.5), (1.0, 1.2), (1.5, 2.0)):
        k = torch.tensor([1.0, 0.0], dtype=torch.float64)
        gain = torch.tensor([a, (ell**2 - a**2) ** 0.5], dtype=torch.float64)
        J = torch.eye(2, dtype=torch.float64) - torch.outer(k, gain)
        right = torch.linalg.matrix_norm(J, 2)
        cases.append((f"a = {a}, ell = {ell}", (a, ell), right))
    judge(answer, cases)


def product_from(answer: Callable[..., Any]) -> None:
    """Exercise 4.2: ``J_{s+1} ⋯ J_T`` of exact RLS without a product of two ``J``."""
    cases = []
    for T, s in ((5, 0), (9, 4), (3, 3)):
        draw = torch.Generator().manual_seed(T)
        keys = to_unit(torch.randn(T, 4, generator=draw, dtype=torch.float64))
        words = f"T = {T} keys of width 4 and s = {s}"
        cases.append((words, (keys, s, 0.1), _product(keys, s, 0.1)))
    judge(answer, cases)


def resting_point(answer: Callable[..., Any]) -> None:
    """Exercise 4.3: where ``A`` rests in one dimension with a refresh after every token."""
    cases = [(f"eps = {eps}", (eps,), _rest(eps)) for eps in (1.0, 0.1, 0.01)]
    judge(answer, cases)


def _product(keys: torch.Tensor, s: int, lambda0: float) -> torch.Tensor:
    rule = make("rls", lambda0=lambda0)
    d = keys.shape[1]
    state, product = rule.init(d, 1), torch.eye(d, dtype=torch.float64)
    for t, k in enumerate(keys):
        state = rule.step(state, Token(k=k, v=torch.ones(1, dtype=torch.float64)))
        assert state.write is not None
        product = product @ transition(state.write) if t >= s else product
    return product


def _rest(eps: float, tokens: int = 150) -> float:
    rule = make("vla", refresh_every=1, refresh_eps=eps)
    one = torch.ones(1, dtype=torch.float64)
    state = rule.init(1, 1)
    for _ in range(tokens):
        state = rule.step(state, Token(k=one, v=one))
    assert state.A is not None
    return float(state.A)
