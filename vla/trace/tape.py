"""The growing record of one lane, and the clock that all lanes share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from vla.rules import Rule
from vla.tokens import Stream
from vla.trace import measure
from vla.trace.block import Block, Runner, Steps
from vla.trace.model import Array
from vla.typing import Tensor

BLOCK = 256
DEFAULT_LAMBDA0 = 0.1


class Clock:
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


class Tape:
    """The growing record of one lane: filled block by block, so that long streams fit in memory."""

    def __init__(self, rule: Rule, runner: Runner, clock: Clock) -> None:
        n, d, d_v = clock.n, clock.stream.d, clock.stream.d_v
        m, state = len(clock.kept), runner.state
        self.clock, self.rule = clock, rule
        self.lambda0 = float(rule.settings.get("lambda0", DEFAULT_LAMBDA0))
        widths = {"k": d, "u": d, "gain": d, "v": d_v, "error": d_v, "read": d_v}
        self.rows: dict[str, Any] = {x: nan_rows(n, width) for x, width in widths.items()}
        self.rows |= {x: nan_rows(n) for x in _SCALARS}
        self.rows["eigen_A"] = None if state.A is None else nan_rows(n, d)
        has_A = state.A is not None
        self.matrices: dict[str, Any] = {
            "S": np.zeros((m, d_v, d)),
            "A": np.zeros((m, d, d)) if has_A else None,
            "M": np.zeros((m, d, d)) if has_A else None,
        }
        self.recall = nan_rows(m, len(clock.pairs))
        eye = torch.eye(d, dtype=torch.float64)
        self.M, self.moment = self.lambda0 * eye, self.lambda0 * eye
        self.target = torch.zeros(d_v, d, dtype=torch.float64)
        self.product = np.eye(d)[None]
        self._row_zero(runner)

    def roll(self, runner: Runner) -> None:
        """Record the stream, block by block: a block's matrices are small enough to stay near."""
        length, kept = len(self.clock.stream), self.clock.kept
        for start in range(0, length, BLOCK):
            stop = min(start + BLOCK, length)
            here = kept[(kept > start) & (kept <= stop)]
            self._measure(runner, runner.advance(start, stop, here.tolist()), here)
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


def nan_rows(*shape: int) -> Array:
    return np.full(shape, np.nan)
