"""The delta rule and linear attention through the same machinery: ``A`` fixed, the gain ``k``."""

from typing import Any

import torch

from vla.errors import ArgumentError
from vla.ops.backend import choose_backend, kernels
from vla.ops.check import check_finite, check_options, check_sequences, check_state
from vla.ops.chunk import chunk_fixed
from vla.ops.scan import fixed_scan
from vla.ops.state import VLAState, empty_state
from vla.typing import Float, Tensor


def delta_rule(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    beta: Float[Tensor, "b t h"] | None = None,
    *,
    initial_state: VLAState | None = None,
    output_final_state: bool = False,
    backend: str = "auto",
    chunk_size: int = 64,
    precision: str = "auto",
    check: bool = False,
) -> tuple[Float[Tensor, "b t h dv"], VLAState | None]:
    """``S ← S + β (v − S k) kᵀ``, ``o = S q`` (Schlag et al. 2021; Yang et al. 2024).

    Arguments, states (their ``A`` is ``None``) and errors as in :func:`vla.ops.vla_attention`.
    """
    options = (initial_state, output_final_state, backend, chunk_size, precision, check)
    return _fixed(q, k, v, beta, *options, residual=True)


def linear_attention(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    beta: Float[Tensor, "b t h"] | None = None,
    *,
    initial_state: VLAState | None = None,
    output_final_state: bool = False,
    backend: str = "auto",
    chunk_size: int = 64,
    precision: str = "auto",
    check: bool = False,
) -> tuple[Float[Tensor, "b t h dv"], VLAState | None]:
    """``S ← S + β v kᵀ``, ``o = S q`` (Katharopoulos et al. 2020; paper §2.2), unnormalised.

    Arguments, states (their ``A`` is ``None``) and errors as in :func:`vla.ops.vla_attention`.
    """
    options = (initial_state, output_final_state, backend, chunk_size, precision, check)
    return _fixed(q, k, v, beta, *options, residual=False)


def _fixed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None,
    initial_state: VLAState | None,
    output_final_state: bool,
    backend: str,
    chunk_size: int,
    precision: str,
    check: bool,
    *,
    residual: bool,
) -> tuple[Tensor, VLAState | None]:
    check_sequences(q, k, v, None, beta)
    check_options(backend, precision, chunk_size)
    if backend == "associative":
        raise ArgumentError("backend", backend, "'auto', 'scan', 'chunk' or 'triton'")
    if initial_state is not None:
        check_state(initial_state, q, v, penalty=False)
    if check:
        S = None if initial_state is None else initial_state.S
        check_finite(q=q, k=k, v=v, beta=beta, **{"initial_state.S": S})
    name, _ = choose_backend(q, v, backend)
    start = initial_state or empty_state(q, v, None)
    if q.numel() == 0 or v.numel() == 0:
        o, state = v.clone(), start
    elif name == "triton":
        kernel = "delta_rule_triton" if residual else "linear_attention_triton"
        options: dict[str, Any] = {"initial_state": initial_state, "precision": precision}
        options["output_final_state"] = output_final_state
        o, left = getattr(kernels(), kernel)(q, k, v, beta, **options)
        state = left and VLAState(left.S, None, start.step + q.shape[1])
    else:
        o, state = _run_in_torch(name, q, k, v, beta, start, chunk_size, residual)
    return o, state if output_final_state else None


def _run_in_torch(
    name: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Tensor | None,
    start: VLAState,
    chunk_size: int,
    residual: bool,
) -> tuple[Tensor, VLAState]:
    dtype = start.S.dtype
    wide = (q.to(dtype), k.to(dtype), v.to(dtype), None if beta is None else beta.to(dtype))
    with torch.autocast(q.device.type, enabled=False):
        if name == "chunk":
            o, state = chunk_fixed(*wide, start, residual=residual, chunk_size=chunk_size)
        else:
            o, state = fixed_scan(*wide, start, residual=residual)
    return o.to(v.dtype), state
