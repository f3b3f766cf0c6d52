"""What a trace holds: the contract between recording and every figure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vla.tokens import Stream
from vla.typing import Float, Int

Array = np.ndarray
FORMATS = ("float32", "bfloat16")
"""Number formats whose error against float64 a lane can have."""


@dataclass(frozen=True)
class Branch:
    """The fork's side of a lane: the same rule on the same tokens but one (``vla.trace.fork``)."""

    D: Float[Array, "m dv d"]
    """``S − S'``, the main branch's memory less the fork's, at the lane's kept steps."""
    gap: Float[Array, "n"]
    """``‖S − S'‖`` (Frobenius); NaN for a rule without a matrix."""
    recall: Float[Array, "m p"]
    """The fork's relative recall error of each pair; NaN for one it did not store."""
    recall_mean: Float[Array, "n"]
    norm_S: Float[Array, "n"]
    answers: tuple[str, ...]
    correct: Int[Array, "n"]

    @property
    def left(self) -> float:
        """The last gap as a share of the largest: 0 is healed, or never apart but for rounding.

        NaN for a rule without a matrix, and once a memory has overflowed.
        """
        most = float(np.nanmax(self.gap, initial=0.0))
        apart = most > 1e-12 * float(np.nanmax(self.norm_S, initial=0.0))
        return float(self.gap[-1]) / most if apart else float(0 * self.gap[-1])


@dataclass(frozen=True)
class Lane:
    """One rule over the stream. Step 0 is before the first token; step t is after token t − 1.

    Per-step rows are indexed by step (``n = t + 1`` rows, row 0 is the empty memory); matrices are
    kept at the steps listed in ``kept`` (all of them unless the stream is long). ``NaN`` marks what
    doesn't exist at a step: the residual of a query, the recall of a pair not stored yet, a
    spectrum or ridge answer between kept steps, the gain of a rule that doesn't tell it and whose
    change is no single write. A query leaves the memory alone: its transition has norm 1.
    """

    rule: str
    """The lane's name: the rule's, with ``-2``, ``-3``, … for the same rule again."""
    title: str
    """The rule's title; lanes of one rule add the settings in which they differ."""
    colour: str
    equation: str
    settings: dict[str, Any]

    kept: Int[Array, "m"]
    """Steps whose matrices are kept, ascending, 0 and the last among them."""
    S: Float[Array, "m dv d"]
    A: Float[Array, "m d d"] | None
    """Inverse penalty, for rules that keep one."""
    M: Float[Array, "m d d"] | None
    """``λ0 I + Σ u uᵀ``, summed beside the rule; ``A`` is its inverse when nothing is refreshed."""

    k: Float[Array, "n d"]
    """The key as the rule used it."""
    u: Float[Array, "n d"]
    """Direction whose penalty the step raised; NaN where none was (``A`` fixed, no ``A``)."""
    gain: Float[Array, "n d"]
    """Write direction as applied: ``ΔS = error gainᵀ`` (plus the decay of a gated rule)."""
    v: Float[Array, "n dv"]
    error: Float[Array, "n dv"]
    read: Float[Array, "n dv"]
    """What the memory answers to the token's ``q`` after the step."""

    delta: Float[Array, "n"]
    cosine: Float[Array, "n"]
    """``c = k·α̂``: cosine between key and write direction."""
    norm_S: Float[Array, "n"]
    norm_A: Float[Array, "n"]
    norm_M: Float[Array, "n"]
    norm_error: Float[Array, "n"]
    norm_dS: Float[Array, "n"]
    eigen_A: Float[Array, "n d"] | None
    """Eigenvalues of ``A`` ascending (at kept steps only for long streams, NaN elsewhere)."""
    spectral_svd: Float[Array, "n"]
    """Spectral norm of the transition ``J_t``, measured by SVD."""
    spectral_closed: Float[Array, "n"]
    """The same by closed form: (1 + √(5 − 4c))/2 for unit key and gain (paper §4.2, corrected)."""
    product_norm: Float[Array, "n"]
    """Spectral norm of ``J_1 J_2 … J_t = ∂S_t/∂S_0``."""

    recall: Float[Array, "m p"]
    """Relative recall error ``‖read(k_i) − v_i‖/‖v_i‖`` of each written pair at each kept step."""
    recall_mean: Float[Array, "n"]
    """Mean over the pairs stored and not overwritten by then."""
    ridge_distance: Float[Array, "n"]
    """``‖S_t − S*_t‖/‖S*_t‖``, where S* is the batch ridge answer to the pairs so far.

    With the lane's own keys and λ0 (0.1 for a rule that has none); pairs are weighted by β only for
    a rule that weighs them so. Infinite once ``S`` has overflowed.
    """
    parts_at: int | None
    """First step where ``ridge_distance`` exceeds the trace's tolerance; ``None`` if never."""
    answers: tuple[str, ...]
    """The read decoded to a word at each step; empty strings without a vocabulary."""
    correct: Int[Array, "n"]
    """1 right, 0 wrong, −1 where there is nothing to answer.

    With a vocabulary: whether the word is the expected one. Without: whether, of the values stored
    now, the expected one is nearest in angle (on streams of more than 50 million steps × pairs,
    judged at kept steps and the first thousand queries only).
    """
    branch: Branch | None = None
    """The other side of a forked timeline."""
    error_float32: Float[Array, "n"] | None = None
    """``‖S_t − S_t*‖/‖S_t*‖`` of the rule in float32, S* in float64 (``vla.trace.rounding``)."""
    error_bfloat16: Float[Array, "n"] | None = None


@dataclass(frozen=True)
class Trace:
    """Several rules on one stream and one clock."""

    stream: Stream
    lanes: tuple[Lane, ...]
    pairs: Int[Array, "p"]
    """The token that wrote each pair, in order: column ``i`` of every ``recall``."""
    overwritten_at: Int[Array, "p"]
    """Step from which a later write of the same key replaces the pair; −1 if never."""
    dtype: str = "float64"
    tolerance: float = 1e-6
    """Relative distance from the batch ridge answer above which a lane is said to part from it."""
    forked_at: int | None = None
    """First step at which the lanes' branches differ; ``None`` for one timeline."""
    threshold: float | None = None
    """Rounding error that is worth a flag; ``None`` where formats weren't compared."""
    made_by: dict[str, Any] = field(default_factory=dict)
    """Provenance: versions of vla and torch, and the date."""

    def __len__(self) -> int:
        return len(self.stream) + 1

    def lane(self, rule: str) -> Lane:
        """The lane of the named rule; ``KeyError`` if it isn't traced."""
        for lane in self.lanes:
            if lane.rule == rule:
                return lane
        raise KeyError(rule)
