"""Pieces that the kernels share: products in a chosen precision, tiles, chunk bounds, inverses."""

import os

import triton
import triton.language as tl

# The interpreter's tl.dot does not take bfloat16 operands: there they are rounded, then multiplied
# as float32, which is the same function.
INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")


@triton.jit
def _rounded(x):
    return x.to(tl.bfloat16).to(tl.float32)


@triton.jit
def mm(a, b, PREC: tl.constexpr):
    """``a @ b`` with float32 accumulation; ``PREC`` is a tl.dot precision, or "bf16" operands."""
    if PREC == "bf16":
        if INTERPRETED:
            return tl.dot(_rounded(a), _rounded(b))
        else:
            return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16))
    else:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), input_precision=PREC)


@triton.jit
def mm_add(a, b, acc, PREC: tl.constexpr):
    """``acc + a @ b``."""
    if PREC == "bf16":
        if INTERPRETED:
            return acc + tl.dot(_rounded(a), _rounded(b))
        else:
            return tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), acc)
    else:
        return tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision=PREC)


@triton.jit
def rows(base, first, stride, valid, C: tl.constexpr, W: tl.constexpr):
    """Load ``C`` rows of width ``W`` from row ``first`` on; rows from ``valid`` on read as 0."""
    i = tl.arange(0, C)
    offset = (first + i).to(tl.int64)[:, None] * stride + tl.arange(0, W)[None, :]
    return tl.load(base + offset, mask=i[:, None] < valid, other=0.0)


@triton.jit
def block(base, first, stride, valid, col, width, C: tl.constexpr, W: tl.constexpr):
    """As :func:`rows`, for the ``W`` columns from ``col`` on of rows ``width`` wide."""
    i = tl.arange(0, C)
    j = col + tl.arange(0, W)
    offset = (first + i).to(tl.int64)[:, None] * stride + j[None, :]
    return tl.load(base + offset, mask=(i[:, None] < valid) & (j[None, :] < width), other=0.0)


@triton.jit
def put_rows(base, x, first, stride, valid, C: tl.constexpr, W: tl.constexpr):
    """Store the first ``valid`` rows of ``x [C, W]`` from row ``first`` on."""
    i = tl.arange(0, C)
    offset = (first + i).to(tl.int64)[:, None] * stride + tl.arange(0, W)[None, :]
    tl.store(base + offset, x.to(base.dtype.element_ty), mask=i[:, None] < valid)


@triton.jit
def put_block(base, x, first, stride, valid, col, width, C: tl.constexpr, W: tl.constexpr):
    """Store as :func:`put_rows`, columns ``col`` on, of rows ``width`` wide."""
    i = tl.arange(0, C)
    j = col + tl.arange(0, W)
    offset = (first + i).to(tl.int64)[:, None] * stride + j[None, :]
    mask = (i[:, None] < valid) & (j[None, :] < width)
    tl.store(base + offset, x.to(base.dtype.element_ty), mask=mask)


@triton.jit
def scalars(base, first, stride, valid, C: tl.constexpr):
    """Load ``C`` per-token numbers as float32; those from ``valid`` on read as 0."""
    i = tl.arange(0, C)
    return tl.load(base + (first + i).to(tl.int64) * stride, mask=i < valid, other=0.0).to(
        tl.float32
    )


@triton.jit
def put_scalars(base, x, first, stride, valid, C: tl.constexpr):
    """Store the first ``valid`` of ``C`` per-token numbers."""
    i = tl.arange(0, C)
    offset = (first + i).to(tl.int64) * stride
    tl.store(base + offset, x.to(base.dtype.element_ty), mask=i < valid)


@triton.jit
def square(base, D: tl.constexpr):
    """Load a contiguous ``[D, D]`` matrix."""
    i = tl.arange(0, D)
    return tl.load(base + i[:, None] * D + i[None, :])


@triton.jit
def put_square(base, x, D: tl.constexpr):
    """Store a contiguous ``[D, D]`` matrix."""
    i = tl.arange(0, D)
    tl.store(base + i[:, None] * D + i[None, :], x.to(base.dtype.element_ty))


@triton.jit
def chunk_bounds(c, phase, T, LENGTH, period, per_period, REFRESH: tl.constexpr):
    """First token, end, and whether a refresh follows the last token, of chunk number ``c``.

    Without refresh chunks are ``LENGTH`` tokens from token 0 on. With it, every period of the
    *global* count (``phase`` tokens of the current one came before the call) is cut into
    ``per_period`` chunks, so a refresh only ever falls on the end of a chunk.
    """
    if REFRESH:
        begin = (c // per_period) * period + (c % per_period) * LENGTH - phase
        limit = (c // per_period + 1) * period - phase
        end = tl.minimum(begin + LENGTH, limit)
        refreshes = (end == limit) & (end <= T)
    else:
        begin = c * LENGTH
        end = begin + LENGTH
        refreshes = end < 0
    return tl.maximum(begin, 0), tl.minimum(end, T), refreshes


@triton.jit
def eliminate(H, b, C: tl.constexpr):
    """Factor the Gram tile ``H = X A Xᵀ`` of a chunk as the token-by-token update would.

    Returns ``δ [C]`` with ``δ_j = 1 + b_j x_j·z_j`` and the unit lower triangular ``F [C, C]``
    such that ``F (X A)`` has the rows ``z_j = A_{j−1} x_j``, where ``A_j = A_{j−1} − (b_j/δ_j) z_j
    z_jᵀ``. One tile holds both: right of column ``j`` the Schur complement, left of it ``F``.
    """
    r = tl.arange(0, C)
    for j in range(C):
        col = tl.sum(tl.where(r[None, :] == j, H, 0.0), axis=1)
        row = tl.sum(tl.where(r[:, None] == j, H, 0.0), axis=0)
        bj = tl.sum(tl.where(r == j, b, 0.0), axis=0)
        pivot = tl.sum(tl.where(r == j, col, 0.0), axis=0)
        f = col * (bj / (1.0 + bj * pivot))
        kept = tl.where(r[None, :] == j, 0.0, H)
        row = tl.where(r == j, 1.0, row)
        H = tl.where(r[:, None] > j, kept - f[:, None] * row[None, :], H)
    diagonal = tl.sum(tl.where(r[:, None] == r[None, :], H, 0.0), axis=1)
    F = tl.where(r[:, None] > r[None, :], H, 0.0) + tl.where(r[:, None] == r[None, :], 1.0, 0.0)
    return 1.0 + b * diagonal, F


@triton.jit
def unit_lower_inverse(N, C: tl.constexpr, PREC: tl.constexpr):
    """``(I + N)⁻¹`` for strictly lower triangular ``N [C, C]``.

    Forward substitution in all diagonal 16×16 blocks at once, then neighbours are merged:
    the inverse of ``[[a, 0], [n, b]]`` is ``[[a⁻¹, 0], [−b⁻¹ n a⁻¹, b⁻¹]]``.
    """
    NB: tl.constexpr = C // 16
    b = tl.arange(0, NB)
    i = tl.arange(0, 16)
    same = b[:, None, None, None] == b[None, None, :, None]
    blocks = tl.sum(tl.where(same, tl.reshape(N, (NB, 16, NB, 16)), 0.0), axis=2)
    X = tl.where(i[None, :, None] == i[None, None, :], 1.0, 0.0) + tl.zeros_like(blocks)
    for j in range(16):
        row = tl.sum(tl.where(i[None, :, None] == j, X, 0.0), axis=1)
        col = tl.sum(tl.where(i[None, None, :] == j, blocks, 0.0), axis=2)
        X -= col[:, :, None] * row[:, None, :]
    wide = tl.where(same, X[:, :, None, :], 0.0)
    B = tl.reshape(wide, (C, C))
    r = tl.arange(0, C)
    if C >= 32:
        B = _merge(B, N, r, 16, PREC)
    if C >= 64:
        B = _merge(B, N, r, 32, PREC)
    return B


@triton.jit
def _merge(B, N, r, SIZE: tl.constexpr, PREC: tl.constexpr):
    pair = (r[:, None] // (2 * SIZE)) == (r[None, :] // (2 * SIZE))
    apart = (r[:, None] // SIZE) != (r[None, :] // SIZE)
    off = tl.where(pair & apart, N, 0.0)
    return B - mm(mm(B, off, PREC), B, PREC)
