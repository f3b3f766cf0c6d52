"""Several penalty directions per token, for a backend that knows one.

r Sherman-Morrison steps in a row are one Woodbury step. So a token becomes r of them, each raising
one direction, of which only the last writes and is read: exact for any backend that takes a gate,
at the price of r times the tokens. ``scan``, ``associative`` and ``chunk`` need none of this.
"""

import torch.nn.functional as F

from vla.ops.state import VLAState
from vla.typing import Float, Tensor


def one_by_one(
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    v: Float[Tensor, "b t h dv"],
    u: Float[Tensor, "b t h r d"],
    beta: Float[Tensor, "b t h"] | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """``q, k, v, u, β`` of the longer sequence, ``[b, t·r, h, ·]``, with β = 0 but at the last."""
    rank = u.shape[3]
    gate = k.new_ones(k.shape[:3]) if beta is None else beta
    gate = F.pad(gate.unsqueeze(2), (0, 0, rank - 1, 0)).flatten(1, 2)
    repeated = (_repeat(x, rank) for x in (q, k, v))
    return (*repeated, u.transpose(2, 3).flatten(1, 2), gate)  # type: ignore[return-value]


def last_of_each(o: Float[Tensor, "b tr h dv"], rank: int) -> Float[Tensor, "b t h dv"]:
    """The outputs of the tokens that write."""
    return o.unflatten(1, (-1, rank))[:, :, -1]


def in_steps(state: VLAState | None, rank: int) -> VLAState | None:
    """The state with its tokens counted ``rank`` times, so that a refresh keeps its phase."""
    return state and state._replace(step=state.step * rank)


def in_tokens(state: VLAState | None, rank: int) -> VLAState | None:
    """The inverse of :func:`in_steps`."""
    return state and state._replace(step=state.step // rank)


def _repeat(x: Tensor, rank: int) -> Tensor:
    """Every token ``rank`` times; an index would have a backward that does not repeat on a GPU."""
    return x[:, :, None].expand(-1, -1, rank, -1, -1).flatten(1, 2)
