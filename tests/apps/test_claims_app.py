"""The claims app in a real Chromium: filters, deep links, and a check that runs behind the page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from vla.claims import CLAIMS, current, ordered
from vla.scene.claims import VIEWS, Claims, ClaimsSession

pytestmark = [pytest.mark.timeout(180)]
browser_test = pytest.mark.browser


@pytest.fixture(scope="module")
def session() -> ClaimsSession:
    return ClaimsSession({})


def test_filters_show_what_they_say(session: ClaimsSession) -> None:
    entries = session.entries
    for scene in (
        Claims(section="README"), Claims(verdict="fails"), Claims(words="softmax copy"),
        Claims(section="4 Theory", verdict="holds"), Claims(claim="table-9"),
    ):  # fmt: skip
        session.scene = scene
        shown = session.shown()
        assert 0 < len(shown) < len(CLAIMS)
        assert all(scene.section in ("all", each.section) for each in shown)
        assert all(scene.verdict in ("all", entries[e.id].finding.verdict) for e in shown)
    assert [each.id for each in shown] == ["table-9"]
    session.scene = Claims(words="no such words anywhere")
    assert "loosen the filter" in session.standing()
    assert len(session.to_csv().splitlines()) == 1
    session.open("all")
    assert len(session.to_csv().splitlines()) > len(CLAIMS)


@pytest.mark.parametrize("name", VIEWS)
def test_what_a_prepared_view_says_is_so(name: str, session: ClaimsSession) -> None:
    """Answers about single claims are those of the ledger."""
    session.open(name)
    assert session.preset == name
    assert session.shown()
    verdict = {id: entry.finding.verdict for id, entry in session.entries.items()}
    assert verdict["proposition-2"] == "fails"
    assert verdict["readme-mqar-24"] == "holds"
    assert verdict["readme-stable-10m"] == "changed"


def test_a_bad_address_is_repaired(session: ClaimsSession) -> None:
    other = ClaimsSession({"section": "<b>", "claim": "proposition-999", "words": "x" * 500})
    assert other.scene == Claims()
    assert len(other.controls.notes) == 3
    assert len(other.shown()) == len(session.entries)
    assert {each.id for each in ClaimsSession({"claim": "table-5"}).shown()} == {
        id for id in CLAIMS if "table-5" in id
    }


def test_a_press_that_means_nothing_does_nothing(session: ClaimsSession) -> None:
    session.open("all")
    session.pressed({"asked": [1, "open", "nonsense"]})
    session.pressed({"asked": [2, "full", "readme-symbolic"]})
    assert not session.live.running
    assert session.scene == Claims()


def visit(context: Any, address: str, query: dict[str, str]) -> Any:
    page = context.new_page()
    page.goto(f"{address}claims/?{urlencode(query)}")
    page.get_by_test_id("panel").wait_for()
    page.locator("[data-testid=claim]:visible").first.wait_for()
    return page


def query(page: Any) -> dict[str, str]:
    return {key: values[-1] for key, values in parse_qs(urlsplit(page.url).query).items()}


def wait_shown(page: Any, wanted: list[str]) -> None:
    page.locator("[data-testid=cards]").wait_for()
    for _ in range(200):
        seen = page.locator("[data-testid=claim]").evaluate_all(
            "nodes => nodes.filter(n => !n.hidden).map(n => n.dataset.claim)"
        )
        if seen == wanted:
            return
        page.wait_for_timeout(50)
    assert seen == wanted


@pytest.fixture(scope="module")
def page(contexts: Callable[..., Any], lab: Any) -> Any:
    return visit(contexts(accept_downloads=True), lab.address, {})


@browser_test
def test_filter_by_section_and_verdict_and_link_to_a_claim(page: Any) -> None:
    entries = current()
    wait_shown(page, [each.id for each in ordered()])
    page.locator("[data-testid=choice][data-key=section]").select_option("4 Theory")
    wait_shown(page, [each.id for each in ordered() if each.section == "4 Theory"])
    page.locator("[data-testid=choice][data-key=verdict]").select_option("holds")
    both = [each.id for each in ordered() if each.section == "4 Theory"
            and entries[each.id].finding.verdict == "holds"]  # fmt: skip
    wait_shown(page, both)
    assert query(page) == {"section": "4 Theory", "verdict": "holds"}
    page.locator(f"article[data-claim={both[0]}] h3 a").click()
    wait_shown(page, both[:1])
    page.wait_for_url(lambda url: f"claim={both[0]}" in url)


@browser_test
def test_proposition_2_is_three_clicks_away_and_its_counter_example_moves(page: Any) -> None:
    page.goto(urlsplit(page.url)._replace(path="/", query="").geturl())
    page.locator("a[href*='claims/']").first.click()
    page.locator("article[data-claim=proposition-2] h3 a").click()
    wait_shown(page, ["proposition-2"])
    card = page.locator("article[data-claim=proposition-2]")
    assert "fails" in card.locator(".verdict").inner_text()
    assert card.locator("svg[role=img]").get_attribute("aria-label")
    card.locator(".scenes a").first.click()
    stepper = page.get_by_test_id("stepper")
    stepper.wait_for()
    before = stepper.get_attribute("data-step")
    page.keyboard.press("ArrowRight")
    page.wait_for_function(
        """before => {
            const find = (root) => root.querySelector('[data-testid=stepper]')
                || [...root.querySelectorAll('*')].map(n => n.shadowRoot && find(n.shadowRoot))
                    .find(Boolean);
            return find(document)?.dataset.step !== before;
        }""",
        arg=before,
    )


@browser_test
def test_a_check_runs_behind_the_page_and_its_card_is_new(
    contexts: Callable[..., Any], lab: Any
) -> None:
    page = visit(contexts(), lab.address, {"claim": "section-7-2"})
    button = page.locator("article[data-claim=section-7-2] [data-testid=run-cheap]")
    button.click()
    page.locator("[data-testid=job][data-status=running]").wait_for()
    page.locator("[data-testid=job][data-status=done]").wait_for(timeout=90_000)
    page.locator("article.chosen[data-claim=section-7-2]").wait_for()
    assert (
        page.locator("article[data-claim=section-7-2]").get_attribute("data-verdict") == "changed"
    )
    page.close()


@browser_test
def test_it_prints_without_controls_and_cuts_nothing_off(
    contexts: Callable[..., Any], lab: Any
) -> None:
    page = visit(contexts(), lab.address, {"section": "4 Theory"})
    page.emulate_media(media="print")
    assert not page.get_by_test_id("panel").is_visible()
    assert not page.locator("[data-testid=run-cheap]").first.is_visible()
    last = page.locator("[data-testid=claim]:visible").last
    assert last.bounding_box()["y"] > 3000
    pages = page.pdf().count(b"/Type /Page\n")
    assert 4 <= pages <= 40
    page.close()
