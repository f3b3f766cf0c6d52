"""The plane: keys as arrows to drag, and what every write does to the geometry around them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from vla.figures.colour import readable
from vla.figures.theme import THEMES, shade
from vla.rules import RULES
from vla.theory.geometry import Geometry, Moment, Written

HERE = Path(__file__).parent


class Plane(anywidget.AnyWidget):
    """Draws a :class:`vla.theory.geometry.Geometry`; the browser computes nothing.

    ``angles`` and ``step`` are synchronised both ways. A moved arrow follows the pointer at once;
    all else follows when Python has answered its ``serial`` with a new ``picture``.
    """

    _esm = HERE / "plane.js"
    _css = HERE / "plane.css"

    picture = traitlets.Dict().tag(sync=True)
    angles: Any = traitlets.List().tag(sync=True)
    """Degrees of each key: a number in the plane, ``[azimuth, elevation]`` in space."""
    view = traitlets.List(traitlets.Float()).tag(sync=True)
    """Yaw and pitch from which a space is seen, in degrees; synchronised both ways."""
    shown = traitlets.Bool(True).tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    serial = traitlets.Int(0).tag(sync=True)
    answered = traitlets.Int(0).tag(sync=True)
    colours = traitlets.Dict().tag(sync=True)

    def __init__(
        self, shown: Geometry, *, step: int = 0, view: tuple[float, float] = (30.0, 20.0)
    ) -> None:
        colours = {
            name: {rule: shade(RULES[rule].colour, look) for rule in ("vla", "delta")}
            | {f"{rule}_text": _text(rule, look.paper) for rule in ("vla", "delta")}
            | {"paper": look.paper, "ink": look.ink, "muted": look.muted, "grid": look.grid}
            | {"diverging": list(look.diverging)}
            for name, look in THEMES.items()
        }
        super().__init__(
            picture=as_data(shown), angles=_plain(shown), step=step, colours=colours,
            view=list(view),
        )  # fmt: skip

    def show(self, shown: Geometry, *, step: int, serial: int | None = None) -> None:
        """Replace the picture. With a ``serial``, as the answer to the person's own move."""
        with self.hold_sync():
            self.picture = as_data(shown)
            self.step = step
            if serial is None:
                self.angles = _plain(shown)
            else:
                self.answered = serial


def as_data(shown: Geometry) -> dict[str, Any]:
    """A geometry as JSON. A number that doesn't exist is ``None``."""
    return {
        "angles": _plain(shown), "dims": shown.k.shape[1], "lambda0": shown.lambda0,
        "turn": shown.turn, "update": shown.update, "k": shown.k.tolist(), "u": shown.u.tolist(),
        "rho": _number(shown.rho), "left": _number(shown.left),
        "over_rho": shown.over_rho().tolist(), "over_lambda0": shown.over_lambda0().tolist(),
        "moments": [_moment(moment) for moment in shown.moments],
    }  # fmt: skip


def _plain(shown: Geometry) -> list[Any]:
    return [list(angle) if isinstance(angle, tuple) else angle for angle in shown.angles]


def _moment(moment: Moment) -> dict[str, Any]:
    return {
        "A": moment.A.tolist(), "M": moment.M.tolist(), "axes": list(moment.axes),
        "tilt": moment.tilt, "directions": moment.directions.tolist(),
        "delta": _number(moment.delta), "cosine": _number(moment.cosine),
        "overlaps": list(moment.overlaps), "apart": _number(moment.apart),
        **{name: _vector(getattr(moment, name)) for name in ("direction", "before", "after")},
        "written": [_written(each) for each in moment.written],
    }  # fmt: skip


def _written(written: Written) -> dict[str, Any]:
    return {
        "gain": written.gain, "vector": written.vector.tolist(), "length": written.length,
        "aligned": written.aligned, "residual": written.residual, "left": written.left,
        "worst": _number(written.worst_old), "recall": list(written.recall),
    }  # fmt: skip


def _text(rule: str, paper: str) -> str:
    """The rule's colour as words can have it: WCAG AA."""
    return readable(RULES[rule].colour, paper, 4.5)


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _vector(vector: Any) -> list[float] | None:
    return None if vector is None else vector.tolist()
