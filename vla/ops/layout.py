"""How a sequence is cut into chunks."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from vla.typing import Float, Tensor


@dataclass(frozen=True)
class Cuts:
    """Chunks of equal length that tile ``tokens`` tokens.

    ``refreshed[c]``: a refresh follows the last token of chunk ``c``. Where the pieces between two
    refreshes have other lengths, each is filled up with zero tokens **in front**, so a refreshed
    token is always the last row: a zero token changes no state. ``source`` then names the token of
    every row (``tokens`` for a zero one) and ``row`` the row of every token.
    """

    tokens: int
    length: int
    refreshed: tuple[bool, ...]
    source: list[int] | None
    row: list[int] | None

    @property
    def count(self) -> int:
        """The number of chunks."""
        return len(self.refreshed)


def cut(tokens: int, length: int, step: int = 0, refresh_every: int = 0) -> Cuts:
    """Cut behind every refresh, and into equal chunks of at most ``length`` tokens.

    :param step: tokens seen before the first one, which sets the phase of the refresh.
    """
    ends = _ends(tokens, length, step, refresh_every)
    starts = [0, *ends[:-1]]
    longest = max(end - start for start, end in zip(starts, ends, strict=True))
    refreshed = tuple(bool(refresh_every) and (step + end) % refresh_every == 0 for end in ends)
    if longest * len(ends) == tokens:
        return Cuts(tokens, longest, refreshed, None, None)
    source = []
    for start, end in zip(starts, ends, strict=True):
        source += [tokens] * (longest - (end - start)) + list(range(start, end))
    row = [r for r, token in enumerate(source) if token < tokens]
    return Cuts(tokens, longest, refreshed, source, row)


def split(x: Float[Tensor, "n t d"], cuts: Cuts) -> Float[Tensor, "n c l d"]:
    """``x`` in chunks, zero rows where no token stands."""
    if cuts.source is not None:
        index = torch.tensor(cuts.source, device=x.device)
        x = F.pad(x, (0, 0, 0, 1)).index_select(1, index)
    return x.view(x.shape[0], cuts.count, cuts.length, x.shape[-1])


def join(x: Float[Tensor, "n c l d"], cuts: Cuts) -> Float[Tensor, "n t d"]:
    """The inverse of :func:`split`."""
    x = x.reshape(x.shape[0], -1, x.shape[-1])
    return x if cuts.row is None else x.index_select(1, torch.tensor(cuts.row, device=x.device))


def heads_first(x: Float[Tensor, "b t h d"]) -> Float[Tensor, "n t d"]:
    """Batch and heads as one leading axis, tokens of a head side by side in memory."""
    return x.transpose(1, 2).flatten(0, 1).contiguous()


def tokens_first(x: Float[Tensor, "n t d"], batch: int) -> Float[Tensor, "b t h d"]:
    """The inverse of :func:`heads_first`."""
    return x.unflatten(0, (batch, -1)).transpose(1, 2).contiguous()


def _ends(tokens: int, length: int, step: int, refresh_every: int) -> list[int]:
    """Where each chunk ends: every stretch between refreshes in equal parts, so few zero rows."""
    ends, at = [], 0
    while at < tokens:
        stretch = tokens - at
        if refresh_every:
            stretch = min(stretch, refresh_every - (step + at) % refresh_every)
        parts = -(-stretch // length)
        ends += [at + stretch * (i + 1) // parts for i in range(parts)]
        at += stretch
    return ends
