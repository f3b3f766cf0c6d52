"""The module against a widget model, as marimo and Jupyter give it one."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vla.widgets
from vla.trace import Trace
from vla.widgets import Stepper
from vla.widgets.pack import blob

pytestmark = pytest.mark.browser

MODULE = Path(vla.widgets.__file__).parent / "stepper.js"
STYLE = MODULE.with_suffix(".css")

MODEL = """state => {
    state.data = bytes(state.data);
    window.model = {
        state, handlers: {}, news: new Set(), sent: [],
        get(name) { return state[name]; },
        set(name, value) {
            if (state[name] === value) return;
            state[name] = value;
            this.news.add(name);
            for (const handler of this.handlers["change:" + name] ?? []) handler();
        },
        on(event, handler) { (this.handlers[event] ??= []).push(handler); },
        off(event, handler) {
            this.handlers[event] = this.handlers[event].filter((each) => each !== handler);
        },
        save_changes() {
            this.sent.push(Object.fromEntries([...this.news].map((name) => [name, state[name]])));
            this.news.clear();
        },
        python(name, value) {
            state[name] = value;
            for (const handler of this.handlers["change:" + name] ?? []) handler();
        },
    };
    window.leave = stepper.render({model, el: document.getElementById("home")});
}"""
BYTES = """function bytes(text) {
    const all = Uint8Array.from(atob("AAAA" + text), (c) => c.charCodeAt(0));
    return new DataView(all.buffer, 3);  // odd offset, as a view into a message may have
}"""


@pytest.fixture
def home(browser: Any) -> Iterator[Callable[..., Any]]:
    complaints: list[str] = []
    pages = []

    def open_model(trace: Trace, styled: bool = True, **options: Any) -> Any:
        page = browser.new_page(viewport={"width": 1280, "height": 720})
        pages.append(page)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.set_content("<div id=home></div>")
        if styled:
            page.add_style_tag(content=STYLE.read_text())
        page.add_script_tag(content=BYTES)
        module = MODULE.read_text() + "\nwindow.stepper = { render };"
        page.add_script_tag(content=module, type="module")
        page.wait_for_function("window.stepper")
        widget = Stepper(trace, **options)
        names = ["step", "playing", "speed", "theme", "lanes", "log", "stretch", "height", "page"]
        state = {name: getattr(widget, name) for name in names}
        page.evaluate(MODEL, {**state, "data": text(trace)})
        return page

    yield open_model
    for page in pages:
        page.close()
    assert not complaints


def text(trace: Trace) -> str:
    return base64.b64encode(blob(trace)).decode()


def shown(page: Any) -> int:
    page.evaluate("() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")
    return int(page.get_by_test_id("stepper").get_attribute("data-step"))


def press(page: Any, *names: str) -> None:
    for name in names:
        page.get_by_test_id(name).dispatch_event("click")


def test_quick_presses_travel_as_one_step(home: Callable[..., Any], words: Trace) -> None:
    page = home(words, step=2)
    press(page, "step", "step", "step")
    assert shown(page) == 5
    page.wait_for_function("model.sent.length")
    assert page.evaluate("model.sent") == [{"step": 5}]


def test_python_moves_the_step_without_an_answer(home: Callable[..., Any], words: Trace) -> None:
    page = home(words, step=2)
    page.evaluate("model.python('step', 6)")
    assert shown(page) == 6
    page.wait_for_timeout(300)
    assert page.evaluate("model.sent") == []


def test_an_echo_of_ours_is_no_wish_of_pythons(home: Callable[..., Any], words: Trace) -> None:
    page = home(words, step=2)
    press(page, "step")
    page.wait_for_function("model.sent.length")
    press(page, "step", "step")
    page.evaluate("model.python('step', 3)")
    assert shown(page) == 5
    page.wait_for_function("model.sent.at(-1).step === 5")
    assert shown(page) == 5
    assert page.evaluate("model.sent.at(-1)") == {"step": 5}


def test_playing_reaches_python_about_once_a_second(home: Callable[..., Any], long: Trace) -> None:
    page = home(long, speed=8.0)
    press(page, "play")
    page.wait_for_timeout(1500)
    sent = page.evaluate("model.sent")
    assert sent[0]["playing"] is True
    assert 1 <= len(sent) <= 4
    press(page, "play")
    page.wait_for_function("model.sent.at(-1).playing === false")
    assert page.evaluate("model.state.step") == shown(page)


def test_new_data_repaint_at_the_same_step(
    home: Callable[..., Any], words: Trace, four: Trace
) -> None:
    page = home(words, step=4)
    page.evaluate("text => model.python('data', bytes(text))", text(four))
    assert shown(page) == 4
    number = page.locator("[data-testid=number][data-lane=vla][data-number=norm_dS]")
    lane = four.lane("vla")
    expected = float(np.float32(lane.norm_dS[4]))
    assert float(number.get_attribute("data-value")) == pytest.approx(expected, rel=1e-6)
    assert page.evaluate("model.sent") == []


def test_python_sets_lanes_theme_and_speed(home: Callable[..., Any], words: Trace) -> None:
    page = home(words)
    page.evaluate("model.python('lanes', ['delta'])")
    page.evaluate("model.python('theme', 'dark')")
    page.evaluate("model.python('speed', 4)")
    shown(page)
    root = page.get_by_test_id("stepper")
    assert root.locator("[data-testid=lane][data-lane=vla]").is_hidden()
    assert root.get_attribute("data-look") == "dark"
    assert page.get_by_test_id("speed").input_value() == "4"


def test_a_view_saved_without_a_kernel_holds_the_data(
    home: Callable[..., Any], words: Trace, browser: Any, tmp_path: Path
) -> None:
    page = home(words, step=3)
    page.get_by_test_id("save").click()
    with page.expect_download() as waiting:
        page.get_by_test_id("save-view").click()
    path = tmp_path / "view.html"
    waiting.value.save_as(path)
    saved = browser.new_page()
    saved.goto(path.as_uri())
    assert shown(saved) == 3
    assert text(words) in path.read_text()
    saved.close()


def test_leaving_lets_go_of_the_model(home: Callable[..., Any], words: Trace) -> None:
    page = home(words, step=3)
    page.evaluate("leave()")
    assert page.evaluate("Object.values(model.handlers).flat().length") == 0


def test_a_style_sheet_that_comes_late_is_taken_up(home: Callable[..., Any], words: Trace) -> None:
    page = home(words, styled=False, step=3)
    assert shown(page) == 3
    page.add_style_tag(content=STYLE.read_text())
    page.wait_for_function("document.querySelector('.vla-stepper').stepper.look.styled")
    assert page.evaluate("document.querySelector('.vla-stepper').stepper.look.ink") == "#1b1f23"
    page.wait_for_function("document.querySelector('[data-testid=heat]').clientWidth > 70")
