"""The run store: one SQLite file that remembers every run and hands out the ones still to do.

Rules that make it safe to kill anything at any moment:

* A run is one row, its key the hash of its config: it can't be there twice.
* A process claims a run in one transaction and holds it by a lease: its heartbeat, renewed by a
  thread of its own, and its process id. A run whose process is gone, or whose heartbeat is older
  than the lease, may be claimed by anybody.
* A result is written in one transaction, and only by the holder of the lease. A process that was
  paused past its lease finds its result refused, so a run is never recorded twice.
* SQLite's write-ahead log with full synchronisation makes each transaction all or nothing.

A run that was cut starts again from its beginning: a run takes seconds to minutes, the same seed
gives the same numbers bit for bit, and no half-written checkpoint can then be wrong.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from vla.train.config import RunConfig
from vla.train.errors import StoreDamaged, StoreError, advice, explained
from vla.train.owner import is_gone, new_owner
from vla.train.result import (
    CANCELLED,
    FINISHED,
    QUEUED,
    RUNNING,
    STATUSES,
    RunResult,
    RunRow,
    digest,
)

LEASE_SECONDS = 60.0
SCHEMA_VERSION = 1
APPLICATION_ID = 0x564C4131
"""Bytes ``VLA1`` in the file's header: a foreign database isn't taken for a run store."""

TABLES = """
CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  key TEXT NOT NULL UNIQUE,
  config TEXT NOT NULL,
  status TEXT NOT NULL,
  result TEXT NOT NULL DEFAULT '{}',
  digest TEXT NOT NULL,
  owner TEXT NOT NULL DEFAULT '',
  heartbeat REAL NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE members (
  preset TEXT NOT NULL,
  budget TEXT NOT NULL,
  key TEXT NOT NULL,
  label TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (preset, budget, key)
);
"""


class Wanted(NamedTuple):
    """A run that a sweep asks for, with the name that its legend shows."""

    config: RunConfig
    label: str = ""


def each_once(items: Iterable[Wanted]) -> list[Wanted]:
    """A config that is asked for several times, once."""
    return list({item.config.key: item for item in items}.values())


class Store:
    """The runs in one SQLite file, safe for several threads and processes at once.

    ``create=False`` refuses a file that isn't there. Raises :class:`StoreError` if the file can't
    be opened, is no run store, or comes from a later version; :class:`StoreDamaged` if SQLite's
    quick check finds damage.
    """

    def __init__(
        self, path: str | Path, *, create: bool = True, lease: float = LEASE_SECONDS
    ) -> None:
        self.path = Path(path)
        self.lease = lease
        self.owner = new_owner()
        self._local = threading.local()
        self._inherited: list[object] = []
        if not create and not self.path.exists():
            raise StoreError(f"{self.path}: no run store here. `vla sweep` makes one.")
        with explained(self.path):
            self._open_checked()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, wanted: Iterable[Wanted], preset: str = "", budget: str = "") -> int:
        """Queue every run that isn't stored yet, and note which preset asks; return how many."""
        with self._write() as db:
            before = db.total_changes
            for config, _ in (items := list(wanted)):
                _insert(db, config.key, config.canonical, QUEUED, "{}")
            added = db.total_changes - before
            _join(db, [(preset, budget, config.key, label) for config, label in items])
        return added

    def claim(self, key: str) -> bool:
        """Take one run that nobody holds; ``False`` if it is finished or somebody does."""
        now = time.time()
        with self._write() as db:
            found = db.execute(
                "SELECT status, owner, heartbeat, config FROM runs WHERE key = ?", (key,)
            ).fetchone()
            if found is None:
                return False
            status, owner, heartbeat, config = found
            if not self._is_free(status, owner, now - heartbeat):
                return False
            db.execute(
                "UPDATE runs SET status = ?, owner = ?, heartbeat = ?, attempts = attempts + 1, "
                "result = '{}', digest = ? WHERE key = ?",
                (RUNNING, self.owner, now, digest(key, config, RUNNING, "{}"), key),
            )
        return True

    def _is_free(self, status: str, owner: str, silence: float) -> bool:
        if status != RUNNING:
            return status not in FINISHED
        return silence > self.lease or is_gone(owner)

    def beat(self) -> None:
        """Renew the lease on every run this process holds."""
        with self._write() as db:
            db.execute(
                "UPDATE runs SET heartbeat = ? WHERE owner = ? AND status = ?",
                (time.time(), self.owner, RUNNING),
            )

    @contextmanager
    def heartbeat(self) -> Iterator[None]:
        """Renew the lease from a thread of its own while the body runs."""
        stop = threading.Event()
        thread = threading.Thread(target=self._beat_until, args=(stop,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    def _beat_until(self, stop: threading.Event) -> None:
        while not stop.wait(self.lease / 6):
            # A missed beat (a full disk, say) costs nothing yet: the next one may succeed, and a
            # lease that does run out is noticed when the result is written.
            try:
                self.beat()
            except StoreError:
                continue
        self.close()

    def finish(self, key: str, result: RunResult) -> bool:
        """Record the end of a run that this process holds; ``False`` if the lease was lost."""
        return self._end(key, result.status, result.to_json())

    def release(self, key: str) -> bool:
        """Give a run back unfinished (``cancelled``): the next sweep starts it again."""
        return self._end(key, CANCELLED, "{}")

    def _end(self, key: str, status: str, result: str) -> bool:
        with self._write() as db:
            held = db.execute(
                "SELECT config FROM runs WHERE key = ? AND owner = ? AND status = ?",
                (key, self.owner, RUNNING),
            ).fetchone()
            if held is None:
                return False
            db.execute(
                "UPDATE runs SET status = ?, result = ?, digest = ?, owner = '' WHERE key = ?",
                (status, result, digest(key, held[0], status, result), key),
            )
        return True

    def requeue(self, statuses: Sequence[str], keys: Iterable[str] | None = None) -> int:
        """Ask again for runs that ended so (``failed``, say); return how many."""
        chosen = [row for row in self.rows(keys=keys) if row.status in statuses]
        with self._write() as db:
            for row in chosen:
                db.execute(
                    "UPDATE runs SET status = ?, result = '{}', digest = ? WHERE key = ?",
                    (QUEUED, digest(row.key, row.source, QUEUED, "{}"), row.key),
                )
        return len(chosen)

    def insert_row(self, row: RunRow) -> bool:
        """Take over a run recorded elsewhere, unless a finished one is here; whether it was new."""
        result = row.result.to_json()
        with self._write() as db:
            text = row.source
            new = _insert(db, row.key, text, row.status, result)
            if not new:
                placeholders = ", ".join("?" * len(FINISHED))
                new = bool(
                    db.execute(
                        "UPDATE runs SET status = ?, result = ?, digest = ?, owner = '' "
                        f"WHERE key = ? AND status NOT IN ({placeholders}, ?)",
                        (row.status, result, digest(row.key, text, row.status, result), row.key,
                         *FINISHED, RUNNING),
                    ).rowcount
                )  # fmt: skip
            if row.preset:
                _join(db, [(row.preset, row.budget, row.key, row.label)])
        return new

    def join(self, members: Iterable[tuple[str, ...]]) -> None:
        """Note which presets ask for which runs: (preset, budget, key, label)."""
        with self._write() as db:
            _join(db, members)

    def statuses(self, keys: Iterable[str]) -> dict[str, str]:
        """The status of each of these runs that is stored."""
        wanted = set(keys)
        with self._read() as db:
            found = db.execute("SELECT key, status FROM runs").fetchall()
        return {key: status for key, status in found if key in wanted}

    def rows(
        self,
        *,
        preset: str | None = None,
        budget: str | None = None,
        status: str | None = None,
        keys: Iterable[str] | None = None,
    ) -> list[RunRow]:
        """The runs that match, oldest first; with ``preset``, under their names in it.

        Raises :class:`StoreDamaged` if a row's checksum is wrong.
        """
        with self._read() as db:
            found = _select(db, preset, budget)
        chosen = None if keys is None else set(keys)
        kept = [
            values
            for values in found
            if (status is None or values[2] == status) and (chosen is None or values[0] in chosen)
        ]
        try:
            return [row_from(*values) for values in kept]
        except StoreDamaged as error:
            raise StoreDamaged(f"{self.path}: {error}. {advice(self.path)}") from error

    def counts(self) -> dict[str, int]:
        """How many runs have each status."""
        with self._read() as db:
            found = dict(db.execute("SELECT status, count(*) FROM runs GROUP BY status"))
        return {status: found.get(status, 0) for status in STATUSES}

    def problems(self) -> list[str]:
        """What SQLite's full integrity check and the rows' checksums find; empty if all is well."""
        try:
            with self._read() as db:
                found = [line for (line,) in db.execute("PRAGMA integrity_check") if line != "ok"]
            self.rows()
        except StoreDamaged as error:
            return [str(error)]
        return found

    def close(self) -> None:
        """Close this thread's connection; the store opens another when next used."""
        kept = getattr(self._local, "kept", None)
        if kept is not None:
            self._local.kept = None
            kept[1].close()

    def _connection(self) -> sqlite3.Connection:
        """One connection for each thread of each process: SQLite's must not cross a fork."""
        kept = getattr(self._local, "kept", None)
        if kept is not None and kept[0] != os.getpid():
            # Kept open, unused: closing the parent's connection could drop its write-ahead log.
            self._inherited.append(kept)
            kept = None
        if kept is None:
            kept = self._local.kept = (os.getpid(), connect(self.path))
        return kept[1]

    @contextmanager
    def _write(self) -> Iterator[sqlite3.Connection]:
        """One transaction that holds the write lock from its start: all of it or nothing."""
        with explained(self.path):
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _read(self) -> Iterator[sqlite3.Connection]:
        with explained(self.path):
            yield self._connection()

    def _open_checked(self) -> None:
        db = self._connection()
        problems = [line for (line,) in db.execute("PRAGMA quick_check(3)") if line != "ok"]
        if problems:
            what = f"the run store is damaged ({problems[0]})"
            raise StoreDamaged(f"{self.path}: {what}. {advice(self.path)}")
        db.execute("PRAGMA journal_mode = WAL")
        with self._write() as locked:
            _make_or_check_tables(locked, self.path)


def connect(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode (transactions are begun by hand), patient with locks."""
    db = sqlite3.connect(path, timeout=30.0, isolation_level=None)
    db.execute("PRAGMA synchronous = FULL")
    return db


def make_tables(db: sqlite3.Connection) -> None:
    """The schema, in a fixed order: a fresh file's first page can stand in for a damaged one."""
    for statement in TABLES.split(";"):
        if statement.strip():
            db.execute(statement)
    db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")


def _make_or_check_tables(db: sqlite3.Connection, path: Path) -> None:
    (application,) = db.execute("PRAGMA application_id").fetchone()
    (version,) = db.execute("PRAGMA user_version").fetchone()
    (tables,) = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if not tables and not application:
        make_tables(db)
    elif application != APPLICATION_ID:
        raise StoreError(f"{path}: an SQLite file, but no run store. Name another with --store.")
    elif version > SCHEMA_VERSION:
        raise StoreError(f"{path}: written by a later version of vla. Update vla to read it.")


def _insert(db: sqlite3.Connection, key: str, config: str, status: str, result: str) -> bool:
    done = db.execute(
        "INSERT OR IGNORE INTO runs (key, config, status, result, digest) VALUES (?, ?, ?, ?, ?)",
        (key, config, status, result, digest(key, config, status, result)),
    )
    return bool(done.rowcount)


def _join(db: sqlite3.Connection, members: Iterable[tuple[str, ...]]) -> None:
    db.executemany("INSERT OR REPLACE INTO members VALUES (?, ?, ?, ?)", members)


def _select(
    db: sqlite3.Connection, preset: str | None, budget: str | None
) -> list[tuple[Any, ...]]:
    columns = "r.key, r.config, r.status, r.result, r.digest, r.attempts, r.owner"
    if preset is None:
        query = f"SELECT {columns}, '', '', '' FROM runs r ORDER BY r.id"
        return db.execute(query).fetchall()
    query = (
        f"SELECT {columns}, m.label, m.preset, m.budget FROM runs r JOIN members m USING (key) "
        "WHERE m.preset = ? AND (? IS NULL OR m.budget = ?) ORDER BY r.id"
    )
    return db.execute(query, (preset, budget, budget)).fetchall()


def row_from(key: str, config: str, status: str, result: str, check: str,
             attempts: int = 0, owner: str = "", *member: str) -> RunRow:  # fmt: skip
    """A stored row as a :class:`RunRow`. Raises :class:`StoreDamaged` if its checksum is wrong."""
    if digest(key, config, status, result) != check:
        raise StoreDamaged(f"run {key} is damaged: its checksum is wrong")
    label, preset, budget = member or ("", "", "")
    return RunRow(
        key=key,
        config=RunConfig.from_json(config),
        status=status,
        result=RunResult.from_dict({"status": status, **json.loads(result)}),
        attempts=attempts,
        label=label,
        preset=preset,
        budget=budget,
        owner=owner,
        text=config,
    )


def was_queued(row: RunRow) -> RunRow:
    """The row as one still to be done."""
    return dataclasses.replace(row, status=QUEUED, result=RunResult(status=QUEUED), owner="")
