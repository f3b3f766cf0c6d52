"""Run the notebooks from top to bottom and store their outputs, small and clean.

    python notebooks/execute.py              every notebook
    python notebooks/execute.py 01*.ipynb    some
    python notebooks/execute.py --check      only name those whose cells changed since

Widget state is dropped: it holds random ids and megabytes. In its place stands the picture that
the control shows at its defaults. With Playwright and a Chromium at hand every figure also gets a
PNG, for readers without JavaScript (a repository's web page); without them the notebook is complete
all the same.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

HERE = Path(__file__).resolve().parent
FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"


def main(arguments: list[str] | None = None) -> int:
    """Execute the named notebooks, or check them; the exit status counts the stale ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of this folder")
    parser.add_argument("--check", action="store_true", help="run nothing, name stale notebooks")
    parser.add_argument("--no-pictures", action="store_true", help="don't add PNGs of the figures")
    chosen = parser.parse_args(arguments)
    paths = chosen.notebooks or sorted(HERE.glob("*.ipynb"))
    if chosen.check:
        stale = [path for path in paths if is_stale(read(path))]
        print("\n".join(f"stale: {path.name}" for path in stale) or "all up to date")
        return len(stale)
    for path in paths:
        book = execute(path)
        if not chosen.no_pictures:
            add_pictures(book)
        nbformat.write(book, path)
        print(f"{path.name}: {len(code_cells(book))} cells, {path.stat().st_size // 1000} kB")
    return 0


def read(path: Path) -> NotebookNode:
    """The notebook of a file, in the current format."""
    return nbformat.read(path, as_version=4)


def execute(path: Path, timeout: int = 120) -> NotebookNode:
    """Run every cell in a fresh kernel, in the notebook's own folder; return it cleaned."""
    book = read(path)
    NotebookClient(
        book, timeout=timeout, kernel_name="python3", resources={"metadata": {"path": path.parent}}
    ).execute()
    return clean(book)


def clean(book: NotebookNode) -> NotebookNode:
    """Drop what differs between two runs of the same cells, and stamp the cells' digest."""
    state = book.metadata.pop("widgets", {}).get(STATE, {}).get("state", {})
    for cell in code_cells(book):
        cell.metadata.pop("execution", None)
        for output in cell.outputs:
            output.get("metadata", {}).clear()
            if WIDGET in output.get("data", {}):
                output.data = still(output.data, state)
            if FIGURE in output.get("data", {}):
                output.data["text/plain"] = describe(output.data[FIGURE])
                output.data.pop("text/html", None)
    book.metadata.language_info = {"name": "python", "file_extension": ".py"}
    book.metadata.kernelspec = {
        "name": "python3", "display_name": "Python 3", "language": "python",
    }  # fmt: skip
    book.metadata.vla = {"cells_sha256": digest(book)}
    return book


def still(data: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """What stands in a file for a widget: the first figure it shows, or a line of text."""
    for output in outputs_within(data[WIDGET]["model_id"], state):
        if FIGURE in output.get("data", {}):
            return {FIGURE: output["data"][FIGURE], "text/plain": ""}
    return {"text/plain": "A control or a moving picture: run this cell to see it."}


def outputs_within(model: str, state: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of a widget and of its children, in order."""
    values = state.get(model, {}).get("state", {})
    found = list(values.get("outputs", ()))
    for child in values.get("children", ()):
        found += outputs_within(child.removeprefix("IPY_MODEL_"), state)
    return found


def describe(figure: dict[str, Any]) -> str:
    """The text that stands in for a figure."""
    return figure.get("layout", {}).get("meta", {}).get("alt", "A figure.")


def code_cells(book: NotebookNode) -> list[NotebookNode]:
    """The cells that run."""
    return [cell for cell in book.cells if cell.cell_type == "code" and cell.source.strip()]


def digest(book: NotebookNode) -> str:
    """A fingerprint of every code cell: it changes when a stored output can be out of date."""
    sources = json.dumps([cell.source for cell in code_cells(book)])
    return hashlib.sha256(sources.encode()).hexdigest()[:16]


def is_stale(book: NotebookNode) -> bool:
    """Whether a cell was edited, added or left unexecuted since the outputs were stored."""
    stamped = book.metadata.get("vla", {}).get("cells_sha256")
    return stamped != digest(book) or not all(c.execution_count for c in code_cells(book))


def add_pictures(book: NotebookNode) -> None:
    """Store a PNG beside every figure. Says so and does nothing if there is no browser."""
    bundles = [
        output.data
        for cell in code_cells(book)
        for output in cell.outputs
        if FIGURE in output.get("data", {})
    ]
    try:
        pictures = render([bundle[FIGURE] for bundle in bundles])
    except Exception as error:
        print(f"no pictures added: {error}".splitlines()[0], file=sys.stderr)
        return
    for bundle, picture in zip(bundles, pictures, strict=True):
        bundle["image/png"] = base64.b64encode(picture).decode()


def render(figures: list[dict[str, Any]], width: int = 760) -> list[bytes]:
    """Draw figures in a headless Chromium with plotly's own script; no network."""
    import plotly.offline
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.set_content("<body style='margin:0'><div id='figure'></div></body>")
        page.add_script_tag(content=plotly.offline.get_plotlyjs())
        return [_picture(page, figure, width) for figure in figures]


def _picture(page: Any, figure: dict[str, Any], width: int) -> bytes:
    draw = """async ([figure, width]) => {
        const layout = {...figure.layout, width};
        await Plotly.newPlot('figure', figure.data, layout, {staticPlot: true});
    }"""
    page.evaluate(draw, [figure, width])
    return page.locator("#figure .svg-container").screenshot()


def chromium() -> str | None:
    """A browser by ``VLA_CHROMIUM`` or by its usual names; ``None`` leaves it to Playwright."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("VLA_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


if __name__ == "__main__":
    sys.exit(main())
