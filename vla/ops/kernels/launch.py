"""Allocate and launch: tensors in, tensors out, no autograd here."""

from functools import lru_cache
from typing import Any, NamedTuple

import torch

from vla.ops.kernels import geometry, memory
from vla.ops.kernels.plan import (
    Cut,
    Precision,
    Tiles,
    cdiv,
    cut,
    inverse_launch,
    precision_for,
    tiles_for,
)
from vla.typing import Tensor


def empty(*shape: Any, **options: Any) -> Tensor:
    """``torch.empty``, in one place so that tests can poison it."""
    return torch.empty(*shape, **options)


class Rule(NamedTuple):
    """The numbers of one call. ``period`` 0 is no refresh; ``step`` counts tokens seen before."""

    lambda0: float
    gain: str
    period: int
    eps: float
    step: int
    precision: str


class Layout(NamedTuple):
    """Sizes and choices that every launch of one call shares."""

    b: int
    t: int
    h: int
    d: int
    dv: int
    precision: Precision
    tiles: Tiles

    @property
    def heads(self) -> int:
        """Batch times heads: the independent sequences."""
        return self.b * self.h

    @property
    def chunks(self) -> int:
        """Chunks of the S part."""
        return cdiv(self.t, self.tiles.memory)


def layout_of(k: Tensor, v: Tensor, rule: Rule, own_u: bool) -> Layout:
    """The layout of ``k [b, t, h, d]`` and ``v [b, t, h, dv]``."""
    tame = rule.gain == "unit" or not own_u
    return _layout(*k.shape, v.shape[-1], k.dtype, rule.precision, tame, rule.period > 0)


@lru_cache(maxsize=256)
def _layout(
    b: int, t: int, h: int, d: int, dv: int, dtype: torch.dtype, precision: str, *how: bool
) -> Layout:
    tame, sequential = how
    policy = precision_for(dtype, d, precision, tame)
    return Layout(b, t, h, d, dv, policy, tiles_for(b * h, d, dv, policy, sequential))


def rowwise(x: Tensor) -> Tensor:
    """``x`` with contiguous rows; other strides are taken as they are."""
    return x if x.stride(-1) == 1 or x.shape[-1] == 1 else x.contiguous()


def strides(x: Tensor | None) -> tuple[int, int, int]:
    """Batch, time and head strides."""
    return (0, 0, 0) if x is None else x.stride()[:3]  # type: ignore[return-value]


# ---- A part


def cut_of(lay: Layout, rule: Rule) -> Cut:
    """How the A part cuts this call."""
    return cut(lay.heads, lay.t, tile=lay.tiles.geometry, period=rule.period, step=rule.step)


def segment_starts(
    lay: Layout,
    cuts: Cut,
    x: Tensor,
    beta: Tensor | None,
    A0: Tensor | None,
    rule: Rule,
    out: Tensor,
) -> None:
    """Fill ``A [b·h, segments, d, d]`` at the segment starts: inverses of prefix sums."""
    n, d = cuts.segments, lay.d
    M = empty(lay.heads, n, d, d, dtype=torch.float64, device=x.device)
    gate = x if beta is None else beta
    geometry.gram_kernel[(lay.heads, n)](
        x, gate, M, *strides(x), *strides(beta), lay.t, lay.h, cuts.segment, n,
        D=d, C=64 if d <= 64 else 32, HAS_BETA=beta is not None, PREC=lay.precision.geometry,
        num_warps=8 if d > 64 else 4,
    )  # fmt: skip
    M0 = None if A0 is None else inverse(A0, torch.float64)
    few = n <= 16 and lay.heads * n <= 1024
    if not few:
        exclusive_sums(M, M0, reverse=False)
    shift = rule.lambda0 if A0 is None else 0.0
    geometry.inverse_kernel[(lay.heads, n)](
        M, M if M0 is None else M0, out, n, shift, 1.0, 0.0,
        D=d, SUM=few, HAS_FIRST=few and M0 is not None, **inverse_launch(d)._asdict(),
    )  # fmt: skip


def inverse(X: Tensor, dtype: torch.dtype, *, scale: float = 1.0, plus: float = 0.0) -> Tensor:
    """``plus I + scale X⁻¹`` of ``X [..., d, d]``, computed in float64."""
    X = X.contiguous()
    d = X.shape[-1]
    Y = empty(X.shape, dtype=dtype, device=X.device)
    count = X.numel() // (d * d)
    if count:
        geometry.inverse_kernel[(count, 1)](
            X, X, Y, 1, 0.0, scale, plus,
            D=d, SUM=False, HAS_FIRST=False, **inverse_launch(d)._asdict(),
        )  # fmt: skip
    return Y


def exclusive_sums(M: Tensor, first: Tensor | None, *, reverse: bool) -> None:
    """Exclusive prefix (suffix) sums over axis 1 of ``M [b·h, n, d, d]``, in place."""
    heads, n, d, _ = M.shape
    size = d * d
    block = 64
    geometry.prefix_kernel[(heads, size // block)](
        M, M if first is None else first, n, size,
        REVERSE=reverse, HAS_FIRST=first is not None, N=32, BLOCK=block, num_warps=4,
    )  # fmt: skip


class Geometry(NamedTuple):
    """What the A part leaves: write directions, the final ``A``, and what its adjoint needs."""

    g: Tensor
    A: Tensor
    z: Tensor
    delta: Tensor
    starts: Tensor


def new_geometry(lay: Layout, rule: Rule, like: Tensor, save: bool) -> Geometry:
    """Room for the results of the A part."""
    b, t, h, d = lay.b, lay.t, lay.h, lay.d
    single: dict[str, Any] = {"dtype": torch.float32, "device": like.device}
    n = cut_of(lay, rule).segments
    return Geometry(
        g=empty(b, t, h, d, dtype=lay.precision.store, device=like.device),
        A=empty(b, h, d, d, **single),
        z=empty((b, t, h, d) if save else 0, **single),
        delta=empty((b, t, h) if save else 0, **single),
        starts=empty((b * h, n, d, d) if n > 1 else 0, **single),
    )


def write_directions(
    lay: Layout,
    k: Tensor,
    u: Tensor | None,
    beta: Tensor | None,
    A0: Tensor | None,
    rule: Rule,
    out: Geometry,
) -> None:
    """The A part, forward: fill ``out``."""
    cuts = cut_of(lay, rule)
    x = k if u is None else u
    begin = A0
    if cuts.segments > 1:
        segment_starts(lay, cuts, x, beta if u is None else None, A0, rule, out.starts)
        begin = out.starts
    geometry.forward_kernel[(lay.heads, cuts.segments)](
        k, x, k if beta is None else beta, k if begin is None else begin,
        out.g, out.z, out.delta, out.A,
        *strides(k), *strides(x), *strides(beta),
        lay.t, lay.h, cuts.segments, cuts.first, cuts.chunks, cuts.per_segment,
        cuts.phase, cuts.length, cuts.period, cuts.per_period, rule.lambda0, rule.eps,
        D=lay.d, C=cuts.tile, GAIN=rule.gain, HAS_U=u is not None, HAS_BETA=beta is not None,
        HAS_A0=begin is not None, REFRESH=cuts.period > 0, SAVE=out.z.numel() > 0,
        PREC=lay.precision.geometry, num_warps=lay.tiles.forward_warps,
        num_stages=1,
    )  # fmt: skip


class KeyGradients(NamedTuple):
    """Gradients of the A part's inputs; ``dk`` includes the S part's."""

    dk: Tensor
    du: Tensor | None
    dbeta: Tensor | None
    dA0: Tensor | None


def write_directions_backward(
    lay: Layout,
    k: Tensor,
    u: Tensor | None,
    beta: Tensor | None,
    A0: Tensor | None,
    rule: Rule,
    saved: Geometry,
    dk: Tensor,
    dg: Tensor,
    dA: Tensor | None,
    need_dA0: bool,
) -> KeyGradients:
    """The A part, backward: ``b = A dα`` forwards, then a reverse linear attention."""
    cuts = cut_of(lay, rule)
    back = cuts.retiled(lay.tiles.reverse)
    begin = saved.starts if cuts.segments > 1 else A0
    alpha, adj, factor, dgate, R, at_refresh = _adjoint(
        lay, cuts, k, u, beta, begin, rule, saved, dg
    )
    last = None if dA is None else congruence(saved.A, dA + dA.mT)
    if cuts.segments > 1:
        exclusive_sums(R, last, reverse=True)
    across = inverse(at_refresh, torch.float32, scale=-rule.eps, plus=1.0)
    x = k if u is None else u
    start = R if cuts.segments > 1 else last
    R_begin = empty(lay.b, lay.h, lay.d, lay.d, dtype=torch.float32, device=k.device)
    dk_out = empty(k.shape, dtype=k.dtype, device=k.device)
    du = None if u is None else empty(u.shape, dtype=u.dtype, device=u.device)
    dbeta = None if beta is None else empty(beta.shape, dtype=beta.dtype, device=k.device)
    geometry.reverse_kernel[(lay.heads, cuts.segments)](
        k, x, k if beta is None else beta, alpha, saved.z, saved.delta, adj, factor, dk,
        dk if du is None else du, dgate, k if start is None else start, across, R_begin, dk_out,
        dk if dbeta is None else dbeta,
        *strides(k), *strides(x), *strides(beta),
        lay.t, lay.h, back.segments, back.first, back.chunks, back.per_segment, back.refreshes,
        back.phase, back.length, back.period, back.per_period, rule.eps,
        D=lay.d, C=back.tile, HAS_U=u is not None, HAS_BETA=beta is not None,
        HAS_R=start is not None, HAS_FACTOR=rule.gain == "oblique", REFRESH=back.period > 0,
        PREC=lay.precision.adjoint, num_warps=lay.tiles.reverse_warps, num_stages=1,
    )  # fmt: skip
    dA0 = None
    if need_dA0 and A0 is not None:
        dA0 = congruence(inverse(A0, torch.float64), R_begin) / 2
    return KeyGradients(dk_out, du, dbeta, None if dA0 is None else dA0.float())


def _adjoint(
    lay: Layout,
    cuts: Cut,
    k: Tensor,
    u: Tensor | None,
    beta: Tensor | None,
    begin: Tensor | None,
    rule: Rule,
    saved: Geometry,
    dg: Tensor,
) -> tuple[Tensor, ...]:
    b, t, h, d = lay.b, lay.t, lay.h, lay.d
    single: dict[str, Any] = {"dtype": torch.float32, "device": k.device}
    alpha = empty((b, t, h, d) if u is not None else 1, **single)
    adj = empty(b, t, h, d, **single)
    oblique, several = rule.gain == "oblique", cuts.segments > 1
    factor = empty((b, t, h) if oblique else 1, **single)
    dgate = empty((b, t, h) if beta is not None else 1, **single)
    R = empty((b * h, cuts.segments, d, d) if several else 1, **single)
    at_refresh = empty(b * h, cuts.refreshes, d, d, **single)
    x = k if u is None else u
    geometry.adjoint_kernel[(lay.heads, cuts.segments)](
        k, x, k if beta is None else beta, k if begin is None else begin, saved.z, saved.delta,
        dg, alpha, adj, factor, dgate, R, at_refresh,
        *strides(k), *strides(x), *strides(beta),
        t, h, cuts.segments, cuts.first, cuts.chunks, cuts.per_segment, cuts.refreshes,
        cuts.phase, cuts.length, cuts.period, cuts.per_period, rule.lambda0, rule.eps,
        D=d, C=cuts.tile, GAIN=rule.gain, HAS_U=u is not None, HAS_BETA=beta is not None,
        HAS_A0=begin is not None, REFRESH=cuts.period > 0, SUM=several,
        PREC=lay.precision.adjoint, PREC_A=lay.precision.geometry,
        num_warps=lay.tiles.adjoint_warps, num_stages=1,
    )  # fmt: skip
    return alpha, adj, factor, dgate, R, at_refresh


def congruence(outer: Tensor, inner: Tensor) -> Tensor:
    """``X Y X`` of symmetric ``d×d`` matrices in float64: how adjoints of A and M convert."""
    X = outer.double()
    return X @ inner.double() @ X


# ---- S part


class Memory(NamedTuple):
    """What the S part leaves: outputs, the final ``S``, and what its backward pass needs."""

    o: Tensor
    S: Tensor
    E: Tensor
    inv: Tensor
    states: Tensor


def new_memory(lay: Layout, like: Tensor, erase: bool) -> Memory:
    """Room for the results of the S part."""
    b, t, h, d, dv = lay.b, lay.t, lay.h, lay.d, lay.dv
    store: dict[str, Any] = {"dtype": lay.precision.store, "device": like.device}
    return Memory(
        o=empty(b, t, h, dv, dtype=like.dtype, device=like.device),
        S=empty(b, h, dv, d, dtype=torch.float32, device=like.device),
        E=empty((b, t, h, dv) if erase else 0, **store),
        inv=empty((b, t, h, lay.tiles.memory) if erase else 0, **store),
        states=empty(b * h, lay.chunks, d, dv, **store),
    )


def remember(
    lay: Layout, q: Tensor, k: Tensor, v: Tensor, g: Tensor, S0: Tensor | None, out: Memory
) -> None:
    """The S part, forward: fill ``out``. Nothing is erased where ``out.E`` is empty."""
    erase = out.E.numel() > 0
    tiles, prec = lay.tiles, lay.precision.memory
    w, values = g, v
    if erase:
        w = empty(lay.b, lay.t, lay.h, lay.d, dtype=lay.precision.store, device=q.device)
        ue = empty(lay.b, lay.t, lay.h, lay.dv, dtype=lay.precision.store, device=q.device)
        memory.prepare_kernel[(lay.chunks, lay.heads)](
            k, g, v, w, ue, out.inv, *strides(k), *strides(g), *strides(v),
            lay.t, lay.h, lay.dv,
            D=lay.d, C=tiles.memory, BV=tiles.values, BASE=tiles.inverse_base, PREC=prec,
            num_warps=tiles.prepare_warps, num_stages=1,
        )  # fmt: skip
        values = ue
    residual = out.E if erase else v
    memory.state_kernel[(lay.heads, cdiv(lay.dv, tiles.state_values))](
        w, g, values, residual, g if S0 is None else S0, out.states, out.S,
        *strides(g), *strides(values), lay.t, lay.h, lay.dv, lay.chunks,
        D=lay.d, C=tiles.memory, BV=tiles.state_values, ERASE=erase, HAS_S0=S0 is not None,
        PREC=prec, num_warps=tiles.state_warps, num_stages=tiles.state_stages,
    )  # fmt: skip
    memory.output_kernel[(lay.chunks, lay.heads, cdiv(lay.dv, tiles.values))](
        q, g, residual, out.states, out.o, *strides(q), *strides(g), *strides(residual),
        lay.t, lay.h, lay.dv, lay.chunks,
        D=lay.d, C=tiles.memory, BV=tiles.values, PREC=prec,
        num_warps=tiles.output_warps, num_stages=1,
    )  # fmt: skip


class MemoryGradients(NamedTuple):
    """Gradients of the S part; ``dk`` and ``dg`` in float32, for the A part to go on with."""

    dq: Tensor
    dk: Tensor
    dv: Tensor
    dg: Tensor
    dS0: Tensor


def remember_backward(
    lay: Layout,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    saved: Memory,
    do: Tensor,
    dS: Tensor | None,
) -> MemoryGradients:
    """The S part, backward; ``saved.o`` and ``saved.S`` are not read."""
    erase = saved.E.numel() > 0
    tiles, prec = lay.tiles, lay.precision.memory
    b, t, h, d, dv = lay.b, lay.t, lay.h, lay.d, lay.dv
    store: dict[str, Any] = {"dtype": lay.precision.store, "device": q.device}
    single: dict[str, Any] = {"dtype": torch.float32, "device": q.device}
    do = do.contiguous()
    ga = empty(b, t, h, d, **store) if erase else g
    x = empty(b, t, h, dv, **store)
    memory.back_prepare_kernel[(lay.chunks, lay.heads)](
        q, g, do, saved.inv, ga, x, *strides(q), *strides(g), t, h, dv,
        D=d, C=tiles.memory, BV=tiles.values, ERASE=erase, PREC=prec,
        num_warps=tiles.output_warps, num_stages=1,
    )  # fmt: skip
    dstates = empty(lay.heads, lay.chunks, d, dv, **store)
    dS0 = empty(b, h, dv, d, **single)
    dvalues = empty(b, t, h, dv, dtype=v.dtype, device=v.device)
    memory.back_state_kernel[(lay.heads, cdiv(dv, tiles.state_values))](
        q, k, ga, do, x, q if dS is None else dS.contiguous(), dstates, dS0, dvalues,
        *strides(q), *strides(k), *strides(ga), t, h, dv, lay.chunks,
        D=d, C=tiles.memory, BV=tiles.state_values, ERASE=erase, HAS_DS=dS is not None,
        PREC=prec, num_warps=tiles.state_warps, num_stages=tiles.state_stages,
    )  # fmt: skip
    dq = empty(q.shape, dtype=q.dtype, device=q.device)
    dk = empty((b, t, h, d) if erase else 1, **single)
    dg = empty(b, t, h, d, **single)
    residual = saved.E if erase else v
    memory.back_output_kernel[(lay.chunks, lay.heads)](
        q, k, g, residual, do, dvalues, saved.states, dstates, dq, dk, dg,
        *strides(q), *strides(k), *strides(g), *strides(residual), t, h, dv, lay.chunks,
        D=d, C=tiles.memory, BV=tiles.values, ERASE=erase, PREC=prec,
        num_warps=tiles.back_output_warps, num_stages=tiles.back_output_stages,
    )  # fmt: skip
    return MemoryGradients(dq, dk, dvalues, dg, dS0)
