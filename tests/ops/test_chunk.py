"""The chunk form against the token loop: forward, every gradient, final state."""

import pytest

from .oracle import assert_close, make_case, poisoned, reference, results

GAINS = ("unit", "rls", "oblique")
REFRESHES = (0, 7, 20)
SIZES = (1, 2, 15, 16, 17, 63, 64, 65, 100)


@pytest.mark.parametrize("tokens", SIZES)
@pytest.mark.parametrize("refresh", REFRESHES)
@pytest.mark.parametrize("gain", GAINS)
def test_equals_the_token_loop(gain: str, refresh: int, tokens: int) -> None:
    case = make_case(tokens=tokens, width=8, value_width=5)
    options = {"gain": gain, "refresh_every": refresh, "refresh_eps": 0.05}
    with poisoned():
        got = results(case, backend="chunk", chunk_size=16, **options)
    assert_close(got, reference(case, **options), 1e-10)
