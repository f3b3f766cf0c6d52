"""Recorded timings and errors as pictures: pure functions of the rows that ``vla bench`` leaves.

What the paper says of its own kernel is drawn as what it is: dashed, from two power laws that its
authors fitted to T ≤ 4 096 on one T4 (:data:`PAPER`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from vla.bench.analysis import bracket, curve
from vla.bench.cases import Shape, traffic
from vla.errors import ArgumentError, require_choice
from vla.figures.runs import faded
from vla.figures.theme import DASHES, Theme, finish, line, marker, shade, theme, three
from vla.rules import RULES

Row = dict[str, Any]
PASSES = ("forward", "forward+backward")
OURS, SOFTMAX, DELTA, LOOP = (
    "vla triton bf16", "softmax attention bf16", "fla chunk_delta_rule bf16", "vla scan fp32",
)  # fmt: skip


class Family(NamedTuple):
    """One implementation at any precision: its name here, in the records, and the rule it runs."""

    title: str
    stem: str
    rule: str


FAMILIES = {
    each.title: each
    for each in (
        Family("VLA kernel", "vla triton", "vla"),
        Family("VLA kernel (refresh 20)", "vla triton refresh 20", "vla"),
        Family("VLA chunk form (PyTorch)", "vla chunk", "vla"),
        Family("VLA token loop (PyTorch)", "vla scan", "vla"),
        Family("softmax (SDPA)", "softmax attention", "softmax"),
        Family("FlashAttention 2", "flash attention 2", "softmax"),
        Family("fla delta rule", "fla chunk_delta_rule", "delta"),
        Family("fla gated delta rule", "fla chunk_gated_delta_rule", "gated_delta"),
        Family("fla MesaNet", "fla chunk_mesa_net", "rls"),
    )
}
PRECISIONS = ("bf16", "tf32", "tf32x3", "fp32")


class Quantity(NamedTuple):
    """What is drawn against the number of tokens."""

    axis: str
    unit: str
    title: str


QUANTITIES = {
    "latency": Quantity("median, ms", "ms", "How long does it take?"),
    "throughput": Quantity("tokens a second", "tokens/s", "How many tokens a second?"),
    "memory": Quantity("peak beyond the inputs, MB", "MB", "How much memory does a call need?"),
    "times the floor": Quantity(
        "time over the time of reading inputs and writing outputs once", "×",
        "How far from the memory's bandwidth?",
    ),
}  # fmt: skip
"""By name; the last is 1 for a kernel that does nothing but move its inputs and outputs."""


class PaperLaw(NamedTuple):
    """What the authors' notebook measured and fitted on one T4, batch 4, d = 64, forward."""

    anchor_tokens: int
    anchor_ms: float
    kernel_exponent: float
    softmax_exponent: float
    crossing: int

    def kernel(self, tokens: float) -> float:
        """Their kernel's milliseconds."""
        return float(self.anchor_ms * (tokens / self.anchor_tokens) ** self.kernel_exponent)

    def softmax(self, tokens: float) -> float:
        """Softmax attention's, through the crossing that they state."""
        return float(self.kernel(self.crossing) * (tokens / self.crossing) ** self.softmax_exponent)


PAPER = PaperLaw(4096, 111.3, 0.97, 1.80, 43_000)
"""111.3 ms at T = 4 096 and the exponents are the notebook's, 43 000 is the paper's (abstract)."""


def family_of(method: str) -> Family:
    """The implementation behind a method's name in a record.

    >>> family_of("vla triton refresh 20 bf16").title, family_of("vla triton ieee").title
    ('VLA kernel (refresh 20)', 'VLA kernel')
    """
    found = [each for each in FAMILIES.values() if method.startswith(each.stem)]
    return max(found, key=lambda each: len(each.stem), default=Family(method, method, "softmax"))


def precision_of(method: str) -> str:
    """``bf16``, ``tf32``, ``tf32x3`` or ``fp32``."""
    word = method.rpartition(" ")[2]
    return {"ieee": "fp32"}.get(word, word)


def named(method: str) -> str:
    """A method's name in a legend.

    >>> named("vla triton ieee")
    'VLA kernel, fp32'
    """
    return f"{family_of(method).title}, {precision_of(method)}"


def value(row: Row, quantity: str) -> float | None:
    """A row's value of a quantity; ``None`` where it wasn't measured."""
    if quantity == "latency":
        return float(row["median_ms"])
    if quantity == "throughput":
        return float(row["tokens_per_s"])
    if quantity == "memory":
        return None if row["peak_bytes"] is None else row["peak_bytes"] / 2**20
    return 1 / row["floor_fraction"] if row["floor_fraction"] else None


def shapes(rows: Sequence[Row]) -> list[str]:
    """The shapes that rows have, in their order."""
    return list(dict.fromkeys(row["shape"] for row in rows))


def chosen(
    rows: Sequence[Row], shape: str, which: str, families: Sequence[str], precisions: Sequence[str]
) -> list[Row]:
    """The rows of one picture, each method's by length."""
    return sorted(
        (
            row for row in rows
            if (row["shape"], row["pass"]) == (shape, which)
            and family_of(row["method"]).title in families
            and precision_of(row["method"]) in precisions
        ),
        key=lambda row: (list(FAMILIES).index(family_of(row["method"]).title), row["tokens"]),
    )  # fmt: skip


def crossover(record: Mapping[str, Any], shape: str, which: str) -> tuple[int | None, int | None]:
    """The lengths between which VLA's kernel passes below softmax attention.

    As narrowed by measuring, if the record has it, else from the measured lengths alone. ``(None,
    T)``: below from the shortest on; ``(T, None)``: not up to T; ``(None, None)``: not measured.
    """
    for each in record.get("crossovers", ()):
        if (each["shape"], each["pass"]) == (shape, which):
            return each["slower_at"], each["faster_from"]
    ours, theirs = (curve(record["rows"], name, shape, which) for name in (OURS, SOFTMAX))
    return bracket(ours, theirs)


def against_length(
    rows: Sequence[Row],
    *,
    quantity: str = "latency",
    crossing: tuple[int | None, int | None] = (None, None),
    bytes_per_s: float | None = None,
    paper: bool = False,
    title: str = "",
    theme_name: str = "light",
) -> go.Figure:
    """One line a method against the number of tokens, both axes logarithmic.

    ``crossing`` is marked (latency, throughput); ``bytes_per_s`` draws the bandwidth floor of bf16
    and ``paper`` the extrapolation of :data:`PAPER` (latency alone). Without rows the picture says
    so. Raises ``ValueError`` for another quantity or theme.
    """
    require_choice("quantity", quantity, QUANTITIES)
    look, about = theme(theme_name), QUANTITIES[quantity]
    figure = go.Figure()
    told = [_draw(figure, method, mine, quantity, look) for method, mine in _by_method(rows)]
    if quantity == "latency":
        told += _floor(figure, rows, bytes_per_s, look) + _paper(figure, paper, rows, look)
    if quantity in ("latency", "throughput"):
        told += _crossing(figure, crossing, look)
    ticks = sorted({row["tokens"] for row in rows})
    figure.update_xaxes(
        title_text="tokens in a sequence, T", type="log",
        **({"tickvals": ticks, "ticktext": [_short(t) for t in ticks]} if ticks else {}),
    )  # fmt: skip
    figure.update_yaxes(title_text=about.axis, type="log", dtick=1, exponentformat="power")
    words = " ".join(told) or "Nothing of this was measured."
    title = title or about.title
    if not told:
        figure.add_annotation(text=words, showarrow=False, x=0.5, y=0.5, xref="paper", yref="paper")
    return finish(figure, look, title=title, alt=f"{title} {words}", height=460)


def errors(rows: Sequence[Row], *, output: str = "worst", theme_name: str = "light") -> go.Figure:
    """Relative errors against the float64 token loop, a mark a configuration, bounds dashed.

    ``output`` is ``worst``, ``gradients`` or one of the rows' outputs. Raises ``ValueError`` for an
    output that no row has, or another theme.
    """
    look = theme(theme_name)
    known = {name for row in rows for name in row["errors"]}
    if rows and output not in {"worst", "gradients", *known}:
        raise ArgumentError("output", output, "worst, gradients, " + ", ".join(sorted(known)))
    figure = go.Figure()
    told = [
        _draw_faults(figure, name, _faults(mine, output), turn, look)
        for turn, (name, mine) in enumerate(_by_precision(rows))
    ]
    ticks = [10**i for i in range(6)]
    figure.update_xaxes(
        title_text="tokens in a sequence, T (a bar is a mark's bound)", type="log",
        tickvals=ticks, ticktext=[_spaced(t) for t in ticks],
    )  # fmt: skip
    figure.update_yaxes(title_text="relative error", type="log", dtick=1, exponentformat="power")
    title = "How exact is the kernel?"
    words = " ".join(filter(None, told)) or "No errors were measured."
    return finish(figure, look, title=title, alt=f"{title} {words}", height=460)


class Fault(NamedTuple):
    """One configuration's error."""

    tokens: int
    output: str
    error: float
    bound: float
    case: str


def _faults(rows: Sequence[Row], output: str) -> list[Fault]:
    return [
        Fault(tokens, name, error, row["bound"], row["case"])
        for row in rows
        if (tokens := tokens_of(row))
        for name, error in [error_of(row, output)]
        if error is not None
    ]


def _draw_faults(
    figure: go.Figure, name: str, faults: Sequence[Fault], turn: int, look: Theme
) -> str:
    """A mark for each error, and a bar for its bound; their words for who can't see them."""
    if not faults:
        return ""
    colour = shade(ERROR_INKS[turn % len(ERROR_INKS)], look)
    figure.add_scatter(
        x=[f.tokens for f in faults], y=[max(f.error, 1e-9) for f in faults], name=name,
        mode="markers", marker={**marker(colour), "symbol": SYMBOLS[turn % len(SYMBOLS)]},
        customdata=[f"{f.case}<br>{f.output}, bound {f.bound:.1e}" for f in faults],
        hovertemplate="%{y:.2e}<br>%{customdata}<extra>" + name + "</extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[f.tokens for f in faults], y=[f.bound for f in faults], mode="markers",
        marker={"color": colour, "symbol": "line-ew-open", "size": 12, "line": {"width": 1.5}},
        name=f"its bound ({name})", showlegend=False, hoverinfo="skip",
    )  # fmt: skip
    worst = max(f.error / f.bound for f in faults)
    return f"{name}: {len(faults)} configurations, the worst has {worst:.2f} of its bound."


ERROR_INKS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#B07800")
SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross")


def tokens_of(row: Row) -> int:
    """The number of tokens of an error's configuration; 0 if its name doesn't say."""
    found = re.search(r"\btokens (\d+)", row["case"])
    return int(found[1]) if found else 0


def error_of(row: Row, output: str) -> tuple[str, float | None]:
    """Which output it is, and its error; ``None`` where it has none."""
    gradients = {name: x for name, x in row["errors"].items() if name.startswith("d")}
    one = {output: row["errors"][output]} if output in row["errors"] else {}
    among: dict[str, float] = {"worst": row["errors"], "gradients": gradients}.get(output, one)
    name = max(among, key=lambda n: among[n], default="")
    return name, among.get(name)


def _by_precision(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        words = row["dtype"] if row["precision"] in ("auto", "ieee") else row["precision"]
        groups.setdefault(words, []).append(row)
    return list(groups.items())


class Target(NamedTuple):
    """One number that was to be met: what was wanted, what was measured, and whether it is met."""

    wanted: str
    measured: str
    met: bool | None
    """``None``: the record lacks what decides it."""


def targets(record: Mapping[str, Any], wrong: Sequence[Row] = ()) -> list[Target]:
    """The project's targets for speed on one H200, and for errors, each said in words."""
    rows = record.get("rows", ())
    return [
        _ratio_target(
            rows, "VLA forward at least 1 000 times as fast as the token loop, B8 H4 d32, T 2 048",
            (LOOP, OURS, "B8 H4 d32", "forward", 2048), least=1000,
        ),
        _ratio_target(
            rows, "VLA forward at most 1.5 times fla's delta rule, B4 H16 d64, T 32 768",
            (OURS, DELTA, "B4 H16 d64", "forward", 32_768), most=1.5,
        ),
        _ratio_target(
            rows, "VLA forward and backward at most 2 times fla's, same shape",
            (OURS, DELTA, "B4 H16 d64", "forward+backward", 32_768), most=2,
        ),
        _everywhere(rows, "VLA forward below fla's up to T 8 192, B4 H16 d64", DELTA, (0, 8192)),
        _everywhere(
            rows, "VLA forward below softmax attention from T 8 192 on, B4 H16 d64",
            SOFTMAX, (8192, math.inf),
        ),
        _within(wrong),
    ]  # fmt: skip


def _ratio_target(
    rows: Sequence[Row], wanted: str, what: tuple[str, str, str, str, int],
    *, least: float = 0, most: float = math.inf,
) -> Target:  # fmt: skip
    above, below, shape, which, tokens = what
    times = [dict(curve(rows, name, shape, which)).get(tokens) for name in (above, below)]
    if times[0] is None or times[1] is None:
        return Target(wanted, "not in this record", None)
    ratio = times[0] / times[1]
    text = f"{three(ratio)} times ({three(times[0])} against {three(times[1])} ms)"
    return Target(wanted, text, least <= ratio <= most)


def _everywhere(rows: Sequence[Row], wanted: str, other: str, span: tuple[float, float]) -> Target:
    ours, theirs = (dict(curve(rows, name, "B4 H16 d64", "forward")) for name in (OURS, other))
    lengths = [t for t in sorted(ours) if t in theirs and span[0] <= t <= span[1]]
    if not lengths:
        return Target(wanted, "not in this record", None)
    slower = [t for t in lengths if ours[t] >= theirs[t]]
    if not slower:
        return Target(wanted, f"at all {len(lengths)} lengths measured", True)
    listed = ", ".join(f"T {_spaced(t)} ({three(ours[t])} against {three(theirs[t])} ms)"
                       for t in slower)  # fmt: skip
    return Target(wanted, f"above it at {listed}", False)


def _within(rows: Sequence[Row]) -> Target:
    wanted = "Errors within 1e-5 (float32), 2e-3 (tf32), 1e-2 (bf16), forward and gradients"
    if not rows:
        return Target(wanted, "not in this record", None)
    above = [row for row in rows if (error_of(row, "worst")[1] or 0) > row["bound"]]
    text = f"{len(rows) - len(above)} of {len(rows)} configurations measured"
    return Target(wanted, text, not above)


def _by_method(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row["method"], []).append(row)
    return list(groups.items())


def _draw(figure: go.Figure, method: str, rows: Sequence[Row], quantity: str, look: Theme) -> str:
    """One method's line and the spread of its repeats; its words for who can't see it."""
    points = [(row["tokens"], x, row) for row in rows if (x := value(row, quantity)) is not None]
    if not points:
        return ""
    family = family_of(method)
    colour = shade(RULES[family.rule].colour, look)
    seen = {trace.meta["method"] for trace in figure.data if trace.line.color == colour}
    dash, unit = DASHES[len(seen) % len(DASHES)], QUANTITIES[quantity].unit
    name = named(method)
    if quantity == "latency":
        _spread(figure, [row for _, _, row in points], colour, method)
    figure.add_scatter(
        x=[t for t, _, _ in points], y=[x for _, x, _ in points], name=name,
        mode="lines+markers", line=line(colour, dash=dash), marker=marker(colour, size=7),
        legendgroup=method, meta={"method": method},
        customdata=[_hover(row) for _, _, row in points],
        hovertemplate=f"T %{{x}}: %{{y:.3g}} {unit}<br>%{{customdata}}<extra>{name}</extra>",
    )  # fmt: skip
    first, last = points[0], points[-1]
    return f"{name}: {three(first[1])} {unit} at {first[0]}, {three(last[1])} at {last[0]}."


def _spread(figure: go.Figure, rows: Sequence[Row], colour: str, method: str) -> None:
    xs = [row["tokens"] for row in rows]
    high, low = [row["high_ms"] for row in rows], [row["low_ms"] for row in rows]
    figure.add_scatter(
        x=[*xs, *reversed(xs)], y=[*high, *reversed(low)], fill="toself", mode="lines",
        fillcolor=faded(colour, 0.16), line={"width": 0}, hoverinfo="skip", showlegend=False,
        legendgroup=method, meta={"method": method},
    )  # fmt: skip


def _hover(row: Row) -> str:
    span = f"20 to 80 %: {three(row['low_ms'])} to {three(row['high_ms'])} ms"
    return f"{span}, {row['repeats']} calls<br>{row.get('device', '')} {row.get('commit', '')[:7]}"


def _floor(
    figure: go.Figure, rows: Sequence[Row], bytes_per_s: float | None, look: Theme
) -> list[str]:
    if not (rows and bytes_per_s):
        return []
    import torch

    first = rows[0]
    shape = Shape(first["batch"], first["heads"], first["width"])
    xs = sorted({row["tokens"] for row in rows})
    backward = first["pass"] != "forward"
    ys = [1e3 * traffic(shape, t, torch.bfloat16, backward) / bytes_per_s for t in xs]
    figure.add_scatter(
        x=xs, y=ys, mode="lines", name="bandwidth floor, bf16", meta={"method": "floor"},
        line={"color": look.muted, "width": 1.5, "dash": "dot"},
        hovertemplate="T %{x}: %{y:.3g} ms at least<extra>each input and output once</extra>",
    )  # fmt: skip
    return [f"Bandwidth floor in bf16: {three(ys[-1])} ms at {xs[-1]}."]


def _paper(figure: go.Figure, wanted: bool, rows: Sequence[Row], look: Theme) -> list[str]:
    if not wanted:
        return []
    most = max([PAPER.crossing * 2, *(row["tokens"] for row in rows)])
    xs = [512.0, float(PAPER.anchor_tokens), float(PAPER.crossing), float(most)]
    for name, rule, law in (
        ("the paper's kernel, T4", "vla", PAPER.kernel),
        ("softmax, T4, its fit", "softmax", PAPER.softmax),
    ):
        figure.add_scatter(
            x=xs, y=[law(x) for x in xs], mode="lines", name=f"{name} (extrapolated)",
            line=line(shade(RULES[rule].colour, look), published=True, width=1.5),
            meta={"method": name},
            hovertemplate="T %{x}: %{y:.3g} ms<br>power law fitted to T ≤ 4 096 on a T4, batch 4, "
            "d 64<extra>" + name + "</extra>",
        )  # fmt: skip
    _upright(figure, PAPER.crossing, "43 000: the paper, extrapolated<br>from T ≤ 4 096 on a T4",
             look, dash="dash", y=0.02)  # fmt: skip
    return [
        "The paper's crossing at 43 000 tokens is extrapolated from T ≤ 4 096 on a T4 (dashed)."
    ]


def _crossing(figure: go.Figure, found: tuple[int | None, int | None], look: Theme) -> list[str]:
    low, high = found
    if low is None or high is None:
        return []
    figure.add_vrect(x0=low, x1=high, fillcolor=faded(shade(RULES["vla"].colour, look), 0.25),
                     line_width=0)  # fmt: skip
    words = f"VLA below softmax from T {_spaced(high)} on"
    _upright(figure, math.sqrt(low * high), words + "<br>(measured)", look, dash="solid", y=0.97)
    return [f"{words}; at {_spaced(low)} it is not (measured)."]


def _upright(figure: go.Figure, x: float, text: str, look: Theme, *, dash: str, y: float) -> None:
    figure.add_shape(type="line", x0=x, x1=x, y0=0, y1=1, yref="paper", layer="below",
                     line={"color": look.muted, "width": 1.5, "dash": dash})  # fmt: skip
    figure.add_annotation(
        x=math.log10(x), y=y, yref="paper", text=text, showarrow=False, xanchor="right",
        align="right", xshift=-4, font={"size": 12, "color": look.ink}, bgcolor=look.paper,
    )  # fmt: skip


def _short(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens >= 1024 and tokens % 1024 == 0 else f"{tokens}"


def _spaced(tokens: int) -> str:
    return f"{tokens:,}".replace(",", " ")
