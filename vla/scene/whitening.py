"""Scenes of the whitening app: keys in the plane, prepared questions, and the session of a page."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from vla.errors import ArgumentError
from vla.scene.controls import Controls
from vla.scene.table import Table, knob
from vla.theory.geometry import MAX_KEYS, Geometry, geometry
from vla.widgets.plane import Plane

_DEFAULT_KEYS = "0, 53.1"


@dataclass(frozen=True)
class Whitening(Table):
    """Which keys are written, with what penalty, and which write is looked at."""

    keys: str = knob(
        "keys", "text", _DEFAULT_KEYS, "Keys, in degrees", "Keys",
        "Unit keys in the order of writing, 1 to 8. Drag the arrows or type.", low=1, high=200,
    )  # fmt: skip
    lambda0: float = knob(
        "lambda0", "float", 0.1, "λ0", "Penalty",
        "A starts as I/λ0; small turns further.", low=1e-6, high=100.0,
    )  # fmt: skip
    turn: float = knob(
        "turn", "float", 0.0, "u from k", "Penalty",
        "Degrees from each key to its u; §7 has u = k, which is 0.", low=-90, high=90, step=1,
    )  # fmt: skip
    update: str = knob(
        "update", "choice", "post", "A of the write", "Penalty",
        "post: α from the new A (paper A.1); pre: from the one before it.",
        choices=lambda: ("post", "pre"),
    )  # fmt: skip
    step: int = knob(
        "step", "int", 2, "step", "View", "Which write is looked at; 0 is before the first.",
        high=MAX_KEYS, step=1,
    )  # fmt: skip

    @property
    def angles(self) -> tuple[float, ...]:
        """The keys as angles, from −180 to 180. Raises ``ValueError`` for anything else."""
        words = self.keys.replace(";", ",").replace("−", "-").replace("°", "").split(",")
        try:
            given = [float(word) for word in words if word.strip()]
        except ValueError:
            given = []
        if not 1 <= len(given) <= MAX_KEYS or not all(math.isfinite(a) for a in given):
            shown = f"“{self.keys[:40]}”"
            wanted = f"1 to {MAX_KEYS} angles with commas between them, such as {_DEFAULT_KEYS}"
            raise ArgumentError("keys", shown, wanted)
        return tuple(_turned(angle) for angle in given)

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
        self.plane = Plane(self.geometry, step=self.scene.step)
        self.controls = Controls(Whitening, WHITENING, values=self.scene.texts(), notes=notes)
        self._tell()

    @property
    def preset(self) -> str:
        """The prepared scene on show; empty if it is one's own."""
        return prepared_of(WHITENING, self.scene)

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the controls."""
        if told["serial"] != self.controls.answered:
            self._choose(told["values"], told["serial"])
        if told["wish"]:
            self._obey(told["wish"])

    def moved(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the arrows and the steps."""
        angles = tuple(round(float(a), 1) for a in told["angles"])
        if told["serial"] != self.plane.answered:
            keys = ", ".join(f"{angle:g}" for angle in angles)
            step = min(int(told["step"]), len(angles))
            self._show(self.scene.with_(keys=keys, step=step), serial=told["serial"])
        elif told["step"] != self.scene.step:
            self.scene = self.scene.with_(step=min(int(told["step"]), len(self.scene.angles)))
            self._tell()

    def _choose(self, values: Mapping[str, Any], serial: int) -> None:
        scene, notes = Whitening.read({**values, "step": str(self.scene.step)}, self.scene)
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
        elif act == "save":
            self.controls.save("vla-whitening.csv", to_csv(self.geometry).encode())
        self.controls.wish = ""

    def open(self, name: str) -> None:
        """Show a prepared scene. Raises ``KeyError`` for an unknown one."""
        self._show(WHITENING[name].scene)
        self.controls.notes = []

    def _show(self, scene: Whitening, serial: int | None = None) -> None:
        self.geometry = scene.geometry()
        self.scene = scene
        self.plane.show(self.geometry, step=scene.step, serial=serial)
        self._tell()

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
    rows.writerow([
        "step", "angle", "lambda0", "turn", "update", "gain", "a11", "a12", "a22", "m11", "m12",
        "m22", "delta", "cosine", "alpha_x", "alpha_y", "overlap_k1", "length", "k_dot_gain",
        "residual", "left", "worst_old",
    ])  # fmt: skip
    for moment in shown.moments[1:]:
        for written in moment.written:
            rows.writerow(_row(shown, moment.step, written))
    return file.getvalue()


def _row(shown: Geometry, step: int, written: Any) -> Sequence[object]:
    moment = shown.moments[step]
    assert moment.direction is not None
    A, M = moment.A.tolist(), moment.M.tolist()
    return [
        step, shown.angles[step - 1], shown.lambda0, shown.turn, shown.update, written.gain,
        A[0][0], A[0][1], A[1][1], M[0][0], M[0][1], M[1][1], moment.delta, moment.cosine,
        *moment.direction.tolist(), moment.overlaps[0] if moment.overlaps else "", written.length,
        written.aligned, written.residual, written.left,
        "" if math.isnan(written.worst_old) else written.worst_old,
    ]  # fmt: skip


def _turned(angle: float) -> float:
    """The same direction from −180 (not itself) to 180."""
    return round(180 - (180 - angle) % 360, 4)
