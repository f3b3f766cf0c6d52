"""Claims of the authors' README."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from vla.claims.claim import Link, Trained, claim, open_claim
from vla.claims.evidence import Evidence, NoEvidence
from vla.claims.finding import CHANGED, FAILS, HOLDS, UNDECIDED, Chart, Finding, Grid, Series
from vla.claims.memory import (
    D,
    distance,
    elu_keys,
    floats,
    ints,
    normal,
    projected,
    ridge,
    states,
    unit,
)
from vla.claims.propositions import AS_RUN, PUBLISHED
from vla.claims.recall import CAPACITY, CONTEXT, COPY
from vla.claims.recorded import FOUR, PRINTED, TOLERANCE, accuracies, first_at, matching, mean
from vla.figures.theme import three
from vla.ops import vla_attention
from vla.rules import make
from vla.rules.vla import VLA
from vla.train.presets import FASTER, RETENTION, SHIFTED

README = "README"
RANKS = Trained("readme", (("label", "rank 2"), ("seed", 42), ("lr", 1e-3)), 12)


@claim(
    "readme-exact-inverse", "The exact inverse of the penalty matrix, throughout",
    words="VLA leverages the Sherman-Morrison Rank-1 Update to actively maintain the exact inverse "
          "of the penalty matrix (A_t=M_t⁻¹) throughout the sequence.",
    place="README, Key Innovations 2", section=README,
    needs="A_t = M_t⁻¹ in float32 over long sequences, in the form that is run.",
    links=[Link("what a refresh adds", "stability", "floor")],
)  # fmt: skip
def _exact_inverse(evidence: Evidence) -> Finding:
    runs = [*evidence.bench("h200_streaming")["runs"], *evidence.bench("streaming_cpu")["runs"]]
    lanes = [(_stream_name(run), run["readings"], run["settings"]["refresh_every"]) for run in runs]
    plain = [r for _, readings, every in lanes if not every for r in readings]
    worst = max(reading["distance"] for reading in plain)
    from vla.claims.method import sherman_morrison_exact

    refreshed = sherman_morrison_exact(Evidence())
    why = (
        "Without the refresh, yes, and not by rank-1 updates alone: the chunkwise float32 "
        f"recursion stays within {worst:.0e} of the float64 inverse over 10 000 000 tokens. With "
        "the refresh that is run, A isn't M⁻¹ but that of a Kalman filter with process noise (see "
        "“A is maintained exactly”)."
    )
    picture = _stream_chart(lanes, "distance", "relative distance from the float64 inverse")
    verdict = FAILS if worst > 1e-3 else CHANGED if refreshed.verdict == CHANGED else HOLDS
    return Finding(verdict, why, picture)


def _stream_name(run: dict[str, Any]) -> str:
    s = run["settings"]
    device = "H200" if s["device"].startswith("cuda") else "CPU"
    return f"{device}, d = {s['width']}, " + (
        f"refresh {s['refresh_every']}" if s["refresh_every"] else "no refresh"
    )


Lane = tuple[str, Sequence[dict[str, Any]], int]


def _stream_chart(lanes: Sequence[Lane], field: str, y: str) -> Chart:
    hues = ("vla",) * 5
    return Chart(
        "tokens",
        y,
        tuple(
            Series(
                name,
                ints([r["tokens"] for r in readings]),
                tuple(float(r[field]) for r in readings),
                hue,
            )
            for (name, readings, _), hue in zip(lanes, hues, strict=False)
        ),
        log_x=True,
        log_y=True,
    )


@claim(
    "readme-stable-10m", "Stable over 10 000 000 tokens",
    words="This ensures extreme numerical preservation (maintaining stable unity eigenvalues "
          "natively over 10M+ tokens without catastrophic failure)",
    place="README, Theoretical Backbone", section=README,
    needs="After 10 million tokens: finite outputs, A symmetric and positive definite; and "
          "eigenvalues that stay at 1.",
    links=[Link("up to 100 000 tokens here", "stability", "floor")],
)  # fmt: skip
def _stable_10m(evidence: Evidence) -> Finding:
    names = ("h200_streaming", "h200_streaming_refresh", "streaming_cpu")
    runs = [run for name in names for run in evidence.bench(name)["runs"]]
    lanes = [(_stream_name(run), run["readings"], run["settings"]["refresh_every"]) for run in runs]
    ends = [readings[-1] for _, readings, _ in lanes]
    longest = max(end["tokens"] for end in ends)
    sound = all(r["finite"] and r["smallest_eigenvalue"] > 0 and r["asymmetry"] < 1e-4
                for _, readings, _ in lanes for r in readings)  # fmt: skip
    largest = {name: readings[-1]["largest_eigenvalue"] for name, readings, _ in lanes}
    unity = all(0.9 < x < 1.1 for x in largest.values())
    why = (
        f"Without failure, yes: over {longest:,} tokens outputs stay finite, A symmetric and "
        "positive definite, with and without refresh. “Unity eigenvalues” they are not: those of "
        f"A fall as 1/T ({', '.join(f'{three(x)} ({name})' for name, x in largest.items())} at the "
        "end, from 10)."
    ).replace(",000,000 tokens", " million tokens")
    picture = _stream_chart(lanes, "largest_eigenvalue", "largest eigenvalue of A")
    verdict = FAILS if not sound or longest < 10_000_000 else HOLDS if unity else CHANGED
    return Finding(verdict, why, picture)


@claim(
    "readme-minimises", "α = A s minimises the reconstruction error",
    words="mathematically guaranteeing the coefficient scaling α_t=A_t s_t perfectly minimizes "
          "reconstruction errors",
    place="README, Key Innovations 3", section=README,
    needs="The state must be the minimiser of Σ‖v_s − S k_s‖² (+ penalty) after every step.",
    seconds=0.3,
    links=[Link("VLA beside exact RLS", "step", "average")],
)  # fmt: skip
def _minimises(_: Evidence) -> Finding:
    n, k, v = 24, unit(normal(601, 24, D)), normal(602, 24, D)
    best = ridge(k, v, 0.1 * torch.eye(D, dtype=torch.float64))
    rows = tuple(
        (name, distance(states(rule, k, v, u)[-1].S, best))
        for name, rule, u in (
            ("VLA as published", PUBLISHED, projected(603, k)),
            ("VLA as run", AS_RUN, projected(603, k)),
            ("VLA, u = k, unit gain", VLA(), None),
            ("VLA, u = k, α = A k as it is", VLA(gain="rls"), None),
        )
    )
    published, exact = min(rows[0][1], rows[1][1]), rows[3][1]
    why = (
        f"α = A k as it is does, for u = k: the state is the ridge minimiser to {exact:.0e}. The "
        "published layer scales α to length 1 and takes u from a projection; its state is "
        f"{three(rows[0][1])} (as published), {three(rows[1][1])} (as run) of the minimiser's size "
        f"away after {n} pairs, and {three(rows[2][1])} with u = k."
    )
    picture = Chart(
        "relative distance from the minimiser",
        "",
        (
            Series(
                "measured", tuple(r[0] for r in rows), tuple(r[1] for r in rows), "vla", line=False
            ),
        ),
    )
    verdict = HOLDS if published < 1e-6 else CHANGED if exact < 1e-9 else FAILS
    return Finding(verdict, why, picture, Grid(("form", "distance"), rows))


@claim(
    "readme-exact-recall-10k",
    "Exact recall at 10 000+ tokens",
    words="Hits perfect exact match accuracy on 10,000+ length associative and delayed recall "
    "tasks, where standard Linear Transformers drop to baseline 0% due to capacity erasure.",
    place="README, Performance & Benchmarks",
    section=README,
    needs="Pairs stored first must be recalled exactly after 10 000 further tokens, by the "
    "published recursion.",
    seconds=3.0,
    trained=Trained(
        "figure6",
        (("label", "vla_authors, each key asked once, after a wait"), ("task.length", 512)),
        60,
    ),
    links=[Link("whose memory stays bounded?", "stability", "growth")],
)
def _exact_recall_10k(evidence: Evidence) -> Finding:
    draws, waits = evidence.draws(4, 20), (0, 10, 100, 1000, 10_000)
    lanes, linear = _all_lanes(waits, draws)
    ends = {name: values[-1] for name, (values, _) in lanes.items()}
    best = max(ends[name] for name in list(lanes)[:3])
    rows = evidence.runs("figure6", needed=False)
    waited = {
        rate: mean(accuracies(rows, f"vla_authors{tail}{RETENTION}", task__length=512))
        for rate, tail in (("3e-4", ""), ("1e-3", FASTER))
    }
    known = {rate: y for rate, y in waited.items() if y is not None}
    far = max(known.values(), default=None)
    trained = (
        " Trained (n = 8, each key asked once after a wait) VLA as run has "
        f"{' and '.join(f'{three(y)} at {rate}' for rate, y in known.items())} at T = 512, a "
        "twentieth of what is claimed; no run at 10 000 is recorded." if known
        else " No run of a model that has to wait is recorded yet."
    )  # fmt: skip
    why = (
        "Not by the recursion alone: of 8 pairs, answered by the nearest of 128 values, "
        f"{', '.join(f'{name} recalls {y:.0%}' for name, y in ends.items())} after 10 000 further "
        f"random pairs, linear attention {linear[-1]:.0%} (chance {1 / 128:.1%}): 32 × 32 numbers "
        "that take in 10 000 random pairs can't keep the first. A trained layer may learn to "
        f"ignore filler.{trained} No model, log or protocol of the README's is published."
    )
    series = [
        Series(name, ints([w + 8 for w in waits]), tuple(values), hue)
        for name, (values, hue) in lanes.items()
    ]
    series.append(Series("linear attention", ints([w + 8 for w in waits]), tuple(linear), "linear"))
    picture = Chart(
        "tokens since the start",
        "share recalled",
        tuple(series),
        log_x=True,
        level=1.0,
        level_name="README: 100 %",
    )
    falls_short = far is not None and far < 0.99
    verdict = HOLDS if best > 0.99 else FAILS if falls_short else UNDECIDED
    return Finding(verdict, why, picture)


@functools.cache
def _filler(draws: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """ELU+1 keys, 128 values, and which of them each token stores."""
    k = elu_keys(611, draws, 10_008, D)
    words = unit(normal(612, 128, D))
    chosen = torch.randint(0, 128, (draws, 10_008), generator=torch.Generator().manual_seed(613))
    return k, words, chosen


@functools.cache
def _all_lanes(
    waits: tuple[int, ...], draws: int
) -> tuple[dict[str, tuple[list[float], str]], list[float]]:
    """Share recalled after each wait, by rule, and that of linear attention."""
    lanes: dict[str, tuple[list[float], str]] = {}
    for name, direction, settings, hue in (
        ("VLA as published, W random", 1.0, {"refresh_every": 20}, "vla"),
        ("VLA as run, W random", D**-0.5, {"refresh_every": 20}, "vla"),
        ("VLA, u = k", None, {}, "vla"),
        ("exact RLS", None, {"gain": "rls"}, "rls"),
    ):
        lanes[name] = (_recall_after(waits, draws, direction, settings), hue)
    return lanes, _linear_after(waits, draws)


def _recall_after(
    waits: Sequence[int], draws: int, direction: float | None, settings: dict[str, Any]
) -> list[float]:
    k, words, chosen = _filler(draws)
    v = words[chosen]
    u = None if direction is None else direction * projected(614, k)
    state, start, found = None, 0, []
    for wait in waits:
        stop = 8 + wait
        keys, values = k[:, start:stop, None], v[:, start:stop, None]
        own = None if u is None else u[:, start:stop, None]
        more = {**settings, "initial_state": state, "output_final_state": True}
        state = vla_attention(keys, keys, values, own, backend="chunk", **more)[1]
        assert state is not None
        found.append(_nearest(state.S[:, 0], k[:, :8], words, chosen[:, :8]))
        start = stop
    return found


def _nearest(S: torch.Tensor, k: torch.Tensor, words: torch.Tensor, wanted: torch.Tensor) -> float:
    """Share of keys whose read is nearest in angle to the right value."""
    answers = (k @ S.mT @ words.mT).argmax(-1)
    return float((answers == wanted).double().mean())


def _linear_after(waits: Sequence[int], draws: int) -> list[float]:
    k, words, chosen = _filler(draws)
    v = words[chosen]
    return [
        _nearest(v[:, : 8 + w].mT @ k[:, : 8 + w], k[:, :8], words, chosen[:, :8]) for w in waits
    ]  # fmt: skip


@claim(
    "readme-linear-zero", "Linear attention drops to 0 %",
    words="standard Linear Transformers drop to baseline 0% due to capacity erasure",
    place="README, Performance & Benchmarks", section=README,
    needs="An accuracy of linear attention near 0 in the authors' own measurements.",
)  # fmt: skip
def _linear_zero(evidence: Evidence) -> Finding:
    rows = [(f"capacity, n = {r['n']}", float(r["linear"])) for r in evidence.log("capacity")]
    rows += [
        (f"long context, T = {r['t']}", float(r["linear"])) for r in evidence.log("long_context")
    ]
    low = min(y for _, y in rows)
    why = (
        f"Their log never has it below {low}, ten times chance (1/128): it answers the commonest "
        "of the row's values. What falls to 0.01 and below is their DeltaNet."
    )
    picture = Chart(
        "accuracy of linear attention",
        "",
        (
            Series(
                "authors' log",
                tuple(r[0] for r in rows),
                tuple(r[1] for r in rows),
                "linear",
                published=True,
                line=False,
            ),
        ),
        level=0.0,
        level_name="README: 0",
    )
    return Finding(
        HOLDS if low < 0.02 else FAILS, why, picture, Grid(("run", "accuracy"), tuple(rows))
    )


@claim(
    "readme-mqar-24", "MQAR with 24 pairs: 1.000 against 0.074, 0.075, 0.010",
    words="VLA dominates high-density memory retrieval (24 pairs, seq len 73) with 1.000 accuracy, "
          "completely destroying Softmax (0.074), Linear (0.075), and DeltaNet (0.010).",
    place="README, Comprehensive Benchmarks", section=README,
    needs="These four accuracies under the authors' protocol.", trained=CAPACITY,
)  # fmt: skip
def _mqar_24(evidence: Evidence) -> Finding:
    printed = {"softmax": 0.074, "linear": 0.075, "authors_delta": 0.010, "vla_authors": 1.0}
    ours = {m: mean(accuracies(evidence.runs("figure5"), m, task__pairs=24)) for m in FOUR}
    if any(y is None for y in ours.values()):
        raise NoEvidence("not all four models at n = 24 in data/runs/figure5.parquet")
    known = {m: y or 0.0 for m, y in ours.items()}
    agree = all(abs(known[m] - printed[m]) <= TOLERANCE for m in FOUR)
    ahead = known["vla_authors"] > 0.9 and max(known[m] for m in FOUR[:3]) < 0.2
    why = (
        "Ours, mean over seeds after 2 000 steps at 3e-4: "
        f"{', '.join(f'{PRINTED[m]} {three(y)}' for m, y in known.items())}. It is so under that "
        "protocol; what it takes (an output LayerNorm for VLA alone, no convolution for the "
        "others, one learning rate) is under “All other components are shared” and “DeltaNet "
        "collapses”."
    )
    names = tuple(PRINTED[m] for m in FOUR)
    picture = Chart(
        "accuracy, n = 24",
        "",
        (
            Series(
                "as published",
                names,
                tuple(printed[m] for m in FOUR),
                "vla",
                published=True,
                line=False,
            ),
            Series("ours", names, tuple(known[m] for m in FOUR), "vla", line=False),
        ),
    )
    return Finding(HOLDS if agree else CHANGED if ahead else FAILS, why, picture)


@claim(
    "readme-long-context", "0.982 at 512 tokens",
    words="Sustains retrieval capacity out to 512+ context lengths with 0.982 accuracy … compared "
          "to Softmax failing at ~15%",
    place="README, Comprehensive Benchmarks", section=README,
    needs="These accuracies at T = 512 with n = 8.", trained=CONTEXT,
)  # fmt: skip
def _readme_long_context(evidence: Evidence) -> Finding:
    rows = evidence.runs("figure6")
    ours = {m: mean(accuracies(rows, m, task__length=512)) for m in ("vla_authors", "softmax")}
    if any(y is None for y in ours.values()):
        raise NoEvidence("no run of both models at T = 512 in data/runs/figure6.parquet")
    vla, softmax = ours["vla_authors"] or 0.0, ours["softmax"] or 0.0
    faster = mean(accuracies(rows, "vla_authors" + FASTER, task__length=512))
    agree = abs(vla - 0.982) <= TOLERANCE and abs(softmax - 0.15) <= TOLERANCE
    why = (
        f"Ours: VLA as run {three(vla)}, softmax {three(softmax)} at T = 512"
        + (f"; VLA at 1e-3 {three(faster)}" if faster is not None else "")
        + ". A longer row asks more queries here; it doesn't wait longer (see “Longer rows measure "
        "retention”)."
    )
    picture = Chart(
        "accuracy at T = 512",
        "",
        (
            Series(
                "as published", ("VLA", "softmax"), (0.982, 0.15), "vla", published=True, line=False
            ),
            Series("ours", ("VLA", "softmax"), (vla, softmax), "vla", line=False),
            Series("ours at 1e-3", ("VLA",), (faster,), "vla", line=False),
        ),
    )
    reached = max(vla, faster or 0.0) > 0.9 and softmax < 0.3
    return Finding(HOLDS if agree else CHANGED if reached else FAILS, why, picture)


@claim(
    "readme-copy", "The copy task confirms gradient flow",
    words="Confirms VLA possesses pristine gradient flow to solve deterministic recall in <2000 "
          "steps.",
    place="README, Comprehensive Benchmarks", section=README,
    needs="The task must need recall, and VLA must solve it within 2 000 "
          "steps.", seconds=6.0, trained=COPY,
)  # fmt: skip
def _readme_copy(evidence: Evidence) -> Finding:
    from vla.claims.recall import _without_attention

    without = _without_attention()
    rows = evidence.runs("table7", needed=False)
    vla, shifted = (
        mean(accuracies(rows, "vla_authors")),
        mean(accuracies(rows, "vla_authors" + SHIFTED)),
    )
    needs_recall = without[-1][1] < 0.9
    why = (
        "The task as run is the identity map: without any attention accuracy is "
        f"{three(without[-1][1])} after 20 steps, so it confirms no recall. "
        + (f"VLA as run has {three(vla)} on it, and {three(shifted)} on a copy that needs memory, "
           "after 1 500 steps."
           if vla is not None else "No run of VLA on it is recorded yet.")
    )  # fmt: skip
    cells = [
        ("no attention, 20 steps", without[-1][1]),
        ("VLA as run", vla),
        ("VLA, copy that needs memory", shifted),
    ]
    picture = Chart(
        "accuracy",
        "",
        (
            Series(
                "ours",
                tuple(n for n, y in cells if y is not None),
                tuple(y for _, y in cells if y is not None),
                "vla",
                line=False,
            ),
        ),
    )
    return Finding(HOLDS if needs_recall and (vla or 0) > 0.99 else FAILS, why, picture)


@claim(
    "readme-parallel-streaming", "Parallel and streaming forms agree",
    words="Phase D Ablation Studies",
    place="README, Visualizations & Ablations 1 (parallel against streaming "
          "evaluation)", section=README,
    needs="The same outputs from whole sequences, pieces handed on, and single tokens.",
    seconds=1.0,
)  # fmt: skip
def _parallel_streaming(_: Evidence) -> Finding:
    T = 120
    k = elu_keys(621, 2, T, 2, D)
    q, v, u = unit(normal(622, 2, T, 2, D)), normal(623, 2, T, 2, D), projected(624, k)
    rows = []
    for dtype, name in ((torch.float64, "float64"), (torch.float32, "float32")):
        given = [x.to(dtype) for x in (q, k, v, u)]
        whole = vla_attention(*given, refresh_every=20, backend="chunk")[0]
        tokens = vla_attention(*given, refresh_every=20, backend="scan")[0]
        state, pieces = None, []
        for a, b in ((0, 37), (37, 38), (38, 100), (100, T)):
            piece = [x[:, a:b] for x in given]
            more: dict[str, Any] = {"initial_state": state, "output_final_state": True}
            o, state = vla_attention(*piece, refresh_every=20, backend="chunk", **more)
            pieces.append(o)
        rows.append((name, distance(torch.cat(pieces, 1), whole), distance(tokens, whole)))
    worst64, worst32 = max(rows[0][1:]), max(rows[1][1:])
    why = (
        "Cut at odd places, in the middle of a refresh period, the pieces agree with the whole, "
        f"and with single tokens, to {worst64:.0e} in float64 and {worst32:.0e} in float32."
    )
    names = tuple(row[0] for row in rows)
    picture = Chart("relative distance from the whole sequence", "", (
        Series("in pieces", names, tuple(row[1] for row in rows), "vla", line=False),
        Series("token by token", names, tuple(row[2] for row in rows), line=False),
    ), log_x=True)  # fmt: skip
    ok = worst64 < 1e-10 and worst32 < 1e-3
    return Finding(
        HOLDS if ok else FAILS,
        why,
        picture,
        Grid(("precision", "in pieces", "token by token"), tuple(rows)),
    )


Cells = tuple[tuple[str, float | None], ...]


def _readme_runs(evidence: Evidence, labels: Sequence[str]) -> Cells:
    """Mean accuracy of each label at the learning rate that is best on validation."""
    from vla.train.tables import at_best_rate

    rows = evidence.runs("readme")
    found = []
    for label in labels:
        best = at_best_rate([row for row in rows if row.label == label])
        found.append((label, mean([row.accuracy() for row in best if row.status == "done"])))
    if any(y is None for _, y in found):
        raise NoEvidence(f"not all of {', '.join(labels)} in data/runs/readme.parquet")
    return tuple(found)


def _compared(ours: Cells, log: Cells) -> Chart:
    return Chart(
        "accuracy",
        "",
        (
            Series(
                "authors' earlier log",
                tuple(n for n, _ in log),
                tuple(y for _, y in log),
                "vla",
                published=True,
                line=False,
            ),
            Series("ours", tuple(n for n, _ in ours), tuple(y for _, y in ours), "vla", line=False),
        ),
    )


def _without_runs(log: Cells, words: str) -> Finding:
    why = f"{words} Not decidable here: no recorded run (data/runs/readme.parquet)."
    return Finding(UNDECIDED, why, _compared((), log), Grid(("authors' log", "accuracy"), log))


@claim(
    "readme-learned-lambda", "Learned λ against fixed λ",
    words="Phase D Ablation Studies Comparing learning drivers vs fixed bounds",
    place="README, Visualizations & Ablations 1", section=README,
    needs="A learned λ0 must recall better than a fixed one, in the authors' log and in "
          "ours.", trained=RANKS,
)  # fmt: skip
def _learned_lambda(evidence: Evidence) -> Finding:
    log = _log_cells(evidence, ("learned lambda", "fixed lambda"))
    words = (
        f"The authors' earlier log has {log[0][1]} learned and {log[1][1]} fixed: no difference."
    )
    if not evidence.runs("readme", needed=False):
        return _without_runs(log, words)
    ours = _readme_runs(evidence, ("rank 1", "rank 1, learned λ0"))
    gain = (ours[1][1] or 0) - (ours[0][1] or 0)
    why = (
        f"{words} Ours: {three(ours[0][1])} fixed, {three(ours[1][1])} learned, each at its best "
        "learning rate."
    )
    return Finding(
        HOLDS if gain > TOLERANCE else FAILS,
        why,
        _compared(ours, log),
        Grid(("form", "accuracy"), (*log, *ours)),
    )


def _log_cells(evidence: Evidence, variants: Sequence[str]) -> Cells:
    found = {row["variant"]: float(row["accuracy"]) for row in evidence.log("ablation")}
    return tuple((f"{name}, authors' log", found[name]) for name in variants)


@claim(
    "readme-rank-r", "Rank-r updates (Woodbury) against rank 1",
    words="Core isolated primitive functions (Sherman-Morrison, Woodbury)",
    place="README, Repository Structure; earlier ablation log", section=README,
    needs="Rank 2 and 4 must recall better than rank 1, in the authors' log and in "
          "ours.", trained=RANKS,
)  # fmt: skip
def _rank_r(evidence: Evidence) -> Finding:
    log = _log_cells(evidence, ("fixed lambda", "rank 2", "rank 4"))
    words = (
        f"The authors' earlier log has {log[0][1]} at rank 1 (fixed λ), {log[1][1]} at rank 2 and "
        f"{log[2][1]} at rank 4."
    )
    if not evidence.runs("readme", needed=False):
        return _without_runs(log, words)
    ours = _readme_runs(evidence, ("rank 1", "rank 2", "rank 4"))
    values = [y or 0.0 for _, y in ours]
    why = (
        f"{words} Ours: {', '.join(f'{three(y)} at {name}' for name, y in ours)}, each at its best "
        f"learning rate.{_learned_by(evidence, [name for name, _ in ours])}"
    )
    gain = min(values[1:]) - values[0]
    verdict = (
        HOLDS if gain > TOLERANCE else CHANGED if max(values[1:]) - values[0] > TOLERANCE else FAILS
    )
    return Finding(verdict, why, _compared(ours, log), Grid(("form", "accuracy"), (*log, *ours)))


def _learned_by(evidence: Evidence, labels: Sequence[str]) -> str:
    """When each is 95 % right at the lower rate: what differs where the end doesn't."""
    steps = {
        label: mean([
            step for row in matching(evidence.runs("readme"), label, lr=3e-4)
            if (step := first_at(row, 0.95)) is not None
        ])
        for label in labels
    }  # fmt: skip
    known = [f"{step:.0f} at {label}" for label, step in steps.items() if step is not None]
    return f" At 3e-4 95 % is reached by step {', '.join(known)}." if known else ""


@claim(
    "readme-stabiliser", "With and without the stabiliser",
    words="we stably update the structural inverse using our ε-bounded stabilizer logic",
    place="README, Theoretical Backbone and v3 notes 3 (periodic diagonal nudging)", section=README,
    needs="Without the refresh the recursion must fail, or the model must recall "
          "less.", seconds=1.0, trained=RANKS,
    links=[Link("refresh as process noise", "stability", "floor")],
)  # fmt: skip
def _stabiliser(evidence: Evidence) -> Finding:
    runs = [
        run for name in ("h200_streaming", "streaming_cpu") for run in evidence.bench(name)["runs"]
    ]
    lanes = [(_stream_name(run), run["readings"], run["settings"]["refresh_every"]) for run in runs]
    without = [readings for _, readings, every in lanes if not every]
    sound = all(
        r["finite"] and r["smallest_eigenvalue"] > 0 for readings in without for r in readings
    )
    rows = evidence.runs("readme", needed=False)
    ours = _readme_runs(evidence, ("rank 1", "rank 1, no refresh")) if rows else ()
    loss = (ours[0][1] or 0) - (ours[1][1] or 0) if ours else 0.0
    why = (
        "The update itself is stable without it: over 10 000 000 float32 tokens A stays symmetric "
        f"and positive definite without any refresh{'' if sound else ' in some runs only'}. It "
        "sets a floor under ‖A‖ instead: the memory keeps learning. "
        + (f"Trained: {three(ours[0][1])} with and {three(ours[1][1])} without." if ours
           else "No training run of both is recorded yet.")
    )  # fmt: skip
    picture = _stream_chart(lanes, "smallest_eigenvalue", "smallest eigenvalue of A")
    needed = not sound or loss > TOLERANCE
    return Finding(HOLDS if needed else FAILS, why, picture)


@claim(
    "readme-linear-scaling", "O(T) in time, constant per token",
    words="Proves VLA runs in O(T) constant time per token, avoiding the O(T²) slowdown of "
          "Softmax.",
    place="README, Comprehensive Benchmarks", section=README,
    needs="Milliseconds per token that don't grow with T.",
)  # fmt: skip
def _linear_scaling(evidence: Evidence) -> Finding:
    rows = evidence.log("latency")
    per = {m: [float(r[f"{m}_ms"]) / int(r["t"]) for r in rows] for m in ("softmax", "vla")}
    lengths = ints([int(r["t"]) for r in rows])
    vla, softmax = per["vla"][-1] / per["vla"][0], per["softmax"][-1] / per["softmax"][0]
    why = (
        f"In their log VLA takes {three(per['vla'][0])} ms a token at T = 128 and "
        f"{three(per['vla'][-1])} at 2 048, so it is constant; softmax goes from "
        f"{three(per['softmax'][0])} to {three(per['softmax'][-1])}, {three(softmax)} times more. "
        "At every one of these lengths softmax is still the faster one, at 2 048 by "
        f"{three(per['vla'][-1] / per['softmax'][-1])}×."
    )
    picture = Chart("T, tokens", "ms per token", (
        Series("VLA, authors' log", lengths, tuple(per["vla"]), "vla", published=True),
        Series("softmax, authors' log", lengths, tuple(per["softmax"]), "softmax", published=True),
    ), log_x=True, log_y=True)  # fmt: skip
    return Finding(HOLDS if math.isclose(vla, 1, rel_tol=0.15) else FAILS, why, picture)


@claim(
    "readme-jacobian-spectrum", "Bounded fast-weight dynamics control the Jacobian spectrum",
    words="Bounded fast-weight dynamics: normalized (k_t, α_t) outer-product updates to control "
          "Jacobian spectrum.",
    place="README, v3 notes 4", section=README,
    needs="With both vectors at unit length ‖J‖ must have a bound; without, none.",
    seconds=0.3,
    links=[Link("every step's norm against c", "stability", "proposition")],
)  # fmt: skip
def _jacobian_spectrum(_: Evidence) -> Finding:
    from vla.claims.memory import spectral, transitions

    k = torch.nn.functional.elu(normal(631, 100, D)) + 1
    v, u = normal(632, 100, 1), projected(633, k)
    both = [float(spectral(J)) for J in transitions(states(PUBLISHED, unit(k), v, u))]
    raw = PUBLISHED.with_(normalise_key=False, gain="rls")
    free = [float(spectral(J)) for J in transitions(states(raw, k, v, u))]
    why = (
        "It does: with c > 0 a step's norm is at most (1 + √5)/2 = 1.62 (measured up to "
        f"{three(max(both))}), against up to {three(max(free))} without both normalisations. "
        "Controlled, not 1: see Proposition 2."
    )
    picture = Chart("step", "‖J‖ of one step", (
        Series("both at unit length", ints(range(1, 101)), tuple(both), "vla", marks=False),
        Series("neither", ints(range(1, 101)), tuple(free), "vla", marks=False),
    ), log_y=True)  # fmt: skip
    return Finding(HOLDS if max(both) <= 1.62 and max(free) > 10 else FAILS, why, picture)


@claim(
    "readme-forgets-irrelevant", "It learns to forget irrelevant tokens",
    words="VLA learns to construct a dynamic, dense penalty matrix over time, strongly suppressing "
          "irrelevant information natively",
    place="README, Key Innovations 1", section=README,
    needs="A token whose direction has been penalised much must change the state less.",
    seconds=0.5,
    links=[Link("where the next write goes", "whitening", "again")],
)  # fmt: skip
def _forgets_irrelevant(_: Evidence) -> Finding:
    k0 = unit(normal(641, D))
    v = normal(642, 60, D)
    keys = k0.expand(60, D)
    sizes = {}
    for name, rule in (
        ("VLA, unit gain", VLA()),
        ("VLA, α as it is", VLA(gain="rls")),
        ("delta rule", make("delta")),
    ):
        found = states(rule, keys, v)
        S = torch.stack([state.S for state in found])
        sizes[name] = torch.cat([S[:1], S[1:] - S[:-1]]).flatten(1).norm(dim=1) / v.norm(dim=1)
    late = {name: float(x[-10:].mean()) for name, x in sizes.items()}
    why = (
        "When one key comes 60 times with noise as its value, each of the last writes still has "
        f"{three(late['VLA, unit gain'])} of the value's size with the unit-length gain, as with "
        f"the delta rule ({three(late['delta rule'])}): the penalty turns the write, but doesn't "
        f"shrink it. With α at its length it does shrink ({three(late['VLA, α as it is'])})."
    )
    picture = Chart("times the key has come", "‖S_t − S_{t−1}‖/‖v‖", tuple(
        Series(name, ints(range(1, 61)), floats(x), hue, marks=False)
        for (name, x), hue in zip(sizes.items(), ("vla", "rls", "delta"), strict=True)
    ))  # fmt: skip
    unit_, exact = late["VLA, unit gain"], late["VLA, α as it is"]
    return Finding(HOLDS if unit_ < 0.5 else CHANGED if exact < 0.5 else FAILS, why, picture)


open_claim(
    "readme-symbolic", "ListOps, CLUTRR and CommonsenseQA",
    words="Exhibits powerful dominance against leading Linear-Time variants in memory-intensive "
          "logic flows specifically evaluated on ListOps, CLUTRR, and CommonsenseQA.",
    place="README, Performance & Benchmarks", section=README,
    needs="Accuracies of named models under a named protocol on these three data sets.",
    reason="Neither the README nor the paper prints a number, a model size or a protocol for these "
           "data sets, and §8 of the paper says that no task beyond copy and MQAR was run. There "
           "is nothing to compare with.",
)  # fmt: skip
open_claim(
    "readme-state-of-the-art", "State-of-the-art capacity",
    words="showcase VLA operating natively at a State-of-the-Art capacity",
    place="README, Performance & Benchmarks", section=README,
    needs="A comparison with the best known recall at a matched state size and protocol.",
    reason="No measure and no rival is named. What can be compared is under “DeltaNet collapses” "
           "and in the preset fair.",
)  # fmt: skip
open_claim(
    "readme-natural-language", "Advantages carry over to natural language",
    words="Demonstrating that the stability and capacity advantages observed on MQAR translate to "
          "real-world settings is the primary direction for future work.",
    place="§8, Evaluation scope", section="8 Limitations",
    needs="Perplexity on WikiText-103 or the like, at matched parameters and state.",
    reason="The paper itself leaves this open, and training a language model is beyond this "
           "laboratory.",
)  # fmt: skip
