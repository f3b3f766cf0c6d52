"""Several directions per token, and λ0 of each head: against an explicit inverse of M + U Uᵀ."""

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from vla.ops import VLAState, decode_step, vla_attention
from vla.ops.rank import in_steps, in_tokens, last_of_each, one_by_one
from vla.ops.scan import scan
from vla.ops.state import empty_state

from .oracle import assert_close, explicit, make_case, poisoned, relative_error, results

BACKENDS = ("scan", "associative", "chunk")
GAINS = ("unit", "rls", "oblique")
EXACT = 1e-9


def check(case, bound: float = EXACT, **options) -> None:
    chosen = {name: options.pop(name) for name in ("backend", "chunk_size") if name in options}
    with poisoned():
        got = results(case, **chosen, **options)
    assert_close(got, results(case.to(torch.float64), explicit, **options), bound)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize(("rank", "tokens", "refresh"), [(1, 5, 0), (2, 17, 3), (3, 33, 7),
                                                         (4, 1, 1), (4, 25, 20)])  # fmt: skip
def test_equals_the_explicit_inverse(rank, tokens, refresh, gain, backend) -> None:
    """Forward, every gradient, both states; lengths that no chunk size divides."""
    case = make_case(tokens=tokens, width=6, value_width=5, rank=rank)
    check(case, backend=backend, gain=gain, refresh_every=refresh, refresh_eps=0.05, chunk_size=16)


@pytest.mark.parametrize("chunk_size", [1, 3, 8, 64, 1000])
def test_any_chunk_size(chunk_size: int) -> None:
    """Sizes below the rank, where a chunk holds one token, and ones that cut unequal parts."""
    case = make_case(tokens=37, width=5, rank=4)
    check(case, backend="chunk", chunk_size=chunk_size, refresh_every=7, refresh_eps=0.05)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lambda0", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("noise", [0.0, 1e-2])
def test_directions_of_a_token_that_are_nearly_or_quite_the_same(noise, lambda0, backend) -> None:
    """I + UᵀA U then has one eigenvalue of r/λ0 and the rest near 1: conditioned, not singular."""
    case = make_case(tokens=19, width=6, rank=4, state=False)
    one = case.u[:, :, :, :1]
    case = case._replace(u=F.normalize(one + noise * case.u, dim=-1))
    check(case, backend=backend, lambda0=lambda0, gain="oblique", bound=1e-8)


@pytest.mark.parametrize("backend", BACKENDS)
def test_zero_directions_add_nothing(backend: str) -> None:
    """Padding: three directions and a zero one are three; all zero leave A alone."""
    case = make_case(tokens=13, width=6, rank=3)
    padded = case._replace(u=F.pad(case.u, (0, 0, 0, 1)))
    three, four = (results(c, gradients=False, backend=backend) for c in (case, padded))
    assert_close(four, three, 1e-12)
    none = results(case._replace(u=torch.zeros_like(padded.u)), backend=backend)
    assert torch.equal(none["A"], (case.A + case.A.mT) / 2)
    assert all(x.isfinite().all() for x in none.values())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_direction_is_the_old_path_bit_for_bit(dtype: torch.dtype, backend: str) -> None:
    case = make_case(tokens=41, width=8, rank=1).to(dtype)
    flat = case._replace(u=case.u[:, :, :, 0])
    options = {"backend": backend, "chunk_size": 16, "refresh_every": 7}
    one, old = results(case, **options), results(flat, **options)
    one["du"] = one["du"][:, :, :, 0]
    assert all(torch.equal(one[name], old[name]) for name in old)


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_directions_are_one_after_the_other_of_which_the_last_writes(backend) -> None:
    """The identity that serves the kernels, which know one direction per token."""
    rank, period, step = 3, 5, 4
    case = make_case(tokens=22, width=6, value_width=4, rank=rank, step=step)
    rule = {"gain": "unit", "refresh_every": period, "refresh_eps": 0.05}
    start = VLAState(case.S, case.A, step)
    kept = {"output_final_state": True, "backend": backend}
    o, end = vla_attention(*case[:5], initial_state=start, **rule, **kept)
    rule["refresh_every"] *= rank
    start = in_steps(start, rank)
    long, late = vla_attention(*one_by_one(*case[:5]), initial_state=start, **rule, **kept)
    assert relative_error(last_of_each(long, rank), o) < 1e-12
    assert relative_error(late.S, end.S) < 1e-12
    assert relative_error(late.A, end.A) < 1e-12
    assert in_tokens(late, rank).step == end.step == step + 22


def test_the_longer_sequence_has_the_gradients_too() -> None:
    case = make_case(tokens=9, width=5, rank=4, gate=False, state=False)
    leaves = [x.clone().requires_grad_() for x in case[:4]]
    start = empty_state(case.q, case.v, 0.1)
    o, _ = scan(*one_by_one(*leaves, None), start)
    weight = torch.linspace(-1, 1, 2 * 9 * 2 * 5, dtype=torch.float64).view(2, 9, 2, 5)
    found = torch.autograd.grad((last_of_each(o, 4) * weight).sum(), leaves)
    direct, _ = explicit(*leaves, None)
    wanted = torch.autograd.grad((direct * weight).sum(), leaves)
    for name, got, right in zip("qkvu", found, wanted, strict=True):
        assert relative_error(got, right) < EXACT, name


@settings(max_examples=30, deadline=None)
@given(
    split=st.integers(0, 23),
    refresh=st.sampled_from([0, 1, 3, 7]),
    rank=st.integers(1, 4),
    step=st.integers(0, 9),
    backends=st.tuples(st.sampled_from(BACKENDS), st.sampled_from(BACKENDS)),
)
def test_a_split_anywhere_equals_one_call(split, refresh, rank, step, backends) -> None:
    """The refresh keeps its phase in tokens, and the parts may have different ranks."""
    case = make_case(batch=1, tokens=23, width=4, rank=4, step=step)
    case = case._replace(u=torch.cat([case.u[:, :split], F.pad(
        case.u[:, split:, :, :rank], (0, 0, 0, 4 - rank))], 1))  # fmt: skip
    options = {"refresh_every": refresh, "refresh_eps": 0.1, "output_final_state": True}
    start = VLAState(case.S, case.A, step)
    o, end = vla_attention(*case[:5], initial_state=start, backend="scan", **options)
    parts = ([x[:, :split] for x in case[:5]], [x[:, split:] for x in case[:5]])
    parts[1][3] = parts[1][3][:, :, :, :rank]
    state, pieces = start, []
    for part, backend in zip(parts, backends, strict=True):
        piece, state = vla_attention(*part, initial_state=state, backend=backend, **options)
        pieces.append(piece)
    assert state.step == end.step == step + 23
    assert relative_error(torch.cat(pieces, 1), o) < 1e-10
    assert relative_error(state.A, end.A) < 1e-10


def test_decoding_takes_several_directions() -> None:
    case = make_case(tokens=12, width=5, rank=3, state=False)
    o, _ = vla_attention(*case[:5], refresh_every=5, backend="chunk")
    state = None
    for t in range(12):
        read, state = decode_step(*(x[:, t] for x in case[:5]), state, refresh_every=5)
        assert relative_error(read, o[:, t]) < 1e-10


@pytest.mark.parametrize("kind", ["gaussian", "elu", "near_duplicates"])
def test_float32_stays_near_float64(kind: str) -> None:
    """The chunk form as README.md promises it; the loop's bound grows with r T/λ0."""
    case = make_case(kind, tokens=65, width=16, rank=4, state=False).to(torch.float32)
    exact = results(case.to(torch.float64), explicit)
    assert_close(results(case, backend="chunk"), exact, 1e-5)
    loop = results(case, backend="scan", gradients=False)["o"]
    assert relative_error(loop, exact["o"]) < 4 * torch.finfo(torch.float32).eps * 4 * 65 / 0.1


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_back_as_it_went_in(dtype: torch.dtype) -> None:
    case = make_case(tokens=9, rank=2, state=False).to(dtype)
    o, state = vla_attention(*case[:5], output_final_state=True)
    assert (o.dtype, state.A.dtype) == (dtype, torch.float32)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rank", [0, 3])
def test_lambda0_of_each_head_and_its_gradient(rank: int, backend: str) -> None:
    case = make_case(tokens=21, heads=3, width=5, rank=rank, state=False)
    lambda0 = torch.tensor([0.03, 0.5, 4.0], dtype=torch.float64, requires_grad=True)
    options = {"lambda0": lambda0, "refresh_every": 7, "output_final_state": True}
    o, state = vla_attention(*case[:5], **options, backend=backend)
    u = case.u if rank else case.u[:, :, :, None]
    wanted, last = explicit(case.q, case.k, case.v, u, case.beta, **options)
    assert relative_error(o, wanted) < EXACT
    assert relative_error(state.A, last.A) < EXACT
    got, right = (
        torch.autograd.grad(x.square().sum() + end.A.sum(), lambda0)[0]
        for x, end in ((o, state), (wanted, last))
    )
    assert relative_error(got, right) < EXACT
    one = vla_attention(*case[:5], lambda0=0.5, refresh_every=7, backend=backend)[0]
    assert torch.equal(one[:, :, 1], o[:, :, 1])


def test_lambda0_is_unused_beside_a_state() -> None:
    case = make_case(tokens=5, width=5)
    start = VLAState(case.S, case.A, 3)
    lambda0 = torch.tensor([0.3, 3.0], dtype=torch.float64)
    o, _ = vla_attention(*case[:5], initial_state=start, lambda0=lambda0)
    assert torch.equal(o, vla_attention(*case[:5], initial_state=start)[0])
    none = [x[:, :0] for x in case[:5]]
    _, state = vla_attention(*none, lambda0=lambda0, output_final_state=True)
    assert torch.equal(state.A.diagonal(dim1=-2, dim2=-1)[0, :, 0], 1 / lambda0)
