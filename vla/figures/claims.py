"""The small pictures of the ledger: SVG from plain numbers, for a card, a printed page and a file.

No script and no library in the page; light and dark, and a printer's paper, from one style sheet.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from html import escape

from vla.claims.finding import Chart, Series
from vla.errors import ArgumentError
from vla.figures.theme import DARK, LIGHT, Theme, shade, three
from vla.rules import RULES

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 400, 58, 12, 10, 40
PLOT = 190
"""Height of the plot, without axis and legend."""
ROW = 19
MOST_ROWS = 24
"""Rows of a list that are drawn; a longer one is thinned, and its table has them all."""
DASHES = ("", "2 3", "9 3 2 3", "16 4", "9 3 2 3 2 3", "1 6")
"""One after the other; a plain dash means "as published"."""


def style(root: str = ".claim-figure") -> str:
    """The style sheet: colours of the rules, readable on white and, under ``.dark``, on black."""
    return _sheet(root, LIGHT) + _sheet(f".dark {root}", DARK)


def svg(chart: Chart) -> str:
    """The picture as an ``<svg>`` element with its words for those who don't see it.

    Texts as ``x`` make a row each, with marks along a horizontal axis. Raises ``ValueError`` for a
    chart that mixes texts and numbers.
    """
    drawn = [each for each in chart.series if any(y is not None for y in each.y)]
    drawn.sort(key=lambda each: each.published)
    kinds = {isinstance(x, str) for each in drawn for x in each.x}
    if len(kinds) > 1:
        raise ArgumentError("chart", chart.x, "texts or numbers on one axis, not both")
    return _list(chart, drawn) if True in kinds else _plot(chart, drawn)


def words(chart: Chart) -> str:
    """The picture in words: each series with its last, or its every, number."""
    parts = []
    for each in chart.series:
        pairs = [(x, y) for x, y in zip(each.x, each.y, strict=True) if y is not None]
        if not pairs:
            continue
        shown = pairs if len(pairs) <= 8 else [pairs[0], pairs[-1]]
        numbers = ", ".join(f"{_name(x)}: {three(y)}" for x, y in shown)
        parts.append(f"{each.name} ({numbers})")
    axes = f"{chart.y} against {chart.x}" if chart.y else chart.x
    return f"{axes}. " + "; ".join(parts) + "."


def _sheet(root: str, look: Theme) -> str:
    lines = [
        f"{root} {{ --ink: {look.ink}; --muted: {look.muted}; --grid: {look.grid}; --paper: "
        f"{look.paper}; }}"
    ]
    for name, rule in RULES.items():
        lines.append(f"{root} .rule-{name} {{ --hue: {shade(rule.colour, look)}; }}")
    return "\n".join(lines) + "\n"


STYLE = """
.claim-figure svg { display: block; width: 100%; max-width: 500px; height: auto; }
@media print { .claim-figure svg { max-width: 300px; } }
.claim-figure text { fill: var(--muted); font: 11.5px system-ui, sans-serif; }
.claim-figure .name { fill: var(--ink); }
.claim-figure .axis { stroke: var(--muted); stroke-width: 1; }
.claim-figure .tick { stroke: var(--grid); stroke-width: 1; }
.claim-figure .level { stroke: var(--ink); stroke-width: 1.2; stroke-dasharray: 6 4; }
.claim-figure .series { --hue: var(--ink); }
.claim-figure path.line { fill: none; stroke: var(--hue); stroke-width: 1.8; }
.claim-figure .mark { fill: var(--hue); stroke: var(--hue); stroke-width: 1.6; }
.claim-figure .published .mark { fill: none; }
"""


def _plot(chart: Chart, drawn: Sequence[Series]) -> str:
    """Lines and marks over two axes."""
    across = _Axis([float(x) for s in drawn for x in s.x if x is not None], chart.log_x)
    level = [chart.level] if chart.level is not None else []
    up = _Axis([y for s in drawn for y in s.y if y is not None] + level, chart.log_y)
    x0, x1, y0, y1 = LEFT, WIDTH - RIGHT, TOP + PLOT, TOP

    def at(x: float, y: float) -> tuple[float, float] | None:
        h, v = across.share(x), up.share(y)
        return None if h is None or v is None else (x0 + h * (x1 - x0), y0 + v * (y1 - y0))

    parts = []
    for value in up.ticks():
        h = y0 + (up.share(value) or 0) * (y1 - y0)
        parts.append(f'<line class="tick" x1="{x0}" x2="{x1}" y1="{h:.1f}" y2="{h:.1f}"/>')
        parts.append(f'<text x="{x0 - 6}" y="{h + 4:.1f}" text-anchor="end">{_tick(value)}</text>')
    for value in across.ticks():
        w = x0 + (across.share(value) or 0) * (x1 - x0)
        parts.append(f'<text x="{w:.1f}" y="{y0 + 15}" text-anchor="middle">{_tick(value)}</text>')
    parts += [_line(x0, y0, x1, y0, "axis"), _line(x0, y0, x0, y1, "axis")]
    if chart.level is not None and (v := up.share(chart.level)) is not None:
        parts.append(_line(x0, y0 + v * (y1 - y0), x1, y0 + v * (y1 - y0), "level"))
    for number, each in enumerate(drawn):
        points = [at(float(x), y) for x, y in zip(each.x, each.y, strict=True)
                  if x is not None and y is not None]  # fmt: skip
        parts.append(_series(each, number, [p for p in points if p is not None]))
    parts.append(
        f'<text x="{(x0 + x1) / 2}" y="{y0 + 31}" text-anchor="middle">{escape(chart.x)}</text>'
    )
    parts.append(
        f'<text transform="translate(12 {(y0 + y1) / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.y)}</text>"
    )
    return _frame(chart, parts, drawn, y0 + BOTTOM)


def _list(chart: Chart, drawn: Sequence[Series]) -> str:
    """A row per text, marks along one axis."""
    known = {str(x) for s in drawn for x in s.x}
    names = [x for x in dict.fromkeys(str(x) for s in chart.series for x in s.x) if x in known]
    step = -(-len(names) // MOST_ROWS)
    names = names[::step]
    level = [chart.level] if chart.level is not None else []
    axis = _Axis([y for s in drawn for y in s.y if y is not None] + level, chart.log_x)
    labels = [_wrapped(name) for name in names]
    widest = max((len(line) for label in labels for line in label), default=0)
    tall = ROW + 13 * (max((len(label) for label in labels), default=1) - 1)
    x0, x1 = min(224, 14 + round(6.1 * widest)), WIDTH - RIGHT - 16
    y0 = TOP + tall * len(names)
    parts = []
    for value in axis.ticks(4):
        h = x0 + (axis.share(value) or 0) * (x1 - x0)
        parts.append(_line(h, TOP, h, y0, "tick"))
        parts.append(f'<text x="{h:.1f}" y="{y0 + 15}" text-anchor="middle">{_tick(value)}</text>')
    if chart.level is not None and (v := axis.share(chart.level)) is not None:
        parts.append(_line(x0 + v * (x1 - x0), TOP, x0 + v * (x1 - x0), y0, "level"))
    for row, label in enumerate(labels):
        middle = TOP + tall * (row + 0.5) + 4 - 6.5 * (len(label) - 1)
        parts += [
            f'<text class="name" x="{x0 - 8}" y="{middle + 13 * i:.1f}" text-anchor="end">'
            f"{escape(line)}</text>"
            for i, line in enumerate(label)
        ]
    for number, each in enumerate(drawn):
        points = []
        for x, y in zip(each.x, each.y, strict=True):
            share = None if y is None else axis.share(y)
            if share is not None and str(x) in names:
                points.append((x0 + share * (x1 - x0), TOP + tall * (names.index(str(x)) + 0.5)))
        parts.append(_series(each, number, points))
    parts.append(
        f'<text x="{(x0 + x1) / 2}" y="{y0 + 31}" text-anchor="middle">{escape(chart.x)}</text>'
    )
    return _frame(chart, parts, drawn, y0 + BOTTOM)


def _wrapped(name: str) -> list[str]:
    """A row's name on at most two lines."""
    lines = textwrap.wrap(name.replace(" = ", "\u00a0=\u00a0"), 34) or [""]
    return lines if len(lines) < 3 else [lines[0], lines[1][:33] + "…"]


def _series(each: Series, number: int, points: Sequence[tuple[float, float]]) -> str:
    dash = "6 4" if each.published else DASHES[number % len(DASHES)]
    radius = 5 if each.published else 3.4
    parts = []
    if each.line and len(points) > 1:
        path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        stroke = f' stroke-dasharray="{dash}"' if dash else ""
        parts.append(f'<path class="line" d="{path}"{stroke}/>')
    if each.marks or not each.line or len(points) == 1:
        shown = points if len(points) <= 40 else points[:: -(-len(points) // 40)]
        parts += [
            f'<circle class="mark" cx="{x:.1f}" cy="{y:.1f}" r="{radius}"/>' for x, y in shown
        ]
    return f'<g class="{_classes(each)}">{"".join(parts)}</g>'


def _classes(each: Series) -> str:
    published = " published" if each.published else ""
    return f"series rule-{escape(each.rule or 'none')}{published}"


def _frame(chart: Chart, parts: list[str], drawn: Sequence[Series], top: float) -> str:
    """The element, its words, and a legend under the plot, one entry a line."""
    entries = [(each.name, _key(each, number)) for number, each in enumerate(drawn)]
    if chart.level is not None:
        entries.append((chart.level_name, _line(0, 0, 26, 0, "level")))
    for row, (name, key) in enumerate(entries):
        y = top + 8 + 16 * row
        parts.append(
            f'<g transform="translate({LEFT} {y})">{key}</g>'
            f'<text class="name" x="{LEFT + 34}" y="{y + 4}">{escape(name)}</text>'
        )
    height = top + 14 + 16 * len(entries)
    told = escape(words(chart), quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{told}">'
        f"{''.join(parts)}</svg>"
    )


def _key(each: Series, number: int) -> str:
    line = [(0.0, 0.0), (26.0, 0.0)] if each.line else []
    mark = [(13.0, 0.0)] if each.marks or not each.line else []
    return _series(
        each,
        number,
        line if line and not mark else (line and [*line[:1], *mark, *line[1:]]) or mark,
    )


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


class _Axis:
    """Values to shares of an axis, linear or logarithmic; zero and less have no logarithm."""

    def __init__(self, values: Sequence[float], log: bool) -> None:
        self.log = log
        known = [self._to(v) for v in values if math.isfinite(v) and (v > 0 or not log)]
        low, high = (min(known), max(known)) if known else (0.0, 1.0)
        if not log and low >= 0 and low < 0.5 * high:
            low = 0.0
        room = (high - low) * 0.05 or 0.5
        self.low = low if low == 0 and not log else low - room
        self.high = high + room

    def _to(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def share(self, value: float) -> float | None:
        """Where it stands, 0 to 1; ``None`` for what can't be drawn."""
        if not math.isfinite(value) or (self.log and value <= 0):
            return None
        return (self._to(value) - self.low) / (self.high - self.low)

    def ticks(self, most: int = 6) -> list[float]:
        """Round values."""
        if self.log and self.high - self.low > 1:
            first, last = math.ceil(self.low), math.floor(self.high)
            every = max(1, -(-(last - first + 1) // most))
            return [10.0**p for p in range(first, last + 1, every)]
        low, high = (10**self.low, 10**self.high) if self.log else (self.low, self.high)
        raw = (high - low) / most
        size = 10 ** math.floor(math.log10(raw)) if raw > 0 else 1.0
        step = next(size * m for m in (1, 2, 5, 10) if size * m >= raw)
        first = math.ceil(low / step - 1e-9)
        return [round(step * i, 12) for i in range(first, first + most + 2) if step * i <= high]


def _tick(value: float) -> str:
    if value and (abs(value) >= 1e5 or abs(value) < 1e-3):
        return f"10{_raised(round(math.log10(abs(value))))}" if _is_power(value) else three(value)
    return f"{value:g}".replace("-", "−")


def _is_power(value: float) -> bool:
    return value > 0 and math.isclose(value, 10.0 ** round(math.log10(value)), rel_tol=1e-9)


def _raised(power: int) -> str:
    return str(power).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))


def _name(x: object) -> str:
    return x if isinstance(x, str) else f"{x:g}"
