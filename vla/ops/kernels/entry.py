"""The entry points that ``vla.ops`` dispatches to."""

import os

from vla.errors import ArgumentError
from vla.ops.kernels.autograd import attention, memory
from vla.ops.kernels.launch import Rule
from vla.ops.kernels.plan import DTYPES, WIDTHS
from vla.ops.state import VLAState
from vla.typing import Float, Tensor

WIDEST_VALUE = 256


def supports(q: Tensor, v: Tensor, **_: object) -> str | None:
    """Why the kernels cannot run ``q [b,t,h,d]`` with ``v [b,t,h,dv]``, or ``None`` if they can.

    Every gain, any refresh, any length and any strides are supported.
    """
    if not q.is_cuda and os.environ.get("TRITON_INTERPRET") != "1":
        return "Triton needs a GPU (on a CPU, set TRITON_INTERPRET=1 before the first import)"
    if q.dtype not in DTYPES:
        return f"{q.dtype} is not supported, only bfloat16, float16 and float32"
    if q.shape[-1] not in WIDTHS:
        return f"head width {q.shape[-1]} is not one of {WIDTHS}"
    if not 1 <= v.shape[-1] <= WIDEST_VALUE:
        return f"value width {v.shape[-1]} is above {WIDEST_VALUE}"
    return None


def vla_attention_triton(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    u: Float[Tensor, "b t h d"] | None = None,
    beta: Float[Tensor, "b t h"] | None = None,
    *,
    lambda0: float = 0.1,
    gain: str = "unit",
    refresh_every: int = 0,
    refresh_eps: float = 1e-3,
    initial_state: VLAState | None = None,
    output_final_state: bool = False,
    precision: str = "auto",
) -> tuple[Float[Tensor, "b t h dv"], VLAState | None]:
    """VLA by the fused kernels; arguments as in ``vla.ops.vla_attention``.

    ``u=None`` means ``√β k`` and is the faster form: one product serves u and k, and no square root
    is taken. An ``initial_state.A`` is taken to be symmetric; its gradient is symmetric.

    :raises ArgumentError: where :func:`supports` gives a reason.
    """
    _require(q, v)
    state = initial_state
    rule = Rule(
        float(lambda0),
        gain,
        int(refresh_every),
        float(refresh_eps),
        0 if state is None else state.step,
        precision,
    )
    S0, A0 = (None, None) if state is None else (state.S, state.A)
    o, S, A = attention(q, k, v, u, beta, S0, A0, rule)
    return o, VLAState(S, A, rule.step + q.shape[1]) if output_final_state else None


def delta_rule_triton(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    beta: Float[Tensor, "b t h"] | None = None,
    *,
    initial_state: VLAState | None = None,
    output_final_state: bool = False,
    precision: str = "auto",
) -> tuple[Float[Tensor, "b t h dv"], VLAState | None]:
    """The delta rule, ``S ← S + β (v − S k) kᵀ``: VLA with ``A`` fixed.

    :raises ArgumentError: where :func:`supports` gives a reason.
    """
    return _fixed(q, k, v, beta, initial_state, output_final_state, precision, erase=True)


def linear_attention_triton(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    beta: Float[Tensor, "b t h"] | None = None,
    *,
    initial_state: VLAState | None = None,
    output_final_state: bool = False,
    precision: str = "auto",
) -> tuple[Float[Tensor, "b t h dv"], VLAState | None]:
    """Linear attention, ``S ← S + β v kᵀ``, without normaliser.

    :raises ArgumentError: where :func:`supports` gives a reason.
    """
    return _fixed(q, k, v, beta, initial_state, output_final_state, precision, erase=False)


def _fixed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None,
    state: VLAState | None,
    keep: bool,
    precision: str,
    *,
    erase: bool,
) -> tuple[Tensor, VLAState | None]:
    _require(q, v)
    g = k if beta is None else beta[..., None] * k
    S0, seen = (None, 0) if state is None else (state.S, state.step)
    o, S = memory(q, k, v, g, S0, erase=erase, precision=precision)
    return o, VLAState(S, None, seen + q.shape[1]) if keep else None


def _require(q: Tensor, v: Tensor) -> None:
    reason = supports(q, v)
    if reason is not None:
        raise ArgumentError(
            "q",
            f"{tuple(q.shape)} {q.dtype} on {q.device}",
            "a call that the kernels support",
            f"{reason}.",
        )
