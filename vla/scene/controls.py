"""The controls of an app whose scene is a :class:`vla.scene.table.Table`, as an anywidget."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from vla.scene.panel import describe
from vla.scene.table import Table

HERE = Path(__file__).parent


class Controls(anywidget.AnyWidget):
    """One control per knob, prepared scenes, messages, a link and the data as a file.

    It follows the protocol of :class:`vla.scene.panel.Panel`: ``values`` are texts under their keys
    in the address; the browser counts what it sends in ``serial`` and waits for ``answered``.
    """

    _esm = "\n".join((HERE / part).read_text("utf-8") for part in ("form.js", "controls.js"))
    _css = HERE / "panel.css"

    table: Any = traitlets.List().tag(sync=True)
    presets: Any = traitlets.List().tag(sync=True)
    values = traitlets.Dict().tag(sync=True)
    serial = traitlets.Int(0).tag(sync=True)
    answered = traitlets.Int(0).tag(sync=True)
    preset = traitlets.Unicode("").tag(sync=True)
    wish = traitlets.Unicode("").tag(sync=True)
    """``open:NAME``, ``save`` or ``stop``; then cleared."""
    progress = traitlets.Float(-1.0).tag(sync=True)
    """Share of a long computation that is done; negative: none is under way."""
    beat = traitlets.Int(0).tag(sync=True)
    """Counts the slices of a long computation; the browser copies it into ``beaten``, which asks
    for the next one. So a page stays responsive, and work ends when its page is closed."""
    beaten = traitlets.Int(0).tag(sync=True)
    look = traitlets.Unicode("light").tag(sync=True)
    """``light`` or ``dark``, as the page is: told by the browser."""
    notes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    query = traitlets.Dict().tag(sync=True)
    saved = traitlets.Bytes(b"").tag(sync=True)
    saved_name = traitlets.Unicode("").tag(sync=True)
    saves = traitlets.Int(0).tag(sync=True)
    """Counts the files saved, so that the same one can be saved twice."""

    def __init__(self, scene: type[Table], presets: Mapping[str, Any], **traits: Any) -> None:
        known = scene.knobs()
        super().__init__(
            table=[describe(name, k) for name, k in known.items() if k.group != "View"],
            presets=[
                {"name": name, "title": preset.title, "question": preset.question}
                for name, preset in presets.items()
            ],
            **traits,
        )

    def save(self, name: str, content: bytes) -> None:
        """Hand a file to the browser."""
        with self.hold_sync():
            self.saved, self.saved_name = content, name
            self.saves += 1
