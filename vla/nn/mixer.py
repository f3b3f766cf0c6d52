"""What a mixer is: project, mix along time per head, norm, project back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from vla.nn.config import ModelConfig
from vla.nn.parts import ShortConv, output_norm
from vla.rules import Rule
from vla.rules import make as make_rule
from vla.rules.features import feature_map
from vla.typing import Float, Tensor


class Sequences(NamedTuple):
    """Queries, keys, values, directions and gates of every head, as the recurrence takes them."""

    q: Float[Tensor, "b t h d"]
    k: Float[Tensor, "b t h d"]
    """After feature map and normalisation."""
    v: Float[Tensor, "b t h dv"]
    u: Float[Tensor, "b t h *r d"] | None = None
    """``None`` where the mixer has none, or where it is √β k. Several directions have an axis."""
    gate: Tensor | None = None
    """``[b, t, h]``, or ``[b, t, h, dv]`` for a gate per value row. Log gates where they decay."""


class Mixer(nn.Module, ABC):
    """One attention layer. ``x [b, t, width]`` in, the same shape out, causal."""

    rule_name: ClassVar[str]
    """The memory rule in :mod:`vla.rules` that it runs, for oracles, titles and colours."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        H, d, d_v = config.heads, config.d, config.d_v
        self.sizes = (H * d, H * d, H * d_v)
        self.qkv = nn.Linear(config.width, sum(self.sizes), bias=False)
        self.conv = ShortConv(sum(self.sizes), config.short_conv) if config.short_conv else None
        self.norm = output_norm(config)
        self.out = nn.Linear(H * d_v, config.width, bias=False)

    def forward(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        """Mix along time."""
        heads = self.attend(self.sequences(x))
        return self.out(self.norm(heads).flatten(-2))

    def raw(self, x: Float[Tensor, "b t w"]) -> tuple[Tensor, Tensor, Tensor]:
        """q, k, v ``[b, t, h, ·]`` after projection and short convolution."""
        mixed = self.qkv(x)
        if self.conv is not None:
            mixed = self.conv(mixed)
        q, k, v = mixed.split(self.sizes, -1)
        heads = self.config.heads
        return (
            q.unflatten(-1, (heads, -1)),
            k.unflatten(-1, (heads, -1)),
            v.unflatten(-1, (heads, -1)),
        )

    def features(self, x: Float[Tensor, "b t h d"], *, unit: bool = True) -> Tensor:
        """The config's feature map."""
        assert self.config.features is not None
        return feature_map(x, self.config.features, unit=unit)

    @abstractmethod
    def sequences(self, x: Float[Tensor, "b t w"]) -> Sequences:
        """What the recurrence is run on."""

    @abstractmethod
    def attend(self, s: Sequences) -> Float[Tensor, "b t h dv"]:
        """The recurrence, by the fast operation."""

    def rule(self, head: int = 0) -> Rule:
        """The :mod:`vla.rules` rule that gives the same numbers on a head's own tokens.

        The head matters only where each has learned a λ0 of its own.
        """
        del head
        return make_rule(self.rule_name, **self.rule_settings())

    def rule_settings(self) -> dict[str, Any]:
        """Settings of the rule: keys are used as given, for sequences are mapped already."""
        return {"features": "identity", "normalise_key": False}

    @property
    def how(self) -> dict[str, Any]:
        """How the operation is run, which changes nothing but speed and rounding."""
        return {"backend": self.config.backend, "precision": self.config.precision}

    def gates(self, s: Sequences) -> Tensor | None:
        """What the rule calls ``beta``."""
        return s.gate

    def directions(self, s: Sequences) -> Float[Tensor, "b t h *r d"]:
        """u of every token; the key where the mixer has none."""
        return s.k if s.u is None else s.u

    def state(self, length: int) -> dict[str, int]:
        """Numbers carried from token to token per sequence, by what they are.

        ``length``: tokens seen so far, for memories that grow.
        """
        carried = self.memory(length)
        if self.conv is not None:
            carried["conv"] = (self.config.short_conv - 1) * sum(self.sizes)
        return carried

    def memory(self, length: int) -> dict[str, int]:
        """The part of :meth:`state` that is the rule's."""
        del length
        carried = {"S": self.config.heads * self.config.d * self.config.d_v}
        if self.config.normalise_read:
            carried["z"] = self.config.heads * self.config.d
        return carried


MIXERS: dict[str, type[Mixer]] = {}
"""Name to class."""


def register(name: str) -> Any:
    """Class decorator: the layer behind ``ModelConfig(mixer=name)``."""

    def enter(mixer: type[Mixer]) -> type[Mixer]:
        MIXERS[name] = mixer
        return mixer

    return enter


def write_gate(config: ModelConfig) -> nn.Linear | None:
    """W_β, if the config has a write gate: one logit per head, no bias, so β starts at ½."""
    return nn.Linear(config.width, config.heads, bias=False) if config.gated else None


def gate_of(layer: nn.Linear | None, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t h"] | None:
    """``β = σ(W_β x)``, or ``None`` without a gate."""
    return None if layer is None else torch.sigmoid(layer(x))
