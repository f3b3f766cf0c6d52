"""The paper's Tables 1–13 as printed, and the authors' own log: ``table(8)``, ``run("capacity")``.

Sources and known misprints are in ``data/paper/README.md``.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path

from vla.errors import ArgumentError, require_choice, require_integer

Row = dict[str, str]

_HERE = Path(__file__).resolve().parent
_PLACES = (_HERE / "_data" / "paper", _HERE.parent / "data" / "paper")
RUNS = ("ablation", "capacity", "capacity_training", "latency", "long_context", "norms")
"""What :func:`run` knows."""


def table(number: int) -> list[Row]:
    """The rows of a table, every cell as printed. Raises ``ValueError`` unless 1 ≤ number ≤ 13.

    >>> table(2)[0]["unnormalised_norm"]
    '5.36'
    """
    require_integer("number", number, low=1, high=13)
    return _rows(f"table_{number:02d}.csv")


def about(number: int) -> Row:
    """A table's ``place``, ``caption``, printed ``note``, and a ``remark`` where something is off.

    Raises ``ValueError`` unless 1 ≤ number ≤ 13.

    >>> about(11)["place"]
    'B.2'
    """
    require_integer("number", number, low=1, high=13)
    return _rows("index.csv")[number - 1]


def run(name: str) -> list[Row]:
    """Rows of the authors' log ("as run"); ``ValueError`` for a name that isn't in ``RUNS``.

    >>> run("capacity")[-1]["vla"]
    '1.000'
    """
    require_choice("name", name, RUNS)
    return _rows(f"run_{name}.csv")


def number(cell: str) -> float | None:
    """The number in a printed cell, marks aside; ``None`` if it holds none.

    >>> number("≈0.091*"), number("1/128≈0.008"), number("1.7 × 10¹⁸"), number("3 000"), number("—")
    (0.091, 0.008, 1.7e+18, 3000.0, None)
    """
    text = cell.split("≈")[-1].translate(_PLAIN).replace("−", "-")
    text = re.sub(r"(?<=\d) (?=\d{3}\b)", "", text)
    found = re.fullmatch(r"([+-]?\d+(?:\.\d+)?)(?: × 10(-?\d+))?[*†]?", text.strip())
    if not found:
        return None
    digits, power = found.groups()
    return float(f"{digits}e{power or 0}")


_PLAIN = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")


def _rows(name: str) -> list[Row]:
    for place in _PLACES:
        if (place / name).is_file():
            with open(place / name, encoding="utf-8", newline="") as file:
                return list(csv.DictReader(file))
    remedy = "Run from a clone of the repository, or install a wheel that holds data/paper."
    raise ArgumentError("data/paper", name, "a file that comes with the project", remedy)
