"""Decoding: one token at a time, in memory that does not grow."""

from vla.ops.api import vla_attention
from vla.ops.state import VLAState
from vla.typing import Float, Tensor


def decode_step(
    q: Float[Tensor, "b h d"],
    k: Float[Tensor, "b h d"],
    v: Float[Tensor, "b h dv"],
    u: Float[Tensor, "b h *r d"] | None = None,
    beta: Float[Tensor, "b h"] | None = None,
    state: VLAState | None = None,
    *,
    lambda0: float | Float[Tensor, "h"] = 0.1,
    gain: str = "unit",
    refresh_every: int = 0,
    refresh_eps: float = 1e-3,
    backend: str = "auto",
    precision: str = "auto",
    check: bool = False,
) -> tuple[Float[Tensor, "b h dv"], VLAState]:
    """One token of :func:`vla.ops.vla_attention`, continuing exactly from any prefix's ``state``.

    :returns: the output and the state for the next token, in the same memory as before.
    :raises ArgumentError: as there.
    """
    sequences = [x if x is None else x.unsqueeze(1) for x in (q, k, v, u, beta)]
    o, after = vla_attention(
        *sequences,  # type: ignore[arg-type]
        lambda0=lambda0,
        gain=gain,
        refresh_every=refresh_every,
        refresh_eps=refresh_eps,
        initial_state=state,
        output_final_state=True,
        backend=backend,
        precision=precision,
        check=check,
    )
    assert after is not None
    return o.squeeze(1), after
