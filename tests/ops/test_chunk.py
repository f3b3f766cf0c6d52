"""The chunk form against the token loop: forward, every gradient, final state."""

import pytest
import torch

from vla.ops import VLAState, delta_rule, linear_attention, vla_attention
from vla.ops.chunk import chunk_vla

from .oracle import KINDS, assert_close, make_case, poisoned, reference, results

GAINS = ("unit", "rls", "oblique")
REFRESHES = (0, 7, 20)
SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 100)
EXACT = 1e-10


def check(case, chunk_size: int = 16, bound: float = EXACT, **options) -> None:
    with poisoned():
        got = results(case, backend="chunk", chunk_size=chunk_size, **options)
    assert_close(got, reference(case, **options), bound)


@pytest.mark.parametrize("tokens", SIZES)
@pytest.mark.parametrize("refresh", REFRESHES)
@pytest.mark.parametrize("gain", GAINS)
def test_equals_the_token_loop(gain: str, refresh: int, tokens: int) -> None:
    case = make_case(tokens=tokens, width=8, value_width=5)
    check(case, gain=gain, refresh_every=refresh, refresh_eps=0.05)


@pytest.mark.parametrize("chunk_size", [1, 3, 64, 1000])
@pytest.mark.parametrize("refresh", [0, 1, 7, 50])
def test_any_chunk_size(chunk_size: int, refresh: int) -> None:
    """Refresh periods shorter and longer than the chunk, one that does not divide it."""
    check(make_case(tokens=65, width=6), chunk_size, refresh_every=refresh, refresh_eps=0.05)


@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (3, 1), (1, 3)])
@pytest.mark.parametrize(("width", "value_width"), [(1, 1), (1, 7), (7, 1), (33, 3), (4, 40)])
def test_any_widths(batch: int, heads: int, width: int, value_width: int) -> None:
    check(
        make_case(batch=batch, heads=heads, tokens=35, width=width, value_width=value_width),
        refresh_every=7,
    )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lambda0", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("gain", GAINS)
def test_keys_of_every_kind(gain: str, lambda0: float, kind: str) -> None:
    """Conditioning T/λ0 of up to 1e5 magnifies float64's 1e-16 in the loop, too."""
    if kind == "zero_u" and gain == "rls" and lambda0 < 1:
        pytest.skip("a delta rule with a step of β/λ0 > 2, which grows without bound")
    case = make_case(kind, tokens=100, width=6, state=False)
    check(case, gain=gain, lambda0=lambda0, bound=1e-8)


@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("kind", ["gaussian", "repeated", "beta_zero"])
def test_direction_left_out_is_the_weighted_key(kind: str, gate: bool, gain: str) -> None:
    check(make_case(kind, tokens=37, width=6, gate=gate, own_u=False), gain=gain)


def test_gradient_of_the_gate_is_right_where_it_is_zero() -> None:
    """d√β is infinite at β = 0, the derivative of the penalty is not: against differences."""
    case = make_case("beta_zero", batch=1, heads=1, tokens=5, width=4, own_u=False)
    found = results(case, backend="chunk", gain="rls")["dbeta"]
    assert torch.isfinite(found).all()
    step = 1e-5

    def total(beta: torch.Tensor) -> torch.Tensor:
        start = VLAState(case.S, case.A, case.step)
        o, _ = vla_attention(case.q, case.k, case.v, None, beta, gain="rls", initial_state=start)
        return o.square().sum()

    beta = case.beta.clone().requires_grad_()
    (exact,) = torch.autograd.grad(total(beta), beta)
    for t in range(5):
        ahead = case.beta.clone()
        ahead[0, t, 0] = step
        twice = case.beta.clone()
        twice[0, t, 0] = 2 * step
        slope = (4 * total(ahead) - total(twice) - 3 * total(case.beta)) / (2 * step)
        assert abs(float(exact[0, t, 0] - slope)) < 1e-6 * float(exact.abs().max())


@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("backend", ["scan", "chunk"])
def test_zero_keys_write_nothing_and_have_finite_gradients(backend: str, gain: str) -> None:
    case = make_case(tokens=20, width=6)
    case.k[:, ::3] = 0
    found = results(case, backend=backend, gain=gain)
    assert all(bool(torch.isfinite(x).all()) for x in found.values())
    assert_close(found, reference(case, gain=gain), EXACT)


@pytest.mark.parametrize("gain", GAINS)
@pytest.mark.parametrize("refresh", [0, 3])
def test_gradcheck(gain: str, refresh: int) -> None:
    """The analytic backward against finite differences, states included."""
    case = make_case(batch=1, tokens=8, heads=1, width=3, value_width=2)

    def run(q, k, v, u, beta, S, A):
        o, state = vla_attention(
            q, k, v, u, beta, gain=gain, refresh_every=refresh, refresh_eps=0.1,
            initial_state=VLAState(S, A, 1), output_final_state=True, backend="chunk", chunk_size=3,
        )  # fmt: skip
        return o, state.S, state.A

    inputs = [x.detach().requires_grad_() for x in case[:7]]
    assert torch.autograd.gradcheck(run, inputs, eps=1e-6, atol=1e-6, rtol=1e-5)


def test_strided_inputs_give_the_same_numbers() -> None:
    case = make_case(tokens=33, width=8)
    strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in case[:4]]
    assert not strided[0].is_contiguous()
    check(case._replace(q=strided[0], k=strided[1], v=strided[2], u=strided[3]))


def test_expanded_inputs_are_left_alone() -> None:
    """Heads that share keys by a zero stride: no backend may write into its inputs."""
    case = make_case(tokens=33, heads=1, width=8, state=False)
    shared = [x.expand(-1, -1, 2, *x.shape[3:]) for x in case[:5]]
    before = [x.clone() for x in shared]
    o, _ = vla_attention(*shared, backend="chunk", chunk_size=16)
    assert all(torch.equal(x, y) for x, y in zip(shared, before, strict=True))
    assert torch.equal(o[:, :, 0], o[:, :, 1])


def test_only_the_asked_gradients() -> None:
    """A call in which nothing but v needs a gradient, and one where the state does."""
    case = make_case(tokens=20, width=6)
    wanted = reference(case)
    v = case.v.clone().requires_grad_()
    start = VLAState(case.S, case.A, case.step)
    o, _ = vla_attention(case.q, case.k, v, case.u, case.beta, initial_state=start, backend="chunk")
    (dv,) = torch.autograd.grad(o.sum(), v)
    v2 = case.v.clone().requires_grad_()
    o, _ = vla_attention(case.q, case.k, v2, case.u, case.beta, initial_state=start, backend="scan")
    assert torch.allclose(dv, torch.autograd.grad(o.sum(), v2)[0], atol=1e-12)
    assert wanted["dv"].shape == dv.shape


def test_second_derivatives_are_refused_not_wrong() -> None:
    case = make_case(batch=1, heads=1, tokens=9, width=4, state=False)
    k = case.k.clone().requires_grad_()
    o, _ = vla_attention(case.q, k, case.v, case.u, backend="chunk")
    (dk,) = torch.autograd.grad(o.square().sum(), k, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        dk.sum().backward()


def test_gradients_pass_through_the_state_between_calls() -> None:
    """Both calls' gradients at once, as in truncated backpropagation without truncation."""
    case = make_case(tokens=40, width=6)
    whole, split = case.k.clone().requires_grad_(), case.k.clone().requires_grad_()
    kwargs = {"refresh_every": 7, "refresh_eps": 0.05, "backend": "chunk", "chunk_size": 8}
    start = VLAState(case.S, case.A, case.step)
    o, _ = vla_attention(case.q, whole, case.v, case.u, case.beta, initial_state=start, **kwargs)
    state, outputs = start, []
    for part in (slice(0, 13), slice(13, 29), slice(29, 40)):
        sequences = [x[:, part] for x in (case.q, split, case.v, case.u, case.beta)]
        piece, state = vla_attention(
            *sequences, initial_state=state, output_final_state=True, **kwargs
        )
        outputs.append(piece)
    weight = make_case(tokens=40, width=6, seed=9).v
    (one,) = torch.autograd.grad((o * weight).sum(), whole)
    (two,) = torch.autograd.grad((torch.cat(outputs, 1) * weight).sum(), split)
    assert_close({"o": torch.cat(outputs, 1), "dk": two}, {"o": o, "dk": one}, EXACT)


@pytest.mark.parametrize("backend", ["scan", "associative", "chunk"])
def test_autocast_leaves_the_recurrence_alone(backend: str) -> None:
    """Under bfloat16 autocast a product would keep three digits; linear layers may, A may not."""
    case = make_case(tokens=40, width=8, state=False).to(torch.float32)
    plain, _ = vla_attention(*case[:5], backend=backend)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside, _ = vla_attention(*case[:5], backend=backend)
        family = [op(*case[:3], backend="chunk")[0] for op in (delta_rule, linear_attention)]
    outside = [op(*case[:3], backend="chunk")[0] for op in (delta_rule, linear_attention)]
    assert torch.equal(inside, plain)
    assert all(torch.equal(x, y) for x, y in zip(family, outside, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tokens", "gain", "refresh"),
    [(1000, "unit", 0), (1000, "rls", 7), (1000, "oblique", 20), (4097, "unit", 20)],
)
def test_long_sequences(tokens: int, gain: str, refresh: int) -> None:
    case = make_case(batch=1, heads=1, tokens=tokens, width=8, state=False)
    check(case, 64, gain=gain, refresh_every=refresh, bound=1e-9)


def test_works_without_tokens_to_differentiate() -> None:
    """Inference: no graph is kept, whatever the backend."""
    case = make_case(tokens=33, state=False)
    with torch.no_grad():
        o, state = chunk_vla(*case[:5], VLAState(case.q.new_zeros(2, 2, 16, 16), _eye(), 0))
    assert not o.requires_grad
    assert state.step == 33


def _eye() -> torch.Tensor:
    return torch.eye(16, dtype=torch.float64).repeat(2, 2, 1, 1)
