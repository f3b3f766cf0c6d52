"""Table 4, row by row, and the component that it leaves out (§5.1, §6.6)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from vla.claims.claim import Link, Trained, claim
from vla.claims.evidence import Evidence, NoEvidence
from vla.claims.finding import CHANGED, FAILS, HOLDS, Chart, Finding, Grid, Series
from vla.claims.memory import elu_keys, normal, projected, spectral, states, transitions
from vla.claims.propositions import PUBLISHED
from vla.claims.recorded import TOLERANCE, accuracies, matching, mean
from vla.figures.theme import three
from vla.paper import number
from vla.rules import State
from vla.rules.vla import VLA

if TYPE_CHECKING:
    from vla.train.result import RunRow

FULL, FIXED, LINEAR, DELTA = "VLA (as run)", "A fixed", "linear", "authors_delta"
NO_NORM, NO_NORM_RAW, NO_OUTPUT = "no key norm", "no key norm, α as it is", "no output norm"
Rows = tuple[tuple[str, float | None, float | None], ...]


def _row_of_table_4(
    slug: str, title: str, words: str, needs: str, label: str
) -> Callable[[Callable[[Evidence], Finding]], Callable[[Evidence], Finding]]:
    sample = (("label", label), ("task.pairs", 16), ("steps", 1000))
    return claim(
        f"table-4-{slug}",
        f"Table 4: {title}",
        words=words,
        place="§6.6, Table 4",
        section="6 Results",
        needs=needs,
        trained=Trained("table4", sample, 3),
        seconds=0.3,
    )


def _found(evidence: Evidence, label: str) -> Rows:
    """Accuracy at the published 1 000 steps, and at n = 24 after 2 000 at both learning rates."""
    rows = evidence.runs("table4")
    return (
        ("n = 16, 1 000 steps at "
         "3e-4", None, mean(accuracies(rows, label, task__pairs=16, steps=1000))),
        ("n = 48, 1 000 steps at "
         "3e-4", None, mean(accuracies(rows, label, task__pairs=48, steps=1000))),
        ("n = 24, 2 000 steps at 3e-4", None,
         mean(accuracies(rows, label, task__pairs=24, steps=2000, lr=3e-4))),
        ("n = 24, 2 000 steps at 1e-3", None,
         mean(accuracies(rows, label, task__pairs=24, steps=2000, lr=1e-3))),
    )  # fmt: skip


def _printed(evidence: Evidence, variant: str) -> tuple[float | None, float | None]:
    line = next(line for line in evidence.table(4) if line["variant"].startswith(variant))
    return number(line["mqar_n16"]), number(line["overload_n48"])


def _with_printed(found: Rows, printed: tuple[float | None, float | None]) -> Rows:
    both = (*printed, None, None)
    return tuple((name, p, y) for (name, _, y), p in zip(found, both, strict=True))


def _chart(rows: Rows) -> Chart:
    names = tuple(row[0] for row in rows)
    return Chart(
        "accuracy",
        "",
        (
            Series(
                "as published",
                names,
                tuple(row[1] for row in rows),
                "vla",
                published=True,
                line=False,
            ),
            Series("ours", names, tuple(row[2] for row in rows), "vla", line=False),
        ),
    )


def _agree(rows: Rows) -> bool:
    pairs = [(p, y) for _, p, y in rows if p is not None and y is not None]
    return bool(pairs) and all(abs(p - y) <= TOLERANCE for p, y in pairs)


HEAD = ("run", "as published", "ours, mean")


def _needs_full(rows: Rows) -> None:
    if rows[0][2] is None:
        raise NoEvidence("no run at n = 16 after 1 000 steps in data/runs/table4.parquet")


@_row_of_table_4(
    "vla", "VLA (full)", "VLA (full): 0.990 at n = 16, 0.044 at n = 48; seed 42, 1 000 steps",
    "These accuracies after 1 000 steps at 3e-4.", FULL,
)  # fmt: skip
def _table_4_vla(evidence: Evidence) -> Finding:
    rows = _with_printed(_found(evidence, FULL), _printed(evidence, "VLA (full)"))
    _needs_full(rows)
    reaches = (rows[2][2] or 0) > 0.9 or (rows[3][2] or 0) > 0.9
    why = (
        f"After the stated 1 000 steps VLA as run has {three(rows[0][2])} at n = 16 and "
        f"{three(rows[1][2])} at n = 48. It learns later: {three(rows[2][2])} at n = 24 after 2 "
        f"000 steps at 3e-4, {three(rows[3][2])} at 1e-3."
    )
    verdict = HOLDS if _agree(rows) else CHANGED if reaches else FAILS
    return Finding(verdict, why, _chart(rows), Grid(HEAD, rows))


@_row_of_table_4(
    "a-fixed", "A_t = 10I fixed",
    "VLA, A_t=10I fixed: ≈0.091*, ≈0.043* … predicted from Remark 1 (not independently run) … "
    "Fixing A_t=10I … reduces accuracy to match standard linear attention, confirming that the "
    "penalty geometry … is the source of the improvement",
    "The model must be run, and must stay at linear attention's accuracy where VLA learns.", FIXED,
)  # fmt: skip
def _table_4_fixed(evidence: Evidence) -> Finding:
    rows = _with_printed(_found(evidence, FIXED), _printed(evidence, "VLA, A_t=10I"))
    _needs_full(rows)
    full = _found(evidence, FULL)
    best = max(y or 0 for _, _, y in rows)
    slow, vla_slow = rows[2][2], full[2][2]
    as_linear = best < 0.2
    why = (
        f"Run, it isn't linear attention: {three(rows[0][2])} at n = 16 after 1 000 steps (VLA "
        f"{three(full[0][2])} there), {three(slow)} at n = 24 after 2 000 at 3e-4 (VLA "
        f"{three(vla_slow)}), and {three(rows[3][2])} at 1e-3 (VLA {three(full[3][2])}). With A "
        "fixed the rule is the delta rule with β = 1 (see Remark 1). What adaptive A buys under "
        "this protocol is speed of learning at a small learning rate."
    )
    grid = Grid((*HEAD, "VLA (as run)"),
                tuple((*row, f[2]) for row, f in zip(rows, full, strict=True)))  # fmt: skip
    # Failing needs a run in which it does leave linear attention behind.
    verdict = FAILS if best > 0.3 else HOLDS if as_linear and (vla_slow or 0) > 0.9 else CHANGED
    return Finding(verdict, why, _chart(rows), grid)


@_row_of_table_4(
    "no-key-norm", "no key normalisation",
    "VLA, no k̂ norm: NaN (d≥96) … NaN at d≥96 without normalisation is proved analytically in "
    "Table 2 and Proposition 2",
    "Training without key normalisation must end in NaN; the table is at d_h = 32.", NO_NORM,
)  # fmt: skip
def _table_4_no_norm(evidence: Evidence) -> Finding:
    lanes: dict[tuple[str, int], float | None] = {}
    for d in (32, 96, 128):
        raw = torch.nn.functional.elu(normal(501, 73, d)) + 1
        v, u = normal(502, 73, 4), projected(503, raw)
        for name, rule in (("gain of unit length", PUBLISHED),
                           ("α as it is", PUBLISHED.with_(gain="rls"))):  # fmt: skip
            found = states(rule.with_(normalise_key=False), raw.float(), v.float(), u.float())
            lanes[name, d] = _breaks(found)
    rows = evidence.runs("table4", needed=False)
    ended = [(label, row.value("task.pairs"), row.config.steps, row.status, row.accuracy())
             for label in (NO_NORM, NO_NORM_RAW) for row in matching(rows, label, seed=42)
             if row.config.lr == 3e-4]  # fmt: skip
    told = "; ".join(f"{label}, n = {n}, {steps} steps: {status}"
                     + ("" if math.isnan(y) else f", accuracy {three(y)}")
                     for label, n, steps, status, y in ended)  # fmt: skip
    own = [lanes["gain of unit length", d] is not None for d in (32, 96, 128)]
    breaks = all(lanes["α as it is", d] is not None for d in (32, 96, 128))
    why = (
        "From scratch, raw ELU+1 keys, float32, one n = 24 row of 73 tokens: the memory overflows "
        "at "
        + ", ".join(f"token {t:g} ({name}, d = {d})" for (name, d), t in lanes.items() if t)
        + ". With the gain still at unit length it takes a large d (or a longer row); the table is "
        "at d_h = 32, for which it prints no number. "
        + (f"Trained at d_h = 32: {told}." if ended else "No training run is recorded yet.")
    )
    widths = (32.0, 96.0, 128.0)
    picture = Chart("head width d", "first token that isn't finite (float32)", tuple(
        Series(f"keys raw, {name}", widths, tuple(lanes[name, int(d)] for d in widths), hue)
        for name, hue in (("gain of unit length", "vla"), ("α as it is", "vla"))
    ))  # fmt: skip
    grid = Grid(("form", "d", "first token that isn't finite"),
                tuple((n, str(d), y) for (n, d), y in lanes.items()))  # fmt: skip
    verdict = HOLDS if own == [False, True, True] else CHANGED if breaks else FAILS
    return Finding(verdict, why, picture, grid)


def _breaks(found: list[State]) -> float | None:
    """The first token after which S isn't finite."""
    finite = [bool(state.S.isfinite().all()) for state in found]
    return float(finite.index(False) + 1) if False in finite else None


@_row_of_table_4(
    "deltanet", "DeltaNet", "DeltaNet [11]: 0.009 at n = 16, 0.008 at n = 48",
    "These accuracies of DeltaNet as it was run.", DELTA,
)  # fmt: skip
def _table_4_deltanet(evidence: Evidence) -> Finding:
    rows = _with_printed(_found(evidence, DELTA), _printed(evidence, "DeltaNet"))
    _needs_full(rows)
    return _baseline(
        rows,
        "It is the authors' DeltaNet, whose state decays at every token; see “DeltaNet collapses”.",
    )


@_row_of_table_4(
    "linear", "Linear attention", "Linear attention [6]: 0.091 at n = 16, 0.043 at n = 48",
    "These accuracies of linear attention.", LINEAR,
)  # fmt: skip
def _table_4_linear(evidence: Evidence) -> Finding:
    rows = _with_printed(_found(evidence, LINEAR), _printed(evidence, "Linear"))
    _needs_full(rows)
    return _baseline(
        rows, "It is the plateau of a reader who knows the row's values but not the pairs."
    )


def _baseline(rows: Rows, told: str) -> Finding:
    why = (
        f"Ours: {three(rows[0][2])} at n = 16 and {three(rows[1][2])} at n = 48 after 1 000 steps "
        f"at 3e-4. {told}"
    )
    near = all(y is None or y < 0.2 for _, _, y in rows)
    verdict = HOLDS if _agree(rows) else CHANGED if near else FAILS
    return Finding(verdict, why, _chart(rows), Grid(HEAD, rows))


@_row_of_table_4(
    "random", "random baseline", "Random baseline: 1/128 ≈ 0.008",
    "Values are one of 127 tokens, so a blind guess is right once in 127.", LINEAR,
)  # fmt: skip
def _table_4_random(evidence: Evidence) -> Finding:
    from vla import tasks

    evidence.table(4)
    task = tasks.make("mqar_authors", pairs=16)
    batch = task.sample(512, generator=torch.Generator().manual_seed(0))
    asked = batch.targets[batch.targets >= 0]
    share = float((asked == 7).float().mean())
    exact = 1 / task.separator
    why = (
        f"1/127 = {exact:.4f}, to the printed digits 1/128: values are uniform over 0 … 126 "
        f"(always answering 7 is right in {share:.4f} of {len(asked)} drawn queries). A fairer "
        f"floor for a reader of the row is the commonest of its values: {three(task.guess)}."
    )
    picture = Chart(
        "accuracy",
        "",
        (
            Series("as published", ("blind guess",), (0.008,), "vla", published=True, line=False),
            Series(
                "ours",
                ("blind guess", "commonest value of the row"),
                (share, task.guess),
                "vla",
                line=False,
            ),
        ),
    )
    return Finding(
        HOLDS if abs(exact - 0.008) < 5e-4 and abs(share - exact) < 2e-3 else FAILS, why, picture
    )


@claim(
    "shared-components",
    "All other components are shared",
    words="All other components (residual connections, layer normalisation, FFN, token embedding, "
    "weight tying) are shared identically across the four models.",
    place="§5.1",
    section="5 Setup",
    needs="The four models must differ in nothing but the mixer's rule; in the code VLA alone has "
    "an output LayerNorm.",
    trained=Trained(
        "table4", (("label", NO_OUTPUT), ("task.pairs", 24), ("lr", 3e-4), ("seed", 42)), 9
    ),
)
def _shared_components(evidence: Evidence) -> Finding:
    from vla import nn

    own = {
        name: nn.model(name).output_norm
        for name in ("softmax", "linear", "authors_delta", "vla_authors")
    }
    rows = evidence.runs("table4", needed=False)
    cells = tuple(
        (
            title,
            mean(accuracies(rows, label, task__pairs=24, steps=2000, lr=3e-4)),
            mean(accuracies(rows, label, task__pairs=24, steps=2000, lr=1e-3)),
        )
        for title, label in (
            ("VLA as run (has it)", FULL),
            ("VLA without it", NO_OUTPUT),
            ("A fixed, without it", "A fixed, no output norm"),
            ("linear attention with it", "linear + output norm"),
            ("softmax with it", "softmax + output norm"),
            ("DeltaNet proper with it", "delta + output norm"),
        )
    )
    differ = len(set(own.values())) > 1
    without, full = cells[1][1], cells[0][1]
    decisive = without is not None and full is not None and full - without > 0.5
    why = (
        "In the authors' code VLA alone has a LayerNorm over its heads' output "
        f"({own['vla_authors']}; the other three: {own['linear']}). "
        + (
            f"It carries the result: at n = 24 after 2 000 steps at 3e-4 VLA has {three(full)} "
            f"with it and {three(without)} without{_at_the_other_rate(rows)}. "
            if without is not None
            else "No run without it is recorded yet. "
        )
        + "It doesn't by itself help the others at these steps (table)."
    )
    names = tuple(row[0] for row in cells)
    picture = Chart("accuracy, n = 24, 2 000 steps", "", (
        Series("at 3e-4", names, tuple(row[1] for row in cells), "vla", line=False),
        Series("at 1e-3", names, tuple(row[2] for row in cells), line=False),
    ))  # fmt: skip
    grid = Grid(("model", "lr 3e-4", "lr 1e-3"), cells)
    if not differ:
        return Finding(HOLDS, why, picture, grid)
    return Finding(FAILS if decisive or not rows else CHANGED, why, picture, grid)


def _at_the_other_rate(rows: list[RunRow]) -> str:
    found = sorted(accuracies(rows, NO_OUTPUT, task__pairs=24, steps=2000, lr=1e-3))
    seeds = ", ".join(map(three, found))
    return f"; at 1e-3, without, {seeds} ({len(found)} seeds)" if found else ""


@claim(
    "penalty-geometry-is-the-source",
    "The penalty geometry is the source of the improvement",
    words="confirming that the penalty geometry, not just the residual error, is the source of the "
    "improvement … Both components are confirmed necessary in the ablation",
    place="§6.6 and §7.3",
    section="7 Analysis",
    needs="Without adaptive A the model must not reach VLA's accuracy, with the same care in "
    "training.",
    trained=Trained(
        "table4", (("label", FIXED), ("task.pairs", 24), ("lr", 1e-3), ("seed", 42)), 9
    ),
)
def _penalty_geometry(evidence: Evidence) -> Finding:
    rows = evidence.runs("table4")
    cells = tuple(
        (label, mean(accuracies(rows, label, task__pairs=24, steps=2000, lr=3e-4)),
         mean(accuracies(rows, label, task__pairs=24, steps=2000, lr=1e-3)))
        for label in (FULL, FIXED, "u = key", "gain α as it is", "no refresh", "exact", NO_OUTPUT)
    )  # fmt: skip
    (_, full, full_fast), (_, fixed, fixed_fast) = cells[:2]
    if fixed is None or full is None:
        raise NoEvidence("no run of both forms at n = 24 in data/runs/table4.parquet")
    reached = max(fixed, fixed_fast or 0) > 0.9 * max(full, full_fast or 0)
    faster = full > fixed + 0.3
    why = (
        f"At n = 24 after 2 000 steps VLA as run has {three(full)} at 3e-4 and {three(full_fast)} "
        f"at 1e-3; with A fixed it has {three(fixed)} and {three(fixed_fast)}. So A "
        + (
            "speeds learning up, and isn't needed for the result."
            if reached
            else "makes the difference here."
        )
    )
    names = tuple(row[0] for row in cells)
    picture = Chart("accuracy, n = 24, 2 000 steps", "", (
        Series("at 3e-4", names, tuple(row[1] for row in cells), "vla", line=False),
        Series("at 1e-3", names, tuple(row[2] for row in cells), line=False),
    ))  # fmt: skip
    verdict = (CHANGED if faster else FAILS) if reached else HOLDS
    return Finding(verdict, why, picture, Grid(("variant", "lr 3e-4", "lr 1e-3"), cells))


@claim(
    "nan-at-96", "Unnormalised VLA gives NaN losses at d_h ≥ 96",
    words="This explains the NaN losses observed when running unnormalised VLA at d_h≥96.",
    place="§4.2 and §6.6", section="4 Theory",
    needs="The unnormalised recursion must overflow float32 at d_h = 96 and not at d_h = 32 or 64.",
    seconds=1.0,
    links=[Link("the form that explodes", "step", "explosion")],
)  # fmt: skip
def _nan_at_96(_: Evidence) -> Finding:
    rule = VLA(direction="token", unit_direction=True, normalise_key=False, gain="rls")
    widths, steps = (32, 64, 96, 128), []
    first: dict[int, float | None] = {}
    for d in widths:
        raw = torch.nn.functional.elu(normal(511, 73, d)) + 1
        found = states(rule, raw.float(), normal(512, 73, 4).float(), projected(513, raw).float())
        first[d] = _breaks(found)
        Js = transitions(states(rule, raw, normal(512, 73, 1), projected(513, raw)))
        steps.append(float(torch.stack([spectral(J) for J in Js]).log().mean().exp()))
    overflow = {d: t for d, t in first.items() if t is not None}
    only = set(overflow) == {96, 128}
    unit = states(
        PUBLISHED, elu_keys(511, 73, 96), normal(512, 73, 4), projected(513, elu_keys(511, 73, 96))
    )
    why = (
        "It overflows float32 within the 73 tokens of one n = 24 row: at token "
        + ", ".join(f"{t or 0:g} for d = {d}" for d, t in first.items())
        + ". So NaN is what one gets, at d = 32 as well; the threshold of 96 depends on scale and "
        f"length. With both vectors at unit length ‖S‖ is {three(float(unit[-1].S.norm()))} at d = "
        "96."
    )
    picture = Chart("head width d", "‖J‖ of one step (geometric mean)", (
        Series("un-normalised", tuple(map(float, widths)), tuple(steps), "vla"),
    ), log_y=True, level=1.0, level_name="1")  # fmt: skip
    grid = Grid(
        ("d", "first token that isn't finite"), tuple((str(d), t) for d, t in first.items())
    )
    verdict = HOLDS if only else CHANGED if 96 in overflow else FAILS
    return Finding(verdict, why, picture, grid)
