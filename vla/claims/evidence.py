"""What checks may look at: the paper's tables, recorded runs, recorded timings; and what they did.

Every look is noted, so that a finding says by itself what it rests on.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vla import paper
from vla.errors import ArgumentError, require_choice

if TYPE_CHECKING:
    from vla.train.result import RunRow

_HERE = Path(__file__).resolve().parents[1]
_PLACES = (_HERE / "_data", _HERE.parent / "data")

Table = list[dict[str, str]]


class NoEvidence(Exception):
    """What a check needs isn't recorded yet; the text says what."""


class Evidence:
    """Everything recorded, read on demand, and the budget a check may spend.

    ``runs``, ``tables``, ``logs`` and ``bench`` replace what is on disk, by name: for runs trained
    just now, and for tests that falsify something.
    """

    def __init__(
        self,
        budget: str = "cheap",
        *,
        folder: Path | None = None,
        runs: Mapping[str, Sequence[RunRow]] | None = None,
        tables: Mapping[int, Table] | None = None,
        logs: Mapping[str, Table] | None = None,
        bench: Mapping[str, dict[str, Any]] | None = None,
    ) -> None:
        require_choice("budget", budget, ("cheap", "cpu", "full"))
        self.budget = budget
        self.folder = folder or data_folder()
        self.sources: list[str] = []
        self.files: dict[str, str] = {}
        """File → digest of every file looked at; ``absent`` where there is none."""
        self._runs = {name: list(rows) for name, rows in (runs or {}).items()}
        self._tables, self._logs, self._bench = dict(tables or {}), dict(logs or {}), bench or {}

    def draws(self, cheap: int, more: int) -> int:
        """How many random draws a check may take."""
        return cheap if self.budget == "cheap" else more

    def table(self, number: int) -> Table:
        """The paper's table, as printed."""
        self._note(f"Table {number} as printed (data/paper/table_{number:02d}.csv)")
        return self._tables[number] if number in self._tables else paper.table(number)

    def log(self, name: str) -> Table:
        """The authors' own log."""
        self._note(f"the authors' log (data/paper/run_{name}.csv)")
        return self._logs[name] if name in self._logs else paper.run(name)

    def runs(self, preset: str, *, needed: bool = True) -> list[RunRow]:
        """The preset's runs. Raises :class:`NoEvidence` if there are none and they are needed."""
        rows = self._runs.get(preset)
        if rows is None:
            rows = self._runs[preset] = self._read(preset)
        if rows:
            self._note(_told(preset, rows))
        elif needed:
            raise NoEvidence(f"no recorded run: data/runs/{preset}.parquet is not there yet")
        return rows

    def bench(self, name: str) -> dict[str, Any]:
        """A timing record of ``data/bench``. Raises :class:`NoEvidence` if there is none."""
        if name in self._bench:
            return self._bench[name]
        path = self._seen("bench", f"{name}.json")
        if not path.is_file():
            raise NoEvidence(f"no recorded timing: data/bench/{name}.json is not there")
        record = json.loads(path.read_text(encoding="utf-8"))
        self._note(f"data/bench/{name}.json ({record['device']}, {record['date']})")
        return record

    def _read(self, preset: str) -> list[RunRow]:
        from vla.train.transfer import load_rows

        path = self._seen("runs", f"{preset}.parquet")
        try:
            return load_rows(path) if path.is_file() else []
        except ArgumentError as error:
            raise NoEvidence(f"data/runs/{preset}.parquet can't be read: {error}") from error

    def _seen(self, folder: str, name: str) -> Path:
        path = self.folder / folder / name
        self.files[f"data/{folder}/{name}"] = digest(path)
        return path

    def _note(self, source: str) -> None:
        if source not in self.sources:
            self.sources.append(source)


def data_folder() -> Path:
    """Where recorded evidence is: beside the package in a checkout, inside it in a wheel."""
    return next((place for place in reversed(_PLACES) if place.is_dir()), _PLACES[-1])


def digest(path: Path) -> str:
    """A file's SHA-256, 16 hex digits; ``absent`` if it isn't there."""
    if not path.is_file():
        return "absent"
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]


def _told(preset: str, rows: Sequence[RunRow]) -> str:
    devices = ", ".join(
        f"{n} on {name}" for name, n in Counter(r.result.device for r in rows).items()
    )
    commits = sorted({row.result.commit[:7] for row in rows if row.result.commit})
    keys = sorted(row.key[:8] for row in rows)
    span = keys[0] if len(keys) == 1 else f"{keys[0]} … {keys[-1]}"
    return (
        f"{len(rows)} runs of the preset {preset} ({devices}"
        + (f"; commit {', '.join(commits)}" if commits else "")
        + f"; keys {span})"
    )
