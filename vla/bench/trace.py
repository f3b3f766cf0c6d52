"""How long a trace takes: ``python -m vla.bench.trace``.

Four rules over T = 1 000, d = 32 (every step kept), each rule alone, and with ``--long`` one rule
over T = 100 000. Prints medians of wall and processor time on one thread, and peak memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import resource
import statistics
import time
from collections.abc import Sequence

import torch

from vla.tokens import Stream, make_stream
from vla.trace import record

FOUR = ("linear", "delta", "vla", "rls")


def timed(rules: Sequence[str], stream: Stream, repeats: int) -> tuple[float, float]:
    """Median wall and processor seconds of ``record``, after one unmeasured run if repeated."""
    if repeats > 1:
        record(rules, stream)
    walls, cpus = [], []
    for _ in range(repeats):
        wall, cpu = time.perf_counter(), time.process_time()
        record(rules, stream)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return statistics.median(walls), statistics.median(cpus)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m vla.bench.trace", description=__doc__)
    parser.add_argument("--repeats", type=int, default=5, help="runs per line (default 5)")
    parser.add_argument("--long", action="store_true", help="also one rule over T = 100 000")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"torch {torch.__version__}, Python {platform.python_version()}, one thread")
    print(f"{os.cpu_count()} cores, load {load:.2f} (times count only when it is low)")
    print(f"{'rules':<24}{'T':>8}{'wall s':>10}{'cpu s':>10}")
    stream = make_stream("gaussian", n=1000, d=32, d_v=32, queries=0)
    for rules in (FOUR, *((name,) for name in FOUR), ("softmax",)):
        _line(rules, stream, options.repeats)
    if options.long:
        _line(("vla",), make_stream("gaussian", n=100_000, d=32, d_v=32, queries=0), 1)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"peak memory of the process {peak:.0f} MiB")


def _line(rules: Sequence[str], stream: Stream, repeats: int) -> None:
    wall, cpu = timed(rules, stream, repeats)
    print(f"{' '.join(rules):<24}{len(stream):>8}{wall:>10.2f}{cpu:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
