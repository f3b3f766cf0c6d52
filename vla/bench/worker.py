"""One shape, one process: warm everything up, wait for the word, measure, print JSON lines.

A process of its own, because an illegal access in one kernel ends every later call of its process,
and because autotuning is best done before anything is timed. Protocol: ``ready`` is printed after
the warm-up; measuring starts when a line arrives on standard input.
"""

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import torch

from vla.bench.analysis import bisect, bracket
from vla.bench.cases import Method, Shape, lengths_of, make_inputs, methods_named, traffic
from vla.bench.measure import passes, peak_bytes, time_call

OURS, FLASH = "vla triton bf16", "softmax attention bf16"


def calls(
    method: Method, shape: Shape, tokens: int, device: str
) -> dict[str, Callable[[], object]]:
    """The passes of a method, ready to call."""
    inputs = make_inputs(shape, tokens, method.dtype, device)
    found = passes(method.build(inputs), list(inputs))
    return found if method.backward else {"forward": found["forward"]}


def say(**message: Any) -> None:
    """One JSON line to the parent."""
    print(json.dumps(message), flush=True)


def warm_up(chosen: tuple[Method, ...], shape: Shape, lengths: tuple[int, ...], device: str) -> set:
    """Compile and autotune at a short and a middling length; the names of those that fail."""
    failed = set()
    for method in chosen:
        own = lengths_of(method, lengths)
        for tokens in sorted({own[0], own[len(own) // 2]} if own and method.needs_gpu else ()):
            try:
                for call in calls(method, shape, tokens, device).values():
                    call()
                    _synchronize(device)
            except Exception as error:
                say(left_out=f"{method.name} at {shape.name} T{tokens}", why=_short(error))
                failed.add(method.name)
                break
    return failed


def measure(
    method: Method, shape: Shape, tokens: int, device: str, bytes_per_s: float
) -> list[dict[str, Any]]:
    """A row for every pass."""
    return [
        _row(method, shape, tokens, name, call, device, bytes_per_s)
        for name, call in calls(method, shape, tokens, device).items()
    ]


def _row(
    method: Method,
    shape: Shape,
    tokens: int,
    name: str,
    call: Callable[[], object],
    device: str,
    bytes_per_s: float,
) -> dict[str, Any]:
    timing = time_call(call, device, 60.0)
    floor_ms = traffic(shape, tokens, method.dtype, name != "forward") / bytes_per_s * 1e3
    return {
        "method": method.name,
        "shape": shape.name,
        **shape._asdict(),
        "tokens": tokens,
        "dtype": str(method.dtype).removeprefix("torch."),
        "pass": name,
        **timing._asdict(),
        "tokens_per_s": shape.batch * tokens / (timing.median_ms / 1e3),
        "floor_fraction": floor_ms / timing.median_ms,
        "peak_bytes": peak_bytes(call) if device == "cuda" else None,
    }


def crossover(rows: list[dict[str, Any]], shape: Shape, which: str) -> dict[str, Any]:
    """Where VLA becomes faster than FlashAttention: a measured bracket, narrowed by measuring."""

    def curve(name: str) -> list[tuple[int, float]]:
        return [
            (r["tokens"], r["median_ms"]) for r in rows if (r["method"], r["pass"]) == (name, which)
        ]

    low, high = bracket(curve(OURS), curve(FLASH))
    if low is not None and high is not None:
        ours, theirs = methods_named([OURS])[0], methods_named([FLASH])[0]

        def faster(tokens: int) -> bool:
            times = [
                time_call(calls(m, shape, tokens, "cuda")[which], "cuda").median_ms
                for m in (ours, theirs)
            ]
            return times[0] < times[1]

        low, high = bisect(low, high, faster)
    return {"shape": shape.name, "pass": which, "slower_at": low, "faster_from": high}


def decode(shape: Shape, device: str) -> list[dict[str, Any]]:
    """Latency of one token at batch 1 with the state carried, eager and as a CUDA graph."""
    from vla.ops import decode_step, vla_attention

    inputs = make_inputs(shape._replace(batch=1), 64, torch.bfloat16, device)
    q, k, v, beta = (x.detach() for x in inputs)
    _, state = vla_attention(q, k, v, None, beta, output_final_state=True)
    token = (q[:, 0], k[:, 0], v[:, 0], None, beta[:, 0])
    found = []
    for backend in ("triton", "scan", "chunk") if device == "cuda" else ("scan", "chunk"):

        def step(backend: str = backend) -> object:
            return decode_step(*token, state, backend=backend)

        found.append(_decode_row(backend, shape, step, device))
        if device == "cuda" and backend == "triton":
            found.append(_decode_row("triton, CUDA graph", shape, _graphed(step), device))
    return found


def _decode_row(name: str, shape: Shape, step: Callable[[], object], device: str) -> dict[str, Any]:
    timing = time_call(step, device, 50.0)
    return {"method": name, "heads": shape.heads, "width": shape.width, **timing._asdict()}


def _graphed(step: Callable[[], object]) -> Callable[[], object]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def _synchronize(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def _short(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return f"{type(error).__name__}: {lines[0][:160]}"


def work(args: argparse.Namespace) -> None:
    """Warm up, wait, measure."""
    shape = Shape(*args.shape)
    lengths, device = tuple(args.lengths), args.device
    chosen = [m for m in methods_named(args.methods) if device == "cuda" or not m.needs_gpu]
    failed = warm_up(tuple(chosen), shape, lengths, device)
    if device == "cuda":
        torch.cuda.empty_cache()
    say(ready=True)
    bytes_per_s = float(sys.stdin.readline())
    rows: list[dict[str, Any]] = []
    for method in chosen:
        if method.name in failed:
            continue
        for tokens in lengths_of(method, lengths):
            try:
                new = measure(method, shape, tokens, device, bytes_per_s)
            except Exception as error:
                say(left_out=f"{method.name} at {shape.name} T{tokens}", why=_short(error))
                if device == "cuda":
                    torch.cuda.empty_cache()
                break
            rows += new
            for row in new:
                say(row=row)
    _extras(args, rows, shape, device)


def _extras(
    args: argparse.Namespace, rows: list[dict[str, Any]], shape: Shape, device: str
) -> None:
    both = {OURS, FLASH} <= {r["method"] for r in rows}
    for which in ("forward", "forward+backward") if both else ():
        say(crossover=crossover(rows, shape, which))
    if device == "cuda":
        torch.cuda.empty_cache()
    if args.decode:
        try:
            for found in decode(shape, device):
                say(decode=found)
        except Exception as error:
            say(left_out=f"decode at {shape.name}", why=_short(error))


def main() -> None:
    """Command line of a worker; the parent is :mod:`vla.bench.run`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", type=int, nargs=3, required=True)
    parser.add_argument("--lengths", type=int, nargs="+", required=True)
    parser.add_argument("--methods", nargs="*")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--decode", action="store_true")
    work(parser.parse_args())


if __name__ == "__main__":
    main()
