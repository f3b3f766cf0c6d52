# mypy: ignore-errors
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
def tf32_high(x):
    """A float32 rounded to the 11 bits a tf32 product sees; the matrix unit would truncate."""
    return ((x.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)


@triton.jit
def mm_add(a, b, acc, PREC: tl.constexpr):
    """``acc + a @ b``, float32 sums. ``PREC``: "bf16" operands, "tf32", "tf32x3" or "ieee".

    A 16-bit operand is exact in tf32, so 3×tf32 then needs only two products. The matrix unit
    truncates its sums: a long-lived ``acc`` drifts by about 1e-7 a call. "tf32x3" therefore sums
    from zero and adds; "tf32x3 chained" does not, and saves the registers.
    """
    A_EXACT: tl.constexpr = a.dtype == tl.bfloat16 or a.dtype == tl.float16
    B_EXACT: tl.constexpr = b.dtype == tl.bfloat16 or b.dtype == tl.float16
    if PREC == "bf16":
        if INTERPRETED:
            acc += tl.dot(_rounded(a), _rounded(b))
        else:
            acc = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), acc)
    elif PREC == "ieee":
        acc = tl.dot(a.to(tl.float32), b.to(tl.float32), acc, input_precision="ieee")
    elif PREC == "tf32":
        x = a.to(tl.float32) if A_EXACT else tf32_high(a)
        y = b.to(tl.float32) if B_EXACT else tf32_high(b)
        acc = tl.dot(x, y, acc, input_precision="tf32")
    elif A_EXACT:
        x = a.to(tl.float32)
        y = b.to(tl.float32)
        high = tf32_high(y)
        acc = tl.dot(x, y - high, acc, input_precision="tf32")
        acc = tl.dot(x, high, acc, input_precision="tf32")
    elif B_EXACT:
        y = b.to(tl.float32)
        high = tf32_high(a)
        acc = tl.dot(a - high, y, acc, input_precision="tf32")
        acc = tl.dot(high, y, acc, input_precision="tf32")
    else:
        ah = tf32_high(a)
        bh = tf32_high(b)
        if PREC == "tf32x3":
            own = tl.dot(a - ah, bh, input_precision="tf32")
            own = tl.dot(ah, bh, own, input_precision="tf32")
            acc += tl.dot(ah, b - bh, own, input_precision="tf32")
        else:
            acc = tl.dot(a - ah, bh, acc, input_precision="tf32")
            acc = tl.dot(ah, bh, acc, input_precision="tf32")
            acc = tl.dot(ah, b - bh, acc, input_precision="tf32")
    return acc


@triton.jit
def mm(a, b, PREC: tl.constexpr):
    """``a @ b``; see :func:`mm_add`."""
    return mm_add(a, b, tl.zeros((a.shape[0], b.shape[1]), dtype=tl.float32), PREC)


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
    z_jᵀ``. This is Gaussian elimination of ``I + H diag(b)``. One tile holds both results: right
    of the pivot the Schur complement, left of it ``F``. Two pivots a step, because a step costs
    latency, not arithmetic.
    """
    i = tl.arange(0, C)
    r = i[:, None]
    n = i[None, :]
    K = tl.where(r == n, 1.0, 0.0) + H * b[None, :]
    for half in range(C // 2):
        j = 2 * half
        col0 = tl.sum(tl.where(n == j, K, 0.0), axis=1)
        col1 = tl.sum(tl.where(n == j + 1, K, 0.0), axis=1)
        row0 = tl.sum(tl.where(r == j, K, 0.0), axis=0)
        row1 = tl.sum(tl.where(r == j + 1, K, 0.0), axis=0)
        k00 = tl.sum(tl.where(i == j, col0, 0.0), axis=0)
        k10 = tl.sum(tl.where(i == j + 1, col0, 0.0), axis=0)
        k01 = tl.sum(tl.where(i == j, col1, 0.0), axis=0)
        k11 = tl.sum(tl.where(i == j + 1, col1, 0.0), axis=0)
        first = 1.0 / k00
        down = k10 * first
        pivot = k11 - down * k01
        f0 = col0 * first
        f1 = (col1 - f0 * k01) * (1.0 / pivot)
        row0 = tl.where(i == j, 1.0, tl.where(i == j + 1, 0.0, row0))
        row1 = tl.where(i == j + 1, 1.0, tl.where(i == j, 0.0, row1) - down * row0)
        rest = tl.where((n == j) | (n == j + 1), 0.0, K)
        below = rest - f0[:, None] * row0[None, :] - f1[:, None] * row1[None, :]
        second = tl.where(n == j + 1, pivot, row1[None, :])
        K = tl.where(r > j + 1, below, tl.where(r == j + 1, second, K))
    delta = tl.sum(tl.where(r == n, K, 0.0), axis=1)
    F = tl.where(r > n, K, tl.where(r == n, 1.0, 0.0))
    return delta, F


@triton.jit
def unit_lower_inverse(N, C: tl.constexpr, BASE: tl.constexpr, PREC: tl.constexpr):
    """``(I + N)⁻¹`` for strictly lower triangular ``N [C, C]``.

    Forward substitution in all diagonal ``BASE``-wide blocks at once, then neighbours are merged:
    the inverse of ``[[a, 0], [n, b]]`` is ``[[a⁻¹, 0], [−b⁻¹ n a⁻¹, b⁻¹]]``.
    """
    NB: tl.constexpr = C // BASE
    b = tl.arange(0, NB)
    i = tl.arange(0, BASE)
    same = b[:, None, None, None] == b[None, None, :, None]
    blocks = tl.sum(tl.where(same, tl.reshape(N, (NB, BASE, NB, BASE)), 0.0), axis=2)
    X = tl.where(i[None, :, None] == i[None, None, :], 1.0, 0.0) + tl.zeros_like(blocks)
    for j in range(BASE):
        row = tl.sum(tl.where(i[None, :, None] == j, X, 0.0), axis=1)
        col = tl.sum(tl.where(i[None, None, :] == j, blocks, 0.0), axis=2)
        X -= col[:, :, None] * row[:, None, :]
    B = tl.reshape(tl.where(same, X[:, :, None, :], 0.0), (C, C))
    r = tl.arange(0, C)
    if BASE <= 8 and C >= 16:
        B = _merge(B, N, r, 8, PREC)
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
