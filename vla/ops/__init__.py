"""The recurrences, fast: one call, several backends, the same numbers (README.md beside this)."""

from vla.ops.api import vla_attention
from vla.ops.backend import choose_backend
from vla.ops.decode import decode_step
from vla.ops.family import delta_rule, linear_attention
from vla.ops.state import VLAState

__all__ = [
    "VLAState",
    "choose_backend",
    "decode_step",
    "delta_rule",
    "linear_attention",
    "vla_attention",
]
