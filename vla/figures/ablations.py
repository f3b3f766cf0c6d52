"""A layer's switches as pictures: one stream's recall, and what recorded runs of it reached."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import plotly.graph_objects as go

from vla.figures.theme import finish, line, marker, shade, theme, three
from vla.rules import RULES
from vla.theory.ablation import Recall
from vla.train.result import RunRow

WORST = 10.0
"""Errors above this are drawn as this: a layer that explodes mustn't hide the others."""


def recalled(lanes: Mapping[str, tuple[Recall, str]], *, theme_name: str = "light") -> go.Figure:
    """Mean recall error against the number of pairs stored, one line a layer.

    ``lanes`` gives each title its recall and ``mine``, ``published`` (dashed) or ``exact``. Raises
    ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure = go.Figure()
    for title, (shown, kind) in lanes.items():
        colour = shade(RULES["rls" if kind == "exact" else "vla"].colour, look)
        mean = shown.mean.tolist()
        figure.add_scatter(
            x=list(range(1, len(mean) + 1)), y=[_drawn(x) for x in mean], name=title, mode="lines",
            line=line(colour, published=kind == "published", width=3.5 if kind == "mine" else 2),
            customdata=[[three(e), f"{r:.0%}"] for e, r in zip(mean, shown.right, strict=True)],
            hovertemplate="%{x} pairs<br>error %{customdata[0]}, %{customdata[1]} nearest to their "
            "own<extra>" + title + "</extra>",
        )  # fmt: skip
    figure.add_hline(y=1, line={"color": look.muted, "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text="pairs stored", rangemode="tozero")
    figure.update_yaxes(title_text="mean recall error (relative); 1: no memory", rangemode="tozero")
    told = "; ".join(f"{title} {three(float(r.mean[-1]))}" for title, (r, _) in lanes.items())
    return finish(figure, look, title="At once: one stream, untrained", height=400,
                  alt=f"Mean recall error after the last pair: {told}.",
                  margin={"l": 60, "r": 12, "t": 100, "b": 48})  # fmt: skip


def _drawn(error: float) -> float:
    return min(error, WORST) if error == error else WORST


@dataclass
class Protocol:
    """One way of training: the runs of the nearest layer and of the authors' under it."""

    name: str
    mine: list[RunRow] = field(default_factory=list)
    authors: list[RunRow] = field(default_factory=list)


def trained(
    protocols: Sequence[Protocol], *, title: str = "", theme_name: str = "light"
) -> go.Figure:
    """Test accuracy of a recorded layer, a row per protocol and a mark per seed; hollow: as run.

    A diamond is the only seed there is. Without protocols the picture says so. Raises
    ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure = go.Figure()
    colour = shade(RULES["vla"].colour, look)
    for name, published in (("VLA as the authors ran it", True), (title or "nearest", False)):
        marks = [
            (protocol.name, row, len(rows))
            for protocol in protocols
            for rows in [protocol.authors if published else protocol.mine]
            for row in rows
        ]
        figure.add_scatter(
            x=[row.accuracy() for _, row, _ in marks], y=[name for name, _, _ in marks], name=name,
            mode="markers", marker=_marks(colour, [n for _, _, n in marks], published=published),
            customdata=[[row.config.seed, _from(row)] for _, row, _ in marks],
            hovertemplate="%{y}<br>%{x:.3f}, seed %{customdata[0]}<br>%{customdata[1]}"
            "<extra></extra>",
        )  # fmt: skip
    figure.update_xaxes(title_text="accuracy; ◇ a single seed", range=[-0.03, 1.05])
    figure.update_yaxes(
        autorange="reversed", type="category", tickfont={"size": 12}, ticks="",
        categoryorder="array", categoryarray=[protocol.name for protocol in protocols],
    )  # fmt: skip
    if not protocols:
        figure.add_annotation(text="no recorded run", x=0.5, y=0.5, xref="paper", yref="paper",
                              showarrow=False, font={"size": 15, "color": look.muted})  # fmt: skip
        figure.update_yaxes(showticklabels=False)
    told = "; ".join(f"{p.name}: {summary(p.mine)}, as run {summary(p.authors)}" for p in protocols)
    return finish(figure, look, title="Trained: recorded runs", alt=told or "No recorded run.",
                  height=max(400, 170 + 34 * len(protocols)), showlegend=bool(protocols),
                  margin={"l": 8, "r": 12, "t": 100, "b": 48})  # fmt: skip


def _marks(colour: str, seeds: Sequence[int], *, published: bool) -> dict[str, Any]:
    style = marker(colour, published=published, size=13 if published else 9)
    tail = "-open" if published else ""
    return {**style, "symbol": [("circle" if n > 1 else "diamond") + tail for n in seeds]}


def _from(row: RunRow) -> str:
    return f"{row.result.device or 'no device'}, commit {row.result.commit[:7] or 'unknown'}"


def summary(rows: Sequence[RunRow]) -> str:
    """Mean accuracy and the seeds it is of: ``0.998 (3 seeds)``; ``–`` for none."""
    if not rows:
        return "–"
    seeds = f"{len(rows)} seeds" if len(rows) > 1 else f"one seed, {rows[0].config.seed}"
    return f"{statistics.fmean(row.accuracy() for row in rows):.3f} ({seeds})"
