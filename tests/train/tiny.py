"""The smallest runs that train: a few milliseconds each."""

from __future__ import annotations

from typing import Any

from vla import nn, tasks
from vla.tasks import Task
from vla.train import RunConfig

TASK = tasks.make("copy_authors", length=6, vocab=8)


def model(task: Task = TASK, name: str = "linear", **settings: Any) -> nn.ModelConfig:
    shape = {"width": 8, "heads": 1, "layers": 1, "ffn": 0, "max_length": task.length}
    return nn.model(name, **{"vocab": task.vocab, **shape, **settings})


def config(task: Task = TASK, **changes: Any) -> RunConfig:
    settings = {"steps": 12, "lr": 1e-2, "batch": 4, "eval_batches": 2, "eval_batch": 4}
    chosen = changes.pop("model", None) or model(task)
    return RunConfig(chosen, task, **{**settings, **changes})
