"""Tells a student whether an exercise of chapter 1 is right; ``checks_NN`` does for chapter NN.

A check takes the student's function and hands cases to :func:`judge`, which never raises: an
unfinished, failing or wrong answer gets a sentence that says what was expected and what came.
The right values come from the rules themselves, not from a formula here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from vla.rules import Token, make
from vla.rules.base import dot, matvec
from vla.tokens import make_stream

Case = tuple[str, tuple[Any, ...], Any]
"""What the case is in words, the arguments, and the right answer."""


def interference(answer: Callable[..., Any]) -> None:
    """Exercise 1.1: relative recall error of linear attention after n pairs at cosine ρ."""
    cases = [
        (f"n = {n}, rho = {rho}", (n, rho), _additive_error(n, rho))
        for n, rho in ((2, 0.6), (5, 0.3), (9, 0.1))
    ]
    judge(answer, cases)


def inverse(answer: Callable[..., Any]) -> None:
    """Exercise 1.2: (A⁻¹ + u uᵀ)⁻¹ without inverting anything."""
    draw = torch.Generator().manual_seed(1)
    cases = []
    for d in (1, 3, 8):
        root = torch.randn(d, d, generator=draw, dtype=torch.float64)
        A = torch.linalg.inv(root @ root.mT + torch.eye(d, dtype=torch.float64))
        u = torch.randn(d, generator=draw, dtype=torch.float64)
        right = torch.linalg.inv(torch.linalg.inv(A) + torch.outer(u, u))
        cases.append((f"a random A of width {d}", (A.clone(), u.clone()), right))
    judge(answer, cases)


def exact_gain(answer: Callable[..., Any]) -> None:
    """Exercise 1.3: a gain along A k that stores the current pair exactly."""
    draw = torch.Generator().manual_seed(2)
    cases = []
    for d in (2, 5):
        rule = make("vla", gain="oblique")
        state = rule.init(d, d)
        for _ in range(d):
            k, v = torch.randn(2, d, generator=draw, dtype=torch.float64)
            state = rule.step(state, Token(k=k, v=v))
        assert state.A is not None
        assert state.write is not None
        alpha = matvec(state.A, state.write.k)
        right = alpha / dot(state.write.k, alpha)
        cases.append((f"a memory of width {d}", (state.A.clone(), state.write.k.clone()), right))
    judge(answer, cases)


def _additive_error(n: int, rho: float) -> float:
    rule = make("linear", features="identity", unit=True, normalise_read=False)
    stream = make_stream("correlated", n=n, d=16, d_v=16, rho=rho, queries=0)
    values = torch.eye(16, dtype=torch.float64)[:n]
    state = rule.init(16, 16)
    for k, v in zip(stream.k, values, strict=True):
        state = rule.step(state, Token(k=k, v=v))
    return float(torch.linalg.vector_norm(rule.read(state, stream.k[0]) - values[0]))


def judge(answer: Callable[..., Any], cases: Iterable[Case]) -> None:
    """Print "Right.", or the first case in which the answer is not, and how."""
    for words, arguments, right in cases:
        try:
            given = answer(*arguments)
        except Exception as error:
            return print(f"Not yet: for {words} your function stopped with {error!r}.")
        if given is None or given is ...:
            return print("Not yet: replace the dots by your answer and run this cell again.")
        if trouble := _difference(given, right):
            return print(f"Not right yet: for {words} {trouble}.")
    return print("Right.")


def _difference(given: Any, right: Any) -> str:
    """What is wrong with an answer; empty if nothing is."""
    wanted = torch.as_tensor(right, dtype=torch.float64)
    try:
        came = torch.as_tensor(given, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        return f"a {type(given).__name__} came instead of numbers"
    if came.shape != wanted.shape:
        return f"the shape is {list(came.shape)}, it should be {list(wanted.shape)}"
    if torch.allclose(came, wanted, rtol=1e-6, atol=1e-9):
        return ""
    worst = int((came - wanted).abs().flatten().argmax())
    return f"{came.flatten()[worst]:.3g} came where the memory has {wanted.flatten()[worst]:.3g}"
