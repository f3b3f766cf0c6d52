"""The exercises of chapter 3: the keys' partners, overlap after repeats, the share that arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from checks import judge

from vla import theory
from vla.rules import State, Token, make
from vla.rules.features import to_unit


def partners(answer: Callable[..., Any]) -> None:
    """Exercise 3.1: rows ``A k_j``: what exact least squares stores if the values are one-hot."""
    cases = []
    for n, d in ((1, 2), (3, 5), (6, 4)):
        draw = torch.Generator().manual_seed(n)
        keys = to_unit(torch.randn(n, d, generator=draw, dtype=torch.float64))
        rule = make("rls", lambda0=0.1)
        state = rule.init(d, n)
        for k, v in zip(keys, torch.eye(n, dtype=torch.float64), strict=True):
            state = rule.step(state, Token(k=k, v=v))
        cases.append((f"{n} keys of width {d}", (keys, 0.1), state.S))
    judge(answer, cases)


def overlap_after(answer: Callable[..., Any]) -> None:
    """Exercise 3.2: overlap with ``k_1`` of the write of ``k_2`` after ``m`` writes of ``k_1``."""
    cases = []
    for m, rho, lambda0 in ((1, 0.6, 0.1), (5, 0.6, 0.1), (3, 0.2, 1.0)):
        first, _ = theory.twins(rho)
        right = float(_direction(m, rho, lambda0) @ first)
        cases.append((f"m = {m}, rho = {rho}, lambda0 = {lambda0}", (m, rho, lambda0), right))
    judge(answer, cases)


def arrives(answer: Callable[..., Any]) -> None:
    """Exercise 3.3: the share ``c`` of a unit write that arrives at its own key."""
    cases = []
    for rho, lambda0 in ((0.6, 0.1), (0.9, 0.1), (0.3, 2.0)):
        _, second = theory.twins(rho)
        right = float(_direction(1, rho, lambda0) @ second)
        cases.append((f"rho = {rho}, lambda0 = {lambda0}", (rho, lambda0), right))
    judge(answer, cases)


def _direction(m: int, rho: float, lambda0: float) -> torch.Tensor:
    rule = make("vla", lambda0=lambda0)
    first, second = theory.twins(rho)
    value = torch.ones(1, dtype=torch.float64)
    state: State = rule.init(2, 1)
    for key in [first] * m + [second]:
        state = rule.step(state, Token(k=key, v=value))
    assert state.write is not None
    return to_unit(state.write.gain)
