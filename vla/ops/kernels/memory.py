# mypy: ignore-errors
"""The S part: ``S ← S + (v − S k) gᵀ`` and its adjoint, in chunks.

The same kernels run VLA (``g = β α̂``), the delta rule (``g = β k``) and, with ``ERASE`` off, linear
attention (``S ← S + v kᵀ``). Inside, the state is kept transposed, ``[D, D_v]``.
"""

import triton
import triton.language as tl

from vla.ops.kernels.common import (
    block,
    mm,
    mm_add,
    put_block,
    put_rows,
    rows,
    unit_lower_inverse,
)


@triton.jit
def prepare_kernel(
    K, G, V, W, E, Inv,
    sk_b, sk_t, sk_h, sg_b, sg_t, sg_h, sv_b, sv_t, sv_h,
    T, H, DV,
    D: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, BASE: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Of each chunk: ``(I + tril(K Gᵀ, −1))⁻¹`` applied to ``K`` (``W``) and ``V`` (``E``)."""
    c, head = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    K += b * sk_b + h * sk_h
    G += b * sg_b + h * sg_h
    V += b * sv_b + h * sv_h
    W += (b * T * H + h) * D
    E += (b * T * H + h) * DV
    Inv += (b * T * H + h) * C
    t = c * C
    valid = T - t
    r = tl.arange(0, C)
    k = rows(K, t, sk_t, valid, C, D)
    g = rows(G, t, sg_t, valid, C, D)
    N = tl.where(r[:, None] > r[None, :], mm(k, tl.trans(g), PREC), 0.0)
    inv = unit_lower_inverse(N, C, BASE, PREC)
    put_rows(Inv, inv, t, H * C, valid, C, C)
    put_rows(W, mm(inv, k, PREC), t, H * D, valid, C, D)
    for col in range(0, DV, BV):
        v = block(V, t, sv_t, valid, col, DV, C, BV)
        put_block(E, mm(inv, v, PREC), t, H * DV, valid, col, DV, C, BV)


@triton.jit
def state_kernel(
    W, G, V, E, S0, States, S_end,
    sg_b, sg_t, sg_h, sv_b, sv_t, sv_h,
    T, H, DV, chunks,
    D: tl.constexpr, C: tl.constexpr, BV: tl.constexpr,
    ERASE: tl.constexpr, HAS_S0: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """The one sequential pass: store ``S`` before each chunk; ``E ← E − W S``; ``S += Gᵀ E``.

    ``V`` is what the pass reads (``E`` of :func:`prepare_kernel`, or the values where nothing is
    erased), ``E`` what it writes.
    """
    head, part = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    W += (b * T * H + h) * D
    G += b * sg_b + h * sg_h
    V += b * sv_b + h * sv_h
    E += (b * T * H + h) * DV
    col = part * BV
    i = tl.arange(0, D)
    j = col + tl.arange(0, BV)
    mask = (i[:, None] >= 0) & (j[None, :] < DV)
    outward = head.to(tl.int64) * D * DV + j[None, :] * D + i[:, None]
    if HAS_S0:
        S = tl.load(S0 + outward, mask=mask, other=0.0)
    else:
        S = tl.zeros((D, BV), dtype=tl.float32)
    for c in range(chunks):
        t = c * C
        valid = T - t
        place = States + (head.to(tl.int64) * chunks + c) * D * DV + i[:, None] * DV + j[None, :]
        tl.store(place, S.to(States.dtype.element_ty), mask=mask)
        g = rows(G, t, sg_t, valid, C, D)
        e = block(V, t, sv_t, valid, col, DV, C, BV)
        if ERASE:
            w = rows(W, t, H * D, valid, C, D)
            e = e.to(tl.float32) - mm(w, S, PREC)
            put_block(E, e, t, H * DV, valid, col, DV, C, BV)
        S = mm_add(tl.trans(g), e, S, PREC)
    tl.store(S_end + outward, S, mask=mask)


@triton.jit
def output_kernel(
    Q, G, E, States, Out,
    sq_b, sq_t, sq_h, sg_b, sg_t, sg_h, se_b, se_t, se_h,
    T, H, DV, chunks,
    D: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """``O = Q S + tril(Q Gᵀ) E`` of every chunk."""
    c, head, part = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    Q += b * sq_b + h * sq_h
    G += b * sg_b + h * sg_h
    E += b * se_b + h * se_h
    Out += (b * T * H + h) * DV
    t = c * C
    valid = T - t
    r = tl.arange(0, C)
    q = rows(Q, t, sq_t, valid, C, D)
    g = rows(G, t, sg_t, valid, C, D)
    qg = tl.where(r[:, None] >= r[None, :], mm(q, tl.trans(g), PREC), 0.0)
    e = block(E, t, se_t, valid, part * BV, DV, C, BV)
    S = block(States + (head.to(tl.int64) * chunks + c) * D * DV, 0, DV, D, part * BV, DV, D, BV)
    o = mm_add(qg, e, mm(q, S, PREC), PREC)
    put_block(Out, o, t, H * DV, valid, part * BV, DV, C, BV)


@triton.jit
def back_prepare_kernel(
    Q, G, dO, Inv, GA, X,
    sq_b, sq_t, sq_h, sg_b, sg_t, sg_h,
    T, H, DV,
    D: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, ERASE: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """``X = (I+N)⁻ᵀ triu(G Qᵀ) dO`` and ``GA = (I+N)⁻ᵀ G``: what the reverse pass needs."""
    c, head = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    Q += b * sq_b + h * sq_h
    G += b * sg_b + h * sg_h
    dO += (b * T * H + h) * DV
    X += (b * T * H + h) * DV
    GA += (b * T * H + h) * D
    Inv += (b * T * H + h) * C
    t = c * C
    valid = T - t
    r = tl.arange(0, C)
    q = rows(Q, t, sq_t, valid, C, D)
    g = rows(G, t, sg_t, valid, C, D)
    gq = tl.where(r[:, None] <= r[None, :], mm(g, tl.trans(q), PREC), 0.0)
    if ERASE:
        # Read transposed rather than transposed in registers; rows past the end would read as
        # zeros instead of the identity, which only ever multiplies zero rows.
        spot = Inv + (t + r).to(tl.int64)[None, :] * (H * C) + r[:, None]
        inv_t = tl.load(spot, mask=(r[None, :] < valid) & (r[:, None] >= 0), other=0.0)
        put_rows(GA, mm(inv_t, g, PREC), t, H * D, valid, C, D)
    for col in range(0, DV, BV):
        do = block(dO, t, H * DV, valid, col, DV, C, BV)
        x = mm(gq, do, PREC)
        if ERASE:
            x = mm(inv_t, x, PREC)
        put_block(X, x, t, H * DV, valid, col, DV, C, BV)


@triton.jit
def back_state_kernel(
    Q, K, GA, dO, X, dS_end, dStates, dS0, dV,
    sq_b, sq_t, sq_h, sk_b, sk_t, sk_h, sg_b, sg_t, sg_h,
    T, H, DV, chunks,
    D: tl.constexpr, C: tl.constexpr, BV: tl.constexpr,
    ERASE: tl.constexpr, HAS_DS: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Backwards through the chunks: ``X += GA dS`` (that is dV); ``dS += Qᵀ dO − Kᵀ X``."""
    head, part = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    Q += b * sq_b + h * sq_h
    K += b * sk_b + h * sk_h
    GA += b * sg_b + h * sg_h
    narrow = (b * T * H + h) * DV
    dO += narrow
    X += narrow
    dV += narrow
    col = part * BV
    i = tl.arange(0, D)
    j = col + tl.arange(0, BV)
    mask = (i[:, None] >= 0) & (j[None, :] < DV)
    outward = head.to(tl.int64) * D * DV + j[None, :] * D + i[:, None]
    if HAS_DS:
        dS = tl.load(dS_end + outward, mask=mask, other=0.0)
    else:
        dS = tl.zeros((D, BV), dtype=tl.float32)
    for back in range(chunks):
        c = chunks - 1 - back
        t = c * C
        valid = T - t
        place = dStates + (head.to(tl.int64) * chunks + c) * D * DV + i[:, None] * DV + j[None, :]
        tl.store(place, dS.to(dStates.dtype.element_ty), mask=mask)
        q = rows(Q, t, sq_t, valid, C, D)
        ga = rows(GA, t, sg_t, valid, C, D)
        do = block(dO, t, H * DV, valid, col, DV, C, BV)
        x = block(X, t, H * DV, valid, col, DV, C, BV).to(tl.float32)
        x += mm(ga, dS, PREC)
        put_block(dV, x, t, H * DV, valid, col, DV, C, BV)
        dS = mm_add(tl.trans(q), do, dS, PREC)
        if ERASE:
            k = rows(K, t, sk_t, valid, C, D)
            dS -= mm(tl.trans(k), x, PREC)
    tl.store(dS0 + outward, dS, mask=mask)


@triton.jit
def back_output_kernel(
    Q, K, G, E, dO, X, States, dStates, dQ, dK, dG,
    sq_b, sq_t, sq_h, sk_b, sk_t, sk_h, sg_b, sg_t, sg_h, se_b, se_t, se_h,
    T, H, DV, chunks,
    D: tl.constexpr, C: tl.constexpr, BV: tl.constexpr, ERASE: tl.constexpr, PREC: tl.constexpr,
):  # fmt: skip
    """Gradients of queries, keys and write directions, chunk by chunk."""
    c, head = tl.program_id(0), tl.program_id(1)
    b, h = (head // H).to(tl.int64), (head % H).to(tl.int64)
    Q += b * sq_b + h * sq_h
    K += b * sk_b + h * sk_h
    G += b * sg_b + h * sg_h
    E += b * se_b + h * se_h
    narrow, wide = (b * T * H + h) * DV, (b * T * H + h) * D
    dO += narrow
    X += narrow
    dQ += wide
    dK += wide
    dG += wide
    States += (head.to(tl.int64) * chunks + c) * D * DV
    dStates += (head.to(tl.int64) * chunks + c) * D * DV
    t = c * C
    valid = T - t
    r = tl.arange(0, C)
    i = tl.arange(0, D)
    dq = tl.zeros((C, D), dtype=tl.float32)
    dk = tl.zeros((C, D), dtype=tl.float32)
    dg = tl.zeros((C, D), dtype=tl.float32)
    oe = tl.zeros((C, C), dtype=tl.float32)
    eo = tl.zeros((C, C), dtype=tl.float32)
    xe = tl.zeros((C, C), dtype=tl.float32)
    ex = tl.zeros((C, C), dtype=tl.float32)
    for col in range(0, DV, BV):
        do = block(dO, t, H * DV, valid, col, DV, C, BV)
        e = block(E, t, se_t, valid, col, DV, C, BV)
        j = col + tl.arange(0, BV)
        flat = i[None, :] * DV + j[:, None]
        inside = (j[:, None] < DV) & (i[None, :] >= 0)
        S = tl.load(States + flat, mask=inside, other=0.0)
        dS = tl.load(dStates + flat, mask=inside, other=0.0)
        dq = mm_add(do, S, dq, PREC)
        dg = mm_add(e, dS, dg, PREC)
        oe = mm_add(do, tl.trans(e), oe, PREC)
        eo = mm_add(e, tl.trans(do), eo, PREC)
        if ERASE:
            x = block(X, t, H * DV, valid, col, DV, C, BV)
            dk = mm_add(x, S, dk, PREC)
            xe = mm_add(x, tl.trans(e), xe, PREC)
            ex = mm_add(e, tl.trans(x), ex, PREC)
    q = rows(Q, t, sq_t, valid, C, D)
    g = rows(G, t, sg_t, valid, C, D)
    dq = mm_add(tl.where(r[:, None] >= r[None, :], oe, 0.0), g, dq, PREC)
    put_rows(dQ, dq, t, H * D, valid, C, D)
    dg = mm_add(tl.where(r[:, None] <= r[None, :], eo, 0.0), q, dg, PREC)
    if ERASE:
        k = rows(K, t, sk_t, valid, C, D)
        dk = mm_add(tl.where(r[:, None] > r[None, :], xe, 0.0), g, dk, PREC)
        put_rows(dK, -dk, t, H * D, valid, C, D)
        dg = mm_add(tl.where(r[:, None] < r[None, :], -ex, 0.0), k, dg, PREC)
    put_rows(dG, dg, t, H * D, valid, C, D)
