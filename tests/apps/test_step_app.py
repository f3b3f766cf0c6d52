"""The stepping app in a real Chromium: what is on screen is what the library computes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from every_app import violations
from step_page import StepPage, assert_same, expected

from vla import trained
from vla.scene import PRESETS, Knob, Scene, knobs
from vla.trace import load, save
from vla.trace.rounding import first_passing

pytestmark = [pytest.mark.browser, pytest.mark.timeout(120)]

HOSTILE = "<script>window.hacked = 1</script>"
IMAGE = "<img src=x onerror=window.hacked=2>"


@pytest.fixture(scope="module")
def shared(contexts: Callable[..., Any], lab: Any) -> StepPage:
    return StepPage(contexts(accept_downloads=True), lab.address)


@pytest.fixture
def app(shared: StepPage) -> StepPage:
    """The shared page, back on the first scene."""
    picker = shared.page.get_by_test_id("preset")
    if shared.query() or shared.notes():
        if picker.input_value() == "overwrite":
            picker.select_option("twins")
            shared.wait_for_scene(PRESETS["twins"].scene)
        picker.select_option("overwrite")
    shared.wait_for_scene(Scene())
    shared.wait_for_step(3)
    shared.wait_for_no_note()
    return shared


@pytest.fixture
def visit(contexts: Callable[..., Any], lab: Any) -> Iterator[Callable[..., StepPage]]:
    """Opens pages of their own."""
    opened = []

    def new(query: dict[str, str] | None = None, **options: Any) -> StepPage:
        opened.append(StepPage(contexts(**options), lab.address, query))
        return opened[-1]

    yield new
    for each in opened:
        each.page.close()


def assert_shows(app: StepPage, scene: Scene) -> None:
    """Address and every number agree with the scene."""
    app.wait_for_scene(scene)
    app.wait_for_step(scene.step)
    assert_same(app.shown(), expected(scene.trace(), scene.step))


def test_first_minute(visit: Callable[..., StepPage]) -> None:
    """Three steps in, explained; the space bar answers the question within five seconds."""
    app = visit()
    preset = PRESETS["overwrite"]
    app.wait_for_step(3)
    assert app.question() == preset.question
    assert preset.seen in app.page.locator(".words").inner_text()
    assert "Press the space bar" in app.page.locator(".words").inner_text()
    assert_shows(app, Scene())
    assert_fits(app)
    begun = time.monotonic()
    app.press(" ")
    app.wait_for_step(6, timeout=5000)
    assert time.monotonic() - begun < 5
    asked = app.page.locator(
        "[data-testid=token][data-token='4'], [data-testid=token][data-token='5']"
    )
    words = " ".join(asked.all_inner_texts())
    for answer in ("woof", "purr"):
        assert answer in words
    app.wait_for_scene(Scene(step=6))
    app.page.locator(".words").get_by_text(preset.answer).wait_for()


def assert_fits(app: StepPage) -> None:
    """Everything that steps is on the first screen of 1280×720."""
    foot = app.stepper.bounding_box()
    assert foot["y"] + foot["height"] <= 720
    assert app.page.evaluate("document.querySelector('#App').scrollWidth") <= 1280


def test_a_narrow_dark_page_is_stacked(visit: Callable[..., StepPage]) -> None:
    app = visit(viewport={"width": 390, "height": 844}, color_scheme="dark")
    assert app.stepper.get_attribute("data-look") == "dark"
    assert app.page.get_by_test_id("panel").get_attribute("data-look") == "dark"
    assert app.page.evaluate("document.querySelector('#App').scrollWidth") <= 390
    stepper, panel = app.stepper.bounding_box(), app.page.get_by_test_id("panel").bounding_box()
    assert panel["y"] >= stepper["y"] + stepper["height"]


@pytest.mark.parametrize("step", [0, 2, 4, 6])
def test_numbers_on_screen_are_the_traces(app: StepPage, step: int) -> None:
    app.page.locator(f"[data-testid=token][data-token='{step - 1}']").click()
    assert_shows(app, Scene(step=step))


def other_value(knob: Knob) -> Any:
    """A value that isn't the default and that every stream with this knob can take."""
    if knob.key == "stream":
        return "near_duplicates"
    if knob.kind == "choice":
        return next(choice for choice in reversed(knob.choices()) if choice != knob.default)
    if knob.kind == "flag":
        return not knob.default
    if knob.kind == "names":
        return ("softmax", "vla", "published")
    if knob.key in ("tokens", "to"):
        return {"tokens": "5 17 8 44 | 8", "to": "bark"}[knob.key]
    if knob.kind == "text":
        return "red: rouge, blue: bleu, red: rosso, ? red"
    chosen = {
        "layer": 0,
        "pairs": 3,
        "n": 9,
        "d": 12,
        "lambda0": 0.5,
        "epsilon_r": 0.02,
        "rho": 0.3,
    }
    fallback = knob.default + 1 if knob.kind == "int" else 0.25
    return chosen.get(knob.key, fallback)


def turn(app: StepPage, knob: Knob, value: Any) -> None:
    """Use the control as a person would."""
    if knob.kind == "choice":
        app.control("choice", knob.key).select_option(value)
    elif knob.kind == "flag":
        app.control("flag", knob.key).set_checked(value)
    elif knob.kind == "names":
        for name in knob.choices():
            app.control("rule", name).set_checked(name in value)
    elif knob.kind == "text":
        app.control("words", knob.key).fill(value)
    else:
        app.control("number-input", knob.key).fill(str(value))
        app.control("number-input", knob.key).press("Enter")


def use(app: StepPage, key: str, idle: tuple[str, ...]) -> dict[str, Any]:
    """Turn the knob of this key so that those which it idles appear; the field that changed."""
    name, knob = next((name, knob) for name, knob in knobs().items() if knob.key == key)
    choices = knob.choices() or ("2",)
    value = next(choice for choice in choices if choice not in idle)
    turn(app, knob, value)
    return {name: int(value) if knob.kind == "int" else value}


CONTROLS = [name for name, knob in knobs().items() if knob.group != "View"]


@pytest.mark.parametrize("name", CONTROLS)
def test_every_control(app: StepPage, name: str) -> None:
    knob = knobs()[name]
    scene = Scene()
    if knob.streams == ("layer",) and not trained.names():
        pytest.skip("no trained checkpoint in data/checkpoints")
    if knob.kind == "choice" and len(knob.choices()) < 2:
        pytest.skip("there is one trained checkpoint only")
    if knob.streams and scene.kind not in knob.streams:
        scene = scene.with_(kind=knob.streams[0])
        app.control("choice", "stream").select_option(scene.kind)
        app.wait_for_scene(scene)
    for key, idle in knob.idle.items():
        scene = scene.with_(**use(app, key, idle))
        app.wait_for_scene(scene)
    changed = scene.with_(**{name: other_value(knob)})
    turn(app, knob, other_value(knob))
    app.wait_for_scene(changed)
    assert app.notes() == []
    assert_shows(app, changed.with_(step=min(3, len(changed.stream()))))
    row = app.page.locator(f"[data-row='{knob.key}']")
    assert knob.help.split(".")[0] in row.inner_text() or knob.key == "stream"
    app.control("reset", knob.key).click()
    app.wait_for_scene(scene)


@pytest.mark.parametrize("act", ["edit", "drop", "repeat"])
def test_a_fork_shows_both_branches(app: StepPage, act: str) -> None:
    """Forked where one stands; gap, what is left and the fork's answers are the library's."""
    app.page.locator("[data-testid=token][data-token='1']").click()
    app.wait_for_step(2)
    app.wait_for_scene(Scene(step=2))
    app.control("choice", "fork").select_option(act)
    scene = Scene(fork=act, fork_at=2, step=2)
    app.wait_for_scene(scene)
    app.page.get_by_role("button", name="End").click()
    trace = scene.trace()
    scene = scene.with_(step=len(trace) - 1)
    assert_shows(app, scene)
    gaps = app.page.locator("[data-testid=number][data-number=gap]")
    for i, lane in enumerate(trace.lanes):
        assert lane.branch is not None
        value = float(gaps.nth(i).get_attribute("data-value"))
        assert value == pytest.approx(lane.branch.gap[-1], rel=1e-6, abs=1e-12)
        left = app.page.locator(f"[data-testid=parts][data-lane={lane.rule}]")
        assert float(left.get_attribute("data-value")) == pytest.approx(lane.branch.left, abs=1e-9)
        said = app.page.locator(f".mark.fork[data-lane={lane.rule}]").all_inner_texts()
        asks = [t + 1 for t, asks in enumerate(trace.stream.asks()) if asks]
        own, other = (
            [(side.answers[t], side.correct[t]) for t in asks] for side in (lane, lane.branch)
        )
        differs = [b[0] for a, b in zip(own, other, strict=True) if a != b and b[1] >= 0]
        assert [words.split("\n")[1] for words in said] == differs
    assert app.page.get_by_role("button", name="Play").is_visible()
    assert_fits(app)


def test_a_fork_at_a_question_is_a_message(app: StepPage) -> None:
    """The fork begins at the last step that stores, where no other was asked for."""
    app.page.get_by_role("button", name="End").click()
    app.wait_for_scene(Scene(step=6))
    app.control("choice", "fork").select_option("drop")
    scene = Scene(fork="drop", fork_at=4, step=6)
    assert_shows(app, scene)
    app.control("number-input", "at").fill("5")
    app.control("number-input", "at").press("Enter")
    app.wait_for_note("a step that stores")
    assert_shows(app, scene)


def test_formats_are_compared(app: StepPage) -> None:
    """The error's curve, and the token whose error passes the threshold."""
    app.control("flag", "compare").set_checked(True)
    app.control("number-input", "threshold").fill("0.004")
    app.control("number-input", "threshold").press("Enter")
    scene = Scene(compare=True, threshold=0.004)
    assert_shows(app, scene)
    for lane in scene.trace().lanes:
        shown = app.page.locator(f"[data-testid=passes][data-lane={lane.rule}]")
        for name in ("float32", "bfloat16"):
            step = first_passing(lane, name, 0.004)
            assert shown.get_attribute(f"data-{name}") == str(step or "")
            if step:
                assert f"step {step}, {scene.stream().labels[step - 1]}" in shown.inner_text()
        value = app.page.locator(
            f".plot:nth-child(3) [data-testid=curve-value][data-lane={lane.rule}]"
        ).get_attribute("data-value")
        assert lane.error_bfloat16 is not None
        assert float(value) == pytest.approx(lane.error_bfloat16[3], rel=1e-6)
    assert_fits(app)


def test_a_fork_with_formats_can_be_read_by_all(app: StepPage) -> None:
    app.control("choice", "fork").select_option("edit")
    app.control("flag", "compare").set_checked(True)
    assert_shows(app, Scene(fork="edit", compare=True))
    assert violations(app.page) == []


def test_a_trained_head_by_its_link(visit: Callable[..., StepPage]) -> None:
    if not trained.names():
        pytest.skip("no trained checkpoint in data/checkpoints")
    name = trained.names()[0]
    scene = Scene(
        kind="layer", checkpoint=name, layer=1, head=1, pairs=4, seed=3, lanes=("delta", "layer"),
        step=10,
    )  # fmt: skip
    app = visit(scene.to_query())
    assert_shows(app, scene)
    stream = scene.stream()
    assert stream.remarks[9] in app.page.get_by_test_id("say").inner_text()
    chips = app.page.get_by_test_id("token").locator(".word").all_inner_texts()
    for label in stream.labels:
        assert label in chips
    app.control("number-input", "head").fill("99")
    app.control("number-input", "head").press("Enter")
    app.wait_for_note("is more than")
    app.control("choice", "stream").select_option("words")
    last = trained.load(name).heads - 1
    app.wait_for_scene(scene.with_(kind="words", step=6, head=last))


def test_a_knob_that_changes_nothing_is_not_drawn(app: StepPage) -> None:
    drawn = {
        name for name in CONTROLS
        if app.page.locator(f"[data-row='{knobs()[name].key}']").is_visible()
    }  # fmt: skip
    of_words = {n for n in CONTROLS if not knobs()[n].streams or "words" in knobs()[n].streams}
    assert drawn == of_words - {"beta", "refresh_eps", "fork_at", "fork_to", "threshold"}


def test_slider_can_be_dragged(app: StepPage) -> None:
    app.control("range", "similarity").focus()
    for _ in range(10):
        app.press("ArrowRight")
    assert_shows(app, Scene(similarity=0.6))
    app.control("range", "lambda0").evaluate(
        "node => { node.value = 500; node.dispatchEvent(new Event('input')); }"
    )
    app.wait_for_scene(Scene(similarity=0.6, lambda0=0.01))


def test_a_knob_keeps_place_and_seed(app: StepPage) -> None:
    app.page.locator("[data-testid=token][data-token='4']").click()
    app.wait_for_scene(Scene(step=5))
    turn(app, knobs()["lambda0"], 2.0)
    assert_shows(app, Scene(step=5, lambda0=2.0))
    app.control("choice", "stream").select_option("gaussian")
    assert_shows(app, Scene(step=5, lambda0=2.0, kind="gaussian"))


@pytest.mark.parametrize("name", PRESETS)
def test_presets(shared: StepPage, name: str) -> None:
    app, preset = shared, PRESETS[name]
    app.page.get_by_test_id("preset").select_option(name)
    app.wait_for_question(preset.question)
    assert_shows(app, preset.scene)
    assert preset.seen in app.page.locator(".words").inner_text()
    play = app.page.get_by_role("button", name="Play").bounding_box()
    assert play["y"] + play["height"] <= 720
    app.page.get_by_role("button", name="End").click()
    app.page.locator(".words").get_by_text(preset.answer).wait_for()


def test_sentences_are_buttons(app: StepPage) -> None:
    app.page.get_by_role("button", name="linear attention drowns").click()
    app.wait_for_question(PRESETS["drowning"].question)
    assert_shows(app, PRESETS["drowning"].scene)
    assert app.page.get_by_test_id("preset").input_value() == "drowning"
    turn(app, knobs()["n"], 20)
    app.wait_for_question("Your own scene")


def test_an_address_restores_the_scene(visit: Callable[..., StepPage]) -> None:
    scene = Scene(
        kind="correlated", rho=0.35, n=9, d=10, lanes=("delta", "vla", "baseline"),
        hidden=("delta",), lambda0=0.037, gain="rls", adaptive=False, seed=11, step=7,
    )  # fmt: skip
    app = visit(scene.to_query())
    assert app.query() == scene.to_query()
    app.wait_for_step(7)
    wanted = expected(scene.trace(), 7)
    shown = {key: x for key, x in app.shown().items() if key[0] in scene.visible()}
    assert_same(shown, {key: wanted[key] for key in shown})
    assert app.control("number-input", "lambda0").input_value() == "0.037"
    assert not app.page.locator("[data-testid=lane-toggle][data-lane=delta]").is_checked()
    app.page.locator("[data-testid=lane-toggle][data-lane=delta]").check()
    app.wait_for_scene(scene.with_(hidden=()))
    app.page.reload()
    app.stepper.wait_for()
    app.wait_for_step(7)
    app.wait_for_scene(scene.with_(hidden=()))


def test_a_bad_address_is_repaired_and_told(visit: Callable[..., StepPage]) -> None:
    app = visit({
        "n": "0", "d": "1e9", "rho": "NaN", "seed": "-5", "step": "9999999", "stream": HOSTILE,
        "rules": IMAGE, "text": f"{HOSTILE}", "lambda0": "inf",
    })  # fmt: skip
    app.wait_for_note("“NaN” is not a finite number")
    assert len(app.notes()) >= 8
    assert HOSTILE in " ".join(app.notes())
    assert app.step() == len(Scene().stream())
    assert app.page.evaluate("window.hacked") is None
    app.page.locator("[data-testid=token][data-token='2']").click()
    shown = Scene(n=1, seed=0, step=3)
    assert_shows(app, shown)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("cat: meow, dog", "one key and one value"),
        ("", "at least one pair"),
        ("cat: meow, ? dog", "a query of a word stored before it"),
        ("cat: " + "x" * 50, "at most 40 characters"),
    ],
)
def test_bad_pairs_leave_the_picture(app: StepPage, text: str, says: str) -> None:
    box = app.control("words", "text")
    box.fill(text)
    app.wait_for_note(says)
    assert box.input_value() == text
    assert_shows(app, Scene())
    box.fill("cat: meow, ? cat")
    app.wait_for_no_note()
    assert_shows(app, Scene(text="cat: meow, ? cat", step=2))


@pytest.mark.parametrize(
    ("key", "typed", "says", "change"),
    [
        ("d", "NaN", "not a whole number", {}),
        ("similarity", "nan", "not a finite number", {}),
        ("lambda0", "-1", "least is 1e-06", {"lambda0": 1e-6}),
        ("seed", "1e99", "not a whole number", {}),
        ("d", "999999", "most is 32", {"d": 32}),
    ],
)
def test_bad_numbers(
    app: StepPage, key: str, typed: str, says: str, change: dict[str, Any]
) -> None:
    app.control("number-input", key).fill(typed)
    app.control("number-input", key).press("Enter")
    app.wait_for_note(says)
    scene = Scene(**change)
    assert_shows(app, scene)
    wait_for_value(app.control("number-input", key), f"{scene.to_query().get(key) or shown(key)}")


def shown(key: str) -> str:
    return next(f"{knob.default:g}" for knob in knobs().values() if knob.key == key)


def wait_for_value(box: Any, value: str) -> None:
    """Until the control itself shows what is used instead."""
    box.page.wait_for_function(
        "([node, value]) => Number(node.value) === Number(value)", arg=[box.element_handle(), value]
    )


def test_the_last_rule_stays(app: StepPage) -> None:
    app.control("rule", "linear").click()
    app.wait_for_scene(Scene(lanes=("delta", "vla")))
    app.control("rule", "delta").click()
    app.wait_for_scene(Scene(lanes=("vla",)))
    app.control("rule", "vla").click()
    app.wait_for_note("not one or more of")
    app.wait_for_scene(Scene(lanes=("vla",)))
    assert app.control("rule", "vla").is_checked()


def test_hostile_words_are_words(app: StepPage) -> None:
    app.control("words", "text").fill(f"{HOSTILE}: {IMAGE}, ? {HOSTILE}")
    scene = Scene(text=f"{HOSTILE}: {IMAGE}, ? {HOSTILE}", step=2)
    assert_shows(app, scene)
    first = app.page.locator("[data-testid=token][data-token='0']")
    assert HOSTILE in first.inner_text()
    assert IMAGE in first.inner_text()
    assert app.page.evaluate("window.hacked") is None


def test_trace_travels_as_a_file(app: StepPage, tmp_path: Path) -> None:
    with app.page.expect_download() as wait:
        app.page.get_by_test_id("save-trace").click()
    path = tmp_path / "saved.zip"
    wait.value.save_as(path)
    assert expected(load(path), 4) == pytest.approx(expected(Scene().trace(), 4), nan_ok=True)

    other = Scene(kind="gaussian", n=5, d=6, lanes=("vla",))
    save(other.trace(), tmp_path / "other.zip")
    app.page.get_by_test_id("trace-file").set_input_files(tmp_path / "other.zip")
    app.page.get_by_test_id("source").get_by_text("other.zip").wait_for()
    app.wait_for_step(3)
    assert_same(app.shown(), expected(other.trace(), 3))
    back = app.page.get_by_test_id("source").get_by_role("button")
    back.click()
    back.wait_for(state="detached")
    assert_shows(app, Scene())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not a trace", b"cut"])
def test_a_damaged_trace_is_a_message(app: StepPage, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / f"{IMAGE}.zip"
    if content == b"cut":
        save(Scene().trace(), path)
        content = path.read_bytes()[:-200]
    path.write_bytes(content)
    app.page.get_by_test_id("trace-file").set_input_files(path)
    app.wait_for_note("The last picture stays.")
    assert_shows(app, Scene())
    assert app.page.evaluate("window.hacked") is None


def test_saved_view_steps_offline(
    app: StepPage, contexts: Callable[..., Any], tmp_path: Path
) -> None:
    app.page.get_by_test_id("save").click()
    with app.page.expect_download() as wait:
        app.page.get_by_test_id("save-view").click()
    app.page.get_by_test_id("save").click()
    path = tmp_path / "view.html"
    wait.value.save_as(path)
    page = contexts(offline=True).new_page()
    page.goto(path.as_uri())
    page.locator("[data-testid=stepper][data-step='3']").wait_for()
    page.keyboard.press("Tab")
    page.get_by_test_id("stepper").focus()
    page.keyboard.press("ArrowRight")
    page.locator("[data-testid=stepper][data-step='4']").wait_for()
    shown = page.get_by_test_id("number").evaluate_all(
        "nodes => nodes.map(n => [n.dataset.lane, n.dataset.number, n.dataset.value])"
    )
    wanted = expected(Scene().trace(), 4)
    numbers = {(lane, name): float(x) for lane, name, x in shown if (lane, name) in wanted}
    assert_same(numbers, wanted)


def test_two_visitors_do_not_meet(app: StepPage, visit: Callable[..., StepPage]) -> None:
    other = visit({"stream": "gaussian", "n": "6", "step": "2"})
    turn(app, knobs()["lambda0"], 3.0)
    turn(other, knobs()["gain"], "oblique")
    assert_shows(other, Scene(kind="gaussian", n=6, step=2, gain="oblique"))
    assert_shows(app, Scene(lambda0=3.0))


def test_keyboard_alone(visit: Callable[..., StepPage]) -> None:
    app = visit()
    app.press("ArrowRight")
    app.wait_for_step(4)
    reached = []
    for _ in range(60):
        app.press("Tab")
        reached.append(app.page.evaluate(FOCUSED))
    found = json.dumps(reached)
    for name in REACHABLE:
        assert f'"{name}"' in found, reached
    while app.page.evaluate(FOCUSED) != "stepper":
        app.press("Shift+Tab")
    app.press("Home")
    app.wait_for_step(0)


REACHABLE = (
    "preset", "choice:stream", "words:text", "range:similarity", "rule:vla", "range:lambda0",
    "choice:gain", "flag:adaptive", "save-trace", "stepper",
)  # fmt: skip
FOCUSED = """() => {
    let node = document.activeElement;
    while (node?.shadowRoot?.activeElement) node = node.shadowRoot.activeElement;
    const { testid, key } = node?.dataset ?? {};
    return key ? `${testid}:${key}` : testid ?? node?.tagName;
}"""


def test_one_theme_for_the_whole_page(app: StepPage) -> None:
    theme = app.page.get_by_test_id("theme")
    for look in ("dark", "light"):
        theme.select_option(look)
        app.page.locator(f"[data-testid=panel][data-look={look}]").wait_for()
        app.page.locator(f"[data-testid=stepper][data-look={look}]").wait_for()
        app.page.locator(f"body.{look}").wait_for()
    theme.select_option("dark")
    theme.select_option("auto")
    app.page.locator("[data-testid=panel][data-look=light]").wait_for()
    app.page.locator("[data-testid=stepper][data-look=light]").wait_for()


def test_gallery_names_the_app(contexts: Callable[..., Any], lab: Any) -> None:
    page = contexts().new_page()
    page.goto(lab.address)
    page.get_by_role("link", name="Step the recurrence", exact=True).click()
    page.get_by_test_id("stepper").wait_for()
    page.close()
