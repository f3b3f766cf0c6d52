"""One answer taken apart: who was in the running, and what every write added to it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from vla.figures.theme import Theme, colourscale, finish, theme, three
from vla.theory.blame import Finding

TOP = 8
"""Tokens of the answer that are drawn."""


def answers(found: Finding, words: Sequence[str], *, theme_name: str = "light") -> go.Figure:
    """The likeliest tokens and their logits, the right one always among them and marked.

    ``words`` says how each token of the vocabulary is written. Raises ``ValueError`` for an unknown
    theme.
    """
    look = theme(theme_name)
    top = found.log_p.topk(min(TOP, len(found.log_p))).indices.tolist()
    shown = top if found.right in top else [*top[:-1], found.right]
    logits = found.query.logits[shown].tolist()
    chance = found.log_p[shown].exp().tolist()
    names = [_named(found, token, words) for token in shown]
    figure = go.Figure(
        go.Bar(
            x=logits, y=names, orientation="h", customdata=chance,
            marker={"color": [_shade(found, token, look) for token in shown]},
            text=[three(p) for p in chance], textposition="auto",
            hovertemplate="%{y}<br>logit %{x:.3g}<br>probability %{customdata:.3g}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(title_text="logit; on the bar: probability")
    figure.update_yaxes(autorange="reversed", type="category", ticks="")
    told = ", ".join(f"{name} {three(x)}" for name, x in zip(names, logits, strict=True))
    return finish(figure, look, title="The answer", alt=f"Logits of the likeliest tokens: {told}.",
                  height=100 + 24 * len(shown), showlegend=False,
                  margin={"l": 8, "r": 12, "t": 44, "b": 46})  # fmt: skip


def writes(
    found: Finding,
    marks: Sequence[str],
    roles: Sequence[str],
    *,
    theme_name: str = "light",
) -> go.Figure:
    """Token by token: its part of every head's read, of the logits, and its effect if left out.

    ``marks`` name the tokens under the axis (empty: no mark), ``roles`` say in a few words what
    each is. Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    count = len(found.query.heads.k)
    figure = make_subplots(
        3, 1, shared_xaxes=True, vertical_spacing=0.1, row_heights=[0.2 + 0.06 * count, 0.4, 0.4],
        subplot_titles=[
            "part of each head's read (a head's parts sum to 1)",
            f"added to the logits: right − “{found.rival}” (direct path)",
            "log p(right) without this write: up means it hurt",
        ],
    )  # fmt: skip
    figure.add_trace(_shares(found, roles), row=1, col=1)
    margin = _heads(found, found.direct[0] - found.direct[1])
    both = np.stack([_heads(found, found.direct[0]), _heads(found, found.direct[1])], -1)
    hover = "%{hovertext}<br>right %{customdata[0]:.3g}, other %{customdata[1]:.3g}<extra></extra>"
    figure.add_trace(_bars(margin, margin < 0, roles, hover, look, both), row=2, col=1)
    without = found.log_p_without.exp().numpy()[:, None]
    hover = "%{hovertext}<br>Δ log p %{y:.3g}; p %{customdata[0]:.3g} without it<extra></extra>"
    effect = found.effect.numpy()
    figure.add_trace(_bars(effect, effect > 0, roles, hover, look, without), row=3, col=1)
    places = [t for t, mark in enumerate(marks) if mark]
    figure.update_xaxes(
        tickvals=places, ticktext=[marks[t] for t in places], tickangle=-90,
        tickfont={"size": 10}, range=[-0.6, len(marks) - 0.4], showgrid=False,
    )  # fmt: skip
    figure.update_xaxes(showticklabels=True, row=3, col=1)
    figure.update_yaxes(title_text="head", dtick=1, row=1, col=1, autorange="reversed")
    figure.update_annotations(font={"size": 13, "color": look.muted}, x=0, xanchor="left")
    limit = float(found.shares.abs().max())
    bar = {"thickness": 8, "len": 0.3, "y": 1, "yanchor": "top", "outlinewidth": 0, "nticks": 3}
    return finish(
        figure, look, title="", alt=_words(found, roles), height=400 + 16 * count,
        showlegend=False, margin={"l": 52, "r": 8, "t": 26, "b": 46},
        coloraxis={"cmin": -limit, "cmax": limit, "colorbar": bar,
                   "colorscale": colourscale(look.diverging)},
    )  # fmt: skip


def _shares(found: Finding, roles: Sequence[str]) -> go.Heatmap:
    count = len(found.shares)
    return go.Heatmap(
        z=found.shares.numpy(), x=list(range(len(roles))), y=list(range(count)),
        coloraxis="coloraxis", hovertext=[list(roles)] * count, hoverongaps=False,
        hovertemplate="head %{y}: %{z:.3g}<br>%{hovertext}<extra></extra>",
    )  # fmt: skip


def _bars(values: np.ndarray, hurts: np.ndarray, roles: Sequence[str], hover: str, look: Theme,
          custom: np.ndarray) -> go.Bar:  # fmt: skip
    """What helps is blue and what hurts orange, in either direction."""
    bad, good = look.diverging[3], look.diverging[1]
    return go.Bar(
        x=list(range(len(roles))), y=values, hovertext=list(roles), customdata=custom,
        marker={"color": np.where(hurts, bad, good).tolist(), "line": {"width": 0}},
        hovertemplate=hover,
    )  # fmt: skip


def _heads(found: Finding, rows: object) -> np.ndarray:
    """Summed over the heads that are looked at."""
    values = np.asarray(rows)
    head = found.query.head
    return values.sum(0) if head is None else values[head]


def _named(found: Finding, token: int, words: Sequence[str]) -> str:
    """``17 ✓`` is right; an arrow marks what was said in its place."""
    mark = " ✓" if token == found.right else " ←" if token == found.said else ""
    return f"{words[token]}{mark}"


def _shade(found: Finding, token: int, look: Theme) -> str:
    if token == found.right:
        return look.diverging[1]
    return look.diverging[3] if token == found.said else look.muted


def _words(found: Finding, roles: Sequence[str]) -> str:
    order = found.ranked()
    effect = found.effect.tolist()

    def told(t: int) -> str:
        return f"{roles[t]} ({three(effect[t])})"

    hurt = [told(t) for t in order[:3] if effect[t] > 0]
    helped = [told(t) for t in order[::-1][:3] if effect[t] < 0]
    return (
        "Change of the right answer's log-probability if a write is left out. "
        f"Hurt most: {', '.join(hurt) or 'none'}. Helped most: {', '.join(helped) or 'none'}."
    )
