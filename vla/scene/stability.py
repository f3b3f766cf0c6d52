"""Scenes of the stability app, prepared questions, and the session that runs them in slices."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from vla.errors import ArgumentError
from vla.figures.curves import spectral
from vla.figures.stability import eigenvalues, growth, published_stretch
from vla.figures.theme import alt
from vla.rules import RULES, Rule, make
from vla.scene.controls import Controls
from vla.scene.page import Cell
from vla.scene.table import Table, knob
from vla.scene.whitening import Prepared, prepared_of
from vla.theory.stability import KEYS, Course, Stretch, follow, long_stream, state_rules, table_2
from vla.trace import Trace, record

VIEWS = ("norms", "eigenvalues", "transition", "table 2")
MOST_SVD = 300
"""Tokens whose transitions are measured: one SVD each."""
SLICE = 0.25
"""Seconds of computing after which the page may speak again."""
FIRST = 3.0
"""Seconds that the first picture may take before it is shown as far as it has come."""


_FIXED = {"view": ("table 2",)}
"""Table 2 has settings of its own, so that no other knob changes it."""


@dataclass(frozen=True)
class Stability(Table):
    """What runs, for how long, and which picture of it is shown."""

    view: str = knob(
        "view", "choice", "norms", "Picture", "Picture",
        "Sizes, eigenvalues of A, transitions (first 300 tokens: an SVD each), or Table 2.",
        choices=lambda: VIEWS,
    )  # fmt: skip
    length: int = knob(
        "T", "int", 2000, "tokens T", "Stream",
        "Up to 100 000; long runs show progress and can be stopped.", low=10, high=100_000,
        idle=_FIXED,
    )  # fmt: skip
    d: int = knob("d", "int", 32, "width d", "Stream", "Width of keys and values.",
                  low=2, high=64, step=1, idle=_FIXED)  # fmt: skip
    keys: str = knob(
        "keys", "choice", "gaussian", "keys", "Stream",
        "Independent, or ELU+1 of that: these share a common part.", choices=lambda: KEYS,
        idle=_FIXED,
    )  # fmt: skip
    seed: int = knob("seed", "int", 0, "seed", "Stream", "Same seed, same numbers.",
                     low=0, high=9999, step=1, idle=_FIXED)  # fmt: skip
    lanes: tuple[str, ...] = knob(
        "rules", "names", ("linear", "delta", "vla", "rls"), "Rules", "Rules",
        "All get the same tokens.", choices=state_rules, idle=_FIXED,
    )  # fmt: skip
    lambda0: float = knob("lambda0", "float", 0.1, "λ0", "Knobs", "A starts as I/λ0. VLA and RLS.",
                          low=1e-4, high=100.0, idle=_FIXED)  # fmt: skip
    direction: str = knob(
        "u", "choice", "key", "u", "Knobs", "VLA's penalty grows along the key or a projection.",
        choices=lambda: ("key", "token"), idle=_FIXED,
    )  # fmt: skip
    refresh_every: int = knob(
        "refresh", "int", 0, "refresh period", "Knobs",
        "VLA adds εI to A every so many tokens; 0 never, the paper 20.", low=0, high=64, step=1,
        idle=_FIXED,
    )  # fmt: skip
    refresh_eps: float = knob(
        "epsilon_r", "float", 1e-3, "refresh size ε", "Knobs", "What a refresh adds; paper 0.001.",
        low=1e-6, high=1.0, idle=_FIXED,
    )  # fmt: skip

    def rules(self) -> dict[str, Rule]:
        """The chosen rules, each with the knobs it has."""
        wanted = {
            name: getattr(self, name)
            for name in ("lambda0", "direction", "refresh_every", "refresh_eps")
        }
        return {
            name: make(name, **{
                key: wanted[key] for key in wanted.keys() & {f.name for f in fields(RULES[name])}
            })
            for name in self.lanes
        }  # fmt: skip

    @property
    def runs(self) -> bool:
        """Whether its picture is of a long run."""
        return self.view in VIEWS[:2]


STABILITY: dict[str, Prepared] = {
    "growth": Prepared(
        "who stays bounded",
        "Random pairs keep coming. Whose memory stays bounded?",
        "2 000 tokens on logarithmic axes: linear attention's ‖S‖ climbs as √T.",
        "DeltaNet and VLA level off; exact RLS shrinks, since least squares answers values that "
        "have nothing to do with their keys by their mean, zero.",
        Stability(),
    ),
    "floor": Prepared(
        "refresh as process noise",
        "A shrinks as data comes in. What does adding 0.001 I at every 20th token change?",
        "VLA is refreshed, RLS isn't; both have u = k.",
        "‖A‖ stops at 0.23 instead of falling as 1/T: a refresh is a Kalman filter's process "
        "noise, and the memory never grows quite sure.",
        Stability(length=20_000, lanes=("vla", "rls"), refresh_every=20),
    ),
    "spectrum": Prepared(
        "eigenvalues of A",
        "Does A shrink alike in all directions?",
        "ELU+1 keys are positive throughout; each line is one of the 32 eigenvalues of A.",
        "No: the direction of the keys' mean is used up at once, the others follow later, all "
        "then as 1/T, so that the ratio stays.",
        Stability(view="eigenvalues", keys="elu+1", lanes=("vla",)),
    ),
    "proposition": Prepared(
        "is a step's norm exactly 1?",
        "Proposition 2 has norm 1 for every transition. What is measured?",
        "Dots are SVDs, the line is (1 + √(5 − 4c))/2; as published is dashed at 1.",
        "Only c = 1 gives 1. With u = k single steps stretch by up to 1.4, and still the product "
        "of all steps ends below 1.",
        Stability(view="transition", length=100, keys="elu+1", lanes=("vla",)),
    ),
    "own_u": Prepared(
        "a u of its own",
        "And the product, if u is a projection that isn't the key?",
        "The same transitions with u independent of k.",
        "Now the product itself passes 1: what bounds it is u = k.",
        Stability(view="transition", length=100, lanes=("vla",), direction="token"),
    ),
    "table2": Prepared(
        "the un-normalised form",
        "How fast does the un-normalised v2 explode?",
        "Table 2 as published is hollow and dashed; filled marks were measured here.",
        "It explodes, here faster than printed (our keys: ELU+1 of Gaussians). The printed value "
        "after 25 steps is the printed norm to the 25th power; the normalised form is near 1, "
        "not 1.",
        Stability(view="table 2"),
    ),
}


TABLE_2 = {
    "printed_step": "one step, printed",
    "step": "measured",
    "unit_step": "unit form",
    "printed_product": "25 steps, printed",
    "product": "measured, 25",
    "unit_product": "unit form, 25",
}
"""Columns of the table under that picture."""


class StabilitySession:
    """Runs the last good scene in slices and holds what its pictures need.

    ``changed`` is called when words, picture or table have something new to show.
    """

    def __init__(self, query: Mapping[str, Any]) -> None:
        self.scene, notes = Stability.from_query(query)
        self.look = "light"
        self.changed: Callable[[StabilitySession], object] = id
        self.course: Course | None = None
        self.trace: Trace | None = None
        self.rows: list[Stretch] = []
        self._work: Iterator[Course] | None = None
        self.controls = Controls(Stability, STABILITY, values=self.scene.texts(), notes=notes)
        self._start(FIRST)

    @property
    def preset(self) -> str:
        """The prepared scene on show; empty if it is one's own."""
        return prepared_of(STABILITY, self.scene)

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the person or the page's clock did."""
        if told["look"] != self.look:
            self.look = told["look"]
            self.changed(self)
        if told["serial"] != self.controls.answered:
            self._choose(told["values"], told["serial"])
        elif told["wish"]:
            self._obey(told["wish"])
        elif self._work and told["beaten"] == self.controls.beat:
            self._advance()

    def figure(self) -> Any:
        """The picture, as a plotly figure."""
        if self.scene.view == "table 2":
            return published_stretch(self.rows, theme_name=self.look)
        if self.scene.view == "transition":
            assert self.trace is not None
            return spectral(self.trace, theme_name=self.look)
        assert self.course is not None
        draw = growth if self.scene.view == "norms" else eigenvalues
        return draw(self.course, theme_name=self.look)

    def words(self) -> str:
        """The picture in words."""
        return alt(self.figure())

    def cells(self) -> list[Cell]:
        """The numbers under the picture."""
        if self.scene.view == "table 2":
            return [
                Cell(f"d {row.d}", words, getattr(row, name))
                for row in self.rows
                for name, words in TABLE_2.items()
            ]
        if self.scene.view == "transition":
            return _transition_cells(self.trace)
        return _norm_cells(self.course)

    def open(self, name: str) -> None:
        """Show a prepared scene. Raises ``KeyError`` for an unknown one."""
        self.scene = STABILITY[name].scene
        self.controls.notes = []
        self._start()

    def _choose(self, values: Mapping[str, Any], serial: int) -> None:
        scene, notes = Stability.read(values, self.scene)
        self.controls.notes = notes
        self.controls.answered = serial
        if scene != self.scene or notes:
            self.scene = scene
            self._start()

    def _obey(self, wish: str) -> None:
        act, _, name = wish.partition(":")
        if act == "open" and name in STABILITY:
            self.open(name)
        elif act == "save":
            self.controls.save("vla-stability.csv", self.to_csv().encode())
        elif act == "stop" and self._work:
            self._stop()
        self.controls.wish = ""

    def _stop(self) -> None:
        assert self.course is not None
        self._work, self.controls.progress = None, -1.0
        share = f"{100 * self.course.done:.0f} %"
        self.controls.notes = [f"Stopped at {share}; what was computed by then is shown."]
        self.changed(self)

    def _start(self, seconds: float = SLICE) -> None:
        """Compute what the scene needs; a long run goes on with the page's clock."""
        self._work, scene = None, self.scene
        self.controls.progress = -1.0
        try:
            if scene.view == "table 2":
                self.rows = self.rows or table_2()
            elif scene.view == "transition":
                stream = long_stream(
                    min(scene.length, MOST_SVD), scene.d, keys=scene.keys, seed=scene.seed
                )
                self.trace = record(scene.rules(), stream)
            else:
                stream = long_stream(scene.length, scene.d, keys=scene.keys, seed=scene.seed)
                self._work = follow(scene.rules(), stream)
                self._advance(seconds)
        except ArgumentError as error:
            self.controls.notes = [str(error)]
        self._tell()

    def _advance(self, seconds: float = SLICE) -> None:
        """One slice of the run under way."""
        assert self._work is not None
        until = time.monotonic() + seconds
        for course in self._work:
            self.course = course
            if time.monotonic() > until and course.done < 1:
                self.controls.progress = course.done
                self.controls.beat += 1
                return
        self._work, self.controls.progress = None, -1.0
        self.changed(self)

    def _tell(self) -> None:
        with self.controls.hold_sync():
            self.controls.values = self.scene.texts()
            self.controls.preset = self.preset
            self.controls.query = self.scene.to_query()
        self.changed(self)

    def to_csv(self) -> str:
        """The numbers of the picture: every step of a long run, or the table."""
        file = io.StringIO()
        rows = csv.writer(file, lineterminator="\n")
        if not self.scene.runs or self.course is None:
            rows.writerow(["lane", "name", "value"])
            rows.writerows(self.cells())
            return file.getvalue()
        rows.writerow(["rule", "step", "norm_S", "norm_A", "least_eigenvalue", "largest"])
        for lane in self.course.lanes:
            for i, step in enumerate(lane.steps):
                inverse = [lane.norm_A[i], lane.eigen_A[i][0], lane.eigen_A[i][-1]] if (
                    lane.norm_A) else ["", "", ""]  # fmt: skip
                rows.writerow([lane.rule, step, lane.norm_S[i], *inverse])
        return file.getvalue()


def _norm_cells(course: Course | None) -> list[Cell]:
    cells = []
    for lane in course.lanes if course else ():
        cells += [Cell(lane.title, "‖S‖", lane.norm_S[-1])]
        if lane.norm_A:
            cells += [
                Cell(lane.title, "‖A‖", lane.norm_A[-1]),
                Cell(lane.title, "least eigenvalue of A", lane.eigen_A[-1][0]),
                Cell(lane.title, "largest", lane.eigen_A[-1][-1]),
            ]
    return cells


def _transition_cells(trace: Trace | None) -> list[Cell]:
    return [
        Cell(lane.title, name, float(value))
        for lane in (trace.lanes if trace else ())
        for name, value in (
            ("least c", np.nanmin(lane.cosine)),
            ("largest ‖J‖", np.nanmax(lane.spectral_svd)),
            ("largest product", np.nanmax(lane.product_norm)),
            ("product at the end", lane.product_norm[-1]),
        )
    ]
