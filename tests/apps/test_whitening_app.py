"""The whitening app in a real Chromium: what is on screen is what the library computes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from every_app import violations

from vla.scene.whitening import MAPPED, WHITENING, Whitening, drawn, map_csv, to_csv

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]


class PlanePage:
    """One page of the app. Every method waits for what it names."""

    def __init__(
        self, context: Any, address: str, query: dict[str, str] | None = None,
        shows: str = "picture",
    ) -> None:  # fmt: skip
        self.page = context.new_page()
        self.page.goto(f"{address}whitening/?{urlencode(query or {})}")
        self.picture = self.page.get_by_test_id("picture")
        self.page.get_by_test_id(shows).wait_for()
        self.page.get_by_test_id("panel").wait_for()
        self.page.get_by_text("All apps").wait_for()

    def wait_for(self, scene: Whitening) -> None:
        """Until the picture has these keys and this step, and the address says so."""
        self.page.wait_for_function(
            """wanted => {
                const here = Object.fromEntries(new URLSearchParams(location.search));
                return JSON.stringify(Object.entries(here).sort())
                    === JSON.stringify(Object.entries(wanted).sort());
            }""",
            arg=scene.to_query(),
        )
        if scene.show == "map":
            self.page.get_by_test_id("map-grid").wait_for()
            return
        pairs = (a if isinstance(a, tuple) else (a,) for a in scene.angles)
        keys = ",".join("/".join(f"{x:g}" for x in pair) for pair in pairs)
        self.page.locator(
            f"[data-testid=picture][data-keys='{keys}'][data-step='{scene.step}']"
        ).wait_for()

    def shown(self) -> dict[tuple[str, str], float]:
        """Every number on screen at full precision."""
        rows = self.page.get_by_test_id("number").evaluate_all(
            "nodes => nodes.map(n => [n.dataset.lane, n.dataset.number, n.dataset.value])"
        )
        return {(lane, name): float(value) for lane, name, value in rows if value}

    def control(self, kind: str, key: str) -> Any:
        return self.page.locator(f"[data-testid='{kind}'][data-key='{key}']")


def expected(scene: Whitening) -> dict[tuple[str, str], float]:
    """The library's numbers for this scene."""
    shown = scene.geometry()
    now = shown.moments[scene.step]
    if scene.step == 0:
        return {}
    numbers = {
        ("step", "rho"): shown.rho, ("step", "cosine"): now.cosine, ("step", "delta"): now.delta,
        ("step", "long"): now.axes[0], ("step", "short"): now.axes[-1],
        ("step", "apart"): now.apart,
    }  # fmt: skip
    if len(now.axes) == 3:
        numbers["step", "middle"] = now.axes[1]
    if now.overlaps:
        numbers["step", "overlap"] = now.overlaps[0]
    for each in now.written:
        values = {
            "length": each.length, "aligned": each.aligned, "residual": each.residual,
            "left": each.left, "worst": each.worst_old,
        }  # fmt: skip
        numbers |= {(each.gain, name): value for name, value in values.items()}
    return {name: value for name, value in numbers.items() if math.isfinite(value)}


def assert_shows(app: PlanePage, scene: Whitening) -> None:
    app.wait_for(scene)
    if scene.show == "map":
        assert_maps(app, scene)
        return
    wanted = expected(scene)
    app.page.wait_for_function(
        """wanted => wanted.every(([lane, name, value]) => {
            const find = root => [root, ...[...root.querySelectorAll('*')].map(n => n.shadowRoot)
                .filter(Boolean)].map(r => r === root
                    ? r.querySelector(`[data-lane="${lane}"][data-number="${name}"]`)
                    : find(r)).find(Boolean);
            const node = find(document);
            return node && Math.abs(Number(node.dataset.value) - value) < 1e-9;
        })""",
        arg=[[lane, name, value] for (lane, name), value in wanted.items()],
    )
    assert app.shown() == pytest.approx(wanted, abs=1e-9)


def assert_maps(app: PlanePage, scene: Whitening) -> None:
    """Every cell has the library's number, and the address of the trace behind it."""
    drawn_ = drawn(scene)
    app.page.locator(f"[data-testid=map][data-title='{drawn_['title']}']").wait_for()
    cells = app.page.get_by_test_id("cell").evaluate_all(
        "nodes => nodes.map(n => [Number(n.dataset.value), n.getAttribute('href')])"
    )
    wanted = getattr(scene.map(), scene.measure).flatten().tolist()
    assert [value for value, _ in cells] == pytest.approx(wanted)
    assert [link for _, link in cells] == [link for row in drawn_["links"] for link in row]
    assert not app.picture.is_visible()


@pytest.fixture(scope="module")
def shared(contexts: Callable[..., Any], lab: Any) -> PlanePage:
    return PlanePage(contexts(accept_downloads=True), lab.address)


@pytest.fixture
def app(shared: PlanePage) -> PlanePage:
    """The shared page, back on the first scene."""
    picker = shared.page.get_by_test_id("preset")
    if picker.input_value() != "claim":
        picker.select_option("claim")
    elif shared.picture.get_attribute("data-step") != "2":
        shared.page.locator("[data-testid=tile][data-step='2']").click()
    shared.wait_for(Whitening())
    return shared


def test_it_opens_on_an_explained_scene_that_fits(app: PlanePage) -> None:
    preset = WHITENING["claim"]
    words = app.page.locator(".words").inner_text()
    for part in (preset.question, preset.seen, preset.answer):
        assert part in words
    assert_shows(app, Whitening())
    foot = app.picture.bounding_box()
    assert foot["y"] + foot["height"] <= 720
    assert app.page.evaluate("document.querySelector('#App').scrollWidth") <= 1280


def test_every_prepared_scene_shows_its_numbers(app: PlanePage) -> None:
    for name, preset in WHITENING.items():
        app.page.get_by_test_id("preset").select_option(name)
        assert_shows(app, preset.scene)
        app.page.locator(".words h1", has_text=preset.question).wait_for()


def test_an_arrow_is_dragged(app: PlanePage) -> None:
    box = app.page.get_by_test_id("plane").bounding_box()
    middle, radius = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2), box["width"] / 2
    start = app.page.locator("[data-testid=arrow][data-key='2'] circle").bounding_box()
    app.page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    app.page.mouse.down()
    app.page.mouse.move(middle[0], middle[1] - radius, steps=4)
    app.page.mouse.up()
    assert_shows(app, Whitening(keys="0, 90"))


def test_an_arrow_is_moved_by_keys(app: PlanePage) -> None:
    app.page.locator("[data-testid=arrow][data-key='1']").focus()
    app.page.keyboard.press("ArrowLeft")
    app.page.keyboard.press("PageDown")
    app.page.keyboard.press("Shift+ArrowUp")
    assert_shows(app, Whitening(keys="1, 53.1"))


def test_knobs_keys_and_steps(app: PlanePage) -> None:
    page = app.page
    app.control("number-input", "lambda0").fill("0.5")
    app.control("number-input", "lambda0").press("Enter")
    assert_shows(app, Whitening(lambda0=0.5))
    app.control("range", "turn").focus()
    page.keyboard.press("ArrowRight")
    assert_shows(app, Whitening(lambda0=0.5, turn=1.0))
    app.control("choice", "update").select_option("pre")
    assert_shows(app, Whitening(lambda0=0.5, turn=1.0, update="pre"))
    page.get_by_test_id("add-key").click()
    scene = Whitening(lambda0=0.5, turn=1.0, update="pre", keys="0, 53.1, 93.1", step=3)
    assert_shows(app, scene)
    page.get_by_test_id("back").click()
    assert_shows(app, scene.with_(step=2))
    page.locator("[data-testid=tile][data-step='0']").click()
    assert_shows(app, scene.with_(step=0))
    page.get_by_test_id("next").click()
    assert_shows(app, scene.with_(step=1))
    page.get_by_test_id("remove-key").click()
    assert_shows(app, scene.with_(step=1, keys="0, 53.1"))
    app.control("words", "keys").fill("10, 20, 30")
    assert_shows(app, scene.with_(keys="10, 20, 30", step=1))
    for key in ("lambda0", "turn", "update"):
        app.control("reset", key).click()
    assert_shows(app, Whitening(keys="10, 20, 30", step=1))


def test_an_arrow_in_space_is_dragged_and_moved_by_keys(app: PlanePage) -> None:
    """Seen from straight above, up the page is +y: a tip dragged there has azimuth 90."""
    page = app.page
    app.control("choice", "show").select_option("space")
    scene = Whitening(show="space")
    assert_shows(app, scene)
    app.control("words", "keys").fill("0/0, 53.1/60")
    scene = scene.with_(keys="0/0, 53.1/60")
    assert_shows(app, scene)
    page.locator("[data-testid=arrow][data-key='2']").focus()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("PageUp")
    scene = scene.with_(keys="0/0, 54.1/76")
    assert_shows(app, scene)
    box = page.get_by_test_id("plane").bounding_box()
    x, y = box["x"] + 12, box["y"] + 12
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x, y + 150, steps=5)
    page.mouse.move(x + 50, y + 150, steps=2)
    page.mouse.up()
    scene = scene.with_(yaw=0.0, pitch=90.0)
    assert_shows(app, scene)
    start = page.locator("[data-testid=arrow][data-key='1'] circle").bounding_box()
    page.mouse.move(start["x"] + start["width"] / 2, start["y"] + start["height"] / 2)
    page.mouse.down()
    radius = 130 * box["width"] / 344
    page.mouse.move(
        box["x"] + box["width"] / 2, box["y"] + box["height"] / 2 - 1.1 * radius, steps=4
    )
    page.mouse.up()
    assert_shows(app, scene.with_(keys="90/0, 54.1/76"))
    page.get_by_test_id("add-key").click()
    assert_shows(app, scene.with_(keys="90/0, 54.1/76, 94.1/76", step=3))


def test_the_map_and_its_knobs(app: PlanePage) -> None:
    app.control("choice", "show").select_option("map")
    scene = Whitening(show="map")
    assert_shows(app, scene)
    assert not app.page.locator("[data-row=lambda0]").is_visible()
    for rule in (*list(MAPPED)[1:], "unit"):
        app.control("choice", "rule").select_option(rule)
        assert_shows(app, scene.with_(rule=rule))
    app.control("choice", "measure").select_option("size")
    app.control("choice", "rule").select_option("rls")
    scene = scene.with_(measure="size", rule="rls")
    assert_shows(app, scene)
    for key, value in (("n", 9), ("seed", 3)):
        app.control("number-input", key).fill(str(value))
        app.control("number-input", key).press("Enter")
        scene = scene.with_(**{key: value})
        assert_shows(app, scene)
    with app.page.expect_download() as waiting:
        app.page.get_by_test_id("save-data").click()
    assert Path(waiting.value.path()).read_text() == map_csv(scene)
    with app.page.expect_download() as waiting:
        app.page.get_by_test_id("save-map").click()
    saved = Path(waiting.value.path()).read_text()
    assert saved.startswith("<svg")
    assert saved.count("<rect") == 1 + 12 * 11
    assert drawn(scene)["title"] in saved


def test_space_and_map_can_be_read_by_all(app: PlanePage) -> None:
    for show in ("space", "map"):
        app.control("choice", "show").select_option(show)
        assert_shows(app, Whitening(show=show))
        assert violations(app.page) == []


def test_a_cell_opens_its_trace(contexts: Callable[..., Any], lab: Any) -> None:
    """By keyboard; the stepper's last step has the cell's number."""
    scene = Whitening(show="map", rule="oblique", n=6)
    app = PlanePage(contexts(), lab.address, scene.to_query(), shows="map")
    assert_shows(app, scene)
    cell = app.page.locator("[data-testid=cell][data-row='2'][data-column='3']")
    app.page.locator("[data-testid=cell][tabindex='0']").focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight", "ArrowRight", "ArrowRight"):
        app.page.keyboard.press(key)
    value = float(cell.get_attribute("data-value"))
    app.page.keyboard.press("Enter")
    app.page.locator("[data-testid=stepper][data-step='6']").wait_for()
    shown = app.page.locator("[data-testid=number][data-number=recall_mean]")
    assert float(shown.get_attribute("data-value")) == pytest.approx(value, rel=1e-6)
    address = parse_qs(urlsplit(app.page.url).query)
    wanted = scene.cell(0.6, 1e-4).to_query()
    assert {key: values[-1] for key, values in address.items()} == wanted
    app.page.close()


def test_a_bad_link_to_space_and_map(contexts: Callable[..., Any], lab: Any) -> None:
    query = {"show": "space", "keys": "0/95, x/1", "yaw": "999", "pitch": "nan", "n": "0",
             "rule": "<b>", "measure": "none"}  # fmt: skip
    app = PlanePage(contexts(), lab.address, query)
    assert app.page.get_by_test_id("notes").locator("p").count() == 6
    assert app.picture.get_attribute("data-keys") == "0/0,53.1/0"
    assert app.picture.get_attribute("data-view") == "180,20"
    app.page.close()


def test_typed_nonsense_is_told_and_the_picture_stays(app: PlanePage) -> None:
    app.control("words", "keys").fill("<img src=x onerror=window.hacked=1>")
    app.page.get_by_test_id("notes").get_by_text("The last picture stays").wait_for()
    assert app.shown() == pytest.approx(expected(Whitening()), abs=1e-9)
    assert app.page.evaluate("window.hacked") is None
    app.control("words", "keys").fill("5, 60")
    assert_shows(app, Whitening(keys="5, 60"))


def test_picture_and_data_are_saved(app: PlanePage, tmp_path: Path) -> None:
    with app.page.expect_download() as waiting:
        app.page.get_by_test_id("save-data").click()
    waiting.value.save_as(tmp_path / "data.csv")
    assert (tmp_path / "data.csv").read_text() == to_csv(Whitening().geometry())
    with app.page.expect_download() as waiting:
        app.page.get_by_test_id("save-picture").click()
    waiting.value.save_as(tmp_path / "picture.svg")
    drawn = (tmp_path / "picture.svg").read_text()
    assert drawn.startswith("<svg")
    assert "α̂" in drawn


def test_a_bad_link_on_a_dark_phone(contexts: Callable[..., Any], lab: Any) -> None:
    query = {"keys": "<script>1</script>", "step": "900", "lambda0": "-3", "what": "<b>"}
    context = contexts(viewport={"width": 390, "height": 844}, color_scheme="dark")
    app = PlanePage(context, lab.address, query)
    assert app.page.get_by_test_id("notes").locator("p").count() >= 4
    assert app.picture.get_attribute("data-look") == "dark"
    assert app.page.evaluate("document.querySelector('#App').scrollWidth") <= 390
    address = parse_qs(urlsplit(app.page.url).query)
    assert set(address) <= {"lambda0", "step"}
    assert "Traceback" not in app.page.inner_text("body")
    app.page.close()
