"""The operations on a CPU: ``python -m vla.bench.cpu``.

Three questions. How long is a training step of TinyLM on MQAR (n = 8, T = 25, batch 64, two layers,
width 128, four heads), data, clipping and optimiser included? How many times faster than the token
loop is the chunk form at T = 4 096? Up to how many tokens is the loop the faster one, which is
where ``backend="auto"`` changes over? Times count only when the load is low: it is printed.
"""

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from vla import provenance, tasks
from vla.nn import model
from vla.ops import vla_attention
from vla.train import RunConfig
from vla.train.loop import Trainer
from vla.typing import Tensor

MODELS = ("softmax", "linear", "delta", "vla_paper", "vla_authors", "vla_exact")
SHAPES = ((1, 1, 32), (1, 4, 32), (1, 4, 64), (8, 4, 32))
SHORT = (1, 2, 4, 8, 16)


def milliseconds(work: Callable[[], object], repeats: int, warmup: int = 2) -> dict[str, float]:
    """Median and quickest wall time of ``work``."""
    for _ in range(warmup):
        work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - start))
    return {"median_ms": statistics.median(times), "quickest_ms": min(times)}


def training_step(name: str, repeats: int) -> dict[str, Any]:
    """One step of the named model as ``vla sweep`` takes it."""
    task = tasks.make("mqar_authors", pairs=8)
    trainer = Trainer(RunConfig(model(name), task, steps=2 * repeats + 10))

    def step() -> None:
        trainer.train_step()
        trainer.optimizer.zero_grad()

    return {"what": "MQAR step", "model": name, **milliseconds(step, repeats, warmup=4)}


def operation(
    backend: str, shape: tuple[int, int, int], tokens: int, refresh_every: int, repeats: int
) -> dict[str, Any]:
    """Forward alone, and forward with backward, of ``shape`` = (batch, heads, width)."""
    sequences, weight = _sequences(shape, tokens)
    options: dict[str, Any] = {"backend": backend, "refresh_every": refresh_every}

    def forward() -> None:
        with torch.no_grad():
            vla_attention(*sequences, **options)

    def both() -> None:
        o, _ = vla_attention(*sequences, **options)
        torch.autograd.grad(o, sequences, weight)

    few = max(1, repeats // 10) if backend == "scan" and tokens > 100 else repeats
    return {
        "what": "vla_attention", "backend": backend, "shape": shape, "tokens": tokens,
        "refresh_every": refresh_every,
        "forward": milliseconds(forward, few, warmup=min(2, few)),
        "both": milliseconds(both, few, warmup=min(1, few)),
    }  # fmt: skip


def _sequences(shape: tuple[int, int, int], tokens: int) -> tuple[list[Tensor], Tensor]:
    (batch, heads, width), generator = shape, torch.Generator().manual_seed(0)
    drawn = torch.randn(5, batch, tokens, heads, width, generator=generator)
    q, k, v, u, weight = F.normalize(drawn, dim=-1)
    return [x.clone().requires_grad_() for x in (q, k, v, u)], weight


def _steps(repeats: int) -> list[dict[str, Any]]:
    print("\nMQAR training step, n = 8, T = 25, batch 64, 2 layers, width 128, 4 heads")
    print(f"{'model':<14}{'median ms':>10}{'quickest':>10}")
    rows = []
    for name in MODELS:
        row = training_step(name, repeats)
        print(f"{name:<14}{row['median_ms']:>10.1f}{row['quickest_ms']:>10.1f}", flush=True)
        rows.append(row)
    return rows


def _against_the_loop(repeats: int) -> list[dict[str, Any]]:
    print("\nT = 4 096, milliseconds (median): forward, and forward with backward")
    print(f"{'B H d':<10}{'refresh':>8}{'loop':>18}{'chunk':>18}{'times':>14}")
    rows = []
    for shape in SHAPES:
        for refresh in (0, 20):
            pair = [operation(name, shape, 4096, refresh, repeats) for name in ("scan", "chunk")]
            loop, chunk = ([row[part]["median_ms"] for part in ("forward", "both")] for row in pair)
            print(
                f"{' '.join(map(str, shape)):<10}{refresh:>8}{loop[0]:>9.0f}{loop[1]:>9.0f}"
                f"{chunk[0]:>9.1f}{chunk[1]:>9.1f}"
                f"{loop[0] / chunk[0]:>7.0f}{loop[1] / chunk[1]:>7.0f}",
                flush=True,
            )
            rows += pair
    return rows


def _short_calls(repeats: int) -> list[dict[str, Any]]:
    print("\nShort calls, B 8 H 4 d 32, microseconds (median): forward, forward with backward")
    print(f"{'T':<6}{'loop':>18}{'chunk':>18}")
    rows = []
    for tokens in SHORT:
        pair = [operation(name, (8, 4, 32), tokens, 0, 3 * repeats) for name in ("scan", "chunk")]
        cells = [1e3 * row[part]["median_ms"] for row in pair for part in ("forward", "both")]
        print(f"{tokens:<6}" + "".join(f"{cell:>9.0f}" for cell in cells), flush=True)
        rows += pair
    return rows


PARTS = {"steps": _steps, "loop": _against_the_loop, "short": _short_calls}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the tables, and write them where ``--json`` says."""
    parser = argparse.ArgumentParser(
        prog="python -m vla.bench.cpu", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--repeats", type=int, default=20, help="runs per number (default 20)")
    parser.add_argument("--only", choices=PARTS, help="one of the three tables")
    parser.add_argument("--json", type=Path, help="also write every number to this file")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    device = provenance.device_name("cpu")
    threads = torch.get_num_threads()
    print(f"{device}, {threads} threads, torch {torch.__version__}, load {load:.2f}")
    parts = [options.only] if options.only else list(PARTS)
    rows = [row for part in parts for row in PARTS[part](options.repeats)]
    if options.json is not None:
        record = {"what": "cpu", "device": device, "threads": threads, "load_before": load}
        record |= {"versions": provenance.versions(), "commit": provenance.commit()}
        record |= {"date": str(date.today()), "rows": rows}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(record, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
