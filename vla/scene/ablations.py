"""Scenes of the ablations app, prepared questions, and the session behind its two pictures."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from vla import nn, tasks
from vla.errors import ArgumentError
from vla.figures.ablations import Protocol, recalled, summary, trained
from vla.figures.theme import alt, three
from vla.nn import ModelConfig
from vla.nn.config import DIRECTIONS, GAINS, OUTPUT_NORMS
from vla.rules.features import FEATURES
from vla.rules.inverse import MAX_RANK
from vla.scene import training
from vla.scene.controls import Controls
from vla.scene.keep import Keep, as_page
from vla.scene.live import Job, Live
from vla.scene.page import Cell
from vla.scene.records import recorded_runs, stored_runs
from vla.scene.table import Table, knob
from vla.scene.whitening import Prepared, prepared_of
from vla.theory.ablation import (
    Neighbour,
    Recall,
    acting,
    describe_switches,
    neighbours,
    recall,
    told,
)
from vla.tokens import Stream, make_stream
from vla.train import RunConfig, RunRow
from vla.train.presets import PRESETS

STORED = "ablations"
"""Under this name the run store has the runs that the page trained."""
SCALES = {"1": 1.0, "1/√d": 0.0}
SIZES: dict[str, dict[str, Any]] = {
    "seconds": {
        "shape": {"width": 32, "heads": 2, "ffn": 0}, "vocab": 32, "asks": 2,
        "train": {"batch": 32, "eval_batches": 4},
    },
    "as published": {"shape": {}, "vocab": 128, "asks": 1, "train": {}},
}  # fmt: skip
"""A small model for a CPU, and the paper's: width 128, 4 heads, batch 64."""
MOST_PROTOCOLS = 8

_FIXED = {"adaptive": ("0",)}
"""With A fixed nothing of the penalty acts."""


@dataclass(frozen=True)
class Ablations(Table):
    """Every switch of the layer, the stream it is tried on, and how it would be trained."""

    features: str = knob(
        "features", "choice", "elu+1", "features", "Keys and write",
        "Map of keys and queries; the paper has ELU+1, DeltaNet SiLU.", choices=lambda: FEATURES,
    )  # fmt: skip
    normalise_key: bool = knob(
        "unit_keys", "flag", True, "unit keys", "Keys and write",
        "Keys and queries to unit length after the map.",
    )  # fmt: skip
    short_conv: int = knob(
        "conv", "int", 0, "short conv", "Keys and write",
        "Taps of a convolution over q, k and v; 0 is none, the field takes 4.", high=8, step=1,
    )  # fmt: skip
    gain: str = knob(
        "gain", "choice", "unit", "gain", "Keys and write",
        "Length of the write: unit as published, rls exact, oblique stores the pair exactly.",
        choices=lambda: GAINS,
    )  # fmt: skip
    gated: bool = knob(
        "gate", "flag", False, "β gate", "Keys and write",
        "A learned weight of each write; ½ everywhere before training.",
    )  # fmt: skip
    adaptive: bool = knob(
        "adaptive", "flag", True, "A adapts", "Penalty",
        "Off: A stays I/λ0, and the layer is a delta rule (Table 4's “A fixed”).",
    )  # fmt: skip
    direction: str = knob(
        "u", "choice", "projection", "u", "Penalty",
        "Where the penalty grows: a learned projection of the raw key, the key, or √β key.",
        choices=lambda: DIRECTIONS, idle=_FIXED,
    )  # fmt: skip
    unit_direction: bool = knob(
        "unit_u", "flag", True, "unit u", "Penalty", "u to unit length first.", idle=_FIXED,
    )  # fmt: skip
    scale: str = knob(
        "u_scale", "choice", "1/√d", "u scaled by", "Penalty",
        "The authors' code divides u by √d; the text doesn't.", choices=lambda: tuple(SCALES),
        idle=_FIXED,
    )  # fmt: skip
    rank: int = knob(
        "rank", "int", 1, "rank", "Penalty", "Directions u per token, from a wider projection.",
        low=1, high=MAX_RANK, step=1, idle={**_FIXED, "u": ("key", "weighted")},
    )  # fmt: skip
    lambda0: float = knob("lambda0", "float", 0.1, "λ0", "Penalty", "A starts as I/λ0.",
                          low=1e-4, high=100.0)  # fmt: skip
    learned: bool = knob(
        "learned_lambda0", "flag", False, "learned λ0", "Penalty",
        "One for each head, trained from λ0 on; acts in training only.", idle=_FIXED,
    )  # fmt: skip
    refresh_every: int = knob(
        "refresh", "int", 20, "refresh period", "Penalty",
        "A + εI at every so many tokens; 0 never, the paper 20.", high=64, step=1, idle=_FIXED,
    )  # fmt: skip
    refresh_eps: float = knob(
        "epsilon_r", "float", 1e-3, "refresh size ε", "Penalty", "The paper has 0.001.",
        low=1e-6, high=10.0, idle={**_FIXED, "refresh": ("0",)},
    )  # fmt: skip
    normalise_read: bool = knob(
        "zq", "flag", True, "z·q readout", "Read",
        "Divide the read by z·q, z the running sum of keys.",
    )  # fmt: skip
    output_norm: str = knob(
        "norm", "choice", "layer", "output norm", "Read",
        "Between heads and W_o: layer as in the authors' code and not in the text, head (RMS).",
        choices=lambda: OUTPUT_NORMS,
    )  # fmt: skip

    n: int = knob("n", "int", 24, "pairs n", "Stream", "Pairs that are stored.", low=1, high=64,
                  step=1)  # fmt: skip
    d: int = knob("d", "int", 16, "width d", "Stream", "Width of keys and values.", low=2, high=32,
                  step=1)  # fmt: skip
    rho: float = knob("rho", "float", 0.0, "ρ", "Stream", "Cosine between any two raw keys.",
                      high=0.95, step=0.01)  # fmt: skip
    spread: float = knob(
        "spread", "float", 1.0, "size of raw keys", "Stream",
        "Their entries are about so large; ELU+1 makes small ones nearly parallel.", low=0.05,
        high=10.0,
    )  # fmt: skip
    seed: int = knob("seed", "int", 7, "seed", "Stream", "Of the stream and the untrained weights.",
                     high=9999, step=1)  # fmt: skip

    size: str = knob(
        "size", "choice", "seconds", "model", "Training here",
        "seconds: width 32 on a CPU; it learns little without a short convolution. as published: "
        "minutes on a GPU.", choices=lambda: tuple(SIZES),
    )  # fmt: skip
    load: int = knob("load", "int", 4, "pairs n", "Training here", "MQAR's load.", low=1, high=48,
                     step=1)  # fmt: skip
    steps: int = knob("steps", "int", 300, "steps", "Training here", "Batches learned from.",
                      low=20, high=5000)  # fmt: skip
    lr: float = knob("lr", "float", 1e-2, "rate", "Training here", "Learning rate at its peak.",
                     low=1e-5, high=0.1)  # fmt: skip
    train_seed: int = knob("train_seed", "int", 42, "seed", "Training here",
                           "Of weights and rows.", high=9999, step=1)  # fmt: skip

    def config(self) -> ModelConfig:
        """The layer in the paper's model. Switches that can't act are left at their default."""
        penalty: dict[str, Any] = {"adaptive": self.adaptive, "direction": self.direction}
        if self.adaptive:
            rank = self.rank if self.direction == "projection" else None
            penalty |= {"rank": rank, "learned_lambda0": self.learned}
        same = ("features", "normalise_key", "short_conv", "gain", "gated", "unit_direction",
                "lambda0", "refresh_every", "refresh_eps", "normalise_read",
                "output_norm")  # fmt: skip
        return ModelConfig(
            mixer="vla", direction_scale=SCALES[self.scale], **penalty,
            **{name: getattr(self, name) for name in same},
        )  # fmt: skip

    @classmethod
    def of(cls, config: ModelConfig, **more: Any) -> Ablations:
        """The scene whose layer this is."""
        scale = next(words for words, x in SCALES.items() if x == config.direction_scale)
        own = {name: getattr(config, name) for name in (
            "features", "normalise_key", "short_conv", "gain", "gated", "adaptive", "direction",
            "unit_direction", "lambda0", "refresh_every", "refresh_eps", "normalise_read",
            "output_norm")}  # fmt: skip
        return cls(scale=scale, rank=config.rank or 1, learned=bool(config.learned_lambda0),
                   **{**own, **more})  # fmt: skip

    def stream(self) -> Stream:
        """The pairs that the untrained layer is given."""
        kind = {"name": "correlated", "rho": self.rho} if self.rho else {"name": "gaussian"}
        stream = make_stream(**kind, n=self.n, d=self.d, d_v=self.d, queries=0, seed=self.seed)
        return replace(stream, k=self.spread * math.sqrt(self.d) * stream.k)

    def run(self) -> RunConfig:
        """The run that the button starts. Raises ``ValueError`` for a load that can't be."""
        size = SIZES[self.size]
        length = (2 + size["asks"]) * self.load + 1
        task = tasks.make("mqar_authors", pairs=self.load, vocab=size["vocab"], length=length)
        shape = {**size["shape"], "vocab": task.vocab, "max_length": task.length}
        return RunConfig(
            model=self.config().with_(**shape), task=task, steps=self.steps, lr=self.lr,
            seed=self.train_seed, **size["train"],
        ).check()  # fmt: skip


AUTHORS = nn.model("vla_authors")

ABLATIONS: dict[str, Prepared] = {
    "as_run": Prepared(
        "as the authors ran it",
        "What does each switch of the layer do, at once and after training?",
        "Turn one. Left: the untrained layer on one stream. Right: recorded runs of the nearest "
        "layer, hollow those of the authors' setting.",
        "",
        Ablations(),
    ),
    "paper": Prepared(
        "as the paper words it",
        "The text has no output norm, no z·q and no 1/√d. Is that the layer that was measured?",
        "The authors' code has all three.",
        "",
        Ablations.of(nn.model("vla_paper")),
    ),
    "exact": Prepared(
        "the exact gain",
        "And with the write that least squares asks for, gated, on SiLU keys?",
        "u = √β k and α as it is: weighted recursive least squares.",
        "",
        Ablations.of(nn.model("vla_exact")),
    ),
    "fixed": Prepared(
        "A fixed",
        "Table 4 predicts 0.091 for A fixed. What does an A that never adapts cost?",
        "A = I/λ0 makes the layer a delta rule with β = 1.",
        "",
        Ablations.of(AUTHORS.with_(adaptive=False)),
    ),
    "norm": Prepared(
        "no output norm",
        "The norm after the heads is in the code and not in the text. Does it matter?",
        "On one stream it only rescales answers; training is another matter.",
        "",
        Ablations.of(AUTHORS.with_(output_norm="none")),
    ),
    "gate": Prepared(
        "the README's layer",
        "Rank 2 and a learned λ0, as the authors' README lists them: what do they change?",
        "Two directions a token raise the penalty twice as fast.",
        "",
        Ablations.of(AUTHORS.with_(rank=2, learned_lambda0=True)),
    ),
    "here": Prepared(
        "train one here",
        "Can this layer learn MQAR in seconds on this machine?",
        "The exact layer with a short convolution, four pairs, 300 steps: press Train below.",
        "",
        Ablations.of(nn.model("vla_exact", short_conv=4)),
    ),
}
"""Prepared questions. Their answers are computed: :meth:`AblationsSession.answer`."""


class Shown(NamedTuple):
    """One protocol of the table: its name, and the nearest layer's and the authors' accuracy."""

    name: str
    mine: str
    authors: str


class AblationsSession:
    """The last layer that could be built, on its stream, beside the recorded runs.

    ``changed`` is called when words, pictures or tables have something new to show. ``store`` is
    the run store's file; left out, the one of ``vla sweep``.
    """

    def __init__(self, query: Mapping[str, Any], store: Path | None = None) -> None:
        self.scene, notes = Ablations.from_query(query)
        self.store = store or training.store_path()
        self.look = "light"
        self.changed: Callable[[AblationsSession], object] = id
        self.lanes: dict[str, tuple[Recall, str]] = {}
        self.rows: list[RunRow] = []
        self.near: list[Neighbour] = []
        self.protocols: list[Protocol] = []
        """How the nearest layer was trained, with the authors' setting under the same protocols."""
        self.controls = Controls(Ablations, ABLATIONS, values=self.scene.texts(), notes=notes)
        self.keep = Keep({"Pictures (HTML)": self.to_page})
        self.live = Live(ended=self._ended, key=self._job_key(self.scene))
        self._load(notes)
        self._show(self.scene, notes)

    @property
    def preset(self) -> str:
        """The prepared scene on show; empty if it is one's own."""
        return prepared_of(ABLATIONS, self.scene)

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the person did."""
        if told["look"] != self.look:
            self.look = told["look"]
            self.changed(self)
        if told["serial"] != self.controls.answered:
            scene, notes = Ablations.read(told["values"], self.scene)
            self.controls.answered = told["serial"]
            self._show(scene, notes, typed=not notes)
        elif told["wish"]:
            self._obey(told["wish"])

    def open(self, name: str) -> None:
        """Show a prepared scene. Raises ``KeyError`` for an unknown one."""
        self._show(ABLATIONS[name].scene, [])

    def train(self) -> None:
        """Train this very layer here, into the run store; a stored run is not done again."""
        try:
            run = self.scene.run()
        except ArgumentError as error:
            self.controls.notes = [str(error)]
            return
        label = describe_switches(run.model)
        self.live.start(
            training.runs, f"Training {label}", key=self._job_key(self.scene),
            configs=[run.canonical], labels=[label],
            store=str(self.store.resolve()), preset=STORED, budget=self.scene.size,
        )  # fmt: skip
        self.changed(self)

    def figures(self) -> tuple[Any, Any]:
        """Recall at once, and what was trained."""
        title = self.near[0].title if self.near else ""
        return (
            recalled(self.lanes, theme_name=self.look),
            trained(self.protocols, title=title, theme_name=self.look),
        )

    def words(self) -> tuple[str, str]:
        """The pictures in words."""
        left, right = self.figures()
        return alt(left), alt(right)

    def nearest(self) -> str:
        """Which recorded layer is the nearest, and how it differs."""
        if not self.near:
            return (
                "No recorded run of such a layer is here: the button below trains one, and "
                "“vla sweep table4” all of the paper's ablations."
            )
        first = self.near[0]
        tied = [each.title for each in self.near[1:] if each.distance == first.distance]
        if not first.distance:
            return f"Recorded: “{first.title}” is this very layer."
        apart = "; ".join(
            f"{told(each.name, each.theirs)} there, {told(each.name, each.mine)} here"
            for each in first.apart
        )
        also = f" As near: {', '.join(tied[:4])}." if tied else ""
        return f"Nearest recorded: “{first.title}”. It differs in: {apart}.{also}"

    def _protocols(self) -> list[Protocol]:
        if not self.near:
            return []
        authors = acting(AUTHORS)
        base = next((each.rows for each in self.near if acting(each.config) == authors), ())
        found: dict[str, Protocol] = {}
        for row in self.near[0].rows:
            found.setdefault(_training(row), Protocol(protocol_of(row))).mine.append(row)
        for row in base:
            if (training := _training(row)) in found:
                found[training].authors.append(row)
        return sorted(found.values(), key=_order)[:MOST_PROTOCOLS]

    def table(self) -> list[Shown]:
        """The same as lines."""
        return [Shown(p.name, summary(p.mine), summary(p.authors)) for p in self.protocols]

    def cells(self) -> list[Cell]:
        """The numbers under the left picture."""
        return [
            Cell(title, name, float(value))
            for title, (shown, _) in self.lanes.items()
            for name, value in (
                ("mean error", shown.mean[-1]),
                ("error of the last pair", shown.error[-1, -1]),
                ("error of the first", shown.error[-1, 0]),
                ("nearest to their own", shown.right[-1]),
            )
        ]

    def answer(self) -> str:
        """What the two pictures say, in a sentence each; the numbers are theirs."""
        mine, authors, exact = (float(each.mean[-1]) for each, _ in self.lanes.values())
        text = (
            f"Untrained, after {self.scene.n} pairs the mean error is {three(mine)} "
            f"(as run {three(authors)}, exact {three(exact)})."
        )
        protocols = self.protocols
        if not protocols:
            return text
        apart = acting(self.near[0].config) != acting(AUTHORS)
        which = "this layer" if not self.near[0].distance else "the nearest recorded layer"
        parts = [
            f"{each.name}, {which} has {summary(each.mine)}"
            + (f" and the authors' {summary(each.authors)}" if apart and each.authors else "")
            for each in protocols[:2]
        ]
        return f"{text} Trained: {'; '.join(parts)}."

    def to_csv(self) -> str:
        """Both pictures' numbers."""
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["picture", "layer", "pairs_stored", "mean_error", "nearest_right",
                       "protocol", "seed", "accuracy", "device", "commit"])  # fmt: skip
        for title, (shown, _) in self.lanes.items():
            for t, (error, right) in enumerate(zip(shown.mean, shown.right, strict=True), start=1):
                rows.writerow(["at once", title, t, float(error), float(right)] + [""] * 5)
        for protocol in self.protocols:
            for title, kept in ((self.near[0].title, protocol.mine), ("as run", protocol.authors)):
                for row in kept:
                    rows.writerow(
                        [
                            "trained",
                            title,
                            "",
                            "",
                            "",
                            protocol.name,
                            row.config.seed,
                            row.accuracy(),
                            row.result.device,
                            row.result.commit,
                        ]
                    )
        return file.getvalue()

    def to_page(self) -> tuple[str, bytes]:
        """Both pictures as one page that works offline."""
        left, right = self.figures()
        page = as_page(left).decode()
        second = right.to_html(include_plotlyjs=False, full_html=False)
        return "vla-ablations.html", page.replace("</body>", f"{second}</body>").encode()

    def _obey(self, wish: str) -> None:
        act, _, name = wish.partition(":")
        if act == "open" and name in ABLATIONS:
            self.open(name)
        elif act == "save":
            self.controls.save("vla-ablations.csv", self.to_csv().encode())
        self.controls.wish = ""

    def _ended(self, job: Job) -> None:
        """A run has ended: it may be the nearest now."""
        del job
        notes: list[str] = []
        self._load(notes)
        self._show(self.scene, notes)

    def _load(self, notes: list[str]) -> None:
        """Every recorded run, and those that the page trained. A bad file becomes a message."""
        found: dict[str, RunRow] = {}
        for rows, fault in _sources(self.store):
            found |= {row.key: row for row in rows if row.key not in found}
            notes += [fault] if fault else []
        self.rows = list(found.values())

    def _show(self, scene: Ablations, notes: list[str], *, typed: bool = False) -> None:
        try:
            stream = scene.stream()
            self.lanes = {
                "this layer": (recall(scene.config(), stream, seed=scene.seed), "mine"),
                "as the authors ran it": (recall(AUTHORS, stream, seed=scene.seed), "published"),
                "exact": (recall(nn.model("vla_exact"), stream, seed=scene.seed), "exact"),
            }
            self.scene = scene
            self.near = neighbours(scene.config(), self.rows)
            self.protocols = self._protocols()
        except ArgumentError as error:
            notes = [*notes, f"{error} The last picture stays."]
        with self.controls.hold_sync():
            self.controls.notes = notes
            if not typed:
                self.controls.values = self.scene.texts()
            self.controls.preset = self.preset
            self.controls.query = self.scene.to_query()
        self.changed(self)

    def _job_key(self, scene: Ablations) -> str:
        """One run is trained once, however many pages ask for it."""
        try:
            return f"ablation {scene.run().key} {self.store}"
        except ArgumentError:
            return ""


def _sources(store: Path) -> Sequence[tuple[list[RunRow], str]]:
    recorded = [recorded_runs(name) for name in PRESETS]
    return [*recorded, *(stored_runs(store, STORED, size) for size in SIZES)]


def _order(protocol: Protocol) -> tuple[float, ...]:
    """What was trained on this page first, then the load that every ablation was trained on, the
    best founded, the hardest; rates by validation."""
    config = protocol.mine[0].config
    load = protocol.mine[0].value("task.pairs") or 0
    validation = statistics.fmean(row.accuracy("validation") for row in protocol.mine)
    standard = load == 24 and _is_plain(protocol.mine[0])
    here = protocol.mine[0].preset == STORED
    return not here, not standard, -len(protocol.mine), -load, -config.steps, -validation, config.lr


def _is_plain(row: RunRow) -> bool:
    """The authors' task as it is."""
    return row.config.task == tasks.make("mqar_authors", pairs=row.value("task.pairs") or 1)


def _training(row: RunRow) -> str:
    """All that decides a run beside its layer, its seed and what else it was tested on."""
    config = row.config
    shape = (config.model.width, config.model.heads, config.model.layers, config.model.ffn,
             config.model.key_width, config.model.value_width, config.model.positions)  # fmt: skip
    plain = config.with_(model=nn.ModelConfig(), seed=0, also_eval=())
    return f"{plain.canonical} {shape}"


def protocol_of(row: RunRow) -> str:
    """How a run was trained: ``n 24, 2000 steps, rate 3e-4``, ``here: …`` if on this page."""
    config, task = row.config, row.config.task
    load = row.value("task.pairs")
    parts = [f"n {load}" if load is not None else task.name]
    if task.name != "mqar_authors":
        parts.append(f"{task.name.removeprefix('mqar_')}, T {task.length}")
    elif task.length != 3 * (load or 0) + 1:
        parts.append(f"T {task.length}")
    if (keys := row.value("task.keys")) not in (None, (0, task.vocab - 1), (1, task.vocab // 2)):
        parts.append(f"keys {keys[0]}–{keys[1] - 1}")
    parts += [f"{config.steps} steps", f"rate {_short(config.lr)}"]
    if config.model.width != AUTHORS.width:
        parts.append(f"width {config.model.width}")
    if config.batch != 64:
        parts.append(f"batch {config.batch}")
    return ("here: " if row.preset == STORED else "") + ", ".join(parts)


def _short(rate: float) -> str:
    """``3e-4`` or ``0.01``, whichever is shorter."""
    digits = f"{rate:e}".split("e")[0].rstrip("0").rstrip(".")
    power = f"{digits}e{int(f'{rate:e}'.split('e')[1])}"
    return min((f"{rate:g}", power), key=len)
