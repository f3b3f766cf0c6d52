"""Curves over the steps of a trace: norms and recall, distance from ridge, transition norms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from vla.figures.theme import Pen, Theme, finish, line, marker, pens, theme, thin, three
from vla.theory import step_norm
from vla.trace import Lane, Trace
from vla.typing import Float

Array = np.ndarray
EXPLODED = 1e6
"""A norm above this turns its axis logarithmic."""


def norms(trace: Trace, *, theme_name: str = "light") -> go.Figure:
    """``‖S‖``, ``‖A‖`` (Frobenius) and mean recall error over the steps, one line per rule.

    The middle panel is left out if no rule keeps an ``A``. The recall is averaged over the pairs
    stored and not overwritten by then. Long traces are thinned to 2 000 points a line.
    Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    panels = [
        panel for panel in _PANELS if any(_rows(lane, panel) is not None for lane in trace.lanes)
    ]
    figure = _stack([_PANELS[panel] for panel in panels])
    for lane, pen in zip(trace.lanes, pens(trace.lanes, look), strict=True):
        for row, panel in enumerate(panels, start=1):
            values = _rows(lane, panel)
            if values is not None:
                figure.add_trace(_curve(values, pen, legend=row == 1), row=row, col=1)
    figure.update_xaxes(title_text="step", row=len(panels), col=1)
    figure.update_xaxes(range=_span(trace))
    figure.update_yaxes(rangemode="tozero")
    for row, panel in enumerate(panels, start=1):
        figure.update_yaxes(**_axis(trace, panel), row=row, col=1)
    ends = _last_values(trace, ("norm_S", "recall_mean"))
    return finish(
        figure, look, title="Size of the memory, and what it recalls",
        height=160 * len(panels) + 160,
        alt=f"Curves over {len(trace) - 1} tokens. ‖S‖ and mean recall error at the end: {ends}.",
    )  # fmt: skip


def ridge(trace: Trace, *, theme_name: str = "light") -> go.Figure:
    """Relative distance of each memory from the batch ridge answer; where a rule parts is marked.

    Distances below 1e-17 are drawn there, so that an exact answer has a line. Raises ``ValueError``
    for an unknown theme.
    """
    look = theme(theme_name)
    figure = go.Figure()
    for lane, pen in zip(trace.lanes, pens(trace.lanes, look), strict=True):
        figure.add_trace(_curve(np.maximum(lane.ridge_distance, 1e-17), pen, legend=True))
    for at in sorted({lane.parts_at for lane in trace.lanes if lane.parts_at is not None}):
        _mark_parting(figure, [lane for lane in trace.lanes if lane.parts_at == at], at, look)
    figure.add_hline(y=trace.tolerance, line={"color": look.muted, "width": 1, "dash": "dot"})
    # On a logarithmic axis an annotation stands at the exponent, while a line stands at the value.
    figure.add_annotation(
        x=1, xref="x domain", xanchor="right", y=math.log10(trace.tolerance), yanchor="bottom",
        text=f"tolerance {three(trace.tolerance)}", showarrow=False, font={"color": look.muted},
    )  # fmt: skip
    figure.update_xaxes(title_text="step", range=_span(trace))
    figure.update_yaxes(range=[-17.5, _top(trace)])
    figure.update_yaxes(
        title_text="‖S − S*‖ / ‖S*‖ (relative)", type="log", tickformat=".0e", nticks=8
    )
    return finish(
        figure, look, title="Distance from the batch ridge answer S*",
        alt="Distance of each rule from the batch ridge answer: " + _partings(trace) + ".",
    )  # fmt: skip


def spectral(trace: Trace, *, theme_name: str = "light") -> go.Figure:
    """Spectral norm of every transition against ``c = k·α̂``, and of the running product.

    Left: single steps, measured by SVD, on the closed form (1 + √(5 − 4c))/2; the paper's
    Proposition 2 (1 for every c) is dashed. The closed form is for unit keys and unit gains, so a
    rule with another gain or a decay leaves the curve. Right: ``‖J_1 ⋯ J_t‖``. Raises
    ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure = make_subplots(1, 2, horizontal_spacing=0.12, column_widths=[0.5, 0.5])
    cosines = np.linspace(-1, 1, 101)
    closed = {"color": look.ink, "width": 1.5}
    _reference(figure, cosines, step_norm(cosines), closed, "(1 + √(5 − 4c))/2", 1)
    claim = {"color": look.muted, "width": 1.5, "dash": "dash"}
    _reference(figure, [-1, 1], [1, 1], claim, "Proposition 2 as published", 1)
    _reference(figure, _span(trace), [1, 1], claim, None, 2)
    for lane, pen in zip(trace.lanes, pens(trace.lanes, look), strict=True):
        figure.add_trace(_scatter(lane, pen), row=1, col=1)
        figure.add_trace(_curve(lane.product_norm, pen, legend=False), row=1, col=2)
    figure.update_xaxes(title_text="c = k·α̂", row=1, col=1)
    figure.update_xaxes(title_text="step", range=_span(trace), row=1, col=2)
    figure.update_yaxes(title_text="‖J‖ of one step", row=1, col=1)
    figure.update_yaxes(title_text="‖J₁ J₂ ⋯ Jₜ‖", rangemode="tozero", row=1, col=2)
    figure.update_yaxes(**_axis(trace, "product_norm"), row=1, col=2)
    largest = "; ".join(f"{lane.title} {three(_most(lane.spectral_svd))}" for lane in trace.lanes)
    return finish(
        figure, look, title="How much a write stretches the old memory",
        alt=f"Largest spectral norm of a single step: {largest}. Proposition 2 states 1.",
    )  # fmt: skip


_PANELS = {
    "norm_S": "‖S‖ (Frobenius)",
    "norm_A": "‖A‖ (Frobenius)",
    "recall_mean": "recall error (relative)",
}


def _rows(lane: Lane, panel: str) -> Float[Array, "n"] | None:
    return None if panel == "norm_A" and lane.A is None else getattr(lane, panel)


def _axis(trace: Trace, field: str) -> dict[str, Any]:
    """Logarithmic where a rule explodes, so that the others stay in sight."""
    largest = [_most(getattr(lane, field)) for lane in trace.lanes]
    exploded = any(value > EXPLODED for value in largest)
    return {"type": "log", "tickformat": ".0e", "nticks": 6} if exploded else {}


def _stack(panels: Sequence[str]) -> go.Figure:
    figure = make_subplots(len(panels), 1, shared_xaxes=True, vertical_spacing=0.05)
    for row, name in enumerate(panels, start=1):
        figure.update_yaxes(title_text=name, row=row, col=1)
    return figure


def _curve(values: Float[Array, "n"], pen: Pen, *, legend: bool) -> go.Scatter:
    steps = thin(values)
    few = len(steps) <= 40
    return go.Scatter(
        x=steps, y=values[steps], name=pen.title, legendgroup=pen.title, showlegend=legend,
        mode="lines+markers" if few else "lines",
        line=line(pen.colour, dash=pen.dash, width=pen.width),
        marker=marker(pen.colour, published=pen.published, size=5),
        hovertemplate="step %{x}<br>%{y:.3g}<extra>" + pen.title + "</extra>",
    )  # fmt: skip


def _mark_parting(figure: go.Figure, lanes: Sequence[Lane], at: int, look: Theme) -> None:
    """A cross at the step where these lanes part, with one label for all of them."""
    heights = [float(lane.ridge_distance[at]) for lane in lanes]
    text = "<br>".join([f"apart from step {at}:", *(lane.title for lane in lanes)])
    figure.add_trace(
        go.Scatter(
            x=[at] * len(lanes), y=heights, mode="markers", showlegend=False, hovertext=text,
            hoverinfo="text", marker={"symbol": "x", "size": 9, "color": look.ink},
        )
    )  # fmt: skip
    figure.add_annotation(
        x=at, y=math.log10(min(heights)), text=text, align="left", xanchor="left", yanchor="top",
        showarrow=False, font={"color": look.ink}, yshift=-4, xshift=8,
    )  # fmt: skip


def _scatter(lane: Lane, pen: Pen) -> go.Scatter:
    steps = thin(lane.cosine)
    return go.Scatter(
        x=lane.cosine[steps], y=lane.spectral_svd[steps], mode="markers", name=pen.title,
        legendgroup=pen.title, marker=marker(pen.colour, published=pen.published), customdata=steps,
        hovertemplate="step %{customdata}<br>c %{x:.3g}<br>‖J‖ %{y:.3g}<extra>"
        + pen.title + "</extra>",
    )  # fmt: skip


def _reference(
    figure: go.Figure, x: Any, y: Any, style: dict[str, Any], name: str | None, col: int
) -> None:
    figure.add_trace(
        go.Scatter(x=x, y=y, mode="lines", line=style, name=name, showlegend=name is not None,
                   hoverinfo="skip"),
        row=1, col=col,
    )  # fmt: skip


def _span(trace: Trace) -> list[float]:
    return [-0.5, max(len(trace) - 1, 1) + 0.5]


def _top(trace: Trace) -> float:
    """Upper end of the logarithmic axis."""
    highest = [_most(lane.ridge_distance) for lane in trace.lanes]
    return math.log10(max([trace.tolerance, *(h for h in highest if math.isfinite(h))])) + 1


def _most(values: Float[Array, "n"]) -> float:
    known = values[np.isfinite(values)]
    return float(known.max()) if known.size else float("nan")


def _last_values(trace: Trace, fields: Sequence[str]) -> str:
    return "; ".join(
        f"{lane.title} " + ", ".join(three(float(getattr(lane, name)[-1])) for name in fields)
        for lane in trace.lanes
    )


def _partings(trace: Trace) -> str:
    return "; ".join(
        f"{lane.title} " + ("never parts" if lane.parts_at is None else f"parts at {lane.parts_at}")
        for lane in trace.lanes
    )
