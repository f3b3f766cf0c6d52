"""What the checks share: runs of a rule in float64, and what is measured on them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch.nn import functional as F

from vla.rules import Rule, State, Token, transition
from vla.rules.base import matvec
from vla.typing import Float, Tensor

D = 32
"""Head width of the paper's models."""


def normal(seed: int, *shape: int) -> Tensor:
    """Gaussian numbers that the seed fixes."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def unit(x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """Scaled to length 1."""
    return F.normalize(x, dim=-1)


def elu_keys(seed: int, *shape: int) -> Tensor:
    """Unit keys after the paper's feature map, ELU+1 of Gaussians."""
    return unit(F.elu(normal(seed, *shape)) + 1)


def projected(seed: int, k: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
    """``L2norm(W k)`` with a random W: the paper's u before anything is learned."""
    d = k.shape[-1]
    return unit(k @ normal(seed, d, d).mT / math.sqrt(d))


def states(
    rule: Rule, k: Tensor, v: Tensor, u: Tensor | None = None, beta: Tensor | None = None
) -> list[State]:
    """The state after every token; time is the second-last axis."""
    state, found = rule.init(k.shape[-1], v.shape[-1], batch=k.shape[:-2], dtype=k.dtype), []
    for t in range(k.shape[-2]):
        given = [None if beta is None else beta[..., t], None if u is None else u[..., t, :]]
        state = rule.step(state, Token(k[..., t, :], v[..., t, :], *given))
        found.append(state)
    return found


def transitions(found: Sequence[State]) -> list[Tensor]:
    """``J_t`` of every step."""
    return [transition(state.write) for state in found if state.write is not None]


def cosines(found: Sequence[State]) -> Tensor:
    """``c = k·α̂`` of every step."""
    return torch.stack([(unit(s.write.gain) * s.write.k).sum(-1) for s in found if s.write])


def spectral(x: Tensor) -> Tensor:
    """Largest singular value."""
    return torch.linalg.matrix_norm(x, 2)


def product_norms(Js: Sequence[Tensor]) -> Tensor:
    """``‖J_1 ⋯ J_t‖`` for every t."""
    product, norms = Js[0], [spectral(Js[0])]
    for J in Js[1:]:
        product = product @ J
        norms.append(spectral(product))
    return torch.stack(norms)


def recall_errors(rule: Rule, k: Tensor, v: Tensor, u: Tensor | None = None) -> Tensor:
    """Relative error of every pair, read back after the last write."""
    last = states(rule, k, v, k if u is None else u)[-1]
    reads = torch.stack([rule.read(last, k[..., t, :]) for t in range(k.shape[-2])], -2)
    return (reads - v).norm(dim=-1) / v.norm(dim=-1)


def ridge(k: Tensor, v: Tensor, penalty: Tensor) -> Tensor:
    """``argmin_S Σ ‖v − S k‖² + tr(S M Sᵀ)`` for a penalty matrix M."""
    return torch.linalg.solve(k.mT @ k + penalty, k.mT @ v).mT


def distance(found: Tensor, wanted: Tensor) -> float:
    """Relative distance of two matrices."""
    return float((found - wanted).norm() / wanted.norm())


def residual_norms(found: Sequence[State]) -> Tensor:
    """``‖e_t‖`` of every step."""
    return torch.stack([state.write.error.norm(dim=-1) for state in found if state.write])


def writes(found: Sequence[State]) -> Tensor:
    """``‖S_t − S_{t−1}‖`` of every step, as a difference of states."""
    S = torch.stack([state.S for state in found])
    before = torch.cat([torch.zeros_like(S[:1]), S[:-1]])
    return (S - before).flatten(-2).norm(dim=-1)


def reads(state: State, k: Tensor) -> Tensor:
    """``S k`` for many keys."""
    return matvec(state.S[..., None, :, :], k)


def ints(numbers: Sequence[int] | range) -> tuple[float, ...]:
    """Steps as a picture takes them."""
    return tuple(float(n) for n in numbers)


def floats(values: Tensor) -> tuple[float, ...]:
    """A tensor's numbers."""
    return tuple(float(x) for x in values)
