"""Pictures of the chunk form show the numbers they were given, and say them in words."""

from __future__ import annotations

import numpy as np
import pytest

from vla import figures
from vla.errors import ArgumentError
from vla.figures import chunks
from vla.figures.theme import THEMES


def test_arrays_share_nothing_but_a_zero() -> None:
    panels = {"L": np.array([[2.0, np.nan], [-1.0, 3.0]]), "W": np.zeros((2, 4))}
    drawn = chunks.arrays(panels, title="A chunk", largest={"W": 5.0})
    first, second = drawn.data
    assert (first.zmin, first.zmax) == (-3, 3)
    assert (second.zmin, second.zmax) == (-5, 5)
    np.testing.assert_array_equal(first.z, panels["L"])
    assert "L, 2 by 2, entries to 3" in figures.alt(drawn)
    assert chunks.arrays({"0": np.zeros((1, 1))}, title="").data[0].zmax == 1


@pytest.mark.parametrize(("tokens", "chunk", "count"), [(7, 3, 3), (6, 6, 1), (5, 1, 5), (4, 9, 1)])
def test_meetings_count_chunks_and_pairs(tokens, chunk, count) -> None:
    drawn = chunks.meetings(tokens, chunk)
    inside = int((drawn.data[0].z == chunks.TRIANGLE).sum())
    lengths = [min(chunk, tokens - start) for start in range(0, tokens, chunk)]
    assert inside == sum(n * (n + 1) // 2 for n in lengths)
    assert np.isfinite(drawn.data[0].z).sum() == tokens * (tokens + 1) // 2
    assert f"{count} chunks one after the other, {inside} pairs" in figures.alt(drawn)


def test_curves_and_marks_hold_their_numbers() -> None:
    drawn = chunks.against_chunk_size(
        [1, 2, 4], {"formula": [3.0, 2.0, 2.5]}, title="Price", quantity="bytes",
        measured={"measured": [3.1, 2.1, 2.4]},
    )  # fmt: skip
    assert list(drawn.data[1].y) == [3.1, 2.1, 2.4]
    assert "formula is least, 2.00, at C = 2" in figures.alt(drawn)
    marks = chunks.rounding(["a", "b"], {"loop": [1e-7, 2e-3]}, title="Error", bounds=[1e-5, 1e-2])
    assert list(marks.data[0].x) == [1e-7, 2e-3]
    assert list(marks.data[1].x) == [1e-5, 1e-2]
    assert "loop at most 0.00200" in figures.alt(marks)


@pytest.mark.parametrize("theme", THEMES)
def test_both_themes(theme) -> None:
    paper = THEMES[theme].paper
    for drawn in (
        chunks.meetings(3, 2, theme_name=theme),
        chunks.arrays({"A": np.eye(2)}, title="A", theme_name=theme),
        chunks.rounding(["a"], {"loop": [1.0]}, title="Error", theme_name=theme),
    ):
        assert drawn.layout.template.layout.paper_bgcolor == paper


def test_faults_are_told() -> None:
    with pytest.raises(ArgumentError, match="panels"):
        chunks.arrays({}, title="")
    with pytest.raises(ArgumentError, match="chunk"):
        chunks.meetings(3, 0)
    with pytest.raises(ArgumentError, match="theme"):
        chunks.meetings(3, 1, theme_name="sepia")
