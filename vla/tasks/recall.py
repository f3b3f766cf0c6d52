"""Recall over long rows: after a delay, and from pairs strewn over up to 10 000 tokens and more."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vla.errors import ArgumentError, require_integer
from vla.tasks.base import IGNORED, Batch, Task, register
from vla.tasks.draws import distinct_tokens, expected_mode, permutations, uniform_tokens
from vla.tasks.mqar import check_length, check_pairs, interleave
from vla.typing import Tensor


@dataclass(frozen=True)
class _OwnTokens(Task):
    """Keys are the lower half of the vocabulary, values the upper; the last token separates."""

    pairs: int = 8

    def __post_init__(self) -> None:
        require_integer("vocab", self.vocab, low=4)
        require_integer("pairs", self.pairs, low=1)
        check_pairs(self.pairs, self.keys)

    @property
    def keys(self) -> tuple[int, int]:
        """Key tokens: first, and one past the last."""
        return (0, self.vocab // 2)

    @property
    def values(self) -> tuple[int, int]:
        """Value tokens, also drawn as noise."""
        return (self.vocab // 2, self.vocab - 1)

    @property
    def guess(self) -> float:
        """The commonest of the row's values, for every query."""
        return expected_mode(self.pairs, self.values[1] - self.values[0]) / self.pairs

    def _finish(self, front: Tensor, keys: Tensor, values: Tensor, asked: Tensor) -> Batch:
        """Stored part, separator, queries; answers under the queries."""
        bar = torch.full_like(front[:, :1], self.separator)
        tokens = torch.cat([front, bar, keys.gather(1, asked)], 1)
        silent = torch.full_like(tokens[:, : -asked.shape[1]], IGNORED)
        return Batch(tokens, torch.cat([silent, values.gather(1, asked)], 1))


@register
@dataclass(frozen=True)
class DelayedRecall(_OwnTokens):
    """n pairs first, then T − 3n − 1 tokens of noise, then every key once in shuffled order.

    >>> print(DelayedRecall(pairs=2, length=12).draw(seed=0))
    input    48 111  62 115 124  84 120 117  98   |  48  62
    target    ·   ·   ·   ·   ·   ·   ·   ·   ·   · 111 115

    Noise is drawn from the values. Raises ``ValueError`` for more pairs than key tokens, or a
    length below 3n + 1.
    """

    name = "delayed_recall"
    title = "delayed recall"

    length: int = 256

    def __post_init__(self) -> None:
        super().__post_init__()
        check_length(self.length, 3 * self.pairs + 1)

    @property
    def delay(self) -> int:
        """Tokens of noise between the last pair and the separator."""
        return self.length - 3 * self.pairs - 1

    @property
    def targets_per_row(self) -> int:
        return self.pairs

    def _draw(self, batch: int, generator: torch.Generator, device: torch.device) -> Batch:
        keys = distinct_tokens(batch, self.pairs, *self.keys, generator, device)
        values = uniform_tokens(batch, self.pairs, *self.values, generator, device)
        noise = uniform_tokens(batch, self.delay, *self.values, generator, device)
        asked = permutations(batch, self.pairs, generator, device)
        return self._finish(torch.cat([interleave(keys, values), noise], 1), keys, values, asked)


@register
@dataclass(frozen=True)
class AssociativeRecall(_OwnTokens):
    """n pairs strewn over a long row of noise, then ``queries`` different keys.

    The first T − 1 − queries tokens are slots of two. Pairs take n random slots, noise (values) the
    others; an odd token in front is a separator. T may be 10 000 and more, which the authors'
    README names.

    >>> print(AssociativeRecall(pairs=2, length=12, vocab=128).draw(seed=0))
    input   120 117  98  98  48 111  83 120  62 115   |  62
    target    ·   ·   ·   ·   ·   ·   ·   ·   ·   ·   · 115

    Raises ``ValueError`` for more pairs than key tokens or slots, or more queries than pairs.
    """

    name = "associative_recall"
    title = "associative recall"

    length: int = 1024
    vocab: int = 8192
    queries: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        require_integer("queries", self.queries, low=1)
        if self.queries > self.pairs:
            wanted = f"at most pairs = {self.pairs}: each asks for another key"
            raise ArgumentError("queries", self.queries, wanted)
        check_length(self.length, 2 * self.pairs + 1 + self.queries)

    @property
    def slots(self) -> int:
        """Places for a pair."""
        return (self.length - 1 - self.queries) // 2

    @property
    def targets_per_row(self) -> int:
        return self.queries

    def _draw(self, batch: int, generator: torch.Generator, device: torch.device) -> Batch:
        keys = distinct_tokens(batch, self.pairs, *self.keys, generator, device)
        values = uniform_tokens(batch, self.pairs, *self.values, generator, device)
        asked = distinct_tokens(batch, self.queries, 0, self.pairs, generator, device)
        front = self._strew(keys, values, generator, device)
        return self._finish(front, keys, values, asked)

    def _strew(
        self, keys: Tensor, values: Tensor, generator: torch.Generator, device: torch.device
    ) -> Tensor:
        noise = uniform_tokens(len(keys), 2 * self.slots, *self.values, generator, device)
        at = 2 * distinct_tokens(len(keys), self.pairs, 0, self.slots, generator, device)
        strewn = noise.scatter(1, at, keys).scatter(1, at + 1, values)
        odd = self.length - 1 - self.queries - 2 * self.slots
        return torch.cat([strewn.new_full((len(keys), odd), self.separator), strewn], 1)
