"""Delta rules whose old state decays: one gate per token, or one per token and value row.

``S_t = diag(g_t) S_{t−1} + (v_t − S_{t−1} k_t) k_tᵀ``, ``o_t = S_t q_t``. The paper's gated delta
rule (§1.1, eq. 4) has one number ``g_t``; the authors' code has one for every value row.

Chunk form, for one value row ``s`` (rows don't meet, given the keys). Let ``Γ_t = g_1 … g_t``
within the chunk and ``e_t = v_t − s_{t−1}·k_t``. Unrolling ``s_t = g_t s_{t−1} + e_t k_t``::

    s_t = Γ_t s_0 + Σ_{j ≤ t} (Γ_t/Γ_j) e_j k_j
    e_t = v_t − Γ_{t−1} s_0·k_t − Σ_{j < t} (Γ_{t−1}/Γ_j) (k_j·k_t) e_j

The second line is a unit lower triangular system, ``(I + N) e = v − Γ⁻ ∘ (K s_0)``. All its
inverses are found at once, for every chunk; only ``s`` passes from chunk to chunk in order. With a
gate per row each row has its own ``N``, C²·d_v numbers a chunk, which is why chunks are short.
Ratios of ``Γ`` are differences of logarithms, so nothing overflows however small a gate is.
"""

import importlib.util
import os
from typing import Any

import torch
import torch.nn.functional as F
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from vla.errors import ArgumentError, require_choice, require_integer
from vla.typing import Float, Tensor


def gated_delta_rule(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    log_gate: Tensor,
    *,
    backend: str = "auto",
    chunk_size: int = 16,
) -> Float[Tensor, "b t h dv"]:
    """``S ← diag(g) S + (v − S k) kᵀ``, ``o = S q`` from an empty memory.

    Static shapes and no host sync, so a CUDA graph can hold it; no atomics, so it repeats bit for
    bit.

    :param log_gate: ``log g ≤ 0``: ``[b, t, h]`` for a gate per token, ``[b, t, h, dv]`` for one
        per value row. It must be finite; ``logsigmoid`` is.
    :param backend: ``chunk``, ``scan`` (the token loop), ``triton`` (the loop as one kernel), or
        ``auto``: the kernel on a GPU that can run it, else chunk, but for a gate per row on a CPU,
        where moving its C·d_v numbers a token costs more than the loop's steps.
    :param chunk_size: a power of two; the result does not depend on it.
    :raises ArgumentError: for a gate of another shape, a chunk size that is no power of two, or
        ``triton`` where it can't run.
    """
    _check(q, k, v, log_gate, chunk_size)
    require_choice("backend", backend, ("auto", "chunk", "scan", "triton"))
    reason = triton_refuses(q, v) if backend == "triton" or q.is_cuda else "not on a GPU"
    if backend == "triton" and reason is not None:
        raise ArgumentError("backend", backend, "a call that the kernel supports", f"{reason}.")
    if reason is None and backend in ("auto", "triton") and q.shape[1]:
        from vla.ops.kernels.gated import gated_delta_triton

        return gated_delta_triton(q, k, v, log_gate)
    if backend == "scan" or (backend == "auto" and log_gate.ndim == 4 and not q.is_cuda):
        return gated_delta_scan(q, k, v, log_gate)
    return _gated_delta_chunk(q, k, v, log_gate, chunk_size) if q.shape[1] else torch.zeros_like(v)


def triton_refuses(q: Tensor, v: Tensor) -> str | None:
    """Why the kernel can't run these, or ``None`` if it can."""
    if not q.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return "Triton needs a GPU (on a CPU, set TRITON_INTERPRET=1 before the first import)"
    if importlib.util.find_spec("triton") is None:
        return "triton is not installed"
    if q.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"{q.dtype} is not supported, only float32, bfloat16 and float16"
    if max(q.shape[-1], v.shape[-1]) > 128:
        return f"heads of {q.shape[-1]} by {v.shape[-1]} are wider than 128"
    return None


def _gated_delta_chunk(
    q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor, chunk_size: int
) -> Tensor:
    gate = log_gate if log_gate.ndim == 4 else log_gate[..., None]
    Q, K, V, g = (_chunked(x, chunk_size) for x in (q, k, v, gate))
    total = _running_sum(g)
    before = total - g
    later = (total[..., -1:, :] - total).exp()
    inverse = UnitLowerInverse.apply(_ratios(before, total, -1) * (K @ K.mT)[..., None, :, :])
    kept, whole = before.exp(), total[..., -1, :, None].exp()
    S = q.new_zeros(q.shape[0], q.shape[2], v.shape[-1], q.shape[-1])
    starts, errors = [], []
    for c in range(K.shape[2]):
        starts.append(S)
        E = _per_row(inverse[:, :, c], V[:, :, c] - kept[:, :, c] * (K[:, :, c] @ S.mT))
        errors.append(E)
        S = whole[:, :, c] * S + (later[:, :, c] * E).mT @ K[:, :, c]
    reads = _ratios(total, total, 0) * (Q @ K.mT)[..., None, :, :]
    o = total.exp() * (Q @ torch.stack(starts, 2).mT) + _per_row(reads, torch.stack(errors, 2))
    return o.flatten(2, 3)[:, :, : q.shape[1]].transpose(1, 2)


def gated_delta_scan(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    log_gate: Tensor,
) -> Float[Tensor, "b t h dv"]:
    """The same token by token: the reference."""
    gate = (log_gate if log_gate.ndim == 4 else log_gate[..., None]).exp()
    S = q.new_zeros(q.shape[0], q.shape[2], v.shape[-1], q.shape[-1])
    outputs = []
    for t in range(q.shape[1]):
        e = v[:, t] - (S @ k[:, t, :, :, None])[..., 0]
        S = gate[:, t, :, :, None] * S + e[..., :, None] * k[:, t, :, None, :]
        outputs.append((S @ q[:, t, :, :, None])[..., 0])
    return torch.stack(outputs, 1) if outputs else torch.zeros_like(v)


class UnitLowerInverse(Function):
    """``(I + N)⁻¹`` for strictly lower ``N``, by halves: as stable as substitution, log C deep."""

    @staticmethod
    def forward(ctx: Any, N: Float[Tensor, "*b c c"]) -> Float[Tensor, "*b c c"]:
        inverse = _invert(N)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -torch.tril(inverse.mT @ grad @ inverse.mT, -1)


def _invert(N: Tensor) -> Tensor:
    size = N.shape[-1]
    if size <= 2:
        return torch.eye(size, dtype=N.dtype, device=N.device) - N
    h = size // 2
    first, second = _invert(torch.stack([N[..., :h, :h], N[..., h:, h:]]))
    corner = -second @ N[..., h:, :h] @ first
    upper = F.pad(first, (0, h))
    return torch.cat([upper, torch.cat([corner, second], -1)], -2)


def _chunked(x: Float[Tensor, "b t h d"], size: int) -> Float[Tensor, "b h n c d"]:
    """Filled up with zeros behind: a key and value of zero under a gate of 1 change nothing."""
    missing = -x.shape[1] % size
    return F.pad(x, (0, 0, 0, 0, 0, missing)).transpose(1, 2).unflatten(2, (-1, size))


def _running_sum(x: Float[Tensor, "*b c r"]) -> Float[Tensor, "*b c r"]:
    """Sums over ``c`` in log C shifted adds: ``cumsum`` on a GPU doesn't repeat bit for bit."""
    shift = 1
    while shift < x.shape[-2]:
        x = x + F.pad(x[..., :-shift, :], (0, 0, shift, 0))
        shift *= 2
    return x


def _ratios(
    log_to: Float[Tensor, "*b c r"], log_from: Float[Tensor, "*b c r"], diagonal: int
) -> Float[Tensor, "*b r c c"]:
    """``exp(log_to_t − log_from_j)`` on and below the diagonal, zero above."""
    gap = log_to.mT[..., :, None] - log_from.mT[..., None, :]
    kept = torch.ones(gap.shape[-2:], dtype=torch.bool, device=gap.device).tril(diagonal)
    return torch.where(kept, gap, -torch.inf).exp()


def _per_row(M: Float[Tensor, "*b r c c"], X: Float[Tensor, "*b c dv"]) -> Tensor:
    """``M`` of each row group times that group's columns of ``X``."""
    groups = X.unflatten(-1, (M.shape[-3], -1)).movedim(-2, -3)
    return (M @ groups).movedim(-3, -2).flatten(-2)


def _check(q: Tensor, k: Tensor, v: Tensor, log_gate: Tensor, chunk_size: int) -> None:
    if k.shape != q.shape or v.shape[:3] != q.shape[:3]:
        got = f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}"
        raise ArgumentError("q, k, v", got, "[b, t, h, d] twice and [b, t, h, dv]")
    if log_gate.shape not in (q.shape[:3], v.shape):
        wanted = f"{tuple(q.shape[:3])} or {tuple(v.shape)}"
        raise ArgumentError("log_gate.shape", tuple(log_gate.shape), wanted)
    require_integer("chunk_size", chunk_size, low=1)
    if chunk_size & (chunk_size - 1):
        raise ArgumentError("chunk_size", chunk_size, "a power of two")
