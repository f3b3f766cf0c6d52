"""Runs made up for tests of the sweeps app: every number follows from where a run stands."""

from __future__ import annotations

from pathlib import Path

from vla.train import RunResult, RunRow, Store, export
from vla.train.presets import preset


def rows(name: str, budget: str, device: str = "NVIDIA H200") -> list[RunRow]:
    """A preset's runs with accuracies that rise from run to run."""
    items = preset(name).wanted(budget)
    return [
        _row(item.config, item.label, name, budget, (k + 1) / (len(items) + 1), device)
        for k, item in enumerate(items)
    ]


def _row(config, label, name, budget, accuracy, device) -> RunRow:
    scores = {"validation": accuracy / 2, "test": accuracy, "ood": accuracy / 4}
    result = RunResult(
        status="done", step=config.steps,
        curve={"step": [5, 10], "loss": [2.0, 1.0], "accuracy": [accuracy / 2, accuracy]},
        evaluation={k: {"accuracy": v, "loss": 1.0, "count": 64} for k, v in scores.items()},
        device=device, commit="feedbee0+", duration=2.0, jobs=16, parameters=1000,
        finished="2026-11-30T12:00:00+00:00", state={"S": 10, "total": 10},
    )  # fmt: skip
    return RunRow(config.key, config, "done", result, label=label, preset=name, budget=budget)


def record(folder: Path, name: str = "figure5", budget: str = "full") -> list[RunRow]:
    """Write a preset's runs as a recorded file under ``folder``, which ``$VLA_DATA`` can name."""
    (folder / "runs").mkdir(parents=True, exist_ok=True)
    made = rows(name, budget)
    export(made, folder / "runs" / f"{name}.parquet")
    return made


def store(path: Path, name: str = "figure5", budget: str = "smoke") -> list[RunRow]:
    """Put a preset's runs into a run store."""
    made = rows(name, budget, device="a laptop")
    with Store(path) as opened:
        for row in made:
            opened.insert_row(row)
    return made
