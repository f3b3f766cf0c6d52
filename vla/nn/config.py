"""One model is one config: frozen, flat, hashable, the authors' architecture by default."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Self

from vla.errors import ArgumentError, require_choice, require_integer, require_positive
from vla.ops.check import BACKENDS, PRECISIONS
from vla.rules.features import FEATURES
from vla.rules.inverse import MAX_RANK

DIRECTIONS = ("key", "projection", "weighted")
GAINS = ("unit", "rls", "oblique")
OUTPUT_NORMS = ("none", "layer", "head")

DEFAULTS: dict[str, dict[str, Any]] = {
    "softmax": {},
    "linear": {"features": "elu+1", "normalise_read": True, "floor": 1e-4},
    "authors_delta": {},
    "gated_delta": {"features": "identity"},
    "delta": {"features": "silu", "gated": True},
    "vla": {
        "features": "elu+1",
        "normalise_key": True,
        "direction": "projection",
        "direction_scale": 1.0,
        "unit_direction": True,
        "gain": "unit",
        "gated": False,
        "adaptive": True,
        "lambda0": 0.1,
        "refresh_every": 0,
        "refresh_eps": 1e-3,
        "normalise_read": False,
        "floor": 1e-4,
        "rank": None,
        "learned_lambda0": None,
    },
    "rls": {"features": "silu", "gated": False, "lambda0": 0.1},
}
"""Every mixer and the settings that are its own, with their defaults."""


@dataclass(frozen=True)
class ModelConfig:
    """TinyLM's shape, its mixer, and the mixer's settings.

    A setting that is ``None`` becomes its mixer's default (:data:`DEFAULTS`), or stays ``None``
    where the mixer has no such setting. So equal models have equal configs and hashes.

    Raises ``ValueError`` for heads that don't divide the width, an unknown mixer, a setting that
    the mixer doesn't have, and values out of range.

    >>> ModelConfig(mixer="delta").features
    'silu'
    """

    mixer: str = "vla"
    vocab: int = 128
    width: int = 128
    layers: int = 2
    heads: int = 4
    key_width: int = 0
    """Width of a head's keys and queries; 0 is width / heads."""
    value_width: int = 0
    """Width of a head's values; 0 is width / heads. Others than the keys' match state sizes."""
    ffn: int = 256
    """Hidden width of the feed-forward part; 0 leaves the part out."""
    positions: str = "learned"
    """``learned``: an embedding per absolute position; ``none``."""
    max_length: int = 4096
    """Rows of the position table, which bounds T; without positions it bounds nothing."""
    short_conv: int = 0
    """Taps of a causal depthwise convolution over q, k and v; 0 is none, the field takes 4."""
    output_norm: str = "none"
    """Between the heads and W_o: ``layer`` over all heads (the authors' VLA), ``head`` (RMS)."""
    backend: str = "auto"
    precision: str = "auto"
    """Both are passed to the mixer's operation; see :func:`vla.ops.vla_attention`."""

    features: str | None = None
    normalise_key: bool | None = None
    """Keys and queries to unit length after the feature map."""
    direction: str | None = None
    """u: the ``key`` as used, a ``projection`` W_u of the raw key, or ``weighted``, √β·key."""
    direction_scale: float | None = None
    """u is multiplied by this; 0 means 1/√d, as in the authors' code."""
    unit_direction: bool | None = None
    """Scale u to unit length first."""
    gain: str | None = None
    gated: bool | None = None
    """A learned write gate β = σ(W_β x) per head."""
    adaptive: bool | None = None
    """Off: A stays I/λ0 (Table 4's "A fixed")."""
    lambda0: float | None = None
    refresh_every: int | None = None
    refresh_eps: float | None = None
    normalise_read: bool | None = None
    """Divide the read by z·q, z the running sum of keys."""
    floor: float | None = None
    """Least value of z·q. (The floor of ‖α‖ is never felt: ‖α‖ ≥ 1/(λ0 + T) for unit u.)"""
    rank: int | None = None
    """Directions u per token, from a W_u as many times as wide; 1 is written ``None``."""
    learned_lambda0: bool | None = None
    """λ0 is trained, one for each head, and starts at ``lambda0``; ``False`` is written ``None``.

    These two came later: ``None`` where they are off, they leave every older config's key alone."""

    def __post_init__(self) -> None:
        require_choice("mixer", self.mixer, DEFAULTS)
        own = DEFAULTS[self.mixer]
        for name in MIXER_SETTINGS:
            value = getattr(self, name)
            if value is None:
                object.__setattr__(self, name, own.get(name))
            elif name not in own:
                known = ", ".join(own) or "none"
                raise ArgumentError(name, value, f"a setting of {self.mixer!r} (it has {known})")
        self._check_shape()
        self._check_mixer()

    def _check_shape(self) -> None:
        for name in ("vocab", "width", "layers", "heads", "max_length"):
            require_integer(name, getattr(self, name), low=1)
        for name in ("key_width", "value_width", "ffn", "short_conv"):
            require_integer(name, getattr(self, name), low=0)
        if self.width % self.heads and not (self.key_width and self.value_width):
            remedy = "Or give key_width and value_width."
            raise ArgumentError("heads", self.heads, f"a divisor of width = {self.width}", remedy)
        require_choice("positions", self.positions, ("learned", "none"))
        require_choice("output_norm", self.output_norm, OUTPUT_NORMS)
        require_choice("backend", self.backend, BACKENDS)
        require_choice("precision", self.precision, PRECISIONS)

    def _check_mixer(self) -> None:
        choices = {"features": FEATURES, "direction": DIRECTIONS, "gain": GAINS}
        for name, known in choices.items():
            if getattr(self, name) is not None:
                require_choice(name, getattr(self, name), known)
        for name in ("normalise_key", "unit_direction", "gated", "adaptive", "normalise_read"):
            if getattr(self, name) is not None:
                require_choice(name, getattr(self, name), (True, False))
        if self.lambda0 is not None:
            require_positive("lambda0", self.lambda0)
        for name in ("direction_scale", "refresh_eps", "floor"):
            if getattr(self, name) is not None:
                require_positive(name, getattr(self, name), zero=True)
        for name in ("lambda0", "direction_scale", "refresh_eps", "floor"):
            if isinstance(getattr(self, name), int):
                # 1 and 1.0 are one setting, so they are written alike.
                object.__setattr__(self, name, float(getattr(self, name)))
        if self.refresh_every is not None:
            require_integer("refresh_every", self.refresh_every, low=0)
        self._check_penalty()

    def _check_penalty(self) -> None:
        """Rank and learned λ0, which need an A that is carried, and the former a W_u."""
        if self.rank is not None:
            require_integer("rank", self.rank, low=1, high=MAX_RANK)
        if self.learned_lambda0 is not None:
            require_choice("learned_lambda0", self.learned_lambda0, (True, False))
        for name, off in (("rank", 1), ("learned_lambda0", False)):
            if getattr(self, name) == off:
                object.__setattr__(self, name, None)
            elif getattr(self, name) is not None and not self.adaptive:
                raise ArgumentError(name, getattr(self, name), "None where A is fixed")
        if self.rank is not None and self.direction != "projection":
            wanted = "1: only direction='projection' has more than one direction"
            raise ArgumentError("rank", self.rank, wanted)

    @property
    def d(self) -> int:
        """Width of a head's keys and queries."""
        return self.key_width or self.width // self.heads

    @property
    def d_v(self) -> int:
        """Width of a head's values."""
        return self.value_width or self.width // self.heads

    @property
    def own(self) -> dict[str, Any]:
        """The mixer's own settings by name, without those that are off as ``None``."""
        named = ((name, getattr(self, name)) for name in DEFAULTS[self.mixer])
        return {name: value for name, value in named if value is not None}

    def with_(self, **settings: Any) -> Self:
        """The same config with some settings changed; another mixer starts from its defaults.

        Raises ``ValueError`` for an unknown setting.
        """
        known = [f.name for f in dataclasses.fields(self)]
        for name in settings:
            if name not in known:
                raise ArgumentError("setting", name, f"one of {', '.join(known)}")
        if settings.get("mixer", self.mixer) != self.mixer:
            settings = {**dict.fromkeys(MIXER_SETTINGS), **settings}
        return dataclasses.replace(self, **settings)

    def as_dict(self) -> dict[str, Any]:
        """Plain values by name; ``ModelConfig(**config.as_dict())`` is the config again."""
        return dataclasses.asdict(self)

    def __str__(self) -> str:
        """The nearest named model and what differs from it: ``vla_authors(output_norm='none')``."""
        from vla.nn.models import describe

        return describe(self)


MIXER_SETTINGS = tuple(dict.fromkeys(name for own in DEFAULTS.values() for name in own))
