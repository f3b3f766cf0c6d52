"""What a sweep will cost, before it is begun."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vla.train.config import RunConfig
from vla.train.loop import Trainer, new_trainer
from vla.train.store import Wanted

PROBE_STEPS = 3
"""Steps timed for each mixer, after as many that aren't."""


@dataclass(frozen=True)
class Estimate:
    """Runs, steps and a guess at the time, one run after another."""

    name: str
    runs: int
    steps: int
    seconds: float

    def __str__(self) -> str:
        minutes = self.seconds / 60
        long = f"{minutes:.1f} min" if minutes >= 1 else f"{self.seconds:.0f} s"
        return f"{self.name}: {self.runs} runs, {self.steps} steps, about {long}"


def estimate(name: str, wanted: Sequence[Wanted], pace: dict[str, float]) -> Estimate:
    """The cost of these runs at this pace: seconds for one token of one step, by mixer."""
    seconds = sum(pace[w.config.model.mixer] * tokens(w.config) for w in wanted)
    return Estimate(name, len(wanted), sum(w.config.steps for w in wanted), seconds)


def measured_pace(wanted: Sequence[Wanted], device: torch.device) -> dict[str, float]:
    """Time a few steps of each mixer on the device, at its run of middling length."""
    by_mixer: dict[str, list[RunConfig]] = defaultdict(list)
    for item in wanted:
        by_mixer[item.config.model.mixer].append(item.config)
    return {mixer: _pace(_middle(configs), device) for mixer, configs in by_mixer.items()}


def tokens(config: RunConfig) -> int:
    """Tokens that a run learns from, its evaluation counted as a third of a step's work each."""
    trained = config.steps * config.batch * config.task.length
    sets = 2 + len(config.also_eval)
    return trained + sets * config.eval_batches * config.eval_batch * config.task.length // 3


def _middle(configs: Sequence[RunConfig]) -> RunConfig:
    ordered = sorted(configs, key=lambda c: c.task.length)
    return ordered[len(ordered) // 2]


def _pace(config: RunConfig, device: torch.device) -> float:
    short = config.with_(steps=2 * PROBE_STEPS + 1)
    trainer = new_trainer(short, device)
    _run(trainer, PROBE_STEPS)
    spent = [_timed(trainer) for _ in range(PROBE_STEPS)]
    trainer.close()
    return statistics.median(spent) / (config.batch * config.task.length)


def _timed(trainer: Trainer) -> float:
    start = time.perf_counter()
    _run(trainer, 1)
    return time.perf_counter() - start


def _run(trainer: Trainer, steps: int) -> None:
    trainer.enqueue(steps)
    trainer.collect(wait=True)
