"""Buttons that keep what is on show: the picture as PNG or as a page of its own, numbers as CSV."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

HERE = Path(__file__).parent


class Keep(anywidget.AnyWidget):
    """``files`` gives each button its file when it is pressed: label → () → (name, content).

    The picture as PNG is made by the page itself, from the figures inside ``.picture``.
    """

    _esm = "\n".join((HERE / part).read_text("utf-8") for part in ("form.js", "keep.js"))
    _css = HERE / "sheet.css"

    labels = traitlets.List(traitlets.Unicode()).tag(sync=True)
    wish = traitlets.Unicode("").tag(sync=True)
    """The label of the button that was pressed; then cleared."""
    saved = traitlets.Bytes(b"").tag(sync=True)
    saved_name = traitlets.Unicode("").tag(sync=True)
    saves = traitlets.Int(0).tag(sync=True)

    def __init__(self, files: Mapping[str, Callable[[], tuple[str, bytes]]]) -> None:
        super().__init__(labels=list(files))
        self.files = dict(files)

    def react(self, told: Mapping[str, Any]) -> None:
        """Hand the browser the file that was asked for."""
        if told["wish"] not in self.files:
            return
        name, content = self.files[told["wish"]]()
        with self.hold_sync():
            self.wish = ""
            self.saved, self.saved_name = content, name
            self.saves += 1


def as_page(figure: Any) -> bytes:
    """A plotly figure as one HTML file that works offline, its words under it."""
    from html import escape

    from vla.figures.theme import alt

    page = figure.to_html(include_plotlyjs=True, full_html=True)
    return str(page).replace("</body>", f"<p>{escape(alt(figure))}</p></body>").encode()
