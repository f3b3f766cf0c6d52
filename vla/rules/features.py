"""Feature maps and normalisation of keys: the choices that the papers of the family differ in."""

from collections.abc import Callable

import torch
from torch.nn import functional as F

from vla.errors import require_choice
from vla.typing import Float, Tensor

FEATURES: dict[str, Callable[[Tensor], Tensor]] = {
    "identity": lambda x: x,
    "elu+1": lambda x: F.elu(x) + 1,
    "silu": F.silu,
}
"""``elu+1`` is Katharopoulos et al. 2020; ``silu`` is the real DeltaNet's."""


def feature_map(x: Float[Tensor, "*b d"], name: str, *, unit: bool) -> Float[Tensor, "*b d"]:
    """Apply the named map, then scale to unit length if asked. A zero vector stays zero."""
    require_choice("features", name, FEATURES)
    mapped = FEATURES[name](x)
    return to_unit(mapped) if unit else mapped


def to_unit(x: Float[Tensor, "*b d"], floor: float = 0.0) -> Float[Tensor, "*b d"]:
    """``x / max(‖x‖, floor)``; zero stays zero, whatever the floor."""
    wide = x.float() if x.dtype == torch.bfloat16 else x
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return x / norm.clamp_min(max(floor, torch.finfo(norm.dtype).tiny)).to(x.dtype)
