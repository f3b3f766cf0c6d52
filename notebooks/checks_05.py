"""The exercises of chapter 5: chunks of α and of DeltaNet, a gradient, the cheapest chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from checks import judge
from torch.nn.functional import normalize

from vla.ops import VLAState, delta_rule
from vla.ops.scan import sherman_morrison
from vla.typing import Float, Tensor


def penalised_keys(answer: Callable[..., Any]) -> None:
    """Exercise 5.1: ``α_t = A_t k_t`` of a chunk from ``K``, ``A`` and ``W``."""
    cases = []
    for tokens, d in ((1, 2), (4, 3), (6, 8)):
        K, U = _draw(tokens, d), _draw(tokens, d, seed=1)
        A = torch.eye(d, dtype=torch.float64) / 0.3
        rows, inverse = [], A
        for u in U:
            z = inverse @ u
            rows.append(z / (1 + u @ z).sqrt())
            inverse = sherman_morrison(inverse, u)
        right = _penalised(K, U, A)
        cases.append((f"{tokens} tokens of width {d}", (K, A, torch.stack(rows)), right))
    judge(answer, cases)


def delta_chunk(answer: Callable[..., Any]) -> None:
    """Exercise 5.2: the outputs of a chunk of the delta rule."""
    cases = []
    for tokens, d in ((1, 2), (5, 3), (9, 4)):
        Q, K, V = _draw(tokens, d), _draw(tokens, d, seed=1), _draw(tokens, d + 1)
        beta, S = torch.sigmoid(_draw(tokens, d)[:, 0]), _draw(d + 1, d)
        state = VLAState(S[None, None], None, 0)
        right, _ = delta_rule(
            *map(_batched, (Q, K, V)), beta[None, :, None], initial_state=state, backend="scan"
        )
        cases.append((f"{tokens} tokens of width {d}", (Q, K, V, beta, S), right[0, :, 0]))
    judge(answer, cases)


def direction_gradient(answer: Callable[..., Any]) -> None:
    """Exercise 5.3: ``du`` of a chunk from ``U``, ``α``, ``b`` and what later chunks left."""
    cases = []
    for tokens, later, d in ((1, 0, 2), (4, 3, 3), (6, 5, 8)):
        n = tokens + later
        K, U, d_alpha = (_draw(n, d, seed=i) for i in range(3))
        U.requires_grad_()
        A = torch.eye(d, dtype=torch.float64) / 0.3
        alpha = _penalised(K, U, A)
        (right,) = torch.autograd.grad(alpha, U, d_alpha)
        alpha, b = alpha.detach(), _penalised(d_alpha, U, A).detach()
        half = b[tokens:].mT @ alpha[tokens:]
        given = (U.detach()[:tokens], alpha[:tokens], b[:tokens], half + half.mT)
        cases.append((f"{tokens} tokens and {later} later ones", given, right[:tokens]))
    judge(answer, cases)


def cheapest_chunk(answer: Callable[..., Any]) -> None:
    """Exercise 5.4: the ``C`` where ``12 d²/C + 4 C`` is least, found by closing in on it."""
    cases = [
        (f"d = {d}", (d,), _least(lambda C, d=d: 12 * d * d / C + 4 * C)) for d in (16, 32, 128)
    ]
    judge(answer, cases)


def _least(price: Callable[[float], float], low: float = 1.0, high: float = 1e3) -> float:
    """Where a function with one valley is least."""
    for _ in range(80):
        third = (high - low) / 3
        if price(low + third) < price(high - third):
            high -= third
        else:
            low += third
    return (low + high) / 2


def _penalised(K: Float[Tensor, "t d"], U: Float[Tensor, "t d"], A: Float[Tensor, "d d"]) -> Tensor:
    """``A_t k_t`` token by token."""
    rows = []
    for k, u in zip(K, U, strict=True):
        A = sherman_morrison(A, u)
        rows.append(A @ k)
    return torch.stack(rows)


def _draw(rows: int, width: int, seed: int = 0) -> Tensor:
    drawn = torch.randn(rows, width, generator=_seed(100 * rows + 10 * width + seed))
    return normalize(drawn.double(), dim=-1)


def _seed(number: int) -> torch.Generator:
    return torch.Generator().manual_seed(number)


def _batched(x: Float[Tensor, "t d"]) -> Float[Tensor, "1 t 1 d"]:
    return x[None, :, None]
