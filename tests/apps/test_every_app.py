"""What holds for every app of the laboratory; a new file in apps/ is tested with no word here.

Accessibility by axe in light and dark, keyboard, text alternatives, width, and hostile addresses.
Console errors, requests off this machine and dialogs fail a test through ``no_faults``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from every_app import Page, table_of, tables, violations

from vla import lab
from vla.scene.table import Table

APPS = lab.find_apps()
each_app = pytest.mark.parametrize("app", APPS, ids=lambda app: app.slug)

IMAGE = "<img src=x onerror=window.hacked=1>"
HOSTILE: dict[str, tuple[str, ...]] = {
    "int": ("NaN", "1e3", "-99999", "99999999999", IMAGE, "x" * 5000, "", "3.5", "٣٣٣٣٣٣"),
    "float": ("NaN", "inf", "-1e300", "1e300", IMAGE, "9" * 5000, "", "0,5", "1_0_0_0_0_0_0"),
    "choice": ("NaN", IMAGE, "x" * 5000, "", "__class__", "12"),
    "flag": ("NaN", IMAGE, "2", "", "x" * 5000),
    "names": (IMAGE, "NaN,x", "x" * 5000, ",", "vla,<b>,vla"),
    "text": ("x" * 5000, IMAGE, "NaN", "", "\x00\u202e'\";--", "?"),
}
"""Texts that no knob of the kind takes as they are, or that are words to be shown as words."""
STRANGERS = {"<script>window.hacked=1</script>": "1", "__proto__": IMAGE, "x" * 300: "y"}


def hostile(table: type[Table], turn: int) -> dict[str, str]:
    """An address in which every knob has a text that means nothing; ``turn`` chooses which."""
    places = count(turn)
    values = {
        knob.key: HOSTILE[knob.kind][next(places) % len(HOSTILE[knob.kind])]
        for knob in table.knobs().values()
    }
    return {**values, **STRANGERS}


# Without a browser: every knob with every text.


@each_app
def test_every_hostile_value_is_repaired_with_a_message(app: lab.App) -> None:
    assert tables(app)
    for table in tables(app):
        for name, knob in table.knobs().items():
            for text in HOSTILE[knob.kind]:
                scene, messages = table.from_query({knob.key: text})
                again, more = table.from_query(scene.to_query())
                assert (again, more) == (scene, []), (knob.key, text[:40])
                untouched = getattr(scene, name) == text
                assert messages or untouched or knob.kind in ("text", "names", "float", "int")
                assert all(len(message) < 600 for message in messages)


@each_app
def test_no_address_raises(app: lab.App) -> None:
    for table in tables(app):
        for turn in range(9):
            scene, messages = table.from_query(hostile(table, turn))
            assert len(messages) >= len(STRANGERS)
            assert table.from_query(scene.to_query()) == (scene, [])


# In a browser: one visit for what is only looked at.


@pytest.fixture(scope="module", params=APPS, ids=lambda app: app.slug)
def visit(request: pytest.FixtureRequest, contexts: Callable[..., Any], lab: Any) -> Iterator[Page]:
    """The app as it opens, shared by the tests that change nothing."""
    context = contexts(color_scheme="light")
    yield Page(context, lab.address, request.param).ready()
    context.close()


def in_browser(test: Any) -> Any:
    return pytest.mark.browser(pytest.mark.timeout(240)(test))


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(visit: Page, scheme: str) -> None:
    visit.look(scheme)
    assert violations(visit.page) == []


@in_browser
def test_every_picture_has_words(visit: Page) -> None:
    pictures, nameless = visit.pictures()
    assert pictures
    assert nameless == []


@in_browser
def test_tab_reaches_every_control(visit: Page) -> None:
    controls, unreached = visit.unreached()
    assert controls > 3
    assert unreached == []


@in_browser
@pytest.mark.parametrize("size", [(390, 844), (1280, 720)], ids=["phone", "laptop"])
def test_nothing_is_wider_than_the_window(visit: Page, size: tuple[int, int]) -> None:
    assert visit.overflow(*size) <= 0


# Another visitor, on a phone and with a bad address.


@in_browser
def test_a_bad_address_is_repaired_and_visitors_do_not_meet(
    visit: Page, contexts: Callable[..., Any], lab: Any
) -> None:
    table = table_of(visit.app, visit.rows())
    texts = {knob.key: IMAGE for knob in table.knobs().values() if knob.kind == "text"}
    query = {**hostile(table, 4), **texts}
    before = visit.ask("state")
    context = contexts(viewport={"width": 390, "height": 844})
    other = Page(context, lab.address, visit.app, query).ready()
    assert_repaired(other, table, query)
    assert_typed_nonsense_is_told(other)
    other.turn_something()
    assert_harmless(other)
    assert visit.ask("state") == before
    context.close()


def assert_repaired(page: Page, table: type[Table], query: dict[str, str]) -> None:
    scene, messages = table.from_query(query)
    told = [plain(note) for note in page.notes()]
    for message in messages:
        assert plain(message) in told
    shown, left = table.from_query(page.query())
    assert left == []
    for name, knob in table.knobs().items():
        if knob.group != "View":
            assert getattr(shown, name) == getattr(scene, name), name
    assert_harmless(page)


def assert_typed_nonsense_is_told(page: Page) -> None:
    before = page.query()
    keys = page.ask("typeIntoNumbers", f"NaN{IMAGE}")
    if not keys:
        return
    for key in keys:
        page.page.get_by_test_id("notes").get_by_text(f"{key}: “NaN").first.wait_for()
    page.settle()
    assert page.query() == before
    assert_harmless(page)


def assert_harmless(page: Page) -> None:
    """No markup was run or drawn, and no fault of the program is on the page."""
    assert page.page.evaluate("window.hacked ?? null") is None
    assert page.ask("drawn", 'img[src="x"]') == 0
    text = page.ask("words")
    for fault in ("Traceback", "This cell raised an exception", "Internal Server Error"):
        assert fault not in text


def plain(words: str) -> str:
    return " ".join(words.split())
