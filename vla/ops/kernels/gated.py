# mypy: ignore-errors
"""Delta rules whose old state decays, token by token: ``S ← diag(g) S + (v − S k) kᵀ``.

A gate per value row has no small chunk form (:mod:`vla.ops.gated` needs C²·d_v numbers a chunk),
but its loop is short work for one program a head: the state stays in registers from the first token
to the last. For the backward pass the state before every sixteenth token is stored; the fifteen
between are computed again, into a scratch of one chunk. All arithmetic is float32, none is atomic.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vla.typing import Float, Tensor

CHUNK = 16


@triton.jit
def _vector(base, width, W: tl.constexpr):
    i = tl.arange(0, W)
    return tl.load(base + i, mask=i < width, other=0.0).to(tl.float32)


@triton.jit
def _put_vector(base, x, width, W: tl.constexpr):
    i = tl.arange(0, W)
    tl.store(base + i, x.to(base.dtype.element_ty), mask=i < width)


@triton.jit
def _gate(base, DV, PER_ROW: tl.constexpr, V_BLOCK: tl.constexpr):
    """The gate from its logarithm, one for each row; rows past the end get 1 or the one gate."""
    if PER_ROW:
        return tl.exp(_vector(base, DV, V_BLOCK))
    return tl.exp(tl.load(base).to(tl.float32)) + tl.zeros((V_BLOCK,), dtype=tl.float32)


@triton.jit
def forward_kernel(
    Q, K, V, G, Out, Starts,
    T, H, D, DV,
    C: tl.constexpr, BLOCK: tl.constexpr, V_BLOCK: tl.constexpr,
    PER_ROW: tl.constexpr, SAVE: tl.constexpr,
):  # fmt: skip
    """Read after write, ``o = S q``; ``Starts`` takes the state before each chunk if ``SAVE``."""
    head = tl.program_id(0)
    first = (head // H).to(tl.int64) * T * H + head % H
    GW = DV if PER_ROW else 1
    tile = tl.arange(0, V_BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    chunks = tl.cdiv(T, C)
    S = tl.zeros((V_BLOCK, BLOCK), dtype=tl.float32)
    for c in range(chunks):
        if SAVE:
            tl.store(Starts + (head.to(tl.int64) * chunks + c) * V_BLOCK * BLOCK + tile, S)
        for t in range(c * C, min(c * C + C, T)):
            at = first + t * H
            k = _vector(K + at * D, D, BLOCK)
            e = _vector(V + at * DV, DV, V_BLOCK) - tl.sum(S * k[None, :], 1)
            S = _gate(G + at * GW, DV, PER_ROW, V_BLOCK)[:, None] * S + e[:, None] * k[None, :]
            q = _vector(Q + at * D, D, BLOCK)
            _put_vector(Out + at * DV, tl.sum(S * q[None, :], 1), DV, V_BLOCK)


@triton.jit
def backward_kernel(
    Q, K, V, G, Starts, dOut, dQ, dK, dV, dG, Scratch,
    T, H, D, DV,
    C: tl.constexpr, BLOCK: tl.constexpr, V_BLOCK: tl.constexpr, PER_ROW: tl.constexpr,
):  # fmt: skip
    """From the last chunk to the first: its states into ``Scratch``, then token by token back.

    With ``R`` the gradient of ``S_t``: ``de = R k``, ``dk = Rᵀ e − S_{t−1}ᵀ de``,
    ``d log g = g Σ R ∘ S_{t−1}``, and ``R ← g ∘ R − de kᵀ``.
    """
    head = tl.program_id(0)
    first = (head // H).to(tl.int64) * T * H + head % H
    GW = DV if PER_ROW else 1
    tile = tl.arange(0, V_BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    Scratch += head.to(tl.int64) * C * V_BLOCK * BLOCK
    chunks = tl.cdiv(T, C)
    R = tl.zeros((V_BLOCK, BLOCK), dtype=tl.float32)
    for back in range(chunks):
        c = chunks - 1 - back
        count = min(C, T - c * C)
        S = tl.load(Starts + (head.to(tl.int64) * chunks + c) * V_BLOCK * BLOCK + tile)
        for s in range(count):
            tl.store(Scratch + s * V_BLOCK * BLOCK + tile, S)
            at = first + (c * C + s) * H
            k = _vector(K + at * D, D, BLOCK)
            e = _vector(V + at * DV, DV, V_BLOCK) - tl.sum(S * k[None, :], 1)
            S = _gate(G + at * GW, DV, PER_ROW, V_BLOCK)[:, None] * S + e[:, None] * k[None, :]
        tl.debug_barrier()
        for r in range(count):
            s = count - 1 - r
            at = first + (c * C + s) * H
            before = tl.load(Scratch + s * V_BLOCK * BLOCK + tile)
            k, q = _vector(K + at * D, D, BLOCK), _vector(Q + at * D, D, BLOCK)
            g = _gate(G + at * GW, DV, PER_ROW, V_BLOCK)
            e = _vector(V + at * DV, DV, V_BLOCK) - tl.sum(before * k[None, :], 1)
            do = _vector(dOut + at * DV, DV, V_BLOCK)
            after = g[:, None] * before + e[:, None] * k[None, :]
            _put_vector(dQ + at * D, tl.sum(after * do[:, None], 0), D, BLOCK)
            R += do[:, None] * q[None, :]
            de = tl.sum(R * k[None, :], 1)
            dk = tl.sum(R * e[:, None] - before * de[:, None], 0)
            _put_vector(dK + at * D, dk, D, BLOCK)
            _put_vector(dV + at * DV, de, DV, V_BLOCK)
            dg = g * tl.sum(R * before, 1)
            if PER_ROW:
                _put_vector(dG + at * DV, dg, DV, V_BLOCK)
            else:
                tl.store(dG + at, tl.sum(dg, 0).to(dG.dtype.element_ty))
            R = g[:, None] * R - de[:, None] * k[None, :]
        # The next chunk's states overwrite those just read.
        tl.debug_barrier()


class GatedDelta(Function):
    """``o`` and its gradients by the two kernels; inputs and outputs contiguous."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor) -> Tensor:
        q, k, v, log_gate = (x.contiguous() for x in (q, k, v, log_gate))
        sizes, options, heads = _plan(q, v, log_gate)
        o = torch.empty_like(v)
        save = any(ctx.needs_input_grad)
        chunks = -(-q.shape[1] // CHUNK) if save else 0
        tile = (options["V_BLOCK"], options["BLOCK"])
        starts = v.new_empty(heads, chunks, *tile, dtype=torch.float32)
        forward_kernel[(heads,)](q, k, v, log_gate, o, starts, *sizes, SAVE=save, **options)
        ctx.save_for_backward(q, k, v, log_gate, starts)
        return o

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        q, k, v, log_gate, starts = ctx.saved_tensors
        sizes, options, heads = _plan(q, v, log_gate)
        given = tuple(torch.empty_like(x) for x in (q, k, v, log_gate))
        scratch = starts.new_empty(heads, CHUNK, *starts.shape[2:])
        backward_kernel[(heads,)](
            q, k, v, log_gate, starts, grad.contiguous(), *given, scratch, *sizes, **options
        )
        return given


def _plan(q: Tensor, v: Tensor, log_gate: Tensor) -> tuple[tuple[int, ...], dict[str, Any], int]:
    """Sizes, compile-time options and the number of programs."""
    b, t, h, d = q.shape
    wide, tall = triton.next_power_of_2(d), triton.next_power_of_2(v.shape[-1])
    options = {"C": CHUNK, "BLOCK": wide, "V_BLOCK": tall, "PER_ROW": log_gate.ndim == 4}
    # One warp holds a 32 × 32 state in 32 registers a thread; a reduction never leaves the warp.
    options["num_warps"] = max(1, min(8, wide * tall // 1024))
    return (t, h, d, v.shape[-1]), options, b * h


def gated_delta_triton(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    log_gate: Tensor,
) -> Float[Tensor, "b t h dv"]:
    """As :func:`vla.ops.gated.gated_delta_rule`, which checks the arguments; T ≥ 1."""
    return GatedDelta.apply(q, k, v, log_gate)
