"""One visit to the stepping app: a scene, its controls and its picture, kept in step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from vla import lab
from vla.errors import ArgumentError
from vla.scene.panel import Panel
from vla.scene.presets import PRESETS, preset_of
from vla.scene.scene import LAYER, Scene, knobs
from vla.trace import Trace
from vla.trace.file import from_bytes, to_bytes
from vla.widgets import Stepper, lane_ids
from vla.widgets.stepper import SPEEDS

MAX_UPLOAD = 64 * 2**20
PLAYING_TIME = 5.0
"""Seconds in which a prepared scene plays to its answer; shorter ones keep their usual speed."""


class Session:
    """Holds the last good scene. What can't be traced becomes a message; the picture stays.

    ``changed`` is called with the session after anything that the words of the page depend on.
    """

    def __init__(self, query: Mapping[str, Any]) -> None:
        self.scene, notes, trace = _first(query)
        self.changed: Callable[[Session], object] = id
        self._told: tuple[str | None, bool] | None = None
        self.stepper = Stepper(trace, step=min(self.scene.step, len(trace) - 1))
        self._show_lanes()
        self._pace()
        self.panel = Panel(values=self.scene.texts(), notes=notes, origin=_origin())
        self._tell()

    @property
    def preset(self) -> str | None:
        """The prepared scene that is on show, if it is one."""
        return None if self.panel.source else preset_of(self.scene)

    @property
    def at_end(self) -> bool:
        """Whether the last step is on show, so that the question has its answer."""
        return self.scene.step >= len(self.stepper.trace) - 1

    @property
    def story(self) -> tuple[str | None, bool]:
        """What the page's words depend on: the prepared scene, and whether it has been stepped."""
        return self.preset, self.at_end

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the person did to the controls: the traits of the panel, as they stand."""
        if told["serial"] != self.panel.answered:
            self.choose(told["values"], told["serial"])
        if told["wish"]:
            self.obey(told["wish"])

    def choose(self, values: Mapping[str, Any], serial: int = 0) -> None:
        """Take the controls' values; step, visible lanes and seed stay."""
        here = {key: text for key, text in self.scene.texts().items() if _is_view(key)}
        scene, notes = Scene.read({**values, **here}, self.scene)
        if scene.kind == LAYER:
            scene, cuts = scene.within_model()
            notes += cuts
        repaired = scene.texts() if notes else None
        try:
            self._picture(scene)
        except Exception as error:  # A rule from outside may raise anything.
            notes.append(_plain(error))
        with self.panel.hold_sync():
            if repaired:
                self.panel.values = repaired
            self.panel.notes = notes
            self.panel.answered = serial
            self._tell()

    def open(self, name: str) -> None:
        """Show a prepared scene from its own step on. Raises ``ValueError`` for an unknown one."""
        if name not in PRESETS:
            raise ArgumentError("scene", name, "one of " + ", ".join(PRESETS))
        scene = PRESETS[name].scene
        self._picture(scene, step=scene.step)
        self._show_lanes()
        self._pace()
        with self.panel.hold_sync():
            self.panel.values = scene.texts()
            self.panel.notes = []
            self._tell()

    def load(self, name: str, content: bytes) -> None:
        """Show a trace from a file. A damaged or foreign one becomes a message."""
        try:
            if len(content) > MAX_UPLOAD:
                raise ArgumentError("trace file", f"{len(content)} bytes", f"at most {MAX_UPLOAD}")
            self.stepper.show(from_bytes(content, name=name))
        except ValueError as error:
            self.panel.notes = [_plain(error)]
            return
        self.panel.source = name
        self.panel.notes = []
        self._tell()

    def save(self) -> bytes:
        """The trace on show, as a file's content."""
        return to_bytes(self.stepper.trace)

    def walked(self, step: int, lanes: list[str]) -> None:
        """The person moved: remember where, so that a link says so."""
        if self.panel.source:
            return
        ids = dict(zip(lane_ids(self.stepper.trace.lanes), self.scene.running, strict=True))
        hidden = tuple(name for lane, name in ids.items() if lanes and lane not in lanes)
        self.scene = self.scene.with_(step=step, hidden=hidden)
        self._tell()

    def obey(self, wish: str) -> None:
        """Do what the panel asked for beside its values."""
        act, _, name = wish.partition(":")
        if act == "open" and name in PRESETS:
            self.open(name)
        elif act == "save":
            self.panel.saved = b""  # So that the same file can be saved again.
            self.panel.saved = self.save()
        elif act == "load":
            self.load(self.panel.upload_name, self.panel.upload)
            self.panel.upload = b""
        self.panel.wish = ""

    def _picture(self, scene: Scene, step: int | None = None) -> None:
        self.stepper.show(scene.trace(), step=step)
        self.panel.source = ""
        self.scene = scene.with_(step=self.stepper.step)

    def _show_lanes(self) -> None:
        self.stepper.lanes = self.scene.visible() if self.scene.hidden else []

    def _pace(self) -> None:
        left = len(self.stepper.trace) - 1 - self.stepper.step
        fast = (speed for speed in SPEEDS if speed >= 1 and left / (2 * speed) <= PLAYING_TIME)
        self.stepper.speed = next(fast, SPEEDS[-1])

    def _tell(self) -> None:
        self.panel.preset = self.preset or ""
        self.panel.query = self.scene.to_query()
        if self.story != self._told:
            self._told = self.story
            self.changed(self)


def _is_view(key: str) -> bool:
    return any(knob.key == key and knob.group == "View" for knob in knobs().values())


def _first(query: Mapping[str, Any]) -> tuple[Scene, list[str], Trace]:
    """The scene of an address with its trace; the prepared one if that can't be traced."""
    scene, notes = Scene.from_query(query)
    try:
        return scene, notes, scene.trace()
    except Exception as error:  # A rule from outside may raise anything.
        notes.append(_plain(error, "The prepared scene is shown."))
        return Scene(), notes, Scene().trace()


def _plain(error: Exception, then: str = "The last picture stays.") -> str:
    """An error as a message; one that isn't meant for people is named by its kind."""
    words = str(error) if isinstance(error, ArgumentError) else f"{type(error).__name__}: {error}."
    return f"{words} {then}"


def _origin() -> str:
    return " ".join(
        f"Rules from {loaded.path}: {', '.join(loaded.names)}." for loaded in lab.rule_files
    )
