"""Delta rules: DeltaNet, the paper's gated form, and the authors' gate per value row."""

from typing import Any

import torch.nn.functional as F
from torch import nn

from vla.nn.config import ModelConfig
from vla.nn.mixer import Mixer, Sequences, gate_of, register, write_gate
from vla.ops import delta_rule
from vla.ops.gated import gated_delta_rule
from vla.rules.features import feature_map, to_unit
from vla.typing import Float, Tensor


@register("delta")
class DeltaNet(Mixer):
    """``S += β (v − S k) kᵀ``: SiLU, then unit length, for q and k (Yang et al. 2024)."""

    rule_name = "delta"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.gate = write_gate(config)

    def sequences(self, x: Float[Tensor, "b t w"]) -> Sequences:
        """Unit feature keys and queries, β."""
        q, k, v = self.raw(x)
        return Sequences(self.features(q), self.features(k), v, gate=gate_of(self.gate, x))

    def attend(self, s: Sequences) -> Float[Tensor, "b t h dv"]:
        """The delta rule."""
        return delta_rule(s.q, s.k, s.v, s.gate, **self.how)[0]


class _Decaying(Mixer):
    """``S = diag(g) S + (v − S k) kᵀ`` with ``g = σ(W_g x)``: at the start the state halves."""

    def __init__(self, config: ModelConfig, gates: int) -> None:
        super().__init__(config)
        self.gate = nn.Linear(config.width, gates, bias=False)

    def attend(self, s: Sequences) -> Float[Tensor, "b t h dv"]:
        """The gated delta rule."""
        assert s.gate is not None
        return gated_delta_rule(s.q, s.k, s.v, s.gate, backend=self.config.backend)

    def gates(self, s: Sequences) -> Tensor | None:
        """Gates from their logarithms."""
        return None if s.gate is None else s.gate.exp()


@register("gated_delta")
class GatedDelta(_Decaying):
    """DeltaNet as the paper writes it (§1.1, eq. 4): one gate per head, on the whole old state."""

    rule_name = "gated_delta"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.heads)

    def sequences(self, x: Float[Tensor, "b t w"]) -> Sequences:
        """Unit keys and queries, log gates ``[b, t, h]``."""
        q, k, v = self.raw(x)
        return Sequences(self.features(q), self.features(k), v, gate=F.logsigmoid(self.gate(x)))


@register("authors_delta")
class AuthorsDelta(_Decaying):
    """DeltaNet in the authors' notebook 07: a gate per value row, ELU+1 q, raw unit k."""

    rule_name = "authors_delta"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, config.heads * config.d_v)

    def sequences(self, x: Float[Tensor, "b t w"]) -> Sequences:
        """As in the notebook; log gates ``[b, t, h, dv]``."""
        q, k, v = self.raw(x)
        gate = F.logsigmoid(self.gate(x)).unflatten(-1, (self.config.heads, -1))
        return Sequences(feature_map(q, "elu+1", unit=False), to_unit(k), v, gate=gate)

    def rule_settings(self) -> dict[str, Any]:
        """The rule's keys are unit anyway."""
        return {"query_features": "identity"}
