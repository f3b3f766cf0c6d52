"""The exercises of chapter 6: idle rows, ``α`` without a matrix, bytes kept for backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from checks import judge

from vla.ops.kernels import launch
from vla.ops.scan import sherman_morrison
from vla.typing import Tensor


def idle_rows(answer: Callable[..., Any]) -> None:
    """Exercise 6.1: rows of the tiles that hold no token, counted one by one."""
    cases = []
    for tokens, size in ((40, 16), (64, 64), (17, 64), (1, 16), (1000, 32)):
        starts = range(0, tokens, size)
        right = sum(row >= tokens for start in starts for row in range(start, start + size))
        cases.append((f"T = {tokens}, C = {size}", (tokens, size), right))
    judge(answer, cases)


def alpha_of(answer: Callable[..., Any]) -> None:
    """Exercise 6.2: ``A_t k`` from ``z = A_{t−1} k``, the key and the gate."""
    cases = []
    for d, gate in ((2, 1.0), (5, 0.5), (8, 0.0)):
        A, beta = torch.eye(d, dtype=torch.float64) / 0.1, torch.tensor(gate, dtype=torch.float64)
        A = sherman_morrison(A, _draw(d))
        k = _draw(d, seed=1)
        right = sherman_morrison(A, beta.sqrt() * k) @ k
        cases.append((f"width {d} and beta = {gate}", (A @ k, k, beta), right))
    judge(answer, cases)


def stored_bytes(answer: Callable[..., Any]) -> None:
    """Exercise 6.3: bytes for each token and head, read off the launcher's own buffers."""
    judge(answer, [(f"d = {d}", (d,), _bytes_kept(d)) for d in (32, 64, 128)])


def _bytes_kept(d: int, tokens: int = 256) -> float:
    rule = launch.Rule(0.1, "unit", 0, 0.0, 0, "auto")
    k = torch.empty(1, tokens, 1, d, dtype=torch.bfloat16)
    layout = launch.layout_of(k, k, rule, own_u=False)
    room = launch.new_geometry(layout, rule, k, save=True)
    kept = launch.new_memory(layout, k, erase=True)
    waiting = (room.g, room.z, room.delta, kept.E, kept.inv, kept.states)
    return sum(x.nbytes for x in waiting) / tokens


def _draw(d: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(10 * d + seed)
    return torch.randn(d, generator=generator, dtype=torch.float64)
