"""The delta rule as DeltaNet has it: correct the memory along the key, by a write gate."""

from dataclasses import dataclass

from vla.rules.base import Rule, State, Token, Write, matvec, outer
from vla.rules.features import feature_map
from vla.rules.registry import register
from vla.typing import Float, Tensor


@register
@dataclass(frozen=True)
class Delta(Rule):
    """``S += β (v − S k) kᵀ`` with a unit key (Schlag et al. 2021; Yang et al. 2024).

    The gate is on the write and nothing decays. ``beta`` stands in where a token has no gate.
    DeltaNet's layers use ``features="silu"``; raw unit keys are the default here.
    """

    name = "delta"
    title = "DeltaNet"
    equation = "S ← S + β (v − S k) kᵀ"
    source = "Schlag et al. 2021, Yang et al. 2024; the paper cites it but writes another rule"
    colour = "#B07C00"
    order = 32

    features: str = "identity"
    normalise_key: bool = True
    beta: float = 1.0

    def features_of(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return feature_map(x, self.features, unit=self.normalise_key)

    def step(self, state: State, token: Token) -> State:
        k = self.features_of(token.k)
        error = token.v - matvec(state.S, k)
        gain = self.beta * k if token.beta is None else token.beta[..., None] * k
        write = Write(k=k, v=token.v, error=error, gain=gain)
        return State(S=state.S + outer(error, gain), step=state.step + 1, write=write)
