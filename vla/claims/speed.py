"""Complexity, latency, the kernel and the crossover: Table 1, §3.5, §6.1, §8, Figures 2a and 3."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vla import nn
from vla.bench.analysis import curve, slope
from vla.claims.claim import Link, claim
from vla.claims.evidence import Evidence, NoEvidence
from vla.claims.finding import (
    CHANGED,
    FAILS,
    HOLDS,
    UNDECIDED,
    Chart,
    Finding,
    Grid,
    Series,
)  # fmt: skip
from vla.claims.latency import MODELS, Points, time_models
from vla.claims.memory import ints, normal, unit
from vla.claims.stability import untrained, untrained_long
from vla.figures.theme import three
from vla.rules import Token, make
from vla.theory import growth_exponent

HUES = {"softmax": "softmax", "linear": "linear", "deltanet": "authors_delta", "vla": "vla"}


def logged(evidence: Evidence) -> dict[str, Points]:
    """The authors' own forward latencies: (T, ms) by model."""
    rows = evidence.log("latency")
    return {m: [(int(r["t"]), float(r[f"{m}_ms"])) for r in rows] for m in MODELS}


def ratio(latency: dict[str, Points], model: str, to: str) -> list[float]:
    """How many times slower one model is than another, by length."""
    return [a / b for (_, a), (_, b) in zip(latency[model], latency[to], strict=True)]


def _latency_chart(latency: dict[str, Points]) -> Chart:
    return Chart("T, tokens", "ms, forward, two layers, batch 8 (their T4)", tuple(
        Series(m, ints([t for t, _ in latency[m]]), tuple(ms for _, ms in latency[m]), HUES[m],
               published=True)
        for m in MODELS
    ), log_x=True, log_y=True)  # fmt: skip


@claim(
    "slope-of-T", "Latency is linear in T",
    words="VLA-Python, linear attention, and DeltaNet all maintain O(T) slopes, confirming "
          "linear-time scaling … [softmax’s] slope steepens distinctly on the log-log axes",
    place="§6.1, Figures 2a and 3; README", section="6 Results",
    needs="A slope near 1 on log-log axes for the three, and one that comes near 2 for softmax.",
    links=[],
)  # fmt: skip
def _slope_of_t(evidence: Evidence) -> Finding:
    latency = logged(evidence)
    theirs = {m: slope(latency[m]) for m in MODELS}
    softmax_end = slope(latency["softmax"][-2:])
    record = evidence.bench("h200")
    found = {(s["method"], s["shape"], s["pass"]): s["slope"] for s in record["slopes"]}
    shape = "B4 H16 d64"
    ours = {name: found.get((name, shape, "forward")) for name in
            ("vla triton bf16", "fla chunk_delta_rule bf16", "softmax attention bf16")}  # fmt: skip
    rows = (*((f"authors' log, {m}", theirs[m]) for m in MODELS),
            *((f"{record['device']}, {name}", s) for name, s in ours.items()))  # fmt: skip
    linear = all(abs(theirs[m] - 1) < 0.1 for m in MODELS[1:])
    kernel = ours["vla triton bf16"]
    holds = linear and softmax_end > 1.5 and kernel is not None and kernel < 1.1
    why = (
        f"In the authors' log the slopes are {theirs['linear']:.2f}, {theirs['deltanet']:.2f} and "
        f"{theirs['vla']:.2f}, softmax {theirs['softmax']:.2f} over all and {softmax_end:.2f} at "
        f"the end. Our kernel on one {record['device']}: {three(kernel)} from 8 192 to 131 072 "
        f"tokens, softmax attention {three(ours['softmax attention bf16'])}."
    )
    points = [curve(record["rows"], name, shape, "forward") for name in ours]
    picture = Chart(
        "T, tokens",
        "ms, forward",
        tuple(
            Series(name, ints([t for t, _ in p]), tuple(ms for _, ms in p), hue)
            for (name, p), hue in zip(
                zip(ours, points, strict=True), ("vla", "delta", "softmax"), strict=True
            )
        ),
        log_x=True,
        log_y=True,
    )
    grid = Grid(("what", "slope of log ms against log T"), rows)
    return Finding(HOLDS if holds else FAILS, why, picture, grid)


@claim(
    "overhead-3x", "VLA in Python is about 3× slower than linear attention",
    words="VLA-Python is ∼3× slower than linear attention and DeltaNet at matched T",
    place="§6.1, §8 and Figure 3", section="6 Results",
    needs="A ratio near 3 at every T of the authors' measurement.",
)  # fmt: skip
def _overhead_3x(evidence: Evidence) -> Finding:
    latency = logged(evidence)
    over = {
        "linear attention": ratio(latency, "vla", "linear"),
        "DeltaNet": ratio(latency, "vla", "deltanet"),
    }
    lengths = ints([t for t, _ in latency["vla"]])
    low, high = min(map(min, over.values())), max(map(max, over.values()))
    why = (
        f"Their log has {min(over['linear attention']):.2f} to {max(over['linear attention']):.2f} "
        f"times linear attention and {min(over['DeltaNet']):.2f} to {max(over['DeltaNet']):.2f} "
        "times DeltaNet: about 3. It is a property of token loops in Python, where every operation "
        "costs a launch."
    )
    picture = Chart("T, tokens", "VLA, times slower", tuple(
        Series(f"than {name}", lengths, tuple(values), hue, published=True)
        for (name, values), hue in zip(over.items(), ("linear", "authors_delta"), strict=True)
    ), log_x=True, level=3.0, level_name="as published: about 3")  # fmt: skip
    near = low >= 2.5 and high <= 3.75
    return Finding(HOLDS if near else CHANGED if low >= 2 and high <= 5 else FAILS, why, picture)


@claim(
    "constant-factor", "A constant factor of 5× (VLA) and 3× (DeltaNet)",
    words="VLA’s constant factor is ≈5× larger due to the Sherman-Morrison update",
    place="§3.5, Table 1", section="3 Method",
    needs="5 and 3 times linear attention's time, in the paper's own measurements.",
    seconds=0.5,
)  # fmt: skip
def _constant_factor(evidence: Evidence) -> Finding:
    latency = logged(evidence)
    vla, delta = ratio(latency, "vla", "linear"), ratio(latency, "deltanet", "linear")
    record = evidence.bench("h200")
    shape = "B4 H16 d64"
    pair = [dict(curve(record["rows"], name, shape, "forward")) for name in
            ("vla triton bf16", "fla chunk_delta_rule bf16")]  # fmt: skip
    at = max(pair[0].keys() & pair[1].keys(), default=0)
    if not at:
        raise NoEvidence("no length at which both kernels were timed")
    kernels = pair[0][at] / pair[1][at]
    counts = {name: touches(name) for name in ("linear", "delta", "vla")}
    rows: tuple[tuple[str, float | None, float | None], ...] = (
        ("as published, Table 1", 3.0, 5.0),
        ("as published, §6.1 and §8", None, 3.0),
        ("authors' log, mean over T", math.fsum(delta) / len(delta), math.fsum(vla) / len(vla)),
        ("operations on d × d matrices per token, here",
         counts["delta"] / counts["linear"], counts["vla"] / counts["linear"]),
        (f"our kernel over fla's delta rule, T = {at}", 1.0, kernels),
    )  # fmt: skip
    near = abs(rows[2][2] - 5) < 0.75 and abs(rows[2][1] - 3) < 0.75  # type: ignore[operator]
    why = (
        f"The paper's other figure, about 3×, is the one its log supports: VLA {rows[2][2]:.2f} "
        f"and DeltaNet {rows[2][1]:.2f} times linear attention. Counting operations on d × d "
        f"matrices per token, it is {rows[3][2]:.1f} and {rows[3][1]:.1f}. As kernels, VLA takes "
        f"{kernels:.2f} times the time of fla's delta rule at {at} tokens ({record['device']})."
    )
    names = tuple(str(row[0]) for row in rows)
    picture = Chart("times linear attention", "", (
        Series("DeltaNet", names, tuple(row[1] for row in rows), "delta", line=False),
        Series("VLA", names, tuple(row[2] for row in rows), "vla", line=False),
    ))  # fmt: skip
    head = ("where", "DeltaNet", "VLA")
    return Finding(HOLDS if near else CHANGED, why, picture, Grid(head, rows))


class _Touches(TorchDispatchMode):
    """Counts operations that read or write a whole d × d matrix; copies and views are free."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.d, self.count = d, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        square = [
            x
            for x in (*args, out)
            if isinstance(x, torch.Tensor) and x.shape[-2:] == (self.d, self.d)
        ]
        name = func.overloadpacket.__name__
        if square and name in ("mm", "mv", "bmm", "addmm", "add", "sub", "mul", "div"):
            self.count += 1
        return out


def touches(rule: str, d: int = 16) -> int:
    """Operations on d × d matrices that one token costs: its write and its read."""
    chosen = make(rule)
    k, v = unit(normal(401, 3, d)), normal(402, 3, d)
    state = chosen.step(chosen.init(d, d), Token(k=k[0], v=v[0]))
    with _Touches(d) as counter:
        chosen.read(chosen.step(state, Token(k=k[1], v=v[1])), k[2])
    return counter.count


@claim(
    "five-extra-operations", "Five extra operations per token",
    words="the Sherman-Morrison update requires five additional batched matrix-vector operations "
          "per token beyond DeltaNet’s three",
    place="§6.1, §3.5 and §7.3", section="6 Results",
    needs="Three operations on d × d matrices for DeltaNet and eight for VLA.",
    seconds=0.2,
)  # fmt: skip
def _five_extra(_: Evidence) -> Finding:
    counts = {name: touches(name) for name in ("linear", "delta", "vla")}
    parts = (
        ("S k (residual)", 0, 1, 1),
        ("S + e gᵀ (outer product, sum)", 2, 2, 2),
        ("S q (read)", 1, 1, 1),
        ("A u", 0, 0, 1),
        ("A − z zᵀ/δ (outer product, division, difference)", 0, 0, 3),
        ("A k", 0, 0, 1),
    )
    extra = counts["vla"] - counts["delta"]
    why = (
        f"Counted while one token is written and read: linear attention {counts['linear']}, "
        f"DeltaNet {counts['delta']}, VLA {counts['vla']} operations on d × d matrices, so {extra} "
        "more. Two of VLA's extra ones are products of a matrix with a vector (A u and A k); the "
        "rest forms and subtracts z zᵀ/δ. Fused, an outer product and its sum are one pass: 3 for "
        "DeltaNet, 6 for VLA."
    )
    names = ("linear", "delta", "vla")
    picture = Chart("operations on d × d matrices per token", "", (
        Series("counted", names, tuple(float(counts[n]) for n in names), "vla", line=False),
        Series("as published", ("delta", "vla"), (3.0, 8.0), "vla", published=True, line=False),
    ))  # fmt: skip
    grid = Grid(("operation", "linear", "DeltaNet", "VLA"), tuple(parts))
    verdict = HOLDS if (counts["delta"], extra) == (3, 5) else CHANGED if extra == 5 else FAILS
    return Finding(verdict, why, picture, grid)


@claim(
    "kernel-14x", "The kernel is 14× faster than sequential Python",
    words="A Triton-fused kernel achieves 14× speedup over sequential Python",
    place="abstract, §1.3, §6.1 and §8", section="1 Introduction",
    needs="A Triton kernel at least 14 times faster than the token loop at T = 4 096.",
)  # fmt: skip
def _kernel_14x(evidence: Evidence) -> Finding:
    record = evidence.bench("h200")
    rows: list[tuple[Any, ...]] = [
        ("as published, T = 4 096, T4", 14.0, "only the recursion of A, forward only"),
        ("authors' notebook, one run, T = 4 096", 2465.9 / 111.3, "2465.9 ms → 111.3 ms"),
        ("authors' notebook, another run", 15.0, ""),
    ]
    best = 0.0
    for shape in ("B8 H4 d32", "B4 H16 d64"):
        loop, kernel = (dict(curve(record["rows"], name, shape, "forward")) for name in
                        ("vla scan fp32", "vla triton ieee"))  # fmt: skip
        for t in sorted(loop.keys() & kernel.keys()):
            best = max(best, loop[t] / kernel[t])
            rows.append((f"ours, {shape}, T = {t}, float32", loop[t] / kernel[t],
                         f"{three(loop[t])} ms → {three(kernel[t])} ms, "
                         f"{record['device']}"))  # fmt: skip
    if best == 0:
        raise NoEvidence("no length at which both the loop and the kernel were timed")
    why = (
        f"At least that: our kernel, which fuses the whole recurrence, is {three(best)} times "
        f"faster than the token loop on one {record['device']}. The authors' notebook has 22× in "
        "one run and 15× in another, with a kernel for A alone. A ratio to a Python loop says more "
        "about the loop."
    )
    picture = Chart(
        "times faster than the token loop",
        "",
        (
            Series(
                "as published and logged",
                tuple(str(r[0]) for r in rows[:3]),
                tuple(r[1] for r in rows[:3]),
                "vla",
                published=True,
                line=False,
            ),
            Series(
                "ours",
                tuple(str(r[0]) for r in rows[3:]),
                tuple(r[1] for r in rows[3:]),
                "vla",
                line=False,
            ),
        ),
        log_x=True,
    )
    return Finding(
        HOLDS if best >= 14 else FAILS, why, picture, Grid(("what", "times", ""), tuple(rows))
    )


@claim(
    "crossover-43000", "Faster than softmax attention from about 43 000 tokens on",
    words="VLA-Triton remains slower than softmax attention below the empirical crossover of "
          "≈43,000 tokens",
    place="abstract, §1.3, §8 and §9", section="1 Introduction",
    needs="Both curves measured at lengths on both sides of 43 000.",
)  # fmt: skip
def _crossover(evidence: Evidence) -> Finding:
    latency = logged(evidence)
    longest = max(t for t, _ in latency["softmax"])
    record = evidence.bench("h200")
    measured = [c for c in record["crossovers"] if c["pass"] == "forward" and c.get("faster_from")]
    if not measured:
        raise NoEvidence("no crossover in data/bench/h200.json")
    at = measured[0]
    shape = at["shape"]
    lines = {name: curve(record["rows"], name, shape, "forward") for name in
             ("vla triton bf16", "softmax attention bf16")}  # fmt: skip
    span = [c["faster_from"] for c in measured]
    others = f", and from {min(span)} to {max(span)} over {len(span)} shapes" if span[1:] else ""
    why = (
        f"There is a crossover, and here it was measured: between {at['slower_at']} and "
        f"{at['faster_from']} tokens at {shape}{others} ({record['device']}, bf16, our kernel, "
        "torch's SDPA). The paper's 43 000 isn't empirical: its notebook extrapolates power laws "
        f"from T ≤ 4 096 on a T4 (its printed lengths end at {longest}). With that kernel on that "
        "card the number itself can't be tested here."
    )
    picture = Chart("T, tokens", "ms, forward", tuple(
        Series(name, ints([t for t, _ in p]), tuple(ms for _, ms in p), hue)
        for (name, p), hue in zip(lines.items(), ("vla", "softmax"), strict=True)
    ), log_x=True, log_y=True)  # fmt: skip
    rows = tuple(
        (c["shape"], c["pass"], str(c["slower_at"]), str(c["faster_from"]))
        for c in record["crossovers"]
    )
    grid = Grid(("shape", "pass", "slower at", "faster from"), rows)
    near = 30_000 <= (at["faster_from"] or 0) <= 60_000
    return Finding(HOLDS if near and longest > 43_000 else CHANGED, why, picture, grid)


@claim(
    "figure-3", "Figures 2a and 3: forward latency of the two-layer model",
    words="Figure 3 plots forward-pass latency across T∈{128,256,512,1024,2048} … Softmax … is "
          "fastest at T=128",
    place="§6.1, Figures 2a and 3", section="6 Results",
    needs="The order and the slopes of the five curves, on this machine with the same model.",
    seconds=0.2, longer="times the models here: two layers, batch 8, token loops",
    longer_seconds=60,
)  # fmt: skip
def _figure_3(evidence: Evidence) -> Finding:
    latency = logged(evidence)
    ours = time_models() if evidence.budget != "cheap" else _recorded(evidence)
    rows = tuple(
        (f"{m}, T = {t}", ms, dict(ours.get(m, ())).get(t)) for m in MODELS for t, ms in latency[m]
    )
    grid = Grid(("model, T", "authors' log, ms (T4)", "here, ms of CPU time"), rows)
    fastest = all(latency["softmax"][0][1] < latency[m][0][1] for m in MODELS[1:])
    slopes = {m: slope(latency[m]) for m in MODELS}
    words = (
        "The figure prints no numbers; these are the authors' log (T4). Softmax is fastest at T = "
        f"128 there and at every length measured ({three(latency['softmax'][-1][1])} ms at 2 048 "
        f"against {three(latency['vla'][-1][1])}); slopes "
        f"{', '.join(f'{m} {s:.2f}' for m, s in slopes.items())}."
    )
    if not ours:
        why = words + " Not timed here yet: `vla claims run figure-3 --budget cpu` does it."
        return Finding(UNDECIDED, why, _latency_chart(latency), grid)
    mine = {m: slope(ours[m]) for m in MODELS}
    same = all(abs(mine[m] - 1) < 0.2 for m in MODELS[1:])
    first = all(ours["softmax"][0][1] < ours[m][0][1] for m in MODELS[1:])
    over = [a / b for (_, a), (_, b) in zip(ours["vla"], ours["linear"], strict=True)]
    why = (
        f"{words} Here, with the same model in token loops, slopes are "
        f"{', '.join(f'{m} {s:.2f}' for m, s in mine.items())}, VLA is {min(over):.1f} to "
        f"{max(over):.1f} times slower than linear attention, and softmax is "
        f"{'' if first else 'not '}fastest at T = 128."
    )
    picture = _latency_chart(latency)
    mark = tuple(
        Series(f"{m}, here", ints([t for t, _ in ours[m]]), tuple(ms for _, ms in ours[m]), HUES[m])
        for m in MODELS
    )
    picture = Chart(picture.x, "ms, forward", picture.series + mark, log_x=True, log_y=True)
    verdict = HOLDS if same and first and fastest else CHANGED if same else FAILS
    return Finding(verdict, why, picture, grid)


def _recorded(evidence: Evidence) -> dict[str, Points]:
    try:
        record = evidence.bench("model_latency_cpu")
    except NoEvidence:
        return {}
    return {m: [(int(t), float(ms)) for t, ms in points] for m, points in record["points"].items()}


_TABLE_1 = {
    "softmax": ("Softmax", "O(T²d_h)", "O(Td_h)", "—", "—", "1×"),
    "linear": ("Linear attn", "O(Td_h²)", "O(d_h²)", "none", "✗", "1×"),
    "deltanet": ("DeltaNet", "O(Td_h²)", "O(d_h²)", "scalar β_t", "partial", "∼3×"),
    "vla": ("VLA", "O(Td_h²)", "O(d_h²)", "matrix A_t", "✓", "∼5×"),
}


def _table_1_row(slug: str) -> None:
    name, *cells = _TABLE_1[slug]

    @claim(
        f"table-1-{slug}", f"Table 1: {name}",
        words=f"{name}: time {cells[0]}, memory {cells[1]}, gate {cells[2]}, state bounded "
              f"{cells[3]}, constant factor {cells[4]}",
        place="§3.5, Table 1", section="3 Method",
        needs="Each cell of the row: time and memory by T, whether ‖S‖ levels off, and the factor.",
        seconds=1.0,
        links=[Link("whose memory stays bounded?", "stability", "growth")],
    )  # fmt: skip
    def table_1_row(evidence: Evidence) -> Finding:
        return _row_1(evidence, slug)


for _slug in _TABLE_1:
    _table_1_row(_slug)

_NN = {"softmax": "softmax", "linear": "linear", "deltanet": "authors_delta", "vla": "vla_authors"}


def _row_1(evidence: Evidence, slug: str) -> Finding:
    line = next(row for row in evidence.table(1) if row["model"].startswith(_TABLE_1[slug][0]))
    cells = [line[name] for name in ("time", "memory", "gate", "state_bounded", "constant_factor")]
    latency = logged(evidence)
    grows = slope(latency[slug][-2:])
    carried = [
        nn.state_size(nn.build(nn.model(_NN[slug], width=32, heads=1)), t)["total"]
        for t in (256, 1024)
    ]
    memory = carried[1] / carried[0]
    factor = math.fsum(ratio(latency, slug, "linear")) / len(latency["vla"])
    bounded, level = _bounded(slug)
    printed = float(cells[4].strip("~×"))
    checks = {
        "time": grows > 1.5 if slug == "softmax" else abs(grows - 1) < 0.1,
        "memory": memory > 3 if slug == "softmax" else memory == 1,
        "state bounded": {"—": True, "✗": not bounded, "partial": bounded, "✓": bounded}[cells[3]],
        "constant factor": slug == "softmax" or abs(factor / printed - 1) < 0.25,
    }
    rows = (
        (
            "time",
            cells[0],
            f"T^{grows:.2f} in the authors' log (last doubling)",
            _ok(checks["time"]),
        ),
        (
            "memory",
            cells[1],
            f"{carried[0]} numbers at T = 256, {carried[1]} at 1 024",
            _ok(checks["memory"]),
        ),
        ("gate", cells[2], _GATES[slug], ""),
        ("state bounded", cells[3], level, _ok(checks["state bounded"])),
        (
            "constant factor",
            cells[4],
            f"{factor:.2f} in the authors' log",
            _ok(checks["constant factor"]),
        ),
    )
    wrong = [name for name, ok in checks.items() if not ok]
    why = (
        f"Time T^{grows:.2f}, memory {'constant' if memory == 1 else 'growing with T'}, {level}; "
        f"{factor:.2f} times linear attention's time in the authors' log. "
        + (f"Differs: {', '.join(wrong)}." if wrong else "All cells agree.")
    )
    picture = _latency_chart(latency)
    verdict = HOLDS if not wrong else CHANGED if len(wrong) < 3 else FAILS
    return Finding(verdict, why, picture, Grid(("cell", "as published", "found", ""), rows))


_GATES = {
    "softmax": "no state to gate",
    "linear": "none",
    "deltanet": "scalar on the state in eq. 4, one per value row in the authors' code, on the "
    "write in DeltaNet's own papers",
    "vla": "A is no gate on the state: it picks the direction of the write, and nothing decays",
}


def _ok(agrees: bool) -> str:
    return "agrees" if agrees else "differs"


def _bounded(slug: str) -> tuple[bool, str]:
    """Whether ‖S‖ levels off on random tokens in the untrained model, and in words."""
    if slug == "softmax":
        return False, "no S; its cache grows"
    if slug == "vla":
        norms, start, since = untrained_long().mean(-1), 15, "16 000 to 32 000"
    else:
        norms, start, since = untrained(_NN[slug]).S.mean(-1), 500, "500 to 1 000"
    exponent = growth_exponent(torch.cat([norms.new_zeros(1), norms]).numpy(), start=start)
    return exponent < 0.3, f"‖S‖ grows as T^{exponent:.2f} from token {since}"
