"""Variational Linear Attention: correct the memory along a direction an inverse penalty picks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from vla.errors import ArgumentError, require_choice, require_integer, require_positive
from vla.rules.base import Rule, State, Token, Write, dot, matvec, outer, read_normaliser
from vla.rules.features import feature_map, to_unit
from vla.rules.inverse import MAX_RANK, first_inverse, refresh, sherman_morrison, woodbury
from vla.rules.registry import register
from vla.typing import Float, Tensor

GAINS = ("unit", "rls", "oblique")
DIRECTIONS = ("key", "token", "weighted")


@register
@dataclass(frozen=True)
class VLA(Rule):
    """One step (paper eqs. 9–10, §1.2; every ablation is an argument)::

        A ← A − z zᵀ/δ,  z = A u,  δ = 1 + u·z          Sherman–Morrison
        α = A k,  α̂ = α/‖α‖  |  α  |  α/(k·α)            gain: unit | rls | oblique
        S ← S + β (v − S k) α̂ᵀ

    A token's own ``u`` may hold up to 4 directions, ``[*b, r, d]``; they are raised together::

        A ← A − A U (I + UᵀA U)⁻¹ UᵀA                     Woodbury

    ``unit`` is the published gain, ``rls`` the exact least-squares one, ``oblique`` stores the
    current pair exactly. :meth:`as_published`, :meth:`as_run` and :meth:`exact` are the three
    presets: the text, the authors' code, and weighted recursive least squares.

    Raises ``ValueError`` for an unknown gain or direction, ``lambda0 <= 0``, a negative period, and
    at a step whose token lacks the ``u`` that ``direction="token"`` needs, or whose ``u`` has
    another width or more than 4 directions.
    """

    name = "vla"
    title = "VLA"
    equation = "S ← S + β (v − S k) α̂ᵀ,  α̂ ∝ A k"
    source = "paper §3, eqs. 9–10"
    colour = "#009E73"
    order = 40

    lambda0: float = 0.1
    gain: str = "unit"
    direction: str = "key"
    """What ``u`` is: the ``key`` as used, ``weighted`` √β·key, or the ``token``'s own ``u``, one
    direction or several."""
    direction_scale: float = 1.0
    """``u`` is multiplied by this; the authors' code has 1/√d (0 means exactly that)."""
    unit_direction: bool = False
    """Scale ``u`` to unit length first, as the paper's eq. 8 does."""
    refresh_every: int = 0
    refresh_eps: float = 1e-3
    floor: float = 0.0
    """Least value of a denominator (‖α‖, k·α); the paper's is 1e-4, felt once ``A`` is small."""
    features: str = "identity"
    normalise_key: bool = True
    """Off, with ``gain="rls"`` and ``direction="token"``, is the "v2" of Table 2 that explodes."""
    adaptive: bool = True
    """Off: ``A`` stays ``I/λ0``, and the rule is the delta rule."""
    update: str = "post"
    """``post``: α from the new ``A`` (paper A.1); ``pre``: from the one before the update."""
    gated: bool = True
    """Let a token's ``beta`` multiply the write; off ignores it, as the paper has no gate."""
    normalise_read: bool = False
    """Divide a read by ``z·q``, as the authors' layer does."""

    def __post_init__(self) -> None:
        require_positive("lambda0", self.lambda0)
        require_choice("gain", self.gain, GAINS)
        require_choice("direction", self.direction, DIRECTIONS)
        require_choice("update", self.update, ("post", "pre"))
        require_integer("refresh_every", self.refresh_every, low=0)
        require_positive("refresh_eps", self.refresh_eps, zero=True)
        require_positive("floor", self.floor, zero=True)

    @classmethod
    def as_published(cls) -> VLA:
        """The text: unit ``u`` from the token's projection, unit gain, refresh 20, floor 1e-4."""
        return cls(
            features="elu+1", direction="token", unit_direction=True,
            refresh_every=20, floor=1e-4, gated=False,
        )  # fmt: skip

    @classmethod
    def as_run(cls) -> VLA:
        """The authors' notebook 07: as published, but ``u`` divided by √d and reads by ``z·q``."""
        return cls.as_published().with_(direction_scale=0.0, normalise_read=True)

    @classmethod
    def exact(cls) -> VLA:
        """Weighted recursive least squares: ``u = √β k`` and the exact gain."""
        return cls(gain="rls", direction="weighted")

    def begin(self, state: State) -> State:
        z = torch.zeros_like(state.S[..., 0, :])
        return state._replace(A=first_inverse(state.S, self.lambda0), z=z)

    def features_of(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return feature_map(x, self.features, unit=self.normalise_key)

    def weight_of(self, token: Token) -> Float[Tensor, "*b"] | None:
        return token.beta if self.direction == "weighted" and self.gated else None

    def step(self, state: State, token: Token) -> State:
        assert state.A is not None
        assert state.z is not None
        k = self.features_of(token.k)
        u = self._direction(token, k)
        A, delta = self._next_inverse(state, u)
        gain = self._gain(A if self.update == "post" else state.A, k, token)
        error = token.v - matvec(state.S, k)
        raised = u if self.adaptive else None
        write = Write(k=k, v=token.v, error=error, gain=gain, u=raised, delta=delta)
        S = state.S + outer(error, gain)
        return State(S=S, A=A, z=state.z + k, step=state.step + 1, write=write)

    def read(self, state: State, q: Float[Tensor, "*#b d"]) -> Float[Tensor, "*#b dv"]:
        query = self.features_of(q)
        answer = matvec(state.S, query)
        if not self.normalise_read:
            return answer
        assert state.z is not None
        return answer / read_normaliser(state.z, query).clamp_min(max(self.floor, 1e-12))

    def _direction(self, token: Token, k: Tensor) -> Tensor:
        if self.direction == "token":
            u = _given_direction(token, k)
        elif self.direction == "weighted" and self.gated and token.beta is not None:
            u = token.beta.sqrt()[..., None] * k
        else:
            u = k
        u = to_unit(u) if self.unit_direction else u
        return u * (self.direction_scale or 1 / math.sqrt(k.shape[-1]))

    def _next_inverse(self, state: State, u: Tensor) -> tuple[Tensor, Tensor]:
        assert state.A is not None
        assert state.z is not None
        if not self.adaptive:
            return state.A, torch.ones_like(state.z[..., 0])
        raise_penalty = woodbury if u.ndim > state.z.ndim else sherman_morrison
        A, delta = raise_penalty(state.A, u)
        return refresh(A, state.step + 1, self.refresh_every, self.refresh_eps), delta

    def _gain(self, A: Tensor, k: Tensor, token: Token) -> Tensor:
        alpha = matvec(A, k)
        if self.gain == "unit":
            alpha = to_unit(alpha, self.floor)
        elif self.gain == "oblique":
            least = max(self.floor, torch.finfo(alpha.dtype).tiny)
            alpha = alpha / dot(k, alpha).clamp_min(least)[..., None]
        return alpha if token.beta is None or not self.gated else token.beta[..., None] * alpha


def _given_direction(token: Token, k: Tensor) -> Tensor:
    if token.u is None:
        remedy = "Give tokens a u, or set direction='key'."
        raise ArgumentError(
            "u", None, "a direction for every token under direction='token'", remedy
        )
    *directions, width = token.u.shape[k.ndim - 1 :] or (0,)
    few = len(directions) == 0 or (len(directions) == 1 and 1 <= directions[0] <= MAX_RANK)
    if width != k.shape[-1] or not few:
        wanted = f"the shape of k, {tuple(k.shape)}, or 1 to {MAX_RANK} directions before its width"
        raise ArgumentError("u.shape", tuple(token.u.shape), wanted)
    return token.u
