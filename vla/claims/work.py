"""Deciding a claim with fresh training: some of its runs again, or the whole preset."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from vla.claims.claim import Claim, get
from vla.claims.evidence import Evidence
from vla.claims.finding import Finding
from vla.claims.ledger import Entry, examine
from vla.errors import ArgumentError, require_choice

if TYPE_CHECKING:
    from vla.train.result import RunRow
    from vla.train.store import Wanted

Tell = Callable[[float, str, str, int, float], object]
"""Called with the share that is done, words, a run's name, its step and its accuracy there."""


def _silent(*_: object) -> None:
    return


def run(id: str, budget: str = "cheap", tell: Tell = _silent) -> Entry:
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
    fresh = train(chosen, budget, tell)
    evidence = Evidence(budget, runs={chosen.trained.preset: _together(chosen, budget, fresh)})
    return _with_note(examine(chosen, evidence), fresh)


def wanted(chosen: Claim, budget: str) -> list[Wanted]:
    """The runs a budget trains. Raises ``ArgumentError`` for a claim that rests on no training."""
    from vla.train.presets import preset

    if chosen.trained is None:
        raise ArgumentError("claim", chosen.id, "a claim that rests on trained models")
    everything = preset(chosen.trained.preset).wanted("full")
    if budget == "full":
        return everything
    return [item for item in everything if _matches(item, chosen.trained.sample)]


def train(chosen: Claim, budget: str, tell: Tell) -> list[RunRow]:
    """Train them one after another and return them as rows."""
    import torch

    items = wanted(chosen, budget)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return [_trained(item, device, number, len(items), tell) for number, item in enumerate(items)]


def _trained(item: Wanted, device: str, number: int, of: int, tell: Tell) -> RunRow:
    from vla.train.loop import new_trainer
    from vla.train.result import RunRow

    trainer = new_trainer(item.config, device)
    while not trainer.finished:
        if trainer.wants_work:
            trainer.enqueue(25)
        trainer.collect(wait=True)
        step = int(trainer.step)
        share = min(1.0, step / item.config.steps)
        recent = trainer.host_log[max(0, step - 25) : step, 1]
        accuracy = float(recent.mean()) if len(recent) else 0.0
        tell((number + share) / of, f"run {number + 1} of {of}", item.label, step, accuracy)
    result = trainer.result()
    return RunRow(item.config.key, item.config, result.status, result, label=item.label)


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
    found: Finding = entry.finding
    noted = dataclasses.replace(found, why=f"{found.why} Trained here just now: {told}{more}.")
    return dataclasses.replace(entry, finding=noted)


def job(report: Any, id: str, budget: str) -> dict[str, Any]:
    """:func:`run` as work behind a page (``vla.scene.live``); the verdict as plain values."""
    from vla.claims.ledger import plain

    def tell(share: float, words: str, name: str, step: int, accuracy: float) -> None:
        report.share(share, f"{words}, step {step}")
        report.point(name, step, accuracy)

    report.share(0.0, "checking")
    return plain(run(id, budget, tell))
