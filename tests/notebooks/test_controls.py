"""What a reader's hand does in a chapter: its cells run here, the controls are moved by code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import pytest
import torch

from vla import theory

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


@pytest.fixture
def torch_as_it_was():
    """A chapter sets torch's default dtype for itself alone; here for the time of the test."""
    before = torch.get_default_dtype()
    yield
    torch.set_default_dtype(before)


def run(chapter: str, *names: str) -> dict[str, Any]:
    """The names that these cells leave behind, run one after the other."""
    (path,) = NOTEBOOKS.glob(f"{chapter}_*.ipynb")
    cells = {cell.id: cell.source for cell in nbformat.read(path, as_version=4).cells}
    left: dict[str, Any] = {}
    for name in names:
        exec(cells[name], left)
    return left


@pytest.mark.usefixtures("torch_as_it_was")
def test_the_plane_answers_arrows_and_slider() -> None:
    left = run("03", "setup", "plane")
    plane, penalty = left["plane"], left["penalty"]
    assert plane.picture["left"] == pytest.approx(theory.overlap(plane.picture["rho"], 0.1))
    with plane.hold_sync():
        plane.angles, plane.serial = [0.0, 60.0, 90.0], 1
    assert plane.answered == 1
    assert plane.picture["rho"] == pytest.approx(0.5)
    assert plane.picture["left"] == pytest.approx(theory.overlap(0.5, 0.1))
    penalty.value = 1.0
    assert plane.picture["left"] == pytest.approx(theory.overlap(0.5, 1.0))
    assert plane.angles == [0.0, 60.0, 90.0]
