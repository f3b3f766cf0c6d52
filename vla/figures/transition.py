"""Pictures of one write's transition, and of what process noise is good for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from vla.errors import ArgumentError
from vla.figures.theme import DASHES, finish, line, marker, shade, theme, three
from vla.rules import RULES
from vla.theory.drift import Tracking
from vla.theory.jacobian import step_norm


def stretched(cosine: float, *, theme_name: str = "light") -> go.Figure:
    """The unit circle and its image under ``I − α̂ kᵀ``, in the plane of k and α̂.

    That is what a write does to the rows of the old memory: ``row − (row·k) α̂``. k points right
    and α̂ has this cosine with it. The thick line is the longest image of a unit
    vector; the circle, dashed, is what Proposition 2 as published allows. Raises ``ValueError`` for
    a cosine outside [−1, 1] or an unknown theme.
    """
    look = theme(theme_name)
    if not -1 <= cosine <= 1:
        raise ArgumentError("cosine", cosine, "a cosine, from −1 to 1")
    k, alpha = np.array([1.0, 0.0]), np.array([cosine, np.sqrt(1 - cosine**2)])
    J = np.eye(2) - np.outer(alpha, k)
    turn = np.linspace(0, 2 * np.pi, 121)
    circle = np.stack([np.cos(turn), np.sin(turn)])
    left, sizes, _ = np.linalg.svd(J)
    colour, ink = shade(RULES["vla"].colour, look), {"color": look.ink, "width": 2}
    figure = go.Figure([
        _path(circle, "rows of length 1, the bound as published", line(look.muted, published=True)),
        _path(J @ circle, "the rows after the write", line(colour)),
        _path(_ray(left[:, 0] * sizes[0]), "the longest", line(colour, width=5)),
        _path(_ray(k), "k", ink),
        _path(_ray(alpha), "α̂", {**ink, "dash": "dot"}),
    ])  # fmt: skip
    figure.update_xaxes(range=[-2.1, 2.1], title_text="along k")
    figure.update_yaxes(range=[-2.1, 2.1], title_text="across", scaleanchor="x")
    words = f"c = {three(cosine)}: the longest row is now {three(float(step_norm(cosine)))}"
    return finish(
        figure, look, title=words, height=520,
        alt=f"The unit circle and its image under I − α̂ kᵀ. {words}. Proposition 2 states 1.",
    )  # fmt: skip


def following(curves: Sequence[Tracking], *, theme_name: str = "light") -> go.Figure:
    """Mean surprise against the process noise ε, a line per speed of the drift.

    The leftmost point is ε = 0, exact least squares over all tokens. Marks at the right: the delta
    rule on the same tokens. Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure = go.Figure()
    colour, delta = shade(RULES["rls"].colour, look), shade(RULES["delta"].colour, look)
    for curve, dash in zip(curves, DASHES * len(curves), strict=False):
        name = f"{curve.degrees:g}° a token"
        ticks = [f"{noise:g}" for noise in curve.noises]
        hover = "ε %{x}<br>surprise %{y:.3g}<extra>" + name + "</extra>"
        figure.add_trace(
            go.Scatter(x=ticks, y=curve.surprise, name=name, line=line(colour, dash=dash),
                       mode="lines+markers", marker=marker(colour, size=7), hovertemplate=hover)
        )  # fmt: skip
        figure.add_trace(
            go.Scatter(x=["delta rule"], y=[curve.delta], mode="markers", showlegend=False,
                       name=name, marker=marker(delta, size=10),
                       hovertemplate=hover.replace("ε ", ""))
        )  # fmt: skip
    figure.update_xaxes(title_text="process noise ε after every token", type="category")
    figure.update_yaxes(title_text="surprise (relative)", rangemode="tozero")
    parts = "; ".join(
        f"{curve.degrees:g}° a token: {three(curve.surprise[0])} without noise, least "
        f"{three(min(curve.surprise))} at ε = {curve.noises[int(np.argmin(curve.surprise))]:g}"
        for curve in curves
    )
    return finish(
        figure, look, title="Following a map that turns",
        alt=f"Mean surprise by process noise. {parts}.",
    )  # fmt: skip


def _path(points: np.ndarray, name: str, style: dict[str, object]) -> go.Scatter:
    x, y = points
    return go.Scatter(x=x, y=y, mode="lines", name=name, line=style, hoverinfo="name")


def _ray(end: np.ndarray) -> np.ndarray:
    return np.stack([np.zeros(2), end], 1)
