"""Pictures of the formulas: what whitening leaves over, and recall under load."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from vla.figures.theme import DASHES, Theme, finish, line, marker, shade, theme, three
from vla.rules import RULES
from vla.theory import OverlapGrid, RecallCurve


def whitening(grid: OverlapGrid, *, theme_name: str = "light") -> go.Figure:
    """What is left of ``α̂·k_1`` when a second key at cosine ρ is written, a line per λ0.

    Lines are the formula, dots the rule. The paper's §7.2 has 0 for every ρ (dashed); the line of a
    plain delta rule, which writes along the key itself, is ρ. Raises ``ValueError`` for an unknown
    theme.
    """
    look = theme(theme_name)
    figure = go.Figure()
    delta = shade(RULES["delta"].colour, look)
    figure.add_trace(_line(grid.rho, grid.rho, "delta rule, α̂ = k: ρ itself", line(delta)))
    colour = shade(RULES["vla"].colour, look)
    for row, lam in enumerate(grid.lambda0):
        name = f"VLA, λ0 = {lam:g}"
        style = line(colour, dash=DASHES[row % len(DASHES)])
        figure.add_trace(_line(grid.rho, grid.formula[row], name, style))
        figure.add_trace(
            go.Scatter(x=grid.measured_rho, y=grid.measured[row], mode="markers", name=name,
                       legendgroup=name, showlegend=False, marker=marker(colour, size=7),
                       hovertemplate="measured<br>ρ %{x:.3g}<br>%{y:.3g}<extra></extra>")
        )  # fmt: skip
    figure.add_trace(
        go.Scatter(x=grid.measured_rho, y=[0.0] * len(grid.measured_rho), mode="lines+markers",
                   name="as published, §7.2: 0", line=line(colour, published=True),
                   marker=marker(colour, published=True, size=13), hoverinfo="skip")
    )  # fmt: skip
    figure.update_xaxes(title_text="ρ, cosine between the two keys", range=[0, 1.02])
    figure.update_yaxes(title_text="α̂·k₁, overlap with the first key", range=[-0.03, 1.0])
    return finish(
        figure, look, title="Overlap of the second write with the first key",
        alt=_overlap_words(grid),
    )  # fmt: skip


def capacity(curves: Sequence[RecallCurve], *, theme_name: str = "light") -> go.Figure:
    """Mean relative recall error against the number of stored pairs, one line per curve.

    Bars reach from the best to the worst draw. 1 is no better than answering nothing; the dotted
    upright line is n = d. Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure = go.Figure()
    seen: dict[str, int] = {}
    for curve in curves:
        seen[curve.name] = seen.get(curve.name, -1) + 1
        figure.add_trace(_recall(curve, look, DASHES[seen[curve.name] % len(DASHES)]))
    muted = {"color": look.muted, "width": 1, "dash": "dot"}
    figure.add_hline(y=1, line=muted)
    for d in sorted({curve.d for curve in curves}):
        note = {"text": f"n = d = {d}", "font": {"color": look.muted}}
        figure.add_vline(x=d, line=muted, annotation=note, annotation_position="top left")
    figure.update_xaxes(title_text="n, pairs stored")
    figure.update_yaxes(title_text="recall error (relative)", rangemode="tozero")
    return finish(figure, look, title="Recall under load", alt=_capacity_words(curves))


def _line(x: object, y: object, name: str, style: dict[str, object]) -> go.Scatter:
    hover = "%{x:.3g}, %{y:.3g}<extra>" + name + "</extra>"
    return go.Scatter(
        x=x, y=y, mode="lines", name=name, legendgroup=name, line=style, hovertemplate=hover
    )


def _recall(curve: RecallCurve, look: Theme, dash: str) -> go.Scatter:
    colour = shade(curve.colour, look)
    above = [high - mean for high, mean in zip(curve.high, curve.mean, strict=True)]
    below = [mean - low for low, mean in zip(curve.low, curve.mean, strict=True)]
    bars = {"type": "data", "symmetric": False, "array": above, "arrayminus": below, "width": 3}
    return go.Scatter(
        x=curve.pairs, y=curve.mean, name=curve.title,
        mode="markers" if curve.reference else "lines+markers", line=line(colour, dash=dash),
        marker=marker(colour, published=curve.reference, size=13 if curve.reference else 8),
        error_y=None if curve.reference else {**bars, "thickness": 1},
        hovertemplate="n %{x}<br>error %{y:.3g}<extra>" + curve.title + "</extra>",
    )  # fmt: skip


def _overlap_words(grid: OverlapGrid) -> str:
    at = int(abs(grid.rho - 0.6).argmin())
    values = "; ".join(
        f"λ0 = {lam:g}: {three(float(row[at]))}"
        for lam, row in zip(grid.lambda0, grid.formula, strict=True)
    )
    return f"Overlap of the second write with the first key at ρ = {three(grid.rho[at])}: {values}."


def _capacity_words(curves: Sequence[RecallCurve]) -> str:
    if not curves:
        return "No curve."
    parts = [
        f"{curve.title}: "
        + ", ".join(f"{three(e)} at {n}" for n, e in zip(curve.pairs, curve.mean, strict=True))
        for curve in curves
    ]
    return "Mean relative recall error by number of pairs. " + "; ".join(parts) + "."
