"""Recursive least squares in its textbook form: the exact answer that VLA's gain approximates."""

from dataclasses import dataclass

import torch

from vla.errors import require_positive
from vla.rules.base import Rule, State, Token, Write, dot, matvec, outer
from vla.rules.features import feature_map
from vla.rules.inverse import first_inverse
from vla.rules.registry import register
from vla.typing import Float, Tensor


@register
@dataclass(frozen=True)
class RLS(Rule):
    """Weighted RLS: after every token ``S`` is the ridge solution of all pairs so far, exactly::

        gain = β A k / (1 + β k·A k),   S += (v − S k) gainᵀ,   A −= gain (A k)ᵀ
        S_t  = argmin_S  Σ β_s ‖v_s − S k_s‖² + λ0 ‖S‖²

    (Haykin 2002, ch. 9; paper §2.4.) It uses the ``A`` before the update; VLA with ``gain="rls"``
    and ``direction="weighted"`` gets the same gain from the ``A`` after it, and a test shows that.
    ``beta`` stands in where a token has no weight. Raises ``ValueError`` for ``lambda0 <= 0``.
    """

    name = "rls"
    title = "exact RLS"
    equation = "S ← S + (v − S k) gᵀ,  g = β A k / (1 + β k·A k)"
    source = "Haykin 2002, ch. 9; paper §2.4"
    colour = "#0072B2"
    order = 50

    lambda0: float = 0.1
    features: str = "identity"
    normalise_key: bool = True
    beta: float = 1.0

    def __post_init__(self) -> None:
        require_positive("lambda0", self.lambda0)

    def begin(self, state: State) -> State:
        return state._replace(A=first_inverse(state.S, self.lambda0))

    def features_of(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return feature_map(x, self.features, unit=self.normalise_key)

    def weight_of(self, token: Token) -> Float[Tensor, "*b"]:
        return torch.full_like(token.k[..., 0], self.beta) if token.beta is None else token.beta

    def step(self, state: State, token: Token) -> State:
        assert state.A is not None
        k = self.features_of(token.k)
        weight = self.weight_of(token)
        z = matvec(state.A, k)
        delta = 1 + weight * dot(k, z)
        gain = (weight / delta)[..., None] * z
        error = token.v - matvec(state.S, k)
        u = weight.sqrt()[..., None] * k
        write = Write(k=k, v=token.v, error=error, gain=gain, u=u, delta=delta)
        S, A = state.S + outer(error, gain), state.A - outer(gain, z)
        return State(S=S, A=A, step=state.step + 1, write=write)
