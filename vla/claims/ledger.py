"""Verdicts: computed by checks, kept in ``data/claims/ledger.json``, and the ones that are current.

A kept verdict counts as long as the files it rests on are unchanged; then it is computed again.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from vla import provenance
from vla.claims.claim import Claim, get, ordered
from vla.claims.evidence import Evidence, NoEvidence, data_folder, digest
from vla.claims.finding import UNDECIDED, Finding, from_dict
from vla.errors import ArgumentError

SCHEMA = 1


@dataclass(frozen=True)
class Entry:
    """One claim's last verdict and where it came from."""

    id: str
    finding: Finding
    date: str
    commit: str
    device: str
    budget: str
    seconds: float
    files: dict[str, str]
    """Digest of each recorded file that was looked at; ``absent`` where there was none."""


def decide(chosen: Claim, evidence: Evidence | None = None) -> Finding:
    """Run a claim's check. Missing evidence makes it undecided, with the reason."""
    evidence = evidence or Evidence()
    if chosen.check is None:
        return Finding(UNDECIDED, chosen.reason)
    evidence.sources.clear()
    evidence.files.clear()
    try:
        found = chosen.check(evidence)
    except NoEvidence as missing:
        found = Finding(UNDECIDED, f"Not decidable here: {missing}.")
    return dataclasses.replace(found, sources=tuple(evidence.sources) or ("computed from scratch",))


def examine(chosen: Claim, evidence: Evidence | None = None) -> Entry:
    """Decide a claim now, with date, commit, device and the time it took."""
    evidence = evidence or Evidence()
    start = time.perf_counter()
    found = decide(chosen, evidence)
    return Entry(
        chosen.id, found, str(date.today()), provenance.commit(), provenance.device_name("cpu"),
        evidence.budget, round(time.perf_counter() - start, 2), dict(evidence.files),
    )  # fmt: skip


def path() -> Path:
    """Where verdicts are kept."""
    return data_folder() / "claims" / "ledger.json"


def load(place: Path | None = None) -> dict[str, Entry]:
    """The kept verdicts by claim; none if there is no file.

    Raises :class:`~vla.errors.ArgumentError` for a file that isn't a ledger.
    """
    place = place or path()
    if not place.is_file():
        return {}
    try:
        record = json.loads(place.read_text(encoding="utf-8"))
        return {each["id"]: entry_of(each) for each in record["entries"]}
    except (KeyError, TypeError, ValueError) as error:
        wanted = f"a file that `vla claims run --record` wrote ({error})"
        raise ArgumentError("ledger", str(place), wanted) from error


def save(entries: Iterable[Entry], place: Path | None = None) -> Path:
    """Keep verdicts; those of other claims stay. Entries stand in the order of the ledger."""
    place = place or path()
    known = {**load(place), **{entry.id: entry for entry in entries}}
    known_first = [known[each.id] for each in ordered() if each.id in known]
    record = {"schema": SCHEMA, "entries": [plain(entry) for entry in known_first]}
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return place


def is_current(entry: Entry, folder: Path | None = None) -> bool:
    """Whether the files it rests on are as they were."""
    root = (folder or data_folder()).parent
    return all(digest(root / name) == was for name, was in entry.files.items())


def current(ids: Sequence[str] | None = None) -> dict[str, Entry]:
    """Every claim's verdict as of now: the kept one, or a new one if its evidence has changed."""
    kept, found, evidence = load(), {}, Evidence()
    for id in ids or [each.id for each in ordered()]:
        entry = kept.get(id)
        found[id] = entry if entry and is_current(entry) else examine(get(id), evidence)
    return found


def plain(entry: Entry) -> dict[str, Any]:
    """The entry as JSON values; :func:`entry_of` reads them back."""
    shallow = {f.name: getattr(entry, f.name) for f in dataclasses.fields(entry)}
    return {**shallow, "finding": entry.finding.to_dict()}


def entry_of(values: dict[str, Any]) -> Entry:
    """Read :func:`plain`. Raises ``TypeError`` or ``KeyError`` for other values."""
    return Entry(**{**values, "finding": from_dict(values["finding"])})
