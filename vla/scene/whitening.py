"""Scenes of the whitening app: keys in the plane, prepared questions, and the session of a page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import urlencode

import torch

from vla.errors import ArgumentError
from vla.rules import make
from vla.scene.controls import Controls
from vla.scene.scene import Scene, lane_title
from vla.scene.table import Table, knob
from vla.theory.geometry import MAX_KEYS, Angle, Geometry, geometry
from vla.theory.stability_map import MEASURES, StabilityMap, stability_map
from vla.widgets.heatmap import Heatmap, table
from vla.widgets.plane import Plane

WIDTH = 16
"""Width of the memories of a map."""

_DEFAULT_KEYS = "0, 53.1"
SHOWN = ("plane", "space", "map")
MAPPED: dict[str, tuple[str, str]] = {
    "unit": ("vla", "unit"), "rls": ("vla", "rls"), "oblique": ("vla", "oblique"),
    "delta": ("delta", ""), "linear": ("linear", ""),
}  # fmt: skip
"""What a map can show: the rule, and VLA's gain."""
_VIEW = ("yaw", "pitch")
_ON_MAP = {"show": ("map",)}
_OFF_MAP = {"show": ("plane", "space")}


@dataclass(frozen=True)
class Whitening(Table):
    """Which keys are written, with what penalty, and which write is looked at."""

    show: str = knob(
        "show", "choice", "plane", "show", "Picture",
        "Keys in the plane, keys in space, or a map of recall over λ0 and ρ.",
        choices=lambda: SHOWN,
    )  # fmt: skip
    keys: str = knob(
        "keys", "text", _DEFAULT_KEYS, "Keys, in degrees", "Keys",
        "Unit keys as they are written, 1 to 8; azimuth/elevation in space. Drag or type.",
        low=1, high=200, idle=_ON_MAP,
    )  # fmt: skip
    lambda0: float = knob(
        "lambda0", "float", 0.1, "λ0", "Penalty",
        "A starts as I/λ0; small turns further.", low=1e-6, high=100.0, idle=_ON_MAP,
    )  # fmt: skip
    turn: float = knob(
        "turn", "float", 0.0, "u from k", "Penalty",
        "Degrees from each key to its u; §7 has u = k, which is 0.", low=-90, high=90, step=1,
        idle=_ON_MAP,
    )  # fmt: skip
    update: str = knob(
        "update", "choice", "post", "A of the write", "Penalty",
        "post: α from the new A (paper A.1); pre: from the one before it.",
        choices=lambda: ("post", "pre"), idle=_ON_MAP,
    )  # fmt: skip
    rule: str = knob(
        "rule", "choice", "unit", "rule", "Map",
        "VLA under its three gains, and two rules without a penalty.",
        choices=lambda: tuple(MAPPED), idle=_OFF_MAP,
    )  # fmt: skip
    measure: str = knob(
        "measure", "choice", "recall", "measure", "Map",
        "recall: mean relative error of all pairs; size: ‖S‖ at the end.",
        choices=lambda: MEASURES, idle=_OFF_MAP,
    )  # fmt: skip
    n: int = knob(
        "n", "int", 16, "pairs n", "Map", "Pairs written into a memory of width 16.",
        low=1, high=64, step=1, idle=_OFF_MAP,
    )  # fmt: skip
    seed: int = knob(
        "seed", "int", 7, "seed", "Map", "Same seed, same keys and values.", high=9999, step=1,
        idle=_OFF_MAP,
    )  # fmt: skip
    yaw: float = knob(
        "yaw", "float", 30.0, "yaw", "View", "Degrees by which space is turned.",
        low=-180, high=180, step=0.1,
    )  # fmt: skip
    pitch: float = knob(
        "pitch", "float", 20.0, "pitch", "View", "Degrees from which space is seen from above.",
        low=-90, high=90, step=0.1,
    )  # fmt: skip
    step: int = knob(
        "step", "int", 2, "step", "View", "Which write is looked at; 0 is before the first.",
        high=MAX_KEYS, step=1,
    )  # fmt: skip

    @property
    def angles(self) -> tuple[Angle, ...]:
        """The keys: angles from −180 to 180, in space with elevations from −90 to 90.

        In the plane an elevation is left aside; in space a key without one has 0.
        Raises ``ValueError`` for anything else.
        """
        words = self.keys.replace(";", ",").replace("−", "-").replace("°", "").split(",")
        try:
            given = [_pair(word) for word in words if word.strip()]
        except ValueError:
            given = []
        if not 1 <= len(given) <= MAX_KEYS:
            shown = f"“{self.keys[:40]}”"
            wanted = f"1 to {MAX_KEYS} angles with commas between them, such as {_DEFAULT_KEYS}"
            raise ArgumentError("keys", shown, wanted, "In space: 0/0, 53.1/30.")
        if self.show == "space":
            return tuple(given)
        return tuple(azimuth for azimuth, _ in given)

    def repaired(self) -> tuple[Whitening, list[str]]:
        """Keys that can be drawn, and a step that exists."""
        scene, messages = self, []
        try:
            last = len(scene.angles)
        except ArgumentError as error:
            messages.append(f"{error} {_DEFAULT_KEYS} is shown.")
            scene, last = scene.with_(keys=_DEFAULT_KEYS), 2
        if scene.step > last:
            messages.append(f"step: {scene.step} is past the last write; {last} is shown.")
            scene = scene.with_(step=last)
        return scene, messages

    def geometry(self) -> Geometry:
        """What these keys do. Raises ``ValueError`` as :attr:`angles` does."""
        return geometry(self.angles, lambda0=self.lambda0, turn=self.turn, update=self.update)

    def map(self) -> StabilityMap:
        """The rule over every λ0 and ρ."""
        return _map(self.rule, self.n, self.seed)

    def cell(self, rho: float, lambda0: float) -> Scene:
        """The stepper's scene behind one cell of the map, at its last step."""
        lane, gain = MAPPED[self.rule]
        return Scene(
            kind="correlated", n=self.n, d=WIDTH, queries=0, rho=rho, seed=self.seed,
            lanes=(lane,), lambda0=lambda0, gain=gain or "unit", step=self.n,
        )  # fmt: skip


@lru_cache(maxsize=16)
def _map(rule: str, n: int, seed: int) -> StabilityMap:
    lane, gain = MAPPED[rule]
    made = make(lane, gain=gain) if gain else make(lane)
    return stability_map(made, n=n, d=WIDTH, seed=seed)


class Prepared(NamedTuple):
    """One prepared scene in words."""

    title: str
    question: str
    seen: str
    answer: str
    scene: Any


WHITENING: dict[str, Prepared] = {
    "claim": Prepared(
        "what §7.2 says",
        "Two keys overlap by ρ = 0.6. How much of the first does the second write touch?",
        "The write α̂ turns away from k1: its overlap falls from 0.6 to 0.068.",
        "Not to 0: A₁k₂ ∝ k₂ − ρ/(1 + λ0) k₁, and §7.2's k₂ − ρ k₁ is its limit λ0 → 0.",
        Whitening(),
    ),
    "limit": Prepared(
        "the limit λ0 → 0",
        "When is §7.2's claim, an overlap of 0, as good as true?",
        "The same two keys with λ0 = 1e-6: the ellipse is flat, the overlap 7.5e-7.",
        "As λ0 → 0 the write is at right angles to the first key, and one write removes only "
        "c = 0.8 of the residual.",
        Whitening(lambda0=1e-6),
    ),
    "soft": Prepared(
        "a large λ0",
        "What if the penalty starts large?",
        "With λ0 = 1 the ellipse starts and stays nearly round, and α̂ stays near its key.",
        "The overlap is 0.35 where §7.2 has 0: half of the whitening is gone.",
        Whitening(lambda0=1.0),
    ),
    "gains": Prepared(
        "which length of write",
        "The direction is the same for all. How long should the write be?",
        "Two keys 30° apart; unit, rls and oblique write along one line.",
        "Unit leaves 0.49 of the new pair, rls shares 0.30 between both, oblique stores the new "
        "pair exactly and takes 0.33 from the old.",
        Whitening(keys="0, 30"),
    ),
    "round": Prepared(
        "every direction used",
        "What does whitening do when no direction is free?",
        "Eight keys fill the half circle evenly; the ellipse is small and round again.",
        "With A round the last write is its own key, c = 1: unit VLA has become the delta rule, "
        "and the old pairs pay.",
        Whitening(keys="0, 22.5, 45, 67.5, 90, 112.5, 135, 157.5", step=8),
    ),
    "again": Prepared(
        "one key, four times",
        "One key is written four times. Where does the next one write?",
        "M has grown along k1 only, so the ellipse is thin there and free across it.",
        "The fifth write keeps 0.018 of its 0.6 overlap with k1, a quarter of what one write "
        "of k1 leaves: repeats act like a smaller λ0.",
        Whitening(keys="0, 0, 0, 0, 53.1", step=5),
    ),
    "space": Prepared(
        "three dimensions",
        "Two directions are used up. What is left for a third key between them and the vertical?",
        "k1 and k2 lie in the floor; the dotted outline, A before k3, stands upright on it.",
        "Its write rises to 87° where its key is at 50°: it leaves the used floor and takes the "
        "free vertical, though k3 has a cosine of 0.49 with k1 and of 0.60 with k2.",
        Whitening(show="space", keys="0/0, 60/0, 40/50", step=3),
    ),
    "map": Prepared(
        "which λ0 for which keys",
        "How small may λ0 be, and how alike the keys?",
        "Mean recall error of 16 pairs under the unit gain: rows are penalties, columns ρ.",
        "Below 0.01 the published gain has nothing more to win: 0.57 at ρ = 0.8. With gain rls the "
        "error there falls on to 7e-5, while ‖S‖ grows to 24, and to 326 at ρ = 0.999.",
        Whitening(show="map", step=2),
    ),
    "prepost": Prepared(
        "A before or after",
        "Paper A.1 takes the A after the update. Does it matter?",
        "Here u is 40° from its key, and the two directions lie 77° apart.",
        "It matters only then: set “u from k” to 0 and both coincide after normalisation, since "
        "A_t k is a multiple of A_{t−1} k.",
        Whitening(keys="0, 45", turn=40.0),
    ),
}


class WhiteningSession:
    """Holds the last good scene; controls and arrows both change it."""

    def __init__(self, query: Mapping[str, Any]) -> None:
        self.scene, notes = Whitening.from_query(query)
        self.changed: Callable[[WhiteningSession], object] = id
        self.geometry = self.scene.geometry()
        view = (self.scene.yaw, self.scene.pitch)
        self.plane = Plane(self.geometry, step=self.scene.step, view=view)
        self.heatmap = Heatmap({}, shown=False)
        self._turn_to()
        self.controls = Controls(Whitening, WHITENING, values=self.scene.texts(), notes=notes)
        self._tell()

    @property
    def preset(self) -> str:
        """The prepared scene on show, however it is turned; empty if it is one's own."""
        ahead = {name: Whitening.knobs()[name].default for name in _VIEW}
        return prepared_of(WHITENING, self.scene.with_(**ahead))

    @property
    def story(self) -> tuple[str, str]:
        """What the page's words depend on: the prepared scene, and which picture is shown."""
        return self.preset, self.scene.show

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the controls."""
        if told["serial"] != self.controls.answered:
            self._choose(told["values"], told["serial"])
        if told["wish"]:
            self._obey(told["wish"])

    def moved(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the arrows and the steps."""
        view = {name: round(float(x), 1) for name, x in zip(_VIEW, told["view"], strict=True)}
        if view != {name: getattr(self.scene, name) for name in view}:
            self.scene = self.scene.with_(**view)
            self._tell()
        if told["serial"] != self.plane.answered:
            keys = ", ".join(map(_written_angle, told["angles"]))
            step = min(int(told["step"]), len(told["angles"]))
            self._show(self.scene.with_(keys=keys, step=step), serial=told["serial"])
        elif told["step"] != self.scene.step:
            self.scene = self.scene.with_(step=min(int(told["step"]), len(self.scene.angles)))
            self._tell()

    def _choose(self, values: Mapping[str, Any], serial: int) -> None:
        here = {key: self.scene.texts()[key] for key in ("step", *_VIEW)}
        scene, notes = Whitening.read({**values, **here}, self.scene)
        try:
            last, before = len(scene.angles), len(self.scene.angles)
            step = last if scene.step == before else min(scene.step, last)
            self._show(scene.with_(step=step))
        except ArgumentError as error:
            notes.append(f"{error} The last picture stays.")
        with self.controls.hold_sync():
            self.controls.notes = notes
            self.controls.answered = serial

    def _obey(self, wish: str) -> None:
        act, _, name = wish.partition(":")
        if act == "open" and name in WHITENING:
            self.open(name)
        elif act == "save" and self.scene.show == "map":
            self.controls.save("vla-stability-map.csv", map_csv(self.scene).encode())
        elif act == "save":
            self.controls.save("vla-whitening.csv", to_csv(self.geometry).encode())
        self.controls.wish = ""

    def open(self, name: str) -> None:
        """Show a prepared scene. Raises ``KeyError`` for an unknown one."""
        scene = WHITENING[name].scene
        self.plane.view = [scene.yaw, scene.pitch]
        self._show(scene)
        self.controls.notes = []

    def _show(self, scene: Whitening, serial: int | None = None) -> None:
        self.geometry = scene.geometry()
        self.scene = scene
        self.plane.show(self.geometry, step=scene.step, serial=serial)
        self._turn_to()
        self._tell()

    def _turn_to(self) -> None:
        """One of the two pictures."""
        mapped = self.scene.show == "map"
        if mapped:
            self.heatmap.picture = drawn(self.scene)
        self.plane.shown, self.heatmap.shown = not mapped, mapped

    def _tell(self) -> None:
        with self.controls.hold_sync():
            self.controls.values = self.scene.texts()
            self.controls.preset = self.preset
            self.controls.query = self.scene.to_query()
        self.changed(self)


def prepared_of(prepared: Mapping[str, Prepared], scene: Table) -> str:
    """The name of the prepared scene that this one is, its step aside; empty if none."""
    for name, preset in prepared.items():
        if "step" not in scene.knobs():
            same = preset.scene == scene
        else:
            same = preset.scene.with_(step=0) == scene.with_(step=0)
        if same:
            return name
    return ""


def to_csv(shown: Geometry) -> str:
    """Every number of the picture, a row per step and gain."""
    file = io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    d = shown.k.shape[1]
    places = [f"{i + 1}{j + 1}" for i in range(d) for j in range(i, d)]
    rows.writerow([
        "step", "angle", "lambda0", "turn", "update", "gain", *(f"a{at}" for at in places),
        *(f"m{at}" for at in places), "delta", "cosine", *(f"alpha_{x}" for x in "xyz"[:d]),
        "overlap_k1", "length", "k_dot_gain", "residual", "left", "worst_old",
    ])  # fmt: skip
    for moment in shown.moments[1:]:
        for written in moment.written:
            rows.writerow(_row(shown, moment.step, written))
    return file.getvalue()


def _row(shown: Geometry, step: int, written: Any) -> Sequence[object]:
    moment = shown.moments[step]
    assert moment.direction is not None
    upper = torch.triu_indices(*moment.A.shape)
    A, M = (matrix[upper[0], upper[1]].tolist() for matrix in (moment.A, moment.M))
    return [
        step, _written_angle(shown.angles[step - 1]), shown.lambda0, shown.turn, shown.update,
        written.gain, *A, *M, moment.delta, moment.cosine,
        *moment.direction.tolist(), moment.overlaps[0] if moment.overlaps else "", written.length,
        written.aligned, written.residual, written.left,
        "" if math.isnan(written.worst_old) else written.worst_old,
    ]  # fmt: skip


def map_csv(scene: Whitening) -> str:
    """Both measures of every cell, a row per (λ0, ρ)."""
    shown, file = scene.map(), io.StringIO()
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(["rule", "n", "d", "seed", "lambda0", "rho", "recall_error", "norm_S"])
    for i, lambda0 in enumerate(shown.lambda0):
        for j, rho in enumerate(shown.rho):
            numbers = float(shown.recall[i, j]), float(shown.size[i, j])
            rows.writerow([scene.rule, scene.n, WIDTH, scene.seed, lambda0, rho, *numbers])
    return file.getvalue()


def drawn(scene: Whitening) -> dict[str, Any]:
    """The map as its widget draws it: every cell with the address of its trace."""
    shown = scene.map()
    values = getattr(shown, scene.measure).tolist()
    links = [
        [f"../step/?{urlencode(scene.cell(rho, lambda0).to_query())}" for rho in shown.rho]
        for lambda0 in shown.lambda0
    ]
    size = scene.measure == "size"
    name = "‖S‖ at the end" if size else "mean relative recall error"
    lane, gain = MAPPED[scene.rule]
    who = f"VLA with the {gain} gain" if gain else lane_title(lane)
    title = f"{name}, {scene.n} pairs of cosine ρ in a memory of width {WIDTH}: {who}"
    return table(
        values, links, rows=shown.lambda0, columns=shown.rho, title=title, name=name, log=size
    )


def _pair(word: str) -> tuple[float, float]:
    """``azimuth/elevation``; a missing elevation is 0. Raises ``ValueError``."""
    azimuth, _, elevation = word.partition("/")
    up = float(elevation or 0)
    if not (math.isfinite(float(azimuth)) and -90 <= up <= 90):
        raise ValueError(word)
    return _turned(float(azimuth)), round(up, 4)


def _written_angle(angle: Any) -> str:
    """A key as it is typed, to a tenth of a degree."""
    if isinstance(angle, list | tuple):
        return "/".join(f"{round(float(x), 1):g}" for x in angle)
    return f"{round(float(angle), 1):g}"


def _turned(angle: float) -> float:
    """The same direction from −180 (not itself) to 180."""
    return round(180 - (180 - angle) % 360, 4)
