"""The whole state of the stepping app as one value: what is traced, how, and where one stands.

The fields of :class:`Scene` are the one table. Reading and writing addresses, limits, defaults,
help lines and controls all come from it.

A link to what a trained head stores, one step of it in view, is such an address::

    step/?stream=layer&checkpoint=NAME&layer=1&head=2&pairs=8&seed=7&rules=layer,delta&step=9
    step/?stream=layer&checkpoint=NAME&layer=1&head=2&tokens=5 17 8 44 | 8&rules=layer&step=5

``checkpoint`` is a name that :func:`vla.trained.names` lists, layers and heads count from 0.
``tokens`` is the row itself (numbers with spaces or commas between, ``|`` for the separator);
without it pairs and seed draw one (:func:`vla.trained.row_of`). The lane ``layer`` runs the
layer's own rule on its own gates and u, so that its reads are the head's outputs; other lanes
store the same keys and values by their rule, with the knobs as they stand and keys as they are.
Step t is after token t − 1. ``Scene(kind="layer", checkpoint=…, …).to_query()`` writes the address.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import torch

from vla import trained
from vla.errors import ArgumentError
from vla.rules import RULES, Rule, make, names
from vla.rules.features import FEATURES
from vla.rules.vla import DIRECTIONS, GAINS, VLA
from vla.scene.knob import Knob, parameter
from vla.scene.table import Table, knob
from vla.tokens import STREAMS, Stream, edited, make_stream
from vla.trace import Fork, Trace, fork, record, record_fork, with_rounding
from vla.trace.fork import ACTS

DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}

VARIANTS: dict[str, tuple[str, Callable[[], VLA]]] = {
    "baseline": ("VLA, knobs at default", VLA),
    "published": ("VLA as published", VLA.as_published),
    "as_run": ("VLA as run by the authors", VLA.as_run),
}
"""Lanes beside the registered rules: their title and rule. They take no knob but the gate."""


PLAIN = "vla_authors_n8"
LAYER = "layer"
"""The stream of a trained head, and the lane that runs its layer's own rule."""


def kinds() -> list[str]:
    """Every stream that can be chosen."""
    return [*STREAMS, LAYER]


def lane_names() -> list[str]:
    """Every lane that can be chosen: registered rules, variants of VLA, a layer's own rule."""
    return [*names(), *VARIANTS, LAYER]


def lane_title(name: str) -> str:
    """What people read for a lane's name."""
    if name == LAYER:
        return "the layer's own rule"
    return VARIANTS[name][0] if name in VARIANTS else RULES[name].title


def _first_checkpoint() -> str:
    """One whose second layer holds the pairs in plain sight, if it is here."""
    known = trained.names()
    return PLAIN if PLAIN in known else next(iter(known), "none")


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
        choices=kinds,
    )  # fmt: skip
    checkpoint: str = knob(
        "checkpoint", "choice", _first_checkpoint(), "checkpoint", "Stream",
        "A model trained on MQAR, by file name.", streams=(LAYER,),
        choices=lambda: trained.names() or [_first_checkpoint()],
    )  # fmt: skip
    layer: int = knob(
        "layer", "int", 1, "layer", "Stream",
        "Which layer's keys; from 0. Later layers hold the pairs.", high=7, step=1,
        streams=(LAYER,),
    )  # fmt: skip
    head: int = knob(
        "head", "int", 0, "head", "Stream", "Which head of it; from 0.", high=15, step=1,
        streams=(LAYER,),
    )  # fmt: skip
    pairs: int = knob(
        "pairs", "int", 0, "pairs", "Stream",
        "How many pairs the drawn row stores; 0: as many as in training.",
        high=trained.MAX_PAIRS, step=1, streams=(LAYER,),
    )  # fmt: skip
    tokens: str = knob(
        "tokens", "text", "", "Your sequence", "Stream",
        "Token numbers: key value key value … | key. Empty: drawn by the seed.", high=2000,
        streams=(LAYER,),
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
        streams=tuple(STREAMS),
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
        choices=lambda: ("none", "same", "random"), streams=tuple(STREAMS),
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
    fork: str = knob(
        "fork", "choice", "none", "fork", "Fork",
        "A second memory lives through the same tokens but one: see whether the two meet again.",
        choices=lambda: ("none", *ACTS),
    )  # fmt: skip
    fork_at: int = knob(
        "at", "int", 3, "at step", "Fork", "The step whose token the fork changes.",
        low=1, high=400, idle={"fork": ("none",)},
    )  # fmt: skip
    fork_to: str = knob(
        "to", "text", "", "edited to", "Fork",
        "A new value, or key: value; a token number for a trained head. Empty: another one.",
        high=90, streams=("words", LAYER), idle={"fork": ("none", "drop", "repeat")},
    )  # fmt: skip

    dtype: str = knob(
        "dtype", "choice", "float64", "precision", "Precision",
        "Number format the rules run in; errors are measured in float64.",
        choices=lambda: list(DTYPES),
    )  # fmt: skip
    compare: bool = knob(
        "compare", "flag", False, "compare", "Precision",
        "Runs every rule in float32 and bfloat16 too and draws how far S drifts from float64.",
    )  # fmt: skip
    threshold: float = knob(
        "threshold", "float", 0.01, "threshold", "Precision",
        "The first token whose relative error passes it is named.", low=1e-8, high=1.0,
        idle={"compare": ("0",)},
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
        if scene.kind == LAYER:
            scene, messages = scene.within_model()
        try:
            scene.stream()
        except ValueError as error:
            field_name = {"words": "text", LAYER: "tokens" if scene.tokens else "kind"}.get(
                scene.kind, "kind"
            )
            default = knobs()[field_name].default
            then = "A drawn row is shown" if default == "" else "The prepared pairs are shown"
            messages.append(f"{error} {then} instead.")
            scene, more = replace(scene, **{field_name: default}).repaired()
            return scene, messages + more
        try:
            scene.forked()
        except ValueError as error:
            messages.append(f"{error} Nothing is forked.")
            scene = replace(scene, fork="none")
        return scene, messages

    def within_model(self) -> tuple[Scene, list[str]]:
        """A checkpoint that is here; layer, head and load cut to what it has."""
        here = trained.names()
        if here and self.checkpoint not in here:
            scene, messages = replace(self, checkpoint=here[0]).within_model()
            return scene, [f"checkpoint: {here[0]} is shown.", *messages]
        try:
            model = trained.load(self.checkpoint)
        except ValueError:
            return self, []  # Making the stream says why.
        most = {"layer": model.layers - 1, "head": model.heads - 1, "pairs": model.most_pairs}
        cut = {name: high for name, high in most.items() if getattr(self, name) > high}
        messages = [
            f"{name}: {getattr(self, name)} is more than {self.checkpoint} has; {high} is shown."
            for name, high in cut.items()
        ]
        return self.with_(**cut), messages

    def to_query(self) -> dict[str, str]:
        """As for every table; a checkpoint is always named, as the default is whichever is here."""
        query = super().to_query()
        return {**query, "checkpoint": self.checkpoint} if self.kind == LAYER else query

    def stream(self) -> Stream:
        """The tokens. Raises ``ValueError`` for ragged pairs or fields that don't go together."""
        if self.kind == LAYER:
            return trained.head_stream(self.checkpoint, self.layer, self.head, self.row())
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

    def row(self) -> tuple[int, ...]:
        """The tokens that the trained model reads. Raises ``ValueError`` for a row it can't."""
        model = trained.load(self.checkpoint)
        if self.tokens.strip():
            return trained.parse_row(model, self.tokens)
        return trained.row_of(model, pairs=self.pairs, seed=self.seed)

    def forked(self) -> Fork | None:
        """Both branches, if the timeline is forked. Raises ``ValueError`` for a fork it can't."""
        if self.fork == "none":
            return None
        stream, token = self.stream(), self.fork_at - 1
        if self.fork != "edit" or token >= len(stream) or not stream.writes[token]:
            return fork(stream, self.fork, token)
        if self.kind != LAYER:
            text = self.fork_to if self.kind == "words" else ""
            return fork(stream, "edit", token, edited(stream, token, text))
        model = trained.load(self.checkpoint)
        row = trained.edited_row(model, self.row(), token, self.fork_to)
        other = trained.head_stream(self.checkpoint, self.layer, self.head, row)
        return fork(stream, "edit", token, other)

    @property
    def running(self) -> tuple[str, ...]:
        """The lanes that this stream has: a layer's own rule needs a layer."""
        if self.kind == LAYER:
            return self.lanes
        return tuple(name for name in self.lanes if name != LAYER) or ("vla",)

    def rules(self) -> dict[str, Rule]:
        """Lane names to rules: a rule takes every knob it has a setting for.

        A lane is named as its rule, a variant by its title.
        """
        return {self._lane(name): self._rule(name) for name in self.running}

    def _lane(self, name: str) -> str:
        return VARIANTS[name][0] if name in VARIANTS else name

    def _rule(self, name: str) -> Rule:
        if name == LAYER:
            return trained.load(self.checkpoint).rule(self.layer)
        if name in VARIANTS:
            return VARIANTS[name][1]()
        own = {f.name for f in fields(RULES[name])}
        shared = own & {name for name, spec in knobs().items() if spec.group == "Knobs"}
        settings = {key: getattr(self, key) for key in shared - {"beta"}}
        if self.features == "own":
            settings.pop("features", None)
            if self.kind == LAYER:  # Its keys and queries are mapped already.
                settings |= dict.fromkeys(own & {"features", "query_features"}, "identity")
        # Softmax attention and linear attention keep their keys as they are unless asked.
        if self.normalise_key:
            settings.pop("normalise_key", None)
        return make(name, **settings)

    def trace(self) -> Trace:
        """Every rule over the stream. Raises ``ValueError`` as :meth:`stream` and ``record`` do."""
        if not self.lanes:
            raise ArgumentError("rules", "none", "at least one rule", "Tick one.")
        rules, forked, dtype = self.rules(), self.forked(), DTYPES[self.dtype]
        if forked is None:
            trace = record(rules, self.stream(), dtype=dtype)
        else:
            trace = record_fork(rules, forked, dtype=dtype)
        if self.compare:
            trace = with_rounding(trace, rules, threshold=self.threshold)
        lanes = (
            replace(lane, title=lane_title(name))
            for name, lane in zip(self.running, trace.lanes, strict=True)
        )
        return replace(trace, lanes=tuple(lanes))

    def visible(self) -> list[str]:
        """Ids of the lanes to draw."""
        return [self._lane(name) for name in self.running if name not in self.hidden]


@cache
def knobs() -> dict[str, Knob]:
    """The table: every field of a scene and what it may be."""
    return Scene.knobs()
