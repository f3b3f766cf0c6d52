"""The write direction: what each gain makes of ``α = A k``."""

import torch

from vla.typing import Float, Tensor

GAINS = ("unit", "rls", "oblique")


def write_direction(
    alpha: Float[Tensor, "*b d"], k: Float[Tensor, "*b d"], gain: str
) -> Float[Tensor, "*b d"]:
    """``α/‖α‖`` (unit, paper eq. 10), ``α`` (rls, exact least squares) or ``α/(k·α)`` (oblique).

    Where the divisor is zero the result is zero, and so is its gradient.
    """
    if gain == "rls":
        return alpha
    if gain == "unit":
        return alpha * _reciprocal(torch.linalg.vector_norm(alpha, dim=-1, keepdim=True))
    return alpha * _reciprocal((k * alpha).sum(-1, keepdim=True))


def _reciprocal(x: Tensor) -> Tensor:
    """``1/x``, and zero where ``x`` is zero; the first ``where`` keeps the gradient finite."""
    zero = x == 0
    return torch.where(zero, 0.0, 1 / torch.where(zero, 1.0, x))
