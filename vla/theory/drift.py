"""How well a memory with process noise follows a world that turns (paper §5.4's refresh)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vla.errors import require_integer, require_positive
from vla.rules import Rule, Token, make
from vla.tokens import Stream, make_stream

NOISES = (0.0, 1e-4, 1e-3, 1e-2, 3e-2, 0.1, 0.3)


@dataclass(frozen=True)
class Tracking:
    """Mean surprise ``‖v − S_{t−1} k‖/‖v‖`` over the second half of a stream, by process noise."""

    degrees: float
    """How far the map from keys to values turns from one token to the next."""
    noises: tuple[float, ...]
    surprise: tuple[float, ...]
    delta: float
    """The same for the delta rule, which keeps the last and has no noise to set."""


def tracking(
    degrees: float,
    noises: Sequence[float] = NOISES,
    *,
    n: int = 400,
    d: int = 8,
    seed: int = 7,
) -> Tracking:
    """Follow a map that turns by ``degrees`` a token, for every process noise.

    The rule is exact least squares with ``A ← A + ε I`` after every token; ε = 0 never forgets.
    Raises ``ValueError`` for fewer than two tokens, a negative noise, or a stream that can't be.
    """
    require_integer("n", n, low=2)
    for noise in noises:
        require_positive("noise", noise, zero=True)
    stream = make_stream(
        "drifting", turns="map", degrees=degrees, n=n, d=d, d_v=d, queries=0, seed=seed
    )
    rules = [make("vla", gain="rls", refresh_every=1, refresh_eps=noise) for noise in noises]
    surprise = tuple(mean_surprise(rule, stream) for rule in rules)
    return Tracking(degrees, tuple(noises), surprise, mean_surprise(make("delta"), stream))


def mean_surprise(rule: Rule, stream: Stream) -> float:
    """``‖v − S_{t−1} k‖/‖v‖`` averaged over the second half of the tokens, before each write."""
    state = rule.init(stream.d, stream.d_v, dtype=stream.k.dtype)
    sizes = []
    for k, v in zip(stream.k, stream.v, strict=True):
        sizes.append(float((v - rule.read(state, k)).norm() / v.norm()))
        state = rule.step(state, Token(k=k, v=v, u=k))
    return float(torch.tensor(sizes[len(sizes) // 2 :]).mean())


def refresh_floor(d: int, eps: float, every: int, size: float = 1.0) -> float:
    """Where ``‖A‖_F`` ends under the refresh, for random ``u`` of this length: ``d √(ε/p)/size``.

    In ``every`` = p steps each eigenvalue ``a`` loses about ``p a² size²/d`` (every direction gets
    1/d of ``u uᵀ``) and gains ε. Both are equal at ``a = √(ε d/p)/size``; the norm is √d times it.
    Good to a few per cent while ``p a size²/d`` is small. Raises ``ValueError`` for numbers ≤ 0.

    >>> round(refresh_floor(32, 1e-3, 20), 3), round(refresh_floor(32, 1e-3, 20, 32**-0.5), 2)
    (0.226, 1.28)
    """
    require_integer("d", d, low=1)
    require_integer("every", every, low=1)
    require_positive("eps", eps)
    require_positive("size", size)
    return d * (eps / every) ** 0.5 / size
