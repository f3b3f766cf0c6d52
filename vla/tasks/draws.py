"""Draws that a CUDA graph can hold: static shapes, one generator, no rejection loops."""

import numpy as np
import torch

from vla.typing import Float, Int, Tensor


def uniform_tokens(
    rows: int, count: int, low: int, high: int, generator: torch.Generator, device: torch.device
) -> Int[Tensor, "rows count"]:
    """Independent tokens from ``low … high − 1``, with repeats."""
    return torch.randint(low, high, (rows, count), generator=generator, device=device)


def distinct_tokens(
    rows: int, count: int, low: int, high: int, generator: torch.Generator, device: torch.device
) -> Int[Tensor, "rows count"]:
    """``count`` different tokens (or places) from ``low … high − 1`` per row, in random order.

    The places of the largest of ``high − low`` uniform draws; finding those few is much cheaper
    than sorting a large vocabulary.
    """
    draws = torch.rand(rows, high - low, generator=generator, device=device)
    return low + draws.topk(count).indices


def permutations(
    rows: int, size: int, generator: torch.Generator, device: torch.device
) -> Int[Tensor, "rows size"]:
    """A random order of ``0 … size − 1`` per row: the order of ``size`` uniform draws."""
    return torch.rand(rows, size, generator=generator, device=device).argsort(-1)


def weighted_choice(
    rows: int,
    count: int,
    weights: Float[Tensor, "size"],
    generator: torch.Generator,
    device: torch.device,
) -> Int[Tensor, "rows count"]:
    """``count`` different indices per row, each next one drawn by weight among those left.

    Exponential race: with ``E_i`` exponential, the order of ``E_i / w_i`` is that of successive
    draws without replacement (Efraimidis and Spirakis 2006).
    """
    uniform = torch.rand(rows, len(weights), generator=generator, device=device)
    return (-torch.log1p(-uniform) / weights).topk(count, largest=False).indices


def expected_mode(draws: int, values: int) -> float:
    """Expected count of the commonest value among ``draws`` uniform draws from ``values``.

    Exact: were the counts independent Poisson variables of mean ``draws/values``, then given their
    sum they would be the counts of the draws; so ``P(no count above c)`` is the coefficient of
    ``x^draws`` in (Poisson terms up to c)^values over the same without the limit.

    >>> round(expected_mode(2, 2), 6)
    1.5
    """
    mean = draws / values
    terms = np.exp(-mean) * np.cumprod([1.0, *(mean / j for j in range(1, draws + 1))])
    whole = _power(terms, values, draws)[draws]
    expected = 0.0
    for most in range(draws):
        above = 1 - _power(terms[: most + 1], values, draws)[draws] / whole
        expected += float(above)
        if above < 1e-12:
            break
    return expected


def _power(terms: np.ndarray, exponent: int, degree: int) -> np.ndarray:
    """``(Σ terms_j x^j)^exponent`` up to ``x^degree``, by repeated squaring."""
    result = np.ones(1)
    while exponent:
        if exponent & 1:
            result = np.convolve(result, terms)[: degree + 1]
        terms = np.convolve(terms, terms)[: degree + 1]
        exponent >>= 1
    return np.pad(result, (0, max(0, degree + 1 - len(result))))
