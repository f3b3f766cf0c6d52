"""A few unit keys in the plane or in space, and what their writes turn, step by step (paper §7)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from vla.errors import ArgumentError, require_choice
from vla.rules import Token, make
from vla.rules.base import State, Write, matvec
from vla.rules.features import to_unit
from vla.rules.vla import GAINS
from vla.theory.whitening import overlap
from vla.typing import Float, Tensor

MAX_KEYS = 8
RHO = tuple(math.sin(math.pi * i / 96) for i in range(-48, 49))
"""Dense towards ±1, where the overlap turns steep."""
LAMBDA0 = tuple(10 ** (i / 6) for i in range(-36, 13))


Angle = float | tuple[float, float]
"""A unit vector by degrees: its angle in the plane, or azimuth and elevation in space."""


@dataclass(frozen=True)
class Written:
    """What one gain did at one step."""

    gain: str
    vector: Float[Tensor, "d"]
    """The gain as applied: ``ΔS = e vectorᵀ``."""
    length: float
    aligned: float
    """``k·vector``: the share of the residual that this write removes."""
    residual: float
    """``‖v − S k‖`` before the write; values have length 1."""
    left: float
    """The same after it."""
    recall: tuple[float, ...]
    """``‖v_i − S k_i‖`` of every pair written so far."""

    @property
    def worst_old(self) -> float:
        """The largest recall error among the earlier pairs; NaN for the first write."""
        return max(self.recall[:-1], default=math.nan)


@dataclass(frozen=True)
class Moment:
    """The geometry after ``step`` writes; step 0 is before the first and has no write."""

    step: int
    A: Float[Tensor, "d d"]
    M: Float[Tensor, "d d"]
    axes: tuple[float, ...]
    """Semi-axes of the ellipse or ellipsoid of ``√(λ0 A)``, longest first; all 1 at step 0."""
    directions: Float[Tensor, "d d"]
    """Unit vectors along them, one in each row."""
    delta: float
    cosine: float
    """``c = k·α̂``."""
    overlaps: tuple[float, ...]
    """``α̂·k_i`` with every earlier key."""
    direction: Float[Tensor, "d"] | None
    """``α̂``, from the A that the setting asks for."""
    before: Float[Tensor, "d"] | None
    """``α̂`` from the A before the update."""
    after: Float[Tensor, "d"] | None
    """``α̂`` from the A after it."""
    written: tuple[Written, ...]

    @property
    def tilt(self) -> float:
        """Angle of the longest axis in degrees, seen along the third coordinate if there is one."""
        return math.degrees(math.atan2(float(self.directions[0, 1]), float(self.directions[0, 0])))

    @property
    def apart(self) -> float:
        """Degrees between the pre- and the post-update direction."""
        if self.before is None or self.after is None:
            return math.nan
        along = self.before @ self.after
        across = (self.after - along * self.before).norm()
        return math.degrees(math.atan2(float(across), float(along)))


@dataclass(frozen=True)
class Geometry:
    """All moments of one set of keys, and the curves that §7.2 is about."""

    angles: tuple[Angle, ...]
    lambda0: float
    turn: float
    update: str
    k: Float[Tensor, "n d"]
    u: Float[Tensor, "n d"]
    moments: tuple[Moment, ...]

    @property
    def rho(self) -> float:
        """Cosine of the first two keys; NaN with fewer."""
        return float(self.k[0] @ self.k[1]) if len(self.k) > 1 else math.nan

    @property
    def left(self) -> float:
        """``α̂_2·k_1`` as the rule has it; NaN with fewer than two keys."""
        return self.moments[2].overlaps[0] if len(self.k) > 1 else math.nan

    def over_rho(self) -> Float[Tensor, "r 2"]:
        """Points (ρ, α̂_2·k_1) of the general formula at this λ0, for u = k."""
        values = [overlap(rho, self.lambda0).item() for rho in RHO]
        return torch.tensor([RHO, values], dtype=torch.float64).T

    def over_lambda0(self) -> Float[Tensor, "l 2"]:
        """Points (λ0, α̂_2·k_1) of the general formula at this ρ, for u = k."""
        rho = 0.0 if math.isnan(self.rho) else min(max(self.rho, -1.0), 1.0)
        if abs(rho) > 1 - 1e-12:
            values = [math.copysign(1.0, rho)] * len(LAMBDA0)
        else:
            values = [overlap(rho, lam).item() for lam in LAMBDA0]
        return torch.tensor([LAMBDA0, values], dtype=torch.float64).T


def geometry(
    angles: Sequence[Angle], *, lambda0: float = 0.1, turn: float = 0.0, update: str = "post"
) -> Geometry:
    """Write one pair for every key and look at what each write does, for all three gains.

    Keys are unit vectors at these ``angles`` (degrees; pairs of azimuth and elevation in space),
    values are orthogonal unit vectors. ``turn`` is the angle from the key to the direction ``u``
    whose penalty grows, in space about the vertical; the paper's §7 has u = k, which is 0. The VLA
    rule itself is run, in float64.
    Raises ``ValueError`` for no key or more than 8, angles that aren't finite or not all of one
    kind, ``lambda0 <= 0`` or an unknown ``update``.
    """
    if not 1 <= len(angles) <= MAX_KEYS:
        raise ArgumentError("keys", f"{len(angles)} of them", f"1 to {MAX_KEYS}")
    rows = [angle if isinstance(angle, tuple) else (angle,) for angle in angles]
    finite = all(math.isfinite(number) for row in (*rows, (turn,)) for number in row)
    if not finite or len({len(row) for row in rows}) != 1:
        raise ArgumentError("keys", angles, "angles in degrees")
    require_choice("update", update, ("post", "pre"))
    k, u = _unit(rows), _unit([(row[0] + turn, *row[1:]) for row in rows])
    lanes = {gain: _run(k, u, lambda0=lambda0, gain=gain, update=update) for gain in GAINS}
    both = [_run(k, u, lambda0=lambda0, update=each) for each in ("pre", "post")]
    moments = [
        _moment(t, k, u, lambda0, {gain: states[t] for gain, states in lanes.items()},
                [states[t] for states in both])
        for t in range(len(k) + 1)
    ]  # fmt: skip
    return Geometry(tuple(angles), lambda0, turn, update, k, u, tuple(moments))


def _unit(rows: Sequence[tuple[float, ...]]) -> Float[Tensor, "n d"]:
    radians = torch.deg2rad(torch.tensor(list(rows), dtype=torch.float64))
    flat = torch.stack([radians[:, 0].cos(), radians[:, 0].sin()], -1)
    if radians.shape[1] == 1:
        return flat
    up = radians[:, 1:]
    return torch.cat([up.cos() * flat, up.sin()], -1)


def _run(k: Tensor, u: Tensor, **settings: object) -> list[State]:
    rule = make("vla", direction="token", **settings)
    values = torch.eye(len(k), dtype=torch.float64)
    states = [rule.init(k.shape[1], len(k))]
    for t in range(len(k)):
        states.append(rule.step(states[-1], Token(k=k[t], v=values[t], u=u[t])))
    return states


def _moment(
    t: int, k: Tensor, u: Tensor, lambda0: float, lanes: dict[str, State], both: list[State]
) -> Moment:
    A = lanes["unit"].A
    assert A is not None
    axes, directions = _ellipsoid(lambda0 * A)
    M = lambda0 * torch.eye(k.shape[1], dtype=k.dtype) + u[:t].T @ u[:t]
    write = lanes["unit"].write
    direction = None if write is None else to_unit(write.gain)
    before, after = (None if s.write is None else to_unit(s.write.gain) for s in both)
    return Moment(
        t, A, M, axes, directions,
        delta=math.nan if write is None or write.delta is None else float(write.delta),
        cosine=math.nan if direction is None else float(direction @ k[t - 1]),
        overlaps=() if direction is None else tuple((k[: t - 1] @ direction).tolist()),
        direction=direction, before=before, after=after,
        written=tuple(_written(gain, state, k[:t]) for gain, state in lanes.items() if t),
    )  # fmt: skip


def _ellipsoid(A: Float[Tensor, "d d"]) -> tuple[tuple[float, ...], Float[Tensor, "d d"]]:
    """Semi-axes of ``{x : xᵀ A⁻¹ x = 1}``, longest first, and their directions."""
    values, vectors = torch.linalg.eigh(A)
    return tuple(values.clamp_min(0).sqrt().flip(0).tolist()), vectors.mT.flip(0)


def _written(gain: str, state: State, k: Float[Tensor, "t d"]) -> Written:
    write = state.write
    assert isinstance(write, Write)
    values = torch.eye(state.S.shape[0], dtype=k.dtype)[: len(k)]
    errors = torch.linalg.vector_norm(values - matvec(state.S[None], k), dim=-1)
    return Written(
        gain, write.gain, length=float(write.gain.norm()), aligned=float(write.gain @ k[-1]),
        residual=float(write.error.norm()), left=float(errors[-1]), recall=tuple(errors.tolist()),
    )  # fmt: skip
