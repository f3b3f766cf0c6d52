"""Several directions per token: the Woodbury step against explicit inverses."""

import pytest
import torch
from torch.nn import functional as F

from vla.errors import ArgumentError
from vla.rules import Token
from vla.rules.inverse import MAX_RANK, sherman_morrison, woodbury
from vla.rules.vla import VLA

D, D_V, T = 10, 6, 25
RANKS = range(1, MAX_RANK + 1)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def positive(*batch, seed=7):
    x = draw(*batch, D, D, seed=seed)
    return x @ x.mT / D + torch.eye(D, dtype=torch.float64)


def gap(a, b):
    return float(((a - b).norm() / b.norm()).detach())


def run(rule, u, *, k=None):
    """The last state after tokens with the directions ``u``."""
    k, v = draw(T, D, seed=1) if k is None else k, draw(T, D_V, seed=2)
    beta = torch.sigmoid(draw(T, seed=3))
    state = rule.init(D, D_V)
    for t in range(T):
        state = rule.step(state, Token(k[t], v[t], beta[t], u[t]))
    return state


@pytest.mark.parametrize("r", RANKS)
@pytest.mark.parametrize("noise", [None, 1e-2, 0.0])
def test_woodbury_is_the_explicit_inverse_and_its_gradient(r, noise):
    """Directions at random, nearly the same, and quite the same."""
    A, U = positive(3), draw(3, r, D)
    if noise is not None:
        U = U[:, :1] + noise * U
    leaves = [A.requires_grad_(), U.requires_grad_()]
    got, _ = woodbury(*leaves)
    wanted = torch.linalg.inv(torch.linalg.inv(leaves[0]) + leaves[1].mT @ leaves[1])
    assert gap(got, wanted) < 1e-12
    weight = draw(3, D, D, seed=5)
    weight = weight + weight.mT
    ours, theirs = (torch.autograd.grad((x * weight).sum(), leaves) for x in (got, wanted))
    assert gap(ours[1], theirs[1]) < 1e-11
    assert gap(ours[0] + ours[0].mT, theirs[0] + theirs[0].mT) < 1e-11


@pytest.mark.parametrize("r", RANKS)
def test_one_step_is_r_steps_of_sherman_morrison(r):
    A, U = positive(), draw(r, D)
    got, delta = woodbury(A, U)
    one_by_one, product = A, 1.0
    for u in U:
        one_by_one, each = sherman_morrison(one_by_one, u)
        product *= float(each)
    assert gap(got, one_by_one) < 1e-14
    assert float(delta) == pytest.approx(product, rel=1e-13)
    grown = torch.linalg.det(torch.linalg.inv(A) + U.mT @ U) * torch.linalg.det(A)
    assert float(delta) == pytest.approx(float(grown), rel=1e-12)


@pytest.mark.parametrize("r", RANKS)
@pytest.mark.parametrize("lambda0", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize(("gain", "every"), [("unit", 0), ("oblique", 7), ("rls", 20)])
def test_the_rule_is_the_explicit_inverse(gain, every, lambda0, r):
    u, k, v = draw(T, r, D), F.normalize(draw(T, D, seed=1), dim=-1), draw(T, D_V, seed=2)
    rule = VLA(direction="token", gain=gain, lambda0=lambda0, refresh_every=every)
    last, beta = run(rule, u), torch.sigmoid(draw(T, seed=3))
    eye = torch.eye(D, dtype=torch.float64)
    M, S = lambda0 * eye, torch.zeros(D_V, D, dtype=torch.float64)
    for t in range(T):
        A = torch.linalg.inv(M + u[t].T @ u[t])
        A = A + 1e-3 * eye if every and (t + 1) % every == 0 else A
        M, alpha = torch.linalg.inv(A), A @ k[t]
        scale = {"unit": alpha.norm(), "rls": 1.0, "oblique": k[t] @ alpha}[gain]
        S = S + beta[t] * torch.outer(v[t] - S @ k[t], alpha / scale)
    assert gap(last.A, A) < 1e-9
    assert gap(last.S, S) < 1e-9


@pytest.mark.parametrize("scale", [{}, {"unit_direction": True, "direction_scale": 0.0}])
def test_one_direction_is_the_old_path_bit_for_bit(scale):
    rule, u = VLA(direction="token", **scale), draw(T, D)
    several, one = run(rule, u[:, None]), run(rule, u)
    assert torch.equal(several.A, one.A)
    assert torch.equal(several.S, one.S)
    assert torch.equal(several.write.delta, one.write.delta)


def test_every_direction_is_scaled_by_itself():
    u = draw(T, 3, D)
    rule = VLA(direction="token", unit_direction=True, direction_scale=0.5)
    scaled = 0.5 * F.normalize(u, dim=-1)
    assert gap(run(rule, u).A, run(VLA(direction="token"), scaled).A) < 1e-14


def test_a_stays_symmetric_and_positive_over_many_equal_directions():
    A, U = torch.eye(D, dtype=torch.float32) / 1e-2, draw(1, D).float().expand(4, D)
    for _ in range(500):
        A, _ = woodbury(A, U)
    assert torch.equal(A, A.mT)
    assert float(torch.linalg.eigvalsh(A.double()).min()) > 0


def test_batches_of_streams_and_half_precision():
    u, k, v = draw(5, 3, D), draw(5, D, seed=1), draw(5, D_V, seed=2)
    rule = VLA(direction="token")
    together = rule.step(rule.init(D, D_V, batch=(5,)), Token(k, v, None, u))
    for i in range(5):
        alone = rule.step(rule.init(D, D_V), Token(k[i], v[i], None, u[i]))
        assert gap(together.A[i], alone.A) < 1e-13
    half = [x.bfloat16() for x in (k, v, u)]
    start = rule.init(D, D_V, batch=(5,), dtype=torch.bfloat16)
    low = rule.step(start, Token(*half[:2], u=half[2]))
    assert low.A.dtype == torch.bfloat16
    assert gap(low.A.double(), together.A) < 0.05


@pytest.mark.parametrize("shape", [(5, D), (0, D), (2, D + 1), (D + 1,), (2, 2, D), ()])
def test_directions_that_do_not_fit_are_named(shape):
    rule = VLA(direction="token")
    token = Token(draw(D), draw(D_V), None, torch.ones(shape, dtype=torch.float64))
    with pytest.raises(ArgumentError, match=r"^u\.shape: got .+, wanted .+1 to 4 directions"):
        rule.step(rule.init(D, D_V), token)
