"""Models by name: those of the paper's figures, and the corrected ones beside them."""

from __future__ import annotations

from typing import Any

from vla.errors import require_choice
from vla.nn.config import ModelConfig

_PAPER = ModelConfig(mixer="vla", refresh_every=20)

MODELS: dict[str, ModelConfig] = {
    "softmax": ModelConfig(mixer="softmax"),
    "linear": ModelConfig(mixer="linear"),
    "authors_delta": ModelConfig(mixer="authors_delta"),
    "gated_delta": ModelConfig(mixer="gated_delta"),
    "delta": ModelConfig(mixer="delta"),
    "vla_paper": _PAPER,
    "vla_authors": _PAPER.with_(direction_scale=0.0, normalise_read=True, output_norm="layer"),
    "vla_exact": ModelConfig(
        mixer="vla", features="silu", direction="weighted", unit_direction=False, gain="rls",
        gated=True, output_norm="layer",
    ),
    "rls": ModelConfig(mixer="rls", output_norm="layer"),
}  # fmt: skip
"""``vla_paper``, ``vla_authors`` and ``vla_exact`` are three presets of one layer:

===============  =============  ==================  ======================
setting          vla_paper      vla_authors         vla_exact
===============  =============  ==================  ======================
features         ELU+1, unit    ELU+1, unit         SiLU, unit
u                unit W_u k     unit W_u k, /√d     √β k
gain             α/‖α‖          α/‖α‖               α
write gate β     none           none                σ(W_β x)
refresh          20, 1e-3       20, 1e-3            none
output norm      none           LayerNorm           LayerNorm
read             S q            S q / (z·q)         S q
===============  =============  ==================  ======================

``vla_paper`` is the text as it stands (§3, §5.4), ``vla_authors`` their notebook 07, ``vla_exact``
weighted recursive least squares. ``rls`` is the same without the gate: ``u = k``.
"""

TITLES = {
    "softmax": "softmax attention",
    "linear": "linear attention",
    "authors_delta": "DeltaNet as the authors ran it",
    "gated_delta": "DeltaNet as the paper writes it",
    "delta": "DeltaNet",
    "vla_paper": "VLA as the paper words it",
    "vla_authors": "VLA as the authors ran it",
    "vla_exact": "VLA with the exact gain",
    "rls": "exact RLS",
}


def model(name: str, **settings: Any) -> ModelConfig:
    """The named model's config, with some settings changed.

    Raises ``ValueError`` for an unknown name or setting.

    >>> str(model("vla_authors", output_norm="none"))
    "vla_authors(output_norm='none')"
    """
    require_choice("model", name, MODELS)
    return MODELS[name].with_(**settings)


def name_of(config: ModelConfig) -> str:
    """The named model that differs from ``config`` in the fewest settings, of the same mixer."""
    same = [name for name, known in MODELS.items() if known.mixer == config.mixer]
    return min(same, key=lambda name: len(_changes(MODELS[name], config)))


def describe(config: ModelConfig) -> str:
    """``name(setting=value, …)``: the nearest named model and what differs from it."""
    name = name_of(config)
    changed = ", ".join(f"{k}={v!r}" for k, v in _changes(MODELS[name], config).items())
    return f"{name}({changed})" if changed else name


def _changes(known: ModelConfig, config: ModelConfig) -> dict[str, Any]:
    before = known.as_dict()
    return {name: value for name, value in config.as_dict().items() if value != before[name]}
