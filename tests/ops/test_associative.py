"""The associative scan against the token loop."""

import pytest
import torch

from vla.ops.associative import compose, prefix_maps

from .oracle import assert_close, make_case, reference, relative_error, results


@pytest.mark.parametrize("tokens", [1, 2, 3, 17, 64, 65])
@pytest.mark.parametrize("gain", ["unit", "rls", "oblique"])
def test_equals_the_token_loop(gain: str, tokens: int) -> None:
    case = make_case(tokens=tokens, width=6, value_width=4)
    options = {"gain": gain, "refresh_every": 7}
    assert_close(results(case, backend="associative", **options), reference(case, **options), 1e-10)


def test_the_papers_order_of_factors_would_be_wrong() -> None:
    """F on the left, as §3.4 prints it, gives another state."""
    case = make_case(batch=1, heads=1, tokens=2, width=6)
    first, then = ((torch.randn(6, 6, dtype=torch.float64),) * 2 for _ in range(2))
    S = case.S[0, 0]
    F, G = compose(first, then)
    right = (S @ first[0] + first[1]) @ then[0] + then[1]
    left = then[0] @ (first[0] @ S + first[1]) + then[1]
    assert relative_error(S @ F + G, right) < 1e-12
    assert relative_error(S @ F + G, left) > 0.1


@pytest.mark.parametrize("tokens", [1, 2, 5, 8, 31])
def test_work_is_linear_in_the_number_of_maps(tokens: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 2T compositions, each of two d×d products per map: O(T d³)."""
    composed = []

    def counting(first, then):
        composed.append(first[0].shape[1])
        return compose(first, then)

    monkeypatch.setattr("vla.ops.associative.compose", counting)
    maps = (torch.rand(1, tokens, 1, 3, 3), torch.rand(1, tokens, 1, 2, 3))
    prefix_maps(maps)
    assert sum(composed) <= 2 * tokens
    assert len(composed) <= 2 * max(1, tokens).bit_length()
