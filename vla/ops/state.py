"""The state that a sequence leaves behind and the next call continues from."""

from typing import NamedTuple

import torch

from vla.typing import Float, Tensor


class VLAState(NamedTuple):
    """Everything needed to go on exactly where a call stopped, at any split point.

    ``S`` reads as ``S q``. ``A`` is the inverse penalty, symmetric positive definite; it is
    ``None`` for the delta rule and linear attention, which keep none. ``step`` counts tokens seen,
    so that the refresh keeps its phase. ``S`` and ``A`` are float32 (float64 for float64 input).
    """

    S: Float[Tensor, "b h dv d"]
    A: Float[Tensor, "b h d d"] | None
    step: int


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """The dtype states are kept in: float64 for float64 input, float32 for everything else."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def empty_state(
    q: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    lambda0: float | Float[Tensor, "h"] | None,
) -> VLAState:
    """``S = 0`` and ``A = I/λ0`` (``None`` without λ0), on the device of ``q``."""
    (b, _, h, d), dv = q.shape, v.shape[-1]
    dtype = compute_dtype(q.dtype)
    S = torch.zeros(b, h, dv, d, dtype=dtype, device=q.device)
    if lambda0 is None:
        return VLAState(S, None, 0)
    if isinstance(lambda0, Tensor):
        lambda0 = lambda0.to(dtype)[:, None, None]
    A = torch.eye(d, dtype=dtype, device=q.device) / lambda0
    return VLAState(S, A.expand(b, h, d, d).contiguous(), 0)
