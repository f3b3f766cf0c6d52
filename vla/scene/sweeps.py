"""Scenes of the sweeps app: which experiment, which runs of it, and the session that shows them."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import plotly.graph_objects as go
import torch

from vla import nn
from vla.figures import runs as pictures
from vla.figures.runs import Compared, badge, shown
from vla.figures.theme import alt, three
from vla.scene import training
from vla.scene.controls import Controls
from vla.scene.keep import Keep, as_page
from vla.scene.live import Job, Live
from vla.scene.records import recorded_runs, stored_runs
from vla.scene.sheet import Column, Entry, Sheet, to_csv
from vla.scene.table import Table, knob
from vla.scene.whitening import Prepared
from vla.train import RunResult, RunRow
from vla.train.presets import BUDGETS, FAIR_MODELS, MATCHED, NO_CONV, PRESETS, RETENTION
from vla.train.progress import clock
from vla.train.result import DONE, FINISHED
from vla.train.tables import at_best_rate

EXPERIMENTS = {
    "capacity": "figure5", "overload": "table10", "long context": "figure6",
    "new keys": "table13", "ablation": "table4", "rank and λ0": "readme",
    "copy": "table7", "fair": "fair",
}  # fmt: skip
"""Names on the page, and the presets behind them."""
LOADS = {"n = 24, 2 000 steps": None, "n = 16 (Table 4)": 16, "n = 48 (Table 4)": 48}
RATES = {"best on validation": None, "3e-4, the authors'": 3e-4, "1e-3": 1e-3}
SPLITS = {"keys never trained on": "ood", "keys trained on": "test"}
KINDS: dict[str, Callable[[str], bool]] = {
    "ask more": lambda label: RETENTION not in label,
    "wait longer": lambda label: RETENTION in label,
    "both": lambda _: True,
}
"""What a longer row has, and whether a run's label is of that kind."""
SOURCES = ("recorded and live", "recorded", "live")
VIEWS = ("accuracy", "learning rates")
QUANTITIES = ("accuracy", "loss")
SHORT = 8
"""Digits of a run's key in the address and the table."""
MOST_PICKED = 40


def _all_but(*experiments: str) -> tuple[str, ...]:
    return tuple(name for name in EXPERIMENTS if name not in experiments)


def _rated() -> tuple[str, ...]:
    """Labels of the fair protocol's runs: those with a grid of learning rates."""
    more = ("delta" + MATCHED, "delta" + NO_CONV, "vla_exact" + NO_CONV)
    return (*FAIR_MODELS["full"], *more)


@dataclass(frozen=True)
class Sweeps(Table):
    """Which experiment is shown, which of its runs, and how."""

    experiment: str = knob(
        "experiment", "choice", "capacity", "experiment", "Experiment",
        "One of the paper's, or the field's fair protocol.", choices=lambda: tuple(EXPERIMENTS),
    )  # fmt: skip
    budget: str = knob(
        "budget", "choice", "full", "size", "Experiment",
        "full: as published, on a GPU. cpu, smoke: smaller models, to try out; not results.",
        choices=lambda: BUDGETS[::-1],
    )  # fmt: skip
    source: str = knob(
        "source", "choice", SOURCES[0], "runs", "Experiment",
        "Recorded ones come with the project; live ones are in this machine's run store.",
        choices=lambda: SOURCES,
    )  # fmt: skip
    split: str = knob(
        "asked", "choice", "keys never trained on", "asked", "Picture",
        "Table 13 asks for both kinds of keys.", choices=lambda: tuple(SPLITS),
        idle={"experiment": _all_but("new keys")},
    )  # fmt: skip
    kind: str = knob(
        "kind", "choice", "ask more", "longer rows", "Picture",
        "The authors' longer rows hold more queries; others wait longer and ask each key once.",
        choices=lambda: tuple(KINDS), idle={"experiment": _all_but("long context")},
    )  # fmt: skip
    load: str = knob(
        "load", "choice", "n = 24, 2 000 steps", "load", "Picture",
        "Table 4's two loads stop at 1 000 steps; the third is where VLA has learned.",
        choices=lambda: tuple(LOADS), idle={"experiment": _all_but("ablation")},
    )  # fmt: skip
    rate: str = knob(
        "rate", "choice", "best on validation", "rate", "Picture",
        "Each variant at its best learning rate, or all at one.", choices=lambda: tuple(RATES),
        idle={"experiment": _all_but("ablation", "rank and λ0")},
    )  # fmt: skip
    view: str = knob(
        "view", "choice", "accuracy", "picture", "Picture",
        "Every model at its best rate, or one model at all of them.", choices=lambda: VIEWS,
        idle={"experiment": _all_but("fair")},
    )  # fmt: skip
    model: str = knob(
        "model", "choice", "delta", "model", "Picture", "Whose learning rates are shown.",
        choices=_rated, idle={"experiment": _all_but("fair"), "view": ("accuracy",)},
    )  # fmt: skip
    quantity: str = knob(
        "curve", "choice", "accuracy", "curves", "Picture",
        "What the learning curves of picked runs show.", choices=lambda: QUANTITIES,
    )  # fmt: skip
    pick: str = knob("pick", "text", "", "picked runs", "View", "Their keys.", high=400)
    sort: str = knob("sort", "text", "label", "order", "View", "A column; − for falling.", high=24)
    find: str = knob("find", "text", "", "words", "View", "Rows that have these words.", high=60)

    @property
    def preset(self) -> str:
        """The preset's name in ``vla sweep``."""
        return EXPERIMENTS[self.experiment]

    @property
    def across(self) -> str:
        """The field along the picture's axis."""
        return "task.length" if self.preset == "figure6" else "task.pairs"

    @property
    def evaluated(self) -> str:
        """The evaluation set that the picture reads."""
        return SPLITS[self.split] if self.preset == "table13" else "test"

    @property
    def picked(self) -> tuple[str, ...]:
        """The beginnings of the picked runs' keys."""
        return tuple(dict.fromkeys(re.findall(rf"\b[0-9a-f]{{{SHORT}}}\b", self.pick)))

    def repaired(self) -> tuple[Sweeps, list[str]]:
        """Picks and order that mean nothing are dropped, with a message."""
        notes, changes = [], {}
        if self.pick != ",".join(self.picked):
            changes["pick"] = ",".join(self.picked)
            notes.append("pick: what isn't the key of a run was left out.")
        if self.sort.removeprefix("-") not in {column.key for column in COLUMNS}:
            changes["sort"] = "label"
            notes.append("sort: no such column; the table is in the order of the models.")
        return (self.with_(**changes) if changes else self), notes

    def bare(self) -> Sweeps:
        """The scene without what a person does in the table."""
        return self.with_(pick="", sort="label", find="")


COLUMNS = (
    Column("label", "model"),
    Column("pairs", "n", True, "Pairs stored"),
    Column("length", "T", True, "Tokens in a row"),
    Column("steps", "steps", True, "Training steps"),
    Column("lr", "rate", True, "Learning rate"),
    Column("seed", "seed", True),
    Column("test", "accuracy", True, "On fresh rows"),
    Column("ood", "new keys", True, "Accuracy on keys never trained on"),
    Column("validation", "validation", True, "What learning rates are chosen by"),
    Column("status", "ended", False, "done, nan (with its step) or failed (with its reason)"),
    Column("source", "from"),
    Column("state", "state", True, "Numbers carried per sequence"),
    Column("parameters", "weights", True, "Trained parameters"),
    Column("seconds", "seconds", True, "On a GPU other runs share it meanwhile"),
    Column("key", "run", False, "The beginning of the run's key: vla runs --show"),
)


SWEEPS: dict[str, Prepared] = {
    "capacity": Prepared(
        "capacity, Figure 5",
        "How many pairs does each model recall, as its authors trained it?",
        "The authors' log is dashed, Table 9 hollow; filled marks with bands are three seeds each.",
        "", Sweeps(),
    ),
    "overload": Prepared(
        "overload, Tables 10 and 11",
        "What is left at n = 32 and 48? Is it capacity that runs out, or training?",
        "Hollow: 1 000 steps as published. The lines that say “trained longer” have 3 000.",
        "", Sweeps(experiment="overload"),
    ),
    "long": Prepared(
        "long context, Figure 6",
        "Does recall survive a longer row, as its authors made it: one that asks more?",
        "The authors' log is dashed. “Higher rate” is 1e-3 in the place of their 3e-4.",
        "", Sweeps(experiment="long context"),
    ),
    "wait": Prepared(
        "a longer wait",
        "Does recall survive a longer wait, each key asked once?",
        "Between storing and asking lie more tokens; “higher rate” is 1e-3 in the place of 3e-4.",
        "", Sweeps(experiment="long context", kind="wait longer"),
    ),
    "new_keys": Prepared(
        "keys never trained on, Table 13",
        "Does recall carry over to keys that were only values in training?",
        "Hollow: Table 13 after 1 000 steps; some models were trained longer as well.",
        "", Sweeps(experiment="new keys"),
    ),
    "ablation": Prepared(
        "component ablation, Table 4",
        "Which parts does it need: the matrix A, the unit keys, the norm after the heads?",
        "At the authors' rate, 2 000 steps; the last rows are variants that the paper leaves out.",
        "", Sweeps(experiment="ablation", rate="3e-4, the authors'"),
    ),
    "ablation_tuned": Prepared(
        "the same, tuned",
        "Does it still need them where every variant has the better of two learning rates?",
        "The rate that is best on validation for each; a mark a seed.",
        "", Sweeps(experiment="ablation"),
    ),
    "table4": Prepared(
        "Table 4 as published",
        "Table 4 after its 1 000 steps at n = 16: is 0.990 against 0.091 what one gets?",
        "Hollow marks are Table 4's; its value for fixed A was predicted there, not run.",
        "", Sweeps(experiment="ablation", load="n = 16 (Table 4)"),
    ),
    "rank": Prepared(
        "rank, λ0 and stabiliser",
        "Do more directions per token, a learned λ0 or the refresh change what is recalled?",
        "Each row has one combination; the authors' own log of such runs names no task.",
        "", Sweeps(experiment="rank and λ0"),
    ),
    "copy": Prepared(
        "copy, Table 7",
        "Does the copy task test a memory?",
        "In the authors' task the input at each position is the target; the other kind shifts it.",
        "", Sweeps(experiment="copy"),
    ),
    "fair": Prepared(
        "the field's fair protocol",
        "With the same convolution, norm and tuning for all, does an adaptive A still help?",
        "Every model at its best learning rate, chosen on validation; bands are three seeds.",
        "", Sweeps(experiment="fair"),
    ),
    "rates": Prepared(
        "learning rates, fair protocol",
        "Is the grid of learning rates wide enough for DeltaNet?",
        "Rates down, loads across; the grid is widened where the best lies at its edge.",
        "", Sweeps(experiment="fair", view="learning rates"),
    ),
}  # fmt: skip
"""Prepared questions. Their answers are computed from the runs on show: :func:`answer`."""


class Beside(NamedTuple):
    """One line of the comparison under the picture."""

    lane: str
    values: dict[str, float]


def entry(row: RunRow, live: Mapping[str, RunRow]) -> Entry:
    """A run as a row of the table."""
    result, config = row.result, row.config
    values = {
        "label": shown(row.label or str(config.model)), "pairs": row.value("task.pairs"),
        "length": config.task.length, "steps": config.steps, "lr": config.lr, "seed": config.seed,
        "test": row.accuracy(), "ood": row.accuracy("ood"),
        "validation": row.accuracy("validation"), "status": _ending(row),
        "state": row.state_size, "parameters": result.parameters or None,
        "seconds": result.duration or None, "source": badge(row, live),
        "key": row.key[:SHORT],
    }  # fmt: skip
    return Entry(row.key[:SHORT], values, {name: _words(name, v) for name, v in values.items()})


def _ending(row: RunRow) -> str:
    return f"{row.status}: {row.result.note}" if row.result.note else row.status


def _words(name: str, value: Any) -> str:
    if value is None or value != value:
        return "–"
    if name in ("test", "ood", "validation"):
        return f"{value:.3f}"
    if name == "lr":
        return f"{value:g}"
    return three(value) if name == "seconds" else str(value)


def answer(scene: Sweeps, rows: Sequence[RunRow], compared: Sequence[Compared]) -> str:
    """What the runs of the picture say, in a sentence or two; the numbers are theirs."""
    if not rows:
        return ""
    if not compared:
        across = None if scene.preset == "table7" else scene.across
        return _ranking(rows, across, scene.evaluated)
    near = sum(each.apart <= 0.05 for each in compared)
    far = compared[0]
    where = AXIS_LETTERS[scene.across]
    text = f"Of {len(compared)} published numbers with runs beside them, {near} lie within 0.05."
    if far.apart > 0.05:
        at = f"{shown(far.label)} at {where} = {far.x:g}"
        text += f" The furthest: {at}, published {far.published:g}, here {far.ours:.3f}."
    beyond = [row for row in rows if row.label not in {each.label for each in compared}]
    if beyond and scene.preset != "table4":
        text += f" Not published: {_ranking(beyond, scene.across, scene.evaluated)}"
    return text


AXIS_LETTERS = {"task.pairs": "n", "task.length": "T"}
MOST_RANKED = 8


def _ranking(rows: Sequence[RunRow], across: str | None, split: str) -> str:
    """The models by their mean at the hardest load; those that didn't run there are named."""
    done = [row for row in rows if row.status == DONE]
    if not done:
        return "No run has ended well."
    top = max(row.value(across) for row in done) if across else None
    means = {
        label: statistics.fmean(row.accuracy(split) for row in best)
        for label in dict.fromkeys(row.label for row in done)
        if (best := at_best_rate([r for r in done if r.label == label
                                  and (not across or r.value(across) == top)]))
    }  # fmt: skip
    order = sorted(means, key=lambda label: -means[label])
    alike = all(label.endswith(RETENTION) for label in order)
    told = [
        f"{shown(label.removesuffix(RETENTION) if alike else label)} {means[label]:.3f}"
        for label in order
    ]
    half = MOST_RANKED // 2
    if len(told) > MOST_RANKED:
        told[half:-half] = [f"{len(told) - MOST_RANKED} between"]
        if three(means[order[0]]) == three(means[order[-1]]):
            told = [f"all {len(order)} have {means[order[0]]:.3f}"]
    gone = [label for label in dict.fromkeys(row.label for row in rows) if label not in means]
    here = {row.label for row in rows if not across or row.value(across) == top}
    lacks = _named("Without a finite loss", [label for label in gone if label in here])
    lacks += _named("Not run there", [label for label in gone if label not in here])
    where = f"At {AXIS_LETTERS[across]} = {top:g}: " if across else ""
    return f"{where}{'; '.join(told)}.{lacks}"


def _edges(rows: Sequence[RunRow]) -> str:
    """Which learning rate is best on validation at each load, and whether it is at the edge."""
    parts = []
    for load in sorted({row.value("task.pairs") for row in rows}):
        here = [row for row in rows if row.value("task.pairs") == load]
        best, grid = at_best_rate(here)[0].config.lr, sorted({row.config.lr for row in here})
        edge = ", at the edge of the grid" if best in (grid[0], grid[-1]) else ""
        parts.append(f"n = {load:g}: {best:g} of {grid[0]:g} to {grid[-1]:g}{edge}")
    return f"Best on validation at {'; '.join(parts)}." if parts else ""


def _named(words: str, labels: Sequence[str]) -> str:
    return f" {words}: {'; '.join(map(shown, labels))}." if labels else ""


class Plan(NamedTuple):
    """What the experiment asks for beside what is there."""

    asked: int
    """Runs, given those on show."""
    missing: int
    """Of them, what a sweep started here would begin with."""
    again: bool
    """Whether the record has all that this machine's store lacks."""


class SweepsSession:
    """Holds the runs of the scene and what its pictures need.

    ``changed`` is called when words, picture or table have something new to show. ``store`` is the
    run store's file; left out, the one of ``vla sweep``.
    """

    def __init__(self, query: Mapping[str, Any], store: Path | None = None) -> None:
        self.scene, notes = Sweeps.from_query(query)
        self.store = store or training.store_path()
        self.look = "light"
        self.changed: Callable[[SweepsSession], object] = id
        self.rows: list[RunRow] = []
        self.live_rows: dict[str, RunRow] = {}
        self.costs: dict[tuple[str, str], str] = {}
        self.plan = Plan(0, 0, False)
        self._asked: dict[tuple[str, str, frozenset[tuple[str, str]]], dict[str, str]] = {}
        self.controls = Controls(Sweeps, SWEEPS, values=self.scene.texts(), notes=notes)
        self.sheet = Sheet(empty="No runs yet.", sort=self.scene.sort, find=self.scene.find,
                           picked=list(self.scene.picked))  # fmt: skip
        self.keep = Keep({"Picture (HTML)": self.to_page})
        self.live = Live(
            ended=self._ended, news=self._news, key=f"sweep {self.store}", colours=_colours()
        )
        self._said = 0
        self._drawn: go.Figure | None = None
        self._alone = True
        self.drawings = 0
        """Counts the pictures: a page that shows the same one needs no new element for it."""
        self._load(notes)

    @property
    def prepared(self) -> str:
        """The prepared scene on show; empty if it is one's own."""
        here = self.scene.bare()
        return next((n for n, each in SWEEPS.items() if each.scene == here), "")

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the controls."""
        if told["look"] != self.look:
            self.look = told["look"]
            self._redraw()
        if told["serial"] != self.controls.answered:
            scene, notes = Sweeps.read(told["values"], self.scene)
            self.controls.answered = told["serial"]
            self._show(scene, notes)
        elif told["wish"]:
            act, _, name = told["wish"].partition(":")
            if act == "open" and name in SWEEPS:
                self._show(SWEEPS[name].scene, [])
            elif act == "save":
                name, content = self.to_csv()
                self.controls.save(name, content)
            self.controls.wish = ""

    def open(self, name: str) -> None:
        """Show a prepared scene. Raises ``KeyError`` for an unknown one."""
        self._show(SWEEPS[name].scene, [])

    def sorted(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the table."""
        pick = ",".join(told["picked"][:MOST_PICKED])
        scene = self.scene.with_(sort=told["sort"], find=told["find"][:60], pick=pick)
        scene, _ = scene.repaired()
        if scene != self.scene:
            redraw = scene.pick != self.scene.pick
            self.scene = scene
            self._tell()
            if redraw:
                self.changed(self)

    def clicked(self, points: Sequence[Mapping[str, Any]]) -> None:
        """Take the points of the picture that were clicked or selected.

        Their runs are picked; where all of them were, they no longer are.
        """
        figure = self.figure()
        keys = [
            key[:SHORT]
            for point in points
            for key in pictures.keys_at(
                figure, int(point.get("curveNumber", -1)), int(point.get("pointIndex", -1))
            )
        ]
        if not keys:
            return
        new = [key for key in dict.fromkeys(keys) if key not in self.scene.picked]
        kept = [key for key in self.scene.picked if new or key not in keys]
        self.scene = self.scene.with_(pick=",".join([*kept, *new][-MOST_PICKED:]))
        self._tell()
        self.changed(self)

    def run(self) -> None:
        """Train what is missing here. The full size on a CPU is first priced, then asked again."""
        what = (self.scene.preset, self.scene.budget)
        if self.scene.budget == "full" and not torch.cuda.is_available() and what not in self.costs:
            self.price()
            return
        self._said = 0
        title = f"{PRESETS[self.scene.preset].title}, {self.scene.budget}"
        self._begin(training.sweep, title)

    def price(self) -> None:
        """Time a few steps of each kind of model here and say what the whole would take."""
        self._begin(training.cost, f"What would {self.scene.budget} cost here?")

    def _begin(self, work: Callable[..., Any], title: str) -> None:
        self.live.start(
            work, title, key=f"sweep {self.store}", preset=self.scene.preset,
            budget=self.scene.budget, store=str(self.store.resolve()),
        )  # fmt: skip
        self.changed(self)

    def figure(self) -> go.Figure:
        """The picture, each point with its badge."""
        # Beside learning curves it is narrower, which plotly sees only when drawn anew.
        if self._drawn is None or self._alone != (self.learning() is None):
            live = set(self.live_rows) if self.scene.source != "recorded" else set()
            self._drawn = pictures.badged(self._figure(), self.rows, live)
            self._drawn.update_layout(height=max(420, self._drawn.layout.height))
            self._alone = self.learning() is None
            self.drawings += 1
        return self._drawn

    def _figure(self) -> go.Figure:
        scene, look = self.scene, self.look
        if scene.preset == "fair" and scene.view == "learning rates":
            if any(row.label == scene.model for row in self.rows):
                return pictures.rates(self.rows, label=scene.model, theme_name=look)
            return pictures.variants([], title=f"No runs of {shown(scene.model)}", theme_name=look)
        if not self.rows and (scene.preset == "fair" or scene.budget != "full"):
            return pictures.variants([], title="No runs of this size yet", theme_name=look)
        more: dict[str, Any] = {"theme_name": look}
        if scene.preset == "table13":
            more["split"] = scene.evaluated
        if scene.preset == "table4":
            more["load"] = LOADS[scene.load]
        return pictures.FIGURES[scene.preset](self._on_picture(), **more)

    def learning(self) -> go.Figure | None:
        """The learning curves of the picked runs; ``None`` if none of those on show is picked."""
        chosen = [row for row in self.rows if row.key[:SHORT] in self.scene.picked]
        if not any(row.result.curve.get("step") for row in chosen):
            return None
        return pictures.learning_curves(
            pictures.told_apart(chosen), quantity=self.scene.quantity, theme_name=self.look,
            title="How the picked runs learned",
        )  # fmt: skip

    def words(self) -> str:
        """The picture in words."""
        return alt(self.figure())

    def compared(self) -> list[Compared]:
        """The published numbers beside ours, where both are of the same size."""
        if self.scene.budget != "full" or self.scene.preset in ("table7", "readme"):
            return []
        if self.scene.preset == "table4":
            return self._compared_variants()
        split = self.scene.evaluated
        published = pictures.published_for(self.scene.preset, split=split)
        return pictures.compared(
            self._on_picture(), published, across=self.scene.across, split=split
        )

    def beside(self) -> list[Beside]:
        """The comparison as lines, the furthest first."""
        word = "T" if self.scene.across == "task.length" else "n"
        return [
            Beside(
                f"{shown(each.label)}, {word} = {each.x:g} ({each.source})",
                {"published": each.published, "here": each.ours, "apart": each.apart},
            )
            for each in self.compared()
        ]

    def _compared_variants(self) -> list[Compared]:
        load = LOADS[self.scene.load]
        if load is None:
            return []
        values = {name: {float(load): x} for name, x in pictures.table4_values(load).items()}
        published = pictures.Published(f"Table 4, n = {load}", values)
        return pictures.compared(self._at(load), (published,))

    def _at(self, load: int) -> list[RunRow]:
        """Table 4's own protocol has the fewer steps where a load was trained twice."""
        mine = [row for row in self.rows if row.value("task.pairs") == load]
        least = min((row.config.steps for row in mine), default=0)
        return [row for row in mine if row.config.steps == least]

    def answer(self) -> str:
        """What the runs on show say."""
        if self.scene.preset == "fair" and self.scene.view == "learning rates":
            return _edges([row for row in self.rows if row.label == self.scene.model])
        return answer(self.scene, self._on_picture(), self.compared())

    def _on_picture(self) -> list[RunRow]:
        """The runs that the picture is of: a load, a rate or a kind of row of its own."""
        if self.scene.preset == "figure6":
            return [row for row in self.rows if KINDS[self.scene.kind](row.label)]
        if self.scene.preset not in ("table4", "readme"):
            return self.rows
        if self.scene.preset == "table4" and (load := LOADS[self.scene.load]) is not None:
            return self._at(load)
        longest = max((row.config.steps for row in self.rows), default=0)
        rate = RATES[self.scene.rate]
        return [
            row for row in self.rows
            if row.config.steps == longest and rate in (None, row.config.lr)
        ]  # fmt: skip

    def standing(self) -> str:
        """How many runs there are and what is left to do, in a sentence."""
        recorded = [row for row in self.rows if row.key not in self.live_rows]
        live, plan = len(self.rows) - len(recorded), self.plan
        counts = (
            f"{len(recorded)} recorded and {live} live runs on show, of {plan.asked} asked for."
        )
        none = "No run of this experiment at this size is recorded or stored here yet."
        rest = (
            f"{plan.missing} of this experiment's runs are not in this machine's store"
            + ("; the record has them all." if plan.again else ".")
            if plan.missing
            else "Every run of this experiment is in this machine's store."
        )
        cost = self.costs.get((self.scene.preset, self.scene.budget), "")
        return " ".join(filter(None, [counts if self.rows else none, _took(recorded), rest, cost]))

    def offer(self) -> str:
        """What the button that trains says."""
        left, again, size = self.plan.missing, self.plan.again, self.scene.budget
        if not left:
            return "All trained"
        what = f"{left} runs here again" if again else f"the {left} missing runs here"
        return f"Train {what} ({size})"

    def missing(self) -> int:
        """How many runs a sweep started now would begin with."""
        return self.plan.missing

    def _planned(self, recorded: Sequence[RunRow], stored: Sequence[RunRow]) -> Plan:
        missing = self._lacking(stored)
        again = bool(missing) and not self._lacking(recorded)
        return Plan(len(self._wanted(self.rows)), missing, again)

    def _lacking(self, rows: Sequence[RunRow]) -> int:
        """How many runs are still asked for where these are there."""
        known = {row.key for row in rows if row.status in FINISHED}
        return sum(key not in known for key in self._wanted(rows))

    def _wanted(self, rows: Sequence[RunRow]) -> dict[str, str]:
        """Keys and labels of the runs asked for where these are there.

        Kept, since keys are hashes, and slow.
        """
        scene = self.scene
        what = scene.preset, scene.budget, frozenset((row.key, row.status) for row in rows)
        if what not in self._asked:
            items = PRESETS[scene.preset].wanted(scene.budget, rows)
            self._asked[what] = {item.config.key: item.label for item in items}
        return self._asked[what]

    def entries(self) -> list[Entry]:
        """The table's rows."""
        return [entry(row, self.live_rows) for row in self.rows]

    def columns(self) -> list[Column]:
        """The table's columns; one that no run fills is left out."""
        rows = self.entries()
        return [c for c in COLUMNS if any(e.words[c.key] != "–" for e in rows) or not rows]

    def file(self, what: str = "") -> str:
        """The name of a file that is saved, without its ending."""
        return "-".join(filter(None, ("vla", self.scene.preset, self.scene.budget, what)))

    def to_csv(self) -> tuple[str, bytes]:
        """Every run on show as a file."""
        return f"{self.file()}.csv", to_csv(COLUMNS, self.entries()).encode()

    def to_page(self) -> tuple[str, bytes]:
        """The picture as a page of its own."""
        return f"{self.file()}.html", as_page(self.figure())

    def _show(self, scene: Sweeps, notes: list[str]) -> None:
        if scene.bare() != self.scene.bare() and scene.pick == self.scene.pick:
            scene = self._kept_picks(scene)
        self.scene = scene
        self._load(notes)
        self._redraw()

    def _kept_picks(self, scene: Sweeps) -> Sweeps:
        """Another experiment's runs can't stay picked; another picture of the same ones can."""
        same = (scene.experiment, scene.budget) == (self.scene.experiment, self.scene.budget)
        return scene if same else scene.with_(pick="")

    def _load(self, notes: list[str]) -> None:
        """Read the runs of the scene; faults of files become messages."""
        scene, notes = self.scene, list(notes)
        recorded, fault = recorded_runs(scene.preset)
        stored, damage = stored_runs(self.store, scene.preset, scene.budget)
        notes += [text for text in (fault, damage) if text]
        every = [row for row in recorded if row.budget == scene.budget]
        recorded = [] if scene.source == "live" else every
        known = {row.key for row in recorded}
        fresh = [] if scene.source == "recorded" else [r for r in stored if r.key not in known]
        self.live_rows = {row.key: row for row in fresh}
        self.rows = self._in_order(recorded + fresh)
        self.plan = self._planned(every, stored)
        here = {row.key[:SHORT] for row in self.rows}
        if self.rows and (lost := [key for key in scene.picked if key not in here]):
            notes.append(f"pick: {len(lost)} of the picked runs are not among those on show.")
        self.controls.notes = notes
        self._drawn = None
        caption = f"{PRESETS[scene.preset].title}: every run. Pick some to see how they learned."
        self.sheet.show(self.columns(), self.entries(), caption)
        self._tell()

    def _in_order(self, rows: Sequence[RunRow]) -> list[RunRow]:
        """As the experiment lists its models, whatever ended first."""
        labels = dict.fromkeys(self._wanted(()).values())
        turn = {label: i for i, label in enumerate(labels)}
        return sorted(rows, key=lambda row: turn.get(row.label, len(turn)))

    def _tell(self) -> None:
        scene = self.scene
        with self.controls.hold_sync():
            self.controls.values = scene.texts()
            self.controls.preset = self.prepared
            self.controls.query = scene.to_query()
        with self.sheet.hold_sync():
            self.sheet.sort, self.sheet.find = scene.sort, scene.find
            self.sheet.picked = list(scene.picked)

    def _redraw(self) -> None:
        self._drawn = None
        self._tell()
        self.changed(self)

    def _news(self, job: Job) -> None:
        """A run has ended: show it."""
        if len(job.said) != self._said:
            self._said = len(job.said)
            self._load([])
            self.changed(self)

    def _ended(self, job: Job) -> None:
        if isinstance(job.result, dict) and "cost" in job.result:
            known = job.result
            self.costs[known["preset"], known["budget"]] = known["cost"]
        self._load([])
        self.changed(self)


def _took(rows: Sequence[RunRow]) -> str:
    """How long recorded runs took together, from their own clocks."""
    timed = [row.result for row in rows if row.result.finished and row.result.duration]
    if not timed:
        return ""
    devices = ", ".join(dict.fromkeys(result.device for result in timed))
    jobs = max(result.jobs for result in timed)
    busy = clock(_busy([_span(result) for result in timed]))
    return f"The recorded ones kept {devices} busy for {busy}, up to {jobs} at once."


def _span(result: RunResult) -> tuple[float, float]:
    end = datetime.fromisoformat(result.finished).timestamp()
    return end - result.duration, end


def _busy(spans: Sequence[tuple[float, float]]) -> float:
    """Seconds in which at least one of these was under way."""
    total, until = 0.0, -math.inf
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def _colours() -> dict[str, str]:
    return {shown(name): pictures.colour_of(nn.model(name)) for name in nn.MODELS}
