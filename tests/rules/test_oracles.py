"""Every rule against an answer computed another way: inverses, least squares, closed forms."""

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from vla.rules import Token, make
from vla.rules.vla import VLA

TIGHT = 1e-12
T, D, D_V = 40, 12, 7


def draw(seed=0, t=T, d=D, d_v=D_V):
    g = torch.Generator().manual_seed(seed)
    k, u = (torch.randn(t, d, generator=g, dtype=torch.float64) for _ in range(2))
    v = torch.randn(t, d_v, generator=g, dtype=torch.float64)
    beta = torch.rand(t, generator=g, dtype=torch.float64)
    return k, v, u, beta


def run(rule, k, v, u=None, beta=None):
    """Every state, the one before the first token included."""
    states = [rule.init(k.shape[-1], v.shape[-1])]
    for t in range(len(k)):
        row = [None if x is None else x[t] for x in (beta, u)]
        states.append(rule.step(states[-1], Token(k[t], v[t], *row)))
    return states


def off(got, wanted):
    got, wanted = np.asarray(got), np.asarray(wanted)
    return np.linalg.norm(got - wanted) / np.linalg.norm(wanted)


def units(x):
    return x / np.linalg.norm(x, axis=-1, keepdims=True)


def explicit_vla(k, v, u, beta, *, lambda0, gain, every=0, eps=0.0, update="post"):
    """The paper's recurrence with ``A`` from an explicit inverse of ``M`` at every token."""
    k, v, u, beta = (x.numpy() for x in (k, v, u, beta))
    d = k.shape[1]
    M, S = lambda0 * np.eye(d), np.zeros((v.shape[1], d))
    for t in range(len(k)):
        before = np.linalg.inv(M)
        M = M + np.outer(u[t], u[t])
        if every and (t + 1) % every == 0:
            M = np.linalg.inv(np.linalg.inv(M) + eps * np.eye(d))
        alpha = (np.linalg.inv(M) if update == "post" else before) @ k[t]
        scale = {"unit": np.linalg.norm(alpha), "rls": 1.0, "oblique": k[t] @ alpha}[gain]
        S = S + beta[t] * np.outer(v[t] - S @ k[t], alpha / scale)
    return S, np.linalg.inv(M)


@pytest.mark.parametrize("gain", ["unit", "rls", "oblique"])
@pytest.mark.parametrize("every", [0, 7])
@pytest.mark.parametrize("update", ["post", "pre"])
@pytest.mark.parametrize("direction", ["key", "token", "weighted"])
@pytest.mark.parametrize("lambda0", [0.1, 2.0])
def test_vla_is_the_explicit_inverse(gain, every, update, direction, lambda0):
    k, v, u, beta = draw()
    rule = VLA(
        gain=gain, direction=direction, lambda0=lambda0, update=update,
        refresh_every=every, refresh_eps=1e-3,
    )  # fmt: skip
    last = run(rule, k, v, u, beta)[-1]
    keys = torch.from_numpy(units(k.numpy()))
    directions = {"key": keys, "token": u, "weighted": beta.sqrt()[:, None] * keys}
    S, A = explicit_vla(
        keys, v, directions[direction], beta,
        lambda0=lambda0, gain=gain, every=every, eps=1e-3, update=update,
    )  # fmt: skip
    assert off(last.S, S) < TIGHT
    assert off(last.A, A) < TIGHT


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("lambda0", [1e-3, 0.1, 10.0])
def test_rls_is_the_batch_ridge_answer_at_every_step(weighted, lambda0):
    k, v, _, beta = draw(1)
    beta = beta if weighted else None
    states = run(make("rls", lambda0=lambda0), k, v, beta=beta)
    keys, values = units(k.numpy()), v.numpy()
    root = np.sqrt(beta.numpy() if weighted else np.ones(T))[:, None]
    for t in (1, 5, D, T):
        rows = np.vstack([root[:t] * keys[:t], np.sqrt(lambda0) * np.eye(D)])
        wanted = np.vstack([root[:t] * values[:t], np.zeros((D, D_V))])
        ridge = np.linalg.lstsq(rows, wanted, rcond=None)[0].T
        assert off(states[t].S, ridge) < TIGHT


@pytest.mark.parametrize("weighted", [False, True])
def test_exact_vla_is_rls(weighted):
    k, v, _, beta = draw(2)
    beta = beta if weighted else None
    ours, theirs = (run(r, k, v, beta=beta)[-1] for r in (VLA.exact(), make("rls")))
    assert off(ours.S, theirs.S) < TIGHT
    assert off(ours.A, theirs.A) < TIGHT


def test_linear_attention_is_a_masked_product():
    k, v, q, _ = draw(3)
    rule = make("linear")
    states = run(rule, k, v)
    phi_k, phi_q = ((np.where(x > 0, x + 1, np.exp(x))) for x in (k.numpy(), q.numpy()))
    scores = np.tril(phi_q @ phi_k.T)
    wanted = scores @ v.numpy() / scores.sum(1, keepdims=True)
    got = torch.stack([rule.read(s, x) for s, x in zip(states[1:], q, strict=True)])
    assert off(got, wanted) < TIGHT
    assert off(states[-1].S, v.numpy().T @ phi_k) < TIGHT


def test_plain_linear_memory_is_a_sum_of_outer_products():
    k, v, q, _ = draw(4)
    rule = make("linear", features="identity", unit=True, normalise_read=False)
    last = run(rule, k, v)[-1]
    assert off(last.S, v.numpy().T @ units(k.numpy())) < TIGHT
    assert off(rule.read(last, q[0]), last.S.numpy() @ units(q[0].numpy())) < TIGHT


def unrolled(k, writes, decay):
    """``Σ_t w_t k_tᵀ Π_{s>t} (decay_s I − β_s k_s k_sᵀ)``: the sum that a delta rule unrolls to."""
    d = k.shape[1]
    S = np.zeros((writes.shape[1], d))
    for t in range(len(k)):
        tail = np.eye(d)
        for s in range(t + 1, len(k)):
            tail = tail @ decay(s)
        S += np.outer(writes[t], k[t]) @ tail
    return S


def test_delta_unrolls_to_its_closed_form():
    k, v, _, beta = draw(5)
    last = run(make("delta"), k, v, beta=beta)[-1]
    keys, b = units(k.numpy()), beta.numpy()
    eye = np.eye(D)
    wanted = unrolled(
        keys, b[:, None] * v.numpy(), lambda s: eye - b[s] * np.outer(keys[s], keys[s])
    )
    assert off(last.S, wanted) < TIGHT


def test_gated_delta_unrolls_to_its_closed_form():
    k, v, _, beta = draw(6)
    last = run(make("gated_delta"), k, v, beta=beta)[-1]
    keys, b, eye = units(k.numpy()), beta.numpy(), np.eye(D)
    wanted = unrolled(keys, v.numpy(), lambda s: b[s] * eye - np.outer(keys[s], keys[s]))
    assert off(last.S, wanted) < TIGHT


def test_authors_delta_gates_every_row_by_itself():
    k, v, _, _ = draw(7)
    g = torch.Generator().manual_seed(8)
    gates = torch.rand(T, D_V, generator=g, dtype=torch.float64)
    rule = make("authors_delta")
    last = run(rule, k, v, beta=gates)[-1]
    keys, eye = units(k.numpy()), np.eye(D)
    for row in range(D_V):
        b = gates[:, row].numpy()
        wanted = unrolled(
            keys, v[:, row : row + 1].numpy(),
            lambda s, b=b: b[s] * eye - np.outer(keys[s], keys[s]),
        )  # fmt: skip
        assert off(last.S[row], wanted[0]) < TIGHT
    query = k[0]
    assert off(rule.read(last, query), last.S.numpy() @ (F.elu(query) + 1).numpy()) < TIGHT


def test_softmax_is_causal_attention():
    k, v, q, _ = draw(9)
    rule = make("softmax")
    states = run(rule, k, v)
    got = torch.stack([rule.read(s, x) for s, x in zip(states[1:], q, strict=True)])
    wanted = F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    assert off(got, wanted) < TIGHT


def test_softmax_answers_zero_before_the_first_token():
    rule = make("softmax")
    assert rule.read(rule.init(4, 3), torch.ones(4, dtype=torch.float64)).tolist() == [0.0] * 3


def test_linear_normaliser_is_kept_beside_the_memory():
    k, v, _, _ = draw(10)
    state = run(make("linear"), k, v)[-1]
    assert off(state.z, (F.elu(k) + 1).sum(0)) < TIGHT
