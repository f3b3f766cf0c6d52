"""The stepper as people meet it: a saved page in a real Chromium with the network off."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vla.figures.theme import LIGHT, three
from vla.tokens import from_pairs, make_stream
from vla.trace import Lane, Trace, describe, fork, record, record_fork
from vla.widgets import lane_ids, to_html
from vla.widgets.pack import NUMBERS, blob

pytestmark = pytest.mark.browser

Visit = Callable[..., Any]
WORDS = "cat: meow, dog: woof, cow: moo, cat: purr, ? cat, ? dog"


def root(page: Any) -> Any:
    return page.get_by_test_id("stepper")


def step_of(page: Any) -> int:
    return int(root(page).get_attribute("data-step"))


def settle(page: Any) -> None:
    """Wait until the next frame is drawn."""
    page.evaluate("() => new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


def numbers(page: Any) -> dict[tuple[str, str], tuple[str, float]]:
    rows = page.get_by_test_id("number").evaluate_all(
        "nodes => nodes.map(n => [n.dataset.lane, n.dataset.number, n.innerText, n.dataset.value])"
    )
    return {(lane, key): (text, float(value)) for lane, key, text, value in rows}


def change(lane: Lane, step: int) -> np.ndarray:
    return lane.S[step] - lane.S[step - 1] if step else np.zeros_like(lane.S[0])


def matrix(lane: Lane, kind: str, step: int) -> np.ndarray:
    return change(lane, step) if kind == "dS" else getattr(lane, kind)[step]


def cell_at(page: Any, lane: int, kind: str, row: int, column: int) -> tuple[float, float]:
    """Middle of a matrix cell in page coordinates."""
    return tuple(
        page.evaluate(
            """([lane, kind, row, column]) => {
                const heats = document.querySelector(".vla-stepper").stepper.rows[lane].heats;
                const {box, canvas} = heats.find((heat) => heat.kind.key === kind);
                const at = canvas.getBoundingClientRect();
                return [at.left + box.x + (column + 0.5) * box.cell,
                        at.top + box.y + (row + 0.5) * box.cell];
            }""",
            [lane, kind, row, column],
        )
    )


def pixel(page: Any, lane: int, kind: str, row: int, column: int) -> list[int]:
    return page.evaluate(
        """([lane, kind, row, column]) => {
            const heats = document.querySelector(".vla-stepper").stepper.rows[lane].heats;
            const {box, canvas} = heats.find((heat) => heat.kind.key === kind);
            const ratio = canvas.width / canvas.clientWidth;
            const at = (start, index) => Math.floor((start + (index + 0.5) * box.cell) * ratio);
            const ctx = canvas.getContext("2d");
            return [...ctx.getImageData(at(box.x, column), at(box.y, row), 1, 1).data].slice(0, 3);
        }""",
        [lane, kind, row, column],
    )


def ramp(share: float) -> np.ndarray:
    """The light theme's colour at a share from negative (0) to positive (1)."""
    stops = np.array([[int(c[i : i + 2], 16) for i in (1, 3, 5)] for c in LIGHT.diverging])
    place = share * (len(stops) - 1)
    left = min(int(place), len(stops) - 2)
    return stops[left] + (place - left) * (stops[left + 1] - stops[left])


@pytest.mark.parametrize("name", ["words", "four"])
def test_every_number_at_every_step_is_the_traces(
    visit: Visit, name: str, request: pytest.FixtureRequest
) -> None:
    trace = request.getfixturevalue(name)
    page = visit(trace)
    root(page).focus()
    for step in range(len(trace)):
        assert step_of(page) == step
        shown = numbers(page)
        for lane, lane_id in zip(trace.lanes, lane_ids(trace.lanes), strict=True):
            for key, *_ in NUMBERS:
                text, value = shown[lane_id, key]
                expected = float(np.float32(getattr(lane, key)[step]))
                assert value == pytest.approx(expected, rel=1e-6, nan_ok=True)
                assert text == three(expected)
            sentence = page.locator(f"[data-testid=sentence][data-lane={lane_id}] .what")
            assert sentence.text_content() == describe(trace, lane, step)
        page.keyboard.press("ArrowRight")
        settle(page)


def test_hover_shows_the_exact_value(visit: Visit, words: Trace) -> None:
    page = visit(words, step=4)
    for kind in ("M", "A", "S", "dS"):
        for row, column in ((0, 0), (2, 5), (7, 7)):
            page.mouse.move(*cell_at(page, 0, kind, row, column))
            settle(page)
            tip = page.get_by_test_id("tip")
            expected = matrix(words.lanes[0], kind, 4)[row, column]
            assert float(tip.get_attribute("data-value")) == pytest.approx(expected, abs=1e-6)
            assert f"row {row}, column {column}" in tip.text_content()
    page.mouse.move(5, 5)
    settle(page)
    assert page.get_by_test_id("tip").is_hidden()


def test_colours_of_cells_are_the_values_on_the_shared_scale(visit: Visit, words: Trace) -> None:
    page = visit(words, step=4)
    for kind in ("M", "A", "S", "dS"):
        shared = "S" if kind == "dS" else kind
        scale = max(
            np.abs(getattr(lane, shared)).max()
            for lane in words.lanes
            if getattr(lane, shared) is not None
        )
        for row, column in ((0, 0), (3, 3), (6, 1)):
            value = matrix(words.lanes[0], kind, 4)[row, column]
            expected = ramp(0.5 + 0.5 * value / scale)
            np.testing.assert_allclose(pixel(page, 0, kind, row, column), expected, atol=3)


def test_stretch_spreads_small_values(visit: Visit, words: Trace) -> None:
    page = visit(words, step=4)
    page.get_by_test_id("stretch").check()
    settle(page)
    scale = np.abs(words.lanes[0].A).max()
    share = words.lanes[0].A[4][0, 1] / scale
    expected = ramp(0.5 + 0.5 * np.sign(share) * np.sqrt(abs(share)))
    np.testing.assert_allclose(pixel(page, 0, "A", 0, 1), expected, atol=3)


def test_buttons_and_slider(visit: Visit, words: Trace) -> None:
    page = visit(words, step=3)
    last = len(words) - 1
    for name, expected in (("step", 4), ("back", 3), ("end", last), ("start", 0)):
        page.get_by_test_id(name).click()
        settle(page)
        assert step_of(page) == expected
    assert page.get_by_test_id("back").is_disabled()
    page.get_by_test_id("scrub").fill("5")
    settle(page)
    assert step_of(page) == 5
    assert page.get_by_test_id("count").text_content() == f"5 of {last}"
    assert page.get_by_test_id("say").text_content() == "Step 5 of 8: stores duck → quack."


def test_play_pauses_ends_and_starts_again(visit: Visit, words: Trace) -> None:
    page = visit(words)
    play, speed = page.get_by_test_id("play"), page.get_by_test_id("speed")
    before = play.bounding_box()
    speed.select_option("0.5")
    play.click()
    page.locator("[data-testid=stepper]:not([data-step='0'])").wait_for()
    assert play.text_content() == "Pause"
    play.click()
    settle(page)
    stopped = step_of(page)
    page.wait_for_timeout(1200)
    assert step_of(page) == stopped < len(words) - 1
    speed.select_option("32")
    play.click()
    settle(page)
    page.locator("[data-testid=stepper][data-playing=false]").wait_for()
    assert step_of(page) == len(words) - 1
    assert play.bounding_box() == before
    speed.select_option("0.5")
    play.click()
    settle(page)
    assert step_of(page) < 3


def test_keys_work_only_with_the_focus_and_never_scroll(visit: Visit, words: Trace) -> None:
    page = visit(words, height=400, step=2)
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Home")
    settle(page)
    assert step_of(page) == 2
    root(page).focus()
    page.evaluate("scrollTo(0, 0)")
    for key, expected in (("ArrowRight", 3), ("ArrowLeft", 2), ("End", 8), ("Home", 0)):
        page.keyboard.press(key)
        settle(page)
        assert step_of(page) == expected
    page.keyboard.press(" ")
    settle(page)
    assert root(page).get_attribute("data-playing") == "true"
    page.keyboard.press(" ")
    settle(page)
    assert root(page).get_attribute("data-playing") == "false"
    assert page.evaluate("scrollY") == 0


def test_after_a_click_space_still_means_play(visit: Visit, words: Trace) -> None:
    page = visit(words)
    page.get_by_test_id("step").click()
    page.keyboard.press(" ")
    settle(page)
    assert root(page).get_attribute("data-playing") == "true"


def test_every_control_is_reached_by_tab_and_says_what_it_does(visit: Visit, words: Trace) -> None:
    page = visit(words, step=3)
    page.get_by_test_id("save").click()
    root(page).focus()
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        seen.append(
            page.evaluate(
                "[document.activeElement.dataset?.testid, document.activeElement.title,"
                " document.activeElement.closest('label')?.title]"
            )
        )
    controls = {"start", "back", "play", "step", "end", "scrub", "speed", "lane-toggle", "log"}
    controls |= {"stretch", "theme", "save", "save-view", "save-picture", "csv-panel", "save-csv"}
    assert controls | {"token", "heat", "curve", "ladder"} <= {name for name, *_ in seen}
    for name, title, outer in seen:
        assert name not in controls or "What this does" in f"{title} {outer}", name


def test_the_keyboard_walks_over_matrix_entries(visit: Visit, words: Trace) -> None:
    page = visit(words, step=4)
    page.locator("[data-testid=heat][data-kind=S]").first.focus()
    for key in ("Enter", "ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
    settle(page)
    value = float(page.get_by_test_id("tip").get_attribute("data-value"))
    assert value == pytest.approx(words.lanes[0].S[4][1, 2], abs=1e-6)
    assert step_of(page) == 4
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    settle(page)
    assert step_of(page) == 5


def test_a_click_on_a_token_jumps(visit: Visit, words: Trace) -> None:
    page = visit(words)
    page.locator("[data-testid=token][data-token='4']").click()
    settle(page)
    assert step_of(page) == 5
    chip = page.locator("[data-testid=token][data-token='4']")
    assert chip.get_attribute("aria-current") == "step"
    states = page.get_by_test_id("token").evaluate_all("nodes => nodes.map(n => n.dataset.state)")
    assert states == ["past"] * 5 + ["now"] + ["future"] * 3


def test_hovering_a_token_lights_its_pair_and_curve_points(visit: Visit, words: Trace) -> None:
    page = visit(words, step=5)
    for query in (4, 7):
        page.locator(f"[data-testid=token][data-token='{query}']").hover()
        settle(page)
        pair = list(words.pairs).index(words.stream.expected()[query])
        note = page.get_by_test_id("ladder-note").text_content()
        assert note.startswith(words.stream.labels[words.pairs[pair]])
        for lane in words.lanes:
            if words.pairs[pair] < 5:
                assert f"{lane.title} {three(float(np.float32(lane.recall[5, pair])))}" in note
        assert page.evaluate("document.querySelector('.vla-stepper').stepper.state.hover") == query
    curve = page.get_by_test_id("curve").first.bounding_box()
    page.mouse.move(curve["x"] + 43, curve["y"] + 40)
    settle(page)
    assert page.locator("[data-testid=token].lit").get_attribute("data-token") == "-1"


def test_a_token_whose_key_is_an_axis_lights_its_row_and_column(visit: Visit) -> None:
    keys = torch.eye(6, dtype=torch.float64)
    trace = record("vla", from_pairs(keys, keys.flip(0)))
    page = visit(trace, step=6)
    page.locator("[data-testid=token][data-token='2']").hover()
    settle(page)
    edge = """([kind, x, y]) => {
        const heats = document.querySelector(".vla-stepper").stepper.rows[0].heats;
        const {box, canvas} = heats.find((heat) => heat.kind.key === kind);
        const at = (start, cells) => Math.round(start + cells * box.cell);
        const ctx = canvas.getContext("2d");
        return [...ctx.getImageData(at(box.x, x), at(box.y, y), 1, 1).data].slice(0, 3);
    }"""
    amber = [0xE6, 0x9F, 0x00]
    for kind, across, down in (("S", True, False), ("dS", True, False), ("A", True, True)):
        assert (page.evaluate(edge, [kind, 2, 4.5]) == amber) == across
        assert (page.evaluate(edge, [kind, 4.5, 2]) == amber) == down


def test_a_click_on_a_curve_jumps_and_its_values_are_the_traces(visit: Visit, words: Trace) -> None:
    page = visit(words)
    box = page.get_by_test_id("curve").first.bounding_box()
    page.mouse.click(box["x"] + 42 + (box["width"] - 50) * 6 / 8, box["y"] + 50)
    settle(page)
    assert step_of(page) == 6
    page.get_by_label("quantity of curve 1").select_option("ridge_distance")
    settle(page)
    shown = page.get_by_test_id("curve-value").first.get_attribute("data-value")
    assert float(shown) == pytest.approx(words.lanes[0].ridge_distance[6], rel=1e-6)


def test_queries_show_each_rules_word_and_whether_it_is_right(visit: Visit, words: Trace) -> None:
    page = visit(words, step=len(words) - 1)
    for token in range(5, 8):
        for lane in words.lanes:
            mark = page.locator(f"[data-token='{token}'] .mark[data-lane={lane.rule}]")
            sign = "✓" if lane.correct[token + 1] else "✗"
            assert mark.text_content() == lane.answers[token + 1] + sign
    assert {int(lane.correct[8]) for lane in words.lanes} == {0, 1}
    for lane in words.lanes:
        verdict = page.locator(f"[data-testid=verdict][data-lane={lane.rule}]")
        assert verdict.text_content().strip() == ("✓" if lane.correct[8] else "✗")


def test_rules_say_what_they_do_not_keep(visit: Visit, four: Trace) -> None:
    page = visit(four, step=9)
    text = page.locator("[data-testid=lane][data-lane=softmax]").inner_text()
    assert "keeps all t pairs: 9 now" in text
    assert text.count("this rule keeps no") == 2
    gated = page.locator("[data-testid=lane][data-lane=gated_delta]").inner_text()
    assert "this rule keeps no A" in gated
    parts = page.get_by_test_id("parts").all_text_contents()
    assert parts == ["–"] + [
        "never" if lane.parts_at is None else f"step {lane.parts_at}" for lane in four.lanes[1:]
    ]


def test_lanes_can_be_hidden_but_not_all(visit: Visit, words: Trace) -> None:
    page = visit(words, step=3)
    toggles = page.get_by_test_id("lane-toggle")
    toggles.first.uncheck()
    settle(page)
    assert page.locator("[data-testid=lane][data-lane=vla]").is_hidden()
    assert toggles.nth(1).is_disabled()
    toggles.first.check()
    settle(page)
    assert page.locator("[data-testid=lane][data-lane=vla]").is_visible()
    assert step_of(page) == 3


def test_log_curves(visit: Visit, words: Trace) -> None:
    page = visit(words, step=3)
    picture = "document.querySelector('[data-testid=curve]').toDataURL()"
    before = page.evaluate(picture)
    page.get_by_test_id("log").check()
    settle(page)
    assert page.evaluate(picture) != before


def test_hostile_words_are_words(visit: Visit, hostile: Trace) -> None:
    page = visit(hostile, step=1, title="</title><script>hacked = 1</script>")
    assert page.evaluate("window.hacked") is None
    assert page.title() == "</title><script>hacked = 1</script>"
    first = page.locator("[data-testid=token][data-token='0']")
    assert first.text_content() == hostile.stream.labels[0]
    assert "<script>" in page.get_by_test_id("say").text_content()
    assert root(page).locator("img, script").count() == 0
    rows = saved_csv(page, "ladder")
    assert [row[0] for row in rows[1:]] == list(hostile.stream.labels[:2])


def test_dark_and_light(visit: Visit, words: Trace) -> None:
    page = visit(words, look="dark")
    assert root(page).get_attribute("data-look") == "dark"
    assert contrasts(page) == []
    page.get_by_test_id("theme").select_option("light")
    settle(page)
    assert root(page).get_attribute("data-look") == "light"
    assert contrasts(page) == []


def contrasts(page: Any) -> list[str]:
    """Visible texts below 4.5 : 1 against the background that is really under them."""
    return page.evaluate(
        """() => {
        const parse = (c) => (c.match(/[\\d.]+/g) ?? []).map(Number);
        const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
            .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
            .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
        const under = (node) => {
            for (; node; node = node.parentElement) {
                const c = parse(getComputedStyle(node).backgroundColor);
                if (c.length === 3 || c[3] > 0) return c;
            }
            return [255, 255, 255];
        };
        const bad = [];
        const seen = ".hidden-text *, option, :disabled, :disabled *, details:not([open]) .menu *";
        for (const node of document.querySelectorAll(".vla-stepper *")) {
            const own = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
            const colour = parse(getComputedStyle(node).color);
            if (!own || node.matches(seen) || colour[3] === 0) continue;
            const [a, b] = [light(colour), light(under(node))].sort((x, y) => x - y);
            if ((b + 0.05) / (a + 0.05) < 4.5) bad.push(node.className + ": " + node.textContent);
        }
        return bad;
    }"""
    )


@pytest.mark.parametrize("name", ["words", "four"])
def test_main_scene_fits_a_projector(
    visit: Visit, name: str, request: pytest.FixtureRequest
) -> None:
    page = visit(request.getfixturevalue(name), step=4)
    assert page.evaluate("document.documentElement.scrollHeight") <= 720
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280


def test_phone_width_is_stacked_and_usable(visit: Visit, four: Trace) -> None:
    page = visit(four, width=390, height=844, step=4)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    for name in ("start", "back", "play", "step", "end", "scrub", "speed"):
        box = page.get_by_test_id(name).bounding_box()
        assert box["x"] >= 0
        assert box["x"] + box["width"] <= 390
        assert box["y"] + box["height"] <= 844
    page.get_by_test_id("step").click()
    settle(page)
    assert step_of(page) == 5


def test_a_window_that_narrows_redraws(visit: Visit, words: Trace) -> None:
    page = visit(words, step=4)
    page.set_viewport_size({"width": 390, "height": 800})
    page.locator("[data-testid=stepper][data-width=narrow]").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_sharp_on_a_dense_display(browser: Any, words: Trace, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(to_html(words, step=4))
    page = browser.new_page(device_scale_factor=2)
    page.goto(path.as_uri())
    width = page.locator("[data-testid=heat]").first.evaluate("c => [c.width, c.clientWidth]")
    assert width[0] == 2 * width[1]
    page.close()


def test_text_stands_in_for_every_canvas(visit: Visit, words: Trace) -> None:
    page = visit(words, step=4)
    page.get_by_test_id("live").filter(has_text="Step").wait_for(state="attached")
    labels = page.locator("canvas[role=img]").evaluate_all("nodes => nodes.map(n => n.ariaLabel)")
    assert all(labels)
    live = page.get_by_test_id("live").text_content()
    assert "Step 4 of 8" in live
    assert describe(words, words.lanes[1], 4) in live
    table = page.get_by_test_id("tables").text_content()
    assert three(float(np.float32(words.lanes[0].recall[4, 3]))) in table


def test_a_new_trace_keeps_step_focus_and_layout(visit: Visit, words: Trace, four: Trace) -> None:
    page = visit(words, step=4)
    page.locator("[data-testid=token][data-token='3']").focus()
    before = page.get_by_test_id("play").bounding_box()
    stream = make_stream("words", text=words.stream.settings["text"], similarity=0.2, d=8)
    changed = record(["vla", "delta"], stream)
    for trace in (changed, four, words):
        load(page, trace)
        assert step_of(page) == 4
        shown = numbers(page)
        for lane in trace.lanes:
            value = float(np.float32(lane.norm_dS[4]))
            assert shown[lane.rule, "norm_dS"][1] == pytest.approx(value, rel=1e-6, nan_ok=True)
        if trace is changed:
            assert page.get_by_test_id("play").bounding_box() == before
            assert page.evaluate("document.activeElement.dataset.token") == "3"


def load(page: Any, trace: Trace) -> None:
    page.evaluate(
        "bytes => document.querySelector('.vla-stepper').stepper.load(Uint8Array.from(bytes))",
        list(blob(trace)),
    )


def test_long_streams_are_paged_and_say_which_matrices_are_shown(visit: Visit, long: Trace) -> None:
    page = visit(long, step=355)
    assert page.get_by_text("tokens 201–400 of 600").is_visible()
    kept = long.lanes[0].kept
    at = int(kept[kept <= 355].max())
    assert page.get_by_text(f"Matrices as of step {at}").is_visible()
    assert page.get_by_text("512 of 580 shown").is_visible()
    page.mouse.move(*cell_at(page, 0, "S", 1, 2))
    settle(page)
    value = float(page.get_by_test_id("tip").get_attribute("data-value"))
    row = int(np.flatnonzero(kept == at)[0])
    assert value == pytest.approx(long.lanes[0].S[row, 1, 2], abs=1e-6)
    page.mouse.move(*cell_at(page, 0, "dS", 1, 2))
    settle(page)
    write = long.lanes[0].error[at, 1] * long.lanes[0].gain[at, 2]
    shown = float(page.get_by_test_id("tip").get_attribute("data-value"))
    assert shown == pytest.approx(np.nan_to_num(write), abs=1e-6)
    root(page).focus()
    page.keyboard.press("End")
    settle(page)
    assert page.get_by_text("tokens 401–600 of 600").is_visible()


def saved(page: Any, name: str) -> Any:
    if not page.get_by_test_id(name).is_visible():
        page.get_by_test_id("save").click()
    with page.expect_download() as waiting:
        page.get_by_test_id(name).click()
    return waiting.value


def saved_csv(page: Any, panel: str) -> list[list[str]]:
    if not page.get_by_test_id("csv-panel").is_visible():
        page.get_by_test_id("save").click()
    page.get_by_test_id("csv-panel").select_option(panel)
    text = Path(saved(page, "save-csv").path()).read_text(encoding="utf-8-sig")
    return list(csv.reader(io.StringIO(text)))


def test_csv_of_a_panel_is_the_traces_numbers(visit: Visit, words: Trace) -> None:
    page = visit(words, step=4)
    matrix_rows = saved_csv(page, "S vla")
    values = np.array([row[1:] for row in matrix_rows[1:]], dtype=float)
    np.testing.assert_allclose(values, words.lanes[0].S[4], atol=1e-6)
    curves = saved_csv(page, "curves")
    assert len(curves) == 1 + len(words) * len(words.lanes)
    row = dict(zip(curves[0], curves[1 + 2 * 4], strict=True))
    assert row["rule"] == "vla"
    assert float(row["norm_S"]) == pytest.approx(words.lanes[0].norm_S[4], rel=1e-6)
    assert saved_csv(page, "ladder")[1][:3] == ["cat → meow", "1", "4"]


def test_a_saved_view_opens_at_the_same_place_and_can_be_saved_again(
    visit: Visit, words: Trace, browser: Any, tmp_path: Path
) -> None:
    page = visit(words, step=2)
    page.get_by_test_id("log").check()
    page.get_by_test_id("step").click()
    for turn in range(2):
        path = tmp_path / f"again-{turn}.html"
        saved(page, "save-view").save_as(path)
        page = browser.new_page()
        page.goto(path.as_uri())
        assert step_of(page) == 3
        assert page.get_by_test_id("log").is_checked()
        assert numbers(page)["vla", "norm_dS"][1] == pytest.approx(words.lanes[0].norm_dS[3])


def test_a_saved_picture_shows_the_view_at_twice_the_pixels(visit: Visit, words: Trace) -> None:
    page = visit(words, step=4)
    data = Path(saved(page, "save-picture").path()).read_bytes()
    assert data.startswith(b"\x89PNG")
    width = int.from_bytes(data[16:20], "big")
    assert width == 2 * root(page).bounding_box()["width"]
    assert page.locator("[data-testid=heat]").first.evaluate("c => c.width === c.clientWidth")


def test_a_fork_is_drawn_beside_the_main_branch(visit: Visit) -> None:
    """S − S′ answers the pointer, the ladder's table has the fork's recall, a curve the gap."""
    stream = make_stream("words", text=WORDS, similarity=0.6, d=8)
    trace = record_fork(["vla", "delta"], fork(stream, "drop", 1))
    page = visit(trace, step=4)
    for i, lane in enumerate(trace.lanes):
        assert lane.branch is not None
        page.mouse.move(*cell_at(page, i, "D", 2, 3))
        settle(page)
        shown = float(page.get_by_test_id("tip").get_attribute("data-value"))
        assert shown == pytest.approx(lane.branch.D[4][2, 3], rel=1e-5, abs=1e-7)
        gap = page.locator("[data-slot='1']").locator("..").locator(
            f"[data-testid=curve-value][data-lane={lane.rule}]"
        )  # fmt: skip
        assert float(gap.get_attribute("data-value")) == pytest.approx(lane.branch.gap[4], rel=1e-6)
    rows = saved_csv(page, "ladder")
    head = {name: column for column, name in enumerate(rows[0])}
    lane = trace.lane("vla")
    assert lane.branch is not None
    for pair, row in enumerate(rows[1:]):
        for name, recall in (("recall", lane.recall), ("branch recall", lane.branch.recall)):
            cell = row[head[f"{name} error vla"]]
            wanted = recall[4, pair]
            assert (float(cell) if cell else np.nan) == pytest.approx(wanted, rel=1e-5, nan_ok=True)
    assert rows[2][head["branch recall error vla"]] == ""
    curves = saved_csv(page, "curves")
    at = dict(zip(curves[0], curves[1 + 2 * 4], strict=True))
    assert float(at["gap"]) == pytest.approx(lane.branch.gap[4], rel=1e-6)
