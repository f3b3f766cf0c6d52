"""A test of the tests: a false number in a notebook makes the comparison fail."""

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


def numbers(cell) -> bool:
    """Whether the cell prints a decimal number that nbval compares."""
    if cell.cell_type != "code" or "nbval-ignore-output" in cell.metadata.get("tags", []):
        return False
    return any(o.output_type == "stream" and NUMBER.search(o.text) for o in cell.outputs)


@pytest.mark.slow
@pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)
def test_a_falsified_number_fails(path, tmp_path) -> None:
    shutil.copy(NOTEBOOKS / "checks.py", tmp_path)
    book = nbformat.read(path, as_version=4)
    first = next(i for i, cell in enumerate(book.cells) if numbers(cell))
    book.cells = book.cells[: first + 1]
    (output,) = book.cells[first].outputs
    output.text = NUMBER.sub(
        lambda found: f"{float(found.group()) + 0.1:.1f}", output.text, count=1
    )
    nbformat.write(book, tmp_path / "falsified.ipynb")
    index = sum(cell.cell_type == "code" for cell in book.cells[:first])
    done = nbval(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"1 failed, {index} passed" in done.stdout  # the cells before it are honest
    assert f"FAILED falsified.ipynb::Cell {index}" in done.stdout


def nbval(folder: Path) -> subprocess.CompletedProcess[str]:
    options = ["--nbval", "--nbval-cell-timeout=60", "-p", "no:cacheprovider", "-q", "-rf"]
    command = [sys.executable, "-m", "pytest", f"--rootdir={folder}", "-c", "/dev/null"]
    return subprocess.run(
        [*command, *options, folder],
        cwd=folder, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
