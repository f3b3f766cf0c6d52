"""One run is one config: everything that decides its result, in one frozen value.

``RunConfig.key`` is the run's name in every store: a hash of the whole config, defaults written
out, so that a changed default makes a new run instead of a silently different one.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from vla import tasks
from vla.errors import ArgumentError, require_choice, require_integer, require_positive
from vla.tasks import Task

if TYPE_CHECKING:
    from vla.nn import ModelConfig

SCHEMA = 1
"""Part of every key: raised when the meaning of a field changes."""

DTYPES = ("float32", "float64")
PRECISIONS = ("ieee", "tf32")


@dataclass(frozen=True)
class RunConfig:
    """One training run, the authors' protocol by default.

    AdamW with linear warm-up over the first tenth and a cosine to zero, clipping at 1, weight decay
    on everything, 64 fresh sequences a step, evaluated on 15 × 64 fresh ones (paper, Table 6).

    Raises :class:`~vla.errors.ArgumentError` for a value out of its range. Model and task have
    checked themselves when they were made; :meth:`check` compares the two.
    """

    model: ModelConfig
    task: Task
    also_eval: tuple[tuple[str, Task], ...] = ()
    """Further test sets by name (keys never trained on, say); a mapping is accepted."""
    steps: int = 2000
    lr: float = 3e-4
    seed: int = 42
    batch: int = 64
    warmup: float = 0.1
    clip: float = 1.0
    weight_decay: float = 1e-2
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    eval_batches: int = 15
    eval_batch: int = 64
    dtype: str = "float32"
    precision: str = "ieee"
    """``ieee`` or ``tf32`` for float32 matrix products on a GPU; a CPU always uses ``ieee``."""

    def __post_init__(self) -> None:
        settle = object.__setattr__
        settle(self, "also_eval", tuple(sorted(dict(self.also_eval).items())))
        settle(self, "betas", tuple(_as_float("betas", b) for b in self.betas))
        for name in ("lr", "warmup", "clip", "weight_decay", "eps"):
            settle(self, name, _as_float(name, getattr(self, name)))
        self._check_values()

    def _check_values(self) -> None:
        for name in ("steps", "batch", "eval_batches", "eval_batch"):
            require_integer(name, getattr(self, name), low=1)
        require_integer("seed", self.seed, low=0, high=2**63 - 1)
        for name in ("lr", "clip", "eps"):
            require_positive(name, getattr(self, name))
        require_positive("weight_decay", self.weight_decay, zero=True)
        if not 0 <= self.warmup < 1:
            raise ArgumentError("warmup", self.warmup, "a fraction of the steps in [0, 1)")
        if len(self.betas) != 2 or not all(0 <= b < 1 for b in self.betas):
            raise ArgumentError("betas", self.betas, "two numbers in [0, 1)")
        require_choice("dtype", self.dtype, DTYPES)
        require_choice("precision", self.precision, PRECISIONS)

    def check(self) -> Self:
        """Compare the task with the model, before any work starts; return ``self``.

        Raises :class:`~vla.errors.ArgumentError` if the model's vocabulary or its table of
        positions is too small for the task.
        """
        for task in (self.task, *dict(self.also_eval).values()):
            check_fit(self.model, task)
        return self

    def with_(self, **changes: Any) -> Self:
        """The same config with some fields changed."""
        return dataclasses.replace(self, **changes)

    @cached_property
    def canonical(self) -> str:
        """The config as JSON with sorted keys: what is hashed and stored."""
        return canonical_json({"schema": SCHEMA, **self.to_dict()})

    @cached_property
    def key(self) -> str:
        """The run's name: sha256 of :attr:`canonical`, 32 hex digits."""
        return key_of(self.canonical)

    @cached_property
    def shape_key(self) -> str:
        """The same for configs that differ in seed and learning rate alone.

        Such runs launch the same kernels, so one captured graph serves them all.
        """
        return self.with_(seed=0, lr=1.0).key

    def to_dict(self) -> dict[str, Any]:
        """Plain values, nested; :meth:`from_dict` reads them back."""
        plain = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        # Left out where the mixer has no such setting: a new one then moves no other mixer's key.
        plain["model"] = {k: v for k, v in self.model.as_dict().items() if v is not None}
        plain["task"] = _task_to_dict(self.task)
        plain["also_eval"] = {name: _task_to_dict(task) for name, task in self.also_eval}
        plain["betas"] = list(self.betas)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Self:
        """Read :meth:`to_dict`'s values. Raises ``ArgumentError`` for fields it doesn't know."""
        from vla.nn import ModelConfig

        values = {name: value for name, value in plain.items() if name != "schema"}
        known = [f.name for f in dataclasses.fields(cls)]
        if unknown := sorted(set(values) - set(known)):
            raise ArgumentError("config", unknown, "fields of RunConfig: " + ", ".join(known))
        values["model"] = ModelConfig(**_tuples(values["model"]))
        values["task"] = _task_from_dict(values["task"])
        extra = values.get("also_eval", {})
        values["also_eval"] = {name: _task_from_dict(task) for name, task in extra.items()}
        return cls(**_tuples(values))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read :attr:`canonical`."""
        return cls.from_dict(json.loads(text))

    def __str__(self) -> str:
        load = getattr(self.task, "pairs", None)
        what = f"n={load} " if load is not None else ""
        return (
            f"{self.model} on {self.task.name} {what}T={self.task.length}, "
            f"{self.steps} steps, lr {self.lr:g}, seed {self.seed} [{self.key[:8]}]"
        )


def check_fit(model: ModelConfig, task: Task) -> None:
    """Raise :class:`~vla.errors.ArgumentError` if a task's rows don't fit a model's tables."""
    if model.vocab < task.vocab:
        raise ArgumentError("model.vocab", model.vocab, f"at least the task's {task.vocab} tokens")
    if model.positions != "none" and model.max_length < task.length:
        wanted = f"at least the task's {task.length} positions"
        raise ArgumentError("model.max_length", model.max_length, wanted)


def key_of(canonical: str) -> str:
    """The key of a config written as :attr:`RunConfig.canonical`."""
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def canonical_json(value: Any) -> str:
    """JSON with sorted keys and no spaces; refuses NaN, so equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _task_to_dict(task: Task) -> dict[str, Any]:
    return {"name": task.name, **task.settings}


def _task_from_dict(plain: Mapping[str, Any]) -> Task:
    settings = _tuples(plain)
    return tasks.make(settings.pop("name"), **settings)


def _tuples(plain: Mapping[str, Any]) -> dict[str, Any]:
    """JSON knows lists alone; frozen configs hold tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}


def _as_float(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        raise ArgumentError(name, value, "a number")
    return float(value)
