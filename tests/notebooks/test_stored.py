"""What is stored in the notebooks: executed, clean, small, not older than the cells."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
BOOKS = sorted(NOTEBOOKS.glob("*.ipynb"))
IGNORED = "nbval-ignore-output"
MOST_BYTES = 400_000

pytestmark = pytest.mark.parametrize("path", BOOKS, ids=lambda path: path.stem)


def code_cells(path: Path) -> list:
    cells = nbformat.read(path, as_version=4).cells
    return [cell for cell in cells if cell.cell_type == "code"]


def tags(cell) -> list[str]:
    return cell.metadata.get("tags", [])


def test_valid_small_and_without_widget_state(path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    assert "widgets" not in book.metadata
    assert path.stat().st_size < MOST_BYTES
    assert "widget-view" not in path.read_text()


def test_every_cell_was_run_without_error(path) -> None:
    counts = [cell.execution_count for cell in code_cells(path)]
    assert counts == list(range(1, len(counts) + 1))
    outputs = [output for cell in code_cells(path) for output in cell.outputs]
    assert not [output for output in outputs if output.output_type == "error"]
    assert not [output for output in outputs if output.get("name") == "stderr"]


def test_outputs_are_not_older_than_the_cells(path, execute) -> None:
    book = nbformat.read(path, as_version=4)
    assert not execute.is_stale(book)
    for change in (_edit_source, _forget_run, _remove_cell):
        changed = copy.deepcopy(book)
        change(changed)
        assert execute.is_stale(changed), change.__name__


def test_cells_that_are_not_compared_are_the_visual_ones(path) -> None:
    """A picture isn't compared; everything else prints text that is."""
    for cell in code_cells(path):
        pictures = [o for o in cell.outputs if "data" in o]
        if IGNORED in tags(cell):
            assert pictures or "exercise" in tags(cell), cell.id
        else:
            assert not pictures, cell.id
    assert any("assert" in cell.source for cell in code_cells(path))


def test_every_picture_has_a_png_and_words(path) -> None:
    for cell in code_cells(path):
        for output in cell.outputs:
            if "data" in output:
                assert "image/png" in output.data, cell.id
                assert len(output.data["text/plain"]) > 20, cell.id
                assert "text/html" not in output.data


def test_no_figure_asks_for_the_network(path) -> None:
    stored = json.dumps([output for cell in code_cells(path) for output in cell.outputs])
    assert "http://" not in stored
    assert "https://" not in stored


def _edit_source(book) -> None:
    next(cell for cell in book.cells if cell.cell_type == "code").source += "\n1 + 1"


def _forget_run(book) -> None:
    next(cell for cell in book.cells if cell.cell_type == "code").execution_count = None


def _remove_cell(book) -> None:
    book.cells.remove(next(cell for cell in book.cells if cell.cell_type == "code"))
