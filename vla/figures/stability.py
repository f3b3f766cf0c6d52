"""Pictures of long runs: sizes and eigenvalues on logarithmic axes, and Table 2 beside measures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from vla.figures.theme import DASHES, Theme, finish, line, marker, shade, theme, three
from vla.rules import RULES
from vla.theory.stability import Course, Norms, Stretch

_LOG: dict[str, Any] = {"type": "log", "exponentformat": "power", "dtick": 1}


def growth(course: Course, *, theme_name: str = "light") -> go.Figure:
    """``‖S‖`` and ``‖A‖`` of every rule against the step, both axes logarithmic.

    Rules without an A are in the left panel only. Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure = make_subplots(1, 2, horizontal_spacing=0.18)
    for lane, style in zip(course.lanes, _styles(course.lanes, look), strict=True):
        figure.add_trace(_sizes(lane, lane.norm_S, style, legend=True), row=1, col=1)
        if lane.norm_A:
            figure.add_trace(_sizes(lane, lane.norm_A, style, legend=False), row=1, col=2)
    figure.update_xaxes(title_text="step", **_LOG)
    figure.update_yaxes(title_text="‖S‖ (Frobenius)", **_LOG, row=1, col=1)
    figure.update_yaxes(title_text="‖A‖ (Frobenius)", **_LOG, row=1, col=2)
    return finish(figure, look, title="Size of the memory and of its inverse penalty",
                  alt=f"After {_reached(course)} tokens: " + _ends(course.lanes) + ".")  # fmt: skip


def eigenvalues(course: Course, *, theme_name: str = "light") -> go.Figure:
    """Every eigenvalue of ``A`` against the step, a thin line each; thick: least and greatest.

    Rules without an A have none. Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure = go.Figure()
    kept = [lane for lane in course.lanes if lane.eigen_A]
    for lane, style in zip(kept, _styles(kept, look), strict=True):
        for i in range(d := len(lane.eigen_A[0])):
            edge = i in (0, d - 1)
            figure.add_trace(_eigenvalue(lane, i, {**style, "width": 2.5 if edge else 0.7}))
    figure.update_xaxes(title_text="step", **_LOG)
    figure.update_yaxes(title_text="eigenvalues of A", **_LOG)
    ends = "; ".join(
        f"{lane.title} from {three(lane.eigen_A[-1][0])} to {three(lane.eigen_A[-1][-1])}"
        for lane in kept
    )
    words = (
        f"Eigenvalues of A after {_reached(course)} tokens: {ends or 'no rule on show has an A'}."
    )
    return finish(figure, look, title="Eigenvalues of A", alt=words)


def published_stretch(rows: Sequence[Stretch], *, theme_name: str = "light") -> go.Figure:
    """Table 2: norm of one transition, and of 25 together, by width. Hollow: as printed.

    Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure = make_subplots(1, 2, horizontal_spacing=0.18)
    colour = shade(RULES["vla"].colour, look)
    widths = [str(row.d) for row in rows]
    for col, (printed, raw, unit) in enumerate(_COLUMNS, start=1):
        for name, field, dash, claim in (
            ("v2 as published: the norm, and its 25th power", printed, "dash", True),
            ("v2 measured", raw, "solid", False),
            ("unit keys and gain, measured", unit, "dot", False),
        ):
            figure.add_trace(
                go.Scatter(
                    x=widths, y=[getattr(row, field) for row in rows], name=name, legendgroup=name,
                    showlegend=col == 1, mode="lines+markers", line=line(colour, dash=dash),
                    marker=marker(colour, published=claim, size=11),
                    hovertemplate="d %{x}<br>%{y:.3g}<extra>" + name + "</extra>",
                ),
                row=1, col=col,
            )  # fmt: skip
        figure.add_trace(_one(widths, look, legend=col == 1), row=1, col=col)
    figure.update_xaxes(title_text="head width d", type="category")
    figure.update_yaxes(title_text="‖J‖ of one step", **_LOG, row=1, col=1)
    figure.update_yaxes(title_text="norm after 25 steps", type="log", exponentformat="power",
                        nticks=8, row=1, col=2)  # fmt: skip
    parts = "; ".join(
        f"d {row.d}: printed {three(row.printed_step)}, measured {three(row.step)}, with unit "
        f"keys and gain {three(row.unit_step)}"
        for row in rows
    )
    return finish(figure, look, title="Table 2, as published and as measured",
                  alt=f"Spectral norm of one transition. {parts}.")  # fmt: skip


_COLUMNS = (
    ("printed_step", "step", "unit_step"),
    ("printed_product", "product", "unit_product"),
)


def _one(x: list[str], look: Theme, *, legend: bool) -> go.Scatter:
    return go.Scatter(
        x=x, y=[1.0] * len(x), mode="lines", name="Proposition 2 as published: 1",
        legendgroup="claim", showlegend=legend, line=line(look.muted, published=True, width=1.5),
        hoverinfo="skip",
    )  # fmt: skip


def _styles(lanes: Sequence[Norms], look: Theme) -> list[dict[str, Any]]:
    """A line per lane: dashes tell apart rules of one colour, earlier lanes are wider."""
    seen: dict[str, int] = {}
    made: list[dict[str, Any]] = []
    for lane in lanes:
        seen[lane.colour] = seen.get(lane.colour, -1) + 1
        dash = DASHES[seen[lane.colour] % len(DASHES)]
        width = 2 + min(3.2, 1.2 * (len(lanes) - 1 - len(made)))
        made.append(line(shade(lane.colour, look), dash=dash, width=width))
    return made


def _sizes(lane: Norms, values: list[float], style: dict[str, Any], *, legend: bool) -> go.Scatter:
    start = len(values) - len(lane.steps) + 1
    return go.Scatter(
        x=lane.steps[1:], y=values[start:], name=lane.title, legendgroup=lane.rule,
        showlegend=legend, mode="lines", line=style,
        hovertemplate="step %{x}<br>%{y:.3g}<extra>" + lane.title + "</extra>",
    )  # fmt: skip


def _eigenvalue(lane: Norms, i: int, style: dict[str, Any]) -> go.Scatter:
    return go.Scatter(
        x=lane.steps[1:], y=[values[i] for values in lane.eigen_A[1:]], name=lane.title,
        legendgroup=lane.rule, showlegend=i == 0, mode="lines", line=style,
        hovertemplate=f"step %{{x}}<br>no. {i + 1}: %{{y:.3g}}<extra>{lane.title}</extra>",
    )  # fmt: skip


def _reached(course: Course) -> str:
    return f"{min((lane.steps[-1] for lane in course.lanes), default=0):,}".replace(",", " ")


def _ends(lanes: Sequence[Norms]) -> str:
    return "; ".join(
        f"{lane.title} ‖S‖ {three(lane.norm_S[-1])}"
        + (f", ‖A‖ {three(lane.norm_A[-1])}" if lane.norm_A else "")
        for lane in lanes
    )
