"""How every figure looks: light and dark from the same tokens, one colour per rule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from vla.errors import require_choice
from vla.figures.colour import readable
from vla.rules import RULES
from vla.trace import Lane
from vla.typing import Float

Array = np.ndarray
MOST_POINTS = 2_000
DASHES = ("solid", "dot", "dashdot", "longdash")
"""One after the other where a colour comes again; a plain dash means "as published"."""


@dataclass(frozen=True)
class Theme:
    """The tokens a figure is made from."""

    name: str
    paper: str
    ink: str
    muted: str
    grid: str
    diverging: tuple[str, ...]
    """Negative to positive; the middle is zero and melts into the paper."""
    sequential: tuple[str, ...]
    """From nothing to much."""


LIGHT = Theme(
    name="light", paper="#FFFFFF", ink="#1B1F23", muted="#5A626A", grid="#E4E7EA",
    diverging=("#053B66", "#3B8BC2", "#F5F5F5", "#E07B39", "#7F2E00"),
    sequential=("#F5F5F5", "#B7BFD8", "#6F7FB0", "#3A4A80", "#15204A"),
)  # fmt: skip
DARK = Theme(
    name="dark", paper="#14181C", ink="#ECEFF1", muted="#A7B0B8", grid="#2B3238",
    diverging=("#A9D9FB", "#3B8BC2", "#1D2228", "#CC6A2B", "#FFC39A"),
    sequential=("#1D2228", "#3A4A80", "#6F7FB0", "#B0B9D9", "#F0F2FA"),
)  # fmt: skip
THEMES = {"light": LIGHT, "dark": DARK}

FONT = "'Source Sans 3', 'Segoe UI', 'Helvetica Neue', Arial, sans-serif"


def theme(name: str) -> Theme:
    """The named theme; ``ValueError`` for an unknown name."""
    require_choice("theme", name, THEMES)
    return THEMES[name]


def template(look: Theme) -> go.layout.Template:
    """The plotly template of a theme: every figure has one and sets nothing of it itself."""
    axis = {
        "gridcolor": look.grid, "linecolor": look.muted, "zerolinecolor": look.grid,
        "tickcolor": look.muted, "ticks": "outside", "ticklen": 4, "showline": True,
        "automargin": True,
        "title": {"font": {"size": 13, "color": look.muted}, "standoff": 6}, "hoverformat": ".3g",
    }  # fmt: skip
    layout = go.Layout(
        paper_bgcolor=look.paper, plot_bgcolor=look.paper,
        font={"family": FONT, "size": 13, "color": look.ink},
        title={"x": 0, "xref": "container", "y": 1, "yref": "container", "yanchor": "top",
               "pad": {"l": 16, "t": 14}, "font": {"size": 16}},
        legend={"orientation": "h", "x": 0, "yref": "container", "yanchor": "top",
                "font": {"size": 13}},
        hoverlabel={"font": {"family": FONT, "size": 13}}, hovermode="closest",
        xaxis=axis, yaxis=axis, margin={"l": 64, "r": 24, "t": 92, "b": 52},
    )  # fmt: skip
    return go.layout.Template(layout=layout)


def finish(
    figure: go.Figure, look: Theme, *, title: str, alt: str, height: int = 420, **layout: Any
) -> go.Figure:
    """Dress a figure: template, title, height, and the text that stands in for the picture.

    The legend hangs under the title and pushes the plot down where it wraps, on a phone.
    """
    return figure.update_layout(
        template=template(look), title_text=title, height=height, meta={"alt": alt},
        legend_y=1 - 42 / height, **{"showlegend": True, **layout},
    )  # fmt: skip


def alt(figure: go.Figure) -> str:
    """What the figure shows, in words with its numbers: for screen readers and for text pages."""
    meta = figure.layout.meta
    return meta.get("alt", "") if isinstance(meta, dict) else ""


def colourscale(stops: Sequence[str]) -> list[list[float | str]]:
    """Stops at even distances, as plotly wants them."""
    return [[i / (len(stops) - 1), stop] for i, stop in enumerate(stops)]


def shade(colour: str, look: Theme) -> str:
    """A rule's colour, readable as a line on this theme's paper."""
    return readable(colour, look.paper)


def line(
    colour: str, *, published: bool = False, dash: str = "solid", width: float = 2
) -> dict[str, Any]:
    """A line in a rule's colour; what the paper states is dashed."""
    return {"color": colour, "width": width, "dash": "dash" if published else dash}


def marker(colour: str, *, published: bool = False, size: int = 8) -> dict[str, Any]:
    """A mark in a rule's colour; what the paper states is hollow."""
    outline = {"color": colour, "width": 2 if published else 0}
    return {
        "color": colour, "size": size, "line": outline,
        "symbol": "circle-open" if published else "circle",
    }  # fmt: skip


@dataclass(frozen=True)
class Pen:
    """How one lane is drawn."""

    title: str
    colour: str
    dash: str
    published: bool
    width: float


def pens(lanes: Iterable[Lane], look: Theme) -> list[Pen]:
    """One pen per lane: the rule's colour, dashed if as published, dashes where rules repeat.

    Earlier lanes are wider, so that lines which coincide are all seen.
    """
    seen: dict[str, int] = {}
    made: list[Pen] = []
    for lane in (lanes := list(lanes)):
        turn = seen.setdefault(lane.colour, 0)
        seen[lane.colour] += 1
        published = is_published(lane)
        dash = "dash" if published else DASHES[turn % len(DASHES)]
        width = 2 + min(3.2, 0.8 * (len(lanes) - 1 - len(made)))
        made.append(Pen(lane.title, shade(lane.colour, look), dash, published, width))
    return made


def is_published(lane: Lane) -> bool:
    """Whether a lane ran its rule exactly as the paper's text has it."""
    presets = [rule.as_published() for rule in RULES.values() if hasattr(rule, "as_published")]
    return any((p.colour, p.settings) == (lane.colour, lane.settings) for p in presets)


def three(value: float | None) -> str:
    """Three significant digits for a label; a dash where there is no number.

    >>> three(0.123456), three(1633.9), three(0.0), three(1.5e-9), three(float("nan"))
    ('0.123', '1630', '0', '1.50e−9', '–')
    """
    if value is None or not math.isfinite(value):
        return "–" if value is None or math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(float(f"{value:.2e}"))))
    if not -4 <= exponent < 6:
        return f"{value / 10.0**exponent:.2f}e{exponent}".replace("-", "−")
    return f"{float(f'{value:.2e}'):.{max(0, 2 - exponent)}f}".replace("-", "−")


def thin(rows: Float[Array, "n"], most: int = MOST_POINTS) -> Float[Array, "m"]:
    """Indices of the numbers to draw: no NaN, and ``most`` at even distances if there are more."""
    known = np.flatnonzero(~np.isnan(rows))
    if len(known) <= most:
        return known
    return known[np.linspace(0, len(known) - 1, most).round().astype(int)]
