"""Deciding a claim with fresh training: some of its runs again, or the whole preset."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla.claims.claim import Claim, get
from vla.claims.evidence import Evidence
from vla.claims.ledger import Entry, examine, plain
from vla.errors import ArgumentError, require_choice

if TYPE_CHECKING:
    from vla.train.progress import ProgressBar
    from vla.train.result import RunRow
    from vla.train.store import Wanted


def run(id: str, budget: str = "cheap", bar: ProgressBar | None = None) -> Entry:
    """Decide a claim at a budget, training what the budget asks for.

    ``cheap``: recorded evidence, and whatever takes seconds. ``cpu``: for a claim on trained
    models, the few runs that decide it are trained again here, in place of the recorded ones; for
    others, more draws. ``full``: every run of the preset, on a GPU if there is one. Raises
    :class:`~vla.errors.ArgumentError` for an unknown claim or budget.
    """
    chosen = get(id)
    require_choice("budget", budget, chosen.budgets or ("cheap",))
    if budget == "cheap" or chosen.trained is None:
        return examine(chosen, Evidence(budget))
    fresh = train(chosen, budget, bar)
    evidence = Evidence(budget, runs={chosen.trained.preset: _together(chosen, budget, fresh)})
    return _with_note(examine(chosen, evidence), fresh)


def wanted(chosen: Claim, budget: str, rows: Sequence[RunRow] = ()) -> list[Wanted]:
    """The runs a budget trains, given those that are done. Raises ``ArgumentError`` for a claim
    that rests on no training."""
    from vla.train.presets import preset

    if chosen.trained is None:
        raise ArgumentError("claim", chosen.id, "a claim that rests on trained models")
    everything = preset(chosen.trained.preset).wanted("full", rows)
    if budget == "full":
        return everything
    return [item for item in everything if _matches(item, chosen.trained.sample)]


def train(chosen: Claim, budget: str, bar: ProgressBar | None = None) -> list[RunRow]:
    """Train them in a store of their own and return them as rows.

    Raises ``KeyboardInterrupt`` if it was cut short.
    """
    from vla.train import LocalEngine, Store, run_sweep
    from vla.train.result import FINISHED

    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "runs.sqlite") as store:
        done = run_sweep(
            lambda rows: wanted(chosen, budget, rows), store, preset=chosen.id, budget=budget,
            engine=LocalEngine("auto"), bar=bar,
        )  # fmt: skip
        if done.interrupted:
            raise KeyboardInterrupt
        return [row for row in store.rows(preset=chosen.id) if row.status in FINISHED]


def _matches(item: Wanted, sample: tuple[tuple[str, object], ...]) -> bool:
    from vla.train.result import QUEUED, RunResult, RunRow

    row = RunRow(item.config.key, item.config, QUEUED, RunResult(QUEUED), label=item.label)
    return all(row.value(name) == value for name, value in sample)


def _together(chosen: Claim, budget: str, fresh: list[RunRow]) -> list[RunRow]:
    """Recorded runs, the fresh ones in place of the same configs; at full budget fresh alone."""
    assert chosen.trained is not None
    recorded = [] if budget == "full" else Evidence().runs(chosen.trained.preset, needed=False)
    new = {row.key for row in fresh}
    return [*fresh, *(row for row in recorded if row.key not in new)]


def _with_note(entry: Entry, fresh: list[RunRow]) -> Entry:
    told = "; ".join(f"{row.config}: {row.accuracy():.3f}" for row in fresh[:4])
    more = f" and {len(fresh) - 4} more" if len(fresh) > 4 else ""
    found = entry.finding
    noted = dataclasses.replace(found, why=f"{found.why} Trained here just now: {told}{more}.")
    return dataclasses.replace(entry, finding=noted)


def job(report: Any, id: str, budget: str) -> dict[str, Any]:
    """:func:`run` as work behind a page (``vla.scene.live``); the verdict as plain values."""
    from vla.scene.training import Telling

    report.share(0.0, "checking")
    return plain(run(id, budget, Telling(report)))
