"""The tool that executes notebooks: what it keeps of a widget, what it drops, what it says."""

from __future__ import annotations

import base64
import copy

import nbformat
import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_notebook, new_output

FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"


def book_with(state: dict, *data: dict):
    outputs = [new_output("display_data", data=dict(bundle)) for bundle in data]
    cell = new_code_cell("draw()", execution_count=1, outputs=outputs)
    cell.metadata.execution = {"iopub.execute_input": "now"}
    stored = {"application/vnd.jupyter.widget-state+json": {"state": state}}
    return new_notebook(cells=[cell], metadata={"widgets": stored})


@pytest.fixture
def figure() -> dict:
    return {"data": [], "layout": {"meta": {"alt": "Nothing is drawn."}}}


def test_a_control_leaves_its_first_figure(execute, figure) -> None:
    output = {"output_type": "display_data", "data": {FIGURE: figure}, "metadata": {}}
    state = {
        "box": {"state": {"children": ["IPY_MODEL_slider", "IPY_MODEL_out"]}},
        "slider": {"state": {"value": 1}},
        "out": {"state": {"outputs": [output]}},
    }
    book = execute.clean(book_with(state, {WIDGET: {"model_id": "box"}, "text/plain": "box"}))
    data = book.cells[0].outputs[0].data
    assert data == {FIGURE: figure, "text/plain": "Nothing is drawn."}
    assert "widgets" not in book.metadata
    assert "execution" not in book.cells[0].metadata
    assert not execute.is_stale(book)
    nbformat.validate(book)


def test_a_widget_without_a_figure_leaves_a_sentence(execute) -> None:
    book = execute.clean(book_with({}, {WIDGET: {"model_id": "gone"}}))
    assert book.cells[0].outputs[0].data["text/plain"].startswith("A control or a moving picture")


def test_the_steppers_page_is_photographed_and_dropped(execute) -> None:
    model = {
        "state": {"page": "<p>%%TITLE%% %%VIEW%% %%DATA%%</p>", "step": 3, "lanes": [],
                  "log": False, "stretch": False},
        "buffers": [{"path": ["data"], "data": base64.b64encode(b"numbers").decode()}],
    }  # fmt: skip
    book = execute.clean(book_with({"stepper": model}, {WIDGET: {"model_id": "stepper"}}))
    page = book.cells[0].outputs[0].data[execute.PAGE]
    assert base64.b64encode(b"numbers").decode() in page
    execute.drop_pages(book)
    assert list(book.cells[0].outputs[0].data) == ["text/plain"]


def test_another_widget_is_mounted_with_its_values(execute, browser) -> None:
    module = "export default { render({ model, el }) { el.innerHTML = model.get('svg'); } };"
    states = {
        "box": {"state": {"children": ["IPY_MODEL_slider", "IPY_MODEL_plane"]}},
        "slider": {"state": {"value": 1}},
        "plane": {"state": {"_esm": module, "_css": "svg { width: 40px }",
                            "svg": "<svg></svg><p>&lt;/script&gt;</p>"}},
    }  # fmt: skip
    book = execute.clean(book_with(states, {WIDGET: {"model_id": "box"}}))
    page = browser.new_page()
    page.set_content(book.cells[0].outputs[0].data[execute.PAGE])
    page.locator("svg").wait_for()
    assert page.locator("svg").bounding_box()["width"] == 40
    assert page.locator("p").inner_text() == "</script>"
    page.close()


def test_text_that_came_in_pieces_is_joined(execute) -> None:
    book = book_with({})
    pieces = [("stdout", "a "), ("stdout", "b\n"), ("stderr", "c"), ("stdout", "d")]
    book.cells[0].outputs = [new_output("stream", name=name, text=text) for name, text in pieces]
    outputs = execute.clean(book).cells[0].outputs
    assert [(o.name, o.text) for o in outputs] == [("stdout", "a b\n"), *pieces[2:]]


def test_cleaning_twice_changes_nothing(execute, figure) -> None:
    once = execute.clean(book_with({}, {FIGURE: figure, "text/html": "<script>"}))
    assert execute.clean(copy.deepcopy(once)) == once
    assert "text/html" not in once.cells[0].outputs[0].data


def test_check_names_what_is_stale(execute, tmp_path, capsys) -> None:
    fresh, stale = tmp_path / "fresh.ipynb", tmp_path / "stale.ipynb"
    book = execute.clean(book_with({}))
    nbformat.write(book, fresh)
    book.cells[0].source = "draw(2)"
    nbformat.write(book, stale)
    assert execute.main(["--check", str(fresh), str(stale)]) == 1
    assert capsys.readouterr().out == "stale: stale.ipynb\n"


def test_palette_png_keeps_flat_colours(execute, browser) -> None:
    """The reduced picture decodes to the colours that went in, at least where there are few."""
    pixels = np.zeros((3, 5, 3), np.uint8)
    pixels[:, 2:] = (0, 158, 115)
    page = browser.new_page()
    again = execute._pixels(page, execute.palette_png(pixels))
    page.close()
    assert np.array_equal(again, pixels)
