"""Recorded runs as pictures: pure functions of rows, one for each preset.

A line is the mean over seeds, its band the lowest and the highest seed. What the paper's tables
state is hollow, what the authors' own log has is dashed; both are read from ``data/paper``.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import plotly.graph_objects as go

from vla import nn, paper
from vla.errors import ArgumentError, require_choice
from vla.figures.colour import rgb
from vla.figures.theme import (
    DASHES,
    Theme,
    colourscale,
    finish,
    line,
    marker,
    shade,
    theme,
    three,
)
from vla.nn import ModelConfig
from vla.rules import RULES
from vla.train.presets import ABLATIONS, RETENTION
from vla.train.result import DONE, RunRow
from vla.train.tables import at_best_rate

PAPERS_NAMES = {
    "Softmax": "softmax", "Linear": "linear", "Linear attn": "linear",
    "Linear attention [6]": "linear", "DeltaNet": "authors_delta",
    "DeltaNet [11]": "authors_delta", "VLA (ours)": "vla_authors", "VLA": "vla_authors",
    "softmax": "softmax", "linear": "linear", "deltanet": "authors_delta", "vla": "vla_authors",
}  # fmt: skip
"""The tables' names for models, and ours."""

ACCURACY = "accuracy on fresh rows"
NO_RUNS = "No runs; published numbers alone."


@dataclass(frozen=True)
class Published:
    """Numbers of the paper or of its authors, to draw beside ours: model → x → value."""

    source: str
    values: Mapping[str, Mapping[float, float]]
    dashed: bool = False
    """The authors' log, drawn as a dashed line; a table's numbers are hollow marks."""


@dataclass
class Curve:
    """One line: label, colour, and the runs at each x."""

    label: str
    colour: str
    dash: str
    points: dict[float, list[float]] = field(default_factory=dict)
    keys: dict[float, list[str]] = field(default_factory=dict)
    """Which runs are behind each point."""


def accuracy(
    rows: Sequence[RunRow],
    *,
    across: str = "task.pairs",
    split: str = "test",
    published: Sequence[Published] = (),
    title: str = "Accuracy against load",
    theme_name: str = "light",
) -> go.Figure:
    """Accuracy on ``split`` against a field of the runs, one line per label, bands over seeds.

    Where several learning rates were tried, the one that is best on validation. Runs that ended
    with a loss that isn't finite count in the table of a figure's runs, not in its lines. With no
    runs at all the published numbers stand alone. Raises ``ValueError`` if no run has the field,
    or for an unknown theme.
    """
    look = theme(theme_name)
    figure = go.Figure()
    curves = _curves(rows, across, split) if rows or not published else []
    for curve in curves:
        _draw(figure, curve, look)
    for numbers in published:
        _draw_published(figure, numbers, look)
    xs = {x for curve in curves for x in curve.points} or _published_at(published)
    figure.update_xaxes(title_text=AXES.get(across, across), type="log", **_ticks(xs))
    figure.update_yaxes(title_text=ACCURACY, range=[-0.03, 1.05])
    words = _told(curves) if curves else NO_RUNS
    height = 460 + 16 * max(0, len(curves) - 6)
    return finish(figure, look, title=title, alt=f"{title}. {words}", height=height)


AXES = {
    "task.pairs": "pairs stored, n", "task.length": "tokens in a row, T", "lr": "learning rate",
    "steps": "steps",
}  # fmt: skip


def learning_curves(
    rows: Sequence[RunRow],
    *,
    quantity: str = "accuracy",
    published: Sequence[Published] = (),
    title: str = "Learning",
    theme_name: str = "light",
) -> go.Figure:
    """Accuracy (or ``loss``) on the training batches, all of them fresh, against steps.

    One line per label, bands over seeds. Give it the runs of one load and one learning rate.
    Raises ``ValueError`` for another quantity, no finished run, or an unknown theme.
    """
    require_choice("quantity", quantity, ("accuracy", "loss"))
    look = theme(theme_name)
    figure = go.Figure()
    curves = _over_steps(rows, quantity) if rows or not published else []
    for curve in curves:
        _draw(figure, curve, look, marks=False)
    for numbers in published:
        _draw_published(figure, numbers, look)
    figure.update_xaxes(title_text="step", rangemode="tozero")
    name = f"{quantity} on the training batches"
    figure.update_yaxes(title_text=name, rangemode="tozero")
    words = f"At the end: {_told(curves, last=True)}" if curves else NO_RUNS
    return finish(figure, look, title=title, alt=f"{title}. {words}")


def rates(
    rows: Sequence[RunRow],
    *,
    label: str,
    across: str = "task.pairs",
    split: str = "validation",
    title: str = "",
    theme_name: str = "light",
) -> go.Figure:
    """One label's accuracy over learning rate (down) and load (across), as a heatmap.

    Mean over seeds; a cell where every run ended badly says so. Raises ``ValueError`` if no run has
    the label, or for an unknown theme.
    """
    look = theme(theme_name)
    mine = [row for row in rows if row.label == label]
    if not mine:
        known = ", ".join(dict.fromkeys(row.label for row in rows)) or "no runs at all"
        raise ArgumentError("label", label, f"one of: {known}")
    loads, grid = _values(mine, across), sorted({row.config.lr for row in mine})
    cells = [[_cell(mine, lr, across, load, split) for load in loads] for lr in grid]
    figure = go.Figure(
        go.Heatmap(
            z=[[value for value, _ in line_] for line_ in cells],
            text=[[text for _, text in line_] for line_ in cells],
            texttemplate="%{text}", x=[f"{load:g}" for load in loads], y=[f"{lr:g}" for lr in grid],
            zmin=0, zmax=1, colorscale=colourscale(look.sequential),
            colorbar={"title": {"text": "accuracy"}},
            hovertemplate="lr %{y}<br>load %{x}<br>%{text}<extra></extra>",
        )
    )  # fmt: skip
    figure.update_xaxes(title_text=AXES.get(across, across), type="category")
    figure.update_yaxes(title_text=AXES["lr"], type="category")
    heading = title or f"{shown(label)}: accuracy on {split} by learning rate"
    best = max((value for line_ in cells for value, _ in line_ if value is not None), default=None)
    words = f"{heading}: {len(grid)} rates by {len(loads)} loads, best {three(best)}."
    return finish(figure, look, title=heading, alt=words)


def variants(
    rows: Sequence[RunRow],
    *,
    split: str = "test",
    published: Mapping[str, float] | None = None,
    title: str = "Which parts does it need?",
    theme_name: str = "light",
) -> go.Figure:
    """One row per label, a mark per seed and a bar at their mean; the paper's value is hollow.

    Raises ``ValueError`` for an unknown theme.
    """
    look = theme(theme_name)
    figure, given = go.Figure(), published or {}
    labels = list(dict.fromkeys(row.label for row in rows)) or list(given)
    for label in labels if rows else ():
        mine = at_best_rate([row for row in rows if row.label == label])
        _draw_variant(figure, label, mine, split, look)
    told = {label: value for label, value in given.items() if label in labels}
    if told:
        models = {label: ABLATIONS[label] for label in told if label in ABLATIONS}
        models |= {row.label: row.config.model for row in rows}
        inks: Any = [shade(colour_of(models[label]), look) for label in told]
        figure.add_scatter(
            x=list(told.values()), y=list(map(shown, told)), mode="markers", name="as published",
            marker=marker(inks, published=True, size=13),
        )  # fmt: skip
    figure.update_xaxes(title_text=ACCURACY, range=[-0.03, 1.05])
    figure.update_yaxes(autorange="reversed", type="category")
    if not labels:
        figure.add_annotation(
            text="no runs", showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper"
        )
    words = ", ".join(f"{shown(label)} {_mean_text(rows, label, split)}" for label in labels)
    return finish(figure, look, title=title, alt=f"{title} {words}.", height=120 + 30 * len(labels),
                  showlegend=bool(told))  # fmt: skip


def figure5(rows: Sequence[RunRow], theme_name: str = "light") -> go.Figure:
    """MQAR capacity: ours, the authors' log, and Table 9's numbers at n = 24."""
    return accuracy(
        rows, published=_beside(rows, *published_for("figure5")), theme_name=theme_name,
        title="How many pairs does each model recall?",
    )  # fmt: skip


def table10(rows: Sequence[RunRow], theme_name: str = "light") -> go.Figure:
    """Overload: 1 000 steps and 3 000, with Tables 10 and 11's numbers."""
    return accuracy(
        rows, published=_beside(rows, *published_for("table10")), theme_name=theme_name,
        title="What is left in overload?",
    )  # fmt: skip


def figure6(rows: Sequence[RunRow], theme_name: str = "light") -> go.Figure:
    """Long context: the authors' kind, with their log, and the one that waits."""
    as_run = [row for row in rows if RETENTION not in row.label]
    log = _beside(as_run, *published_for("figure6")) if as_run or not rows else ()
    return accuracy(
        rows, across="task.length", published=log,
        title="Does recall survive a longer row?", theme_name=theme_name,
    )  # fmt: skip


def table13(rows: Sequence[RunRow], theme_name: str = "light", *, split: str = "ood") -> go.Figure:
    """Keys never trained on (``split="ood"``) or those trained on (``"test"``), with Table 13's."""
    keys = "keys never trained on" if split == "ood" else "keys trained on"
    return accuracy(
        rows, split=split, published=_beside(rows, *published_for("table13", split=split)),
        title=f"Recall of {keys}", theme_name=theme_name,
    )  # fmt: skip


def table4(
    rows: Sequence[RunRow], theme_name: str = "light", *, load: int | None = None
) -> go.Figure:
    """Component ablation. ``load`` 16 or 48: Table 4's protocol, with its numbers.

    Otherwise the longest training that the runs have, every component at its best learning rate.
    """
    longest = max((row.config.steps for row in rows), default=0)
    if load is None:
        chosen = [row for row in rows if row.config.steps == longest]
        return variants(chosen, theme_name=theme_name)
    chosen = [row for row in rows if row.value("task.pairs") == load]
    return variants(
        chosen, published=table4_values(load) if _beside(chosen, table9()) else {},
        title=f"Table 4 at n = {load}, 1 000 steps", theme_name=theme_name,
    )  # fmt: skip


def readme(
    rows: Sequence[RunRow], theme_name: str = "light", *, lr: float | None = None
) -> go.Figure:
    """The README's ablations: rank, λ0, stabiliser. Of several rates the one best on validation.

    With ``lr`` the runs at that rate alone: where training is short, they differ most.
    """
    chosen = [row for row in rows if lr is None or row.config.lr == lr]
    at = "" if lr is None else f", learning rate {lr:g}"
    return variants(chosen, title=f"Rank, λ0 and stabiliser{at}", theme_name=theme_name)


def table7(rows: Sequence[RunRow], theme_name: str = "light") -> go.Figure:
    """Copy: learning curves of both kinds, with Table 7's."""
    return learning_curves(
        rows, published=_beside(rows, *published_for("table7")), theme_name=theme_name,
        title="Copy: the identity map, and one that needs memory",
    )  # fmt: skip


def fair(rows: Sequence[RunRow], theme_name: str = "light") -> go.Figure:
    """The field's protocol: every model at its best rate, chosen on validation."""
    return accuracy(rows, theme_name=theme_name, title="All with the same convolution and tuning")


def published_for(name: str, *, split: str = "ood") -> tuple[Published, ...]:
    """What the figure of this preset draws beside the runs. Raises ``KeyError`` for another."""
    return {
        "figure5": lambda: (capacity_log(), table9()),
        "table10": lambda: (tables_10_and_11(),),
        "figure6": lambda: (long_context_log(),),
        "table13": lambda: (_table13("ood_acc" if split == "ood" else "id_acc"),),
        "table4": lambda: (),
        "readme": lambda: (),
        "table7": lambda: (table7_curves(),),
        "fair": lambda: (),
    }[name]()


class Compared(NamedTuple):
    """One published number and ours."""

    label: str
    x: float
    published: float
    ours: float
    runs: int
    source: str

    @property
    def apart(self) -> float:
        """How far ours lies from it."""
        return abs(self.ours - self.published)


def compared(
    rows: Sequence[RunRow],
    published: Sequence[Published],
    *,
    across: str = "task.pairs",
    split: str = "test",
) -> list[Compared]:
    """Every published number for which there are runs, beside their mean, the furthest first."""
    ours = {curve.label: curve.points for curve in _curves(rows, across, split)} if rows else {}
    found = [
        Compared(label, x, value, statistics.fmean(mine), len(mine), numbers.source)
        for numbers in published
        for label, points in numbers.values.items()
        for x, value in points.items()
        if (mine := ours.get(label, {}).get(x))
    ]
    return sorted(found, key=lambda each: -each.apart)


def badge(row: RunRow, live: Collection[str] = ()) -> str:
    """Where a run's numbers are from: ``recorded: NVIDIA H200, commit 1a2b3c4`` or ``live: …``."""
    device = row.result.device or "device unknown"
    commit = row.result.commit
    short = commit[:7] + "+" * commit.endswith("+")
    kind = "live" if row.key in live else "recorded"
    return f"{kind}: {device}" + (f", commit {short}" if commit else "")


def badged(figure: go.Figure, rows: Sequence[RunRow], live: Collection[str] = ()) -> go.Figure:
    """The figure with each point's badge in its hover text, and points with live runs as diamonds.

    A point stands for several runs; each different badge is named once.
    """
    by_key = {row.key: row for row in rows}
    for trace in figure.data:
        if not isinstance(trace.meta, dict) or trace.type != "scatter":
            continue
        points = [[by_key[key] for key in keys if key in by_key] for keys in trace.meta["keys"]]
        badges = ["<br>".join(dict.fromkeys(badge(row, live) for row in mine)) for mine in points]
        trace.customdata = [
            f"{told}<br>{where}" for told, where in zip(trace.customdata, badges, strict=True)
        ]
        fresh = [any(row.key in live for row in mine) for mine in points]
        trace.marker.symbol = ["diamond" if new else "circle" for new in fresh]
    return figure


def keys_at(figure: go.Figure, curve: int, point: int) -> list[str]:
    """The runs behind a point that was clicked; none where it stands for no run."""
    if not (0 <= curve < len(figure.data) and isinstance(figure.data[curve].meta, dict)):
        return []
    keys = figure.data[curve].meta["keys"]
    return list(keys[point]) if 0 <= point < len(keys) else []


def told_apart(rows: Sequence[RunRow]) -> list[RunRow]:
    """The rows with what differs among runs of one label added to their labels.

    >>> told_apart([])
    []
    """
    fields = {"task.pairs": "n", "task.length": "T", "lr": "lr", "steps": "steps"}
    varied = {
        name: word
        for name, word in fields.items()
        if len({row.value(name) for row in rows}) > 1
        and not (name == "task.length" and len({row.value("task.pairs") for row in rows}) > 1)
    }
    return [
        dataclasses.replace(
            row, label=", ".join([row.label or str(row.config.model)]
            + [f"{word} {row.value(name):g}" for name, word in varied.items()
               if row.value(name) is not None]),
        )
        for row in rows
    ]  # fmt: skip


FIGURES: dict[str, Callable[..., go.Figure]] = {
    "figure5": figure5, "table10": table10, "figure6": figure6, "table13": table13,
    "table4": table4, "readme": readme, "table7": table7, "fair": fair,
}  # fmt: skip
"""A preset's figure, by the preset's name."""


def capacity_log() -> Published:
    """The authors' own log of the capacity runs, seed 42, 3 000 steps."""
    return Published("the authors' log, 3 000 steps", _log("capacity", "n"), dashed=True)


def long_context_log() -> Published:
    """The authors' own log of the long-context runs, seed 42, 2 000 steps."""
    return Published("the authors' log", _log("long_context", "t"), dashed=True)


def table9() -> Published:
    """Means over three seeds at n = 24."""
    cells = {row["model"]: {24.0: row["mean"]} for row in paper.table(9)}
    return Published("as published, Table 9", _read(cells))


def tables_10_and_11() -> Published:
    """Table 11 up to n = 24 and Table 10 beyond; Table 11's last columns are shifted in print."""
    cells: dict[str, dict[float, str]] = defaultdict(dict)
    for row in paper.table(11):
        cells[PAPERS_NAMES.get(row["model"], "")] |= {n: row[f"n{n:g}"] for n in (8.0, 16.0, 24.0)}
    for row in paper.table(10):
        cells[PAPERS_NAMES.get(row["model"], "")] |= {n: row[f"n{n:g}"] for n in (32.0, 48.0)}
    return Published("as published, Tables 10 and 11, 1 000 steps", _read(cells))


def _table13(column: str) -> Published:
    cells: dict[str, dict[float, str]] = defaultdict(dict)
    for row in paper.table(13):
        cells[row["model"]][float(row["n_pairs"])] = row[column]
    return Published("as published, Table 13, 1 000 steps", _read(cells))


def table4_values(load: int) -> dict[str, float]:
    """Table 4's column at n = 16 or 48, under the names of the ablation preset."""
    require_choice("load", load, (16, 48))
    column = "mqar_n16" if load == 16 else "overload_n48"
    names = {
        "VLA (full)": "VLA (as run)", "VLA, A_t=10I fixed": "A fixed",
        "DeltaNet [11]": "authors_delta", "Linear attention [6]": "linear",
    }  # fmt: skip
    read = {row["variant"]: paper.number(row[column]) for row in paper.table(4)}
    return {ours: value for theirs, ours in names.items() if (value := read[theirs]) is not None}


def table7_curves() -> Published:
    """Accuracy by step; the step-0 row contradicts the authors' log, which has 0.76 at step 1."""
    cells: dict[str, dict[float, str]] = defaultdict(dict)
    for row in paper.table(7):
        for name in ("softmax", "linear", "deltanet", "vla"):
            cells[name][float(row["step"])] = row[f"{name}_acc"]
    return Published("as published, Table 7", _read(cells))


def _log(name: str, across: str) -> dict[str, dict[float, float]]:
    cells: dict[str, dict[float, str]] = defaultdict(dict)
    for row in paper.run(name):
        for model in ("softmax", "linear", "deltanet", "vla"):
            cells[model][float(row[across])] = row[model]
    return _read(cells)


def _read(cells: Mapping[str, Mapping[float, str]]) -> dict[str, dict[float, float]]:
    """Printed cells as numbers, under our names; rows of no model and empty cells are left out."""
    return {
        name: {x: value for x, cell in column.items() if (value := paper.number(cell)) is not None}
        for theirs, column in cells.items()
        if (name := PAPERS_NAMES.get(theirs, theirs)) in nn.MODELS
    }


def shown(label: str) -> str:
    """A label as a legend has it: a model's name becomes its title.

    >>> shown("authors_delta, trained longer")
    'DeltaNet as the authors ran it, trained longer'
    """
    name, comma, rest = label.partition(",")
    return nn.TITLES.get(name, name) + comma + rest


def colour_of(model: ModelConfig) -> str:
    """The colour of the rule that a model runs; VLA with the exact gain has that of exact RLS."""
    exact = model.mixer == "vla" and model.gain == "rls" and model.direction == "weighted"
    return RULES["rls" if exact else nn.MIXERS[model.mixer].rule_name].colour


def faded(colour: str, alpha: float) -> str:
    """The colour, see-through, as plotly writes it."""
    red, green, blue = (round(255 * part) for part in rgb(colour))
    return f"rgba({red},{green},{blue},{alpha})"


def _beside(rows: Sequence[RunRow], *numbers: Published) -> Sequence[Published]:
    """Published numbers for runs of the published size; beside others they would mislead."""
    full = not rows or any(
        (row.config.model.width, row.config.model.heads) == (128, 4) for row in rows
    )
    return numbers if full else ()


def _curves(rows: Sequence[RunRow], across: str, split: str) -> list[Curve]:
    known = [row for row in rows if isinstance(row.value(across), int | float)]
    if not known:
        raise ArgumentError("across", across, "a number that the runs have, such as task.pairs")
    curves = []
    for curve, mine in _labelled(known):
        for x in _values(mine, across):
            best = at_best_rate([row for row in mine if row.value(across) == x])
            done = [r for r in best if r.status == DONE and not math.isnan(r.accuracy(split))]
            if done:
                curve.points[x] = [row.accuracy(split) for row in done]
                curve.keys[x] = [row.key for row in done]
        curves.append(curve)
    return curves


def _over_steps(rows: Sequence[RunRow], quantity: str) -> list[Curve]:
    curves = []
    for curve, mine in _labelled([row for row in rows if row.result.curve.get("step")]):
        for row in mine:
            stored = row.result.curve
            for step, value in zip(stored["step"], stored[quantity], strict=True):
                if value is not None:
                    curve.points.setdefault(step, []).append(value)
                    curve.keys.setdefault(step, []).append(row.key)
        curves.append(curve)
    if not curves:
        raise ArgumentError("rows", "no finished run", "at least one")
    return curves


def _labelled(rows: Sequence[RunRow]) -> list[tuple[Curve, list[RunRow]]]:
    """Runs by label, each with the line that draws them: dashes where a colour comes again."""
    groups: dict[str, list[RunRow]] = defaultdict(list)
    for row in rows:
        groups[row.label or str(row.config.model)].append(row)
    seen: dict[str, int] = defaultdict(int)
    found = []
    for label, mine in groups.items():
        colour = colour_of(mine[0].config.model)
        found.append((Curve(label, colour, DASHES[seen[colour] % len(DASHES)]), mine))
        seen[colour] += 1
    return found


def _draw(figure: go.Figure, curve: Curve, look: Theme, *, marks: bool = True) -> None:
    """The band from the lowest to the highest seed, then the mean over it."""
    xs = sorted(curve.points)
    colour, name = shade(curve.colour, look), shown(curve.label)
    low, high = ([pick(curve.points[x]) for x in xs] for pick in (min, max))
    if low != high:
        figure.add_trace(
            go.Scatter(
                x=[*xs, *reversed(xs)], y=[*high, *reversed(low)], fill="toself", mode="lines",
                fillcolor=faded(colour, 0.18), line={"width": 0}, hoverinfo="skip",
                showlegend=False, legendgroup=curve.label,
            )
        )  # fmt: skip
    spans = zip((len(curve.points[x]) for x in xs), low, high, strict=True)
    counts = [f"{count} runs, {least:.3f} to {most:.3f}" for count, least, most in spans]
    figure.add_trace(
        go.Scatter(
            x=xs, y=[statistics.fmean(curve.points[x]) for x in xs], name=name,
            legendgroup=curve.label, mode="lines+markers" if marks else "lines",
            line=line(colour, dash=curve.dash), marker=marker(colour), customdata=counts,
            meta={"keys": [curve.keys.get(x, []) for x in xs]} if marks else None,
            hovertemplate="%{x}: %{y:.3f}<br>%{customdata}<extra>" + name + "</extra>",
        )
    )  # fmt: skip


def _draw_published(figure: go.Figure, numbers: Published, look: Theme) -> None:
    """Hollow or dashed, in the model's colour; one entry in the legend for all of a source."""
    for turn, (name, points) in enumerate(numbers.values.items()):
        colour = shade(colour_of(nn.model(name)), look)
        figure.add_trace(
            go.Scatter(
                x=list(points), y=list(points.values()), name=numbers.source,
                legendgroup=numbers.source, showlegend=turn == 0,
                mode="lines" if numbers.dashed else "markers",
                line=line(colour, published=True, width=1.5),
                marker=marker(colour, published=True, size=12),
                hovertemplate=f"%{{x}}: %{{y:.3f}}<extra>{shown(name)}, {numbers.source}</extra>",
            )
        )  # fmt: skip


def _draw_variant(
    figure: go.Figure, label: str, mine: Sequence[RunRow], split: str, look: Theme
) -> None:
    found = [row.accuracy(split) for row in mine if row.status == DONE]
    colour = shade(colour_of(mine[0].config.model), look)
    name = shown(label)
    shared = {"showlegend": False, "name": name}
    if not found:
        # An empty bar makes the row: an annotation alone would fall on somebody else's.
        figure.add_trace(go.Bar(x=[0], y=[name], orientation="h", hoverinfo="skip", **shared))
        words = ", ".join(sorted({_ended(row) for row in mine}))
        figure.add_annotation(x=0, y=name, text=words, showarrow=False, xanchor="left")
        return
    mean = statistics.fmean(found)
    figure.add_trace(
        go.Bar(
            x=[mean],
            y=[shown(label)],
            orientation="h",
            marker={"color": faded(colour, 0.35)},
            **shared,
        )
    )
    figure.add_trace(
        go.Scatter(
            x=found, y=[shown(label)] * len(found), mode="markers", marker=marker(colour),
            meta={"keys": [[row.key] for row in mine if row.status == DONE]},
            customdata=[f"seed {row.config.seed}" for row in mine if row.status == DONE],
            hovertemplate="%{y}: %{x:.3f}<br>%{customdata}<extra></extra>", **shared,
        )
    )  # fmt: skip


def _ended(row: RunRow) -> str:
    return row.status + (f" at step {row.result.step}" if row.result.step else "")


def _cell(
    rows: Iterable[RunRow], lr: float, across: str, load: float, split: str
) -> tuple[float | None, str]:
    here = [row for row in rows if row.config.lr == lr and row.value(across) == load]
    found = [row.accuracy(split) for row in here if row.status == DONE]
    if found:
        mean = statistics.fmean(found)
        return mean, f"{mean:.3f}"
    return None, ", ".join(sorted({row.status for row in here}))


def _values(rows: Sequence[RunRow], name: str) -> list[float]:
    return sorted({row.value(name) for row in rows})


def _published_at(published: Sequence[Published]) -> set[float]:
    return {x for numbers in published for points in numbers.values.values() for x in points}


def _ticks(xs: Iterable[float]) -> dict[str, Any]:
    """The measured loads as ticks: on a log axis plotly would choose others."""
    return {"tickvals": sorted(xs), "ticktext": [f"{x:g}" for x in sorted(xs)]}


def _told(curves: Sequence[Curve], *, last: bool = False) -> str:
    """The means in words, for readers who don't see the picture."""
    parts = []
    for curve in curves:
        xs = sorted(curve.points)[-1:] if last else sorted(curve.points)
        numbers = ", ".join(f"{x:g}: {statistics.fmean(curve.points[x]):.3f}" for x in xs)
        parts.append(f"{shown(curve.label)} ({numbers})")
    return "; ".join(parts) + "."


def _mean_text(rows: Sequence[RunRow], label: str, split: str) -> str:
    mine = at_best_rate([row for row in rows if row.label == label])
    found = [row.accuracy(split) for row in mine if row.status == DONE]
    return f"{statistics.fmean(found):.3f}" if found else "no finished run"
