"""``vla_attention``: the one call behind which every backend stands."""

from typing import Any

import torch

from vla.ops.associative import associative_scan
from vla.ops.backend import choose_backend, kernels
from vla.ops.check import (
    check_finite,
    check_gate,
    check_lambda0,
    check_options,
    check_rule,
    check_sequences,
    check_state,
)
from vla.ops.chunk import chunk_vla
from vla.ops.rank import in_steps, in_tokens, last_of_each, one_by_one
from vla.ops.scan import scan
from vla.ops.state import VLAState, empty_state
from vla.typing import Float, Tensor

# Far below anything a float32 penalty can feel, and it makes the gradient of √β right at β = 0.
TINY = 1e-30


def vla_attention(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    u: Float[Tensor, "b t h *r d"] | None = None,
    beta: Float[Tensor, "b t h"] | None = None,
    *,
    lambda0: float | Float[Tensor, "h"] = 0.1,
    gain: str = "unit",
    refresh_every: int = 0,
    refresh_eps: float = 1e-3,
    initial_state: VLAState | None = None,
    output_final_state: bool = False,
    backend: str = "auto",
    chunk_size: int = 64,
    precision: str = "auto",
    check: bool = False,
) -> tuple[Float[Tensor, "b t h dv"], VLAState | None]:
    """Variational Linear Attention over ``[batch, time, heads, width]`` sequences.

    Per token (paper §3.2-3.3): ``A ← (A⁻¹ + u uᵀ)⁻¹``, every ``refresh_every``-th token
    ``A ← A + refresh_eps I``, then ``α = A k``, ``S ← S + β (v − S k) α̂ᵀ`` and ``o = S q``.

    :param q: queries.
    :param k: keys, used as given; normalising them is the layer's job.
    :param v: values; their width may differ from the keys'.
    :param u: directions whose penalty grows. ``None``: ``√β k``, exact weighted least squares with
        ``gain="rls"``; then ``beta ≥ 0``. With an axis of r ≤ 4 before the last a token raises r
        directions, ``A ← (A⁻¹ + U Uᵀ)⁻¹`` (Woodbury): ``chunk`` then does r times the work for
        ``A`` alone, the loops likewise, ``triton`` all of its work for r times the tokens.
    :param beta: weight of each write; ``None`` is 1.
    :param lambda0: initial penalty, ``A_0 = I/λ0``; a tensor holds one for each head and gets its
        gradient. Unused where ``initial_state`` is given.
    :param gain: ``"unit"`` (``α̂ = α/‖α‖``, the paper), ``"rls"`` (``α``), ``"oblique"``
        (``α/(k·α)``).
    :param refresh_every: period of the refresh in tokens; 0 is never, the authors' code has 20.
    :param initial_state: what an earlier call returned; the sequence continues exactly.
    :param output_final_state: also return the state after the last token.
    :param backend: ``"auto"`` (see :func:`vla.ops.choose_backend`), ``"scan"``, ``"associative"``,
        ``"chunk"`` or ``"triton"``.
    :param chunk_size: tokens per chunk of ``chunk``; the result does not depend on it.
    :param precision: of the Triton kernels' matrix products: ``"auto"``, ``"ieee"``,
        ``"tf32x3"``, ``"tf32"``. The other backends work in the precision of their dtype.
    :param check: also look for entries that are not finite, and for a negative ``beta``.
    :returns: ``o`` in the dtype of ``v``, and the final state or ``None``.
    :raises ArgumentError: (a ``ValueError``) naming the argument that does not fit.
    """
    check_sequences(q, k, v, u, beta)
    check_options(backend, precision, chunk_size)
    check_rule(gain, refresh_every, refresh_eps)
    check_lambda0(lambda0, q, values=check)
    if initial_state is not None:
        check_state(initial_state, q, v, penalty=True)
    if check:
        check_finite(q=q, k=k, v=v, u=u, beta=beta, **_state_tensors(initial_state))
        check_gate(beta if u is None else None)
    rule = {"gain": gain, "refresh_every": refresh_every, "refresh_eps": refresh_eps}
    if u is not None and u.ndim == 5 and u.shape[3] == 1:
        u = u.squeeze(3)
    sequences = (q, k, v, u, beta)
    name, _ = choose_backend(q, v, backend)
    start = _start(q, v, lambda0, initial_state)
    state: VLAState | None
    if q.numel() == 0 or v.numel() == 0:
        o, state = v.clone(), start or empty_state(q, v, lambda0)
    elif name == "triton":
        options: dict[str, Any] = {"precision": precision, **rule}
        options |= {"initial_state": start, "output_final_state": output_final_state}
        # The kernels take a plain number; a tensor is in the state already.
        options |= {} if isinstance(lambda0, Tensor) else {"lambda0": lambda0}
        o, state = _run_in_triton(sequences, options)
    else:
        start = start or empty_state(q, v, lambda0)
        o, state = _run_in_torch(name, sequences, start, rule, chunk_size)
    return o, state if output_final_state else None


def default_direction(
    k: Float[Tensor, "b t h d"], beta: Float[Tensor, "b t h"] | None
) -> Float[Tensor, "b t h d"]:
    """``u = √β k``: with it and the rls gain, VLA is exact weighted recursive least squares."""
    if beta is None:
        return k
    return (beta + TINY).sqrt()[..., None] * k


def _run_in_triton(
    sequences: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None], options: dict[str, Any]
) -> tuple[Tensor, VLAState | None]:
    """The kernels, which know one direction per token."""
    q, k, v, u, beta = sequences
    if u is None or u.ndim == 4:
        return kernels().vla_attention_triton(*sequences, **options)
    rank = u.shape[3]
    options = {**options, "initial_state": in_steps(options["initial_state"], rank)}
    options["refresh_every"] *= rank
    expanded = one_by_one(q, k, v, u, beta)
    o, state = kernels().vla_attention_triton(*expanded, **options)
    return last_of_each(o, rank), in_tokens(state, rank)


def _run_in_torch(
    name: str,
    sequences: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    start: VLAState,
    rule: dict[str, Any],
    chunk_size: int,
) -> tuple[Tensor, VLAState]:
    """Scan, associative scan or chunk, in the dtype of the state, whatever autocast says."""
    dtype = start.S.dtype
    q, k, v = (x.to(dtype) for x in sequences[:3])
    u, beta = (x if x is None else x.to(dtype) for x in sequences[3:])
    if u is None:
        # The chunk form takes the penalty's directions in float64: rounded ones would not be
        # parallel to the keys, which repeated keys and a small λ0 magnify by T/λ0.
        wide = torch.float64 if name == "chunk" and beta is not None else dtype
        u = default_direction(k.to(wide), None if beta is None else beta.to(wide))
    with torch.autocast(q.device.type, enabled=False):
        if name == "chunk":
            o, state = chunk_vla(q, k, v, u, beta, start, chunk_size=chunk_size, **rule)
        else:
            loop = scan if name == "scan" else associative_scan
            o, state = loop(q, k, v, u, beta, start, **rule)
    return o.to(sequences[2].dtype), state


def _start(
    q: Tensor, v: Tensor, lambda0: float | Tensor, initial_state: VLAState | None
) -> VLAState | None:
    """The state to begin from; ``None`` leaves ``I/λ0`` to the backend.

    A given ``A`` becomes symmetric to the last bit, which every backend may then rely on.
    """
    if initial_state is None:
        return empty_state(q, v, lambda0) if isinstance(lambda0, Tensor) else None
    state = initial_state
    assert state.A is not None
    return state._replace(A=(state.A + state.A.mT) / 2)


def _state_tensors(state: VLAState | None) -> dict[str, Tensor | None]:
    return {} if state is None else {"initial_state.S": state.S, "initial_state.A": state.A}
