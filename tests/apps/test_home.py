"""The front page in a real Chromium: it reads well, and each link of the tour shows its scene."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from every_app import SCRIPT, violations

from vla import home
from vla.lab import find_apps

STOPS = home.tour(find_apps())

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def page(contexts: Callable[..., Any], lab: Any) -> Any:
    page = contexts(color_scheme="light").new_page()
    page.add_init_script(SCRIPT)
    page.goto(lab.address)
    return page


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    assert violations(page) == []


def test_it_fits_a_phone_and_a_laptop(page: Any) -> None:
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 720})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_picture_is_there(page: Any) -> None:
    page.locator("footer, #own-rule").last.scroll_into_view_if_needed()
    for picture in page.locator("img").all():
        picture.scroll_into_view_if_needed()
        picture.evaluate("node => node.decode()")


def test_tab_goes_through_the_apps_and_the_tour(page: Any) -> None:
    links = page.locator("a").evaluate_all("nodes => nodes.map(node => node.href)")
    assert len(links) == 1 + len(find_apps()) + len(STOPS)
    page.evaluate("scrollTo(0, 0); document.activeElement?.blur()")
    reached = []
    for _ in links:
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.href"))
    assert sorted(reached) == sorted(links)


def test_each_link_of_the_tour_opens_the_scene_that_it_names(
    page: Any, contexts: Callable[..., Any]
) -> None:
    hrefs = page.locator("#tour a").evaluate_all("nodes => nodes.map(node => node.href)")
    visit = contexts().new_page()
    for href, stop in zip(hrefs, STOPS, strict=True):
        visit.goto(href, wait_until="commit")
        question = home.prepared(stop.slug)[stop.scene].question
        visit.locator(".words h1").get_by_text(question, exact=True).wait_for()
        assert visit.get_by_test_id("preset").input_value() == stop.scene
        assert visit.get_by_test_id("notes").inner_text() == ""
    visit.get_by_role("link", name="All apps").click()
    visit.get_by_role("heading", name="Five minutes").wait_for()
    visit.close()


def test_an_address_beyond_all_measure_is_told_in_words(
    contexts: Callable[..., Any], lab: Any
) -> None:
    context = contexts()
    page = context.new_page()
    page.goto(f"{lab.address}step/?text={'x' * 60_000}")
    page.get_by_role("heading", name="This address is too long").wait_for()
    assert violations(page) == []
    faults = dict(contexts.opened)[context].faults  # type: ignore[attr-defined]
    assert [fault.partition("status of ")[2] for fault in faults] == ["414 (Request-URI Too Long)"]
    faults.clear()
    page.get_by_role("link", name="see all apps").click()
    page.get_by_role("heading", name="A rule of your own").wait_for()
