"""Pictures of a transition and of process noise show the numbers they were given."""

from __future__ import annotations

import numpy as np
import pytest

from vla import figures
from vla.errors import ArgumentError
from vla.figures import transition
from vla.theory import step_norm
from vla.theory.drift import Tracking


@pytest.mark.parametrize("cosine", [-1.0, -0.3, 0.0, 0.6, 1.0])
def test_the_longest_image_is_the_spectral_norm(cosine) -> None:
    drawn = transition.stretched(cosine)
    _, image, longest, k, alpha = drawn.data
    wanted = float(step_norm(cosine))
    assert np.hypot(image.x, image.y).max() <= wanted + 1e-12
    assert np.hypot(image.x, image.y).max() > wanted - 2e-3
    assert np.hypot(longest.x[1], longest.y[1]) == pytest.approx(wanted, abs=1e-12)
    assert k.x[1] * alpha.x[1] + k.y[1] * alpha.y[1] == pytest.approx(cosine)
    assert "Proposition 2 states 1" in figures.alt(drawn)


def test_a_cosine_is_a_cosine() -> None:
    with pytest.raises(ArgumentError, match="cosine"):
        transition.stretched(1.5)


def test_every_speed_has_a_line_and_the_delta_rule_a_mark() -> None:
    curves = [Tracking(1.0, (0.0, 0.1), (0.9, 0.3), 0.4), Tracking(3.0, (0.0, 0.1), (1, 0.6), 0.5)]
    drawn = transition.following(curves, theme_name="dark")
    assert [list(trace.y) for trace in drawn.data] == [[0.9, 0.3], [0.4], [1, 0.6], [0.5]]
    assert "1° a token: 0.900 without noise, least 0.300 at ε = 0.1" in figures.alt(drawn)
    assert drawn.data[0].line.dash != drawn.data[2].line.dash
