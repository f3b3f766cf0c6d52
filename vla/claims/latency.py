"""Figure 3 on this machine: ``python -m vla.claims.latency FILE`` times the models and keeps it."""

from __future__ import annotations

import functools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path

import torch

from vla import nn, provenance

Points = list[tuple[int, float]]
LENGTHS = (128, 256, 512, 1024, 2048)
MODELS = ("softmax", "linear", "deltanet", "vla")
"""As the authors' log calls them."""


def time_models(lengths: Sequence[int] = LENGTHS) -> dict[str, Points]:
    """CPU time of one core for a forward pass of each model in token loops, the least of three.

    CPU time and not wall time, so that other work on the machine changes little.
    """
    names = dict(zip(MODELS, ("softmax", "linear", "authors_delta", "vla_authors"), strict=True))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _time_each(names, lengths)
    finally:
        torch.set_num_threads(threads)


def _time_each(names: dict[str, str], lengths: Sequence[int]) -> dict[str, Points]:
    found: dict[str, Points] = {m: [] for m in MODELS}
    for t in lengths:
        tokens = torch.randint(0, 128, (8, t), generator=torch.Generator().manual_seed(0))
        for m, name in names.items():
            loop = {} if m == "softmax" else {"backend": "scan"}
            model = nn.build(nn.model(name, max_length=t, **loop))
            found[m].append((t, _quickest(functools.partial(model, tokens))))
    return found


def _quickest(work: Callable[[], object], repeats: int = 3) -> float:
    times = []
    with torch.no_grad():
        for _ in range(repeats):
            start = time.process_time()
            work()
            times.append(1e3 * (time.process_time() - start))
    return min(times)


def main(words: Sequence[str]) -> int:
    """Time and write; 2 without a file to write."""
    if len(words) != 1:
        print("usage: python -m vla.claims.latency FILE", file=sys.stderr)
        return 2
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    record = {
        "what": "model latency", "device": provenance.device_name("cpu"), "threads": 1,
        "load_before": load, "points": time_models(), "versions": provenance.versions(),
        "method": "CPU time of one core, least of 3 forward passes; two-layer model of width 128, "
                  "batch 8, token loops",
        "commit": provenance.commit(), "date": str(date.today()),
    }  # fmt: skip
    Path(words[0]).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
