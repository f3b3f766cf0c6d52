"""Multi-query associative recall: store n pairs, then answer queries (Arora et al. 2023).

Three protocols, because the paper's text, the authors' code and the field's differ:

============  ======================  ===============  =================================
task          keys and values         queries          a longer row has
============  ======================  ===============  =================================
mqar_authors  the same tokens         with repeats     more queries
mqar_paper    the same tokens         each key once    more separators before the queries
mqar_fair     tokens of their own     each key once    more filler among the queries
============  ======================  ===============  =================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from vla.errors import ArgumentError, require_choice, require_integer, require_positive
from vla.tasks.base import IGNORED, Batch, Task, register
from vla.tasks.draws import (
    distinct_tokens,
    expected_mode,
    permutations,
    uniform_tokens,
    weighted_choice,
)
from vla.typing import Int, Tensor

TRAIN_KEYS = (0, 64)
HELD_OUT_KEYS = (64, 127)
"""Key tokens of the paper's Table 13, first and one past the last: trained on, and held out."""


@dataclass(frozen=True)
class _SharedTokens(Task):
    """What the authors' protocol and the paper's have in common."""

    pairs: int = 24
    """n, the pairs stored."""
    keys: tuple[int, int] = (0, 0)
    """Tokens that keys are drawn from: first, and one past the last. (0, 0): all but the separator.

    Values always come from all of them. So a model trained on :data:`TRAIN_KEYS` has seen every
    token of :data:`HELD_OUT_KEYS`, as a value: the paper's OOD test holds out a role, not tokens.
    """

    def __post_init__(self) -> None:
        require_integer("vocab", self.vocab, low=2)
        require_integer("pairs", self.pairs, low=1)
        if isinstance(self.keys, list):
            object.__setattr__(self, "keys", tuple(self.keys))
        self._settle()
        check_range("keys", self.keys, self.separator)
        check_pairs(self.pairs, self.keys)
        check_length(self.length, self._shortest())

    def _standard(self) -> dict[str, Any]:
        return {"length": 3 * self.pairs + 1, "keys": (0, self.separator)}

    def _shortest(self) -> int:
        return 3 * self.pairs + 1

    def _pairs(
        self, batch: int, generator: torch.Generator, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        keys = distinct_tokens(batch, self.pairs, *self.keys, generator, device)
        return keys, uniform_tokens(batch, self.pairs, 0, self.separator, generator, device)

    def _assemble(self, keys: Tensor, values: Tensor, asked: Tensor) -> Batch:
        """``k v k v … | … | q q …`` and the answers under the queries."""
        separators = self.length - 2 * self.pairs - asked.shape[1]
        stored = interleave(keys, values)
        gap = stored.new_full((len(stored), separators), self.separator)
        tokens = torch.cat([stored, gap, keys.gather(1, asked)], 1)
        silent = torch.full_like(tokens[:, : -asked.shape[1]], IGNORED)
        return Batch(tokens, torch.cat([silent, values.gather(1, asked)], 1))

    @property
    def guess(self) -> float:
        """The commonest of the row's values, for every query: the plateau of the baselines."""
        return expected_mode(self.pairs, self.separator) / self.pairs


@register
@dataclass(frozen=True)
class MQARAuthors(_SharedTokens):
    """MQAR as the authors' notebook 07 has it, the protocol behind the paper's tables.

    Keys are n distinct tokens of 0…126, values are uniform over the same tokens, 127 separates.
    Then T − 2n − 1 queries, drawn **with replacement** from the n keys: a longer row asks more
    often, it doesn't remember longer. T = 3n + 1 unless given.

    >>> print(MQARAuthors(pairs=3).draw(seed=0))
    input   48 98 70 77 62 44  | 48 70 48
    target   ·  ·  ·  ·  ·  ·  · 98 77 98

    A token can be a key in one pair and a value in another, and two keys can have one value.
    Raises ``ValueError`` for more pairs than key tokens, or a length that leaves no query.
    """

    name = "mqar_authors"
    title = "MQAR as the authors ran it"

    def _shortest(self) -> int:
        return 2 * self.pairs + 2

    @property
    def targets_per_row(self) -> int:
        return self.length - 2 * self.pairs - 1

    def _draw(self, batch: int, generator: torch.Generator, device: torch.device) -> Batch:
        keys, values = self._pairs(batch, generator, device)
        asked = uniform_tokens(batch, self.targets_per_row, 0, self.pairs, generator, device)
        return self._assemble(keys, values, asked)


@register
@dataclass(frozen=True)
class MQARPaper(_SharedTokens):
    """MQAR as the paper's §5.2 words it: every key asked once, in shuffled order.

    Tokens as in :class:`MQARAuthors`. The text leaves open what a longer row holds; here the
    separator is repeated, so that a longer row does mean longer retention.

    >>> print(MQARPaper(pairs=3, length=12).draw(seed=0))
    input   48 98 70 77 62 44  |  |  | 70 62 48
    target   ·  ·  ·  ·  ·  ·  ·  ·  · 77 44 98

    Raises ``ValueError`` for more pairs than key tokens, or a length below 3n + 1.
    """

    name = "mqar_paper"
    title = "MQAR as the paper words it"

    @property
    def targets_per_row(self) -> int:
        return self.pairs

    def _draw(self, batch: int, generator: torch.Generator, device: torch.device) -> Batch:
        keys, values = self._pairs(batch, generator, device)
        return self._assemble(keys, values, permutations(batch, self.pairs, generator, device))


@register
@dataclass(frozen=True)
class MQARFair(Task):
    """MQAR as the field runs it (Zoology, Arora et al. 2023): values are never keys.

    Token 0 is blank, keys are the lower half of the vocabulary, values the upper. After the n pairs
    each key is asked once, at an even place among the T − 2n tokens left; place g is drawn with
    weight g^(power − 1), so short gaps are commoner than long ones (power 1: uniform). What lies
    between is filler: ``noise`` is random values (Zoology draws from the whole vocabulary, where
    filler may store a second value under an asked key), ``blank`` is token 0.
    T = max(64, 4n) unless given.

    >>> print(MQARFair(pairs=2, length=12, vocab=32, filler="blank").draw(seed=0))
    input    4 27  6 22  _  _  6  _  _  _  4  _
    target   ·  ·  ·  ·  ·  · 22  ·  ·  · 27  ·

    Raises ``ValueError`` for more pairs than key tokens, or a length below 4n.
    """

    name = "mqar_fair"
    title = "MQAR as the field runs it"

    vocab: int = 8192
    pairs: int = 16
    filler: str = "noise"
    power: float = 0.01

    def __post_init__(self) -> None:
        require_integer("vocab", self.vocab, low=4)
        require_integer("pairs", self.pairs, low=1)
        require_choice("filler", self.filler, ("noise", "blank"))
        require_positive("power", self.power)
        object.__setattr__(self, "power", float(self.power))
        check_pairs(self.pairs, self.keys)
        self._settle()
        check_length(self.length, 4 * self.pairs)

    def _standard(self) -> dict[str, Any]:
        return {"length": max(64, 4 * self.pairs)}

    @property
    def keys(self) -> tuple[int, int]:
        """Key tokens: first, and one past the last. Values are all tokens above."""
        return (1, self.vocab // 2)

    @property
    def targets_per_row(self) -> int:
        return self.pairs

    @property
    def guess(self) -> float:
        """Any value of the row: they are distinct."""
        return 1 / self.pairs

    def symbol(self, token: int) -> str:
        return "_" if token == 0 else str(token)

    def _draw(self, batch: int, generator: torch.Generator, device: torch.device) -> Batch:
        high = self.keys[1]
        keys = distinct_tokens(batch, self.pairs, *self.keys, generator, device)
        values = distinct_tokens(batch, self.pairs, high, self.vocab, generator, device)
        at = 2 * self._places(batch, generator, device)
        rest = self._filler(batch, self.length - 2 * self.pairs, generator, device)
        tokens = torch.cat([interleave(keys, values), rest.scatter(1, at, keys)], 1)
        targets = torch.full_like(tokens, IGNORED).scatter(1, 2 * self.pairs + at, values)
        return Batch(tokens, targets)

    def _places(self, batch: int, generator: torch.Generator, device: torch.device) -> Tensor:
        places = (self.length - 2 * self.pairs) // 2
        weights = torch.arange(1, places + 1, device=device).float() ** (self.power - 1)
        return weighted_choice(batch, self.pairs, weights, generator, device)

    def _filler(
        self, batch: int, count: int, generator: torch.Generator, device: torch.device
    ) -> Tensor:
        if self.filler == "blank":
            return torch.zeros(batch, count, dtype=torch.int64, device=device)
        return uniform_tokens(batch, count, self.keys[1], self.vocab, generator, device)


def interleave(keys: Int[Tensor, "b n"], values: Int[Tensor, "b n"]) -> Int[Tensor, "b m"]:
    """``k v k v …``"""
    return torch.stack([keys, values], -1).flatten(1)


def check_pairs(pairs: int, keys: tuple[int, int], name: str = "pairs") -> None:
    """Raise ``ValueError`` if there are fewer key tokens than pairs: keys of a row are distinct."""
    first, end = keys
    if pairs > end - first:
        wanted = f"at most {end - first}, the number of key tokens ({first}…{end - 1})"
        raise ArgumentError(name, pairs, wanted, "Lower it, or take a larger vocabulary.")


def check_length(length: object, shortest: int) -> None:
    """Raise ``ValueError`` if a row can't hold what the task puts into it."""
    whole = isinstance(length, int) and not isinstance(length, bool)
    if not (whole and length >= shortest):  # type: ignore[operator]
        wanted = f"at least {shortest} tokens for these settings"
        raise ArgumentError("length", length, wanted, "Raise length, or lower the load.")


def check_range(name: str, tokens: object, end: int) -> None:
    """Raise ``ValueError`` unless ``tokens`` is (first, one past the last) within ``0 … end``."""
    ok = isinstance(tokens, tuple) and len(tokens) == 2 and 0 <= tokens[0] < tokens[1] <= end
    if not ok:
        raise ArgumentError(name, tokens, f"(first, one past the last) within 0…{end}")
