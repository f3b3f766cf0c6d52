"""How a call is cut: chunks, segments, tiles, warps and precisions. Pure integers, no tensors."""

from functools import lru_cache
from typing import NamedTuple

import torch

from vla.errors import require_choice

WIDTHS = (16, 32, 64, 128)
PRECISIONS = ("auto", "ieee", "tf32x3", "tf32")
DTYPES = (torch.bfloat16, torch.float16, torch.float32)

# Enough programs to fill the largest device at hand several times over; a constant, so that a
# result does not depend on which device computed it.
PROGRAMS = 1024
SHORTEST_SEGMENT = 256


class Precision(NamedTuple):
    """Operand precision of each part, and the dtype intermediates are stored in."""

    memory: str
    geometry: str
    adjoint: str
    store: torch.dtype


def precision_for(dtype: torch.dtype, d: int, precision: str, tame: bool = True) -> Precision:
    """The policy of README.md. ``auto``: bfloat16 products for bfloat16 input, else float32-like.

    ``A`` is a difference of nearly equal terms, so the A part never runs below 3×tf32. Heads 16
    wide average few rounding errors, and a rule that is not ``tame`` (a gain without unit length,
    u unrelated to k) amplifies them: both take tf32 where others take bfloat16.
    """
    require_choice("precision", precision, PRECISIONS)
    if precision == "auto" and dtype == torch.bfloat16 and d > 16 and tame:
        return Precision("bf16", "tf32x3 chained", "tf32", torch.bfloat16)
    if precision == "auto":
        precision = "tf32x3" if dtype == torch.float32 else "tf32"
    if precision == "tf32":
        return Precision("tf32", "tf32x3", "tf32x3", torch.float32)
    return Precision(precision, precision, precision, torch.float32)


class Cut(NamedTuple):
    """How the A part walks a sequence; see ``common.chunk_bounds``."""

    tile: int
    length: int
    period: int
    per_period: int
    phase: int
    first: int
    chunks: int
    segments: int
    per_segment: int
    refreshes: int

    @property
    def segment(self) -> int:
        """Tokens in a segment (meaningful without refresh)."""
        return self.per_segment * self.length

    def retiled(self, tile: int) -> "Cut":
        """The same segments in tiles of another size (without refresh)."""
        if self.period:
            return self
        scale = tile // self.tile
        return self._replace(
            tile=tile,
            length=tile,
            chunks=cdiv(self.chunks, scale),
            per_segment=cdiv(self.per_segment, scale),
        )


@lru_cache(maxsize=256)
def cut(heads: int, tokens: int, *, tile: int, period: int, step: int) -> Cut:
    """Chunks of at most ``tile`` tokens; ``heads`` is batch times heads."""
    if period:
        return _cut_at_refreshes(tokens, tile, period, step % period)
    chunks = cdiv(tokens, tile)
    segments, per_segment = _segments(heads, tokens, tile)
    return Cut(tile, tile, 1, 1, 0, 0, chunks, segments, per_segment, 0)._replace(period=0)


def _segments(heads: int, tokens: int, tile: int) -> tuple[int, int]:
    """Segment count and chunks in each; whole multiples of 64 tokens, none empty."""
    wanted = min(max(PROGRAMS // heads, 1), max(tokens // SHORTEST_SEGMENT, 1))
    length = cdiv(cdiv(tokens, wanted), 64) * 64
    return cdiv(tokens, length), length // tile


def _cut_at_refreshes(tokens: int, tile: int, period: int, phase: int) -> Cut:
    length = cdiv(period, cdiv(period, tile))
    per_period = cdiv(period, length)
    first = phase // length
    last_period, offset = divmod(phase + tokens - 1, period)
    chunks = last_period * per_period + offset // length - first + 1
    refreshes = (phase + tokens) // period
    return Cut(tile, length, period, per_period, phase, first, chunks, 1, chunks, refreshes)


class Tiles(NamedTuple):
    """Tile sizes, warps and pipeline stages per kernel (README.md says what was tried)."""

    geometry: int
    forward_warps: int
    adjoint_warps: int
    reverse: int
    reverse_warps: int
    memory: int
    values: int
    state_values: int
    state_warps: int
    state_stages: int
    prepare_warps: int
    output_warps: int
    back_output_warps: int
    back_output_stages: int
    inverse_base: int


def tiles_for(heads: int, d: int, dv: int, precision: Precision, sequential: bool) -> Tiles:
    """By number of sequences, widths, operand size, and whether A is walked in one piece."""
    wide = max(d, dv) > 64
    half = precision.memory == "bf16"
    padded = max(16, power_of_two(dv))
    few = heads * cdiv(padded, 32) < 128
    forward = {16: 1, 32: 1, 64: 1 if half else 2, 128: 8}[d]
    adjoint = {16: 1, 32: 1, 64: 2, 128: 8}[d]
    return Tiles(
        geometry=16,
        forward_warps=max(forward, 4 if d == 64 else 2) if sequential else forward,
        adjoint_warps=max(adjoint, 4 if d == 64 else 2) if sequential else adjoint,
        reverse=32,
        reverse_warps={16: 2, 32: 2, 64: 4, 128: 8}[d],
        memory=32 if wide and not half else 64,
        values=min(padded, 64),
        state_values=16 if few else min(padded, 32),
        state_warps=4 if d > 32 else 2,
        state_stages=3 if half and not wide else 2,
        prepare_warps=8 if wide else 4,
        output_warps=8 if wide else 4,
        back_output_warps=8 if d > 32 else 4,
        back_output_stages=3 if d <= 32 and not half else 1,
        inverse_base=16,
    )


class Launch(NamedTuple):
    """Options of one kernel launch."""

    num_warps: int
    maxnreg: int | None


def inverse_launch(d: int) -> Launch:
    """Of the float64 inverse."""
    return Launch({16: 1, 32: 2, 64: 4, 128: 8}[d], 128 if d == 64 else None)


def cdiv(a: int, b: int) -> int:
    """``a / b`` rounded up."""
    return -(-a // b)


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least ``n``."""
    return 1 << (n - 1).bit_length()
