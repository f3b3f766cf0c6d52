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
import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from nbclient import NotebookClient
from nbformat import NotebookNode

from vla.widgets.html import fill

HERE = Path(__file__).resolve().parent
FIGURE = "application/vnd.plotly.v1+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
STATE = "application/vnd.jupyter.widget-state+json"
PAGE = "application/x-page-to-photograph"
COLOURS = 256
MOUNT = """<!doctype html><meta charset="utf-8"><style>%%CSS%%</style>
<body class="light" style="margin:0"><div id="widget"></div><script type="module">
const values = %%VALUES%%;
const { default: widget } = await import("data:text/javascript;base64,%%MODULE%%");
const set = (name, value) => { values[name] = value; };
const model = { get: (name) => values[name], set, on() {}, off() {}, save_changes() {} };
widget.render({ model, el: document.getElementById("widget") });
</script>"""


def main(arguments: list[str] | None = None) -> int:
    """Execute the named notebooks, or check them; the exit status counts the stale ones."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: all of this folder")
    parser.add_argument("--check", action="store_true", help="run nothing, name stale notebooks")
    parser.add_argument("--no-pictures", action="store_true", help="don't add pictures")
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
        drop_pages(book)
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
        cell.outputs = joined(cell.outputs)
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


def joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Printed text in one piece: how a kernel cuts it is an accident of timing."""
    kept: list[NotebookNode] = []
    for output in outputs:
        if kept and output.output_type == "stream" and output.get("name") == kept[-1].get("name"):
            kept[-1].text += output.text
        else:
            kept.append(output)
    return kept


def still(data: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    """What stands in a file for a widget: its first figure, its page, or a line of text."""
    model = data[WIDGET]["model_id"]
    for output in outputs_within(model, state):
        if FIGURE in output.get("data", {}):
            return {FIGURE: output["data"][FIGURE], "text/plain": ""}
    words = {"text/plain": "A control or a moving picture: run this cell to see it."}
    pages = [page_of(each) for each in models_within(model, state)]
    return words | next(filter(None, pages), {})


def page_of(model: dict[str, Any]) -> dict[str, str]:
    """A page with the widget in it, to be photographed by :func:`add_pictures`.

    The stepper brings its own page. Any other anywidget is mounted on its values as they stand.
    """
    values, buffers = model.get("state", {}), model.get("buffers", ())
    data = [b["data"] for b in buffers if b["path"] == ["data"]]
    if data and "page" in values:
        names = ("step", "lanes", "log", "stretch")
        view = {name: values[name] for name in names} | {"theme": "light"}
        return {PAGE: fill(values["page"], base64.b64decode(data[0]), view, "")}
    return {PAGE: mounted(values)} if "_esm" in values and not buffers else {}


def mounted(values: dict[str, Any]) -> str:
    """A page that runs an anywidget's module on a model that remembers and tells nobody."""
    module = base64.b64encode(values["_esm"].encode()).decode()
    plain = {name: value for name, value in values.items() if not name.startswith("_")}
    fields = {"CSS": values.get("_css", ""), "MODULE": module}
    fields["VALUES"] = json.dumps(plain).replace("</", "<\\/")
    page = MOUNT
    for name, text in fields.items():
        page = page.replace(f"%%{name}%%", text)
    return page


def models_within(model: str, state: dict[str, Any]) -> list[dict[str, Any]]:
    """The states of a widget and of its children, in order."""
    found = [state.get(model, {})]
    for child in found[0].get("state", {}).get("children", ()):
        found += models_within(child.removeprefix("IPY_MODEL_"), state)
    return found


def outputs_within(model: str, state: dict[str, Any]) -> list[dict[str, Any]]:
    """The outputs of a widget and of its children, in order."""
    states = (each.get("state", {}) for each in models_within(model, state))
    return [output for values in states for output in values.get("outputs", ())]


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
    """Store a picture beside every figure. Says so and does nothing if there is no browser."""
    outputs = [output.get("data", {}) for cell in code_cells(book) for output in cell.outputs]
    bundles = [data for data in outputs if FIGURE in data or PAGE in data]
    try:
        for bundle, picture in zip(bundles, photographs(bundles), strict=True):
            bundle["image/png"] = base64.b64encode(picture).decode()
    except Exception as error:
        print(f"no pictures added: {error}".splitlines()[0], file=sys.stderr)


def drop_pages(book: NotebookNode) -> None:
    """Leave out the pages that were there to be photographed: they are large."""
    for cell in code_cells(book):
        for output in cell.outputs:
            output.get("data", {}).pop(PAGE, None)


def photographs(bundles: list[dict[str, Any]], width: int = 760) -> list[bytes]:
    """PNGs of figures and pages, from a headless Chromium; no network."""
    import plotly.offline
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])
        canvas = browser.new_page(viewport={"width": width, "height": 900})
        canvas.set_content("<body style='margin:0'><div id='figure'></div></body>")
        canvas.add_script_tag(content=plotly.offline.get_plotlyjs())
        shots = [
            _draw(canvas, bundle[FIGURE], width)
            if FIGURE in bundle
            else _photograph(browser, bundle[PAGE])
            for bundle in bundles
        ]
        return [palette_png(_pixels(canvas, shot)) for shot in shots]


def _draw(canvas: Any, figure: dict[str, Any], width: int) -> bytes:
    draw = """async ([figure, width]) => {
        const layout = {...figure.layout, width};
        await Plotly.newPlot('figure', figure.data, layout, {staticPlot: true});
    }"""
    canvas.evaluate(draw, [figure, width])
    return canvas.locator("#figure .svg-container").screenshot()


def _photograph(browser: Any, html: str) -> bytes:
    page = browser.new_page(viewport={"width": 1000, "height": 760})
    page.set_content(html)
    page.locator("canvas, svg").first.wait_for()
    page.wait_for_timeout(300)
    return page.screenshot()


def chromium() -> str | None:
    """A browser by ``VLA_CHROMIUM`` or by its usual names; ``None`` leaves it to Playwright."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return os.environ.get("VLA_CHROMIUM") or next(filter(None, map(shutil.which, names)), None)


def _pixels(canvas: Any, picture: bytes) -> np.ndarray:
    """Red, green and blue of every pixel: the browser is the one that can decode a PNG."""
    decode = """async (encoded) => {
        const image = new Image();
        image.src = 'data:image/png;base64,' + encoded;
        await image.decode();
        const plane = new OffscreenCanvas(image.width, image.height).getContext('2d');
        plane.drawImage(image, 0, 0);
        const data = plane.getImageData(0, 0, image.width, image.height).data;
        const blob = new Blob([data]);
        const url = await new Promise((done) => {
            const reader = new FileReader();
            reader.onload = () => done(reader.result);
            reader.readAsDataURL(blob);
        });
        return [image.height, image.width, url.split(',')[1]];
    }"""
    height, width, data = canvas.evaluate(decode, base64.b64encode(picture).decode())
    flat = np.frombuffer(base64.b64decode(data), dtype=np.uint8)
    return flat.reshape(height, width, 4)[..., :3]


def palette_png(pixels: np.ndarray) -> bytes:
    """A PNG of at most 256 colours: a third of the size, and figures have no more than that."""
    height, width, _ = pixels.shape
    flat = pixels.reshape(-1, 3).astype(np.int64)
    bins = (flat >> 3) @ np.array([1 << 10, 1 << 5, 1])
    _, place, counts = np.unique(bins, return_inverse=True, return_counts=True)
    sums = np.stack([np.bincount(place, weights=flat[:, c]) for c in range(3)], 1)
    colours = sums / counts[:, None]
    common = np.argsort(-counts, kind="stable")[:COLOURS]
    distance = ((colours[:, None] - colours[None, common]) ** 2).sum(-1)
    rows = distance.argmin(1)[place].astype(np.uint8).reshape(height, width)
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], 1).tobytes()
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    palette = colours[common].round().astype(np.uint8).tobytes()
    parts = (
        (b"IHDR", header),
        (b"PLTE", palette),
        (b"IDAT", zlib.compress(lines, 9)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


if __name__ == "__main__":
    sys.exit(main())
