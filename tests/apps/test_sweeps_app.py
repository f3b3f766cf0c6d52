"""The sweeps app in a real Chromium: runs on show, picked, trained, stopped, resumed."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

sys.path.append(str(Path(__file__).parents[1]))

import sweep_rows

from vla.scene.sweeps import SWEEPS, Sweeps, SweepsSession
from vla.train import Store

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded experiment and a run store with another."""
    folder = tmp_path_factory.mktemp("sweeps")
    sweep_rows.record(folder)
    sweep_rows.store(folder / "runs.sqlite")
    return folder


@pytest.fixture(scope="module")
def address(start_lab: Callable[..., Any], place: Path) -> Iterator[str]:
    """A laboratory of its own: this one trains, and not into anybody's run store."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLA_DATA", str(place))
        patch.setenv("VLA_STORE", str(place / "runs.sqlite"))
        lab = start_lab()
        yield lab.address
        lab.close()


def visit(context: Any, address: str, query: dict[str, str]) -> Any:
    page = context.new_page()
    page.goto(f"{address}sweeps/?{urlencode(query)}")
    page.get_by_test_id("panel").wait_for()
    page.get_by_test_id("sheet").wait_for()
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    return page


def control(page: Any, key: str) -> Any:
    return page.locator(f"[data-testid='choice'][data-key='{key}']")


def wait_for_scene(page: Any, scene: Sweeps) -> None:
    """Until the address says exactly this scene."""
    page.wait_for_function(
        """wanted => {
            const here = Object.fromEntries(new URLSearchParams(location.search));
            return JSON.stringify(Object.entries(here).sort())
                === JSON.stringify(Object.entries(wanted).sort());
        }""",
        arg=scene.to_query(),
    )


def learned(page: Any, scene: Sweeps, place: Path) -> None:
    """Until the learning curves of the picked runs are drawn, or gone if none is."""
    wait_for_scene(page, scene)
    wanted = SweepsSession(scene.to_query(), store=place / "runs.sqlite").learning()
    if wanted is None:
        page.locator(".js-plotly-plot").nth(1).wait_for(state="detached")
    else:
        page.locator(f'[role=figure][aria-label="{wanted.layout.meta["alt"]}"]').wait_for()
        page.locator(".js-plotly-plot").nth(1).locator(".main-svg").first.wait_for()
    page.wait_for_timeout(500)  # Plotly fits its margins in a second pass, and minds interruption.


def cells(page: Any, column: str) -> list[str]:
    return page.locator(f"[data-testid=cell][data-column='{column}']").evaluate_all(
        "nodes => nodes.map(node => node.dataset.value)"
    )


def assert_shows(page: Any, scene: Sweeps, place: Path) -> None:
    """Address, every row of the table and the picture's words agree with the library's."""
    wait_for_scene(page, scene)
    wanted = SweepsSession(scene.to_query(), store=place / "runs.sqlite")
    page.locator(f'[role=figure][aria-label="{wanted.words()}"]').wait_for()
    if wanted.entries():
        page.locator(f"[data-testid=entry][data-id='{wanted.entries()[-1].id}']").wait_for()
    shown = {k: float(x) for k, x in zip(cells(page, "key"), cells(page, "test"), strict=True)}
    assert shown == {e.id: e.values["test"] for e in wanted.entries()}
    assert wanted.answer() in page.locator(".words").inner_text()


@pytest.fixture(scope="module")
def page(contexts: Callable[..., Any], address: str) -> Any:
    return visit(contexts(accept_downloads=True), address, {})


def test_it_opens_on_the_capacity_figure_with_every_number(page: Any, place: Path) -> None:
    assert_shows(page, Sweeps(), place)
    words = page.locator(".words").inner_text()
    assert SWEEPS["capacity"].question in words
    assert SWEEPS["capacity"].seen in words
    wanted = SweepsSession({}, store=place / "runs.sqlite")
    assert wanted.standing() in page.get_by_test_id("standing").inner_text()
    numbers = page.locator("[data-testid=number]").evaluate_all(
        "nodes => nodes.map(n => [n.dataset.lane, n.dataset.number, Number(n.dataset.value)])"
    )
    assert numbers == [[b.lane, k, x] for b in wanted.beside() for k, x in b.values.items()]
    box = page.locator(".js-plotly-plot").first.bounding_box()
    assert box["y"] + box["height"] <= 720
    assert page.evaluate("document.querySelector('#App').scrollWidth") <= 1280


def test_the_table_is_sorted_searched_and_picked_from(page: Any, place: Path) -> None:
    head = page.locator("[data-testid=sort][data-column=test]")
    head.click()
    wait_for_scene(page, Sweeps(sort="test"))
    rising = [float(x) for x in cells(page, "test")]
    assert rising == sorted(rising)
    head.click()
    wait_for_scene(page, Sweeps(sort="-test"))
    assert [float(x) for x in cells(page, "test")] == rising[::-1]
    page.get_by_test_id("find").fill("softmax 123")
    wait_for_scene(page, Sweeps(sort="-test", find="softmax 123"))
    entries = SweepsSession({}, store=place / "runs.sqlite").entries()
    found = [e for e in entries if all(any(w in x.lower() for x in e.words.values())
                                       for w in ("softmax", "123"))]  # fmt: skip
    assert page.get_by_test_id("count").inner_text() == f"{len(found)} of 60 rows"
    box = page.get_by_test_id("pick").first
    key = box.get_attribute("data-row")
    box.focus()
    page.keyboard.press("Space")
    scene = Sweeps(sort="-test", find="softmax 123", pick=key)
    learned(page, scene, place)
    control(page, "curve").select_option("loss")
    learned(page, scene.with_(quantity="loss"), place)
    control(page, "curve").select_option("accuracy")
    learned(page, scene, place)
    page.get_by_test_id("find").press("Escape")
    learned(page, Sweeps(sort="-test"), place)
    page.locator("[data-testid=sort][data-column=label]").click()
    wait_for_scene(page, Sweeps())


def test_a_clicked_point_shows_how_it_was_learned(page: Any, place: Path) -> None:
    mark = page.locator(".js-plotly-plot").first.locator(".points path").first
    box = mark.bounding_box()
    at = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.click(*at)
    page.locator(".js-plotly-plot").nth(1).locator(".main-svg").first.wait_for()
    picked = parse_qs(urlsplit(page.url).query)["pick"][0]
    learned(page, Sweeps(pick=picked), place)
    rows = SweepsSession({}, store=place / "runs.sqlite").rows
    behind = [row for row in rows if row.key[:8] in picked.split(",")]
    assert len(behind) == 3
    assert len({(row.label, row.value("task.pairs")) for row in behind}) == 1
    page.get_by_test_id("clear-picks").click()
    learned(page, Sweeps(), place)


def test_every_control_and_prepared_scene(page: Any, place: Path) -> None:
    for key, value, change in (
        ("budget", "smoke", {"budget": "smoke"}),
        ("source", "live", {"source": "live"}),
        ("experiment", "new keys", {"experiment": "new keys"}),
        ("asked", "keys trained on", {"split": "keys trained on"}),
        ("experiment", "ablation", {"experiment": "ablation"}),
        ("load", "n = 48 (Table 4)", {"load": "n = 48 (Table 4)"}),
        ("experiment", "fair", {"experiment": "fair"}),
        ("view", "learning rates", {"view": "learning rates"}),
        ("model", "vla_exact", {"model": "vla_exact"}),
    ):
        before, _ = Sweeps.from_query(
            {k: v[-1] for k, v in parse_qs(urlsplit(page.url).query).items()}
        )
        control(page, key).select_option(value)
        assert_shows(page, before.with_(**change), place)
    for name in ("rank", "capacity"):
        page.get_by_test_id("preset").select_option(name)
        page.locator(".words h1", has_text=SWEEPS[name].question).wait_for()
        assert_shows(page, SWEEPS[name].scene, place)
    page.get_by_role("button", name=SWEEPS["long"].title).click()
    assert_shows(page, SWEEPS["long"].scene, place)
    control(page, "kind").select_option("wait longer")
    assert_shows(page, SWEEPS["wait"].scene, place)
    page.get_by_test_id("preset").select_option("capacity")
    assert_shows(page, Sweeps(), place)


def test_files_are_saved_and_open(page: Any, contexts: Any, place: Path, tmp_path: Path) -> None:
    files = {}
    for button in ("save-data", "save-picture-html", "save-png"):
        with page.expect_download() as waiting:
            page.get_by_test_id(button).click()
        files[button] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(files[button])
    with open(files["save-data"], newline="") as file:
        rows = list(csv.DictReader(file))
    wanted = SweepsSession({}, store=place / "runs.sqlite").entries()
    assert [float(row["test"]) for row in rows] == [e.values["test"] for e in wanted]
    assert files["save-png"].read_bytes().startswith(b"\x89PNG")
    alone = contexts().new_page()
    alone.goto(f"file://{files['save-picture-html']}")
    alone.locator(".js-plotly-plot .main-svg").first.wait_for()
    alone.close()


def test_a_sweep_from_the_page_is_stopped_and_resumed(
    page: Any, contexts: Callable[..., Any], address: str, place: Path
) -> None:
    """Another page follows the same sweep and stays usable; the store is whole after the stop."""
    other = visit(contexts(), address, {"experiment": "new keys", "budget": "smoke"})
    other.get_by_role("button", name="Train the 4 missing runs here (smoke)").click()
    other.locator("[data-testid=job][data-status=running]").wait_for()
    third = visit(contexts(), address, {"experiment": "new keys", "budget": "smoke"})
    third.locator("[data-testid=job][data-status=running]").wait_for()
    page.get_by_test_id("preset").select_option("fair")
    assert_shows(page, SWEEPS["fair"].scene, place)
    other.get_by_test_id("job-curves").locator("svg").wait_for()
    started = time.monotonic()
    control(other, "curve").select_option("loss")
    other.wait_for_function("location.search.includes('curve=loss')")
    assert time.monotonic() - started < 5
    other.locator("[data-testid=entry]").first.wait_for()
    other.get_by_test_id("job-stop").click()
    for each in (other, third):
        each.locator("[data-testid=job][data-status=cancelled]").wait_for()
    third.close()
    with Store(place / "runs.sqlite") as store:
        assert store.problems() == []
        done = {row.key for row in store.rows(preset="table13", budget="smoke", status="done")}
        assert not store.rows(status="running")
    assert 1 <= len(done) < 4
    scene = Sweeps(experiment="new keys", budget="smoke", quantity="loss")
    assert_shows(other, scene, place)
    other.get_by_role("button", name=f"Train the {4 - len(done)} missing runs").click()
    other.locator("[data-testid=entry]").nth(len(done)).wait_for()
    other.get_by_test_id("job-stop").click()
    other.locator("[data-testid=job]:not([data-status=running])").wait_for()
    with Store(place / "runs.sqlite") as store:
        more = {row.key for row in store.rows(preset="table13", budget="smoke", status="done")}
    assert done < more
    badges = other.locator("[data-testid=cell][data-column=source]").all_inner_texts()
    assert badges
    assert all(text.startswith("live: ") for text in badges)
    other.close()


def test_a_bad_link_on_a_dark_phone(contexts: Callable[..., Any], address: str) -> None:
    context = contexts(viewport={"width": 390, "height": 844}, color_scheme="dark")
    query = {
        "experiment": "<script>1</script>", "pick": "<b>x</b>,zz", "sort": "what", "budget": "9",
        "find": "x" * 5000,
    }  # fmt: skip
    page = visit(context, address, query)
    page.get_by_test_id("notes").locator("p").nth(4).wait_for()
    assert page.evaluate("document.querySelector('#App').scrollWidth") <= 390
    assert "Traceback" not in page.inner_text("body")
    page.wait_for_function("location.search === ''")
    page.close()
