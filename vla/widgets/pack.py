"""A trace as one header and one buffer of float32: everything the browser needs, sent once."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from vla.errors import ArgumentError
from vla.rules import RULES
from vla.trace import Branch, Lane, Trace, describe
from vla.trace.model import FORMATS
from vla.trace.rounding import first_passing

VERSION = 1
MAX_BYTES = 64 * 2**20
"""Default bound on a packed trace; a browser tab takes about three times as much."""
MAX_PAIRS = 512
"""Pairs in the ladder; of more, evenly spaced ones are shown and the picture says so."""
MAX_SENTENCES = 20_000
"""Sentences over all lanes; above it the browser falls back to the numbers alone."""

SCALARS = (
    "delta", "cosine", "norm_S", "norm_A", "norm_M", "norm_error", "norm_dS", "spectral_svd",
    "spectral_closed", "product_norm", "recall_mean", "ridge_distance",
)  # fmt: skip
VECTORS = ("k", "v", "gain", "error", "read")
MATRICES = ("S", "A", "M")

NUMBERS = (
    ("norm_error", "‖e‖", "residual: how far the memory's answer was from the value"),
    ("cosine", "k·α̂", "cosine between the key and the write direction"),
    ("delta", "δ", "1 + u·A u: how new this direction is to the penalty"),
    ("norm_dS", "‖ΔS‖", "size of this write"),
    ("spectral_svd", "‖J‖", "spectral norm of the transition, measured by SVD"),
    ("spectral_closed", "‖J‖ formula", "the same by closed form, from k·α̂"),
    ("recall_mean", "recall error", "mean relative recall error of the stored pairs"),
)
"""The numbers beside each equation: key, symbol, what it is."""

FORK_NUMBERS = (("gap", "‖S−S′‖", "distance of the two branches' memories"),)
"""The number that a fork adds."""

FORK_CURVES = (("gap", "‖S−S′‖", "distance of the two branches' memories: 0 is healed"),)
ROUNDING_CURVES = (
    (
        "rounding", "rounding error",
        "relative distance of S from its float64 run: bfloat16 solid, float32 dotted",
    ),
)  # fmt: skip

CURVES = (
    ("norm_S", "‖S‖", "size of the memory"),
    ("norm_A", "‖A‖", "size of the inverse penalty"),
    ("recall_mean", "recall error", "mean relative recall error of the stored pairs"),
    ("norm_error", "‖e‖", "residual of each write"),
    ("cosine", "k·α̂", "cosine between key and write direction"),
    ("norm_dS", "‖ΔS‖", "size of each write"),
    ("spectral_svd", "‖J‖", "spectral norm of each transition"),
    ("product_norm", "‖J₁…Jₜ‖", "spectral norm of the product of all transitions so far"),
    ("ridge_distance", "from ridge", "relative distance of S from the batch ridge answer"),
)
"""What a curve panel can show: key, symbol, what it is."""

Header = dict[str, Any]


class _Buffer:
    """Arrays laid end to end as float32, with their places."""

    def __init__(self, limit: int) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.limit = limit

    def add(self, array: Any) -> dict[str, Any]:
        with np.errstate(over="ignore"):  # A memory that explodes is drawn as infinite.
            data = np.ascontiguousarray(array, dtype="<f4")
        place = {"offset": self.size, "shape": list(data.shape)}
        self.size += data.nbytes
        if self.size > self.limit:
            raise ArgumentError(
                "trace",
                f"more than {self.limit / 2**20:.0f} MiB of frames",
                f"at most {self.limit} bytes packed",
                "Keep the matrices of fewer steps, or raise max_bytes.",
            )
        self.parts.append(data.tobytes())
        return place

    def add_symmetric(self, array: np.ndarray) -> dict[str, Any]:
        """Upper triangles only, half the bytes, if the matrices are symmetric."""
        if not np.allclose(array, array.mT, rtol=1e-6, atol=1e-9, equal_nan=True):
            return self.add(array)
        rows, columns = np.triu_indices(array.shape[-1])
        place = self.add(array[:, rows, columns])
        return {**place, "shape": list(array.shape), "triangle": True}


def pack(trace: Trace, *, max_bytes: int = MAX_BYTES) -> tuple[Header, bytes]:
    """The trace as a JSON-safe header and one little-endian float32 buffer.

    The header holds the words (tokens, rules, sentences) and, for every array, its byte offset and
    shape; ``triangle`` marks symmetric matrices stored as their upper triangle, row by row.
    Matrices and vectors are there at the trace's kept steps, scalars at every step.

    Raises ``ValueError`` for something that isn't a trace, for a trace without lanes, and for one
    whose frames take more than ``max_bytes``.
    """
    if not isinstance(trace, Trace):
        raise ArgumentError("trace", trace, "a vla.trace.Trace")
    if not trace.lanes:
        raise ArgumentError("trace", "no lanes", "at least one rule", "Choose a rule to trace.")
    buffer = _Buffer(max_bytes)
    shown = _shown_pairs(len(trace.pairs))
    lanes = [
        _pack_lane(trace, lane, name, buffer, shown)
        for lane, name in zip(trace.lanes, lane_ids(trace.lanes), strict=True)
    ]
    _mark_dashes(lanes)
    header = {
        "version": VERSION,
        **_pack_stream(trace),
        **_pack_pairs(trace, shown),
        "lanes": lanes,
        "scales": _scales(trace.lanes),
        "forked_at": trace.forked_at,
        "threshold": trace.threshold,
        "numbers": _rows(*NUMBERS, *(FORK_NUMBERS if trace.forked_at else ())),
        "curves": _rows(
            *CURVES,
            *(FORK_CURVES if trace.forked_at else ()),
            *(ROUNDING_CURVES if trace.threshold else ()),
        ),
    }
    return header, b"".join(buffer.parts)


def blob(trace: Trace, *, max_bytes: int = MAX_BYTES) -> bytes:
    """Header and buffer in one piece: length of the header, the header, padding, the buffer."""
    header, buffer = pack(trace, max_bytes=max_bytes)
    text = json.dumps(header, ensure_ascii=False, allow_nan=False).encode()
    text += b" " * (-(len(text) + 4) % 4)
    return len(text).to_bytes(4, "little") + text + buffer


def unpack(buffer: bytes, place: dict[str, Any]) -> np.ndarray:
    """The array at one place of a packed trace, triangles made whole. For tests and tools."""
    shape = place["shape"]
    stored = shape if not place.get("triangle") else [shape[0], shape[1] * (shape[1] + 1) // 2]
    count = int(np.prod(stored))
    flat = np.frombuffer(buffer, "<f4", count, place["offset"]).reshape(stored)
    if not place.get("triangle"):
        return flat
    whole = np.empty(shape, np.float32)
    rows, columns = np.triu_indices(shape[1])
    whole[:, rows, columns] = flat
    whole[:, columns, rows] = flat
    return whole


def lane_ids(lanes: Iterable[Lane]) -> list[str]:
    """One name per lane: its rule, with a number from the second lane of the same rule on."""
    seen: dict[str, int] = {}
    ids = []
    for lane in lanes:
        seen[lane.rule] = seen.get(lane.rule, 0) + 1
        ids.append(lane.rule if seen[lane.rule] == 1 else f"{lane.rule}-{seen[lane.rule]}")
    return ids


def uneven(trace: Trace) -> bool:
    """Whether one lane's ``S`` would drown another's on the shared linear colour scale (3 : 1)."""
    largest = [float(np.nanmax(np.abs(lane.S), initial=0.0)) for lane in trace.lanes]
    seen = [value for value in largest if value > 0]
    return bool(seen) and max(seen) > 3 * min(seen)


def _rows(*rows: tuple[str, str, str]) -> list[dict[str, str]]:
    return [dict(zip(("key", "symbol", "words"), row, strict=True)) for row in rows]


def _pack_stream(trace: Trace) -> Header:
    stream = trace.stream
    return {
        "name": stream.name,
        "steps": len(trace),
        "d": stream.d,
        "dv": stream.d_v,
        "dtype": trace.dtype,
        "tolerance": trace.tolerance,
        "labels": [str(label) for label in stream.labels],
        "writes": [int(writes) for writes in stream.writes.tolist()],
        "asks": [int(asks) for asks in stream.asks()],
        "remarks": {str(t): words for t, words in enumerate(stream.remarks) if words},
        "expected": _pair_of_each(trace),
        "wanted": _wanted(trace),
    }


def _pair_of_each(trace: Trace) -> list[int]:
    """The token of the pair that each token asks for, or writes."""
    written = trace.stream.writes.tolist()
    return [
        place if place >= 0 or not writes else t
        for t, (place, writes) in enumerate(zip(trace.stream.expected(), written, strict=True))
    ]


def _wanted(trace: Trace) -> dict[str, str]:
    """The word each query should give back, by token."""
    stream = trace.stream
    if stream.vocabulary is None:
        return {}
    words = stream.vocabulary.nearest(stream.v)
    asked = stream.asks()
    return {
        str(t): words[source]
        for t, source in enumerate(stream.expected())
        if asked[t] and source >= 0
    }


def _shown_pairs(count: int) -> np.ndarray:
    return np.unique(np.linspace(0, count - 1, min(count, MAX_PAIRS)).astype(int))


def _pack_pairs(trace: Trace, shown: np.ndarray) -> Header:
    return {
        "pairs": np.asarray(trace.pairs)[shown].tolist(),
        "overwritten_at": np.asarray(trace.overwritten_at)[shown].tolist(),
        "pairs_total": len(trace.pairs),
    }


def _pack_lane(trace: Trace, lane: Lane, name: str, buffer: _Buffer, shown: np.ndarray) -> Header:
    asked = [t + 1 for t, asks in enumerate(trace.stream.asks()) if asks]
    arrays = {key: buffer.add(getattr(lane, key)) for key in SCALARS}
    arrays["kept"] = buffer.add(lane.kept)
    arrays["recall"] = buffer.add(lane.recall[:, shown])
    arrays |= {key: buffer.add(getattr(lane, key)[lane.kept]) for key in VECTORS}
    if _has_matrix(lane):
        arrays["S"] = buffer.add(lane.S)
    for key in ("A", "M"):
        matrix = getattr(lane, key)
        if matrix is not None:
            arrays[key] = buffer.add_symmetric(matrix)
    arrays |= _pack_extras(lane, buffer, shown)
    return {
        "id": name,
        "rule": lane.rule,
        "title": lane.title,
        "colour": lane.colour,
        "equation": lane.equation,
        "settings": {key: str(value) for key, value in lane.settings.items()},
        "has_matrix": _has_matrix(lane),
        "parts_at": lane.parts_at,
        **_pack_answers(lane, asked),
        "branch": None if lane.branch is None else _pack_branch(lane.branch, asked),
        "passes": _passes(trace, lane),
        "sentences": _sentences(trace, lane),
        "arrays": arrays,
    }


def _pack_answers(side: Lane | Branch, asked: list[int]) -> Header:
    return {
        "answers": {str(step): side.answers[step] for step in asked if side.answers[step]},
        "correct": {
            str(step): int(side.correct[step]) for step in asked if side.correct[step] >= 0
        },
    }


def _pack_branch(branch: Branch, asked: list[int]) -> Header:
    """The fork's answers, and what is left of the gap at the end (``null`` without a gap)."""
    left = branch.left if np.isfinite(branch.left) else None
    return {**_pack_answers(branch, asked), "left": left}


def _pack_extras(lane: Lane, buffer: _Buffer, shown: np.ndarray) -> Header:
    """Arrays of a fork and of other number formats, where there are any."""
    arrays = {}
    for name in ("error_float32", "error_bfloat16"):
        if getattr(lane, name) is not None:
            arrays[name] = buffer.add(getattr(lane, name))
    if lane.branch is not None:
        arrays["gap"] = buffer.add(lane.branch.gap)
        arrays["branch_norm_S"] = buffer.add(lane.branch.norm_S)
        arrays["branch_recall_mean"] = buffer.add(lane.branch.recall_mean)
        arrays["branch_recall"] = buffer.add(lane.branch.recall[:, shown])
        if _has_matrix(lane):
            arrays["D"] = buffer.add(lane.branch.D)
    return arrays


def _passes(trace: Trace, lane: Lane) -> dict[str, int | None]:
    """The first step at which each format's error passes the threshold."""
    if trace.threshold is None:
        return {}
    return {name: first_passing(lane, name, trace.threshold) for name in FORMATS}


def _has_matrix(lane: Lane) -> bool:
    """As the rule says; for a lane under a name of its own, whether anything was ever in ``S``."""
    rule = RULES.get(re.sub(r"-\d+$", "", lane.rule))
    return rule.has_matrix if rule is not None else bool(np.any(lane.S))


def _sentences(trace: Trace, lane: Lane) -> list[str]:
    if len(trace) * len(trace.lanes) > MAX_SENTENCES:
        return []
    return [describe(trace, lane, step) for step in range(len(trace))]


def _mark_dashes(lanes: list[Header]) -> None:
    """Solid for the first lane of a colour; dashed for later ones and for published forms."""
    used: dict[str, int] = {}
    for lane in lanes:
        published = any(words in lane["title"] for words in ("as the", "as published", "as run"))
        lane["dash"] = used.get(lane["colour"], int(published))
        used[lane["colour"]] = lane["dash"] + 1


def _scales(lanes: Iterable[Lane]) -> dict[str, float]:
    """Largest absolute entry of M, A and S over every lane and kept step. ΔS shares S's scale."""
    return {key: _largest(getattr(lane, key) for lane in lanes) for key in MATRICES}


def _largest(arrays: Iterator[np.ndarray | None]) -> float:
    finite = (np.abs(a[np.isfinite(a)]) for a in arrays if a is not None and a.size)
    return max((float(a.max()) for a in finite if a.size), default=0.0) or 1.0
