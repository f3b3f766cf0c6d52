"""A trace in one file, and its scalars as CSV.

The file is a ZIP archive: ``header.json`` (format, version, names and shapes of arrays, everything
that isn't an array, SHA-256 of every array) and one ``.npy`` for each array. Nothing in it is ever
executed: arrays load with ``allow_pickle=False`` and the header is plain JSON.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vla.errors import ArgumentError
from vla.tokens import Stream
from vla.trace.model import Array, Branch, Lane, Trace
from vla.words import Vocabulary

FORMAT = "vla-trace"
VERSION = 1
MAX_FILE = 4 * 2**30
"""A file that unpacks to more than this is refused unread."""

_SCALARS = (
    "delta", "cosine", "norm_S", "norm_A", "norm_M", "norm_error", "norm_dS", "spectral_svd",
    "spectral_closed", "product_norm", "recall_mean", "ridge_distance", "correct",
)  # fmt: skip


def save(trace: Trace, path: str | Path) -> Path:
    """Write the trace to one file, whole or not at all, and return its path.

    Raises ``ValueError`` if the folder doesn't exist or can't be written.
    """
    path = Path(path)
    content = to_bytes(trace)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".trace-")
    except OSError as error:
        raise ArgumentError("path", str(path), "a file in a folder that can be written") from error
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise ArgumentError("path", str(path), f"a file that can be written ({error})") from error
    return path


def load(path: str | Path) -> Trace:
    """Read a trace back, exactly as it was recorded.

    Raises ``ValueError`` for a file that doesn't exist, isn't a trace, is damaged or truncated, or
    comes from a newer version.
    """
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ArgumentError("path", str(path), f"a file that can be read ({error})") from error
    return from_bytes(content, name=str(path))


def to_bytes(trace: Trace) -> bytes:
    """The file's content, for a download."""
    arrays: dict[str, Array] = {}
    header = _flatten(trace, "trace", arrays)
    packed = {name: _npy(array) for name, array in arrays.items()}
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in packed.items()}
    text = json.dumps(
        {"format": FORMAT, "version": VERSION, "sha256": digests, "trace": header},
        ensure_ascii=False,
        default=str,
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", text)
        archive.writestr("header.sha256", hashlib.sha256(text.encode()).hexdigest())
        for name, data in packed.items():
            archive.writestr(f"{name}.npy", data)
    return out.getvalue()


def from_bytes(content: bytes, *, name: str = "trace file") -> Trace:
    """A trace from a file's content, as from an upload. Raises ``ValueError`` like :func:`load`."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return _read(archive, name)
    except ArgumentError:
        raise
    except Exception as error:
        # Whatever a damaged file trips over, the reader gets one clear sentence.
        remedy = "It is damaged, cut short, or something else: save the trace again."
        raise ArgumentError("trace file", name, "a trace saved by vla", remedy) from error


def _read(archive: zipfile.ZipFile, name: str) -> Trace:
    if sum(entry.file_size for entry in archive.infolist()) > MAX_FILE:
        raise ArgumentError("trace file", name, f"a file of at most {MAX_FILE} bytes unpacked")
    text = archive.read("header.json")
    header = json.loads(text)
    if header["format"] != FORMAT:
        raise ArgumentError("trace file", name, "a trace saved by vla")
    if header["version"] > VERSION:
        wanted = f"format version {VERSION} or older, not {header['version']}"
        raise ArgumentError("trace file", name, wanted, "Update vla to read it.")
    _require_digest(name, "header", text, archive.read("header.sha256").decode())
    arrays = {}
    for key, digest in header["sha256"].items():
        data = archive.read(f"{key}.npy")
        _require_digest(name, key, data, digest)
        arrays[key] = np.load(io.BytesIO(data), allow_pickle=False)
    return _trace(header["trace"], arrays)


def _require_digest(name: str, part: str, data: bytes, digest: str) -> None:
    if hashlib.sha256(data).hexdigest() != digest:
        remedy = "The file is damaged: save the trace again."
        raise ArgumentError("trace file", name, f"an undamaged {part}", remedy)


def _flatten(value: Any, name: str, arrays: dict[str, Array]) -> Any:
    """Plain JSON for a dataclass; its arrays go aside under their dotted names."""
    if isinstance(value, torch.Tensor):
        # NumPy has no bfloat16; float32 holds it exactly.
        exact = value.float() if value.dtype == torch.bfloat16 else value
        arrays[name] = exact.numpy()
        return {"tensor": name, "dtype": str(value.dtype).removeprefix("torch.")}
    if isinstance(value, np.ndarray):
        arrays[name] = value
        return {"array": name}
    if dataclasses.is_dataclass(value):
        names = [f.name for f in dataclasses.fields(value)]
        return {key: _flatten(getattr(value, key), f"{name}.{key}", arrays) for key in names}
    if isinstance(value, tuple | list):
        return [_flatten(item, f"{name}.{i}", arrays) for i, item in enumerate(value)]
    if isinstance(value, dict):
        return {"dict": value}
    return value


def _restore(value: Any, arrays: dict[str, Array]) -> Any:
    if isinstance(value, list):
        return tuple(_restore(item, arrays) for item in value)
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        return torch.from_numpy(arrays[value["tensor"]]).to(getattr(torch, value["dtype"]))
    if "array" in value:
        return arrays[value["array"]]
    return value["dict"]


def _fields(record: dict[str, Any], arrays: dict[str, Array]) -> dict[str, Any]:
    return {key: _restore(value, arrays) for key, value in record.items()}


def _trace(header: dict[str, Any], arrays: dict[str, Array]) -> Trace:
    fields = dict(header)
    stream = dict(fields.pop("stream"))
    words = stream.pop("vocabulary")
    vocabulary = None if words is None else Vocabulary(**_fields(words, arrays))
    lanes = tuple(_lane(dict(lane), arrays) for lane in fields.pop("lanes"))
    trace = Trace(
        stream=Stream(vocabulary=vocabulary, **_fields(stream, arrays)),
        lanes=lanes,
        **_fields(fields, arrays),
    )
    trace.stream.check()
    if any(len(lane.norm_S) != len(trace) for lane in lanes):
        raise ArgumentError("trace file", "lanes", f"{len(trace)} rows in every lane")
    return trace


def _lane(record: dict[str, Any], arrays: dict[str, Array]) -> Lane:
    branch = record.pop("branch", None)
    side = None if branch is None else Branch(**_fields(branch, arrays))
    return Lane(branch=side, **_fields(record, arrays))


def _npy(array: Array) -> bytes:
    out = io.BytesIO()
    np.save(out, array, allow_pickle=False)
    return out.getvalue()


def to_csv(trace: Trace, path: str | Path | None = None) -> str:
    """Every lane's scalars as CSV text, one line per lane and step; written to ``path`` if given.

    Numbers keep all digits; what doesn't exist at a step is an empty cell.
    """
    lines = [",".join(("lane", "step", "token", "answer", *_SCALARS))]
    labels = ("", *trace.stream.labels)
    for lane in trace.lanes:
        columns = [getattr(lane, name).tolist() for name in _SCALARS]
        for step, values in enumerate(zip(*columns, strict=True)):
            words = (lane.rule, str(step), labels[step], lane.answers[step])
            cells = [*map(_quoted, words), *map(_cell, values)]
            lines.append(",".join(cells))
    text = "\n".join(lines) + "\n"
    if path is not None:
        Path(path).write_text(text, encoding="utf-8")
    return text


def _cell(value: float) -> str:
    return "" if value != value else repr(value)


def _quoted(text: str) -> str:
    """CSV quoting; a word that a spreadsheet would run as a formula gets an apostrophe."""
    text = f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text
