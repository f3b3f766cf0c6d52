"""What is true about recall and stability: the statements of the corrected mathematics, as tests.

Numbers compared here were first obtained with an independent float64 token loop (five draws where a
table is meant, other draws than these).
"""

import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from vla.rules import Token, make, transition
from vla.rules.inverse import refresh, sherman_morrison
from vla.rules.vla import VLA

D = 32


def normal(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def unit(x):
    return x / x.norm(dim=-1, keepdim=True)


def run(rule, k, v, u=None, beta=None):
    """States along the second-last axis of ``k [*b, t, d]``."""
    state = rule.init(k.shape[-1], v.shape[-1], batch=k.shape[:-2])
    states = []
    for t in range(k.shape[-2]):
        rest = [None if beta is None else beta[..., t], None if u is None else u[..., t, :]]
        state = rule.step(state, Token(k[..., t, :], v[..., t, :], *rest))
        states.append(state)
    return states


def transitions(states):
    return [transition(state.write) for state in states]


def spectral(x):
    return torch.linalg.matrix_norm(x, 2)


RULES = {
    "linear": make("linear", features="identity", unit=True, normalise_read=False),
    "delta": make("delta"),
    "rls": make("rls"),
    "vla": VLA(),
    "oblique": VLA(gain="oblique"),
}
TABLE = {
    8: {"linear": 0.501, "delta": 0.287, "rls": 0.124, "vla": 0.075, "oblique": 0.033},
    16: {"linear": 0.658, "delta": 0.488, "rls": 0.172, "vla": 0.170, "oblique": 0.128},
    24: {"linear": 0.886, "delta": 0.621, "rls": 0.268, "vla": 0.292, "oblique": 0.215},
    32: {"linear": 0.979, "delta": 0.714, "rls": 0.395, "vla": 0.399, "oblique": 0.352},
    48: {"linear": 1.191, "delta": 0.860, "rls": 0.604, "vla": 0.594, "oblique": 0.653},
}
RIDGE = {8: 0.117, 16: 0.180, 24: 0.275, 32: 0.400, 48: 0.596}


def recall(answers, v):
    """Mean relative error of each draw."""
    return ((answers - v).norm(dim=-1) / v.norm(dim=-1)).mean(-1)


def recall_of(rule, k, v):
    last = run(rule, k, v)[-1]
    return recall(torch.stack([rule.read(last, x) for x in k.unbind(-2)], -2), v)


def near(errors, table):
    """Within 10 %, or within what a mean over five draws wavers by (four standard errors)."""
    return abs(float(errors.mean()) - table) <= max(0.1 * table, 4 * float(errors.std()) / 5**0.5)


@pytest.mark.parametrize("n", TABLE)
def test_recall_table(n):
    k, v = normal(n, 100, n, D), normal(n + 1, 100, n, D)
    for name, value in TABLE[n].items():
        assert near(recall_of(RULES[name], k, v), value), name


@pytest.mark.parametrize("n", RIDGE)
def test_recall_of_the_batch_ridge_answer_is_that_of_rls(n):
    k, v = normal(n, 100, n, D), normal(n + 1, 100, n, D)
    keys = unit(k)
    gram = keys.mT @ keys + 0.1 * torch.eye(D)
    ridge = torch.linalg.solve(gram, keys.mT @ v)
    errors = recall(keys @ ridge, v)
    assert near(errors, RIDGE[n])
    assert torch.allclose(errors, recall_of(RULES["rls"], k, v), rtol=1e-11)


@pytest.mark.parametrize("n", [8, 24])
def test_recall_is_exact_as_lambda0_vanishes_but_not_with_unit_gain(n):
    k, v = normal(1, 20, n, D), normal(2, 20, n, D)
    tiny = {"lambda0": 1e-7}
    assert float(recall_of(make("rls", **tiny), k, v).max()) < 1e-5
    assert float(recall_of(VLA(gain="oblique", **tiny), k, v).max()) < 1e-5
    if n == 24:
        assert abs(float(recall_of(VLA(**tiny), k, v).mean()) - 0.28) < 0.03


@pytest.mark.parametrize(
    ("c", "norm"), [(1, 1), (0.9, 1.0916), (0.5, 1.3660), (0, 1.6180), (-1, 2)]
)
def test_spectral_norm_of_the_transition_has_a_closed_form(c, norm):
    k = unit(normal(3, D))
    other = normal(4, D)
    other = unit(other - (other @ k) * k)
    gain = c * k + math.sqrt(1 - c**2) * other
    J = torch.eye(D, dtype=torch.float64) - torch.outer(k, gain)
    assert abs(float(spectral(J)) - (1 + math.sqrt(5 - 4 * c)) / 2) < 1e-14
    assert abs(float(spectral(J)) - norm) < 5e-5


def elu_keys(seed, t):
    return F.elu(normal(seed, t, D)) + 1


def test_proposition_2_single_steps_exceed_one_with_the_papers_own_keys():
    k = elu_keys(5, 25)
    Js = transitions(run(VLA(), k, normal(6, 25, D)))
    assert max(float(spectral(J)) for J in Js) > 1.35
    assert float(spectral(torch.linalg.multi_dot(Js))) <= 1 + 1e-9


def test_products_exceed_one_when_the_direction_is_not_the_key():
    worst = 0.0
    for seed in range(10):
        k, u = normal(seed, 25, D), unit(normal(seed + 100, 25, D))
        Js = transitions(run(VLA(direction="token"), k, normal(7, 25, D), u))
        P = torch.eye(D, dtype=torch.float64)
        for J in Js:
            P = P @ J
            worst = max(worst, float(spectral(P)))
    assert worst > 1.3


@pytest.mark.parametrize("keys", ["gaussian", "elu"])
@pytest.mark.parametrize("weighted", [False, True])
def test_exact_transitions_telescope(keys, weighted):
    """``J_t = M_{t−1} A_t``, so the product from s to T is ``M_s A_T``; eigenvalues in (0, 1]."""
    T = 200
    k = normal(8, T, D) if keys == "gaussian" else elu_keys(8, T)
    beta = torch.rand(T, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    states = run(VLA.exact(), k, normal(10, T, D), beta=beta if weighted else None)
    M = [0.1 * torch.eye(D, dtype=torch.float64)]
    for state in states:
        M.append(M[-1] + torch.outer(state.write.u, state.write.u))
    Js = transitions(states)
    for t in (0, 1, 57, 199):
        assert torch.allclose(Js[t], M[t] @ states[t].A, atol=1e-11)
    for s in (0, 100):
        product = torch.linalg.multi_dot(Js[s:])
        assert torch.allclose(product, M[s] @ states[-1].A, atol=1e-11)
        eigen = torch.linalg.eigvals(product)
        assert float(eigen.imag.abs().max()) < 1e-6
        assert float(eigen.real.min()) > 0
        assert float(eigen.real.max()) <= 1 + 1e-9


def test_gradient_to_the_start_never_exceeds_one_and_fades_as_data_comes_in():
    states = run(VLA.exact(), normal(11, 200, D), normal(12, 200, D))
    norms = [0.1 * float(spectral(state.A)) for state in states]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(norms))
    assert abs(norms[D - 2] - 1) < 1e-9
    assert abs(norms[-1] - 0.04) < 0.015


def test_contraction_holds_in_the_weighted_norm_not_in_the_plain_one():
    states = run(VLA.exact(), elu_keys(13, 200), normal(14, 200, D))
    Js = transitions(states)
    assert max(float(spectral(J)) for J in Js) > 1.4
    product = torch.linalg.multi_dot(Js[100:])
    assert float(spectral(product)) > 1.5
    values, vectors = torch.linalg.eigh(torch.linalg.inv(states[99].A))
    root = vectors * values.sqrt() @ vectors.mT
    in_M = torch.linalg.inv(root) @ product @ root
    assert float(spectral(in_M)) <= 1 + 1e-9


def test_cosine_is_bounded_below_by_kantorovich():
    states = run(VLA(), normal(15, 60, D), normal(16, 60, D))
    for state in states:
        eigen = torch.linalg.eigvalsh(state.A)
        kappa = float(eigen[-1] / eigen[0])
        c = float(state.write.k @ state.write.gain)
        assert c >= 2 * math.sqrt(kappa) / (1 + kappa) - 1e-12
        assert c > 0


def test_size_of_A_does_not_set_the_size_of_updates():
    states = run(VLA(), normal(17, 500, D), normal(18, 500, D))
    S = [torch.zeros(D, D, dtype=torch.float64), *(state.S for state in states)]
    for before, state in zip(S, states, strict=False):
        assert abs(float((state.S - before).norm() / state.write.error.norm()) - 1) < 1e-10
    assert float(states[-1].A.norm() / states[0].A.norm()) < 0.01


STEPS = (1, 1000, 5000, 20_000)
REFRESHED = {1.0: (55.7, 0.279, 0.233, 0.233), D**-0.5: (56.2, 5.56, 1.59, 1.29)}
PLAIN = {1.0: (55.7, 0.189, 0.037, 0.009), D**-0.5: (56.2, 5.45, 1.15, 0.289)}


def directions(scale, steps):
    return scale * unit(normal(19, steps, D))


def test_without_refresh_A_shrinks_for_ever():
    for scale, wanted in PLAIN.items():
        u = directions(scale, 20_000)
        got = []
        for step in STEPS:
            M = 0.1 * torch.eye(D, dtype=torch.float64) + u[:step].mT @ u[:step]
            got.append(float(torch.linalg.inv(M).norm()))
        assert np.allclose(got, wanted, rtol=0.01, atol=5e-4)


@pytest.mark.usefixtures("unchecked")
def test_refresh_is_process_noise_that_keeps_A_from_vanishing():
    scale = torch.tensor(list(REFRESHED), dtype=torch.float64)[:, None]
    A = 10 * torch.eye(D, dtype=torch.float64).repeat(2, 1, 1)
    norms = []
    for step, u in enumerate(directions(1.0, 20_000), 1):
        A, _ = sherman_morrison(A, scale * u)
        A = refresh(A, step, 20, 1e-3)
        if step in STEPS:
            norms.append(A.flatten(1).norm(dim=1))
    got = torch.stack(norms).T
    for row, wanted in zip(got, REFRESHED.values(), strict=True):
        assert np.allclose(row, wanted, rtol=0.01, atol=5e-4)


@pytest.mark.parametrize(("lambda0", "overlap"), [(1e-6, 7.5e-7), (0.1, 0.068), (1.0, 0.351)])
def test_write_direction_is_orthogonal_to_the_first_key_only_as_lambda0_vanishes(lambda0, overlap):
    """§7.2: ``A_1 k_2 ∝ k_2 − ρ/(1 + λ0) k_1`` for cosine ρ, not ``k_2 − ρ k_1``."""
    rho = 0.6
    k1 = unit(normal(20, D))
    other = normal(21, D)
    k2 = rho * k1 + 0.8 * unit(other - (other @ k1) * k1)
    A, _ = sherman_morrison(torch.eye(D, dtype=torch.float64) / lambda0, k1)
    alpha = unit(A @ k2)
    wanted = unit(k2 - rho / (1 + lambda0) * k1)
    assert torch.allclose(alpha, wanted, atol=1e-9)
    assert abs(float(alpha @ k1) / overlap - 1) < 0.01


def test_transition_is_the_derivative_of_the_step_and_acts_on_the_right():
    for name in ("linear", "delta", "gated_delta", "vla", "rls"):
        rule = make(name)
        start = run(rule, normal(22, 5, 6), normal(23, 5, 4))[-1]
        token = Token(normal(24, 6), normal(25, 4))

        def stepped(S, rule=rule, start=start, token=token):
            return rule.step(start._replace(S=S), token).S

        J = transition(rule.step(start, token).write)
        change = normal(26, 4, 6)
        moved = stepped(start.S + change) - stepped(start.S)
        assert torch.allclose(moved, change @ J, atol=1e-12), name
