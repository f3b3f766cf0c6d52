"""Pictures of the chunk form: matrices beside one another, what a chunk size does, rounding."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from vla.errors import ArgumentError, require_integer
from vla.figures.theme import DASHES, Theme, colourscale, finish, marker, shade, theme, three
from vla.rules import RULES
from vla.typing import Float

Array = np.ndarray
SYMBOLS = ("circle", "diamond", "square", "cross", "star")
STATE, TRIANGLE = 0.35, 1.0
"""How dark a pair of tokens is that meets through the state, and inside a chunk."""


def arrays(
    panels: Mapping[str, Float[Array, "r c"]],
    *,
    title: str,
    largest: Mapping[str, float] | None = None,
    theme_name: str = "light",
) -> go.Figure:
    """Signed matrices beside one another; NaN is left blank.

    Each has its own scale, centred at zero, written under its name. ``largest`` fixes the scale of
    the panels it names, so that pictures of several moments compare. Raises ``ValueError`` for no
    panels or an unknown theme.
    """
    look = theme(theme_name)
    if not panels:
        raise ArgumentError("panels", "no matrix", "at least one")
    ends = {name: _end(values, (largest or {}).get(name)) for name, values in panels.items()}
    titles = [f"{name}<br>±{three(ends[name])}" for name in panels]
    figure = make_subplots(1, len(panels), subplot_titles=titles, horizontal_spacing=0.04)
    for col, (name, values) in enumerate(panels.items(), start=1):
        figure.add_trace(_matrix(name, values, ends[name], look), row=1, col=col)
        _square(figure, col, values.shape)
    words = "; ".join(
        f"{name}, {' by '.join(map(str, x.shape))}, entries to {three(ends[name])}"
        for name, x in panels.items()
    )
    return finish(
        figure, look, title=title, showlegend=False, height=330, alt=f"{title}. {words}.",
        margin={"l": 24, "r": 24, "t": 104, "b": 24},
    )  # fmt: skip


def meetings(tokens: int, chunk: int, *, theme_name: str = "light") -> go.Figure:
    """Where query t meets key s ≤ t: dark in the triangle of one chunk, light through the state.

    Raises ``ValueError`` unless both numbers are at least 1, and for an unknown theme.
    """
    look = theme(theme_name)
    require_integer("tokens", tokens, low=1)
    require_integer("chunk", chunk, low=1)
    of = np.arange(tokens) // chunk
    same = of[:, None] == of[None, :]
    causal = np.tril(np.ones((tokens, tokens), dtype=bool))
    values = np.where(causal, np.where(same, TRIANGLE, STATE), np.nan)
    figure = go.Figure(
        go.Heatmap(
            z=values, zmin=0, zmax=1, colorscale=colourscale(look.sequential), showscale=False,
            xgap=1, ygap=1, hovertemplate="query of token %{y}, key of token %{x}<extra></extra>",
        )
    )  # fmt: skip
    _square(figure, 1, values.shape)
    chunks, inside = int(of[-1]) + 1, int((same & causal).sum())
    words = f"{chunks} chunks one after the other, {inside} pairs inside a chunk"
    return finish(
        figure, look, title=f"{tokens} tokens in chunks of {chunk}: {words}", showlegend=False,
        height=380, alt=f"{tokens} tokens in chunks of {chunk}: {words}; all other pairs meet "
        "through the state.", margin={"l": 24, "r": 24, "t": 56, "b": 24},
    )  # fmt: skip


def against_chunk_size(
    sizes: Sequence[int],
    lines: Mapping[str, Sequence[float]],
    *,
    title: str,
    quantity: str,
    measured: Mapping[str, Sequence[float]] | None = None,
    theme_name: str = "light",
) -> go.Figure:
    """One quantity against the chunk size, both axes logarithmic; ``measured`` adds dots.

    Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure, colour = go.Figure(), shade(RULES["vla"].colour, look)
    for i, (name, values) in enumerate(lines.items()):
        style = {"color": colour, "width": 2, "dash": DASHES[i % len(DASHES)]}
        figure.add_trace(_drawn(sizes, values, name, "%{x}, %{y:.3g}", line=style))
    for i, (name, values) in enumerate((measured or {}).items()):
        style = marker(colour, size=10) | {"symbol": SYMBOLS[i % len(SYMBOLS)]}
        figure.add_trace(_drawn(sizes, values, name, "%{x}, %{y:.3g}", marker=style))
    figure.update_xaxes(title_text="chunk size C", type="log", tickvals=list(sizes),
                        ticktext=[f"{size}" for size in sizes])  # fmt: skip
    figure.update_yaxes(title_text=quantity, type="log", dtick="D2", tickformat="~g")
    least = "; ".join(
        f"{name} is least, {three(min(values))}, at C = {sizes[int(np.argmin(values))]}"
        for name, values in {**lines, **(measured or {})}.items()
    )
    return finish(figure, look, title=title, alt=f"{title}: {least}.")


def rounding(
    rows: Sequence[str],
    errors: Mapping[str, Sequence[float]],
    *,
    title: str,
    bounds: Sequence[float] | None = None,
    theme_name: str = "light",
) -> go.Figure:
    """Relative errors on a logarithmic axis: a row per case, a mark per route, a bar per bound.

    Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure, colour = go.Figure(), shade(RULES["vla"].colour, look)
    for i, (name, values) in enumerate(errors.items()):
        style = {"color": colour if i else look.muted, "size": 10,
                 "symbol": SYMBOLS[i % len(SYMBOLS)]}  # fmt: skip
        figure.add_trace(_drawn(values, rows, name, "%{x:.2e}", marker=style))
    if bounds is not None:
        style = {"symbol": "line-ns", "size": 18, "line": {"width": 2, "color": look.ink}}
        figure.add_trace(_drawn(bounds, rows, "bound", "%{x:.2e}", marker=style))
    figure.update_xaxes(title_text="relative error", type="log", exponentformat="power", dtick=1)
    figure.update_yaxes(autorange="reversed", type="category")
    worst = "; ".join(f"{name} at most {three(max(values))}" for name, values in errors.items())
    return finish(figure, look, title=title, height=200 + 34 * len(rows), alt=f"{title}: {worst}.")


def _end(values: Float[Array, "r c"], fixed: float | None) -> float:
    """The scale's end: given, or the largest entry; 1 where every entry is zero or blank."""
    found = float(np.nanmax(np.abs(values), initial=0.0)) if fixed is None else fixed
    return found if math.isfinite(found) and found > 0 else 1.0


def _matrix(name: str, values: Float[Array, "r c"], end: float, look: Theme) -> go.Heatmap:
    gap = 1 if max(values.shape) <= 32 else 0  # more cells than that would be mostly gap
    return go.Heatmap(
        z=values, zmin=-end, zmax=end, colorscale=colourscale(look.diverging), showscale=False,
        name=name, xgap=gap, ygap=gap,
        hovertemplate="row %{y}, column %{x}<br>%{z:.3g}<extra>" + name + "</extra>",
    )  # fmt: skip


def _square(figure: go.Figure, col: int, shape: tuple[int, ...]) -> None:
    """Bare axes that show every row and column, blank ones too, as squares; row 0 on top."""
    suffix, (rows, columns) = "" if col == 1 else str(col), shape
    bare = {"showticklabels": False, "showline": False, "showgrid": False, "ticks": "",
            "zeroline": False, "constrain": "domain"}  # fmt: skip
    figure.update_layout({
        f"xaxis{suffix}": {**bare, "range": [-0.5, columns - 0.5]},
        f"yaxis{suffix}": {**bare, "range": [rows - 0.5, -0.5], "scaleanchor": f"x{suffix}",
                           "constraintoward": "top"},
    })  # fmt: skip


def _drawn(
    x: Sequence[object], y: Sequence[object], name: str, hover: str, **style: dict[str, object]
) -> go.Scatter:
    """Marks or a line, whichever style is given."""
    mode = "markers" if "marker" in style else "lines"
    hover += "<extra>" + name + "</extra>"
    return go.Scatter(x=list(x), y=list(y), mode=mode, name=name, hovertemplate=hover, **style)
