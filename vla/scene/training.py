"""Training as work for :mod:`vla.scene.live`: into the run store, with a live curve.

    session.live.start(training.sweep, "Capacity", preset="figure5", budget="smoke", store=path)
    session.live.start(training.runs, "This VLA", configs=[config.canonical], labels=["mine"],
                       store=path)

Both skip what is stored, share the store with any other sweep, and give back what they hold when
stopped: the same call goes on from there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vla.figures.runs import shown
from vla.provenance import device_name
from vla.scene.live import Report
from vla.train import LocalEngine, RunConfig, Store, Wanted, run_sweep
from vla.train.cli import DEFAULT_STORE
from vla.train.loop import Progress, checked_device
from vla.train.plan import estimate, measured_pace
from vla.train.presets import preset as preset_named
from vla.train.progress import ProgressBar, clock
from vla.train.result import FINISHED, RunResult
from vla.train.sweep import Source, Summary


def store_path() -> Path:
    """Where ``vla sweep`` keeps its runs: ``$VLA_STORE``, or a file in the current folder."""
    return Path(os.environ.get("VLA_STORE", DEFAULT_STORE))


class Telling(ProgressBar):
    """A sweep's progress as reports: bar, one accuracy curve a run, a line at each run's end."""

    def __init__(self, report: Report) -> None:
        super().__init__(0, 0)
        self.report = report
        self._turns: Counter[str] = Counter()

    def show(self, active: Mapping[str, Progress]) -> None:
        """Every run's newest point, and how much of all steps is done."""
        for name, progress in active.items():
            if progress.step:
                self.report.point(self._curve(name), progress.step, progress.accuracy)
        steps = self.done_steps + sum(p.step for p in active.values())
        runs = f"run {min(self.done_runs + 1, self.total_runs)} of {self.total_runs}"
        words = f"{runs}, about {clock(self.left(steps))} left" if steps else runs
        self.report.share(steps / max(1, self.total_steps), words)

    def _curve(self, name: str) -> str:
        """A curve of its own for each run: runs of several loads or seeds share a label."""
        turn = self._turns[name]
        return shown(name) + (f" ({turn + 1})" if turn else "")

    def ended(self, name: str, result: RunResult, steps: int) -> None:
        """One run has ended."""
        super().ended(name, result, steps)
        self._turns[name] += 1

    def say(self, text: str) -> None:
        """A line that stays."""
        self.report.say(text)

    def close(self) -> None:
        """Nothing to tidy up."""


def sweep(
    report: Report, preset: str, budget: str, store: str, device: str = "auto"
) -> dict[str, Any]:
    """Every run of a preset at a budget that isn't stored yet. Returns the sweep's summary.

    Raises as :func:`vla.train.run_sweep`, and ``ValueError`` for an unknown preset or budget.
    """
    chosen = preset_named(preset)
    return _into(
        report,
        lambda rows: chosen.wanted(budget, rows),
        store,
        device,
        preset=preset,
        budget=budget,
    )


def cost(
    report: Report, preset: str, budget: str, store: str, device: str = "auto"
) -> dict[str, str]:
    """What the runs still missing would take here, from a few steps of each kind of model.

    Raises ``ValueError`` for an unknown preset or budget, ``StoreError`` for a damaged store.
    """
    where = checked_device(device)
    left = _missing(preset, budget, Path(store))
    pace: dict[str, float] = {}
    mixers = list(dict.fromkeys(item.config.model.mixer for item in left))
    for turn, mixer in enumerate(mixers):
        report.share(turn / len(mixers), f"timing {mixer}")
        pace |= measured_pace([item for item in left if item.config.model.mixer == mixer], where)
    words = f"{estimate('Still to do', left, pace)} on {device_name(where)}, one after another."
    report.say(words)
    return {"preset": preset, "budget": budget, "cost": words}


def _missing(preset: str, budget: str, store: Path) -> list[Wanted]:
    rows = []
    if store.exists():
        with Store(store, create=False) as opened:
            rows = opened.rows(preset=preset, budget=budget)
    known = {row.key for row in rows if row.status in FINISHED}
    wanted = preset_named(preset).wanted(budget, rows)
    return [item for item in wanted if item.config.key not in known]


def runs(
    report: Report,
    configs: Sequence[str],
    labels: Sequence[str],
    store: str,
    device: str = "auto",
    preset: str = "",
    budget: str = "",
) -> dict[str, Any]:
    """These runs, each a ``RunConfig.canonical``, under these labels. Returns the summary.

    With ``preset`` and ``budget``, ``Store.rows`` finds them under those names. Raises as
    :func:`vla.train.run_sweep`.
    """
    wanted = [
        Wanted(RunConfig.from_json(text), label)
        for text, label in zip(configs, labels, strict=True)
    ]
    return _into(report, lambda _: wanted, store, device, preset=preset, budget=budget)


def _into(
    report: Report, source: Source, path: str, device: str, *, preset: str, budget: str
) -> dict[str, Any]:
    engine = LocalEngine(device)
    with Store(path) as store:
        summary = run_sweep(
            source, store, preset=preset, budget=budget, engine=engine, bar=Telling(report)
        )
    report.say(str(summary))
    if summary.interrupted:
        raise KeyboardInterrupt
    return _plain(summary)


def _plain(summary: Summary) -> dict[str, Any]:
    return {name: getattr(summary, name) for name in ("wanted", "skipped", "done", "nan", "failed")}
