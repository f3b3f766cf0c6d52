"""What every app's page has alike, as HTML: heading, answers, numbers, figures, other questions."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from vla.figures.theme import three


class Cell(NamedTuple):
    """One number on a page: whose, which, and its value."""

    lane: str
    name: str
    value: float

    @property
    def words(self) -> str:
        """Three significant digits."""
        return three(self.value)


def heading(question: str, said: str) -> str:
    """The page's head: the way back, the question, and ``said`` (HTML) below it."""
    return (
        f'<header class="words"><a href="../">All apps</a><h1>{escape(question)}</h1>'
        f"<p>{said}</p></header>"
    )


def said(seen: str, answer: str | None) -> str:
    """What is seen and, unless ``None``, the answer."""
    return escape(seen) + ("" if answer is None else f" <b>Answer.</b> {escape(answer)}")


def number(cell: Cell) -> str:
    """A table cell with the number in words and, for tests and scripts, as it is."""
    return (
        f'<td data-testid="number" data-lane="{escape(cell.lane)}" '
        f'data-number="{escape(cell.name)}" data-value="{cell.value!r}">{cell.words}</td>'
    )


def figured(words: str, shown: object, style: str = "") -> str:
    """A figure's element ``shown`` (HTML) with its text alternative."""
    styled = f' style="{style}"' if style else ""
    return f'<div role="figure" aria-label="{escape(words, quote=True)}"{styled}>{shown}</div>'


def others(
    asked: Iterable[tuple[str, object]], title: str = "Other questions", last: object | None = None
) -> str:
    """The scenes one can open next: each question with its button, and ``last`` (both HTML)."""
    items = "".join(f"<li>{escape(question)} {button}</li>" for question, button in asked)
    items += "" if last is None else f"<li>{last}</li>"
    head = f'<p role="heading" aria-level="2">{title}</p>'
    return f'<section class="more">{head}<ul>{items}</ul></section>'
