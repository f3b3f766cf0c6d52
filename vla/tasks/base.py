"""What a task is: frozen settings, and a way to draw batches from a generator.

A sample is made of tensor operations on one device: no host sync, no shape that depends on data, so
a CUDA graph can hold it (register the generator with the graph).
"""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import torch

from vla.errors import ArgumentError, require_choice, require_integer
from vla.typing import Int, Tensor

IGNORED = -1
"""The target of a position that nothing is asked at."""
STREAMS = ("train", "validation", "test")


class Batch(NamedTuple):
    """Rows of tokens and what a model should answer at each of them."""

    tokens: Int[Tensor, "b t"]
    targets: Int[Tensor, "b t"]
    """The answer due **at** a position (not one later); :data:`IGNORED` where none is due."""


@dataclass(frozen=True)
class Task(ABC):
    """Settings in, batches out. Hashable; two tasks with equal settings are equal."""

    name: ClassVar[str]
    """Registry key: lower case and underscores."""
    title: ClassVar[str]

    length: int = 0
    """Tokens of a row, T. Where 0 is allowed it means the standard length, filled in when made."""
    vocab: int = 128
    """Number of tokens, the separator and the filler included."""

    @property
    @abstractmethod
    def targets_per_row(self) -> int:
        """How many positions of every row have a target: a constant, whatever is drawn."""

    @property
    @abstractmethod
    def guess(self) -> float:
        """Expected accuracy of the best constant guess per row by a reader who can't recall."""

    @abstractmethod
    def _draw(self, batch: int, generator: torch.Generator, device: torch.device) -> Batch:
        """A batch; arguments are checked."""

    def sample(
        self, batch: int, *, generator: torch.Generator, device: torch.device | str = "cpu"
    ) -> Batch:
        """``batch`` fresh rows on ``device``, which must be the generator's.

        The same generator state gives the same rows. Other kinds of device have other generators,
        hence other rows. Raises ``ValueError`` unless ``batch ≥ 1``.
        """
        require_integer("batch", batch, low=1)
        return self._draw(batch, generator, torch.device(device))

    def draw(self, seed: int = 0) -> str:
        """One row as text, input above target: ``|`` separates, ``_`` is blank, ``·`` is no target.

        >>> from vla.tasks import Copy
        >>> print(Copy(length=8).draw(seed=1))
        input    69  16 104  28   |  69  16 104
        target    ·   ·   ·   ·  69  16 104  28
        """
        row = self.sample(1, generator=seeded(seed, stream="test"))
        words = [self.symbol(token) for token in row.tokens[0].tolist()]
        answers = ["·" if y == IGNORED else self.symbol(y) for y in row.targets[0].tolist()]
        width = max(map(len, words + answers))
        lines = {"input": words, "target": answers}
        return "\n".join(
            f"{head:<7} " + " ".join(word.rjust(width) for word in line)
            for head, line in lines.items()
        )

    def symbol(self, token: int) -> str:
        """How a token is written in a drawing."""
        return "|" if token == self.separator else str(token)

    @property
    def separator(self) -> int:
        """The token between what is stored and what is asked: the last one."""
        return self.vocab - 1

    def with_(self, **settings: Any) -> Self:
        """The same task with some settings changed; what stood at its standard stays standard.

        >>> make("mqar_authors", pairs=24).with_(pairs=8).length
        25
        """
        asis = {name for name, value in self._standard().items() if getattr(self, name) == value}
        blank = {f.name: f.default for f in dataclasses.fields(self) if f.name in asis}
        return dataclasses.replace(self, **{**blank, **settings})

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting by name, as plain values."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}

    def _standard(self) -> dict[str, Any]:
        """Settings whose default depends on others, and what they are for these settings."""
        return {}

    def _settle(self) -> None:
        """Fill in what was left at its default (a frozen dataclass forbids plain assignment)."""
        default = {f.name: f.default for f in dataclasses.fields(self)}
        for name, value in self._standard().items():
            if getattr(self, name) == default[name]:
                object.__setattr__(self, name, value)


TASKS: dict[str, type[Task]] = {}
"""Name to class."""

_T = TypeVar("_T", bound=type[Task])


def register(task: _T) -> _T:
    """Class decorator: make a task known by its name."""
    TASKS[task.name] = task
    return task


def make(name: str, **settings: Any) -> Task:
    """The named task. ``make("mqar", preset="fair")`` is ``make("mqar_fair")``.

    Raises ``ValueError`` for an unknown name, an unknown setting, or settings that don't fit.

    >>> make("mqar", preset="authors", pairs=24).length
    73
    """
    if name in ("mqar", "copy") and "preset" in settings:
        preset = settings.pop("preset")
        name = name if (name, preset) == ("copy", "paper") else f"{name}_{preset}"
    require_choice("task", name, TASKS)
    known = [f.name for f in dataclasses.fields(TASKS[name])]
    for setting in settings:
        if setting not in known:
            raise ArgumentError("setting", setting, f"a setting of {name}: {', '.join(known)}")
    return TASKS[name](**settings)


def seeded(
    seed: int, device: torch.device | str = "cpu", *, stream: str = "train"
) -> torch.Generator:
    """A generator on ``device`` that one integer fixes; each stream draws rows of its own.

    ``stream`` is "train", "validation" or "test". Raises ``ValueError`` for another.
    """
    require_choice("stream", stream, STREAMS)
    require_integer("seed", seed, low=0)
    digest = hashlib.sha256(f"{stream} {seed}".encode()).digest()
    generator = torch.Generator(device)
    return generator.manual_seed(int.from_bytes(digest[:7], "big"))
