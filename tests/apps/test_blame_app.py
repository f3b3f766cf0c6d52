"""The blame app in a real Chromium: what is on screen is what the library takes apart."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import torch

from vla import trained
from vla.nn import build, checkpoint, model
from vla.scene import Scene
from vla.scene.blame import EMPTY, QUESTIONS, Blame, BlameSession, examine, prepared
from vla.tasks import make
from vla.train.config import RunConfig

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

ROW = "5 17 9 3 2 8 | 9 5"


def save(path: Path, name: str, **shape: Any) -> None:
    """An untrained model whose weights are large enough to have opinions."""
    config = model(name, **{"width": 16, "heads": 2, "ffn": 16, "vocab": 24, "max_length": 40,
                            "output_norm": "layer", **shape})  # fmt: skip
    run = RunConfig(model=config, task=make("mqar_authors", pairs=5, vocab=24), steps=1)
    built = build(config, seed=3)
    with torch.no_grad():
        for weight in built.parameters():
            weight.mul_(6)
    checkpoint.save(built, path, notes={"run": run.canonical})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Checkpoints that this process and the server both see."""
    place = tmp_path_factory.mktemp("checkpoints")
    for name in ("delta", "vla_exact", "vla_authors", "softmax"):
        save(place / f"{name}.safetensors", name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLA_CHECKPOINTS", str(place))
        yield place


@pytest.fixture(scope="module")
def address(folder: Path, start_lab: Callable[..., Any]) -> str:  # noqa: ARG001
    return start_lab().address


def visit(context: Any, address: str, query: dict[str, str]) -> Any:
    page = context.new_page()
    page.set_default_timeout(40_000)
    page.goto(f"{address}blame/?{urlencode(query)}")
    page.get_by_test_id("panel").wait_for()
    page.get_by_test_id("verdict").wait_for()
    return page


def control(page: Any, kind: str, key: str) -> Any:
    return page.locator(f"[data-testid='{kind}'][data-key='{key}']")


def prepared_scene(page: Any, name: str) -> None:
    """As a person does it, who leaves the text for the picker: a text in use isn't overwritten."""
    page.get_by_test_id("preset").focus()
    page.get_by_test_id("preset").select_option(name)


def assert_shows(page: Any, scene: Blame) -> BlameSession:
    """Address, verdict and every number agree with the scene."""
    session = BlameSession(scene.to_query())
    assert session.controls.notes == []
    cells = [cell for line in (*session.writes(), *session.rivals()) for cell in line.cells]
    page.wait_for_function(
        """([query, wanted, verdict]) => {
            const here = Object.fromEntries(new URLSearchParams(location.search));
            const nodes = [...document.querySelectorAll('.numbers [data-testid=number]')];
            const near = (a, b) => Math.abs(a - b) <= 1e-8 * Math.max(1, Math.abs(b));
            return JSON.stringify(Object.entries(here).sort())
                    === JSON.stringify(Object.entries(query).sort())
                && document.querySelector('[data-testid=verdict]').textContent === verdict
                && nodes.length === wanted.length
                && nodes.every((n, i) => n.dataset.lane === wanted[i][0]
                    && n.dataset.number === wanted[i][1]
                    && near(Number(n.dataset.value), wanted[i][2]));
        }""",
        arg=[scene.to_query(), [list(cell) for cell in cells], session.verdict()],
    )
    return session


@pytest.fixture(scope="module")
def page(contexts: Callable[..., Any], address: str) -> Any:
    return visit(contexts(accept_downloads=True), address, {})


def first() -> Blame:
    return Blame(checkpoint="delta")


def test_it_opens_explained_and_every_control_changes_it(page: Any) -> None:
    session = assert_shows(page, first())
    words = page.locator(".words").inner_text()
    preset = session.presets["any"]
    assert all(part in words for part in (preset.question, preset.seen, preset.answer))
    for told in session.words():
        page.locator(f'[role=figure][aria-label="{told}"]').wait_for()
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    scene = first()
    changes = [
        ("number-input", "seed", "3", {"seed": 3}),
        ("number-input", "pairs", "4", {"pairs": 4}),
        ("number-input", "ask", "2", {"ask": 2}),
        ("choice", "layer", "0", {"layer": "0"}),
        ("choice", "head", "1", {"head": "1"}),
        ("choice", "by", "value", {"by": "value"}),
        ("choice", "checkpoint", "softmax", {"checkpoint": "softmax"}),
        ("choice", "checkpoint", "vla_authors", {"checkpoint": "vla_authors"}),
        ("words", "tokens", ROW, {"tokens": ROW}),
    ]
    for kind, key, value, change in changes:
        if kind == "choice":
            control(page, kind, key).select_option(value)
        else:
            control(page, kind, key).fill(value)
            control(page, kind, key).press("Enter" if kind == "number-input" else "End")
        scene = scene.with_(**change)
        assert_shows(page, scene)
    prepared_scene(page, "any")
    assert_shows(page, first())


def test_what_cannot_be_read_is_told_and_the_picture_stays(page: Any) -> None:
    session = assert_shows(page, first())
    for text, says in (
        ("<img src=x onerror=window.hacked=1>", "token numbers such as"),
        ("5 17 9 99", "numbers below 24"),
        ("5 17 9 3", "a row that asks for a key"),
        ("5 17 " * 30, "1 to 40"),
    ):
        control(page, "words", "tokens").fill(text)
        page.get_by_test_id("notes").get_by_text(says).wait_for()
        assert page.get_by_test_id("verdict").inner_text() == session.verdict()
    assert page.evaluate("window.hacked") is None
    control(page, "words", "tokens").fill("")
    control(page, "number-input", "ask").fill("99")
    control(page, "number-input", "ask").press("Enter")
    page.get_by_test_id("notes").get_by_text("at most 5").wait_for()
    prepared_scene(page, "any")
    assert_shows(page, first())


def test_one_click_to_the_step_in_the_stepper(page: Any) -> None:
    session = assert_shows(page, first())
    line = session.writes()[0]
    token = int(line.title.removeprefix("token "))
    assert session.worst_link() == line.link
    assert page.locator(f'.numbers a[href="{line.link}"]').count() == 1
    with page.context.expect_page() as waiting:
        page.get_by_text("Open that write in the stepper").click(modifiers=["Control"])
    stepper = waiting.value
    stepper.locator(f"[data-testid=stepper][data-step='{token + 1}']").wait_for()
    assert stepper.get_by_test_id("notes").locator("p").count() == 0
    row = " ".join(map(str, session.case.row))
    head = int(line.link.split("head=")[1].split("&")[0])
    layer = session.case.found.query.layer
    scene = Scene(kind="layer", checkpoint="delta", layer=layer, head=head, tokens=row,
                  lanes=("layer",), step=token + 1)  # fmt: skip
    stepper.wait_for_function(
        "wanted => new URLSearchParams(location.search).get('tokens') === wanted", arg=row
    )
    assert scene.stream().labels[token]
    stepper.close()


def test_picture_and_data_are_saved(page: Any, tmp_path: Path) -> None:
    session = assert_shows(page, first())
    with page.expect_download() as waiting:
        page.get_by_test_id("save-data").click()
    waiting.value.save_as(tmp_path / "data.csv")
    rows = list(csv.DictReader((tmp_path / "data.csv").read_text().splitlines()))
    parts = [row for row in rows if row["token"] != "rule"]
    shares = [float(row["share_of_read"]) for row in parts if row["head"] == "0"]
    assert sum(shares) == pytest.approx(1)
    assert len(parts) == 2 * len(session.case.roles())
    assert len(rows) - len(parts) == len(session.rivals())
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Pictures (HTML)").click()
    waiting.value.save_as(tmp_path / "page.html")
    assert session.verdict() in (tmp_path / "page.html").read_text()
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Picture (PNG)").click()
    waiting.value.save_as(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_files_of_ones_own(page: Any, folder: Path, tmp_path: Path) -> None:
    session = assert_shows(page, first())
    bad = tmp_path / "bad.safetensors"
    bad.write_text("not weights")
    chooser = page.locator("input[type=file]")
    chooser.set_input_files(bad)
    page.get_by_test_id("notes").get_by_text("The last model stays.").wait_for()
    assert page.get_by_test_id("verdict").inner_text() == session.verdict()
    good = tmp_path / "mine.safetensors"
    save(good, "rls", layers=1)
    chooser.set_input_files(good)
    page.get_by_test_id("notes").get_by_text("mine.safetensors is shown").wait_for()
    page.locator(".numbers").get_by_text("as trained: exact RLS").wait_for()
    assert page.locator(".numbers a").count() == 0
    control(page, "choice", "checkpoint").select_option("vla_exact")
    assert_shows(page, Blame(checkpoint="vla_exact"))
    prepared_scene(page, "any")
    assert (folder / "delta.safetensors").is_file()


def test_a_bad_link_on_a_dark_phone(contexts: Callable[..., Any], address: str) -> None:
    context = contexts(viewport={"width": 390, "height": 844}, color_scheme="dark")
    query = {"checkpoint": "../../etc", "layer": "7", "head": "15", "seed": "<b>", "what": "1"}
    page = visit(context, address, query)
    page.get_by_test_id("notes").locator("p").nth(4).wait_for()
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert page.evaluate("document.querySelector('#App').scrollWidth") <= 390
    assert "Traceback" not in page.inner_text("body")
    page.close()


def test_without_a_checkpoint_the_page_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    monkeypatch.setenv("VLA_CHECKPOINTS", str(tmp_path))
    session = BlameSession({"layer": "1"})
    assert session.verdict() == EMPTY
    assert (session.writes(), session.rivals(), session.presets) == ([], [], {})
    assert session.to_csv().count("\n") == 1
    session.load("softmax.safetensors", (folder / "softmax.safetensors").read_bytes())
    assert session.rivals()[0].title == "as trained: softmax attention"
    (tmp_path / "broken.safetensors").write_bytes(b"\0" * 40)
    told = BlameSession({"checkpoint": "broken"})
    assert told.case is None
    assert "a whole safetensors file" in told.controls.notes[0]


def test_the_prepared_answers_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the recorded checkpoints, each prepared answer's numbers."""
    monkeypatch.delenv("VLA_CHECKPOINTS", raising=False)
    if (presets := prepared()).keys() != QUESTIONS.keys():
        pytest.skip("no recorded checkpoints")
    cases = {}
    for name, preset in presets.items():
        assert Blame.from_query(preset.scene.to_query()) == (preset.scene, [])
        cases[name] = examine(trained.load(preset.scene.checkpoint), preset.scene)
    found = cases["write"].found
    assert not found.correct
    assert found.log_p_without[found.ranked()[0]].exp() > 0.985
    rules = {rival.title: rival for rival in cases["memory"].rivals}
    right = cases["memory"].found.right
    assert not cases["memory"].found.correct
    assert rules["exact RLS"].said == rules["VLA, unit gain, u = key"].said == right
    rules = {rival.title: rival.said for rival in cases["twice"].rivals}
    assert (cases["twice"].found.said, rules["DeltaNet"], rules["exact RLS"]) == (17, 44, 17)
    found = cases["delta"].found
    gain = (found.effect[found.ranked()[0]]).exp()
    assert not found.correct
    assert 1.5 < gain < 2.5
    found = cases["right"].found
    assert found.correct
    assert found.log_p_without[found.ranked()[-1]].exp() < 0.01
    places = [t for t, effect in enumerate(found.effect.tolist()) if effect < -1]
    value = cases["right"].row.index(13)
    assert places == [value, value + 2]
