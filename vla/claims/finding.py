"""What a check returns: a verdict, why, and the numbers, as plain values that JSON can hold."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vla.errors import require_choice

HOLDS, CHANGED, FAILS, UNDECIDED = "holds", "changed", "fails", "undecided"
VERDICTS = {
    HOLDS: "holds",
    CHANGED: "holds with a stated change",
    FAILS: "fails",
    UNDECIDED: "not decidable here",
}
"""Every verdict and its words."""

PLURALS = {**VERDICTS, HOLDS: "hold", CHANGED: "hold with a stated change", FAILS: "fail"}
"""The same of several claims."""

Cell = str | float | None


@dataclass(frozen=True)
class Series:
    """One set of marks or one line of a picture."""

    name: str
    x: tuple[Cell, ...]
    y: tuple[float | None, ...]
    rule: str = ""
    """A rule's name, for its colour; empty: the ink."""
    published: bool = False
    """What the paper states: hollow and dashed."""
    line: bool = True
    """Joined by a line; otherwise marks alone."""
    marks: bool = True


@dataclass(frozen=True)
class Chart:
    """A small picture: numbers and the names of their axes. Texts as ``x`` make a list of rows."""

    x: str
    y: str
    series: tuple[Series, ...]
    log_x: bool = False
    log_y: bool = False
    level: float | None = None
    """A value that the claim states, drawn as a dashed line."""
    level_name: str = ""


@dataclass(frozen=True)
class Grid:
    """Numbers beside each other: what is printed, what the authors' log has, what is ours."""

    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Finding:
    """The outcome of one check."""

    verdict: str
    why: str
    """One to three sentences, with the numbers that decide."""
    chart: Chart | None = None
    grid: Grid | None = None
    sources: tuple[str, ...] = ()
    """Evidence that was looked at: files, and how many runs of which device."""

    def __post_init__(self) -> None:
        require_choice("verdict", self.verdict, VERDICTS)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; :func:`from_dict` reads them back."""
        return _plain(dataclasses.asdict(self))


def from_dict(plain: Mapping[str, Any]) -> Finding:
    """Read :meth:`Finding.to_dict`."""
    values = dict(plain)
    if (chart := values.get("chart")) is not None:
        series = tuple(_series(each) for each in chart["series"])
        values["chart"] = Chart(**{**chart, "series": series})
    if (grid := values.get("grid")) is not None:
        values["grid"] = Grid(tuple(grid["head"]), tuple(map(tuple, grid["rows"])))
    values["sources"] = tuple(values.get("sources", ()))
    return Finding(**values)


def _series(plain: Mapping[str, Any]) -> Series:
    return Series(**{**plain, "x": tuple(plain["x"]), "y": tuple(plain["y"])})


def _plain(value: Any) -> Any:
    """Tuples as lists; numbers that JSON lacks as ``None``; others to six digits."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def counted(verdicts: Iterable[str]) -> str:
    """How many of each verdict, in words.

    >>> counted(["holds", "fails", "holds"])
    '2 hold, 1 fails'
    """
    counts = Counter(verdicts)
    return ", ".join(
        f"{counts[v]} {(VERDICTS if counts[v] == 1 else PLURALS)[v]}" for v in VERDICTS if counts[v]
    )


@dataclass
class Value:
    """One printed number and what stands beside it."""

    where: str
    published: float | None
    ours: Sequence[float] = ()
    """One number per seed."""
    log: float | None = None
    """The authors' own log, where it has this number."""
    note: str = ""

    @property
    def mean(self) -> float | None:
        """Mean over our seeds."""
        return math.fsum(self.ours) / len(self.ours) if self.ours else None

    def agrees(self, tolerance: float) -> bool | None:
        """Whether the printed number lies in the range of ours, widened by ``tolerance``."""
        if self.published is None or not self.ours:
            return None
        return min(self.ours) - tolerance <= self.published <= max(self.ours) + tolerance


@dataclass
class Comparison:
    """Printed numbers beside ours, each judged by the same tolerance."""

    values: list[Value]
    tolerance: float
    unit: str = ""
    seeds: str = "ours"
    extra: list[tuple[Cell, ...]] = field(default_factory=list)

    @property
    def compared(self) -> list[Value]:
        """Those that both have."""
        return [value for value in self.values if value.agrees(self.tolerance) is not None]

    @property
    def agreeing(self) -> list[Value]:
        """Those that agree."""
        return [value for value in self.compared if value.agrees(self.tolerance)]

    @property
    def missing(self) -> list[Value]:
        """Those that are printed and not measured here."""
        return [v for v in self.values if v.published is not None and not v.ours]

    @property
    def whole(self) -> bool:
        """Every value that could be compared agrees."""
        return len(self.agreeing) == len(self.compared)

    @property
    def summary(self) -> str:
        """How many agree, in words."""
        return (
            f"{len(self.agreeing)} of {len(self.compared)} printed values lie within "
            f"{self.tolerance:g} of ours"
        )

    def grid(self) -> Grid:
        """The table, value by value."""
        has_log = any(value.log is not None for value in self.values)
        head = ("value", "as published", *(["authors' log"] if has_log else []), self.seeds, "")
        return Grid(head, tuple(self._row(value, has_log) for value in self.values))

    def _row(self, value: Value, has_log: bool) -> tuple[Cell, ...]:
        agrees = value.agrees(self.tolerance)
        words = {None: "", True: "agrees", False: "differs"}[agrees]
        log = (value.log,) if has_log else ()
        span = _span(value.ours)
        return (value.where, value.published, *log, span, value.note or words)

    def chart(self, x: str = "printed value", y: str = "") -> Chart:
        """Printed values as hollow marks and ours as full ones, a row for each."""
        names = tuple(value.where for value in self.values)
        printed = tuple(value.published for value in self.values)
        ours = tuple(value.mean for value in self.values)
        series = [
            Series("as published", names, printed, "vla", published=True, line=False),
            Series("ours", names, ours, "vla", line=False),
        ]
        return Chart(x, y, tuple(series))


def _span(ours: Sequence[float]) -> Cell:
    if not ours:
        return None
    if len(ours) == 1 or max(ours) - min(ours) < 5e-4:
        return math.fsum(ours) / len(ours)
    mean = math.fsum(ours) / len(ours)
    return f"{mean:.3f} ({min(ours):.3f}–{max(ours):.3f})"


def judged(comparison: Comparison, conclusion: bool, why: str, *, chart: Chart | None = None,
           told: Iterable[str] = ()) -> Finding:  # fmt: skip
    """The verdict of a table or figure: it holds if every printed value that can be compared agrees
    with ours, holds with a change if its conclusion does all the same, and fails otherwise.

    Without a number of ours there is nothing to judge, and it can't hold before all are there.
    """
    if not comparison.compared:
        return Finding(UNDECIDED, " ".join([*told, why]), chart, comparison.grid())
    verdict = HOLDS if comparison.whole and conclusion else CHANGED if conclusion else FAILS
    missing = comparison.missing
    if missing and verdict == HOLDS:
        verdict = UNDECIDED
    gaps = [f"{len(missing)} printed values have no run of ours yet."] if missing else []
    words = " ".join([f"{comparison.summary}.", *gaps, why, *told]).strip()
    return Finding(verdict, words, chart, comparison.grid())
