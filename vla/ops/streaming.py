"""Ten million tokens through a state: ``python -m vla.ops.streaming --tokens 10000000``.

Pushes random tokens through :func:`vla.ops.vla_attention` piece by piece, handing the state on, and
at each power of ten looks at it: finite, ``A`` symmetric, its smallest eigenvalue above zero, its
distance from the exact float64 inverse penalty, and the memory in use. Without refresh that inverse
is ``(λ0 I + Σ u uᵀ)⁻¹``, summed in float64; with refresh, float64 inverses are taken at every one.
"""

import argparse
import ctypes
import json
import os
import resource
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

import torch
import torch.nn.functional as F

from vla import provenance
from vla.errors import ArgumentError, require_integer
from vla.ops.api import vla_attention
from vla.ops.backend import choose_backend
from vla.ops.state import VLAState
from vla.typing import Float, Tensor


@dataclass(frozen=True)
class Settings:
    """One stream."""

    tokens: int = 1_000_000
    piece: int = 65_536
    batch: int = 1
    heads: int = 1
    width: int = 16
    lambda0: float = 0.1
    gain: str = "unit"
    refresh_every: int = 0
    refresh_eps: float = 1e-3
    backend: str = "auto"
    device: str = "cpu"
    seed: int = 0


@dataclass(frozen=True)
class Reading:
    """The state after so many tokens. Distances are relative, in the Frobenius norm."""

    tokens: int
    finite: bool
    asymmetry: float
    smallest_eigenvalue: float
    largest_eigenvalue: float
    distance: float
    memory_norm: float
    memory_mib: float
    seconds: float

    @property
    def sound(self) -> bool:
        """Finite, and ``A`` symmetric and positive definite."""
        return self.finite and self.asymmetry <= 1e-6 and self.smallest_eigenvalue > 0


class ExactInverse:
    """The inverse penalty in float64, by formulas that no backend uses. Lives on the CPU."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        heads = settings.batch * settings.heads
        self.eye = torch.eye(settings.width, dtype=torch.float64)
        self.penalty = (settings.lambda0 * self.eye).repeat(heads, 1, 1)
        self.step = 0

    def add(self, u: Float[Tensor, "b t h d"]) -> None:
        """Take in the directions of a piece."""
        rows = u.detach().cpu().double().transpose(1, 2).flatten(0, 1)
        every = self.settings.refresh_every
        while rows.shape[1]:
            room = every - self.step % every if every else rows.shape[1]
            part, rows = rows[:, :room], rows[:, room:]
            self.penalty = self.penalty + part.mT @ part
            self.step += part.shape[1]
            if every and self.step % every == 0:
                refreshed = torch.linalg.inv(self.penalty) + self.settings.refresh_eps * self.eye
                self.penalty = torch.linalg.inv(refreshed)

    def inverse(self) -> Float[Tensor, "n d d"]:
        """``A`` as it should be."""
        return torch.linalg.inv(self.penalty)


def stream(settings: Settings) -> Iterator[Reading]:
    """Readings at 100, 1 000, … and at the last token. Raises ``ArgumentError`` on bad settings."""
    require_integer("tokens", settings.tokens, low=1)
    require_integer("piece", settings.piece, low=1)
    generator = _generator(settings)
    exact, state, finite = ExactInverse(settings), None, True
    started = time.perf_counter()
    for piece, due in _pieces(settings.tokens, settings.piece):
        q, k, v = _draw(piece, settings, generator)
        o, state = _push(q, k, v, state, settings)
        exact.add(k)
        finite = finite and bool(torch.isfinite(o).all())
        if due:
            yield _read(state, exact.inverse(), finite, time.perf_counter() - started, settings)


def _generator(settings: Settings) -> torch.Generator:
    try:
        return torch.Generator(settings.device).manual_seed(settings.seed)
    except RuntimeError as error:
        reason = str(error).partition(". ")[0] + "."
        raise ArgumentError("device", settings.device, "a device that torch has", reason) from error


def _pieces(tokens: int, piece: int) -> Iterator[tuple[int, bool]]:
    """Sizes of the pieces, cut at each power of ten from 100, and whether a reading is due."""
    done, decade = 0, 100
    while done < tokens:
        stop = min(decade, tokens)
        size = min(piece, stop - done)
        done += size
        yield size, done == stop
        if done == decade:
            decade *= 10


def _draw(tokens: int, settings: Settings, generator: torch.Generator) -> list[Tensor]:
    """Unit queries and keys, values of about unit length."""
    shape = (3, settings.batch, tokens, settings.heads, settings.width)
    q, k, v = torch.randn(shape, generator=generator, device=settings.device)
    return [F.normalize(q, dim=-1), F.normalize(k, dim=-1), v / settings.width**0.5]


@torch.no_grad()
def _push(
    q: Tensor, k: Tensor, v: Tensor, state: VLAState | None, settings: Settings
) -> tuple[Tensor, VLAState]:
    o, after = vla_attention(
        q, k, v,
        lambda0=settings.lambda0, gain=settings.gain,
        refresh_every=settings.refresh_every, refresh_eps=settings.refresh_eps,
        initial_state=state, output_final_state=True, backend=settings.backend,
    )  # fmt: skip
    assert after is not None
    return o, after


def _read(
    state: VLAState, exact: Tensor, finite: bool, seconds: float, settings: Settings
) -> Reading:
    S, A = (x.double().cpu().flatten(0, 1) for x in state[:2])  # type: ignore[union-attr]
    finite = finite and bool(torch.isfinite(S).all() and torch.isfinite(A).all())
    eigenvalues = torch.linalg.eigvalsh(A) if finite else A.new_full((1,), float("nan"))
    return Reading(
        tokens=state.step,
        finite=finite,
        asymmetry=float((A - A.mT).norm() / A.norm()),
        smallest_eigenvalue=float(eigenvalues.min()),
        largest_eigenvalue=float(eigenvalues.max()),
        distance=float(((A - exact).flatten(1).norm(dim=1) / exact.flatten(1).norm(dim=1)).max()),
        memory_norm=float(S.flatten(1).norm(dim=1).max()),
        memory_mib=_memory(settings.device),
        seconds=seconds,
    )


def _memory(device: str) -> float:
    """MiB: the peak allocated on a GPU; what the process holds now on Linux; elsewhere its peak.

    The C library keeps freed pages for itself, so glibc is asked to give them back first.
    """
    if torch.device(device).type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    return pages * resource.getpagesize() / 2**20


def _print(reading: Reading) -> None:
    print(
        f"{reading.tokens:>10}  {'yes' if reading.sound else 'NO':>5}"
        f"{reading.smallest_eigenvalue:>12.3e}{reading.largest_eigenvalue:>12.3e}"
        f"{reading.asymmetry:>11.1e}{reading.distance:>11.1e}{reading.memory_norm:>8.2f}"
        f"{reading.memory_mib:>9.0f}{reading.seconds:>9.1f}",
        flush=True,
    )


def _run(settings: Settings) -> dict[str, object]:
    """Stream, print the table, and return what a file should hold."""
    _generator(settings)
    sample = torch.empty(1, settings.piece, 1, settings.width, device=settings.device)
    backend, reason = choose_backend(sample, sample, settings.backend)
    period = f"refresh every {settings.refresh_every}" if settings.refresh_every else "no refresh"
    print(f"\n{period}; d = {settings.width}, λ0 = {settings.lambda0:g}, {backend} ({reason})")
    print(
        f"{'tokens':>10}  {'sound':>5}{'min eig A':>12}{'max eig A':>12}{'asymmetry':>11}"
        f"{'distance':>11}{'‖S‖':>8}{'MiB':>9}{'seconds':>9}"
    )
    readings = []
    for reading in stream(settings):
        _print(reading)
        readings.append(asdict(reading))
    return {"settings": asdict(settings), "backend": backend, "readings": readings}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m vla.ops.streaming", description=(__doc__ or "").split("\n\n")[1]
    )
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--piece", type=int, default=Settings.piece, help="tokens per call")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=1)
    parser.add_argument("--width", type=int, default=Settings.width, help="of keys and values")
    parser.add_argument("--lambda0", type=float, default=Settings.lambda0)
    parser.add_argument("--gain", default=Settings.gain)
    parser.add_argument("--refresh", type=int, nargs="+", default=[0, 20], help="periods to try")
    parser.add_argument("--refresh-eps", type=float, default=Settings.refresh_eps)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, help="also write the readings to this file")
    return parser


def _provenance(device: str) -> dict[str, object]:
    """Device, versions and commit as the run starts; the load, for ``seconds`` depend on it."""
    return {
        "device": provenance.device_name(device if device.startswith("cuda") else "cpu"),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "date": str(date.today()),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run each period; 1 if some state was not sound, 2 on a bad argument."""
    parser = _parser()
    options = vars(parser.parse_args(arguments))
    periods, path = options.pop("refresh"), options.pop("json")
    try:
        _generator(Settings(**options))
        record = {"what": "streaming", **_provenance(options["device"])}
        runs = [_run(Settings(**options, refresh_every=period)) for period in periods]
    except ValueError as error:
        parser.error(str(error))
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**record, "runs": runs}, indent=1) + "\n")
    sound = all(
        Reading(**reading).sound
        for run in runs
        for reading in run["readings"]  # type: ignore[attr-defined]
    )
    return 0 if sound else 1


if __name__ == "__main__":
    raise SystemExit(main())
