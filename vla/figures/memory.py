"""One moment of a trace: the matrices, and how well every stored pair is read back."""

from __future__ import annotations

import html

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from vla.errors import require_integer
from vla.figures.theme import Pen, Theme, colourscale, finish, marker, pens, theme, three
from vla.trace import Lane, Trace
from vla.typing import Float

Array = np.ndarray
QUANTITIES = ("M", "A", "S", "ΔS")
WORST = 10.0
"""Recall errors above this are drawn as this: a rule that explodes mustn't hide the others."""


def matrices(trace: Trace, step: int, *, theme_name: str = "light") -> go.Figure:
    """``M``, ``A``, ``S`` and what the step wrote (``ΔS``), one row per rule.

    Each colour scale is centred at zero and spans the largest entry of the whole trace, rules
    included, so that pictures of different steps and rules compare; ``ΔS`` shares the scale of
    ``S``. Where a long trace kept no matrix, the last one kept before is drawn and named. Raises
    ``ValueError`` for a step outside the trace or an unknown theme.
    """
    look = theme(theme_name)
    require_integer("step", step, low=0, high=len(trace) - 1)
    lanes = list(trace.lanes)
    figure = _grid(lanes)
    largest = {name: _largest(lanes, name) for name in QUANTITIES[:3]}
    for row, lane in enumerate(lanes, start=1):
        for col, name in enumerate(QUANTITIES, start=1):
            values = _at(lane, name, step)
            if values is None:
                _absent(figure, row, col, look)
            else:
                figure.add_trace(_heatmap(values, name, lane.title), row=row, col=col)
    _square(figure, len(lanes))
    shown = _kept(lanes[0], step)[1] if lanes else step
    title = f"Step {shown}: {_label(trace, shown)}"
    return finish(
        figure, look, title=_escaped(title, 60), showlegend=False,
        height=150 + 210 * max(1, len(lanes)),
        alt=f"{title}. " + " ".join(_words(lane, step) for lane in lanes),
        **_axes(largest, look),
    )  # fmt: skip


def ladder(trace: Trace, step: int, *, theme_name: str = "light") -> go.Figure:
    """Recall error of every pair stored by ``step``, a row per pair and a mark per rule.

    0 is exact, 1 is as bad as answering nothing. An overwritten pair is named so. Errors past 10,
    of a rule that explodes, are arrows at the edge; hover has the value. Raises ``ValueError`` for
    a step outside the trace or an unknown theme.
    """
    look = theme(theme_name)
    require_integer("step", step, low=0, high=len(trace) - 1)
    stored = [i for i, token in enumerate(trace.pairs) if token < step]
    rows = [_pair_name(trace, i, step) for i in stored]
    figure = go.Figure()
    for lane, pen in zip(trace.lanes, pens(trace.lanes, look), strict=True):
        errors = lane.recall[_kept(lane, step)[0]][stored]
        figure.add_trace(_marks(errors, rows, pen))
    figure.add_vline(x=1, line={"color": look.muted, "width": 1, "dash": "dot"})
    figure.update_xaxes(
        title_text="recall error (relative); 1 is no memory", range=[-0.02, _rightmost(figure)]
    )
    figure.update_yaxes(autorange="reversed", type="category")
    return finish(
        figure, look, title=f"Stored pairs read back after step {step}",
        height=190 + 26 * max(1, len(rows)), alt=_ladder_words(trace, step, stored),
    )  # fmt: skip


def _marks(errors: Float[Array, "p"], rows: list[str], pen: Pen) -> go.Scatter:
    style = marker(pen.colour, published=pen.published, size=11)
    beyond = ~(errors <= WORST)
    style["symbol"] = np.where(beyond, "triangle-right", style["symbol"]).tolist()
    return go.Scatter(
        x=np.where(beyond, WORST, errors), y=rows, mode="markers", name=pen.title, marker=style,
        customdata=[three(float(error)) for error in errors],
        hovertemplate="%{y}<br>error %{customdata}<extra>" + pen.title + "</extra>",
    )  # fmt: skip


def forgetting(trace: Trace, *, theme_name: str = "light") -> go.Figure:
    """Recall error of every pair at every step: a panel per rule, a row per pair, one colour scale.

    The scale ends at the largest error, though not below 1 (no memory) nor past 10. A pair has no
    colour before it is written, after it is overwritten, nor at steps that weren't kept.
    Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    lanes = trace.lanes
    figure = make_subplots(
        len(lanes), 1, shared_xaxes=True, subplot_titles=[lane.title for lane in lanes],
        vertical_spacing=0.25 / max(2, len(lanes)),
    )  # fmt: skip
    names = [_pair_name(trace, i, -1) for i in range(len(trace.pairs))]
    for row, lane in enumerate(lanes, start=1):
        hover = "%{y}, step %{x}<br>error %{z:.3g}<extra>" + lane.title + "</extra>"
        picture = go.Heatmap(
            x=lane.kept, y=names, z=_valid(trace, lane), coloraxis="coloraxis", hovertemplate=hover
        )
        figure.add_trace(picture, row=row, col=1)
    figure.update_yaxes(autorange="reversed", type="category", showgrid=False)
    figure.update_xaxes(showgrid=False)
    figure.update_xaxes(title_text="step", row=len(lanes), col=1)
    errors = [np.nanmax(_valid(trace, lane), initial=0.0) for lane in lanes]
    largest = min(WORST, max([1.0, *map(float, errors)]))
    bar = {"title": {"text": "error", "side": "right"}, "thickness": 12, "outlinewidth": 0}
    return finish(
        figure, look, title="What each write did to the pairs before it", showlegend=False,
        height=140 + len(lanes) * (60 + 18 * min(12, len(names))),
        alt=_ladder_words(trace, len(trace) - 1, list(range(len(names)))),
        coloraxis={"cmin": 0, "cmax": largest, "colorscale": colourscale(look.sequential),
                   "colorbar": bar},
    )  # fmt: skip


def _valid(trace: Trace, lane: Lane) -> Float[Array, "p m"]:
    """Recall errors by pair and kept step, NaN from where a pair is overwritten."""
    gone = trace.overwritten_at[:, None]
    return np.where((gone >= 0) & (lane.kept >= gone), np.nan, lane.recall.T)


def _grid(lanes: list[Lane]) -> go.Figure:
    titles = [name if row == 0 else "" for row in range(max(1, len(lanes))) for name in QUANTITIES]
    return make_subplots(
        max(1, len(lanes)), 4, subplot_titles=titles, row_titles=[lane.title for lane in lanes],
        horizontal_spacing=0.03, vertical_spacing=0.06 if len(lanes) > 1 else 0.0,
    )  # fmt: skip


def _at(lane: Lane, name: str, step: int) -> Float[Array, "r c"] | None:
    index, _ = _kept(lane, step)
    if name in ("S", "ΔS") and not lane.S.any():
        return None
    if name == "ΔS":
        return _written(lane, index)
    stack = {"M": lane.M, "A": lane.A, "S": lane.S}[name]
    return None if stack is None else stack[index]


def _written(lane: Lane, index: int) -> Float[Array, "dv d"] | None:
    """What the step of this kept matrix changed; ``None`` where its predecessor wasn't kept."""
    if index == 0:
        return np.zeros_like(lane.S[0])
    if lane.kept[index] - lane.kept[index - 1] != 1:
        return None
    with np.errstate(invalid="ignore", over="ignore"):
        return lane.S[index] - lane.S[index - 1]


def _kept(lane: Lane, step: int) -> tuple[int, int]:
    """Index and step of the last matrix kept at or before ``step``."""
    index = max(0, int(np.searchsorted(lane.kept, step, side="right")) - 1)
    return index, int(lane.kept[index])


def _largest(lanes: list[Lane], name: str) -> float:
    stacks = [{"M": lane.M, "A": lane.A, "S": lane.S}[name] for lane in lanes]
    sizes = [np.nanmax(np.abs(s), initial=0.0) for s in stacks if s is not None]
    return max((float(s) for s in sizes if np.isfinite(s)), default=0.0) or 1.0


def _heatmap(values: Float[Array, "r c"], name: str, title: str) -> go.Heatmap:
    axis = {"M": "coloraxis", "A": "coloraxis2"}.get(name, "coloraxis3")
    return go.Heatmap(
        z=values, coloraxis=axis, name=f"{name}, {title}",
        hovertemplate="row %{y}, column %{x}<br>%{z:.3g}<extra>" + f"{name}, {title}</extra>",
    )  # fmt: skip


def _axes(largest: dict[str, float], look: Theme) -> dict[str, object]:
    """Three colour axes with their bars below the columns; S and ΔS share the last."""
    made: dict[str, object] = {}
    places = {"M": ("coloraxis", 0.113), "A": ("coloraxis2", 0.37), "S": ("coloraxis3", 0.755)}
    for name, (axis, x) in places.items():
        made[axis] = {
            "cmin": -largest[name], "cmax": largest[name],
            "colorscale": colourscale(look.diverging),
            "colorbar": {
                "orientation": "h", "x": x, "y": 0, "yanchor": "top", "ypad": 12, "thickness": 10,
                "len": 0.22 if name != "S" else 0.3, "tickformat": ".3~g", "outlinewidth": 0,
                "tickvals": [-largest[name], 0, largest[name]],
            },
        }  # fmt: skip
    return made


def _square(figure: go.Figure, rows: int) -> None:
    figure.update_xaxes(showticklabels=False, showline=False, showgrid=False, ticks="")
    figure.update_yaxes(showticklabels=False, showline=False, showgrid=False, ticks="")
    figure.update_yaxes(autorange="reversed", zeroline=False)
    figure.update_xaxes(zeroline=False, constrain="domain")
    for index in range(1, 4 * max(1, rows) + 1):
        suffix = "" if index == 1 else str(index)
        figure.update_layout(
            {f"yaxis{suffix}": {"scaleanchor": f"x{suffix}", "constrain": "domain"}}
        )


def _absent(figure: go.Figure, row: int, col: int, look: Theme) -> None:
    figure.add_trace(go.Heatmap(z=[[None]], showscale=False, hoverinfo="skip"), row=row, col=col)
    axis = (row - 1) * 4 + col
    suffix = "" if axis == 1 else str(axis)
    figure.add_annotation(
        text="none", showarrow=False, font={"color": look.muted}, x=0.5, y=0.5,
        xref=f"x{suffix} domain", yref=f"y{suffix} domain",
    )  # fmt: skip


def _label(trace: Trace, step: int) -> str:
    return "nothing stored yet" if step == 0 else trace.stream.labels[step - 1]


def _words(lane: Lane, step: int) -> str:
    shown = _kept(lane, step)[1]
    size, change = three(float(lane.norm_S[shown])), three(float(lane.norm_dS[shown]))
    return f"{lane.title}: ‖S‖ {size}, the step changed it by {change}."


def _pair_name(trace: Trace, i: int, step: int) -> str:
    gone = trace.overwritten_at[i]
    words = trace.stream.vocabulary is not None
    label = (
        f"{i + 1}  {_escaped(trace.stream.labels[trace.pairs[i]])}" if words else f"pair {i + 1}"
    )
    return f"{label} (overwritten)" if 0 <= gone <= step else label


def _escaped(label: str, longest: int = 28) -> str:
    """A label as text: plotly reads tags in labels, and a typed word may hold one."""
    return html.escape(label if len(label) <= longest else label[: longest - 1] + "…")


def _rightmost(figure: go.Figure) -> float:
    """End of the error axis: past 1 always, so that it doesn't jump while errors are small."""
    errors = [np.nanmax(t.x) for t in figure.data if len(t.x) and np.isfinite(t.x).any()]
    return 1.06 * max([1.0, *errors])


def _ladder_words(trace: Trace, step: int, stored: list[int]) -> str:
    if not stored:
        return f"No pair is stored at step {step}."
    parts = []
    for lane in trace.lanes:
        errors = lane.recall[_kept(lane, step)[0]][stored]
        low, high = three(float(errors.min())), three(float(errors.max()))
        parts.append(f"{lane.title} from {low} to {high}")
    head = f"Relative recall error of {len(stored)} pairs after step {step}: "
    return head + "; ".join(parts) + "."
