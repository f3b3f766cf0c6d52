"""A heatmap whose every cell is a link: over penalties and correlations, to the trace behind it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from vla.figures.theme import THEMES

HERE = Path(__file__).parent


class Heatmap(anywidget.AnyWidget):
    """Draws a table of numbers as coloured cells; the browser computes nothing but colours.

    Arrow keys walk over the cells, Enter opens one. ``shown`` hides the whole.
    """

    _esm = HERE / "heatmap.js"
    _css = HERE / "heatmap.css"

    picture = traitlets.Dict().tag(sync=True)
    shown = traitlets.Bool(True).tag(sync=True)
    colours = traitlets.Dict().tag(sync=True)

    def __init__(self, picture: dict[str, Any], *, shown: bool = True) -> None:
        colours = {name: list(look.sequential) for name, look in THEMES.items()}
        super().__init__(picture=picture, shown=shown, colours=colours)


def table(
    values: Sequence[Sequence[float]],
    links: Sequence[Sequence[str]],
    *,
    rows: Sequence[float],
    columns: Sequence[float],
    title: str,
    name: str,
    log: bool = False,
) -> dict[str, Any]:
    """What a :class:`Heatmap` draws. ``name`` is what a value is; NaN and infinity have no colour.

    ``log`` spaces the colours by powers of ten.
    """
    return {
        "values": [[x if math.isfinite(x) else None for x in row] for row in values],
        "links": [list(row) for row in links], "rows": list(rows), "columns": list(columns),
        "title": title, "name": name, "log": log,
    }  # fmt: skip
