"""The course as a whole: every chapter is listed, says what it asks, and what was learnt."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))


def test_readme_lists_every_chapter_in_order() -> None:
    """A new chapter needs a row in notebooks/README.md."""
    rows = re.findall(r"^\| \[(\d\d)\]\((.+?)\) \|", (NOTEBOOKS / "README.md").read_text(), re.M)
    assert rows == [(path.stem[:2], path.name) for path in BOOKS]


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_opens_with_a_question_and_closes_with_what_was_learnt(path) -> None:
    words = [c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown"]
    assert words[0].startswith(f"# {int(path.stem[:2])} · ")
    assert "**The question of this chapter.**" in words[0]
    assert words[-1].startswith("## What was learnt")
