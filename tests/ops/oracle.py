"""What every test of the operations shares: inputs, the float64 reference, errors by norm."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor

from vla.ops import VLAState, vla_attention

KINDS = ("gaussian", "elu", "near_duplicates", "repeated", "zero_u", "beta_zero", "beta_one")


class Case(NamedTuple):
    """The tensors of one call; ``u``, ``beta``, ``S``, ``A`` may be ``None``."""

    q: Tensor
    k: Tensor
    v: Tensor
    u: Tensor | None
    beta: Tensor | None
    S: Tensor | None
    A: Tensor | None
    step: int = 0

    def to(self, *args: Any) -> "Case":
        """Sequences as ``Tensor.to``; a 16-bit dtype leaves the state in float32."""
        moved = [x if x is None else x.detach().to(*args) for x in self[:7]]
        if moved[0].dtype in (torch.float16, torch.bfloat16):
            moved[5:] = [x if x is None else x.float() for x in moved[5:]]
        return Case(*moved, self.step)


def make_case(
    kind: str = "gaussian",
    *,
    batch: int = 2,
    tokens: int = 65,
    heads: int = 2,
    width: int = 16,
    value_width: int | None = None,
    gate: bool = True,
    own_u: bool = True,
    rank: int = 0,
    state: bool = True,
    step: int = 3,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    device: str = "cpu",
) -> Case:
    """Seeded inputs with unit keys, drawn on the CPU in float64 and then cast.

    ``kind``: ``gaussian`` keys; ``elu`` (ELU + 1, all of one sign); ``near_duplicates`` (one key
    plus 1 % noise); ``repeated`` (one key exactly); ``zero_u``; ``beta_zero`` and ``beta_one``.
    With ``own_u=False``, ``u`` is ``None``; with ``state=False`` the call starts from nothing.
    ``rank`` directions per token have an axis of their own, one (``rank=0``) has none.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}")
    draw = _Draw(seed)
    shape = (batch, tokens, heads)
    k = F.normalize(_keys(kind, draw, shape, width), dim=-1)
    v = draw(*shape, value_width or width)
    q = F.normalize(draw(*shape, width), dim=-1)
    several = (rank,) if rank else ()
    u = F.normalize(draw(*shape, *several, width), dim=-1) if own_u else None
    u = torch.zeros(*shape, *several, width) if kind == "zero_u" else u
    beta = torch.sigmoid(draw(*shape)) if gate else None
    beta = {"beta_zero": torch.zeros(shape), "beta_one": torch.ones(shape)}.get(kind, beta)
    S = draw(batch, heads, v.shape[-1], width) if state else None
    A = _positive(draw(batch, heads, width, width)) if state else None
    case = Case(q, k, v, u, beta, S, A, step if state else 0)
    return case.to(torch.float64).to(dtype).to(device)


def results(
    case: Case, op: Callable[..., Any] = vla_attention, *, gradients: bool = True, **options: Any
) -> dict[str, Tensor]:
    """``o``, final ``S`` and ``A``, and ``d<name>`` of every input, in float64 on the CPU.

    The cotangents depend on the shapes alone, so two backends or dtypes can be compared.
    """
    leaves = {name: x for name, x in case._asdict().items() if isinstance(x, Tensor)}
    leaves = {name: x.detach().clone().requires_grad_(gradients) for name, x in leaves.items()}
    o, state = op(*_arguments(op, leaves), **_state_options(op, leaves, case), **options)
    outputs = {"o": o, "S": state.S} | ({} if state.A is None else {"A": state.A})
    found = dict(outputs)
    if gradients:
        given = torch.autograd.grad(
            list(outputs.values()),
            list(leaves.values()),
            [_cotangent(x, i) for i, x in enumerate(outputs.values())],
            allow_unused=True,
        )
        found |= {
            f"d{name}": torch.zeros_like(leaves[name]) if g is None else g
            for name, g in zip(leaves, given, strict=True)
        }
    return {name: x.detach().double().cpu() for name, x in found.items()}


def reference(
    case: Case, op: Callable[..., Any] = vla_attention, **options: Any
) -> dict[str, Tensor]:
    """The same from the token loop in float64 on the CPU."""
    return results(case.to(torch.float64).to("cpu"), op, **options, backend="scan")


def explicit(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    u: Tensor,
    beta: Tensor | None,
    *,
    initial_state: VLAState | None = None,
    lambda0: float | Tensor = 0.1,
    gain: str = "unit",
    refresh_every: int = 0,
    refresh_eps: float = 1e-3,
    output_final_state: bool = True,  # noqa: ARG001
) -> tuple[Tensor, VLAState]:
    """VLA from the definition: ``M ← M + U Uᵀ`` and its inverse at every token, by autograd.

    No Sherman-Morrison step, no Woodbury step, no ``vla.ops``. ``u`` is ``[b, t, h, r, d]``.
    """
    eye = torch.eye(q.shape[-1], dtype=q.dtype)
    if initial_state is None:
        shape = (q.shape[0], q.shape[2])
        per_head = torch.as_tensor(lambda0, dtype=q.dtype).expand(shape[1])[:, None, None]
        M = (per_head * eye).expand(*shape, *eye.shape)
        S, step = q.new_zeros(*shape, v.shape[-1], q.shape[-1]), 0
    else:
        S, A, step = initial_state
        M = torch.linalg.inv((A + A.mT) / 2)
    outputs = []
    for t in range(q.shape[1]):
        step += 1
        M = M + u[:, t].mT @ u[:, t]
        A = torch.linalg.inv(M)
        if refresh_every and step % refresh_every == 0:
            A = A + refresh_eps * eye
            M = torch.linalg.inv(A)
        alpha = (A @ k[:, t, ..., None])[..., 0]
        size = {"unit": alpha.norm(dim=-1), "oblique": (k[:, t] * alpha).sum(-1)}.get(gain)
        row = alpha if size is None else alpha / size[..., None]
        row = row if beta is None else beta[:, t, :, None] * row
        e = v[:, t] - (S @ k[:, t, ..., None])[..., 0]
        S = S + e[..., None] * row[..., None, :]
        outputs.append((S @ q[:, t, ..., None])[..., 0])
    return torch.stack(outputs, 1), VLAState(S, A, step)


PENALISED = (vla_attention, explicit)
"""The operations that have a ``u`` and an ``A``."""


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """``‖got − wanted‖ / ‖wanted‖`` in float64; absolute where ``wanted`` is zero; NaN is inf."""
    if got.shape != wanted.shape:
        raise AssertionError(f"shape {tuple(got.shape)}, wanted {tuple(wanted.shape)}")
    got, wanted = got.detach().double().cpu(), wanted.detach().double().cpu()
    scale = float(wanted.norm()) or 1.0
    error = float((got - wanted).norm()) / scale
    return error if error == error else float("inf")


def assert_close(got: dict[str, Tensor], wanted: dict[str, Tensor], bound: float) -> None:
    """Every named tensor within ``bound`` by :func:`relative_error`; names all that are not."""
    assert got.keys() == wanted.keys()
    errors = {name: relative_error(got[name], wanted[name]) for name in wanted}
    bad = {name: f"{error:.2e}" for name, error in errors.items() if not error <= bound}
    assert not bad, f"relative error above {bound:g}: {bad}"


@contextmanager
def poisoned() -> Iterator[None]:
    """Inside, ``torch.empty`` and its kin are full of NaN: an unwritten output shows."""
    with (
        mock.patch.object(torch, "empty", _poison(torch.empty)),
        mock.patch.object(torch, "empty_like", _poison(torch.empty_like)),
        mock.patch.object(Tensor, "new_empty", _poison(Tensor.new_empty)),
    ):
        yield


class _Draw:
    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def __call__(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, dtype=torch.float64)


def _keys(kind: str, draw: _Draw, shape: tuple[int, int, int], width: int) -> Tensor:
    fresh = draw(*shape, width)
    if kind == "elu":
        return F.elu(fresh) + 1
    if kind in ("near_duplicates", "repeated"):
        one = F.normalize(draw(shape[0], 1, shape[2], width), dim=-1).expand_as(fresh)
        return one + (0.01 * fresh if kind == "near_duplicates" else 0)
    return fresh


def _positive(x: Tensor) -> Tensor:
    eye = torch.eye(x.shape[-1], dtype=x.dtype)
    return x @ x.mT / x.shape[-1] + eye


def _arguments(op: Callable[..., Any], leaves: dict[str, Tensor]) -> list[Tensor | None]:
    names = ("q", "k", "v", "u", "beta") if op in PENALISED else ("q", "k", "v", "beta")
    return [leaves.get(name) for name in names]


def _state_options(op: Callable[..., Any], leaves: dict[str, Tensor], case: Case) -> dict[str, Any]:
    options: dict[str, Any] = {"output_final_state": True}
    if case.S is not None:
        A = leaves["A"] if op in PENALISED else None
        options["initial_state"] = VLAState(leaves["S"], A, case.step)
    return options


def _cotangent(like: Tensor, seed: int) -> Tensor:
    x = _Draw(100 + seed)(*like.shape)
    return x.to(like.dtype).to(like.device)


def _poison(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def poisoned_make(*args: Any, **kwargs: Any) -> Tensor:
        x = make(*args, **kwargs)
        return x.fill_(float("nan")) if x.is_floating_point() else x

    return poisoned_make
