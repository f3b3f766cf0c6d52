"""The exercises of chapter 10: fading, a diagonal gain, and a whole rule file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from checks import judge

from vla.errors import ArgumentError
from vla.rules import Rule, Token, load_file, make
from vla.rules.base import matvec, outer
from vla.rules.features import to_unit
from vla.rules.inverse import sherman_morrison
from vla.typing import Float, Tensor

SOLUTION = '''\
"""A memory with a diagonal penalty."""

from dataclasses import dataclass

import torch

from vla.rules import Rule, State, Token, Write, register
from vla.rules.base import matvec, outer
from vla.rules.features import to_unit
from vla.rules.inverse import first_inverse


@register
@dataclass(frozen=True)
class Diagonal(Rule):
    name = "diagonal"
    title = "diagonal penalty"
    equation = "S ← S + (v − S k) α̂ᵀ,  α̂ ∝ k/m"
    source = "chapter 10"
    colour = "#CC79A7"

    lambda0: float = 0.1

    def begin(self, state):
        return state._replace(A=first_inverse(state.S, self.lambda0))

    def features_of(self, x):
        return to_unit(x)

    def step(self, state: State, token: Token) -> State:
        k = self.features_of(token.k)
        a = state.A.diagonal(dim1=-2, dim2=-1)
        a = a / (1 + a * k**2)
        A = torch.diag_embed(a)
        gain = to_unit(a * k)
        error = token.v - matvec(state.S, k)
        write = Write(k=k, v=token.v, error=error, gain=gain)
        return State(S=state.S + outer(error, gain), A=A, step=state.step + 1, write=write)
'''


def faded(answer: Callable[..., Any]) -> None:
    """Exercise 10.1: error of a pair after ``n`` more at right angles to it, under a decay."""
    cases = [
        (f"gamma = {gamma}, n = {n}", (gamma, n), _error_after(gamma, n))
        for gamma, n in ((0.9, 1), (0.9, 5), (0.5, 3), (0.99, 0))
    ]
    judge(answer, cases)


def diagonal_gain(answer: Callable[..., Any]) -> None:
    """Exercise 10.2: ``α̂`` of a penalty that keeps one number for each coordinate."""
    cases = []
    for d in (1, 3, 8):
        a, k = _draw(d).exp(), _draw(d, seed=1)
        cases.append((f"width {d}", (a, k), to_unit(_shrunk(a, k) * k)))
    judge(answer, cases)


def rule_file(path: str | Path) -> None:
    """Exercise 10.3: a file whose rule has the diagonal penalty, and shows it as its ``A``."""
    try:
        rule = make(load_file(path)[-1])
    except ArgumentError as error:
        return print(f"Not yet: {error}")
    if _is_delta(rule):
        return print("Not yet: the file runs, and its rule steps like the delta rule.")
    sizes = ((3, 5, ()), (4, 2, (2, 3)))
    cases = []
    for d, d_v, batch in sizes:
        k, v = _draw(6, *batch, d), _draw(6, *batch, d_v)
        right = _memory(k, v)
        cases.append((f"S after 6 tokens of shape {[*batch, d]}", (k, v, "S"), right[0]))
        cases.append((f"A after 6 tokens of shape {[*batch, d]}", (k, v, "A"), right[1]))
    return judge(lambda k, v, name: getattr(_run(rule, k, v), name), cases)


def write_solution(path: str | Path) -> None:
    """Save exercise 10.3, solved, as a rule named ``diagonal``."""
    Path(path).write_text(SOLUTION, encoding="utf-8")


def _error_after(gamma: float, n: int) -> float:
    """At right angles nothing is erased, so the gated delta rule's decay acts alone."""
    rule, axes = make("gated_delta"), torch.eye(8, dtype=torch.float64)
    state, beta = rule.init(8, 8), torch.tensor(gamma, dtype=torch.float64)
    for axis in axes[: n + 1]:
        state = rule.step(state, Token(k=axis, v=axis, beta=beta))
    return float(torch.linalg.vector_norm(rule.read(state, axes[0]) - axes[0]))


def _shrunk(a: Float[Tensor, "*b d"], k: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Every coordinate as an inverse penalty of width 1."""
    return sherman_morrison(a[..., None, None], k[..., None])[0][..., 0, 0]


def _memory(k: Float[Tensor, "t *b d"], v: Float[Tensor, "t *b dv"]) -> tuple[Tensor, Tensor]:
    k = to_unit(k)
    a, S = torch.full_like(k[0], 10.0), torch.zeros_like(outer(v[0], k[0]))
    for key, value in zip(k, v, strict=True):
        a = _shrunk(a, key)
        S = S + outer(value - matvec(S, key), to_unit(a * key))
    return S, torch.diag_embed(a)


def _run(rule: Rule, k: Float[Tensor, "t *b d"], v: Float[Tensor, "t *b dv"]) -> Any:
    state = rule.init(k.shape[-1], v.shape[-1], batch=k.shape[1:-1])
    for key, value in zip(k, v, strict=True):
        state = rule.step(state, Token(k=key, v=value))
    return state


def _is_delta(rule: Rule) -> bool:
    k, v = _draw(6, 3), _draw(6, 5)
    try:
        return torch.allclose(_run(rule, k, v).S, _run(make("delta"), k, v).S)
    except Exception:
        return False


def _draw(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64)
