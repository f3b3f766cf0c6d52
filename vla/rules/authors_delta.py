"""The baseline the authors' code runs under the name DeltaNet: a decay for every value row."""

from dataclasses import dataclass

import torch

from vla.rules.base import Rule, State, Token, Write, matvec, outer
from vla.rules.features import feature_map
from vla.rules.registry import register
from vla.typing import Float, Tensor


@register
@dataclass(frozen=True)
class AuthorsDelta(Rule):
    """``S = diag(β) S + (v − S k) kᵀ`` with ``β ∈ (0, 1)^{d_v}``: one gate per value row.

    Read from the authors' public notebook 07; neither the paper's rule nor the published DeltaNet.
    Its query goes through ELU+1 while its key is the raw key at unit length, as there. A token's
    ``beta`` may be one number or one per row; without it every row has ``beta``.
    """

    name = "authors_delta"
    title = "DeltaNet as the authors ran it"
    equation = "S ← diag(β) S + (v − S k) kᵀ"
    source = "the authors' notebook 07"
    colour = "#8C6D31"
    order = 31

    query_features: str = "elu+1"
    beta: float = 0.5

    def features_of(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return feature_map(x, "identity", unit=True)

    def step(self, state: State, token: Token) -> State:
        k = self.features_of(token.k)
        error = token.v - matvec(state.S, k)
        gates = self._row_gates(token)
        write = Write(k=k, v=token.v, error=error, gain=k, decay=gates)
        S = gates[..., None] * state.S + outer(error, k)
        return State(S=S, step=state.step + 1, write=write)

    def read(self, state: State, q: Float[Tensor, "*#b d"]) -> Float[Tensor, "*#b dv"]:
        return matvec(state.S, feature_map(q, self.query_features, unit=False))

    def _row_gates(self, token: Token) -> Float[Tensor, "*b dv"]:
        if token.beta is None:
            return torch.full_like(token.v, self.beta)
        per_row = token.beta.ndim == token.v.ndim
        return token.beta if per_row else token.beta[..., None].expand_as(token.v)
