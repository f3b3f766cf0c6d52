"""The stepper: an anywidget that plays a recorded trace in the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from vla.errors import ArgumentError, require_choice, require_integer
from vla.trace import Trace
from vla.widgets.html import fill, page_template
from vla.widgets.pack import MAX_BYTES, blob, lane_ids, uneven

HERE = Path(__file__).parent
THEMES = ("auto", "light", "dark")
SPEEDS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Multiples of two steps a second."""


class Stepper(anywidget.AnyWidget):
    """Step, play and question a :class:`vla.trace.Trace` in marimo, Jupyter or a saved page.

    ``step``, ``playing``, ``speed``, ``theme``, ``lanes``, ``log`` and ``stretch`` are synchronised
    both ways, ``height`` one way. While it plays, ``step`` reaches Python at most once a second and
    when it stops. ``lanes`` holds the ids of the visible lanes (:func:`vla.widgets.lane_ids`);
    empty means all. ``log`` draws the curves on a logarithmic axis. ``stretch`` colours by the
    square root, so that small entries show; it starts on if one lane would drown another (3 : 1).
    ``height`` is the wanted height in pixels at full width; 0 means 700.

    Raises ``ValueError`` for something that isn't a trace, one that is too large to send, and a
    step, speed or theme out of range.
    """

    _esm = HERE / "stepper.js"
    _css = HERE / "stepper.css"

    data = traitlets.Bytes(b"").tag(sync=True)
    step = traitlets.Int(0).tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    speed = traitlets.Float(1.0).tag(sync=True)
    theme = traitlets.Unicode("auto").tag(sync=True)
    lanes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    log = traitlets.Bool(False).tag(sync=True)
    stretch = traitlets.Bool(False).tag(sync=True)
    height = traitlets.Int(0).tag(sync=True)
    page = traitlets.Unicode("").tag(sync=True)
    """The template of a saved page, for the button that saves the view without a kernel."""

    def __init__(
        self,
        trace: Trace,
        *,
        step: int = 0,
        speed: float = 1.0,
        theme: str = "auto",
        lanes: list[str] | None = None,
        log: bool = False,
        stretch: bool | None = None,
        height: int = 0,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        require_choice("theme", theme, THEMES)
        require_choice("speed", speed, SPEEDS)
        require_integer("height", height, low=0, high=4000)
        self._max_bytes = max_bytes
        data = blob(trace, max_bytes=max_bytes)
        require_integer("step", step, low=0, high=len(trace) - 1)
        self._trace = trace
        super().__init__(
            data=data,
            step=step,
            speed=float(speed),
            theme=theme,
            lanes=_known(lanes or [], trace),
            log=log,
            stretch=uneven(trace) if stretch is None else stretch,
            height=height,
            page=page_template(),
        )

    @property
    def trace(self) -> Trace:
        """The trace on show; assign one to replace it, as :meth:`show` does."""
        return self._trace

    @trace.setter
    def trace(self, trace: Trace) -> None:
        self.show(trace)

    def show(self, trace: Trace, *, step: int | None = None) -> None:
        """Replace the trace and keep the place: step, visible lanes, playing and speed.

        The step is cut to the new length. Lanes that weren't there before come up visible.
        Raises ``ValueError`` as the constructor does, and then the old trace stays.
        """
        data = blob(trace, max_bytes=self._max_bytes)
        before = set(lane_ids(self._trace.lanes))
        wanted = min(self.step if step is None else max(step, 0), len(trace) - 1)
        visible = [
            name for name in lane_ids(trace.lanes) if name in self.lanes or name not in before
        ]
        with self.hold_sync():
            self._trace = trace
            self.data = data
            self.step = wanted
            self.lanes = visible if self.lanes else []

    def view(self) -> dict[str, Any]:
        """What a link or a saved page needs to show the same view."""
        names = ("step", "speed", "theme", "lanes", "log", "stretch")
        return {name: getattr(self, name) for name in names}

    def to_html(self, *, title: str = "") -> str:
        """This view as one self-contained page; see :func:`vla.widgets.to_html`."""
        return fill(self.page, self.data, self.view(), title or self._trace.stream.name)

    def save_html(self, path: str | Path, *, title: str = "") -> Path:
        """Write :meth:`to_html` to ``path`` and return it."""
        path = Path(path)
        path.write_text(self.to_html(title=title), encoding="utf-8")
        return path

    @traitlets.validate("step")
    def _cut_step(self, proposal: Any) -> int:
        return int(min(max(proposal["value"], 0), len(self._trace) - 1))


def _known(lanes: list[str], trace: Trace) -> list[str]:
    ids = lane_ids(trace.lanes)
    for name in lanes:
        if name not in ids:
            raise ArgumentError("lanes", name, "names among " + ", ".join(ids))
    return [name for name in ids if name in lanes]
