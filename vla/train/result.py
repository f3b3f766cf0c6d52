"""What a run leaves behind, and how it's read back: plain values with their provenance."""

from __future__ import annotations

import dataclasses
import hashlib
from dataclasses import dataclass, field
from typing import Any

from vla.train.config import RunConfig, canonical_json

QUEUED, RUNNING, DONE, NAN = "queued", "running", "done", "nan"
FAILED, CANCELLED = "failed", "cancelled"
STATUSES = (QUEUED, RUNNING, DONE, NAN, FAILED, CANCELLED)
FINISHED = (DONE, NAN, FAILED)
"""Statuses that a sweep leaves alone; the others are still to be done."""


@dataclass(frozen=True)
class RunResult:
    """The end of one run. Everything is a plain value, so that it can be stored as JSON."""

    status: str
    step: int = 0
    """Steps completed; for ``nan``, the step at which the loss was first not finite."""
    curve: dict[str, list[Any]] = field(default_factory=dict)
    """``step``, ``loss`` and ``accuracy`` on the (always fresh) training batches, in windows."""
    evaluation: dict[str, dict[str, float]] = field(default_factory=dict)
    """``validation`` and ``test`` (and further sets by name): ``accuracy``, ``loss``, ``count``."""
    device: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    commit: str = ""
    duration: float = 0.0
    """Seconds from start to end; on a GPU other runs share it meanwhile."""
    jobs: int = 1
    """Most runs that shared the device at once."""
    finished: str = ""
    """Time of the end, ISO 8601, UTC."""
    note: str = ""
    """Why, for ``failed`` and ``nan``."""
    parameters: int = 0
    state: dict[str, int] = field(default_factory=dict)
    """Numbers carried per sequence at the task's length, by what they are, and their ``total``."""

    def to_json(self) -> str:
        """Canonical JSON; ``RunResult.from_dict(json.loads(text))`` reads it back."""
        return canonical_json(dataclasses.asdict(self))

    @classmethod
    def from_dict(cls, plain: dict[str, Any]) -> RunResult:
        """Fields by name; unknown ones, from a later version, are left out."""
        known = {f.name for f in dataclasses.fields(cls)}
        return cls(**{name: value for name, value in plain.items() if name in known})


@dataclass(frozen=True)
class RunRow:
    """One run as figures, tables and exports see it."""

    key: str
    config: RunConfig
    status: str
    result: RunResult
    attempts: int = 0
    label: str = ""
    """The run's name inside its preset, as a legend shows it."""
    preset: str = ""
    budget: str = ""
    owner: str = ""
    text: str = ""
    """The config as it was written, whose hash the key is; a later version may write more."""

    @property
    def source(self) -> str:
        """The config's text: as stored, or as written now."""
        return self.text or self.config.canonical

    @property
    def state_size(self) -> int | None:
        """Numbers carried per sequence, all in all."""
        return self.result.state.get("total")

    def accuracy(self, split: str = "test") -> float:
        """Accuracy on one evaluation set; NaN where the run has none (a ``nan`` run, say)."""
        return self.result.evaluation.get(split, {}).get("accuracy", float("nan"))

    def value(self, name: str) -> Any:
        """A field by dotted name: ``lr``, ``task.n``, ``model.d_model``, ``status``, ``label``.

        ``None`` where the run has no such field.
        """
        head, _, tail = name.partition(".")
        if head in ("task", "model") and tail:
            return getattr(getattr(self.config, head), tail, None)
        if head in self.result.evaluation and tail:
            return self.result.evaluation[head].get(tail)
        for source in (self, self.config, self.result):
            if hasattr(source, name) and name != "config":
                return getattr(source, name)
        return None


def digest(key: str, config: str, status: str, result: str) -> str:
    """A checksum of one stored run, so that damage inside a row is seen."""
    return hashlib.sha256("\n".join((key, config, status, result)).encode()).hexdigest()[:16]
