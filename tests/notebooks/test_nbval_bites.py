"""A test of the tests: a false number in a notebook makes the comparison fail.

Each chapter is cut after its first printed number, which is falsified; all of them run in one nbval
session, so that a chapter costs little more than the start of its kernel.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))
NUMBER = re.compile(r"\d+\.\d+")
VERDICT = re.compile(r"^(PASSED|FAILED) (.+\.ipynb)::Cell (\d+)", re.MULTILINE)

pytestmark = pytest.mark.slow


def numbers(cell) -> bool:
    """Whether the cell prints a decimal number that nbval compares."""
    if cell.cell_type != "code" or "nbval-ignore-output" in cell.metadata.get("tags", []):
        return False
    return any(o.output_type == "stream" and NUMBER.search(o.text) for o in cell.outputs)


def falsify(path: Path, copy: Path) -> int:
    """Store the chapter up to its first number, with that number changed; count its code cells."""
    book = nbformat.read(path, as_version=4)
    first = next(i for i, cell in enumerate(book.cells) if numbers(cell))
    book.cells = book.cells[: first + 1]
    (output,) = book.cells[first].outputs
    output.text = NUMBER.sub(
        lambda found: f"{float(found.group()) + 0.1:.1f}", output.text, count=1
    )
    nbformat.write(book, copy)
    return sum(cell.cell_type == "code" for cell in book.cells)


@pytest.fixture(scope="module")
def outcome(tmp_path_factory) -> tuple[dict[str, int], dict[str, list[str]], str]:
    """Code cells by chapter, verdicts by chapter in the order of its cells, and the log."""
    folder = tmp_path_factory.mktemp("falsified")
    for module in NOTEBOOKS.glob("*.py"):
        shutil.copy(module, folder)
    counts = {path.name: falsify(path, folder / path.name) for path in BOOKS}
    done = nbval(folder)
    verdicts: dict[str, list[str]] = {path.name: [] for path in BOOKS}
    found = sorted(VERDICT.findall(done.stdout), key=lambda x: int(x[2]))
    for verdict, name, _ in found:
        verdicts[Path(name).name].append(verdict)
    return counts, verdicts, done.stdout + done.stderr


@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_falsified_number_fails(path, outcome) -> None:
    counts, verdicts, log = outcome
    honest = ["PASSED"] * (counts[path.name] - 1)
    assert verdicts[path.name] == [*honest, "FAILED"], log


def nbval(folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["--nbval", "--nbval-cell-timeout=60", "-p", "no:cacheprovider", "-q", "-rfp"]
    command = [sys.executable, "-m", "pytest", f"--rootdir={folder}", "-c", "/dev/null"]
    return subprocess.run(
        [*command, *options, folder],
        cwd=folder, capture_output=True, text=True, check=False, timeout=240,
    )  # fmt: skip
