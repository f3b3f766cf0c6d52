# ruff: noqa: ARG001
"""The kernels as differentiable operations: autograd functions, and custom ops for torch.compile.

Eager calls take the autograd functions (little overhead). Under ``torch.compile`` the same forward
and backward run as opaque custom ops, so nothing of the launch code is traced.
"""

from typing import Any

import torch
from torch.autograd.function import once_differentiable

from vla.ops.kernels import launch
from vla.ops.kernels.launch import Geometry, Memory, Rule, layout_of, rowwise
from vla.typing import Tensor

Optional = Tensor | None


# ---- VLA: the A part, then the S part


@torch.library.custom_op("vla::attention", mutates_args=())
def attention_op(
    q: Tensor, k: Tensor, v: Tensor, u: Optional, beta: Optional, S0: Optional, A0: Optional,
    lambda0: float, gain: str, period: int, eps: float, step: int, precision: str, save: bool,
) -> tuple[
    Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor
]:  # fmt: skip
    """``o, S, A`` and the seven tensors that the backward pass needs."""
    rule = Rule(lambda0, gain, period, eps, step, precision)
    return _forward((q, k, v, u, beta, S0, A0), rule, save)


def _forward(inputs: tuple[Any, ...], rule: Rule, save: bool) -> tuple[Any, ...]:
    q, k, v, u, beta, S0, A0 = inputs
    lay, room, kept = _rooms(q, k, v, rule, save, u is not None)
    launch.write_directions(lay, k, u, beta, A0, rule, room)
    launch.remember(lay, q, k, v, room.g, S0, kept)
    return _outputs(room, kept)


def _rooms(
    q: Tensor, k: Tensor, v: Tensor, rule: Rule, save: bool, own_u: bool
) -> tuple[launch.Layout, Geometry, Memory]:
    lay = layout_of(k, v, rule, own_u)
    return lay, launch.new_geometry(lay, rule, q, save), launch.new_memory(lay, q, erase=True)


def _outputs(room: Geometry, kept: Memory) -> tuple[Tensor, ...]:
    saved = (room.g, room.z, room.delta, room.starts, kept.E, kept.inv, kept.states)
    return (kept.o, kept.S, room.A, *saved)


@attention_op.register_fake
def _(q, k, v, u, beta, S0, A0, lambda0, gain, period, eps, step, precision, save):  # type: ignore[no-untyped-def]
    rule = Rule(lambda0, gain, period, eps, step, precision)
    _, room, kept = _rooms(q, k, v, rule, save, u is not None)
    return _outputs(room, kept)


@torch.library.custom_op("vla::attention_backward", mutates_args=())
def attention_backward_op(
    q: Tensor, k: Tensor, v: Tensor, u: Optional, beta: Optional, S0: Optional, A0: Optional,
    A: Tensor, g: Tensor, z: Tensor, delta: Tensor, starts: Tensor, E: Tensor, inv: Tensor,
    states: Tensor, do: Tensor, dS: Optional, dA: Optional,
    lambda0: float, gain: str, period: int, eps: float, step: int, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of ``q, k, v, u, beta, S0, A0``; empty where that input was not given."""
    rule = Rule(lambda0, gain, period, eps, step, precision)
    saved = (A, g, z, delta, starts, E, inv, states)
    grads = _backward((q, k, v, u, beta, S0, A0), saved, (do, dS, dA), rule)
    return tuple(q.new_empty(0) if x is None else x for x in grads)  # type: ignore[return-value]


def _backward(
    inputs: tuple[Any, ...], saved: tuple[Tensor, ...], outward: tuple[Any, ...], rule: Rule
) -> tuple[Tensor | None, ...]:
    q, k, v, u, beta, S0, A0 = inputs
    A, g, z, delta, starts, E, inv, states = saved
    do, dS, dA = outward
    lay = layout_of(k, v, rule, u is not None)
    kept = Memory(o=do, S=A, E=E, inv=inv, states=states)
    room = Geometry(g=g, A=A, z=z, delta=delta, starts=starts)
    dq, dk, dv, dg, dS0 = launch.remember_backward(lay, q, k, v, g, kept, do, dS)
    keys = launch.write_directions_backward(
        lay, k, u, beta, A0, rule, room, dk, dg, dA, A0 is not None
    )
    return dq, keys.dk, dv, keys.du, keys.dbeta, None if S0 is None else dS0, keys.dA0


@attention_backward_op.register_fake
def _(  # type: ignore[no-untyped-def]
    q, k, v, u, beta, S0, A0, A, g, z, delta, starts, E, inv, states, do, dS, dA,
    lambda0, gain, period, eps, step, precision,
):  # fmt: skip
    given = (q, k, v, u, beta, S0, A0)
    return tuple(
        q.new_empty(0) if x is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        for x in given
    )


def _remember_call(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.rule = Rule(*inputs[7:13])
    ctx.save_for_backward(*inputs[:7], *output[2:])


def _outward(ctx: Any, do: Tensor | None, dS: Tensor | None, dA: Tensor | None) -> tuple[Any, ...]:
    """Gradients of the outputs; a missing ``do`` (only the state was used) is zero."""
    if do is None:
        v = ctx.saved_tensors[2]
        do = torch.zeros(v.shape, dtype=v.dtype, device=v.device)
    return do, dS, dA


def _compiled_backward(ctx: Any, do: Any, dS: Any, dA: Any, *_: Any) -> tuple[Any, ...]:
    outward = _outward(ctx, do, dS, dA)
    grads = attention_backward_op(*ctx.saved_tensors, *outward, *ctx.rule)
    found = [g if x is not None else None for x, g in zip(ctx.saved_tensors, grads, strict=False)]
    return (*found, *([None] * 7))


attention_op.register_autograd(_compiled_backward, setup_context=_remember_call)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
        inputs, rule, save = args[:7], args[7], args[8]
        output = _forward(inputs, rule, save)
        ctx.set_materialize_grads(False)
        ctx.rule = rule
        if save:
            ctx.save_for_backward(*inputs, *output[2:])
        return output[:3]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        found = _backward(saved[:7], saved[7:], _outward(ctx, *grads), ctx.rule)
        return (*found, None, None)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    u: Tensor | None,
    beta: Tensor | None,
    S0: Tensor | None,
    A0: Tensor | None,
    rule: Rule,
) -> tuple[Tensor, Tensor, Tensor]:
    """``o``, final ``S`` and final ``A``, differentiable in every tensor."""
    inputs = tuple(x if x is None else rowwise(x) for x in (q, k, v, u))
    starts = tuple(x if x is None else x.contiguous() for x in (S0, A0))
    every = (*inputs, beta, *starts)
    save = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in every)
    if torch.compiler.is_compiling():
        return attention_op(*every, *rule, save)[:3]
    return _Attention.apply(*every, rule, save)


def _fixed_rule(precision: str) -> Rule:
    """Of the delta rule and linear attention, which have no A part."""
    return Rule(1.0, "unit", 0, 0.0, 0, precision)


# ---- The S part alone: delta rule and linear attention


@torch.library.custom_op("vla::memory", mutates_args=())
def memory_op(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, S0: Optional, erase: bool, precision: str
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """``o, S`` and the three tensors that the backward pass needs."""
    return _memory_forward(q, k, v, g, S0, erase, precision)  # type: ignore[return-value]


def _memory_forward(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, S0: Tensor | None, erase: bool, precision: str
) -> tuple[Tensor, ...]:
    lay = layout_of(k, v, _fixed_rule(precision), False)
    kept = launch.new_memory(lay, q, erase)
    launch.remember(lay, q, k, v, g, S0, kept)
    return tuple(kept)


@memory_op.register_fake
def _(q, k, v, g, S0, erase, precision):  # type: ignore[no-untyped-def]
    return tuple(launch.new_memory(layout_of(k, v, _fixed_rule(precision), False), q, erase))


@torch.library.custom_op("vla::memory_backward", mutates_args=())
def memory_backward_op(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, S0: Optional, E: Tensor, inv: Tensor,
    states: Tensor, do: Tensor, dS: Optional, precision: str,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of ``q, k, v, g, S0``; the last is empty where ``S0`` was not given."""
    grads = _memory_backward((q, k, v, g, S0), (E, inv, states), do, dS, precision)
    return tuple(q.new_empty(0) if x is None else x for x in grads)  # type: ignore[return-value]


def _memory_backward(
    inputs: tuple[Any, ...],
    saved: tuple[Tensor, ...],
    do: Tensor,
    dS: Tensor | None,
    precision: str,
) -> tuple[Tensor | None, ...]:
    q, k, v, g, S0 = inputs
    lay = layout_of(k, v, _fixed_rule(precision), False)
    kept = Memory(o=do, S=do, E=saved[0], inv=saved[1], states=saved[2])
    dq, dk, dv, dg, dS0 = launch.remember_backward(lay, q, k, v, g, kept, do, dS)
    dk = dk if kept.E.numel() else torch.zeros_like(dg)
    return dq, dk.to(k.dtype), dv, dg.to(g.dtype), None if S0 is None else dS0


@memory_backward_op.register_fake
def _(q, k, v, g, S0, E, inv, states, do, dS, precision):  # type: ignore[no-untyped-def]
    return tuple(
        q.new_empty(0) if x is None else torch.empty(x.shape, dtype=x.dtype, device=x.device)
        for x in (q, k, v, g, S0)
    )


def _remember_memory(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    ctx.set_materialize_grads(False)
    ctx.precision = inputs[6]
    ctx.save_for_backward(*inputs[:5], *output[2:])


def _compiled_memory_backward(ctx: Any, do: Any, dS: Any, *_: Any) -> tuple[Any, ...]:
    do, dS, _ = _outward(ctx, do, dS, None)
    grads = memory_backward_op(*ctx.saved_tensors, do, dS, ctx.precision)
    found = [g if x is not None else None for x, g in zip(ctx.saved_tensors, grads, strict=False)]
    return (*found, None, None)


memory_op.register_autograd(_compiled_memory_backward, setup_context=_remember_memory)


class _Memory(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *args: Any) -> tuple[Tensor, ...]:
        output = _memory_forward(*args)
        ctx.set_materialize_grads(False)
        ctx.precision = args[6]
        ctx.save_for_backward(*args[:5], *output[2:])
        return output[:2]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Any, dS: Any) -> tuple[Any, ...]:
        saved = ctx.saved_tensors
        do, dS, _ = _outward(ctx, do, dS, None)
        return (*_memory_backward(saved[:5], saved[5:], do, dS, ctx.precision), None, None)


def memory(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    S0: Tensor | None,
    *,
    erase: bool,
    precision: str,
) -> tuple[Tensor, Tensor]:
    """``o = S q`` and final ``S`` of ``S ← S + (v − S k) gᵀ`` (``v gᵀ`` with ``erase`` off)."""
    every = (*map(rowwise, (q, k, v, g)), None if S0 is None else S0.contiguous())
    if torch.compiler.is_compiling():
        return memory_op(*every, erase, precision)[:2]
    return _Memory.apply(*every, erase, precision)
