"""Save what is whole in a damaged run store, into a new file. The damaged file isn't touched."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from vla.errors import ArgumentError
from vla.train.config import key_of
from vla.train.errors import StoreError
from vla.train.result import RUNNING, RunRow
from vla.train.store import Store, connect, row_from, was_queued

PAGE = 4096
"""Bytes of a page of the store: SQLite's default, which the store keeps."""


class Recovered(NamedTuple):
    """What a recovery found."""

    kept: int
    lost: int
    """Runs known to have been there that couldn't be saved; those in an unreadable part of the
    file can't be counted. A sweep does them again."""


def recover(damaged: str | Path, target: str | Path) -> Recovered:
    """Copy every run whose checksum and config hash are right to ``target``, a new store.

    Works through a damaged page, damaged text inside a row and a destroyed first page (the header
    and the schema: both are known, so a fresh file's stand in). Raises
    :class:`~vla.errors.ArgumentError` if ``target`` exists or ``damaged`` doesn't,
    :class:`~vla.train.errors.StoreError` if nothing at all can be read.
    """
    damaged, target = Path(damaged), Path(target)
    if not damaged.is_file():
        raise ArgumentError("store", str(damaged), "a file that exists")
    if target.exists():
        raise ArgumentError("recover", str(target), "a file that doesn't exist yet")
    with tempfile.TemporaryDirectory() as folder:
        copy = _copy(damaged, Path(folder))
        found = _read(copy) or _read(_with_fresh_head(copy))
    if found is None:
        raise StoreError(f"{damaged}: nothing in it can be read as a run store.")
    rows, members, lost = found
    with Store(target) as store:
        for row in rows:
            store.insert_row(row)
        store.join(members)
    return Recovered(len(rows), lost)


def _copy(damaged: Path, folder: Path) -> Path:
    """The file with its write-ahead log, so that what only the log holds is found too."""
    for end in ("", "-wal"):
        source = damaged.with_name(damaged.name + end)
        if source.is_file():
            shutil.copy(source, folder / f"copy{end}")
    return folder / "copy"


def _with_fresh_head(copy: Path) -> Path:
    """Put a fresh store's first page over the damaged one, with the right number of pages in it."""
    fresh = copy.with_name("fresh")
    with Store(fresh):
        pass
    head = bytearray(fresh.read_bytes()[:PAGE])
    body = copy.read_bytes()[PAGE:]
    head[28:32] = (1 + len(body) // PAGE).to_bytes(4, "big")
    head[32:40] = bytes(8)
    copy.write_bytes(bytes(head) + body)
    return copy


def _read(copy: Path) -> tuple[list[RunRow], list[tuple[str, ...]], int] | None:
    """Whole rows, memberships and the number of damaged rows seen; ``None`` if unreadable."""
    try:
        db = connect(copy)
        db.text_factory = lambda raw: raw.decode("utf-8", "replace")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        return None
    try:
        last = _last_id(db, copy)
        raw = list(_between(db, 1, last)) if last else []
        rows = [row for values in raw if (row := _whole(values)) is not None]
        return (rows, _members(db), max(len(raw), _known(db)) - len(rows)) if raw else None
    finally:
        db.close()


def _last_id(db: sqlite3.Connection, copy: Path) -> int:
    try:
        return int(db.execute("SELECT max(id) FROM runs").fetchone()[0] or 0)
    except sqlite3.Error:
        # No row is shorter than 200 bytes, so there can't be more rows than this.
        return copy.stat().st_size // 200


def _between(db: sqlite3.Connection, first: int, last: int) -> Iterator[tuple[Any, ...]]:
    """Rows by id, halving a range that can't be read until only the damaged ids are left out."""
    query = (
        "SELECT key, config, status, result, digest, attempts FROM runs WHERE id BETWEEN ? AND ?"
    )
    try:
        yield from db.execute(query, (first, last)).fetchall()
    except sqlite3.Error:
        if first < last:
            middle = (first + last) // 2
            yield from _between(db, first, middle)
            yield from _between(db, middle + 1, last)


def _whole(values: tuple[Any, ...]) -> RunRow | None:
    """The row, if its checksum is right and its key is its config's; a cut run is queued again."""
    try:
        row = row_from(*values)
    except (StoreError, ValueError, TypeError, KeyError):
        return None
    if row.key != key_of(row.text):
        return None
    return was_queued(row) if row.status == RUNNING else row


def _members(db: sqlite3.Connection) -> list[tuple[str, ...]]:
    try:
        return db.execute("SELECT preset, budget, key, label FROM members").fetchall()
    except sqlite3.Error:
        return []


def _known(db: sqlite3.Connection) -> int:
    """Distinct runs that the memberships name."""
    return len({key for _, _, key, _ in _members(db)})
