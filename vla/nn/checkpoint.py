"""Models in one file: safetensors weights, the config and notes in its header. No code is run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vla.errors import ArgumentError
from vla.nn.config import ModelConfig
from vla.nn.tinylm import TinyLM

FORMAT = "vla.nn checkpoint 1"


class Checkpoint(NamedTuple):
    """A model and what was written beside it."""

    model: TinyLM
    notes: dict[str, Any]
    """Provenance, as plain values: task, steps, seed, accuracy, device, commit."""


def save(
    model: TinyLM,
    path: str | Path,
    *,
    notes: Mapping[str, Any] | None = None,
    length: int | None = None,
    half: bool = False,
) -> int:
    """Write a model; return the file's size in bytes. The file appears whole or not at all.

    ``length`` cuts the position table to the rows that are used; ``half`` stores float16, half the
    size, read back as float32. Raises ``ValueError`` for notes that JSON can't hold, ``OSError``
    where the path can't be written.
    """
    model = model if length is None else model.cut(length)
    dtype = torch.float16 if half else model.embedding.weight.dtype
    weights = {name: w.to("cpu", dtype).contiguous() for name, w in model.state_dict().items()}
    header = {"format": FORMAT, "config": json.dumps(model.config.as_dict(), sort_keys=True)}
    header["notes"] = _to_json(dict(notes or {}))
    data = _safetensors().save(weights, metadata=header)
    target = Path(path)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.write_bytes(data)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return len(data)


def load(path: str | Path, device: torch.device | str = "cpu") -> Checkpoint:
    """Read what :func:`save` wrote, in float32.

    Raises ``ValueError`` for a file that is missing, damaged, or not a checkpoint of this project.
    """
    header, weights = _read(Path(path))
    try:
        config = ModelConfig(**json.loads(header["config"]))
        model = TinyLM(config)
        model.load_state_dict({name: w.float() for name, w in weights.items()})
        notes = json.loads(header["notes"])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = str(error).splitlines()[0]
        raise ArgumentError(
            "checkpoint", str(path), f"config and weights that fit ({reason})"
        ) from error
    return Checkpoint(model.to(device), notes)


def _read(path: Path) -> tuple[dict[str, str], dict[str, torch.Tensor]]:
    if not path.is_file():
        raise ArgumentError("checkpoint", str(path), "a file that exists")
    library = _safetensors()
    try:
        with library.safe_open(path, framework="pt") as opened:
            header = opened.metadata() or {}
            weights = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except Exception as error:
        wanted = f"a whole safetensors file ({error})"
        raise ArgumentError("checkpoint", str(path), wanted) from error
    if header.get("format") != FORMAT:
        raise ArgumentError("checkpoint", str(path), f"a file whose header says {FORMAT!r}")
    return header, weights


def _to_json(notes: dict[str, Any]) -> str:
    try:
        return json.dumps(notes, sort_keys=True)
    except (TypeError, ValueError) as error:
        raise ArgumentError("notes", notes, f"values that JSON can hold ({error})") from error


def _safetensors() -> Any:
    try:
        import safetensors.torch as library
    except ImportError as error:
        remedy = "Install it: pip install safetensors"
        raise ArgumentError(
            "checkpoint", "no safetensors", "the safetensors package", remedy
        ) from error
    return library
