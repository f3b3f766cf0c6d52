"""Linear attention (Katharopoulos et al. 2020)."""

from typing import Any

from vla.nn.mixer import Mixer, Sequences, register
from vla.nn.parts import normalise_read
from vla.ops import linear_attention
from vla.typing import Float, Tensor


@register("linear")
class Linear(Mixer):
    """``S += v φ(k)ᵀ``, ``o = S φ(q) / (z·φ(q))`` (paper eq. 3): φ = ELU+1, no unit keys."""

    rule_name = "linear"

    def sequences(self, x: Float[Tensor, "b t w"]) -> Sequences:
        """Feature keys and queries, not normalised."""
        q, k, v = self.raw(x)
        return Sequences(self.features(q, unit=False), self.features(k, unit=False), v)

    def attend(self, s: Sequences) -> Float[Tensor, "b t h dv"]:
        """Additive memory, then the read normaliser."""
        o, _ = linear_attention(s.q, s.k, s.v, **self.how)
        if not self.config.normalise_read:
            return o
        return normalise_read(o, s.q, s.k, self.config.floor or 0.0)

    def rule_settings(self) -> dict[str, Any]:
        """The normaliser and its floor."""
        return {**self.config.own, "features": "identity"}
