"""Input checks of the operations: each names the argument, what came, what is wanted, a remedy."""

import torch

from vla.errors import ArgumentError, require_choice, require_integer, require_positive
from vla.ops.gain import GAINS
from vla.ops.state import VLAState, compute_dtype
from vla.rules.inverse import MAX_RANK
from vla.typing import Tensor

BACKENDS = ("auto", "scan", "associative", "chunk", "triton")
PRECISIONS = ("auto", "ieee", "tf32x3", "tf32")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def check_sequences(q: Tensor, k: Tensor, v: Tensor, u: Tensor | None, beta: Tensor | None) -> None:
    """Raise :class:`ArgumentError` unless the sequences fit one another."""
    given = {"q": q, "k": k, "v": v, "u": u, "beta": beta}
    tensors = {name: x for name, x in given.items() if x is not None}
    for name, x in tensors.items():
        several = name == "u" and isinstance(x, Tensor) and x.ndim == 5
        _check_tensor(name, x, rank=5 if several else 3 if name == "beta" else 4)
    for name, x in tensors.items():
        _check_agreement(name, x, q)
    _check_shape("k", k, q.shape, "the shape of q, [batch, time, heads, width]")
    _check_shape("v", v, (*q.shape[:3], v.shape[3]), "batch, time and heads of q")
    if u is not None:
        _check_directions(u, q)
    if beta is not None:
        _check_shape("beta", beta, q.shape[:3], "[batch, time, heads] of q")
    for name, x in (("q", q), ("v", v)):
        if x.shape[3] < 1:
            raise ArgumentError(f"{name}.shape", tuple(x.shape), "a last axis of at least 1")


def check_options(backend: str, precision: str, chunk_size: int) -> None:
    """Raise :class:`ArgumentError` on an unknown backend or precision, or a chunk size below 1."""
    require_choice("backend", backend, BACKENDS)
    require_choice("precision", precision, PRECISIONS)
    require_integer("chunk_size", chunk_size, low=1)


def check_rule(gain: str, refresh_every: int, refresh_eps: float) -> None:
    """Raise :class:`ArgumentError` on numbers that make no VLA."""
    require_choice("gain", gain, GAINS)
    require_integer("refresh_every", refresh_every, low=0)
    require_positive("refresh_eps", refresh_eps, zero=True)


def check_lambda0(lambda0: object, q: Tensor, *, values: bool) -> None:
    """Raise :class:`ArgumentError` unless λ0 is one positive number, or a tensor of one per head.

    ``values``: look into a tensor, too, which waits for the device.
    """
    if not isinstance(lambda0, Tensor):
        require_positive("lambda0", lambda0)  # type: ignore[arg-type]
        return
    _check_shape("lambda0", lambda0, (q.shape[2],), "one for each head of q, or a plain number")
    if not lambda0.is_floating_point():
        raise ArgumentError("lambda0.dtype", lambda0.dtype, "a floating dtype")
    if lambda0.device != q.device:
        raise ArgumentError("lambda0.device", str(lambda0.device), f"the device of q, {q.device}")
    if values and not bool(((lambda0 > 0) & lambda0.isfinite()).all()):
        raise ArgumentError("lambda0", lambda0.tolist(), "finite numbers > 0")


def check_state(state: object, q: Tensor, v: Tensor, *, penalty: bool) -> None:
    """Raise :class:`ArgumentError` unless ``state`` continues such sequences.

    ``penalty``: whether the rule keeps an ``A`` (VLA) or none (delta rule, linear attention).
    """
    if not isinstance(state, VLAState):
        raise ArgumentError("initial_state", type(state).__name__, "a VLAState(S, A, step) or None")
    (b, _, h, d), dv = q.shape, v.shape[3]
    _check_state_tensor("initial_state.S", state.S, (b, h, dv, d), q)
    require_integer("initial_state.step", state.step, low=0)
    if penalty:
        _check_state_tensor("initial_state.A", state.A, (b, h, d, d), q)
    elif state.A is not None:
        raise ArgumentError(
            "initial_state.A", "a tensor", "None", "This state was left by vla_attention."
        )


def check_finite(**tensors: Tensor | None) -> None:
    """Raise :class:`ArgumentError` at the first tensor with a NaN or an infinity."""
    for name, x in tensors.items():
        if x is None:
            continue
        bad = int((~torch.isfinite(x)).sum())
        if bad:
            raise ArgumentError(
                name,
                f"{bad} of {x.numel()} entries not finite",
                "finite numbers",
                "Look for an overflow or a division by zero before this call.",
            )


def check_gate(beta: Tensor | None) -> None:
    """Raise :class:`ArgumentError` if a gate whose square root is taken has a negative entry."""
    if beta is not None and bool((beta < 0).any()):
        raise ArgumentError(
            "beta", f"a minimum of {float(beta.min()):g}", "entries ≥ 0", "Or pass u yourself."
        )


def _check_directions(u: Tensor, q: Tensor) -> None:
    """``u`` is shaped like ``q``, or holds up to ``MAX_RANK`` directions before the last axis."""
    if u.ndim == 4:
        _check_shape("u", u, q.shape, "the shape of q and k")
        return
    rank = u.shape[3]
    if not 1 <= rank <= MAX_RANK:
        raise ArgumentError("u.shape", tuple(u.shape), f"1 to {MAX_RANK} directions on axis 3")
    wanted = (*q.shape[:3], rank, q.shape[3])
    _check_shape("u", u, wanted, "the shape of q and k, with the directions before the width")


def _check_tensor(name: str, x: object, *, rank: int) -> None:
    if not isinstance(x, Tensor):
        raise ArgumentError(name, type(x).__name__, "a torch.Tensor")
    if x.ndim != rank:
        axes = "[batch, time, heads]" + (" and width" if rank == 4 else "")
        axes += f", or 5 with up to {MAX_RANK} directions before the width" if name == "u" else ""
        raise ArgumentError(name, f"shape {tuple(x.shape)}", f"{rank} axes: {axes}")
    if x.dtype not in DTYPES:
        raise ArgumentError(
            name, x.dtype, "float16, bfloat16, float32 or float64", f"Use {name}.float()."
        )


def _check_agreement(name: str, x: Tensor, q: Tensor) -> None:
    if x.device != q.device:
        raise ArgumentError(
            f"{name}.device", str(x.device), f"the device of q, {q.device}", "Use .to(q.device)."
        )
    if x.dtype != q.dtype:
        raise ArgumentError(
            f"{name}.dtype", x.dtype, f"the dtype of q, {q.dtype}", "Use .to(q.dtype)."
        )


def _check_shape(name: str, x: Tensor, wanted: tuple[int, ...], why: str) -> None:
    if tuple(x.shape) != tuple(wanted):
        raise ArgumentError(f"{name}.shape", tuple(x.shape), f"{tuple(wanted)} ({why})")


def _check_state_tensor(name: str, x: object, shape: tuple[int, ...], q: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise ArgumentError(
            name, type(x).__name__, f"a tensor of shape {shape}", "Pass the state a call returned."
        )
    _check_shape(name, x, shape, "batch, heads and widths of q and v")
    dtype = compute_dtype(q.dtype)
    if x.dtype != dtype:
        raise ArgumentError(f"{name}.dtype", x.dtype, f"{dtype} for {q.dtype} input")
    if x.device != q.device:
        raise ArgumentError(f"{name}.device", str(x.device), f"the device of q, {q.device}")
