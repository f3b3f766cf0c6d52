"""What any app of the laboratory can be asked in a browser, whatever it shows."""

from __future__ import annotations

import ast
import contextlib
import importlib
import types
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import axe_playwright_python
from playwright.sync_api import TimeoutError

from vla import lab
from vla.bench.app import SCRIPT as page_script
from vla.scene.table import FOREIGN, Table

AXE = Path(axe_playwright_python.__file__).parent / "axe.min.js"
LOOKED_AT = {
    "include": [["html"]],
    "exclude": [{"fromShadowDom": ["marimo-file", "input[type=file]"]}],
}
"""Marimo's upload button keeps a hidden input without a name, which nobody comes to."""
WCAG = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa")

SCRIPT = page_script + Path(__file__).with_suffix(".js").read_text(encoding="utf-8")


class Page:
    """One visit to one app. Every method waits for what it needs."""

    def __init__(self, context: Any, address: str, app: lab.App, query: Any = ()) -> None:
        self.app = app
        self.page = context.new_page()
        self.page.add_init_script(SCRIPT)
        self.page.goto(f"{address}{app.slug}/?{urlencode(query)}", wait_until="commit")
        self.panel = self.page.get_by_test_id("panel").first

    def ready(self) -> Page:
        """Until the app has its controls and its words and nothing moves any more."""
        self.panel.wait_for()
        self.page.get_by_text("All apps").first.wait_for()
        self.settle()
        return self

    def settle(self) -> None:
        """Until nothing on the page changes any more."""
        self.ask("settled")

    def ask(self, what: str, *given: Any) -> Any:
        """What ``every_app.js`` answers."""
        return self.page.evaluate(
            "([what, given]) => window.everyApp[what](...given)", [what, list(given)]
        )

    def look(self, scheme: str) -> None:
        """Turn the system to light or dark and wait until the page has followed."""
        self.page.emulate_media(color_scheme=scheme)
        self.page.locator(f"body.{scheme}").wait_for()
        self.page.locator(f"[data-testid=panel][data-look={scheme}]").first.wait_for()
        self.settle()

    def pictures(self) -> tuple[int, list[str]]:
        """How many pictures there are, and those without a text alternative."""
        found = self.ask("pictures")
        return len(found), [html for has_words, html in found if not has_words]

    def unreached(self) -> tuple[int, list[str]]:
        """How many controls there are, and those that the Tab key doesn't come to."""
        count, around = self.ask("mark"), 0
        for _ in range(3 * count + 60):
            self.page.keyboard.press("Tab")
            left, outside = self.ask("reach")
            around += outside
            if not left or around > 2:
                break
        return count, self.ask("unreached")

    def overflow(self, width: int, height: int) -> int:
        """Pixels by which the page is wider than a window of this size."""
        self.page.set_viewport_size({"width": width, "height": height})
        self.settle()
        return int(self.ask("wider"))

    def query(self) -> dict[str, str]:
        """The scene's part of the address."""
        given = parse_qs(urlsplit(self.page.url).query, keep_blank_values=True)
        return {key: values[-1] for key, values in given.items() if key not in FOREIGN}

    def notes(self) -> list[str]:
        return list(self.page.get_by_test_id("notes").locator("p").all_inner_texts())

    def turn_something(self) -> None:
        """Turn one control after the other until the address tells of it."""
        before, tried = self.page.url, []
        while self.page.url == before:
            key = self.ask("turn", None, None, tried)
            assert key, f"nothing happened on turning {tried}"
            tried.append(key)
            with contextlib.suppress(TimeoutError):
                self.page.wait_for_url(lambda url: url != before, timeout=10_000)
        self.settle()

    def rows(self) -> set[str]:
        """Keys of all controls that come from the scene's table."""
        found = self.panel.locator("[data-row]")
        return set(found.evaluate_all("nodes => nodes.map(node => node.dataset.row)"))


def violations(page: Any) -> list[str]:
    """What axe finds on a page against WCAG A and AA, a line each with the first places."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    options = {"runOnly": {"type": "tag", "values": WCAG}, "resultTypes": ["violations"]}
    found = page.evaluate("([what, options]) => axe.run(what, options)", [LOOKED_AT, options])
    found = found["violations"]
    return [f"{each['id']}: {each['help']}: {_places(each['nodes'])}" for each in found]


def _places(nodes: list[dict[str, Any]]) -> str:
    return "; ".join(f"{n['html'][:160]} ({n['failureSummary'][:300]})" for n in nodes[:3])


@cache
def tables(app: lab.App) -> list[type[Table]]:
    """The scenes that the app's imports bring: classes on :class:`Table`."""
    found: dict[str, type[Table]] = {}
    for node in ast.walk(ast.parse(app.path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("vla."):
            for each in _tables_in(importlib.import_module(str(node.module))):
                found[each.__qualname__] = each
    return list(found.values())


def _tables_in(module: types.ModuleType) -> list[type[Table]]:
    classes = (value for value in vars(module).values() if isinstance(value, type))
    return [value for value in classes if issubclass(value, Table) and value is not Table]


def table_of(app: lab.App, rows: set[str]) -> type[Table]:
    """The one of :func:`tables` that these controls belong to."""
    for each in tables(app):
        if rows and rows <= {knob.key for knob in each.knobs().values()}:
            return each
    raise AssertionError(f"{app.path.name}: no scene has {sorted(rows)}")
