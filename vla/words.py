"""Words as vectors: a deterministic embedding, and the way back to the nearest word."""

from __future__ import annotations

import hashlib
import math
import struct
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from vla.errors import ArgumentError
from vla.typing import Float, Tensor

MAX_ENTRIES = 200
MAX_WORD = 40
MAX_TEXT = 20_000
ARROWS = ("→", "->")
"""Other ways to write the colon between a key and its value."""


@dataclass(frozen=True)
class Vocabulary:
    """Words and their vectors, row by row."""

    words: tuple[str, ...]
    vectors: Float[Tensor, "w dv"]

    def nearest(self, answers: Float[Tensor, "*b dv"]) -> list[str]:
        """The word whose vector makes the smallest angle with each answer (flattened over b).

        An answer without a direction (zero, NaN or infinite) has no nearest word: it gives ``""``.
        """
        flat = answers.reshape(-1, answers.shape[-1]).to(self.vectors.dtype)
        scores = flat @ self.vectors.mT / self.vectors.norm(dim=-1)
        length = flat.norm(dim=-1)
        said = (length > 0) & length.isfinite()
        best = scores.nan_to_num().argmax(-1).tolist()
        return [self.words[i] if ok else "" for i, ok in zip(best, said.tolist(), strict=True)]


@dataclass(frozen=True)
class Entry:
    """One typed token: ``key: value``, or ``? key`` with no value."""

    key: str
    value: str | None = None

    @property
    def asks(self) -> bool:
        """Whether it is a query."""
        return self.value is None

    @property
    def label(self) -> str:
        """As the token strip shows it."""
        return f"? {self.key}" if self.value is None else f"{self.key} → {self.value}"


def embed(words: Sequence[str], d: int, *, similarity: float = 0.0) -> Float[Tensor, "w d"]:
    """Unit vectors for words: the same word gives the same vector on every machine.

    Coordinates are sums of four 16-bit numbers from SHAKE-256 of the word, a near-Gaussian made of
    integers only, so no platform's random or trigonometric functions are involved. ``similarity``
    in ``[0, 1)`` mixes in one common vector: the cosine between two words is then about that.
    Raises ``ValueError`` for a similarity out of range or ``d < 1``.
    """
    if not (isinstance(similarity, int | float) and 0 <= similarity < 1):
        raise ArgumentError("similarity", similarity, "a number from 0 to below 1")
    if d < 1:
        raise ArgumentError("d", d, "a width of at least 1")
    own = torch.tensor([_direction(word, d) for word in words], dtype=torch.float64)
    own = own.reshape(len(words), d)
    if not similarity:
        return own
    common = torch.tensor(_direction("\0common", d), dtype=torch.float64)
    mixed = math.sqrt(similarity) * common + math.sqrt(1 - similarity) * own
    return mixed / mixed.norm(dim=-1, keepdim=True)


def parse_pairs(text: str) -> list[Entry]:
    """Read ``cat: meow, dog: woof, ? cat``: commas or new lines between entries.

    ``→`` or ``->`` may stand for the colon. Case is kept, runs of spaces become one, and any
    Unicode word is just a word. Raises ``ValueError`` that names the entry for an empty text, a
    missing key or value, a query of a word that isn't stored by then, control characters, words
    over 40 characters, or more than 200 entries.
    """
    if len(text) > MAX_TEXT:
        raise ArgumentError("pairs", f"{len(text)} characters", f"at most {MAX_TEXT}")
    parts = [part for line in text.splitlines() for part in line.split(",")]
    entries = [_entry(part) for part in parts if part.strip()]
    if not entries:
        raise ArgumentError("pairs", text, "at least one pair", "Type, for example: cat: meow.")
    if len(entries) > MAX_ENTRIES:
        raise ArgumentError("pairs", f"{len(entries)} entries", f"at most {MAX_ENTRIES}")
    _require_stored(entries)
    return entries


def _entry(part: str) -> Entry:
    part = part.strip()
    if part.startswith("?"):
        return Entry(_word(part[1:], part))
    for arrow in ARROWS:
        part = part.replace(arrow, ":")
    pieces = part.split(":")
    if len(pieces) != 2 or not all(piece.strip() for piece in pieces):
        raise ArgumentError(
            "pairs", part, "one key and one value", "Write key: value, or ? key to ask."
        )
    return Entry(_word(pieces[0], part), _word(pieces[1], part))


def _word(raw: str, part: str) -> str:
    """One clean word: composed Unicode, single spaces, so that equal words compare equal."""
    if not raw.strip():
        raise ArgumentError("pairs", part, "a word after the question mark")
    for character in raw.replace("\t", " "):
        if _is_control(character):
            raise ArgumentError("pairs", part, f"no control character (U+{ord(character):04X})")
    word = " ".join(unicodedata.normalize("NFC", raw).split())
    if len(word) > MAX_WORD:
        raise ArgumentError("pairs", word, f"words of at most {MAX_WORD} characters")
    return word


def _is_control(character: str) -> bool:
    """Control codes, lone surrogates, and the marks that reverse the order of text on screen."""
    bidi = "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069"
    return bidi or unicodedata.category(character) in ("Cc", "Cs")


def _require_stored(entries: Sequence[Entry]) -> None:
    stored: dict[str, None] = {}
    for entry in entries:
        if entry.asks and entry.key not in stored:
            known = ", ".join(list(stored)[:10]) or "nothing"
            raise ArgumentError(
                "pairs", entry.label, f"a query of a word stored before it ({known})",
                f"Store it first: {entry.key}: some value.",
            )  # fmt: skip
        stored[entry.key] = None


@lru_cache(maxsize=4096)
def _direction(word: str, d: int) -> tuple[float, ...]:
    numbers = struct.unpack(f"<{4 * d}H", hashlib.shake_256(word.encode()).digest(8 * d))
    raw = [2 * sum(numbers[4 * i : 4 * i + 4]) - 4 * 65535 for i in range(d)]
    length = math.sqrt(math.fsum(x * x for x in raw)) or 1.0
    return tuple(x / length for x in raw)
