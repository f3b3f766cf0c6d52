"""Streams of tokens to step through: random geometries and typed word pairs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from vla.typing import Bool, Float, Int, Tensor
from vla.words import Vocabulary


@dataclass(frozen=True)
class Stream:
    """One head's tokens, in order. Token ``t`` of the stream makes step ``t + 1`` of a trace.

    A token either writes its pair (``writes``) or only asks (a query: the memory is read with
    ``q`` and stays as it is). Every token has a ``q``; for a writing token it is its own key.
    """

    k: Float[Tensor, "t d"]
    v: Float[Tensor, "t dv"]
    q: Float[Tensor, "t d"]
    u: Float[Tensor, "t d"]
    """A seeded random projection of the key, for rules whose direction isn't the key itself."""
    writes: Bool[Tensor, "t"]
    key_id: Int[Tensor, "t"]
    """Which key a token writes or asks for. The same id twice means the pair is overwritten."""
    labels: tuple[str, ...]
    """What the token strip shows: ``cat → meow``, ``? cat``, ``k7``."""
    beta: Float[Tensor, "t"] | None = None
    vocabulary: Vocabulary | None = None
    """The words behind ``v``, so that an answer can be decoded; ``None`` for unnamed values."""
    name: str = "custom"
    settings: dict[str, Any] = field(default_factory=dict)
    """What made this stream, seed included: enough to make it again."""

    def __len__(self) -> int:
        return self.k.shape[0]

    @property
    def d(self) -> int:
        """Width of keys."""
        return self.k.shape[1]

    @property
    def d_v(self) -> int:
        """Width of values."""
        return self.v.shape[1]

    def expected(self) -> list[int]:
        """For each token, the token whose value a read should give back, −1 if never stored.

        It is the last write of the same key up to and including the token itself.
        """
        last: dict[int, int] = {}
        answer = []
        for t, (key, writes) in enumerate(
            zip(self.key_id.tolist(), self.writes.tolist(), strict=True)
        ):
            if writes:
                last[key] = t
            answer.append(last.get(key, -1))
        return answer

    def to(self, dtype: torch.dtype) -> Stream:
        """The same stream in another precision."""
        cast = {name: getattr(self, name).to(dtype) for name in ("k", "v", "q", "u")}
        beta = None if self.beta is None else self.beta.to(dtype)
        return Stream(
            **cast,
            beta=beta,
            writes=self.writes,
            key_id=self.key_id,
            labels=self.labels,
            vocabulary=self.vocabulary,
            name=self.name,
            settings=self.settings,
        )
