# ruff: noqa: ARG001, SIM108
# mypy: ignore-errors
"""The A part: write directions from keys, and its adjoint.

Without refresh a sequence is cut into segments. ``M`` at each segment start is a prefix sum of
Gram matrices, its inverse starts ``A`` there, and segments run in parallel; inside one, ``A`` walks
through chunks in registers (math in README.md beside this file).
"""

import triton
import triton.language as tl

from vla.ops.kernels.common import (
    chunk_bounds,
    eliminate,
    mm,
    mm_add,
    put_rows,
    put_scalars,
    put_square,
    rows,
    scalars,
    square,
)


@triton.jit
def gram_kernel(
    X, Beta, M,
    sx_b, sx_t, sx_h, sb_b, sb_t, sb_h,
    T, H, segment, n_segments,
    D: tl.constexpr, C: tl.constexpr, HAS_BETA: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """``M[head, s] = Σ b x xᵀ`` over segment ``s``, float64 sums of float32 products."""
    head, s = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    X += b * sx_b + h * sx_h
    Beta += b * sb_b + h * sb_h
    acc = tl.zeros((D, D), dtype=tl.float64)
    for first in range(s * segment, tl.minimum((s + 1) * segment, T), C):
        x = rows(X, first, sx_t, T - first, C, D)
        if HAS_BETA:
            y = x.to(tl.float32) * scalars(Beta, first, sb_t, T - first, C)[:, None]
            acc += mm(tl.trans(x), y, PREC).to(tl.float64)
        elif x.dtype == tl.bfloat16:
            # Products of bfloat16 numbers are exact in float32.
            acc += mm(tl.trans(x), x, "bf16").to(tl.float64)
        else:
            acc += mm(tl.trans(x), x, PREC).to(tl.float64)
    put_square(M + (head * n_segments + s).to(tl.int64) * D * D, acc, D)


@triton.jit
def prefix_kernel(
    M, First,
    n, size,
    REVERSE: tl.constexpr, HAS_FIRST: tl.constexpr, N: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """In place, ``M[head, s] ← First[head] + Σ M[head, r]`` over ``r < s`` (``r > s`` reversed)."""
    head = tl.program_id(0).to(tl.int64)
    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float64)
    if HAS_FIRST:
        total += tl.load(First + head * size + cols).to(tl.float64)
    s = tl.arange(0, N)
    for i in range(0, n, N):
        index = n - 1 - i - s if REVERSE else i + s
        place = M + (head * n + index[:, None]) * size + cols[None, :]
        inside = (i + s)[:, None] < n
        here = tl.load(place, mask=inside & (cols[None, :] >= 0), other=0.0).to(tl.float64)
        before = tl.cumsum(here, axis=0) - here + total[None, :]
        tl.store(place, before.to(M.dtype.element_ty), mask=inside & (cols[None, :] >= 0))
        total += tl.sum(here, axis=0)


@triton.jit
def inverse_kernel(
    X, First, Y,
    n, shift, scale, plus,
    D: tl.constexpr, SUM: tl.constexpr, HAS_FIRST: tl.constexpr,
):  # fmt: skip
    """``Y = plus I + scale (X + shift I)⁻¹`` for symmetric positive definite ``X``, in float64.

    With ``SUM``, ``X[head, s]`` stands for ``First[head] + Σ X[head, r]`` over ``r < s``, summed
    here: one launch fewer where there are few segments. The sweep operator inverts in place, two
    rows a step, and needs no pivoting.
    """
    head, s = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = tl.arange(0, D)
    eye = tl.where(i[:, None] == i[None, :], 1.0, 0.0).to(tl.float64)
    A = shift * eye
    if SUM:
        if HAS_FIRST:
            A += square(First + head * D * D, D).to(tl.float64)
        for r in range(s):
            A += square(X + (head * n + r) * D * D, D).to(tl.float64)
    else:
        A += square(X + (head * n + s) * D * D, D).to(tl.float64)
    # Only rows are read below, so a rounding asymmetry would stay while A shrinks.
    A = 0.5 * (A + tl.trans(A))
    for half in range(D // 2):
        j = 2 * half
        row0 = tl.sum(tl.where(i[:, None] == j, A, 0.0), axis=0)
        row1 = tl.sum(tl.where(i[:, None] == j + 1, A, 0.0), axis=0)
        p00 = tl.sum(tl.where(i == j, row0, 0.0), axis=0)
        p01 = tl.sum(tl.where(i == j + 1, row0, 0.0), axis=0)
        p11 = tl.sum(tl.where(i == j + 1, row1, 0.0), axis=0)
        det = p00 * p11 - p01 * p01
        # A float64 division is slow; two Newton steps take float32's reciprocal to full precision.
        inv = (1.0 / det.to(tl.float32)).to(tl.float64)
        inv *= 2.0 - det * inv
        inv *= 2.0 - det * inv
        # With P − I in place of the pivot block P one rank-2 update does the whole sweep, except
        # that it leaves 2 too much on the diagonal, which no later step reads.
        row0 = tl.where(i == j, p00 - 1.0, row0)
        row1 = tl.where(i == j + 1, p11 - 1.0, row1)
        left = (row0 * p11 - row1 * p01) * inv
        right = (row1 * p00 - row0 * p01) * inv
        A -= row0[:, None] * left[None, :]
        A -= row1[:, None] * right[None, :]
    result = (plus + 2.0 * scale) * eye - scale * A
    put_square(Y + (head * n + s) * D * D, result, D)


@triton.jit
def reciprocal(x):
    """``1/x``, and 0 where ``x`` is 0."""
    return tl.where(x == 0.0, 0.0, 1.0 / tl.where(x == 0.0, 1.0, x))


@triton.jit
def start_of_segment(A0, lambda0, index, D: tl.constexpr, HAS_A0: tl.constexpr):
    """``A`` where a segment begins: stored, or ``I/λ0``."""
    if HAS_A0:
        A = square(A0 + index.to(tl.int64) * D * D, D).to(tl.float32)
    else:
        i = tl.arange(0, D)
        A = tl.where(i[:, None] == i[None, :], 1.0 / lambda0, 0.0).to(tl.float32)
    return A


@triton.jit
def alpha_rows(
    k, A, z, weight, delta, refreshes, valid, eps,
    C: tl.constexpr, HAS_U: tl.constexpr, REFRESH: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """``α_t = A_t k_t`` of a chunk whose Sherman-Morrison vectors are ``z``."""
    r = tl.arange(0, C)
    if HAS_U:
        later = r[:, None] >= r[None, :]
        kz = tl.where(later, mm(k, tl.trans(z), PREC) * weight[None, :], 0.0)
        alpha = mm(k, A, PREC) - mm(kz, z, PREC)
    else:
        alpha = z / delta[:, None]
    if REFRESH:
        last = (r == valid - 1) & refreshes
        alpha += tl.where(last[:, None], eps * k.to(tl.float32), 0.0)
    return alpha


@triton.jit
def forward_kernel(
    K, U, Beta, A0, G, Z, Delta, A_end,
    sk_b, sk_t, sk_h, su_b, su_t, su_h, sb_b, sb_t, sb_h,
    T, H, n_segments, first_chunk, chunks, chunks_per_segment,
    phase, length, period, per_period, lambda0, eps,
    D: tl.constexpr, C: tl.constexpr, GAIN: tl.constexpr,
    HAS_U: tl.constexpr, HAS_BETA: tl.constexpr, HAS_A0: tl.constexpr, REFRESH: tl.constexpr,
    SAVE: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Write directions ``g = β α̂`` of every token; ``z`` and ``δ`` for the backward pass.

    One program walks one segment of one head.
    """
    head, s = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    K += b * sk_b + h * sk_h
    U += b * su_b + h * su_h
    Beta += b * sb_b + h * sb_h
    G += (b * T * H + h) * D
    Z += (b * T * H + h) * D
    Delta += b * T * H + h
    i = tl.arange(0, D)
    A = start_of_segment(A0, lambda0, head * n_segments + s, D, HAS_A0)
    begin = first_chunk + s * chunks_per_segment
    for c in range(begin, tl.minimum(begin + chunks_per_segment, first_chunk + chunks)):
        t, end, refreshes = chunk_bounds(c, phase, T, length, period, per_period, REFRESH)
        valid = end - t
        k = rows(K, t, sk_t, valid, C, D)
        if HAS_BETA:
            gate = scalars(Beta, t, sb_t, valid, C)
        else:
            gate = tl.full((C,), 1.0, tl.float32)
        if HAS_U:
            x = rows(U, t, su_t, valid, C, D)
            w = tl.full((C,), 1.0, tl.float32)
        else:
            x = k
            w = gate
        P = mm(x, A, PREC)
        delta, F = eliminate(mm(P, tl.trans(x), PREC), w, C)
        z = mm(F, P, PREC)
        weight = w / delta
        alpha = alpha_rows(k, A, z, weight, delta, refreshes, valid, eps, C, HAS_U, REFRESH, PREC)
        if GAIN == "unit":
            alpha *= reciprocal(tl.sqrt(tl.sum(alpha * alpha, axis=1)))[:, None]
        elif GAIN == "oblique":
            alpha *= reciprocal(tl.sum(alpha * k.to(tl.float32), axis=1))[:, None]
        put_rows(G, alpha * gate[:, None], t, H * D, valid, C, D)
        if SAVE:
            put_rows(Z, z, t, H * D, valid, C, D)
            put_scalars(Delta, delta, t, H, valid, C)
        A = mm_add(tl.trans(z * -weight[:, None]), z, A, PREC)
        if REFRESH:
            A += tl.where((i[:, None] == i[None, :]) & refreshes, eps, 0.0)
    if s == n_segments - 1:
        put_square(A_end + head.to(tl.int64) * D * D, 0.5 * (A + tl.trans(A)), D)


@triton.jit
def adjoint_kernel(
    K, U, Beta, A0, Z, Delta, dG, Alpha, B, Factor, dBeta, R, A_refresh,
    sk_b, sk_t, sk_h, su_b, su_t, su_h, sb_b, sb_t, sb_h,
    T, H, n_segments, first_chunk, chunks, chunks_per_segment, n_refresh,
    phase, length, period, per_period, lambda0, eps,
    D: tl.constexpr, C: tl.constexpr, GAIN: tl.constexpr,
    HAS_U: tl.constexpr, HAS_BETA: tl.constexpr, HAS_A0: tl.constexpr, REFRESH: tl.constexpr,
    SUM: tl.constexpr, PREC: tl.constexpr, PREC_A: tl.constexpr,
):  # fmt: skip
    """``b_t = A_t dα_t``: the forward operator applied to the adjoint of α.

    Stores b (and α, where it is more than ``z/δ``), the gate's gradient through ``g = β α̂``, for
    the oblique gain the factor of α in ``dk``, with ``SUM`` the segment's total of ``bᵀα + αᵀb``,
    and ``A`` after each refresh.
    """
    head, s = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    K += b * sk_b + h * sk_h
    U += b * su_b + h * su_h
    Beta += b * sb_b + h * sb_h
    wide = (b * T * H + h) * D
    Z += wide
    dG += wide
    Alpha += wide
    B += wide
    Delta += b * T * H + h
    Factor += b * T * H + h
    dBeta += b * T * H + h
    i = tl.arange(0, D)
    r = tl.arange(0, C)
    A = start_of_segment(A0, lambda0, head * n_segments + s, D, HAS_A0)
    total = tl.zeros((D, D), dtype=tl.float32)
    begin = first_chunk + s * chunks_per_segment
    for c in range(begin, tl.minimum(begin + chunks_per_segment, first_chunk + chunks)):
        t, end, refreshes = chunk_bounds(c, phase, T, length, period, per_period, REFRESH)
        valid = end - t
        k = rows(K, t, sk_t, valid, C, D)
        z = rows(Z, t, H * D, valid, C, D)
        delta = scalars(Delta, t, H, valid, C)
        delta = tl.where(r < valid, delta, 1.0)
        if HAS_BETA:
            gate = scalars(Beta, t, sb_t, valid, C)
        else:
            gate = tl.full((C,), 1.0, tl.float32)
        if HAS_U:
            weight = 1.0 / delta
        else:
            weight = gate / delta
        alpha = alpha_rows(k, A, z, weight, delta, refreshes, valid, eps, C, HAS_U, REFRESH, PREC_A)
        dg = rows(dG, t, H * D, valid, C, D)
        if GAIN == "unit":
            norm = reciprocal(tl.sqrt(tl.sum(alpha * alpha, axis=1)))
            unit = alpha * norm[:, None]
            along = tl.sum(unit * dg, axis=1)
            dalpha = (dg - unit * along[:, None]) * (norm * gate)[:, None]
            dgate = along
        elif GAIN == "oblique":
            wide_k = k.to(tl.float32)
            norm = reciprocal(tl.sum(alpha * wide_k, axis=1))
            along = tl.sum(alpha * dg, axis=1) * norm
            dalpha = (dg - wide_k * along[:, None]) * (norm * gate)[:, None]
            put_scalars(Factor, -along * norm * gate, t, H, valid, C)
            dgate = along
        else:
            dalpha = dg * gate[:, None]
            dgate = tl.sum(alpha * dg, axis=1)
        if HAS_BETA:
            put_scalars(dBeta, dgate, t, H, valid, C)
        later = r[:, None] >= r[None, :]
        dz = tl.where(later, mm(dalpha, tl.trans(z), PREC) * weight[None, :], 0.0)
        adj = mm(dalpha, A, PREC) - mm(dz, z, PREC)
        if REFRESH:
            last = (r == valid - 1) & refreshes
            adj += tl.where(last[:, None], eps * dalpha, 0.0)
        if HAS_U:
            put_rows(Alpha, alpha, t, H * D, valid, C, D)
        put_rows(B, adj, t, H * D, valid, C, D)
        if SUM:
            total = mm_add(tl.trans(adj), alpha, total, PREC)
        A = mm_add(tl.trans(z * -weight[:, None]), z, A, PREC_A)
        if REFRESH:
            A += tl.where((i[:, None] == i[None, :]) & refreshes, eps, 0.0)
            if refreshes:
                place = (head * n_refresh + c // per_period).to(tl.int64) * D * D
                put_square(A_refresh + place, A, D)
    if SUM:
        total += tl.trans(total)
        put_square(R + (head * n_segments + s).to(tl.int64) * D * D, total, D)


@triton.jit
def reverse_kernel(
    K, U, Beta, Alpha, Z, Delta, B, Factor, dK, dU, dBeta, R, J, R_begin, dK_out, dBeta_out,
    sk_b, sk_t, sk_h, su_b, su_t, su_h, sb_b, sb_t, sb_h,
    T, H, n_segments, first_chunk, chunks, chunks_per_segment, n_refresh,
    phase, length, period, per_period, eps,
    D: tl.constexpr, C: tl.constexpr, HAS_U: tl.constexpr, HAS_BETA: tl.constexpr,
    HAS_R: tl.constexpr, HAS_FACTOR: tl.constexpr, REFRESH: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Reverse-time linear attention: ``y_t = x_t Σ_{s ≥ t} (b_sᵀα_s + α_sᵀb_s)``.

    ``du = −y`` where ``u`` was given; otherwise ``x = k``, ``dk −= β y`` and ``dβ −= k·y/2``.
    """
    head, s = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    wide = (b * T * H + h) * D
    K += b * sk_b + h * sk_h
    U += b * su_b + h * su_h
    Beta += b * sb_b + h * sb_h
    Alpha += wide
    Z += wide
    Delta += b * T * H + h
    B += wide
    dK += wide
    dU += wide
    dK_out += wide
    Factor += b * T * H + h
    dBeta += b * T * H + h
    dBeta_out += b * T * H + h
    r = tl.arange(0, C)
    if HAS_R:
        state = square(R + (head * n_segments + s).to(tl.int64) * D * D, D).to(tl.float32)
    else:
        state = tl.zeros((D, D), dtype=tl.float32)
    begin = first_chunk + s * chunks_per_segment
    count = tl.minimum(begin + chunks_per_segment, first_chunk + chunks) - begin
    for back in range(count):
        c = begin + count - 1 - back
        t, end, refreshes = chunk_bounds(c, phase, T, length, period, per_period, REFRESH)
        valid = end - t
        k = rows(K, t, sk_t, valid, C, D)
        if HAS_U:
            x = rows(U, t, su_t, valid, C, D)
        else:
            x = k
        last = (r == valid - 1) & refreshes
        if HAS_U:
            alpha = rows(Alpha, t, H * D, valid, C, D)
        else:
            delta = tl.where(r < valid, scalars(Delta, t, H, valid, C), 1.0)
            alpha = rows(Z, t, H * D, valid, C, D) / delta[:, None]
            if REFRESH:
                alpha += tl.where(last[:, None], eps * k.to(tl.float32), 0.0)
        adj = rows(B, t, H * D, valid, C, D)
        dk = rows(dK, t, H * D, valid, C, D) + adj
        if HAS_FACTOR:
            dk += alpha * scalars(Factor, t, H, valid, C)[:, None]
        if REFRESH:
            if refreshes:
                a_last = tl.sum(tl.where(last[:, None], alpha, 0.0), axis=0)
                b_last = tl.sum(tl.where(last[:, None], adj, 0.0), axis=0)
                state += b_last[:, None] * a_last[None, :] + a_last[:, None] * b_last[None, :]
                place = (head * n_refresh + c // per_period).to(tl.int64) * D * D
                across = square(J + place, D)
                state = mm(mm(across, state, PREC), across, PREC)
            alpha = tl.where(last[:, None], 0.0, alpha)
            adj = tl.where(last[:, None], 0.0, adj)
        later = r[:, None] <= r[None, :]
        xa = tl.where(later, mm(x, tl.trans(alpha), PREC), 0.0)
        xb = tl.where(later, mm(x, tl.trans(adj), PREC), 0.0)
        y = mm(x, state, PREC)
        y = mm_pair(xa, adj, xb, alpha, y, PREC)
        if HAS_U:
            put_rows(dU, -y, t, H * D, valid, C, D)
            put_rows(dK_out, dk, t, H * D, valid, C, D)
            if HAS_BETA:
                put_scalars(dBeta_out, scalars(dBeta, t, H, valid, C), t, H, valid, C)
        elif HAS_BETA:
            gate = scalars(Beta, t, sb_t, valid, C)
            dgate = scalars(dBeta, t, H, valid, C) - 0.5 * tl.sum(k.to(tl.float32) * y, axis=1)
            put_rows(dK_out, dk - y * gate[:, None], t, H * D, valid, C, D)
            put_scalars(dBeta_out, dgate, t, H, valid, C)
        else:
            put_rows(dK_out, dk - y, t, H * D, valid, C, D)
        state = mm_pair(tl.trans(adj), alpha, tl.trans(alpha), adj, state, PREC)
    if s == 0:
        put_square(R_begin + head.to(tl.int64) * D * D, state, D)


@triton.jit
def mm_pair(a, b, c, d, acc, PREC: tl.constexpr):
    """``acc + a @ b + c @ d``."""
    return mm_add(c, d, mm_add(a, b, acc, PREC), PREC)
