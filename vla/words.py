"""Words as vectors: a deterministic embedding, and the way back to the nearest word."""

from __future__ import annotations

from dataclasses import dataclass

from vla.typing import Float, Tensor


@dataclass(frozen=True)
class Vocabulary:
    """Words and their vectors, row by row."""

    words: tuple[str, ...]
    vectors: Float[Tensor, "w dv"]

    def nearest(self, answers: Float[Tensor, "*b dv"]) -> list[str]:
        """The word whose vector makes the smallest angle with each answer (flattened over b)."""
        scores = answers.reshape(-1, answers.shape[-1]).to(self.vectors.dtype) @ self.vectors.mT
        return [self.words[i] for i in scores.argmax(-1).tolist()]
