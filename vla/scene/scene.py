"""The whole state of the stepping app as one value: what is traced, how, and where one stands.

The fields of :class:`Scene` are the one table. Reading and writing addresses, limits, defaults,
help lines and controls all come from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import torch

from vla.errors import ArgumentError
from vla.rules import RULES, Rule, make, names
from vla.rules.features import FEATURES
from vla.rules.vla import DIRECTIONS, GAINS, VLA
from vla.scene.knob import Knob, parameter
from vla.scene.table import Table, knob
from vla.tokens import STREAMS, Stream, make_stream
from vla.trace import Trace, record

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}

VARIANTS: dict[str, tuple[str, Callable[[], VLA]]] = {
    "baseline": ("VLA, knobs at default", VLA),
    "published": ("VLA as published", VLA.as_published),
    "as_run": ("VLA as run by the authors", VLA.as_run),
}
"""Lanes beside the registered rules: their title and rule. They take no knob but the gate."""


def lane_names() -> list[str]:
    """Every lane that can be chosen: the registered rules, then the variants of VLA."""
    return [*names(), *VARIANTS]


def lane_title(name: str) -> str:
    """What people read for a lane's name."""
    return VARIANTS[name][0] if name in VARIANTS else RULES[name].title


def _stream_knob(name: str, label: str, *, default: Any = None, **limits: Any) -> Any:
    known, streams = parameter(name)
    default = known.default if default is None else default
    limits = {"low": known.low or 0, "high": known.high or 0, **limits}
    return knob(
        name, known.kind, default, label, "Stream", known.help,
        streams=streams, choices=lambda: known.choices, **limits,
    )  # fmt: skip


@dataclass(frozen=True)
class Scene(Table):
    """What to trace and where to stand in it. Every scene that :func:`from_query` gives traces."""

    kind: str = knob(
        "stream", "choice", "words", "Stream", "Stream", "What the memory is given to store.",
        choices=lambda: list(STREAMS),
    )  # fmt: skip
    text: str = _stream_knob("text", "Your pairs", low=1, high=2000)
    similarity: float = _stream_knob("similarity", "similarity", default=0.5, step=0.01)
    rho: float = _stream_knob("rho", "ρ", step=0.001)
    epsilon: float = _stream_knob("epsilon", "ε", step=0.001)
    clusters: int = _stream_knob("clusters", "bunches", high=32, step=1)
    spread: float = _stream_knob("spread", "spread", step=0.01)
    distinct: int = _stream_knob("distinct", "distinct keys", high=32, step=1)
    values: str = _stream_knob("values", "values")
    turns: str = _stream_knob("turns", "what turns")
    degrees: float = _stream_knob("degrees", "degrees", high=90, step=0.5)
    n: int = _stream_knob("n", "pairs n", high=128, step=1)
    d: int = knob(
        "d", "int", 16, "width d", "Stream",
        "Width of keys and values; a memory holds about d pairs.", low=2, high=32, step=1,
    )  # fmt: skip
    queries: int = _stream_knob("queries", "queries", high=64, step=1)
    seed: int = _stream_knob("seed", "seed", high=9999, step=1)

    lanes: tuple[str, ...] = knob(
        "rules", "names", ("linear", "delta", "vla"), "Rules", "Rules",
        "Memories that get the same tokens, one lane each.", choices=lane_names,
    )  # fmt: skip
    hidden: tuple[str, ...] = knob(
        "hidden", "names", (), "Hidden", "View", "Lanes that are traced and not drawn.",
        choices=lane_names,
    )  # fmt: skip

    lambda0: float = knob(
        "lambda0", "float", 0.1, "λ0", "Knobs",
        "Penalty at the start, A₀ = I/λ0. VLA and RLS.", low=1e-6, high=100.0,
    )  # fmt: skip
    gain: str = knob(
        "gain", "choice", "unit", "gain", "Knobs",
        "Length of VLA's write: unit as published, rls exact, oblique stores the pair exactly.",
        choices=lambda: GAINS,
    )  # fmt: skip
    direction: str = knob(
        "u", "choice", "key", "u", "Knobs",
        "Which direction VLA's penalty grows in: the key, a random projection of it, or √β key.",
        choices=lambda: DIRECTIONS,
    )  # fmt: skip
    adaptive: bool = knob(
        "adaptive", "flag", True, "A adapts", "Knobs",
        "Off: VLA's A stays I/λ0, the ablation of the paper's Remark 1.",
    )  # fmt: skip
    refresh_every: int = knob(
        "refresh", "int", 0, "refresh period", "Knobs",
        "VLA adds εI to A every so many tokens; 0 is never, the paper has 20.", high=64, step=1,
    )  # fmt: skip
    refresh_eps: float = knob(
        "epsilon_r", "float", 1e-3, "refresh size", "Knobs",
        "The ε that a refresh adds; the paper has 0.001.", low=1e-6, high=10.0,
        idle={"refresh": ("0",)},
    )  # fmt: skip
    gate: str = knob(
        "gate", "choice", "none", "gate", "Knobs",
        "β of a token: none, the same for all, or drawn from 0.1 to 1 for each.",
        choices=lambda: ("none", "same", "random"),
    )  # fmt: skip
    beta: float = knob(
        "beta", "float", 0.5, "β", "Knobs",
        "The one gate for all: weighs the write; the gated rules scale their memory by it.",
        low=0.01, high=1.0, step=0.01, idle={"gate": ("none", "random")},
    )  # fmt: skip
    features: str = knob(
        "features", "choice", "own", "features", "Knobs",
        "Feature map of keys and queries; own is each rule's usual one.",
        choices=lambda: ("own", *FEATURES),
    )  # fmt: skip
    normalise_key: bool = knob(
        "unit_keys", "flag", True, "unit keys", "Knobs",
        "Off leaves keys at their length after the feature map (delta rules, VLA, RLS).",
    )  # fmt: skip
    dtype: str = knob(
        "dtype", "choice", "float64", "precision", "Knobs",
        "Number format the rules run in; errors are measured in float64.",
        choices=lambda: list(DTYPES),
    )  # fmt: skip

    step: int = knob(
        "step", "int", 3, "step", "View", "Where one stands: 0 is before the first token.",
        high=4000, step=1,
    )  # fmt: skip

    def repaired(self) -> tuple[Scene, list[str]]:
        """The nearest scene that has a stream, and why it differs from this one."""
        scene, messages = self, []
        if scene.kind == "orthogonal" and scene.n > scene.d:
            messages.append(f"n: only {scene.d} orthogonal keys fit into width {scene.d}.")
            scene = replace(scene, n=scene.d)
        try:
            scene.stream()
        except ValueError as error:
            field_name = "text" if scene.kind == "words" else "kind"
            messages.append(f"{error} The prepared pairs are shown instead.")
            scene = replace(scene, **{field_name: knobs()[field_name].default})
        return scene, messages

    def stream(self) -> Stream:
        """The tokens. Raises ``ValueError`` for ragged pairs or fields that don't go together."""
        maker = STREAMS[self.kind]
        known = maker.defaults
        settings = {name: getattr(self, name) for name in knobs() if name in known}
        settings["gate"] = "random" if self.gate == "random" else "none"
        if "d_v" in known:
            settings["d_v"] = self.d
        stream = make_stream(self.kind, **settings)
        if self.gate != "same":
            return stream
        beta = torch.full((len(stream),), self.beta, dtype=stream.k.dtype)
        return dataclasses.replace(stream, beta=beta)

    def rules(self) -> dict[str, Rule]:
        """Lane names to rules: a rule takes every knob it has a setting for.

        A lane is named as its rule, a variant by its title.
        """
        return {
            VARIANTS[name][0] if name in VARIANTS else name: self._rule(name) for name in self.lanes
        }

    def _rule(self, name: str) -> Rule:
        if name in VARIANTS:
            return VARIANTS[name][1]()
        own = {f.name for f in fields(RULES[name])}
        shared = own & {name for name, spec in knobs().items() if spec.group == "Knobs"}
        settings = {key: getattr(self, key) for key in shared - {"beta"}}
        if settings.get("features") == "own":
            del settings["features"]
        # Softmax attention and linear attention keep their keys as they are unless asked.
        if self.normalise_key:
            settings.pop("normalise_key", None)
        return make(name, **settings)

    def trace(self) -> Trace:
        """Every rule over the stream. Raises ``ValueError`` as :meth:`stream` and ``record`` do."""
        if not self.lanes:
            raise ArgumentError("rules", "none", "at least one rule", "Tick one.")
        trace = record(self.rules(), self.stream(), dtype=DTYPES[self.dtype])
        lanes = (
            replace(lane, title=lane_title(name))
            for name, lane in zip(self.lanes, trace.lanes, strict=True)
        )
        return replace(trace, lanes=tuple(lanes))

    def visible(self) -> list[str]:
        """Ids of the lanes to draw."""
        titles = {name: VARIANTS[name][0] if name in VARIANTS else name for name in self.lanes}
        return [lane for name, lane in titles.items() if name not in self.hidden]


@cache
def knobs() -> dict[str, Knob]:
    """The table: every field of a scene and what it may be."""
    return Scene.knobs()
