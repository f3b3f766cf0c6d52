"""How the norm of a memory grows with the number of tokens (paper §1.1, §4.1, §6.2)."""

from __future__ import annotations

import numpy as np
import torch

from vla.errors import ArgumentError, require_integer
from vla.tokens import Stream, from_pairs
from vla.typing import Float

Array = np.ndarray


def random_stream(length: int, d: int, *, shift: float = 0.0, seed: int = 0) -> Stream:
    """Gaussian keys and values, every entry of a value shifted by the same amount.

    The shift gives all values a common part, as a layer's values have one. Raises ``ValueError``
    for a length or width below 1.
    """
    require_integer("length", length, low=1)
    require_integer("d", d, low=1)
    draw = torch.Generator().manual_seed(seed)
    k = torch.randn(length, d, generator=draw, dtype=torch.float64)
    v = torch.randn(length, d, generator=draw, dtype=torch.float64) + shift
    return from_pairs(k, v, seed=seed, name="random")


def growth_exponent(norms: Float[Array, "n"], *, start: int = 50) -> float:
    """``a`` of ``norm ∝ t^a``: slope of log norm against log step, from ``start`` on.

    A sum of T independent vectors of mean zero grows as √T (a = 1/2), a sum of vectors with a
    common part as T (a = 1), and a bounded memory has a = 0. Raises ``ValueError`` if fewer than
    two steps are left.

    >>> import numpy as np
    >>> round(growth_exponent(np.sqrt(np.arange(1000.0))), 3)
    0.5
    """
    if len(norms) < start + 2:
        raise ArgumentError("norms", f"{len(norms)} steps", f"at least {start + 2} of them")
    steps = np.arange(start, len(norms))
    return float(np.polyfit(np.log(steps), np.log(norms[start:]), 1)[0])
