"""The kernels app in a real Chromium: what is on screen is what the records hold."""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from vla.bench.record import read
from vla.scene.kernels import KERNELS, Kernels, KernelsSession

pytestmark = [pytest.mark.browser, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kernels") / "local.json"


@pytest.fixture(scope="module")
def address(start_lab: Callable[..., Any], file: Path) -> Iterator[str]:
    """A laboratory of its own: this one measures, and not into anybody's record."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLA_BENCH", str(file))
        lab = start_lab()
        yield lab.address
        lab.close()


def visit(context: Any, address: str, query: dict[str, str]) -> Any:
    page = context.new_page()
    page.goto(f"{address}kernels/?{urlencode(query)}")
    page.get_by_test_id("panel").wait_for()
    page.get_by_test_id("sheet").wait_for()
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    return page


def control(page: Any, kind: str, key: str) -> Any:
    return page.locator(f"[data-testid='{kind}'][data-key='{key}']")


def shown(page: Any, column: str) -> list[str]:
    return page.locator(f"[data-testid=cell][data-column='{column}']").evaluate_all(
        "nodes => nodes.map(node => node.dataset.value)"
    )


def assert_shows(page: Any, scene: Kernels, file: Path) -> None:
    """Address, the picture's words, the answer and every row agree with the library's."""
    wanted = KernelsSession(scene.to_query(), file=file)
    page.wait_for_function(
        """wanted => {
            const here = Object.fromEntries(new URLSearchParams(location.search));
            return JSON.stringify(Object.entries(here).sort())
                === JSON.stringify(Object.entries(wanted).sort());
        }""",
        arg=scene.to_query(),
    )
    page.locator(f'[role=figure][aria-label="{wanted.words()}"]').wait_for()
    if wanted.entries():
        name = wanted.entries()[-1].id
        page.locator(f"[data-testid=entry][data-id='{name}']").wait_for()
    column = "worst" if scene.picture == "error" else "median_ms"
    numbers = sorted(float(x) for x in shown(page, column))
    assert numbers == sorted(e.values[column] for e in wanted.entries())
    assert wanted.answer() in page.locator(".words").inner_text()


@pytest.fixture(scope="module")
def page(contexts: Callable[..., Any], address: str) -> Any:
    return visit(contexts(accept_downloads=True), address, {})


def test_it_opens_on_the_crossing_with_every_number(page: Any, file: Path) -> None:
    assert_shows(page, Kernels(), file)
    words = page.locator(".words").inner_text()
    assert KERNELS["crossing"].question in words
    assert KERNELS["crossing"].seen in words
    wanted = KernelsSession({}, file=file)
    met = page.get_by_test_id("target").evaluate_all("nodes => nodes.map(n => n.dataset.met)")
    names = {True: "met", False: "missed", None: "open"}
    assert met == [names[each.met] for each in wanted.targets()]
    for each in wanted.targets():
        assert each.measured in page.inner_text("main")
    decoded = page.locator("[data-number=decode]").evaluate_all(
        "nodes => nodes.map(n => [n.dataset.lane, Number(n.dataset.value)])"
    )
    assert decoded == [list(pair) for pair in wanted.decoding()]
    assert wanted.standing() in page.get_by_test_id("standing").inner_text()
    box = page.locator(".js-plotly-plot").first.bounding_box()
    assert box["y"] + box["height"] <= 720
    assert page.evaluate("document.querySelector('#App').scrollWidth") <= 1280


def test_every_control(page: Any, file: Path) -> None:
    scene = Kernels()
    for kind, key, given, change in (
        ("choice", "shape", "B8 H4 d32", {"shape": "B8 H4 d32"}),
        ("choice", "pass", "forward+backward", {"passes": "forward+backward"}),
        ("rule", "tf32", True, {"precisions": ("bf16", "tf32")}),
        ("rule", "fla MesaNet", False, {"families": Kernels().families[:-1]}),
        ("flag", "floor", False, {"floor": False}),
        ("flag", "paper", True, {"paper": True}),
        ("choice", "picture", "throughput", {"picture": "throughput"}),
        ("choice", "picture", "memory", {"picture": "memory"}),
        ("choice", "source", "this machine", {"source": "this machine"}),
        ("choice", "source", "recorded", {"source": "recorded"}),
        ("choice", "picture", "error", {"picture": "error"}),
        ("choice", "output", "gradients", {"output": "gradients"}),
    ):
        if kind == "choice":
            control(page, kind, key).select_option(given)
        else:
            control(page, kind, key).set_checked(given)
        scene = scene.with_(**change)
        assert_shows(page, scene, file)
    page.locator("[data-testid=sort][data-column=share]").click()
    page.locator("[data-testid=sort][data-column=share]").click()
    scene = scene.with_(sort="-share")
    assert_shows(page, scene, file)
    shares = [float(x) for x in shown(page, "share")]
    assert shares == sorted(shares, reverse=True)
    page.get_by_test_id("find").fill("float16")
    page.wait_for_function("location.search.includes('find=float16')")
    assert set(shown(page, "dtype")) == {"float16", "bfloat16"}
    page.get_by_test_id("find").press("Escape")


def test_prepared_scenes_and_their_answers(page: Any, file: Path) -> None:
    for name in ("paper", "loop", "errors"):
        page.get_by_test_id("preset").select_option(name)
        page.locator(".words h1", has_text=KERNELS[name].question).wait_for()
        assert_shows(page, KERNELS[name].scene, file)
    page.get_by_role("button", name=KERNELS["crossing"].title, exact=True).click()
    assert_shows(page, Kernels(), file)


def test_files_are_saved_and_open(page: Any, contexts: Any, file: Path, tmp_path: Path) -> None:
    files = {}
    for button in ("save-data", "save-picture-html", "save-png"):
        with page.expect_download() as waiting:
            page.get_by_test_id(button).click()
        files[button] = tmp_path / waiting.value.suggested_filename
        waiting.value.save_as(files[button])
    with open(files["save-data"], newline="") as opened:
        rows = list(csv.DictReader(opened))
    wanted = KernelsSession({}, file=file).entries()
    assert [float(row["median_ms"]) for row in rows] == [e.values["median_ms"] for e in wanted]
    assert files["save-png"].read_bytes().startswith(b"\x89PNG")
    alone = contexts().new_page()
    alone.goto(f"file://{files['save-picture-html']}")
    alone.locator(".js-plotly-plot .main-svg").first.wait_for()
    alone.close()


def test_this_machine_is_measured_and_a_measurement_is_stopped(
    page: Any, contexts: Callable[..., Any], address: str, file: Path
) -> None:
    """Another page isn't disturbed; the record holds only whole rows."""
    other = visit(contexts(), address, {"source": "this machine", "longest": "2048"})
    assert "press the button" in other.get_by_test_id("standing").inner_text()
    other.get_by_role("button", name="Measure this machine").click()
    other.get_by_test_id("job-value").first.wait_for()
    started = time.monotonic()
    page.get_by_test_id("preset").select_option("memory")
    assert_shows(page, KERNELS["memory"].scene, file)
    control(other, "flag", "floor").set_checked(False)
    other.wait_for_function("location.search.includes('floor=0')")
    assert time.monotonic() - started < 8
    other.get_by_test_id("job-stop").click()
    other.locator("[data-testid=job]:not([data-status=running])").wait_for()
    rows = read(file)["rows"]
    assert rows
    scene, _ = Kernels.from_query({
        "source": "this machine", "floor": "0", "precisions": "fp32", "shape": "B1 H4 d32",
        "methods": "VLA chunk form (PyTorch),VLA token loop (PyTorch)",
    })  # fmt: skip
    assert_shows(other, scene, file)
    assert shown(other, "median_ms")
    other.close()


def test_a_bad_link_on_a_dark_phone(contexts: Callable[..., Any], address: str) -> None:
    context = contexts(viewport={"width": 390, "height": 844}, color_scheme="dark")
    query = {
        "picture": "<b>",
        "shape": "B9",
        "methods": "<script>1</script>",
        "sort": "?",
        "q": "1",
    }
    page = visit(context, address, query)
    page.get_by_test_id("notes").locator("p").nth(4).wait_for()
    assert page.evaluate("document.querySelector('#App').scrollWidth") <= 390
    assert "Traceback" not in page.inner_text("body")
    page.wait_for_function("location.search === ''")
    page.close()
