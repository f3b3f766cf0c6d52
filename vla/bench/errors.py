"""Errors of the kernels against the float64 token loop: ``python -m vla.bench.errors``.

One row per configuration: ``o``, ``S``, ``A`` and every gradient, relative by norm.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from vla.bench.record import write
from vla.bench.run import head
from vla.ops import VLAState, vla_attention
from vla.typing import Tensor

EPSILON = torch.finfo(torch.float32).eps
BOUNDS = {"auto": 1e-5, "ieee": 1e-5, "tf32x3": 1e-5, "tf32": 2e-3}
HALF = {torch.bfloat16: 1e-2, torch.float16: 2e-3}
F32, BF16 = torch.float32, torch.bfloat16


def configurations() -> Iterator[dict[str, Any]]:
    """Ragged lengths, rules, kinds of keys, precisions, widths."""
    for tokens in (1, 2, 15, 16, 17, 63, 64, 65, 100, 1000, 4097):
        for dtype in (F32, BF16):
            yield {"tokens": tokens, "dtype": dtype}
    for gain in ("unit", "rls", "oblique"):
        for refresh in (0, 7, 20):
            for dtype in (F32, BF16):
                yield {"gain": gain, "refresh_every": refresh, "dtype": dtype, "own_u": True}
    for kind in ("gaussian", "near_duplicates", "repeated", "zero_u", "beta_zero", "beta_one"):
        for lambda0 in (1e-3, 0.1, 10.0):
            yield {"kind": kind, "lambda0": lambda0, "tokens": 200}
    kinds = ((BF16, "auto"), (torch.float16, "auto"), (F32, "auto"), (F32, "tf32"))
    for width in (16, 32, 64, 128):
        for dtype, precision in kinds:
            yield {"width": width, "dtype": dtype, "precision": precision, "tokens": 300}
    for lambda0 in (1e-3, 0.1, 10.0):
        yield {"kind": "repeated", "tokens": 10_000, "lambda0": lambda0, "gradients": False}


def bound_of(kind: str, dtype: torch.dtype, precision: str, tokens: int, lambda0: float) -> float:
    """The promised bound; where M is ill conditioned, float32's own limit ``4 ε T/λ0``."""
    base = HALF.get(dtype, BOUNDS[precision])
    hard = lambda0 < 0.1 or kind in ("near_duplicates", "repeated")
    return max(base, 4 * EPSILON * tokens / lambda0) if hard else base


def errors_of(
    device: str,
    *,
    tokens: int = 100,
    width: int = 32,
    dtype: torch.dtype = F32,
    precision: str = "auto",
    kind: str = "gaussian",
    lambda0: float = 0.1,
    own_u: bool = False,
    gradients: bool = True,
    **rule: Any,
) -> dict[str, float]:
    """Relative errors of one configuration."""
    inputs = _draw(kind, tokens, width, own_u, dtype)
    options = {"lambda0": lambda0, **rule}
    wanted = _run({n: x.double() for n, x in inputs.items()}, gradients, backend="scan", **options)
    moved = {n: x.to(device) for n, x in inputs.items()}
    got = _run(moved, gradients, backend="triton", precision=precision, **options)
    return {name: _relative(got[name], wanted[name]) for name in wanted}


def _draw(kind: str, tokens: int, width: int, own_u: bool, dtype: torch.dtype) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(tokens + width)

    def draw(*axes: int) -> Tensor:
        return torch.randn(*axes, generator=generator, dtype=torch.float64)

    k = draw(1, tokens, 2, width)
    if kind in ("near_duplicates", "repeated"):
        noise = 0.01 * k if kind == "near_duplicates" else 0 * k
        k = F.normalize(draw(1, 1, 2, width), dim=-1) + noise
    gate = torch.sigmoid(draw(1, tokens, 2))
    gate = {"beta_zero": 0 * gate, "beta_one": 0 * gate + 1}.get(kind, gate)
    found = {
        "q": F.normalize(draw(1, tokens, 2, width), dim=-1),
        "k": F.normalize(k, dim=-1),
        "v": draw(1, tokens, 2, width),
        "beta": gate,
    }
    if own_u or kind == "zero_u":
        found["u"] = F.normalize(draw(1, tokens, 2, width), dim=-1) * (kind != "zero_u")
    return {name: x.to(dtype) for name, x in found.items()}


def _run(inputs: dict[str, Tensor], gradients: bool, **options: Any) -> dict[str, Tensor]:
    leaves = {name: x.detach().requires_grad_(gradients) for name, x in inputs.items()}
    o, state = vla_attention(**leaves, output_final_state=True, **options)  # type: ignore[arg-type]
    assert isinstance(state, VLAState)
    assert state.A is not None
    found = {"o": o, "S": state.S, "A": state.A}
    if gradients:
        weights = [_cotangent(x, i) for i, x in enumerate(found.values())]
        outputs = list(found.values())
        given = torch.autograd.grad(outputs, list(leaves.values()), weights, allow_unused=True)
        for (name, leaf), gradient in zip(leaves.items(), given, strict=True):
            found[f"d{name}"] = torch.zeros_like(leaf) if gradient is None else gradient
    return {name: x.detach().double().cpu() for name, x in found.items()}


def _cotangent(like: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(like.shape, generator=generator, dtype=torch.float64)
    return x.to(like.dtype).to(like.device)


def _relative(got: Tensor, wanted: Tensor) -> float:
    scale = float(wanted.norm())
    return float((got - wanted).norm()) / (scale if scale > 1e-12 else 1.0)


def row_of(configuration: dict[str, Any], device: str) -> dict[str, Any]:
    """A row of the record."""
    given = dict(configuration)
    full: dict[str, Any] = {
        "kind": "gaussian",
        "precision": "auto",
        "tokens": 100,
        "lambda0": 0.1,
        "dtype": F32,
    }
    full |= given
    names = ("kind", "dtype", "precision", "tokens", "lambda0")
    bound = bound_of(**{name: full[name] for name in names})
    words = {n: str(x).removeprefix("torch.") for n, x in full.items() if n != "gradients"}
    return {
        "case": ", ".join(f"{n} {x}" for n, x in words.items() if n not in ("dtype", "precision")),
        "dtype": words["dtype"],
        "precision": words["precision"],
        "bound": bound,
        "errors": {n: float(f"{e:.3g}") for n, e in errors_of(device, **given).items()},
    }


def main() -> int:
    """Measure every configuration (or every n-th, for several processes), print, record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--commit")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"))
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.set_num_threads(1)
    rows = []
    for configuration in list(configurations())[args.part[0] :: args.part[1]]:
        row = row_of(configuration, device)
        rows.append(row)
        worst = max(row["errors"].values())
        mark = "" if worst <= row["bound"] else "  ABOVE"
        what = f"{row['case']}, {row['dtype']} {row['precision']}"
        print(f"{what}: {worst:.1e} of {row['bound']:.1e}{mark}", flush=True)
    record = {**head("errors", device, args.commit), "left_out": [], "rows": rows}
    record["method"] = "‖kernel − loop‖ / ‖loop‖, the loop in float64 on a CPU, same rounded inputs"
    if args.output:
        write(args.output, record)
    return int(any(max(r["errors"].values()) > r["bound"] for r in rows))


if __name__ == "__main__":
    raise SystemExit(main())
