"""Where a number came from: device, versions, commit."""

from __future__ import annotations

import functools
import platform
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import torch

import vla


def device_name(device: torch.device | str) -> str:
    """The device as people name it: ``NVIDIA H200`` or the processor's model."""
    device = torch.device(device)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()


@functools.cache
def versions() -> dict[str, str]:
    """Versions of what computes: vla, Python, torch, triton and CUDA where they are there."""
    found = {
        "vla": vla.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    if torch.version.cuda:
        found["cuda"] = torch.version.cuda
    with suppress(metadata.PackageNotFoundError):
        found["triton"] = metadata.version("triton")
    return found


@functools.cache
def commit() -> str:
    """The checkout's commit, ``+`` appended if files differ from it; ``""`` outside a checkout."""
    folder = Path(__file__).resolve().parent.parent
    head = _git(folder, "rev-parse", "HEAD")
    return head + ("+" if head and _git(folder, "status", "--porcelain", "--", "vla") else "")


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@functools.cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine() or "CPU"
