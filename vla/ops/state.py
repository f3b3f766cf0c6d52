"""The state that a sequence leaves behind and the next call continues from."""

from typing import NamedTuple

from vla.typing import Float, Tensor


class VLAState(NamedTuple):
    """Everything needed to go on exactly where a call stopped, at any split point.

    ``S`` reads as ``S q``. ``A`` is the inverse penalty. ``step`` counts tokens seen, so that the
    refresh keeps its phase. ``S`` and ``A`` are float32 (float64 for float64 input).
    """

    S: Float[Tensor, "b h dv d"]
    A: Float[Tensor, "b h d d"]
    step: int
