"""Every argument of VLA does what it says, and reduces to another rule where it should."""

import math

import pytest
import torch

from vla.rules import Token, make, transition
from vla.rules.vla import VLA


def draw(seed=0, t=30, d=12, d_v=5):
    g = torch.Generator().manual_seed(seed)
    return [torch.randn(t, w, generator=g, dtype=torch.float64) for w in (d, d_v, d)]


def run(rule, k, v, u=None, beta=None):
    state = rule.init(k.shape[-1], v.shape[-1])
    states = []
    for t in range(len(k)):
        token = Token(k[t], v[t], None if beta is None else beta[t], None if u is None else u[t])
        state = rule.step(state, token)
        states.append(state)
    return states


def gap(a, b):
    return float((a - b).norm() / b.norm())


def test_fixed_A_with_unit_penalty_is_the_delta_rule_bit_for_bit():
    k, v, _ = draw()
    fixed = run(VLA(adaptive=False, gain="rls", lambda0=1.0), k, v)[-1]
    assert torch.equal(fixed.S, run(make("delta"), k, v)[-1].S)


@pytest.mark.parametrize("lambda0", [0.1, 1.0, 7.0])
@pytest.mark.parametrize("gain", ["unit", "oblique"])
def test_fixed_A_of_any_size_is_the_delta_rule_to_rounding(lambda0, gain):
    k, v, _ = draw(1)
    beta = torch.rand(len(k), dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    for gate in (None, beta):
        fixed = run(VLA(adaptive=False, gain=gain, lambda0=lambda0), k, v, beta=gate)[-1]
        assert gap(fixed.S, run(make("delta"), k, v, beta=gate)[-1].S) < 1e-14


def test_remark_1_of_the_paper_fixed_A_is_not_linear_attention():
    k, v, _ = draw(2, t=12)
    fixed = run(VLA(adaptive=False), k, v)
    plain = run(make("linear", features="identity", unit=True, normalise_read=False), k, v)
    delta = run(make("delta"), k, v)
    assert gap(fixed[0].S, plain[0].S) < 1e-14
    assert gap(fixed[-1].S, plain[-1].S) > 0.3
    assert gap(fixed[-1].S, delta[-1].S) < 1e-14


def test_fixed_A_raises_no_penalty():
    k, v, _ = draw(3)
    last = run(VLA(adaptive=False, lambda0=0.5), k, v)[-1]
    assert torch.equal(last.A, 2 * torch.eye(12, dtype=torch.float64))
    assert last.write.u is None
    assert last.write.delta == 1


def test_unit_gain_has_length_one_and_oblique_stores_the_pair_exactly():
    k, v, _ = draw(4)
    rule = VLA(gain="oblique")
    for t, state in enumerate(run(rule, k, v)):
        assert abs(float(state.write.gain @ state.write.k) - 1) < 1e-13
        assert gap(rule.read(state, k[t]), v[t]) < 1e-13
    assert all(abs(float(s.write.gain.norm()) - 1) < 1e-14 for s in run(VLA(), k, v))


def test_oblique_transition_is_a_projection():
    k, v, _ = draw(5)
    J = transition(run(VLA(gain="oblique"), k, v)[-1].write)
    assert gap(J @ J, J) < 1e-13


def test_unit_gain_leaves_the_part_of_the_error_that_math_says():
    """``S_t k − v = −(1 − c) e``: Proposition 3 (exact recall) needs c = 1."""
    k, v, _ = draw(6)
    rule = VLA()
    for t, state in enumerate(run(rule, k, v)):
        w = state.write
        left = rule.read(state, k[t]) - v[t]
        assert torch.allclose(left, -(1 - w.k @ w.gain) * w.error, atol=1e-13)
    assert float(w.k @ w.gain) < 0.99


@pytest.mark.parametrize("gain", ["unit", "rls", "oblique"])
def test_gate_multiplies_the_write_unless_it_is_switched_off(gain):
    k, v, u = draw(7, t=1)
    half = torch.full((1,), 0.5, dtype=torch.float64)
    options = {"gain": gain, "direction": "token"}
    full = run(VLA(**options), k, v, u)[-1]
    assert gap(run(VLA(**options), k, v, u, half)[-1].S, full.S / 2) < 1e-15
    assert torch.equal(run(VLA(**options, gated=False), k, v, u, half)[-1].S, full.S)


def test_direction_scale_and_unit_direction():
    k, v, u = draw(8, t=1)
    written = lambda **s: run(VLA(direction="token", **s), k, v, u)[-1].write.u  # noqa: E731
    assert torch.equal(written(), u[0])
    assert gap(written(direction_scale=3.0), 3 * u[0]) < 1e-15
    assert gap(written(direction_scale=0.0), u[0] / math.sqrt(12)) < 1e-15
    assert gap(written(unit_direction=True), u[0] / u[0].norm()) < 1e-15
    assert gap(written(unit_direction=True, direction_scale=0.0).norm(), torch.tensor(12**-0.5)) < (
        1e-7
    )


def test_weighted_direction_is_root_beta_times_the_key():
    k, v, _ = draw(9, t=1)
    quarter = torch.full((1,), 0.25, dtype=torch.float64)
    write = run(VLA(direction="weighted"), k, v, beta=quarter)[-1].write
    assert gap(write.u, 0.5 * write.k) < 1e-15
    ungated = run(VLA(direction="weighted", gated=False), k, v, beta=quarter)[-1].write
    assert torch.equal(ungated.u, ungated.k)


@pytest.mark.parametrize("every", [1, 3, 20])
def test_refresh_adds_its_size_at_its_period_only(every):
    k, v, _ = draw(10, t=25)
    rule, plain = VLA(refresh_every=every, refresh_eps=0.05), VLA()
    state = rule.init(12, 5)
    for t in range(25):
        token = Token(k[t], v[t])
        without = plain.step(state, token).A
        state = rule.step(state, token)
        added = 0.05 if (t + 1) % every == 0 else 0.0
        assert torch.allclose(state.A - without, added * torch.eye(12, dtype=torch.float64))


def test_floor_shortens_a_gain_whose_inverse_has_become_small():
    k, v, _ = draw(11, t=1)
    long = run(VLA(lambda0=1e3), k, v)[-1].write.gain
    short = run(VLA(lambda0=1e3, floor=1.0), k, v)[-1].write.gain
    assert abs(float(long.norm()) - 1) < 1e-14
    assert float(short.norm()) < 1e-2
    oblique = run(VLA(lambda0=1e3, floor=1.0, gain="oblique"), k, v)[-1].write.gain
    assert float(oblique.norm()) < 1e-2


def test_pre_and_post_update_give_the_same_unit_gain_when_u_is_parallel_to_k():
    k, v, u = draw(12)
    assert gap(run(VLA(update="pre"), k, v)[-1].S, run(VLA(), k, v)[-1].S) < 1e-12
    pre, post = (run(VLA(update=x, direction="token"), k, v, u)[-1].S for x in ("pre", "post"))
    assert gap(pre, post) > 0.05


def test_unnormalised_keys_explode_and_normalised_ones_do_not():
    """The "v2" of the paper's Table 2: raw ELU+1 keys, own u, gain not scaled, d = 96."""
    k, v, u = draw(13, t=25, d=96)
    paper = {"features": "elu+1", "direction": "token", "unit_direction": True}
    v2 = VLA(**paper, normalise_key=False, gain="rls")
    norms = [float(s.S.norm()) for s in run(v2, k, v, u)]
    assert norms[-1] > 1e20
    assert float(run(VLA(**paper), k, v, u)[-1].S.norm()) < 1e3


def test_normalised_read_divides_by_the_running_sum_of_keys():
    k, v, q = draw(14)
    rule = VLA(features="elu+1", normalise_read=True)
    state = run(rule, k, v)[-1]
    query = rule.features_of(q[0])
    total = rule.features_of(k).sum(0)
    assert gap(rule.read(state, q[0]), state.S @ query / (total @ query)) < 1e-14


def test_presets_say_what_the_text_and_the_code_say():
    text, code, exact = VLA.as_published(), VLA.as_run(), VLA.exact()
    assert (text.features, text.refresh_every, text.floor, text.gated) == ("elu+1", 20, 1e-4, False)
    assert (text.direction, text.unit_direction, text.gain) == ("token", True, "unit")
    assert code.with_(direction_scale=1.0, normalise_read=False) == text
    assert (exact.gain, exact.direction) == ("rls", "weighted")


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("lambda0", 0.0), ("lambda0", -1.0), ("lambda0", float("nan")), ("lambda0", float("inf")),
        ("gain", "double"), ("direction", "up"), ("update", "later"), ("refresh_every", -1),
        ("refresh_eps", -1e-3), ("floor", -1.0),
    ],
)  # fmt: skip
def test_bad_settings_are_named(setting, value):
    with pytest.raises(ValueError, match=f"^{setting}: got"):
        VLA(**{setting: value})


def test_missing_direction_is_named():
    k, v, _ = draw(15, t=1)
    with pytest.raises(ValueError, match="direction='key'"):
        run(VLA(direction="token"), k, v)
