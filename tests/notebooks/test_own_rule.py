"""Chapter 10's rule file: as given it is "not yet", with the folded lines it is right."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from vla.rules import RULES

BOOK = Path(__file__).parents[2] / "notebooks" / "10_your_own_rule.ipynb"
GIVEN = {cell.id: cell.source for cell in nbformat.read(BOOK, as_version=4).cells}
TEMPLATE = GIVEN["mine-file"].partition("\n")[2] + "\n"
MARKED = [line for line in TEMPLATE.splitlines() if "# change: " in line]
FOLDED = GIVEN["solution-3"].split("```python\n")[1].split("```")[0].rstrip()


@pytest.fixture
def check(tmp_path, capsys) -> Iterator:
    """What the chapter says of a text saved as ``mine.py``; no rule of it stays behind."""
    import checks_10

    before = dict(RULES)

    def said_of(text: str) -> str:
        path = tmp_path / "mine.py"
        path.write_text(text)
        checks_10.rule_file(path)
        return capsys.readouterr().out

    yield said_of
    RULES.clear()
    RULES.update(before)


def filled(lines: str = FOLDED) -> str:
    return TEMPLATE.replace("\n".join(MARKED), lines)


def test_as_given_it_is_not_yet(check) -> None:
    assert len(MARKED) == 2
    assert check(TEMPLATE) == "Not yet: the file runs, and its rule steps like the delta rule.\n"


def test_with_the_folded_lines_it_is_right_and_what_the_chapter_goes_on_with(check) -> None:
    import checks_10

    assert check(filled()) == "Right.\n"
    own = {"Mine": "Diagonal", '"mine"': '"diagonal"', "my rule": "diagonal penalty"}
    text = filled()
    for name, theirs in own.items():
        text = text.replace(name, theirs)
    assert text == checks_10.SOLUTION
    assert check(checks_10.SOLUTION) == "Right.\n"


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("to_unit(a * k)", "a * k", "Not right yet: for S after 6 tokens"),
        ("A = torch.diag_embed(a)", "A = state.A", "Not right yet: for S after 6 tokens"),
        ("a = a / (1 + a * k**2)", "a = a / (1 + k**2)", "Not right yet: for S after 6 tokens"),
        ("torch.diag_embed(a)", "torch.diag(a)", "your function stopped with"),
        ("to_unit(a * k)", "to_units(a * k)", "your function stopped with NameError"),
        ("@register", "", "Not yet: rule file: got"),
        ("to_unit(a * k)", "(to_unit(a * k)", "SyntaxError"),
    ],
)
def test_other_files_get_a_sentence(check, old, new, says) -> None:
    assert says in check(filled().replace(old, new, 1))
