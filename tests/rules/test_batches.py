"""Leading axes, precisions, and properties that hold for any tokens."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vla.rules import Token, make, names
from vla.rules.vla import VLA

CASES = {
    **{name: make(name) for name in names()},
    "published": VLA.as_published(),
    "run": VLA.as_run(),
    "exact": VLA.exact(),
    "oblique": VLA(gain="oblique"),
    "weighted": VLA(direction="weighted", gain="rls", refresh_every=3),
}
LIMIT = {torch.float32: 1e-4, torch.bfloat16: 0.15}


def draw(seed, *batch, t=12, d=6, d_v=4, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    k, u, q = (torch.randn(*batch, t, d, generator=g, dtype=torch.float64) for _ in range(3))
    v = torch.randn(*batch, t, d_v, generator=g, dtype=torch.float64)
    beta = torch.rand(*batch, t, generator=g, dtype=torch.float64)
    return [x.to(dtype) for x in (k, v, u, beta, q)]


def answers(rule, k, v, u, beta, q):
    state = rule.init(k.shape[-1], v.shape[-1], batch=k.shape[:-2], dtype=k.dtype)
    reads = []
    for t in range(k.shape[-2]):
        token = Token(k[..., t, :], v[..., t, :], beta[..., t], u[..., t, :])
        state = rule.step(state, token)
        reads.append(rule.read(state, q[..., t, :]))
    return torch.stack(reads, -2), state


@pytest.mark.parametrize("name", CASES)
def test_leading_axes_are_independent_streams(name):
    tokens = draw(0, 2, 3)
    together, state = answers(CASES[name], *tokens)
    assert state.S.shape[:2] == (2, 3)
    for i in range(2):
        for j in range(3):
            alone, _ = answers(CASES[name], *(x[i, j] for x in tokens))
            assert torch.allclose(together[i, j], alone, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("name", CASES)
def test_lower_precision_runs_in_its_own_dtype_and_stays_close(name, dtype):
    exact, _ = answers(CASES[name], *draw(1))
    rough, state = answers(CASES[name], *draw(1, dtype=dtype))
    assert rough.dtype == state.S.dtype == dtype
    assert float((rough.double() - exact).norm() / exact.norm()) < LIMIT[dtype]


@pytest.mark.parametrize("name", CASES)
def test_many_queries_of_many_states_read_as_one_by_one(name):
    rule = CASES[name]
    k, v, u, beta, q = draw(2, 5)
    _, state = answers(rule, k, v, u, beta, q)
    wide = state._replace(
        S=state.S[:, None],
        z=None if state.z is None else state.z[:, None],
        cache=None if state.cache is None else tuple(x[:, None] for x in state.cache),
    )
    queries = q[0]
    table = rule.read(wide, queries)
    for i in range(len(queries)):
        column = rule.read(state, queries[i].expand(5, -1))
        assert torch.allclose(table[:, i], column, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_a_step_leaves_the_state_before_it_untouched(name):
    k, v, u, beta, q = draw(3)
    _, state = answers(CASES[name], k, v, u, beta, q)
    kept = [None if x is None else x.clone() for x in (state.S, state.A, state.z)]
    CASES[name].step(state, Token(k[0], v[0], beta[0], u[0]))
    for before, after in zip(kept, (state.S, state.A, state.z), strict=True):
        assert before is None or torch.equal(before, after)


@pytest.mark.parametrize("name", CASES)
def test_gradients_flow_through_the_steps(name):
    k, v, u, beta, q = draw(4, t=5)
    inputs = [x.requires_grad_() for x in (k, v)]
    answers(CASES[name], *inputs, u, beta, q)[0].square().sum().backward()
    assert all(x.grad.isfinite().all() and x.grad.norm() > 0 for x in inputs)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), t=st.integers(1, 15), lambda0=st.floats(1e-2, 1e2))
def test_A_stays_the_symmetric_positive_inverse_of_M(seed, t, lambda0):
    _, state = answers(VLA(lambda0=lambda0), *draw(seed, t=t))
    k = draw(seed, t=t)[0]
    k = k / k.norm(dim=-1, keepdim=True)
    M = lambda0 * torch.eye(6, dtype=torch.float64) + k.mT @ k
    assert torch.allclose(state.A @ M, torch.eye(6, dtype=torch.float64), atol=1e-10)
    assert float((state.A - state.A.mT).abs().max()) < 1e-12 / lambda0
    assert float(torch.linalg.eigvalsh(state.A)[0]) > 0


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), data=st.data())
def test_least_squares_forgets_the_order_of_its_pairs(seed, data):
    k, v, u, beta, q = draw(seed, t=8)
    order = data.draw(st.permutations(range(8)))
    forward = answers(make("rls"), k, v, u, beta, q)[1].S
    other = answers(make("rls"), k[order], v[order], u[order], beta[order], q)[1].S
    assert torch.allclose(forward, other, rtol=1e-9, atol=1e-11)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), scale=st.floats(-100, 100), name=st.sampled_from(names()))
def test_every_rule_is_linear_in_the_values(seed, scale, name):
    k, v, u, beta, q = draw(seed, t=8)
    one = answers(make(name), k, v, u, beta, q)[0]
    scaled = answers(make(name), k, scale * v, u, beta, q)[0]
    assert torch.allclose(scaled, scale * one, rtol=1e-9, atol=1e-9)


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 10_000), scale=st.floats(1e-3, 1e3))
def test_normalised_keys_make_their_length_irrelevant(seed, scale):
    k, v, u, beta, q = draw(seed, t=8)
    one = answers(VLA(), k, v, u, beta, q)[1].S
    assert torch.allclose(answers(VLA(), scale * k, v, u, beta, q)[1].S, one, rtol=1e-9, atol=1e-11)


def test_a_zero_key_writes_nothing_and_a_zero_value_erases():
    rule = VLA()
    k, v, u, beta, q = draw(5)
    _, state = answers(rule, k, v, u, beta, q)
    after = rule.step(state, Token(torch.zeros_like(k[0]), v[0]))
    assert after.S.isfinite().all()
    assert torch.equal(after.S, state.S)
    erased = VLA(gain="oblique").step(state, Token(k[0], torch.zeros_like(v[0])))
    assert float(rule.read(erased, k[0]).norm()) < 1e-12
