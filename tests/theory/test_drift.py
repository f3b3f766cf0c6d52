"""Process noise: where the refresh leaves A, and that forgetting pays when the world turns."""

from __future__ import annotations

import math

import pytest
import torch

from vla.errors import ArgumentError
from vla.rules import make
from vla.rules.inverse import refresh, sherman_morrison
from vla.theory.drift import mean_surprise, refresh_floor, tracking
from vla.tokens import make_stream


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("d", "eps", "every", "size"), [(8, 1e-3, 5, 1.0), (16, 1e-3, 20, 1.0), (8, 1e-2, 20, 8**-0.5)]
)
def test_refresh_floor_is_where_a_long_run_ends(d, eps, every, size) -> None:
    draw = torch.Generator().manual_seed(1)
    A = 10 * torch.eye(d, dtype=torch.float64)
    ends = []
    for step in range(1, 2001):
        u = torch.randn(d, generator=draw, dtype=torch.float64)
        A, _ = sherman_morrison(A, size * u / u.norm())
        A = refresh(A, step, every, eps)
        if step > 1000:
            ends.append(float(A.norm()))
    assert sum(ends) / len(ends) == pytest.approx(refresh_floor(d, eps, every, size), rel=0.06)


def test_surprise_is_the_error_before_the_write() -> None:
    """RLS and the delta rule see one key again and again: surprise of the mean, and of the last."""
    stream = make_stream("repeated", distinct=1, n=10, d=3, d_v=4, queries=0)
    v = stream.v
    last = [float((v[t] - v[t - 1]).norm()) for t in range(5, 10)]
    mean = [float((v[t] - v[:t].sum(0) / (t + 0.1)).norm()) for t in range(5, 10)]
    assert mean_surprise(make("delta"), stream) == pytest.approx(sum(last) / 5)
    assert mean_surprise(make("rls", lambda0=0.1), stream) == pytest.approx(sum(mean) / 5)


@pytest.mark.usefixtures("unchecked")
def test_noise_pays_when_the_map_turns_and_not_when_it_rests() -> None:
    rest, turning = (tracking(degrees, (0.0, 0.03), n=120) for degrees in (0.0, 1.0))
    assert rest.surprise[0] < rest.surprise[1] < rest.delta
    assert turning.surprise[1] < 0.7 * turning.surprise[0]


def test_what_is_refused() -> None:
    for bad in ({"degrees": 1.0, "n": 1}, {"degrees": 1.0, "noises": (-1.0,)}):
        with pytest.raises(ArgumentError):
            tracking(**bad)
    for args in ((0, 1e-3, 20), (8, 0.0, 20), (8, 1e-3, 0), (8, 1e-3, 20, -1.0)):
        with pytest.raises(ArgumentError):
            refresh_floor(*args)
    assert math.isclose(refresh_floor(32, 1e-3, 20), 32 * math.sqrt(5e-5))
