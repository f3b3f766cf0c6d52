"""``vla bench``: run the workers, print tables, record one JSON."""

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vla import provenance
from vla.bench.analysis import curve, slope
from vla.bench.cases import CPU_LENGTHS, CPU_SHAPES, LENGTHS, METHODS, SHAPES, Shape
from vla.bench.measure import bandwidth
from vla.bench.record import SCHEMA, write

# What runs in one worker; the last has a process of its own because it may break its device.
GROUPS = (
    ("vla", "attention", "fla chunk_delta_rule", "fla chunk_gated"),
    ("fla chunk_mesa_net",),
)


class Job(NamedTuple):
    """One worker."""

    shape: Shape
    methods: tuple[str, ...]
    lengths: tuple[int, ...]
    decode: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of ``vla bench``."""
    parser.add_argument("--output", type=Path, help="write the record here as JSON")
    parser.add_argument("--commit", help="commit to record (default: $VLA_COMMIT, then git)")
    parser.add_argument(
        "--methods", nargs="*", help="only methods whose name contains one of these"
    )
    parser.add_argument(
        "--lengths", type=int, nargs="*", help="token counts (default: 512 … 131072)"
    )
    parser.add_argument(
        "--limit", type=float, help="stop after so many seconds, keep what there is"
    )
    parser.add_argument("--shapes", nargs="*", metavar="B,H,D", help="shapes, such as 4,16,64")
    parser.add_argument(
        "--device", choices=("cuda", "cpu"), help="default: a GPU where there is one"
    )


def main(args: argparse.Namespace) -> int:
    """Measure, print, record; 0, or 2 where an option does not parse."""
    try:
        jobs, device = plan(args)
    except ValueError as error:
        print(f"vla bench: {error}", file=sys.stderr)
        return 2
    record = run(jobs, device, commit=args.commit, limit_s=args.limit)
    print_report(record)
    if args.output:
        write(args.output, record)
        print(f"recorded in {args.output}")
    return 0


def plan(args: argparse.Namespace) -> tuple[list[Job], str]:
    """The workers that the options ask for.

    :raises ValueError: on a shape that is not three whole numbers, or an unknown method.
    """
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    gpu = device == "cuda"
    shapes = [_shape(s) for s in args.shapes] if args.shapes else (SHAPES if gpu else CPU_SHAPES)
    lengths = tuple(args.lengths or (LENGTHS if gpu else CPU_LENGTHS))
    groups = [_matching(group, args.methods) for group in (GROUPS if gpu else GROUPS[:1])]
    if not any(groups):
        raise ValueError(
            f"no method is named {args.methods}; there are {[m.name for m in METHODS]}"
        )
    return [
        Job(shape, group, lengths, decode=i == 0)
        for shape in shapes
        for i, group in enumerate(groups)
        if group
    ], device


def run(
    jobs: list[Job], device: str, *, commit: str | None = None, limit_s: float | None = None
) -> dict[str, Any]:
    """Warm all workers up side by side, then let them measure one after another."""
    workers = [_start(job, device) for job in jobs]
    alarm = threading.Timer(limit_s or threading.TIMEOUT_MAX, _stop, [workers])
    alarm.daemon = True
    alarm.start()
    left_out = [] if device == "cuda" else [_gpu_left_out()]
    record: dict[str, Any] = {
        **head("speed", device, commit),
        "left_out": left_out,
        "rows": [],
        "decode": [],
        "crossovers": [],
    }
    for worker, job in zip(workers, jobs, strict=True):
        _collect(_messages(worker, until_ready=True), record)
        print(f"warm: {job.shape.name} {', '.join(job.methods)}", file=sys.stderr)
    record["bytes_per_s"] = bandwidth(device)
    for worker, job in zip(workers, jobs, strict=True):
        _measure(worker, job, record)
    alarm.cancel()
    record["slopes"] = _slopes(record["rows"])
    return record


def _stop(workers: list[subprocess.Popen]) -> None:
    for worker in workers:
        worker.kill()


def head(kind: str, device: str, commit: str | None = None) -> dict[str, Any]:
    """Where, when and with what a record was made."""
    name = torch.cuda.get_device_name() if device == "cuda" else f"CPU {platform.machine()}"
    return {
        "schema": SCHEMA,
        "kind": kind,
        "device": name,
        "date": datetime.date.today().isoformat(),
        "commit": commit or os.environ.get("VLA_COMMIT") or provenance.commit() or "unknown",
        "versions": _versions(),
        "method": "median of up to 100 calls, CUDA events, caches flushed before each call; "
        "low and high are the 20 % and 80 % quantiles; all methods in one run",
    }


def print_report(record: dict[str, Any]) -> None:
    """Tables for people."""
    print(f"{record['device']}, {record['versions']}, commit {record['commit']}, {record['date']}")
    for shape in dict.fromkeys(r["shape"] for r in record["rows"]):
        print(f"\n{shape}: forward / forward+backward in ms")
        for line in _table([r for r in record["rows"] if r["shape"] == shape]):
            print(line)
    for name in ("crossovers", "decode", "slopes", "left_out"):
        for item in record[name]:
            print(f"{name}: {item}")


def _table(rows: list[dict[str, Any]]) -> Iterator[str]:
    lengths = sorted({r["tokens"] for r in rows})
    times = {(r["method"], r["tokens"], r["pass"]): r["median_ms"] for r in rows}
    yield f"{'':31}" + "".join(f"{t:>17}" for t in lengths)
    for method in dict.fromkeys(r["method"] for r in rows):
        cells = []
        for t in lengths:
            pair = [times.get((method, t, p)) for p in ("forward", "forward+backward")]
            cells.append(" / ".join("–" if ms is None else f"{ms:.3g}" for ms in pair))
        yield f"{method:31}" + "".join(f"{c:>17}" for c in cells)


def _slopes(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Slope of the upper half of each curve, where launch overhead no longer shows."""
    found = []
    for key in dict.fromkeys((r["method"], r["shape"], r["pass"]) for r in rows):
        points = curve(rows, *key)
        points = points[len(points) // 2 :]
        if len(points) >= 2:
            names = dict(zip(("method", "shape", "pass"), key, strict=True))
            ends = {"from": points[0][0], "to": points[-1][0]}
            found.append({**names, "slope": round(slope(points), 3), **ends})
    return found


def _start(job: Job, device: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "vla.bench.worker", "--device", device]
    command += ["--shape", *map(str, job.shape), "--lengths", *map(str, job.lengths)]
    command += ["--methods", *job.methods, *(["--decode"] if job.decode else [])]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True)


def _messages(worker: subprocess.Popen, *, until_ready: bool = False) -> Iterator[dict[str, Any]]:
    assert worker.stdout is not None
    for line in worker.stdout:
        if not line.startswith("{"):
            continue
        message = json.loads(line)
        if until_ready and "ready" in message:
            return
        yield message


def _measure(worker: subprocess.Popen, job: Job, record: dict[str, Any]) -> None:
    assert worker.stdin is not None
    try:
        worker.stdin.write(f"{record['bytes_per_s']}\n")
        worker.stdin.close()
    except BrokenPipeError:
        pass
    _collect(_messages(worker), record)
    assert worker.stdout is not None
    worker.stdout.close()
    if worker.wait() != 0:
        what = f"{', '.join(job.methods)} at {job.shape.name}"
        stopped = worker.returncode == -signal.SIGKILL
        why = f"the process ended with code {worker.returncode}"
        why = "stopped by the time limit" if stopped else why
        record["left_out"].append({"what": what, "why": why})
    print(f"measured: {job.shape.name} {', '.join(job.methods)}", file=sys.stderr)


def _collect(messages: Iterator[dict[str, Any]], record: dict[str, Any]) -> None:
    for message in messages:
        if "row" in message:
            record["rows"].append(message["row"])
        elif "decode" in message:
            record["decode"].append(message["decode"])
        elif "crossover" in message:
            record["crossovers"].append(message["crossover"])
        elif "left_out" in message:
            record["left_out"].append({"what": message["left_out"], "why": message["why"]})


def _gpu_left_out() -> dict[str, str]:
    names = ", ".join(m.name for m in METHODS if m.needs_gpu)
    return {"what": names, "why": "they need a CUDA device and there is none"}


def _matching(group: tuple[str, ...], names: list[str] | None) -> tuple[str, ...]:
    if not names:
        return group
    members = [m.name for m in METHODS if any(part in m.name for part in group)]
    return tuple(m for m in members if any(n in m for n in names))


def _shape(text: str) -> Shape:
    try:
        batch, heads, width = (int(x) for x in text.split(","))
    except ValueError:
        raise ValueError(f"shape {text!r} is not of the form 4,16,64") from None
    return Shape(batch, heads, width)


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for package in ("torch", "triton", "fla-core"):
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
