"""The JSON that a run leaves: its form, its check, and rows to plot without a GPU."""

import json
import math
from pathlib import Path
from typing import Any

KINDS = ("speed", "errors")
HEAD = {
    "schema": int,
    "kind": str,
    "device": str,
    "date": str,
    "commit": str,
    "versions": dict,
    "method": str,
    "left_out": list,
    "rows": list,
}
ROWS: dict[str, dict[str, Any]] = {
    "speed": {
        "method": str,
        "shape": str,
        "batch": int,
        "heads": int,
        "width": int,
        "tokens": int,
        "dtype": str,
        "pass": str,
        "median_ms": float,
        "low_ms": float,
        "high_ms": float,
        "repeats": int,
        "tokens_per_s": float,
        "floor_fraction": float,
        "peak_bytes": (int, type(None)),
    },
    "errors": {"case": str, "dtype": str, "precision": str, "bound": float, "errors": dict},
}
SCHEMA = 1


def validate(record: Any) -> list[str]:
    """What is wrong with a record, in words; an empty list where nothing is."""
    if not isinstance(record, dict):
        return ["a record is a JSON object"]
    wrong = _wrong_fields("record", record, HEAD)
    if wrong:
        return wrong
    if record["schema"] != SCHEMA:
        return [f"schema {record['schema']}, this code reads {SCHEMA}"]
    if record["kind"] not in KINDS:
        return [f"kind {record['kind']!r}, known are {', '.join(KINDS)}"]
    wanted = ROWS[record["kind"]]
    return [
        w for i, row in enumerate(record["rows"]) for w in _wrong_fields(f"row {i}", row, wanted)
    ]


def load(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a recorded run, each with its ``device``, ``commit`` and ``date``: plottable.

    A row measured at another commit than the rest carries that one itself.

    :raises ValueError: naming the file and the first thing wrong with it.
    """
    record = read(path)
    source = {name: record[name] for name in ("device", "commit", "date")}
    return [{**source, **row} for row in record["rows"]]


def read(path: str | Path) -> dict[str, Any]:
    """A whole record, checked.

    :raises ValueError: naming the file and the first thing wrong with it.
    """
    try:
        record = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: cannot be read as JSON ({error})") from error
    wrong = validate(record)
    if wrong:
        raise ValueError(f"{path}: {wrong[0]}")
    return record


def write(path: str | Path, record: dict[str, Any]) -> None:
    """Write a record that :func:`read` accepts.

    :raises ValueError: if it would not.
    """
    wrong = validate(record)
    if wrong:
        raise ValueError(f"{path}: {wrong[0]}")
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _wrong_fields(where: str, found: Any, wanted: dict[str, Any]) -> list[str]:
    if not isinstance(found, dict):
        return [f"{where} is not an object"]
    missing = [f"{where} lacks {name!r}" for name in wanted if name not in found]
    return missing or [
        f"{where}: {name!r} is {found[name]!r}"
        for name, kind in wanted.items()
        if not _fits(found[name], kind)
    ]


def _fits(value: Any, kind: Any) -> bool:
    if kind is float:
        return isinstance(value, int | float) and math.isfinite(value)
    return isinstance(value, kind) and not isinstance(value, bool)
