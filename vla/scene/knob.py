"""One knob of a scene: enough to read it from an address, write it there and draw a control."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vla.tokens import STREAMS, Parameter

_WHOLE = re.compile(r"[+-]?\d{1,15}")
_ON, _OFF = {"1", "true", "on", "yes"}, {"0", "false", "off", "no"}


REFUSED = object()
"""Stands for the value of a text that means nothing; the message then says what was wanted."""


class Read(NamedTuple):
    """A value read from text, and what had to be changed for it to fit (empty: nothing)."""

    value: Any
    repair: str = ""


@dataclass(frozen=True)
class Knob:
    """What one field of a scene may be."""

    key: str
    """Its name in the address."""
    kind: str
    """``int``, ``float``, ``choice``, ``flag``, ``text`` or ``names`` (several of the choices)."""
    default: Any
    label: str
    help: str
    """One line: what it does."""
    group: str
    low: float = 0
    high: float = 0
    step: float = 0
    """Distance of a control's stops; 0 spaces them evenly on a logarithmic scale."""
    choices: Callable[[], Sequence[str]] = field(default=lambda: ())
    streams: tuple[str, ...] = ()
    """Kinds of stream it belongs to; empty: all."""
    idle: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Values of other knobs, by key, under which this one changes nothing and isn't drawn."""

    def read(self, text: str, instead: Any = None) -> Read:
        """The value that a text from an address stands for, repaired to fit. Never raises.

        ``instead`` is taken for a text that stands for nothing; left out, the default.
        """
        value, repair = _READERS[self.kind](self, text)
        if value is not REFUSED:
            return Read(value, repair)
        value = self.default if instead is None else instead
        return Read(
            value, f"{self.key}: {_short(text)} is not {repair}; {self.shown(value)} stays."
        )

    def fit(self, value: Any) -> Read:
        """A number put within the limits."""
        if self.low <= value <= self.high:
            return Read(value)
        cut = min(max(value, self.low), self.high)
        cut = int(cut) if self.kind == "int" else float(cut)
        side = "least" if value < self.low else "most"
        return Read(cut, f"{self.key}: {_short(f'{value:g}')} is out of range; {side} is {cut:g}.")

    def write(self, value: Any) -> str:
        """The text that :meth:`read` turns back into ``value``."""
        if self.kind == "names":
            return ",".join(value)
        if self.kind == "flag":
            return "1" if value else "0"
        return str(value)

    def shown(self, value: Any) -> str:
        """A value as people read it."""
        if self.kind == "flag":
            return "on" if value else "off"
        if self.kind == "float":
            return f"{value:g}"
        return _short(value, 60) if self.kind == "text" else self.write(value).replace(",", ", ")


def parameter(name: str) -> tuple[Parameter, tuple[str, ...]]:
    """A stream parameter from the tables of ``vla.tokens``, and the streams that have it.

    Raises ``KeyError`` if no stream has it.
    """
    owners = {
        maker.name: known
        for maker in STREAMS.values()
        for known in maker.parameters
        if known.name == name
    }
    if not owners:
        raise KeyError(name)
    everywhere = len(owners) == len(STREAMS)
    return next(iter(owners.values())), () if everywhere else tuple(owners)


def _read_int(knob: Knob, text: str) -> Read:
    if not _WHOLE.fullmatch(text.strip()):
        return Read(REFUSED, "a whole number")
    return knob.fit(int(text))


def _read_float(knob: Knob, text: str) -> Read:
    try:
        value = float(text)
    except ValueError:
        return Read(REFUSED, "a number")
    return knob.fit(value) if math.isfinite(value) else Read(REFUSED, "a finite number")


def _read_choice(knob: Knob, text: str) -> Read:
    known = knob.choices()
    return Read(text) if text in known else Read(REFUSED, "one of " + ", ".join(known))


def _read_flag(_: Knob, text: str) -> Read:
    word = text.strip().lower()
    return Read(word in _ON) if word in _ON | _OFF else Read(REFUSED, "0 or 1")


def _read_text(knob: Knob, text: str) -> Read:
    if len(text) > knob.high:
        return Read(REFUSED, f"at most {knob.high:g} characters")
    return Read(text)


def _read_names(knob: Knob, text: str) -> Read:
    given = [word.strip() for word in text.split(",") if word.strip()]
    known = knob.choices()
    kept = tuple(name for name in known if name in given)
    unknown = [word for word in given if word not in known]
    if not kept and knob.default:
        return Read(REFUSED, "one or more of " + ", ".join(known))
    if unknown:
        return Read(kept, f"{knob.key}: {_short(unknown[0])} is not known and was left out.")
    return Read(kept)


_READERS: dict[str, Callable[[Knob, str], Read]] = {
    "int": _read_int,
    "float": _read_float,
    "choice": _read_choice,
    "flag": _read_flag,
    "text": _read_text,
    "names": _read_names,
}


def _short(text: str, limit: int = 40) -> str:
    """A foreign text, quoted and cut, so that a message stays a line."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return f"“{printable}”" if len(printable) <= limit else f"“{printable[: limit - 1]}…”"
