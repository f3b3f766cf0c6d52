"""VLA (paper's text, authors' code and exact form are settings of one class) and exact RLS."""

import math
from typing import Any

import torch
from torch import nn

from vla.nn.config import ModelConfig
from vla.nn.mixer import Mixer, Sequences, gate_of, register, write_gate
from vla.nn.parts import normalise_read
from vla.ops import delta_rule, vla_attention
from vla.rules import Rule
from vla.rules.features import to_unit
from vla.typing import Float, Tensor


@register("vla")
class VLA(Mixer):
    """``S += β (v − S k) α̂ᵀ`` along a direction that an inverse penalty picks (paper §3).

    Settings: :class:`vla.nn.ModelConfig`; presets: :data:`vla.nn.MODELS`. W_u is one matrix over
    all heads without a bias, on the raw key before its feature map, as in the authors' code. With
    ``rank`` r it has r times the rows, and each of a token's r directions is scaled by itself.
    With ``learned_lambda0`` a head's λ0 is the config's times e^θ, θ trained from 0: it stays
    positive, and weight decay pulls it to where it started.
    """

    rule_name = "vla"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        own = config.own
        width, rank = config.heads * config.d, config.rank or 1
        projects = own["direction"] == "projection" and own["adaptive"]
        self.direction = nn.Linear(width, rank * width, bias=False) if projects else None
        self.gate = write_gate(config)
        theta = nn.Parameter(torch.zeros(config.heads)) if config.learned_lambda0 else None
        self.log_lambda0 = theta

    def lambda0(self) -> float | Float[Tensor, "h"]:
        """λ0: one number, or where it is learned one for each head."""
        start: float = self.config.own["lambda0"]
        return start if self.log_lambda0 is None else start * self.log_lambda0.exp()

    def sequences(self, x: Float[Tensor, "b t w"]) -> Sequences:
        """Feature keys and queries, u, β."""
        q, raw, v = self.raw(x)
        unit = bool(self.config.normalise_key)
        k, beta = self.features(raw, unit=unit), gate_of(self.gate, x)
        u = self._direction(raw, k, beta) if self.config.adaptive else None
        return Sequences(self.features(q, unit=unit), k, v, u, beta)

    def attend(self, s: Sequences) -> Float[Tensor, "b t h dv"]:
        """VLA; the delta rule where A is fixed."""
        o = self._adaptive(s) if self.config.adaptive else self._fixed(s)
        if not self.config.normalise_read:
            return o
        return normalise_read(o, s.q, s.k, self.config.floor or 0.0)

    def _adaptive(self, s: Sequences) -> Tensor:
        own = self.config.own
        names = ("gain", "refresh_every", "refresh_eps")
        rule = {**self.how, **{name: own[name] for name in names}}
        return vla_attention(*s, lambda0=self.lambda0(), **rule)[0]

    def _fixed(self, s: Sequences) -> Tensor:
        """``α = k/λ0``, so each gain is ``k`` times a number, which goes into the gate."""
        own = self.config.own
        size = s.k.square().sum(-1)
        if own["gain"] == "rls":
            step = torch.full_like(size, 1 / own["lambda0"])
        else:
            length = size.sqrt() if own["gain"] == "unit" else size
            step = length.clamp_min(torch.finfo(size.dtype).tiny).reciprocal()
        beta = step if s.gate is None else step * s.gate
        return delta_rule(s.q, s.k, s.v, beta, **self.how)[0]

    def _direction(self, raw: Tensor, k: Tensor, beta: Tensor | None) -> Tensor | None:
        """u, or ``None`` for √β k as it is, which the operation makes itself."""
        own = self.config.own
        weighted = own["direction"] == "weighted"
        scale = own["direction_scale"] or 1 / math.sqrt(k.shape[-1])
        if weighted and scale == 1 and not own["unit_direction"]:
            return None
        if self.direction is not None:
            several = (self.config.rank,) if self.config.rank else ()
            u = self.direction(raw.flatten(2)).unflatten(-1, (raw.shape[2], *several, -1))
        else:
            u = _weighted(k, beta) if weighted else k
        return scale * (to_unit(u) if own["unit_direction"] else u)

    def directions(self, s: Sequences) -> Float[Tensor, "b t h *r d"]:
        """u as used."""
        return _weighted(s.k, s.gate) if s.u is None else s.u

    def rule(self, head: int = 0) -> Rule:
        """The rule of a head, with the λ0 that it has learned."""
        rule, lambda0 = super().rule(head), self.lambda0()
        if not isinstance(lambda0, Tensor):
            return rule
        return rule.with_(lambda0=float(lambda0[head].detach()))

    def rule_settings(self) -> dict[str, Any]:
        """Streams carry u as used, so the rule takes it from the token."""
        own = self.config.own
        shared = ["lambda0", "gain", "refresh_every", "refresh_eps", "adaptive", "normalise_read"]
        return {
            **super().rule_settings(),
            **{name: own[name] for name in shared},
            "direction": "token",
            "floor": own["floor"] if own["normalise_read"] else 0.0,
        }

    def memory(self, length: int) -> dict[str, int]:
        """S, z, and A in full, which is symmetric."""
        carried = super().memory(length)
        if self.config.adaptive:
            carried["A"] = self.config.heads * self.config.d**2
        return carried


@register("rls")
class RLS(Mixer):
    """Exact recursive least squares: the ridge answer after every token, β as weights if gated."""

    rule_name = "rls"

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.gate = write_gate(config)

    def sequences(self, x: Float[Tensor, "b t w"]) -> Sequences:
        """Unit feature keys and queries, β."""
        q, k, v = self.raw(x)
        return Sequences(self.features(q), self.features(k), v, gate=gate_of(self.gate, x))

    def attend(self, s: Sequences) -> Float[Tensor, "b t h dv"]:
        """VLA with u = √β k and the exact gain is RLS."""
        lambda0 = self.config.own["lambda0"]
        return vla_attention(*s, lambda0=lambda0, gain="rls", **self.how)[0]

    def memory(self, length: int) -> dict[str, int]:
        """S and A."""
        return {**super().memory(length), "A": self.config.heads * self.config.d**2}

    def rule_settings(self) -> dict[str, Any]:
        """λ0 beside keys as given."""
        return {**super().rule_settings(), "lambda0": self.config.own["lambda0"]}


def _weighted(k: Tensor, beta: Tensor | None) -> Tensor:
    return k if beta is None else beta.sqrt()[..., None] * k
