"""Exercises: a blank is "not yet", a wrong answer is told apart, the printed solution is right."""

from __future__ import annotations

import importlib
import re
from collections import Counter
from itertools import pairwise
from pathlib import Path

import nbformat
import pytest
import torch

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHECKS = re.compile(r"^import (checks\w*)(?: as checks)?$", re.MULTILINE)
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def exercises() -> list:
    found = []
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        cells = nbformat.read(path, as_version=4).cells
        module = CHECKS.search("\n".join(cell.source for cell in cells))
        for cell, after in pairwise(cells):
            if "exercise" in cell.metadata.get("tags", []):
                case = (cell, after, module.group(1))
                found.append(pytest.param(case, id=f"{path.stem[:2]}-{cell.id}"))
    return found


def run(source: str, checks: str) -> None:
    """Run a cell as in its chapter, which imports its own checks under the name ``checks``."""
    exec(source, {"checks": importlib.import_module(checks), "torch": torch})


@pytest.mark.parametrize("exercise", exercises())
class TestExercise:
    def test_solution_is_folded_away(self, exercise) -> None:
        cell, solution, _ = exercise
        assert solution.source.startswith("<details>")
        assert "nbval-ignore-output" in cell.metadata.tags

    def test_blank_is_not_yet(self, exercise, capsys) -> None:
        cell, _, checks = exercise
        run(cell.source, checks)
        assert capsys.readouterr().out.startswith("Not yet: replace the dots")

    def test_printed_solution_is_right(self, exercise, capsys) -> None:
        cell, solution, checks = exercise
        check = cell.source.strip().splitlines()[-1]
        run(FENCE.search(solution.source).group(1) + check, checks)
        assert capsys.readouterr().out == "Right.\n"

    @pytest.mark.parametrize(
        ("body", "says"),
        [
            ("return 0.0", "Not right yet"),
            ("return 'a cat'", "Not right yet"),
            ("return None", "Not yet"),
            ("return 1 / 0", "ZeroDivisionError"),
            ("return arguments[0] * float('nan')", "Not right yet"),
        ],
    )
    def test_other_answers_get_a_sentence(self, exercise, capsys, body, says) -> None:
        cell, _, checks = exercise
        name = re.search(r"def (\w+)", cell.source).group(1)
        check = cell.source.strip().splitlines()[-1]
        run(f"def {name}(*arguments):\n    {body}\n{check}", checks)
        assert says in capsys.readouterr().out


def test_every_chapter_has_exercises() -> None:
    count = Counter(case.id[:2] for case in exercises())
    assert set(count) == {path.stem[:2] for path in NOTEBOOKS.glob("*.ipynb")}
    assert min(count.values()) >= 2
