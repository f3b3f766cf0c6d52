"""Colours can be read on both papers, scales are monotone, numbers have three digits."""

from __future__ import annotations

import pytest

from vla.errors import ArgumentError
from vla.figures.colour import contrast, luminance, mix, readable, rgb
from vla.figures.theme import THEMES, colourscale, three
from vla.rules import RULES


@pytest.mark.parametrize(
    ("first", "second", "ratio"),
    [("#FFFFFF", "#000000", 21.0), ("#777777", "#FFFFFF", 4.48), ("#0000FF", "#FFFFFF", 8.59)],
)
def test_contrast_is_wcags(first: str, second: str, ratio: float) -> None:
    assert contrast(first, second) == pytest.approx(ratio, abs=0.01)
    assert contrast(second, first) == contrast(first, second)


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_every_rule_can_be_seen_and_every_word_read(theme) -> None:
    for rule in RULES.values():
        assert contrast(readable(rule.colour, theme.paper), theme.paper) >= 3, rule.name
    assert contrast(theme.ink, theme.paper) >= 7
    assert contrast(theme.muted, theme.paper) >= 4.5


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_scales_grow_away_from_the_paper(theme) -> None:
    """Read without hue: the middle of the map is zero, both arms are monotone and alike."""
    away = [contrast(stop, theme.paper) for stop in theme.diverging]
    assert away[2] < 1.2
    assert away[0] > away[1] > away[2] < away[3] < away[4]
    assert away[0] == pytest.approx(away[4], rel=0.3)
    rising = [contrast(stop, theme.paper) for stop in theme.sequential]
    assert rising == sorted(rising)


@pytest.mark.parametrize("theme", THEMES.values(), ids=lambda theme: theme.name)
def test_the_arms_differ_for_red_green_blindness(theme) -> None:
    """The sign is carried by blue against red, which deuteranopes and protanopes tell apart."""
    for below, above in zip(theme.diverging[:2], theme.diverging[:2:-1], strict=True):
        assert rgb(below)[2] - rgb(below)[0] > 0.15
        assert rgb(above)[0] - rgb(above)[2] > 0.15


def test_a_colour_that_reads_already_is_left_alone() -> None:
    assert readable("#0072B2", "#FFFFFF") == "#0072B2"
    assert readable("#E69F00", "#FFFFFF") != "#E69F00"
    assert mix("#000000", "#FFFFFF", 0.5) in {"#7F7F7F", "#808080"}
    assert luminance("#FFFFFF") == pytest.approx(1)


@pytest.mark.parametrize("colour", ["red", "#FFF", "#12345G", ""])
def test_a_colour_that_is_none_is_refused(colour: str) -> None:
    with pytest.raises(ArgumentError, match="hex colour"):
        rgb(colour)


def test_three_significant_digits() -> None:
    values = [0.9996, 12.345, 0.00123456, 1e6, -1e-7, float("inf"), -0.5]
    assert [three(v) for v in values] == [
        "1.00", "12.3", "0.00123", "1.00e6", "−1.00e−7", "∞", "−0.500",
    ]  # fmt: skip
    assert three(None) == "–"


def test_colourscale_spans_zero_to_one() -> None:
    assert colourscale(("#000000", "#808080", "#FFFFFF"))[1] == [0.5, "#808080"]
