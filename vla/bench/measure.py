"""Timing: medians and spread, by CUDA events on a GPU and by the clock on a CPU."""

import time
from collections.abc import Callable
from typing import NamedTuple

import torch

from vla.typing import Tensor


class Timing(NamedTuple):
    """Milliseconds: median, and the 20 % and 80 % quantiles of ``repeats`` calls."""

    median_ms: float
    low_ms: float
    high_ms: float
    repeats: int


def time_call(call: Callable[[], object], device: str, budget_ms: float = 150.0) -> Timing:
    """Time ``call`` as often as fits the budget, between 3 and 100 times, after a warm-up.

    On a GPU the caches are flushed before every call, and calls are queued back to back, so launch
    overhead counts where it is longer than the work.
    """
    clock = _gpu_times if device == "cuda" else _cpu_times
    call()
    once = clock(call, 1)[0]
    repeats = int(min(100, max(3, budget_ms / max(once, 1e-3))))
    times = torch.tensor(clock(call, repeats), dtype=torch.float64)
    low, median, high = (float(times.quantile(q)) for q in (0.2, 0.5, 0.8))
    return Timing(median, low, high, repeats)


def _cpu_times(call: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append((time.perf_counter() - start) * 1e3)
    return times


def _gpu_times(call: Callable[[], object], repeats: int) -> list[float]:
    flush = torch.empty(256 * 1024 * 1024 // 4, dtype=torch.int32, device="cuda")
    marks = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(repeats)]
    for start, end in marks:
        flush.zero_()
        start.record()
        call()
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) for start, end in marks]


def peak_bytes(call: Callable[[], object]) -> int:
    """Device memory that one call needs above what is allocated before it."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = call()
    torch.cuda.synchronize()
    del result
    return torch.cuda.max_memory_allocated() - before


def bandwidth(device: str) -> float:
    """Bytes a second of a large copy, read and written bytes both counted."""
    count = 2**30 if device == "cuda" else 2**26
    source = torch.ones(count // 4, device=device)
    target = torch.empty_like(source)
    timing = time_call(lambda: target.copy_(source), device)
    return 2 * count / (timing.median_ms / 1e3)


def passes(forward: Callable[[], Tensor], leaves: list[Tensor]) -> dict[str, Callable[[], object]]:
    """The forward pass without gradients, and forward with backward."""
    with torch.no_grad():
        cotangent = torch.ones_like(forward())

    def alone() -> Tensor:
        with torch.no_grad():
            return forward()

    def both() -> object:
        return torch.autograd.grad(forward(), leaves, cotangent, allow_unused=True)

    return {"forward": alone, "forward+backward": both}
