"""``record``: several rules, one stream, one clock."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, SupportsIndex

import numpy as np
import torch

import vla
from vla.errors import ArgumentError, require_integer, require_positive
from vla.rules import Rule, make
from vla.tokens import Stream
from vla.trace.block import Runner
from vla.trace.model import Array, Lane, Trace
from vla.trace.tape import Clock, Tape, nan_rows
from vla.typing import Tensor

MAX_LANES = 16
LANES_AT_ONCE = 2
"""Threads: a lane is half Python, half matrix work that lets another lane run."""
MAX_CACHE_TOKENS = 10_000
MAX_ROW_BYTES = 2 * 2**30
DTYPES = (torch.float64, torch.float32, torch.bfloat16)

Rules = str | Rule | Iterable[str | Rule] | Mapping[str, Rule]


@torch.no_grad()
def record(
    rules: Rules,
    stream: Stream,
    *,
    keep: int | Iterable[SupportsIndex] | None = None,
    dtype: torch.dtype = torch.float64,
    tolerance: float = 1e-6,
    max_bytes: int = 256 * 2**20,
) -> Trace:
    """Run the rules over the stream and record every step.

    ``rules`` are names, rule objects, or a mapping from lane names to rules; the same rule may come
    twice with other settings (lanes ``vla`` and ``vla-2``). A query doesn't step a rule: the memory
    stays, the read is recorded. Rules run in ``dtype``; everything is stored and measured in
    float64.

    Matrices, spectra, recall and the ridge answer are taken at the kept steps: every step while
    they fit into ``max_bytes`` for all lanes together, else as many as fit, evenly spaced (``keep``
    asks for so many, or for these steps). Elsewhere they are NaN. Vectors and scalars are there
    for every step and take ``8 T (4 d + 3 d_v + 12)`` bytes a lane besides, 2 GiB at most in all.

    The ridge answer is ``argmin_S Σ w ‖v − S k‖² + λ0 ‖S‖²`` over the pairs written so far, with
    the rule's own keys, its ``weight_of`` (1 unless the rule weighs pairs by β) and its ``lambda0``
    (0.1 if it has none), solved afresh at each kept step.

    Raises ``ValueError`` for no rules, an unknown one, more than 16, an empty or NaN stream, steps
    out of range, a memory bound too small for two steps, more than 2 GiB of vectors, a dtype that
    isn't float64, float32 or bfloat16, or softmax attention on more than 10 000 tokens (its cache
    grows).
    """
    stream.check()
    lanes = lane_rules(rules)
    if dtype not in DTYPES:
        raise ArgumentError("dtype", dtype, "one of " + ", ".join(map(str, DTYPES)))
    require_positive("tolerance", tolerance)
    _require_cache_fits(lanes, stream)
    _require_rows_fit(len(lanes), stream)
    pairs = stream.writes.nonzero()[:, 0]
    kept = _kept_steps(stream, len(lanes), len(pairs), keep, max_bytes)
    replaced = _overwritten_at(stream, pairs)
    clock = Clock(stream, pairs, replaced, kept)
    titles = _titles(lanes)
    with ThreadPoolExecutor(max_workers=LANES_AT_ONCE) as pool:
        recorded = list(pool.map(lambda rule: _tape(rule, clock, dtype), lanes.values()))
    return Trace(
        stream=stream,
        lanes=tuple(
            _lane(name, titles[name], tape, tolerance)
            for name, tape in zip(lanes, recorded, strict=True)
        ),
        pairs=pairs.numpy(),
        overwritten_at=replaced,
        dtype=str(dtype).removeprefix("torch."),
        tolerance=tolerance,
        made_by=_provenance(),
    )


def lane_rules(rules: Rules) -> dict[str, Rule]:
    """Lane names to rules. A rule that comes again gets ``-2``, ``-3``, …"""
    if isinstance(rules, Mapping):
        named = [(str(name), _as_rule(rule)) for name, rule in rules.items()]
    else:
        listed = [rules] if isinstance(rules, str | Rule) else list(rules)
        named = [(rule.name, rule) for rule in map(_as_rule, listed)]
    if not 1 <= len(named) <= MAX_LANES:
        raise ArgumentError("rules", f"{len(named)} rules", f"1 to {MAX_LANES} of them")
    lanes: dict[str, Rule] = {}
    for name, rule in named:
        lane, count = name, 1
        while lane in lanes:
            count += 1
            lane = f"{name}-{count}"
        lanes[lane] = rule
    return lanes


def _tape(rule: Rule, clock: Clock, dtype: torch.dtype) -> Tape:
    for looped in (False, True):
        runner = Runner(rule, clock.stream, clock.pairs, dtype, looped)
        tape = Tape(rule, runner, clock)
        tape.roll(runner)
        if runner.batches:
            break
    return tape


def _lane(name: str, title: str, tape: Tape, tolerance: float) -> Lane:
    rule, clock = tape.rule, tape.clock
    apart = np.flatnonzero(tape.rows["ridge_distance"] > tolerance)
    answers, correct = _decode(clock, tape.rows["read"])
    return Lane(
        rule=name, title=title, colour=rule.colour, equation=rule.equation,
        settings=rule.settings, kept=clock.kept, recall=tape.recall,
        recall_mean=_live_mean(clock, tape.recall),
        parts_at=int(apart[0]) if len(apart) else None,
        answers=answers, correct=correct, **tape.matrices, **tape.rows,
    )  # fmt: skip


def _decode(clock: Clock, read: Array) -> tuple[tuple[str, ...], Array]:
    vocabulary, correct = clock.stream.vocabulary, np.full(clock.n, -1, dtype=np.int64)
    if vocabulary is None:
        return ("",) * clock.n, _nearest_is_right(clock, read, correct)
    said = ("", *vocabulary.nearest(torch.from_numpy(read[1:])))
    known = np.flatnonzero(clock.expected >= 0)
    wanted = vocabulary.nearest(clock.stream.v[torch.from_numpy(clock.expected[known])])
    correct[known] = [said[step] == word for step, word in zip(known, wanted, strict=True)]
    return said, correct


def _nearest_is_right(clock: Clock, read: Array, correct: Array) -> Array:
    """Unnamed values: right if, of all values stored now, the expected one is nearest in angle."""
    values = clock.stream.v[clock.pairs].double()
    values = values / values.norm(dim=-1, keepdim=True).clamp_min(1e-300)
    column = np.full(clock.n, -1)
    column[clock.pairs.numpy()] = np.arange(len(values))
    judged = clock.judged()
    if not len(judged):
        return correct
    for steps in np.array_split(judged, 1 + len(judged) // 128):
        answers = torch.from_numpy(read[steps])
        scores = (answers @ values.mT).where(torch.from_numpy(clock.live_at(steps)), -torch.inf)
        own = torch.from_numpy(column[clock.expected[steps]])[:, None]
        size = answers.abs().amax(1)
        best = scores.gather(1, own)[:, 0] >= scores.amax(1) - 1e-12 * size
        correct[steps] = ((size > 0) & best).numpy()
    return correct


def _live_mean(clock: Clock, recall: Array) -> Array:
    mean = nan_rows(clock.n)
    counts = clock.live.sum(1)
    some = counts > 0
    total = np.where(clock.live, recall, 0.0).sum(1)
    mean[clock.kept[some]] = total[some] / counts[some]
    return mean


def _overwritten_at(stream: Stream, pairs: Tensor) -> Array:
    replaced = np.full(len(pairs), -1, dtype=np.int64)
    last: dict[int, int] = {}
    ids = stream.key_id.tolist()
    for column, token in enumerate(pairs.tolist()):
        if ids[token] in last:
            replaced[last[ids[token]]] = token + 1
        last[ids[token]] = column
    return replaced


def _kept_steps(
    stream: Stream,
    lanes: int,
    pairs: int,
    keep: int | Iterable[SupportsIndex] | None,
    max_bytes: int,
) -> Array:
    last = len(stream)
    each = 8 * lanes * (stream.d * stream.d_v + 2 * stream.d**2 + pairs)
    room = min(max_bytes // each, last + 1)
    if room < 2:
        raise ArgumentError("max_bytes", max_bytes, f"at least {2 * each}, for two kept steps")
    if keep is None:
        return _spaced(last, room)
    if isinstance(keep, int):
        require_integer("keep", keep, low=2, high=last + 1)
        return _spaced(last, min(keep, room))
    steps = sorted({0, last, *(_step(step, last) for step in keep)})
    if len(steps) > room:
        raise ArgumentError("keep", f"{len(steps)} steps", f"at most {room} under max_bytes")
    return np.array(steps, dtype=np.int64)


def _spaced(last: int, count: int) -> Array:
    return np.unique(np.linspace(0, last, count).round().astype(np.int64))


def _step(step: SupportsIndex, last: int) -> int:
    number = operator.index(step)
    require_integer("keep", number, low=0, high=last)
    return number


def _require_cache_fits(lanes: Mapping[str, Rule], stream: Stream) -> None:
    for name, rule in lanes.items():
        if not rule.has_matrix and len(stream) > MAX_CACHE_TOKENS:
            raise ArgumentError(
                "stream", f"{len(stream)} tokens", f"at most {MAX_CACHE_TOKENS} for {name!r}",
                "Its cache grows with every token: leave the rule out or shorten the stream.",
            )  # fmt: skip


def _require_rows_fit(lanes: int, stream: Stream) -> None:
    needed = 8 * lanes * (len(stream) + 1) * (4 * stream.d + 3 * stream.d_v + 12)
    if needed > MAX_ROW_BYTES:
        raise ArgumentError(
            "stream", f"{needed / 2**30:.1f} GiB of vectors", f"at most {MAX_ROW_BYTES / 2**30:g}",
            "Trace fewer rules at once, a shorter stream, or narrower keys.",
        )  # fmt: skip


def _as_rule(rule: object) -> Rule:
    if isinstance(rule, Rule):
        return rule
    if isinstance(rule, str):
        return make(rule)
    raise ArgumentError("rules", rule, "rule names, Rule objects, or a mapping to Rule objects")


def _titles(lanes: Mapping[str, Rule]) -> dict[str, str]:
    """A title for each lane; lanes of one rule add the settings in which they differ."""
    titles = {}
    for name, rule in lanes.items():
        kin = [other.settings for other in lanes.values() if type(other) is type(rule)]
        differing = [
            f"{key}={value}" for key, value in rule.settings.items()
            if any(other[key] != value for other in kin)
        ]  # fmt: skip
        custom = name != rule.name and not name.startswith(f"{rule.name}-")
        base = name if custom else rule.title
        titles[name] = base if custom or not differing else f"{base} ({', '.join(differing)})"
    return titles


def _provenance() -> dict[str, Any]:
    date = datetime.date.today().isoformat()
    return {"vla": vla.__version__, "torch": torch.__version__, "date": date}
