"""The stability app in a real Chromium: what is on screen is what the library computes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from vla.scene.stability import STABILITY, Stability, StabilitySession

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

START = {"T": "60", "d": "4"}


def finished(scene: Stability) -> StabilitySession:
    """The library's own run of a scene, to its end."""
    session = StabilitySession(scene.to_query())
    while session._work:
        session._advance(10)
    return session


def visit(context: Any, address: str, query: dict[str, str]) -> Any:
    page = context.new_page()
    page.goto(f"{address}stability/?{urlencode(query)}")
    page.get_by_test_id("panel").wait_for()
    page.get_by_text("All apps").wait_for()
    return page


def control(page: Any, kind: str, key: str) -> Any:
    return page.locator(f"[data-testid='{kind}'][data-key='{key}']")


def assert_shows(page: Any, scene: Stability) -> None:
    """Address and every number agree with the scene."""
    wanted = {f"{cell.lane}|{cell.name}": repr(cell.value) for cell in finished(scene).cells()}
    page.wait_for_function(
        """([query, wanted]) => {
            const here = Object.fromEntries(new URLSearchParams(location.search));
            const nodes = [...document.querySelectorAll('.numbers [data-testid=number]')];
            const shown = Object.fromEntries(
                nodes.map(n => [`${n.dataset.lane}|${n.dataset.number}`, n.dataset.value]));
            const near = (a, b) => Math.abs(a - b) <= 1e-9 * Math.max(1, Math.abs(b));
            const names = Object.keys(wanted);
            return JSON.stringify(Object.entries(here).sort())
                    === JSON.stringify(Object.entries(query).sort())
                && names.length === nodes.length
                && names.every(name => near(Number(shown[name]), Number(wanted[name])));
        }""",
        arg=[scene.to_query(), wanted],
    )


@pytest.fixture(scope="module")
def page(contexts: Callable[..., Any], lab: Any) -> Any:
    return visit(contexts(accept_downloads=True), lab.address, START)


def test_every_control_changes_the_numbers(page: Any) -> None:
    scene = Stability(length=60, d=4)
    assert_shows(page, scene)
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    changes = [
        ("number-input", "lambda0", "0.5", {"lambda0": 0.5}),
        ("number-input", "refresh", "5", {"refresh_every": 5}),
        ("number-input", "epsilon_r", "0.01", {"refresh_eps": 0.01}),
        ("number-input", "T", "90", {"length": 90}),
        ("number-input", "d", "5", {"d": 5}),
        ("number-input", "seed", "3", {"seed": 3}),
        ("choice", "keys", "elu+1", {"keys": "elu+1"}),
        ("choice", "u", "token", {"direction": "token"}),
        ("choice", "view", "eigenvalues", {"view": "eigenvalues"}),
        ("choice", "view", "transition", {"view": "transition"}),
    ]
    for kind, key, value, change in changes:
        if kind == "choice":
            control(page, kind, key).select_option(value)
        else:
            control(page, kind, key).fill(value)
            control(page, kind, key).press("Enter")
        scene = scene.with_(**change)
        assert_shows(page, scene)
    control(page, "rule", "linear").set_checked(False)
    assert_shows(page, scene.with_(lanes=("delta", "vla", "rls")))


def test_prepared_scenes_and_their_words(page: Any) -> None:
    for name in ("proposition", "table2", "growth"):
        page.get_by_test_id("preset").select_option(name)
        page.locator(".words h1", has_text=STABILITY[name].question).wait_for()
        assert STABILITY[name].answer in page.locator(".words").inner_text()
        assert_shows(page, STABILITY[name].scene)
        words = finished(STABILITY[name].scene).words()
        page.locator(f'[role=figure][aria-label="{words}"]').wait_for()


def test_a_long_run_shows_progress_and_stops(page: Any, tmp_path: Path) -> None:
    control(page, "rule", "gated_delta").set_checked(True)
    control(page, "number-input", "T").fill("100000")
    control(page, "number-input", "T").press("Enter")
    page.get_by_test_id("progress").wait_for()
    page.get_by_test_id("stop").click()
    page.get_by_test_id("notes").get_by_text("Stopped at").wait_for()
    page.get_by_test_id("work").wait_for(state="hidden")
    with page.expect_download() as waiting:
        page.get_by_test_id("save-data").click()
    waiting.value.save_as(tmp_path / "data.csv")
    assert (tmp_path / "data.csv").read_text().startswith("rule,step,norm_S")


def test_a_bad_link_on_a_dark_phone(contexts: Callable[..., Any], lab: Any) -> None:
    context = contexts(viewport={"width": 390, "height": 844}, color_scheme="dark")
    query = {"T": "<script>", "d": "999", "rules": "<b>", "what": "1", "view": "table 2"}
    page = visit(context, lab.address, query)
    page.get_by_test_id("notes").locator("p").nth(3).wait_for()
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert page.evaluate("document.querySelector('#App').scrollWidth") <= 390
    assert "Traceback" not in page.inner_text("body")
    page.close()
