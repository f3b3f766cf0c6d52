"""Timing this machine from a page: work for :mod:`vla.scene.live`, and the record that it keeps."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from vla.bench import cases, record, worker
from vla.bench.cases import Shape, lengths_of
from vla.bench.measure import bandwidth
from vla.bench.run import head
from vla.figures.bench import named
from vla.scene.live import Report


def local_file() -> Path:
    """Where this machine's timings are kept: ``$VLA_BENCH``, or a file in the current folder."""
    return Path(os.environ.get("VLA_BENCH", "vla-bench.json"))


def measure(
    report: Report,
    shape: Sequence[int],
    lengths: Sequence[int],
    methods: Sequence[str],
    file: str,
    device: str,
) -> dict[str, int]:
    """Time these methods here and add the rows to a record; what is stopped keeps what it has.

    Rows of the same device measured before stay, unless they are measured again. Raises
    ``ValueError`` if the file holds something else.
    """
    report.share(0, "measuring the bandwidth")
    made: dict[str, Any] = {
        **head("speed", device), "left_out": [], "rows": [], "decode": [], "crossovers": [],
        "bytes_per_s": bandwidth(device), "slopes": [],
    }  # fmt: skip
    todo = list(_todo(tuple(methods), tuple(lengths)))
    try:
        for turn, (method, tokens) in enumerate(todo):
            report.share(turn / len(todo), f"{named(method.name)}, T {tokens}")
            _measure_one(report, made, method, Shape(*shape), tokens, device)
    finally:
        _keep(made, Path(file))
    return {"rows": len(made["rows"]), "left_out": len(made["left_out"])}


def _todo(names: tuple[str, ...], lengths: tuple[int, ...]) -> Iterator[tuple[cases.Method, int]]:
    for method in cases.METHODS:
        if method.name in names:
            yield from ((method, tokens) for tokens in lengths_of(method, lengths))


def _measure_one(
    report: Report, made: dict[str, Any], method: cases.Method, shape: Shape, tokens: int,
    device: str,
) -> None:  # fmt: skip
    try:
        rows = worker.measure(method, shape, tokens, device, made["bytes_per_s"])
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0][:160]}"
        made["left_out"].append({"what": f"{method.name} at {shape.name} T{tokens}", "why": why})
        report.say(f"{named(method.name)}, T {tokens} left out. {why}")
        return
    made["rows"] += rows
    for row in rows:
        if row["pass"] == "forward":
            report.point(named(method.name), tokens, row["median_ms"])


def _keep(made: dict[str, Any], file: Path) -> None:
    """Write the record whole or not at all."""
    if not made["rows"]:
        return
    before = record.read(file) if file.exists() else None
    if before and before["device"] == made["device"]:
        new = {_name(row) for row in made["rows"]}
        made["rows"] = [row for row in before["rows"] if _name(row) not in new] + made["rows"]
    half = file.with_suffix(".part")
    record.write(half, made)
    os.replace(half, file)


def _name(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("method", "shape", "tokens", "pass"))


EMPTY: dict[str, Any] = {"rows": [], "left_out": [], "crossovers": [], "decode": []}


def load(path: Path | None) -> tuple[dict[str, Any], str]:
    """A record and what is wrong with its file, if anything is; an empty one if there is none."""
    if path is None or not path.exists():
        return EMPTY, ""
    with contextlib.suppress(ValueError):
        return record.read(path), ""
    return EMPTY, f"{path.name}: no record that this version of vla bench reads."
