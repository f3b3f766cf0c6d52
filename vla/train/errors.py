"""What can go wrong with the run store or the device, said so that a person knows what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

DAMAGED = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
READ_ONLY = ("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")


class StoreError(Exception):
    """The run store can't be read or written; ``str(error)`` says why and what to do."""


class StoreDamaged(StoreError):
    """The store's file is damaged; ``vla runs --recover NEW`` saves the runs that are whole."""


class DeviceLost(Exception):
    """The GPU answers no more, so every further run would fail; those under way are given back."""


def advice(path: Path) -> str:
    """What to do about a damaged store."""
    return f"The runs that are whole can be saved: vla runs --store {path} --recover NEW_FILE"


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into :class:`StoreError`, by their code."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(error, path) from error


def _translate(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorname", "") or ""
    if code.startswith(DAMAGED):
        return StoreDamaged(f"{path}: the run store is damaged ({error}). {advice(path)}")
    return StoreError(f"{path}: {_reason(code, error)} Finished runs in it are kept.")


def _reason(code: str, error: sqlite3.Error) -> str:
    if code.startswith("SQLITE_FULL"):
        return "the disk is full. Free some space and run the same command again."
    if code.startswith("SQLITE_IOERR"):
        return (
            f"writing failed ({error}): a full disk, a quota or a file-size limit? "
            "Make room and run the same command again."
        )
    if code.startswith(READ_ONLY):
        return (
            "the folder can't be written or doesn't exist. "
            "Choose another file with --store, or give yourself the right to write there."
        )
    if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return "another process held the store for too long. Run the same command again."
    return f"the run store failed ({error})."
