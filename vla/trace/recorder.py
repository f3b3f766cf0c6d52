"""``record``: several rules, one stream, one clock."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, SupportsIndex

import numpy as np
import torch

import vla
from vla.errors import ArgumentError, require_integer, require_positive
from vla.rules import Rule, make
from vla.tokens import Stream
from vla.trace import measure
from vla.trace.block import Block, Runner, Steps
from vla.trace.model import Array, Lane, Trace
from vla.typing import Tensor

BLOCK = 256
MAX_LANES = 16
MAX_CACHE_TOKENS = 10_000
MAX_ROW_BYTES = 2 * 2**30
DEFAULT_LAMBDA0 = 0.1
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
    clock = _Clock(stream, pairs, replaced, kept)
    titles = _titles(lanes)
    with ThreadPoolExecutor(max_workers=1) as helper:
        recorded = [_tape(rule, clock, dtype, helper) for rule in lanes.values()]
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


class _Clock:
    """What all lanes share: the stream, its pairs, and the steps whose matrices are kept."""

    def __init__(self, stream: Stream, pairs: Tensor, replaced: Array, kept: Array) -> None:
        self.stream, self.pairs, self.kept = stream, pairs, kept
        self.n = len(stream) + 1
        self.replaced = replaced
        self.stored = self.stored_at(kept)
        self.live = self.live_at(kept)
        self.expected = np.array([-1, *stream.expected()])
        """For each step, the token whose value is the right answer; −1 if there is none."""

    def stored_at(self, steps: Array) -> Array:
        """For each step, which pairs are written by then."""
        return self.pairs.numpy() < steps[:, None]

    def live_at(self, steps: Array) -> Array:
        """For each step, which pairs are written and not overwritten."""
        after = steps[:, None]
        return self.stored_at(steps) & ((self.replaced < 0) | (after < self.replaced))

    def judged(self) -> Array:
        """Steps whose unnamed answers are judged: all of them, or on long streams the kept ones
        and a thousand queries."""
        if self.n * len(self.pairs) <= 50_000_000:
            return np.flatnonzero(self.expected >= 0)
        queries = np.flatnonzero(~self.stream.writes.numpy())[:1000] + 1
        steps = np.union1d(self.kept, queries)
        return steps[self.expected[steps] >= 0]


def _tape(rule: Rule, clock: _Clock, dtype: torch.dtype, helper: Executor) -> _Tape:
    for looped in (False, True):
        runner = Runner(rule, clock.stream, clock.pairs, dtype, looped)
        tape = _Tape(rule, runner, clock)
        tape.roll(runner, helper)
        if runner.batches:
            break
    return tape


def _lane(name: str, title: str, tape: _Tape, tolerance: float) -> Lane:
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


class _Tape:
    """The growing record of one lane: filled block by block, so that long streams fit in memory."""

    def __init__(self, rule: Rule, runner: Runner, clock: _Clock) -> None:
        n, d, d_v = clock.n, clock.stream.d, clock.stream.d_v
        m, state = len(clock.kept), runner.state
        self.clock, self.rule = clock, rule
        self.lambda0 = float(rule.settings.get("lambda0", DEFAULT_LAMBDA0))
        widths = {"k": d, "u": d, "gain": d, "v": d_v, "error": d_v, "read": d_v}
        self.rows: dict[str, Any] = {x: _nan(n, width) for x, width in widths.items()}
        self.rows |= {x: _nan(n) for x in _SCALARS}
        self.rows["eigen_A"] = None if state.A is None else _nan(n, d)
        has_A = state.A is not None
        self.matrices: dict[str, Any] = {
            "S": np.zeros((m, d_v, d)),
            "A": np.zeros((m, d, d)) if has_A else None,
            "M": np.zeros((m, d, d)) if has_A else None,
        }
        self.recall = _nan(m, len(clock.pairs))
        eye = torch.eye(d, dtype=torch.float64)
        self.M, self.moment = self.lambda0 * eye, self.lambda0 * eye
        self.target = torch.zeros(d_v, d, dtype=torch.float64)
        self.product = np.eye(d)[None]
        self._row_zero(runner)

    def roll(self, runner: Runner, helper: Executor) -> None:
        """Record the stream: the ``helper`` measures a block while the next one is stepped."""
        length, kept = len(self.clock.stream), self.clock.kept
        measured: Future[None] | None = None
        for start in range(0, length, BLOCK):
            stop = min(start + BLOCK, length)
            here = kept[(kept > start) & (kept <= stop)]
            steps = runner.advance(start, stop, here.tolist())
            if measured:
                measured.result()
            measured = helper.submit(self._measure, runner, steps, here)
        if measured:
            measured.result()
        self.recall[~self.clock.stored] = np.nan

    @torch.no_grad()
    def _measure(self, runner: Runner, steps: Steps, here: Array) -> None:
        block = runner.block(steps, here.tolist())
        self._vectors(block)
        self._norms(block)
        self._spectra(block, here)
        self._ridge(block, here)
        self.recall[np.searchsorted(self.clock.kept, here)] = block.recall.numpy()

    def _row_zero(self, runner: Runner) -> None:
        rows, state = self.rows, runner.state
        rows["read"][0] = rows["norm_S"][0] = rows["ridge_distance"][0] = 0.0
        rows["product_norm"][0] = 1.0
        if state.A is not None:
            A = state.A.double()
            self.matrices["A"][0], self.matrices["M"][0] = A, self.M
            rows["norm_A"][0], rows["norm_M"][0] = A.norm(), self.M.norm()
            rows["eigen_A"][0] = measure.eigenvalues(A[None])[0]

    def _vectors(self, block: Block) -> None:
        at = slice(block.first, block.first + len(block.S))
        for name in ("k", "u", "gain", "v", "error", "read", "delta"):
            self.rows[name][at] = getattr(block, name).numpy()
        size = block.k.norm(dim=-1) * block.gain.norm(dim=-1)
        self.rows["cosine"][at] = ((block.k * block.gain).sum(-1) / size).numpy()
        self.rows["norm_error"][at] = block.error.norm(dim=-1).numpy()

    def _norms(self, block: Block) -> None:
        at = slice(block.first, block.first + len(block.S))
        earlier = torch.cat([block.before[None], block.S[:-1]])
        self.rows["norm_S"][at] = measure.frobenius(block.S).numpy()
        self.rows["norm_dS"][at] = measure.frobenius(block.S - earlier).numpy()
        kept, places = self._kept_rows(block)
        self.matrices["S"][places] = block.S[kept].numpy()
        if block.A is None:
            return
        u = block.u.nan_to_num(nan=0.0)
        M = measure.running_sum(self.M, u[:, :, None] * u[:, None, :])
        self.M = M[-1].clone()
        self.rows["norm_A"][at] = measure.frobenius(block.A).numpy()
        self.rows["norm_M"][at] = measure.frobenius(M).numpy()
        self.matrices["A"][places], self.matrices["M"][places] = block.A[kept], M[kept]
        self.rows["eigen_A"][self.clock.kept[places]] = measure.eigenvalues(block.A[kept]).numpy()

    def _kept_rows(self, block: Block) -> tuple[Tensor, Array]:
        """Rows of the block that are kept, and their places among all kept steps."""
        kept = self.clock.kept
        places = np.flatnonzero((kept >= block.first) & (kept < block.first + len(block.S)))
        return torch.from_numpy(kept[places] - block.first), places

    def _spectra(self, block: Block, here: Array) -> None:
        at = slice(block.first, block.first + len(block.S))
        # A transition per value row is worst at the least or the greatest gate: the norm is convex.
        extremes = torch.stack([block.decay.amin(-1), block.decay.amax(-1)], -1)
        k, gain = block.k.nan_to_num(nan=0.0), block.gain
        gain = torch.where(block.taken[:, None], gain, 0.0)
        closed = [measure.transition_norm(decay, k, gain) for decay in extremes.T]
        self.rows["spectral_closed"][at] = torch.stack(closed).amax(0).numpy()
        local = torch.from_numpy(here - block.first)
        if not block.taken.any() and len(self.product) == 1 == block.decay.shape[1]:
            self._plain_decay(block, here)
            return
        self.rows["spectral_svd"][here] = _measured(extremes[local], k[local], gain[local]).numpy()
        products = self._products(block.decay.numpy(), k.numpy(), gain.numpy(), set(local.tolist()))
        if products:
            stacked = torch.from_numpy(np.stack(products))
            norms = measure.spectral_norms(stacked.flatten(0, 1)).reshape(stacked.shape[:2])
            self.rows["product_norm"][here] = norms.amax(-1).numpy()

    def _plain_decay(self, block: Block, here: Array) -> None:
        """Transitions that only scale, such as linear attention's: nothing to decompose."""
        decay = block.decay[:, 0].numpy()
        scales = decay.cumprod()
        norm = measure.spectral_norms(torch.from_numpy(self.product))[0].item()
        self.rows["spectral_svd"][here] = np.abs(decay[here - block.first])
        self.rows["product_norm"][here] = norm * np.abs(scales[here - block.first])
        self.product = self.product * scales[-1]

    def _products(self, decay: Array, k: Array, gain: Array, wanted: set[int]) -> list[Array]:
        if decay.shape[1] > len(self.product) and np.ptp(decay, axis=1).any():
            self.product = np.repeat(self.product, decay.shape[1], axis=0)
        decay = decay[:, : len(self.product), None, None] if len(decay) else decay
        found, P = [], self.product
        with np.errstate(all="ignore"):
            for row in range(len(k)):
                P = decay[row] * P - (P @ k[row])[..., None] * gain[row]
                if row in wanted:
                    found.append(P)
        self.product = P
        return found

    def _ridge(self, block: Block, here: Array) -> None:
        if not self.rule.has_matrix:
            return
        k, v = block.k.nan_to_num(nan=0.0), block.v.nan_to_num(nan=0.0)
        weighted = block.weight[:, None] * k
        moments = measure.running_sum(self.moment, weighted[:, :, None] * k[:, None, :])
        targets = measure.running_sum(self.target, v[:, :, None] * weighted[:, None, :])
        self.moment, self.target = moments[-1].clone(), targets[-1].clone()
        local = torch.from_numpy(here - block.first)
        if len(local):
            best = measure.ridge_solutions(moments[local], targets[local])
            distance = measure.relative_distance(block.S[local], best)
            self.rows["ridge_distance"][here] = distance.numpy()


_SCALARS = (
    "delta", "cosine", "norm_S", "norm_A", "norm_M", "norm_error", "norm_dS",
    "spectral_svd", "spectral_closed", "product_norm", "ridge_distance",
)  # fmt: skip


def _measured(decays: Tensor, k: Tensor, gain: Tensor) -> Tensor:
    """Spectral norm of ``a I − k gainᵀ`` by SVD, the larger over the decays of each row."""
    eye = torch.eye(k.shape[-1], dtype=k.dtype)
    taken = k[:, :, None] * gain[:, None, :]
    columns = decays.T if bool((decays[:, 0] != decays[:, 1]).any()) else decays.T[:1]
    norms = [measure.spectral_norms(a[:, None, None] * eye - taken) for a in columns]
    return torch.stack(norms).amax(0)


def _decode(clock: _Clock, read: Array) -> tuple[tuple[str, ...], Array]:
    vocabulary, correct = clock.stream.vocabulary, np.full(clock.n, -1, dtype=np.int64)
    if vocabulary is None:
        return ("",) * clock.n, _nearest_is_right(clock, read, correct)
    said = ("", *vocabulary.nearest(torch.from_numpy(read[1:])))
    known = np.flatnonzero(clock.expected >= 0)
    wanted = vocabulary.nearest(clock.stream.v[torch.from_numpy(clock.expected[known])])
    correct[known] = [said[step] == word for step, word in zip(known, wanted, strict=True)]
    return said, correct


def _nearest_is_right(clock: _Clock, read: Array, correct: Array) -> Array:
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


def _live_mean(clock: _Clock, recall: Array) -> Array:
    mean = _nan(clock.n)
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


def _nan(*shape: int) -> Array:
    return np.full(shape, np.nan)
