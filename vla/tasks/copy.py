"""Copy: say a sequence again after a separator. As the authors ran it, and as a test of memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vla.errors import require_integer
from vla.tasks.base import IGNORED, Batch, Task, register
from vla.tasks.draws import uniform_tokens
from vla.tasks.mqar import check_length


@dataclass(frozen=True)
class _Copy(Task):
    """``x_1 … x_h | x_1 x_2 …`` with h = T // 2; the tasks differ in where the targets stand."""

    length: int = 64

    def __post_init__(self) -> None:
        require_integer("vocab", self.vocab, low=2)
        check_length(self.length, 3)

    @property
    def half(self) -> int:
        """Tokens to copy, h."""
        return self.length // 2

    @property
    def guess(self) -> float:
        """One token in all but the separator."""
        return 1 / self.separator

    def _tokens(self, batch: int, generator: torch.Generator, device: torch.device) -> torch.Tensor:
        content = uniform_tokens(batch, self.half, 0, self.separator, generator, device)
        bar = torch.full_like(content[:, :1], self.separator)
        return torch.cat([content, bar, content], 1)


@register
@dataclass(frozen=True)
class CopyAuthors(_Copy):
    """Copy as the authors' notebook 07 has it. **It is the identity map and tests no memory.**

    The target at position h + 1 + i is the input token at that very position, so a model without
    attention solves it; with the head tied to the embedding an untrained one nearly does.

    >>> print(CopyAuthors(length=8).draw(seed=1))
    input    69  16 104  28   |  69  16 104
    target    ·   ·   ·   ·   ·  69  16 104

    Raises ``ValueError`` for a length below 3.
    """

    name = "copy_authors"
    title = "copy as the authors ran it (the identity map)"

    @property
    def targets_per_row(self) -> int:
        return self.length - self.half - 1

    def _draw(self, batch: int, generator: torch.Generator, device: torch.device) -> Batch:
        tokens = self._tokens(batch, generator, device)[:, : self.length]
        targets = tokens.clone()
        targets[:, : self.half + 1] = IGNORED
        return Batch(tokens, targets)


@register
@dataclass(frozen=True)
class Copy(_Copy):
    """Copy as it should be: the same rows, each answer due one position before it is shown.

    At the separator the first token is due, then each token's successor, which only the first half
    holds. Where T is odd, nothing is left to say at the last position.

    >>> print(Copy(length=8).draw(seed=1))
    input    69  16 104  28   |  69  16 104
    target    ·   ·   ·   ·  69  16 104  28

    Raises ``ValueError`` for a length below 3.
    """

    name = "copy"
    title = "copy"

    @property
    def targets_per_row(self) -> int:
        return self.half

    def _draw(self, batch: int, generator: torch.Generator, device: torch.device) -> Batch:
        tokens = self._tokens(batch, generator, device)[:, : self.length]
        targets = torch.full_like(tokens, IGNORED)
        targets[:, self.half : 2 * self.half] = tokens[:, : self.half]
        return Batch(tokens, targets)
