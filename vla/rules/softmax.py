"""Softmax attention: keep every pair, weigh them all at every read."""

import math
from dataclasses import dataclass

import torch

from vla.rules.base import Rule, State, Token, Write, matvec
from vla.rules.features import feature_map
from vla.rules.registry import register
from vla.typing import Float, Tensor


@register
@dataclass(frozen=True)
class Softmax(Rule):
    """``o = Σ softmax(q·k_s · scale) v_s`` over a cache that grows with every token (paper eq. 1).

    It has no matrix memory: ``S`` stays zero and ``cache`` holds the keys and values. ``scale`` 0
    means 1/√d. With unit keys, as in the stepper, a larger scale sharpens the read.
    """

    name = "softmax"
    title = "softmax attention"
    equation = "o = Σ softmax(q·k_s) v_s"
    source = "Vaswani et al. 2017; paper §2.1"
    colour = "#7F7F7F"
    order = 10
    has_matrix = False

    scale: float = 0.0
    features: str = "identity"
    normalise_key: bool = False

    def begin(self, state: State) -> State:
        *batch, d_v, d = state.S.shape
        return state._replace(
            cache=(state.S.new_zeros(*batch, 0, d), state.S.new_zeros(*batch, 0, d_v))
        )

    def features_of(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return feature_map(x, self.features, unit=self.normalise_key)

    def step(self, state: State, token: Token) -> State:
        assert state.cache is not None
        k = self.features_of(token.k)
        keys, values = state.cache
        cache = (
            torch.cat([keys, k[..., None, :]], -2),
            torch.cat([values, token.v[..., None, :]], -2),
        )
        write = Write(k=k, v=token.v, error=token.v, gain=torch.zeros_like(k), residual=False)
        return State(S=state.S, cache=cache, step=state.step + 1, write=write)

    def read(self, state: State, q: Float[Tensor, "*#b d"]) -> Float[Tensor, "*#b dv"]:
        assert state.cache is not None
        keys, values = state.cache
        if keys.shape[-2] == 0:
            return torch.zeros_like(values.sum(-2))
        query = self.features_of(q) * (self.scale or 1 / math.sqrt(q.shape[-1]))
        weights = torch.softmax(matvec(keys, query), -1)
        return matvec(values.mT, weights)
