"""Scenes of the kernels app: which timings are shown, and timing this machine from the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import torch

from vla.bench import cases
from vla.bench.analysis import curve
from vla.bench.cases import CPU_SHAPES, SHAPES
from vla.figures import bench as pictures
from vla.figures.bench import DELTA, FAMILIES, LOOP, OURS, PASSES, PRECISIONS, QUANTITIES, Target
from vla.figures.theme import alt, three
from vla.scene.controls import Controls
from vla.scene.keep import Keep, as_page
from vla.scene.live import Job, Live
from vla.scene.records import find
from vla.scene.sheet import Column, Entry, Sheet, to_csv
from vla.scene.table import Table, knob
from vla.scene.timing import load, local_file, measure
from vla.scene.whitening import Prepared

SOURCES = ("recorded", "this machine")
PICTURES = (*QUANTITIES, "error")
OUTPUTS = ("worst", "o", "S", "A", "gradients", "dq", "dk", "dv", "du", "dbeta")
FIRST = ("VLA kernel", "softmax (SDPA)", "fla delta rule", "fla gated delta rule", "fla MesaNet")
TIMINGS, ERRORS = "bench/h200.json", "bench/h200_errors.json"
_ERRORS = {"picture": ("error",)}
_TIMINGS = {"picture": tuple(QUANTITIES)}


def shape_names() -> tuple[str, ...]:
    """The shapes that ``vla bench`` measures, on a GPU and on a CPU."""
    return tuple(shape.name for shape in (*SHAPES, *CPU_SHAPES))


@dataclass(frozen=True)
class Kernels(Table):
    """Which measurement is drawn, of what, from where."""

    picture: str = knob(
        "picture", "choice", "latency", "picture", "Picture",
        "Against the number of tokens; errors against the float64 token loop.",
        choices=lambda: PICTURES,
    )  # fmt: skip
    shape: str = knob(
        "shape", "choice", "B4 H16 d64", "shape", "Picture",
        "Batch, heads, width of keys and values.", choices=shape_names, idle=_ERRORS,
    )  # fmt: skip
    passes: str = knob(
        "pass", "choice", "forward", "pass", "Picture",
        "Without gradients, or with the backward pass.", choices=lambda: PASSES, idle=_ERRORS,
    )  # fmt: skip
    families: tuple[str, ...] = knob(
        "methods", "names", FIRST, "Methods", "Methods", "All get the same inputs.",
        choices=lambda: tuple(FAMILIES), idle=_ERRORS,
    )  # fmt: skip
    precisions: tuple[str, ...] = knob(
        "precisions", "names", ("bf16",), "Precisions", "Precisions",
        "bf16 inputs, or float32 inputs with products in tf32, three tf32 products, or fp32.",
        choices=lambda: PRECISIONS, idle=_ERRORS,
    )  # fmt: skip
    output: str = knob(
        "output", "choice", "worst", "output", "Picture",
        "The output, final state or gradient whose error is drawn.", choices=lambda: OUTPUTS,
        idle=_TIMINGS,
    )  # fmt: skip
    floor: bool = knob(
        "floor", "flag", True, "bandwidth", "Beside",
        "The least time: bf16, every byte moved once.",
        idle={"picture": PICTURES[1:]},
    )  # fmt: skip
    paper: bool = knob(
        "paper", "flag", False, "the paper", "Beside",
        "Its kernel and its crossing at 43 000, extrapolated from T ≤ 4 096 on a T4.",
        idle={"picture": PICTURES[1:]},
    )  # fmt: skip
    source: str = knob(
        "source", "choice", "recorded", "timings", "Measure",
        "Recorded on an H200, or measured on this machine with the button.",
        choices=lambda: SOURCES, idle=_ERRORS,
    )  # fmt: skip
    longest: int = knob(
        "longest", "int", 2048, "longest T", "Measure",
        "Up to which length this machine is measured.", low=128, high=131_072,
        idle={"picture": ("error",), "source": ("recorded",)},
    )  # fmt: skip
    sort: str = knob("sort", "text", "", "order", "View", "A column; − for falling.", high=24)
    find: str = knob("find", "text", "", "words", "View", "Rows that have these words.", high=60)

    def repaired(self) -> tuple[Kernels, list[str]]:
        """An order that means nothing is dropped, with a message."""
        known = {column.key for column in (*TIMES, *FAULTS)}
        if self.sort and self.sort.removeprefix("-") not in known:
            return self.with_(sort=""), ["sort: no such column; the table keeps its own order."]
        return self, []

    def bare(self) -> Kernels:
        """The scene without what a person does in the table."""
        return self.with_(sort="", find="")


TIMES = (
    Column("method", "method"),
    Column("tokens", "T", True, "Tokens in a sequence"),
    Column("median_ms", "median ms", True),
    Column("low_ms", "20 %", True, "One call in five was quicker"),
    Column("high_ms", "80 %", True, "One call in five was slower"),
    Column("tokens_per_s", "tokens/s", True, "Batch times tokens by the median"),
    Column("floor", "× floor", True, "Time over that of moving every byte once"),
    Column("memory", "peak MB", True, "Beyond the inputs"),
    Column("repeats", "calls", True),
)
FAULTS = (
    Column("case", "configuration"),
    Column("dtype", "dtype"),
    Column("precision", "precision"),
    Column("worst", "worst error", True, "Relative, by norm"),
    Column("of", "of", False, "The output that has it"),
    Column("bound", "bound", True),
    Column("share", "of its bound", True),
)


KERNELS: dict[str, Prepared] = {
    "crossing": Prepared(
        "softmax and VLA",
        "From how many tokens on is VLA's kernel faster than softmax attention?",
        "One H200, bf16, all in one run; the crossing was narrowed by measuring.",
        "", Kernels(),
    ),
    "backward": Prepared(
        "with the backward pass",
        "And in training, where the gradients count as well?",
        "The same shapes and inputs, forward and backward together.",
        "", Kernels(passes="forward+backward"),
    ),
    "paper": Prepared(
        "the paper's 43 000",
        "The paper's kernel crosses below softmax at about 43 000 tokens. What is that number?",
        "Dashed: two power laws fitted to T ≤ 4 096 on one T4, drawn on to where they meet.",
        "", Kernels(families=("VLA kernel", "softmax (SDPA)"), paper=True, floor=False),
    ),
    "loop": Prepared(
        "what fusing buys",
        "How much faster than a loop over tokens are the chunk form and the kernel?",
        "The same recurrence three times: token by token, in chunks, fused.",
        "", Kernels(
            shape="B8 H4 d32", precisions=("bf16", "fp32"), floor=False,
            families=("VLA kernel", "VLA chunk form (PyTorch)", "VLA token loop (PyTorch)"),
        ),
    ),
    "memory": Prepared(
        "memory",
        "What does a call need beyond its inputs?",
        "Peak memory of forward and backward together.",
        "", Kernels(picture="memory", passes="forward+backward"),
    ),
    "floor": Prepared(
        "distance from the floor",
        "How far is each kernel from only moving its inputs and outputs?",
        "1 would be a kernel that reads and writes every byte once and computes for nothing.",
        "", Kernels(picture="times the floor"),
    ),
    "precision": Prepared(
        "what precision costs",
        "What do more exact products cost?",
        "VLA's kernel alone: bf16, tf32, three tf32 products for one, and plain float32.",
        "", Kernels(families=("VLA kernel",), precisions=PRECISIONS),
    ),
    "errors": Prepared(
        "errors",
        "How exact is the kernel, forward and backward?",
        "A mark is one configuration: ragged lengths, gains, refresh, hard keys, widths.",
        "", Kernels(picture="error"),
    ),
}  # fmt: skip
"""Prepared questions. Their answers are computed from the record: :meth:`KernelsSession.answer`."""


class KernelsSession:
    """Holds the records and what the pictures of the scene need.

    ``changed`` is called when words, picture or table have something new to show. ``file`` is this
    machine's record; left out, the one of :func:`local_file`.
    """

    def __init__(self, query: Mapping[str, Any], file: Path | None = None) -> None:
        self.scene, notes = Kernels.from_query(query)
        self.file = file or local_file()
        self.look = "light"
        self.changed: Callable[[KernelsSession], object] = id
        self.controls = Controls(Kernels, KERNELS, values=self.scene.texts(), notes=notes)
        self.sheet = Sheet(
            picks=False, sort=self.scene.sort, find=self.scene.find,
            empty="Nothing of this was measured.",
        )  # fmt: skip
        self.keep = Keep({"Picture (HTML)": self.to_page})
        self.live = Live(ended=self._ended, key=f"bench {self.file}", axes=["T", "ms"])
        self.recorded, fault = load(find(TIMINGS))
        self.errors, damage = load(find(ERRORS))
        self.local, third = load(self.file)
        self._drawn: go.Figure | None = None
        self.controls.notes = [*notes, *filter(None, (fault, damage, third))]
        self._fill()

    @property
    def prepared(self) -> str:
        """The prepared scene on show; empty if it is one's own."""
        here = self.scene.bare()
        return next((n for n, each in KERNELS.items() if each.scene == here), "")

    @property
    def record(self) -> dict[str, Any]:
        """The timings on show."""
        return self.recorded if self.scene.source == "recorded" else self.local

    @property
    def wrong(self) -> list[dict[str, Any]]:
        """The rows of errors that have the scene's output."""
        rows: list[dict[str, Any]] = self.errors["rows"]
        return [row for row in rows if pictures.error_of(row, self.scene.output)[0]]

    def rows(self) -> list[dict[str, Any]]:
        """The timings of the picture, each with its device and commit."""
        scene = self.scene
        found = pictures.chosen(
            self.record["rows"], scene.shape, scene.passes, scene.families, scene.precisions
        )
        where = {name: self.record.get(name, "") for name in ("device", "commit")}
        return [{**row, **where} for row in found]

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the controls."""
        if told["look"] != self.look:
            self.look = told["look"]
            self._redraw()
        if told["serial"] != self.controls.answered:
            scene, notes = Kernels.read(told["values"], self.scene)
            self.controls.notes = notes
            self.controls.answered = told["serial"]
            self._show(scene)
        elif told["wish"]:
            act, _, name = told["wish"].partition(":")
            if act == "open" and name in KERNELS:
                self.open(name)
            elif act == "save":
                self.controls.save(*self.to_csv())
            self.controls.wish = ""

    def open(self, name: str) -> None:
        """Show a prepared scene. Raises ``KeyError`` for an unknown one."""
        self.controls.notes = []
        self._show(KERNELS[name].scene)

    def sorted(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the table."""
        scene, _ = self.scene.with_(sort=told["sort"], find=told["find"][:60]).repaired()
        if scene != self.scene:
            self.scene = scene
            self._tell()

    def measure(self) -> None:
        """Time this machine at the scene's shape, and show it."""
        device = "cuda" if torch.cuda.is_available() else "cpu"
        gpu = device == "cuda"
        shape = next(s for s in (*SHAPES, *CPU_SHAPES) if s.name == self.scene.shape)
        shape = shape if gpu else CPU_SHAPES[0]
        lengths = [t for t in (128, *cases.LENGTHS) if t <= max(self.scene.longest, 128)]
        methods = [m.name for m in cases.METHODS if gpu or not m.needs_gpu]
        self.live.start(
            measure, f"Timing {shape.name} on this machine", key=f"bench {self.file}",
            shape=list(shape), lengths=lengths, methods=methods, device=device,
            file=str(self.file.resolve()),
        )  # fmt: skip
        families = tuple(dict.fromkeys(pictures.family_of(name).title for name in methods))
        self._show(self.scene.with_(
            source="this machine", shape=shape.name, picture="latency",
            families=self.scene.families if gpu else families,
            precisions=self.scene.precisions if gpu else ("fp32",),
        ))  # fmt: skip

    def figure(self) -> go.Figure:
        """The picture."""
        if self._drawn is None:
            self._drawn = self._figure()
        return self._drawn

    def _figure(self) -> go.Figure:
        scene = self.scene
        if scene.picture == "error":
            return pictures.errors(self.wrong, output=scene.output, theme_name=self.look)
        both = {"VLA kernel", "softmax (SDPA)"} <= set(scene.families) and self.rows()
        found = pictures.crossover(self.record, scene.shape, scene.passes) if both else (None, None)
        return pictures.against_length(
            self.rows(), quantity=scene.picture, crossing=found, theme_name=self.look,
            bytes_per_s=self.record.get("bytes_per_s") if scene.floor else None,
            paper=scene.paper,
        )  # fmt: skip

    def words(self) -> str:
        """The picture in words."""
        return alt(self.figure())

    def answer(self) -> str:
        """What the record says to the picture's question, in a sentence or two."""
        scene = self.scene
        if scene.picture == "error":
            return _within_bounds(self.wrong, scene.output)
        if not self.rows():
            return ""
        if scene.picture != "latency":
            return _extremes(self.rows(), scene.picture)
        parts = [self._crossing_words(), *_ratios(self.record["rows"], scene)]
        return " ".join(filter(None, parts)) or _extremes(self.rows(), "latency")

    def _crossing_words(self) -> str:
        scene = self.scene
        if not {"VLA kernel", "softmax (SDPA)"} <= set(scene.families):
            return ""
        low, high = pictures.crossover(self.record, scene.shape, scene.passes)
        if low is None and high is None:
            return ""
        if high is None:
            text = f"Not up to T = {low}."
        elif low is None:
            text = f"At every length measured, from T = {high} on."
        else:
            text = f"VLA passes below between {low} and {high} tokens, measured."
        paper = " The paper's 43 000 is extrapolated from T ≤ 4 096 on one T4, softmax ahead."
        return text + (paper if scene.paper else "")

    def standing(self) -> str:
        """Where the numbers are from."""
        source = self.errors if self.scene.picture == "error" else self.record
        if not source["rows"]:
            if self.scene.source == "this machine":
                return "This machine has not been measured yet: press the button."
            return "No recorded timings are here."
        versions = ", ".join(f"{name} {text}" for name, text in source["versions"].items())
        kind = "Recorded" if source is not self.local else "Measured here"
        return (
            f"{kind}: {source['device']}, {versions}, commit {source['commit'][:7]}, "
            f"{source['date']}; {source['method']}."
        )

    def missing(self) -> list[str]:
        """What the record lacks: shapes without a row, and what was left out, with the reason."""
        source = self.errors if self.scene.picture == "error" else self.record
        lines = [f"{each['what']}: {each['why']}" for each in source["left_out"]]
        if source is self.recorded and self.recorded["rows"]:
            known = set(pictures.shapes(self.recorded["rows"]))
            gone = [shape.name for shape in SHAPES if shape.name not in known]
            lines = [f"{name}: no timing in this record" for name in gone] + lines
        return lines

    def targets(self) -> list[Target]:
        """The project's targets against the recorded timings."""
        return pictures.targets(self.recorded, self.errors["rows"])

    def decoding(self) -> list[tuple[str, float]]:
        """Milliseconds of one token with the state carried, by way of doing it, at this shape."""
        shape = next(s for s in (*SHAPES, *CPU_SHAPES) if s.name == self.scene.shape)
        return [
            (row["method"], row["median_ms"])
            for row in self.record["decode"]
            if (row["heads"], row["width"]) == (shape.heads, shape.width)
        ]

    def entries(self) -> list[Entry]:
        """The table's rows."""
        if self.scene.picture == "error":
            return [_fault(row, self.scene.output, i) for i, row in enumerate(self.wrong)]
        return [_time(row) for row in self.rows()]

    def columns(self) -> Sequence[Column]:
        """The table's columns."""
        return FAULTS if self.scene.picture == "error" else TIMES

    def file_name(self) -> str:
        """The name of a file that is saved, without its ending."""
        words = [self.scene.picture, self.scene.shape, self.scene.passes]
        return "-".join(["vla", *"-".join(words).replace("+", "-").split()]).replace(" ", "-")

    def to_csv(self) -> tuple[str, bytes]:
        """The table as a file."""
        return f"{self.file_name()}.csv", to_csv(self.columns(), self.entries()).encode()

    def to_page(self) -> tuple[str, bytes]:
        """The picture as a page of its own."""
        return f"{self.file_name()}.html", as_page(self.figure())

    def _show(self, scene: Kernels) -> None:
        same = {name for name in ("sort", "find") if getattr(scene, name)}
        if scene.picture != self.scene.picture and same:
            scene = scene.with_(sort="", find="")
        self.scene = scene
        self._fill()
        self.changed(self)

    def _fill(self) -> None:
        self._drawn = None
        self.sheet.show(self.columns(), self.entries(), self._caption())
        self._tell()

    def _caption(self) -> str:
        if self.scene.picture == "error":
            return "Every configuration, relative errors by norm."
        return f"{self.scene.shape}, {self.scene.passes}: every timing on show."

    def _tell(self) -> None:
        with self.controls.hold_sync():
            self.controls.values = self.scene.texts()
            self.controls.preset = self.prepared
            self.controls.query = self.scene.to_query()
        with self.sheet.hold_sync():
            self.sheet.sort, self.sheet.find = self.scene.sort, self.scene.find

    def _redraw(self) -> None:
        self._drawn = None
        self.changed(self)

    def _ended(self, _: Job) -> None:
        self.local, fault = load(self.file)
        if fault:
            self.controls.notes = [fault]
        self._fill()
        self.changed(self)


def _time(row: Mapping[str, Any]) -> Entry:
    values = {
        "method": pictures.named(row["method"]), "tokens": row["tokens"],
        **{name: row[name] for name in ("median_ms", "low_ms", "high_ms", "tokens_per_s")},
        "floor": pictures.value(dict(row), "times the floor"),
        "memory": pictures.value(dict(row), "memory"), "repeats": row["repeats"],
    }  # fmt: skip
    words = {
        name: x if isinstance(x, str) else str(x) if isinstance(x, int) else three(x)
        for name, x in values.items()
    }
    return Entry(f"{row['method']} {row['tokens']}", values, words)


def _fault(row: dict[str, Any], output: str, turn: int) -> Entry:
    of, error = pictures.error_of(row, output)
    values = {
        "case": row["case"], "dtype": row["dtype"], "precision": row["precision"], "worst": error,
        "of": of, "bound": row["bound"], "share": (error or 0.0) / row["bound"],
    }  # fmt: skip
    words = {name: x if isinstance(x, str) else three(x) for name, x in values.items()}
    return Entry(str(turn), values, words)


def _within_bounds(rows: Sequence[dict[str, Any]], output: str) -> str:
    if not rows:
        return "No configuration has this output."
    shares = [(pictures.error_of(row, output)[1] or 0) / row["bound"] for row in rows]
    above = sum(share > 1 for share in shares)
    kept = "All" if not above else f"{len(rows) - above} of"
    worst = f"the worst has {max(shares):.2f} of it"
    return f"{kept} {len(rows)} configurations keep their bound; {worst}."


def _extremes(rows: Sequence[dict[str, Any]], quantity: str) -> str:
    """The first and last of the methods at the longest length that all of them have."""
    methods = list(dict.fromkeys(row["method"] for row in rows))
    shared = set.intersection(*(
        {r["tokens"] for r in rows if r["method"] == m and pictures.value(r, quantity) is not None}
        for m in methods
    ))  # fmt: skip
    if not shared:
        return ""
    at = max(shared)
    here = [(pictures.value(r, quantity) or 0.0, r["method"]) for r in rows if r["tokens"] == at]
    unit = QUANTITIES[quantity].unit
    listed = ", ".join(f"{pictures.named(name)} {three(x)} {unit}" for x, name in sorted(here))
    return f"At T = {at}: {listed}."


def _ratios(rows: list[dict[str, Any]], scene: Kernels) -> list[str]:
    """VLA's kernel against fla's delta rule and the token loop, where both are on show."""
    found = []
    for other, family, words in (
        (DELTA, "fla delta rule", "fla's delta rule takes"),
        (LOOP, "VLA token loop (PyTorch)", "The token loop takes"),
    ):
        theirs = dict(curve(rows, other, scene.shape, scene.passes))
        ours = dict(curve(rows, OURS, scene.shape, scene.passes))
        shared = set(ours) & set(theirs)
        if family in scene.families and shared:
            at = max(shared)
            ratio = three(theirs[at] / ours[at])
            found.append(f"{words} {ratio} times as long as VLA's kernel at T = {at}.")
    return found
