"""Products of unit-gain writes pass 1 for a small λ0 even with u = k; products of exact ones don't.

By an inverse from scratch at every step, so that no drift of a recursion can be the reason.
"""

from __future__ import annotations

import pytest
import torch

from vla.rules import Token, make, transition

KEYS = torch.tensor([[8, 6, 1], [10, 2, 1], [-5, 8, 1]], dtype=torch.float64)
ORDER = [0, 1, 2, 2, 2, 2, 2, 2]


def afresh(lambda0: float, *, unit: bool) -> list[float]:
    eye = torch.eye(3, dtype=torch.float64)
    M, product, sizes = lambda0 * eye, eye, []
    for k in (KEYS / KEYS.norm(dim=1, keepdim=True))[ORDER]:
        M = M + torch.outer(k, k)
        gain = torch.linalg.solve(M, k)
        gain = gain / gain.norm() if unit else gain
        product = product @ (eye - torch.outer(k, gain))
        sizes.append(float(torch.linalg.matrix_norm(product, 2)))
    return sizes


def by_rule(lambda0: float, gain: str) -> list[float]:
    rule = make("vla", lambda0=lambda0, gain=gain)
    state, product, sizes = rule.init(3, 1), torch.eye(3, dtype=torch.float64), []
    for k in KEYS[ORDER]:
        state = rule.step(state, Token(k=k, v=torch.ones(1, dtype=torch.float64)))
        product = product @ transition(state.write)
        sizes.append(float(torch.linalg.matrix_norm(product, 2)))
    return sizes


def test_three_keys_are_a_counter_example() -> None:
    sizes = afresh(1e-3, unit=True)
    assert sizes[:2] == pytest.approx([1, 1], abs=1e-9)
    assert sizes[2] == pytest.approx(1.0953, abs=1e-4)
    assert sizes[-1] > 2


@pytest.mark.parametrize("lambda0", [1e-3, 0.1])
def test_the_exact_gain_never_stretches(lambda0) -> None:
    assert max(afresh(lambda0, unit=False)) <= 1 + 1e-9


@pytest.mark.parametrize("lambda0", [1e-3, 0.1])
def test_the_rule_says_the_same(lambda0) -> None:
    for gain in ("unit", "rls"):
        wanted = afresh(lambda0, unit=gain == "unit")
        assert by_rule(lambda0, gain) == pytest.approx(wanted, abs=1e-8)


def test_the_papers_lambda0_holds_these_down() -> None:
    assert max(afresh(0.1, unit=True)) <= 1 + 1e-9
