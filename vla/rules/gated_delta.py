"""DeltaNet as the paper writes it: the gate scales the whole old state."""

from dataclasses import dataclass

import torch

from vla.rules.base import Rule, State, Token, Write, matvec, outer
from vla.rules.features import feature_map
from vla.rules.registry import register
from vla.typing import Float, Tensor


@register
@dataclass(frozen=True)
class GatedDelta(Rule):
    """``S = β S + (v − S k) kᵀ`` (paper §1.1 and eq. 4). Not the published DeltaNet.

    ``beta`` stands in where a token has no gate: 0.5 is what a sigmoid gate starts from, and with
    it the memory halves at every token.
    """

    name = "gated_delta"
    title = "DeltaNet as the paper writes it"
    equation = "S ← β S + (v − S k) kᵀ"
    source = "paper §1.1, eq. 4"
    colour = "#E69F00"
    order = 30

    features: str = "identity"
    normalise_key: bool = True
    beta: float = 0.5

    def features_of(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return feature_map(x, self.features, unit=self.normalise_key)

    def step(self, state: State, token: Token) -> State:
        k = self.features_of(token.k)
        error = token.v - matvec(state.S, k)
        gate = torch.full_like(k[..., 0], self.beta) if token.beta is None else token.beta
        S = gate[..., None, None] * state.S + outer(error, k)
        write = Write(k=k, v=token.v, error=error, gain=k, decay=gate)
        return State(S=S, step=state.step + 1, write=write)
