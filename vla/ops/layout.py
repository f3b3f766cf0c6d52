"""How a sequence is laid out and cut into chunks."""

from dataclasses import dataclass
from itertools import groupby

from vla.typing import Float, Tensor


@dataclass(frozen=True)
class Block:
    """Neighbouring chunks of one length, which can be worked on at once.

    ``refreshed[c]``: a refresh follows the last token of chunk ``c``.
    """

    start: int
    length: int
    refreshed: tuple[bool, ...]

    def rows(self, x: Float[Tensor, "n t d"], each: int = 1) -> Float[Tensor, "n c l d"]:
        """The block's part of ``x``, chunk by chunk: a view. ``x`` has ``each`` rows per token."""
        count, start, length = len(self.refreshed), self.start * each, self.length * each
        return x[:, start : start + count * length].unflatten(1, (count, length))


def cut(tokens: int, length: int, step: int = 0, refresh_every: int = 0) -> list[Block]:
    """Cut behind every refresh, and into equal chunks of at most ``length`` tokens.

    :param step: tokens seen before the first one, which sets the phase of the refresh.
    """
    blocks, start = [], 0
    pieces = _pieces(tokens, length, step, refresh_every)
    for size, group in groupby(pieces, key=lambda piece: piece[0]):
        blocks.append(Block(start, size, tuple(refreshed for _, refreshed in group)))
        start += size * len(blocks[-1].refreshed)
    return blocks


def heads_first(x: Float[Tensor, "b t h *r d"]) -> Float[Tensor, "n t *r d"]:
    """Batch and heads as one leading axis, tokens of a head side by side in memory."""
    return x.transpose(1, 2).flatten(0, 1).contiguous()


def tokens_first(x: Float[Tensor, "n t d"], batch: int) -> Float[Tensor, "b t h d"]:
    """The inverse of :func:`heads_first`."""
    return x.unflatten(0, (batch, -1)).transpose(1, 2).contiguous()


def _pieces(tokens: int, length: int, step: int, refresh_every: int) -> list[tuple[int, bool]]:
    """Size of each chunk, and whether a refresh follows it; a stretch's longer ones come first."""
    pieces, at = [], 0
    while at < tokens:
        stretch = tokens - at
        if refresh_every:
            stretch = min(stretch, refresh_every - (step + at) % refresh_every)
        at += stretch
        parts = -(-stretch // length)
        size, longer = divmod(stretch, parts)
        pieces += [(size + (i < longer), False) for i in range(parts)]
        pieces[-1] = (size, bool(refresh_every) and (step + at) % refresh_every == 0)
    return pieces
