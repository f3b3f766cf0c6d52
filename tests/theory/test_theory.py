"""The formulas against direct computation, and the tables of the notes on stability."""

from __future__ import annotations

import numpy as np
import pytest

from vla.errors import ArgumentError
from vla.rules import make
from vla.theory import (
    cosine_floor,
    growth_exponent,
    overlap,
    overlap_grid,
    overlap_measured,
    random_stream,
    recall_curve,
    ridge_curve,
    step_norm,
    two_pairs,
)
from vla.trace import record

PAIRS = (8, 16, 24, 32, 48)
TABLE = {
    "linear": (0.501, 0.658, 0.886, 0.979, 1.191),
    "delta": (0.287, 0.488, 0.621, 0.714, 0.860),
    "rls": (0.124, 0.172, 0.268, 0.395, 0.604),
    "vla": (0.075, 0.170, 0.292, 0.399, 0.594),
    "oblique": (0.033, 0.128, 0.215, 0.352, 0.653),
}
"""Mean relative recall error after n pairs: Gaussian keys, d = 32, u = k, λ0 = 0.1, five draws."""


def rule(name: str, **settings):
    if name == "linear":
        return make("linear", features="identity", unit=True, normalise_read=False)
    if name == "oblique":
        return make("vla", gain="oblique", **settings)
    return make(name, **settings)


def test_step_norm_is_the_largest_singular_value() -> None:
    generator = np.random.default_rng(1)
    for d in (1, 2, 3, 9):
        k, a = generator.standard_normal((2, d))
        k, a = k / np.linalg.norm(k), a / np.linalg.norm(a)
        measured = np.linalg.norm(np.eye(d) - np.outer(k, a), 2)
        if d > 1:
            assert step_norm(k @ a) == pytest.approx(measured, rel=1e-12)
    known = [1, 1.0916, 1.3660, 1.6180, 2]
    assert step_norm(np.array([1, 0.9, 0.5, 0, -1])) == pytest.approx(known, abs=5e-5)


def test_cosine_floor_holds_and_is_reached() -> None:
    generator = np.random.default_rng(2)
    for _ in range(50):
        root = generator.standard_normal((4, 4))
        A, k = root @ root.T + 0.1 * np.eye(4), generator.standard_normal(4)
        c = k @ A @ k / np.linalg.norm(k) / np.linalg.norm(A @ k)
        assert c >= cosine_floor(np.linalg.cond(A)) - 1e-12
    worst, A = np.array([3.0, 1.0]), np.diag([1.0, 9.0])
    k = worst / np.linalg.norm(worst)
    assert k @ A @ k / np.linalg.norm(A @ k) == pytest.approx(cosine_floor(9.0))


@pytest.mark.parametrize(("lambda0", "value"), [(1e-6, 7.5e-7), (0.1, 0.068), (1.0, 0.351)])
def test_overlap_left_at_rho_06(lambda0: float, value: float) -> None:
    assert overlap(0.6, lambda0) == pytest.approx(value, rel=5e-3)
    assert overlap_measured(0.6, lambda0) == pytest.approx(overlap(0.6, lambda0).item(), rel=1e-9)


@pytest.mark.parametrize("rho", [-0.9, 0.0, 0.3, 0.99])
def test_overlap_is_the_rules_own_for_either_inverse(rho: float) -> None:
    for update in ("pre", "post"):
        measured = overlap_measured(rho, 0.5, update=update)
        assert measured == pytest.approx(overlap(rho, 0.5).item(), abs=1e-12)


def test_overlap_grid_agrees_with_itself() -> None:
    grid = overlap_grid((0.1, 1.0), points=19)
    for row, lam in enumerate(grid.lambda0):
        assert grid.measured[row] == pytest.approx(overlap(grid.measured_rho, lam), abs=1e-9)


def test_two_pairs_in_closed_form() -> None:
    for rho in (0.0, 0.3, 0.9):
        linear, delta = two_pairs(rule("linear"), rho), two_pairs(rule("delta"), rho)
        assert (linear.first, linear.second) == pytest.approx((rho, rho))
        assert delta.first == pytest.approx(rho * np.sqrt(1 + rho**2))
        assert delta.second == pytest.approx(0, abs=1e-12)
        c = (1 - rho**2 / 1.1) / np.sqrt(1 - 2 * rho**2 / 1.1 + (rho / 1.1) ** 2)
        vla, surprise = two_pairs(rule("vla"), rho), np.sqrt(1 + rho**2)
        assert vla.first == pytest.approx(overlap(rho, 0.1).item() * surprise)
        assert vla.second == pytest.approx((1 - c) * surprise, abs=1e-12)


@pytest.mark.parametrize("name", TABLE)
def test_recall_under_load(name: str) -> None:
    curve = recall_curve(rule(name), PAIRS, draws=40, seed=3)
    # The table is a mean of five draws: 10 % of scatter, 20 % where errors are smallest.
    room = np.array([0.2, 0.2 if name == "oblique" else 0.1, 0.1, 0.1, 0.1])
    assert np.all(np.abs(np.array(curve.mean) / TABLE[name] - 1) < room)
    assert all(
        low <= m <= high for low, m, high in zip(curve.low, curve.mean, curve.high, strict=True)
    )


def test_exact_rls_is_the_batch_answer() -> None:
    recursive, batch = recall_curve(rule("rls"), PAIRS), ridge_curve(PAIRS)
    assert recursive.mean == pytest.approx(batch.mean, rel=1e-10)


def test_exact_recall_needs_the_exact_gain() -> None:
    """Proposition 3 as λ0 → 0: RLS and the oblique gain recall 24 pairs, the unit gain doesn't."""
    assert recall_curve(rule("vla", gain="rls", lambda0=1e-9), (24,)).mean[0] < 1e-5
    assert recall_curve(rule("oblique", lambda0=1e-9), (24,)).mean[0] < 1e-5
    assert recall_curve(rule("vla", lambda0=1e-9), (24,)).mean[0] == pytest.approx(0.28, abs=0.03)


def test_an_additive_memory_grows_by_root_t_and_by_t_with_a_common_part() -> None:
    positive = make("linear", features="elu+1", normalise_read=False)
    for additive, shift, exponent in ((rule("linear"), 0.0, 0.5), (positive, 1.0, 1.0)):
        trace = record([additive, "delta"], random_stream(1_000, 16, shift=shift), keep=2)
        assert growth_exponent(trace.lanes[0].norm_S) == pytest.approx(exponent, abs=0.05)
        assert growth_exponent(trace.lanes[1].norm_S) == pytest.approx(0, abs=0.05)


def test_draws_are_seeded() -> None:
    first, again = (recall_curve(rule("delta"), (4,), d=5, seed=9) for _ in range(2))
    assert first == again
    assert first.mean != recall_curve(rule("delta"), (4,), d=5, seed=10).mean


@pytest.mark.parametrize(
    "call",
    [
        lambda: step_norm(1.5),
        lambda: cosine_floor(0.5),
        lambda: overlap(2.0, 0.1),
        lambda: overlap(0.5, 0.0),
        lambda: two_pairs(make("delta"), 1.1),
        lambda: recall_curve(make("delta"), (0,)),
        lambda: ridge_curve((4,), lambda0=-1),
        lambda: growth_exponent(np.ones(3)),
        lambda: random_stream(0, 4),
    ],
)
def test_bad_arguments_are_named(call) -> None:
    with pytest.raises(ArgumentError, match="wanted"):
        call()
