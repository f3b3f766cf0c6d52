"""Checks whose messages are for people: the argument, what came, what is wanted, what to do."""

import math
import sys
from collections.abc import Iterable
from pathlib import Path


class ArgumentError(ValueError):
    """A bad argument: ``name``, what came, what was wanted. Apps show ``str(error)`` as it is."""

    def __init__(self, name: str, got: object, wanted: str, remedy: str = "") -> None:
        self.name = name
        text = f"{name}: got {_short(got)}, wanted {wanted}."
        super().__init__(f"{text} {remedy}".rstrip())


def require_choice(name: str, value: object, choices: Iterable[object]) -> None:
    """Raise :class:`ArgumentError` unless ``value`` is one of ``choices``."""
    known = list(choices)
    if value not in known:
        raise ArgumentError(name, value, "one of " + ", ".join(map(repr, known)))


def require_positive(name: str, value: float, *, zero: bool = False) -> None:
    """Raise :class:`ArgumentError` unless ``value`` is finite and > 0 (``zero``: ≥ 0)."""
    low_enough = _is_number(value) and (value >= 0 if zero else value > 0)
    if not (low_enough and math.isfinite(value)):
        raise ArgumentError(name, value, "a finite number " + ("≥ 0" if zero else "> 0"))


def require_integer(name: str, value: object, *, low: int, high: int | None = None) -> None:
    """Raise :class:`ArgumentError` unless ``value`` is an integer in ``[low, high]``."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not (whole and low <= value and (high is None or value <= high)):  # type: ignore[operator]
        span = f"from {low} to {high}" if high is not None else f"of at least {low}"
        raise ArgumentError(name, value, f"a whole number {span}")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: object, limit: int = 80) -> str:
    """Both ends of a long value: a path ends in its name, a text begins with its subject."""
    text = repr(value)
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[1 - half :]}"


def missing_package(error: ImportError) -> str:
    """What to do about a package that a command needs, in one line."""
    name = (error.name or "a package").split(".")[0]
    root = Path(__file__).resolve().parent.parent
    what = f"-e '{root}[lab]'" if (root / "pyproject.toml").is_file() else "'vla[lab]'"
    return f"{name} is needed and isn't installed. Run: {sys.executable} -m pip install {what}"
