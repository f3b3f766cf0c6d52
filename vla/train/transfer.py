"""Recorded runs as Parquet files: what ``data/runs/`` holds, and how it's read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vla.errors import ArgumentError
from vla.train.config import RunConfig, key_of
from vla.train.result import FINISHED, RunResult, RunRow
from vla.train.store import Store

PLAIN = (
    "key", "preset", "budget", "label", "status", "model.mixer", "task.name", "task.pairs",
    "task.length", "model.width", "model.heads", "steps", "lr", "seed", "device", "commit",
    "duration", "jobs", "finished", "note", "parameters", "state_size",
)  # fmt: skip
"""Fields that get a column of their own, for reading without this library; the rest is in the JSON
columns ``config`` and ``result``, which hold everything."""


def export(rows: Sequence[RunRow], path: str | Path) -> int:
    """Write finished runs to a Parquet file, all or nothing; return how many.

    Raises :class:`~vla.errors.ArgumentError` if there is none, or the folder doesn't exist.
    """
    path = Path(path)
    ended = [row for row in rows if row.status in FINISHED]
    if not ended:
        raise ArgumentError("export", "no run", "at least one finished run", "Loosen the filter.")
    if not path.parent.is_dir():
        raise ArgumentError("export", str(path), "a file in a folder that exists")
    arrow, parquet = _arrow()
    table = arrow.Table.from_pylist([_flat(row) for row in ended])
    part = path.with_name(path.name + ".part")
    try:
        parquet.write_table(table, part, compression="zstd")
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return len(ended)


def load_rows(path: str | Path) -> list[RunRow]:
    """The runs in a Parquet file made by :func:`export`.

    Raises :class:`~vla.errors.ArgumentError` if it is missing, no such file, or a run's key isn't
    its config's.
    """
    path = Path(path)
    if not path.is_file():
        raise ArgumentError("runs", str(path), "a Parquet file that exists")
    arrow, parquet = _arrow()
    try:
        plain = parquet.read_table(path).to_pylist()
        return [_row(values) for values in plain]
    except (arrow.ArrowException, KeyError, json.JSONDecodeError) as error:
        raise ArgumentError("runs", str(path), "a file that `vla runs --export` wrote") from error


def import_rows(store: Store, rows: Iterable[RunRow]) -> int:
    """Take recorded runs into a store; runs finished there stay. Return how many were new."""
    return sum(store.insert_row(row) for row in rows)


def _flat(row: RunRow) -> dict[str, Any]:
    values = {name.replace(".", "_"): row.value(name) for name in PLAIN}
    for split in ("validation", "test"):
        values[f"{split}_accuracy"] = row.result.evaluation.get(split, {}).get("accuracy")
    return {**values, "config": row.source, "result": row.result.to_json()}


def _row(values: dict[str, Any]) -> RunRow:
    key, text = values["key"], values["config"]
    if key != key_of(text):
        raise ArgumentError("runs", key, f"the key of its config, {key_of(text)}")
    return RunRow(
        key=key,
        text=text,
        config=RunConfig.from_json(text),
        status=values["status"],
        result=RunResult.from_dict(json.loads(values["result"])),
        label=values["label"],
        preset=values["preset"],
        budget=values["budget"],
    )


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        wanted = "pyarrow, for Parquet files"
        raise ArgumentError("pyarrow", None, wanted, "pip install 'vla[lab]'") from error
    return pyarrow, parquet
