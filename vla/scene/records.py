"""Recorded runs and timings: with the package, in a checkout, or where ``$VLA_DATA`` says."""

from __future__ import annotations

import functools
import os
from pathlib import Path

from vla.errors import ArgumentError
from vla.train import RunRow, Store, StoreError, load_rows

_VLA = Path(__file__).resolve().parents[1]


def find(name: str) -> Path | None:
    """A recorded file, such as ``runs/figure5.parquet`` or ``bench/h200.json``, if it is there."""
    given = os.environ.get("VLA_DATA")
    places = (Path(given),) if given else (_VLA / "_data", _VLA.parent / "data")
    return next((place / name for place in places if (place / name).is_file()), None)


def recorded_runs(preset: str) -> tuple[list[RunRow], str]:
    """The recorded runs of a preset, and what is wrong with their file, if anything is."""
    path = find(f"runs/{preset}.parquet")
    if path is None:
        return [], ""
    try:
        return list(_loaded(path, path.stat().st_mtime_ns)), ""
    except (ArgumentError, OSError) as error:
        return [], str(error)


@functools.lru_cache(maxsize=16)
def _loaded(path: Path, _: int) -> tuple[RunRow, ...]:
    return tuple(load_rows(path))


def stored_runs(store: Path, preset: str, budget: str) -> tuple[list[RunRow], str]:
    """A preset's finished runs in a run store, and what is wrong with the store, if anything is."""
    if not store.exists():
        return [], ""
    try:
        with Store(store, create=False) as opened:
            rows = opened.rows(preset=preset, budget=budget)
    except StoreError as error:
        return [], str(error)
    return [row for row in rows if row.status in ("done", "nan", "failed")], ""
