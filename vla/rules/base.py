"""What a memory rule is: one step. The caller scans.

A rule is a frozen dataclass of settings with three methods::

    state = rule.init(d, d_v)           # before the first token
    state = rule.step(state, token)     # after one token
    o = rule.read(state, q)             # what the memory answers to a query

Everything is batched over leading axes and works in float64, float32 and bfloat16. A rule keeps no
tensors of its own, so one rule object can step many streams.

A new rule is one new file in this folder (or one file named on the command line): subclass
:class:`Rule`, decorate it with :func:`vla.rules.register`, and it appears in every trace, figure
and app.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import torch

from vla.typing import Float, Tensor


class Token(NamedTuple):
    """One token of one head. ``beta`` and ``u`` may be left out; each rule says what then holds."""

    k: Float[Tensor, "*b d"]
    v: Float[Tensor, "*b dv"]
    beta: Tensor | None = None
    """Gate: ``[*b]``, or ``[*b, dv]`` for a rule that gates every value row."""
    u: Float[Tensor, "*b d"] | None = None
    """The direction whose penalty this token raises, where it isn't made from the key; ``[*b, r,
    d]`` raises r of them at once, for a rule that can."""


class Write(NamedTuple):
    """What one step did: ``S_t = decay · S_{t-1} + error gainᵀ``, with every factor in sight."""

    k: Float[Tensor, "*b d"]
    """The key as used, after feature map and normalisation."""
    v: Float[Tensor, "*b dv"]
    error: Float[Tensor, "*b dv"]
    """``v − S_{t-1} k``; plain ``v`` for a rule that doesn't look before it writes."""
    gain: Float[Tensor, "*b d"]
    """The write direction as applied: unit, RLS or oblique gain, times the write gate."""
    residual: bool = True
    """Whether ``error`` subtracts what the memory already answers."""
    decay: Tensor | None = None
    """What the old state was multiplied by, ``[*b]`` or ``[*b, dv]``; ``None`` is 1."""
    u: Float[Tensor, "*b d"] | None = None
    delta: Float[Tensor, "*b"] | None = None
    """``δ = 1 + u·A_{t-1}u``; of several directions ``det(I + UᵀA_{t-1}U)``."""


class State(NamedTuple):
    """A memory after some tokens. Fields a rule doesn't keep are ``None``."""

    S: Float[Tensor, "*b dv d"]
    A: Float[Tensor, "*b d d"] | None = None
    z: Float[Tensor, "*b d"] | None = None
    """Running sum of feature keys: the read normaliser of linear attention."""
    cache: tuple[Float[Tensor, "*b t d"], Float[Tensor, "*b t dv"]] | None = None
    """Every key and value so far: softmax attention's memory, which grows."""
    step: int = 0
    write: Write | None = None
    """What the last step did."""


_Rule = TypeVar("_Rule", bound="Rule")


@dataclass(frozen=True)
class Rule(ABC):
    """One memory rule: settings in, states out."""

    name: ClassVar[str]
    """Registry key, also the name in a URL: lower case and underscores."""
    title: ClassVar[str]
    equation: ClassVar[str]
    """The update on one line, in plain Unicode."""
    source: ClassVar[str]
    """Where the rule is defined: paper and section, or the published form it stands for."""
    colour: ClassVar[str]
    """Hex colour, the same in every app, figure and notebook."""
    order: ClassVar[int] = 100
    """Place in lists and lanes, lowest first."""
    has_matrix: ClassVar[bool] = True
    """Whether the memory is a matrix ``S``; softmax attention keeps a growing cache instead."""

    def init(
        self,
        d: int,
        d_v: int,
        *,
        batch: tuple[int, ...] = (),
        dtype: torch.dtype = torch.float64,
        device: torch.device | str | None = None,
    ) -> State:
        """The state before the first token: nothing stored."""
        return self.begin(State(S=torch.zeros(*batch, d_v, d, dtype=dtype, device=device)))

    def begin(self, state: State) -> State:
        """Add what the rule keeps beside ``S``, shaped and placed like it."""
        return state

    @abstractmethod
    def step(self, state: State, token: Token) -> State:
        """The state after one more token."""

    def read(self, state: State, q: Float[Tensor, "*#b d"]) -> Float[Tensor, "*#b dv"]:
        """What the memory answers to ``q``: ``S q`` unless the rule says otherwise.

        Leading axes of state and query broadcast: many queries of one state, or of many.
        """
        return matvec(state.S, self.features_of(q))

    def features_of(self, x: Float[Tensor, "*b d"]) -> Float[Tensor, "*b d"]:
        """A raw key or query as this rule uses it."""
        return x

    def weight_of(self, token: Token) -> Float[Tensor, "*b"] | None:
        """Weight of the token's pair in the least-squares problem the rule is held against.

        ``None`` is 1: the gate of most rules is a step size or a decay, not a weight.
        """
        del token
        return None

    def with_(self: _Rule, **settings: Any) -> _Rule:
        """The same rule with some settings changed."""
        return dataclasses.replace(self, **settings)

    @property
    def settings(self) -> dict[str, Any]:
        """Every setting by name, as plain values."""
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}


def transition(write: Write) -> Float[Tensor, "*b d d"]:
    """``J_t`` with ``S_t = S_{t-1} J_t + …``. It multiplies on the right, unlike in paper §3.4.

    A gate per value row makes one matrix per row, ``[*b, dv, d, d]``.
    """
    eye = torch.eye(write.k.shape[-1], dtype=write.k.dtype, device=write.k.device)
    decay = torch.ones_like(write.k[..., 0]) if write.decay is None else write.decay
    scaled = decay[..., None, None] * eye
    if not write.residual:
        return scaled
    taken = outer(write.k, write.gain)
    return scaled - (taken if decay.ndim < write.k.ndim else taken[..., None, :, :])


def matvec(m: Float[Tensor, "*#b r c"], x: Float[Tensor, "*#b c"]) -> Float[Tensor, "*#b r"]:
    """Batched matrix times vector. Leading axes broadcast."""
    if x.ndim == 1 and m.ndim == 2:
        return m @ x
    if x.ndim > 1 and m.ndim > 2 and m.shape[-3] == 1:
        # Many vectors for one matrix, as in a recall of every pair: one product, no copies of m.
        return x @ m[..., 0, :, :].mT
    return (m @ x.unsqueeze(-1)).squeeze(-1)


def read_normaliser(z: Float[Tensor, "*#b d"], q: Float[Tensor, "*#b d"]) -> Tensor:
    """``z·q`` with a last axis of one, to divide a read by."""
    return matvec(z[..., None, :], q)


def outer(x: Float[Tensor, "*b r"], y: Float[Tensor, "*b c"]) -> Float[Tensor, "*b r c"]:
    """Batched ``x yᵀ``."""
    return x.unsqueeze(-1) * y.unsqueeze(-2)


def dot(x: Float[Tensor, "*#b d"], y: Float[Tensor, "*#b d"]) -> Float[Tensor, "*#b"]:
    """Batched inner product."""
    return (x * y).sum(-1)
