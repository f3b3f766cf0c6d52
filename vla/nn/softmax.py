"""Softmax attention, plain: no rotary positions, no convolution unless asked for."""

from typing import Any

import torch.nn.functional as F

from vla.errors import require_choice
from vla.nn.config import ModelConfig
from vla.nn.mixer import Mixer, Sequences, register
from vla.typing import Float, Tensor


@register("softmax")
class Softmax(Mixer):
    """``o_t = Σ softmax(q_t·k_s/√d) v_s`` over s ≤ t (paper eq. 1), through PyTorch's SDPA."""

    rule_name = "softmax"

    def __init__(self, config: ModelConfig) -> None:
        require_choice("backend", config.backend, ("auto",))
        super().__init__(config)

    def sequences(self, x: Float[Tensor, "b t w"]) -> Sequences:
        """Raw projections."""
        return Sequences(*self.raw(x))

    def attend(self, s: Sequences) -> Float[Tensor, "b t h dv"]:
        """Causal attention."""
        q, k, v = (z.transpose(1, 2) for z in (s.q, s.k, s.v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    def memory(self, length: int) -> dict[str, int]:
        """A cache of keys and values that grows with every token."""
        return {"cache": length * self.config.heads * (self.config.d + self.config.d_v)}

    def rule_settings(self) -> dict[str, Any]:
        """The rule's scale 0 is 1/√d."""
        return {}
