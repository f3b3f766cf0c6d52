"""Linear attention: add ``v φ(k)ᵀ`` and never look back."""

from dataclasses import dataclass

import torch

from vla.rules.base import Rule, State, Token, Write, matvec, outer, read_normaliser
from vla.rules.features import feature_map
from vla.rules.registry import register
from vla.typing import Float, Tensor


@register
@dataclass(frozen=True)
class Linear(Rule):
    """``S += v φ(k)ᵀ``, read ``S φ(q) / (z·φ(q))`` (Katharopoulos et al. 2020; paper eq. 3).

    With ``features="identity"``, ``unit=True`` and ``normalise_read=False`` it is the plain
    additive memory of the paper's §1.1.

    >>> Linear(features="identity", normalise_read=False).settings["features"]
    'identity'
    """

    name = "linear"
    title = "linear attention"
    equation = "S ← S + v φ(k)ᵀ"
    source = "Katharopoulos et al. 2020; paper §2.2"
    colour = "#D55E00"
    order = 20

    features: str = "elu+1"
    unit: bool = False
    """Scale φ(k) and φ(q) to unit length."""
    normalise_read: bool = True
    """Divide a read by ``z·φ(q)``, the running sum of feature keys."""
    floor: float = 1e-4

    def begin(self, state: State) -> State:
        return state._replace(z=torch.zeros_like(state.S[..., 0, :]))

    def features_of(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        return feature_map(x, self.features, unit=self.unit)

    def step(self, state: State, token: Token) -> State:
        k = self.features_of(token.k)
        write = Write(k=k, v=token.v, error=token.v, gain=k, residual=False)
        assert state.z is not None
        return State(S=state.S + outer(token.v, k), z=state.z + k, step=state.step + 1, write=write)

    def read(self, state: State, q: Float[Tensor, "*#b d"]) -> Float[Tensor, "*#b dv"]:
        query = self.features_of(q)
        answer = matvec(state.S, query)
        if not self.normalise_read:
            return answer
        assert state.z is not None
        return answer / read_normaliser(state.z, query).clamp_min(self.floor)
