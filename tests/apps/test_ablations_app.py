"""The ablations app in a real Chromium: switches, recorded runs, a layer trained on the page."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from vla import nn
from vla.scene.ablations import ABLATIONS, Ablations, AblationsSession, protocol_of
from vla.tasks import make
from vla.theory.ablation import acting
from vla.train import RunConfig, RunResult, RunRow, Store, export
from vla.train.presets import ABLATIONS as LAYERS

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]


def recorded(label: str, seed: int, accuracy: float, steps: int = 2000) -> RunRow:
    run = RunConfig(LAYERS[label], make("mqar_authors", pairs=24), seed=seed, steps=steps)
    result = RunResult("done", step=steps, evaluation={"test": {"accuracy": accuracy}},
                       device="NVIDIA H200", commit="0123456789")  # fmt: skip
    return RunRow(run.key, run, "done", result, label=label, preset="table4", budget="full")


ROWS = [
    *(recorded("VLA (as run)", seed, 0.9 + seed / 10_000) for seed in (42, 123, 999)),
    recorded("A fixed", 42, 0.25),
    recorded("no output norm", 42, 0.07),
    recorded("no output norm", 42, 0.06, steps=1000),
    recorded("λ0 = 1", 42, 0.5),
    recorded("delta + output norm", 42, 0.08),
    recorded("exact", 42, 0.97),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Recorded runs and a run store that this process and the server both see."""
    place = tmp_path_factory.mktemp("ablations")
    (place / "runs").mkdir()
    export(ROWS, place / "runs" / "table4.parquet")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLA_DATA", str(place))
        patch.setenv("VLA_STORE", str(place / "runs.sqlite"))
        yield place / "runs.sqlite"


@pytest.fixture(scope="module")
def address(store: Path, start_lab: Callable[..., Any]) -> str:  # noqa: ARG001
    return start_lab().address


def visit(context: Any, address: str, query: dict[str, str]) -> Any:
    page = context.new_page()
    page.set_default_timeout(40_000)
    page.goto(f"{address}ablations/?{urlencode(query)}")
    page.get_by_test_id("panel").wait_for()
    page.get_by_test_id("nearest").wait_for()
    return page


def control(page: Any, kind: str, key: str) -> Any:
    return page.locator(f"[data-testid='{kind}'][data-key='{key}']")


def assert_shows(page: Any, scene: Ablations) -> AblationsSession:
    """Address, answer, the nearest layer and every number agree with the scene."""
    session = AblationsSession(scene.to_query())
    assert session.controls.notes == []
    page.wait_for_function(
        """([query, wanted, answer, nearest]) => {
            const here = Object.fromEntries(new URLSearchParams(location.search));
            const nodes = [...document.querySelectorAll('.numbers [data-testid=number]')];
            const near = (a, b) => Math.abs(a - b) <= 1e-8 * Math.max(1, Math.abs(b));
            const text = name => document.querySelector(`[data-testid=${name}]`).textContent;
            return JSON.stringify(Object.entries(here).sort())
                    === JSON.stringify(Object.entries(query).sort())
                && text('answer') === answer && text('nearest') === nearest
                && nodes.length === wanted.length
                && nodes.every((n, i) => n.dataset.lane === wanted[i][0]
                    && n.dataset.number === wanted[i][1]
                    && near(Number(n.dataset.value), wanted[i][2]));
        }""",
        arg=[scene.to_query(), [list(cell) for cell in session.cells()], session.answer(),
             session.nearest()],
    )  # fmt: skip
    return session


@pytest.fixture(scope="module")
def page(contexts: Callable[..., Any], address: str) -> Any:
    return visit(contexts(accept_downloads=True), address, {})


CHANGES = [
    ("number-input", "refresh", "5", {"refresh_every": 5}),
    ("number-input", "epsilon_r", "0.1", {"refresh_eps": 0.1}),
    ("number-input", "rank", "2", {"rank": 2}),
    ("flag", "learned_lambda0", True, {"learned": True}),
    ("choice", "features", "silu", {"features": "silu"}),
    ("flag", "unit_keys", False, {"normalise_key": False}),
    ("number-input", "conv", "3", {"short_conv": 3}),
    ("choice", "gain", "rls", {"gain": "rls"}),
    ("flag", "gate", True, {"gated": True}),
    ("flag", "zq", False, {"normalise_read": False}),
    ("choice", "norm", "head", {"output_norm": "head"}),
    ("number-input", "lambda0", "2", {"lambda0": 2.0}),
    ("choice", "u_scale", "1", {"scale": "1"}),
    ("flag", "unit_u", False, {"unit_direction": False}),
    ("choice", "u", "weighted", {"direction": "weighted"}),
    ("flag", "adaptive", False, {"adaptive": False}),
    ("number-input", "n", "9", {"n": 9}),
    ("number-input", "d", "8", {"d": 8}),
    ("number-input", "rho", "0.5", {"rho": 0.5}),
    ("number-input", "spread", "2", {"spread": 2.0}),
    ("number-input", "seed", "8", {"seed": 8}),
    ("choice", "size", "as published", {"size": "as published"}),
    ("number-input", "load", "5", {"load": 5}),
    ("number-input", "steps", "99", {"steps": 99}),
    ("number-input", "lr", "0.02", {"lr": 0.02}),
    ("number-input", "train_seed", "1", {"train_seed": 1}),
]


def test_every_control_changes_it(page: Any) -> None:
    session = assert_shows(page, Ablations())
    assert session.near[0].title == "VLA (as run)"
    assert "0.9" in session.answer()
    for told in session.words():
        page.locator(f'[role=figure][aria-label="{told}"]').wait_for()
    scene = Ablations()
    reached = {key for _, key, _, _ in CHANGES}
    assert reached == {knob.key for knob in Ablations.knobs().values()}
    for turn, (kind, key, value, change) in enumerate(CHANGES, start=1):
        if kind == "choice":
            control(page, kind, key).select_option(value)
        elif kind == "flag":
            control(page, kind, key).set_checked(value)
        else:
            control(page, kind, key).fill(value)
            control(page, kind, key).press("Enter")
        scene = scene.with_(**change)
        if turn % 3 == 0 or turn == len(CHANGES):
            assert_shows(page, scene)


def test_prepared_scenes_and_the_nearest_recorded_layer(page: Any) -> None:
    for name in ("fixed", "norm", "exact", "as_run"):
        page.get_by_test_id("preset").select_option(name)
        session = assert_shows(page, ABLATIONS[name].scene)
        page.locator(".words h1", has_text=ABLATIONS[name].question).wait_for()
        assert "is this very layer" in session.nearest()
        shown = page.get_by_test_id("protocol").all_inner_texts()
        assert shown == ["\t".join(line) for line in session.table()]
    control(page, "number-input", "lambda0").fill("3")
    control(page, "number-input", "lambda0").press("Enter")
    session = assert_shows(page, Ablations(lambda0=3.0))
    assert "λ0 0.1 there, λ0 3 here" in session.nearest()
    page.get_by_test_id("preset").select_option("as_run")
    assert_shows(page, Ablations())


def test_data_and_pictures_are_saved(page: Any, tmp_path: Path) -> None:
    session = assert_shows(page, Ablations())
    with page.expect_download() as waiting:
        page.get_by_test_id("save-data").click()
    waiting.value.save_as(tmp_path / "data.csv")
    rows = list(csv.DictReader((tmp_path / "data.csv").read_text().splitlines()))
    last = next(row for row in rows if row["pairs_stored"] == "24")
    assert float(last["mean_error"]) == pytest.approx(session.cells()[0].value)
    trained = [row for row in rows if row["picture"] == "trained"]
    assert {row["device"] for row in trained} == {"NVIDIA H200"}
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Pictures (HTML)").click()
    waiting.value.save_as(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text().count("plotly-graph-div") >= 2
    with page.expect_download() as waiting:
        page.get_by_role("button", name="Picture (PNG)").click()
    waiting.value.save_as(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")


def test_a_layer_is_trained_stopped_and_trained_again(page: Any, store: Path) -> None:
    long = Ablations.of(nn.model("vla_exact", short_conv=4), steps=5000)
    page.get_by_test_id("preset").select_option("here")
    assert_shows(page, ABLATIONS["here"].scene)
    control(page, "number-input", "steps").fill("5000")
    control(page, "number-input", "steps").press("Enter")
    assert_shows(page, long)
    page.get_by_role("button", name="Train this layer here").click()
    page.get_by_test_id("job-progress").wait_for()
    page.get_by_test_id("job-curves").locator("svg").first.wait_for()
    page.get_by_test_id("job-stop").click()
    page.get_by_test_id("job").get_by_text("Stopped").wait_for()
    with Store(store, create=False) as opened:
        assert opened.problems() == []
        assert [row.status for row in opened.rows(preset="ablations")] == ["cancelled"]
    control(page, "number-input", "steps").fill("20")
    control(page, "number-input", "steps").press("Enter")
    page.wait_for_url("**steps=20*")
    page.get_by_role("button", name="Train this layer here").click()
    page.locator("[data-testid=nearest]", has_text="is this very layer").wait_for(timeout=60_000)
    with Store(store, create=False) as opened:
        assert opened.problems() == []
        done = opened.rows(preset="ablations", status="done")
    assert [row.key for row in done] == [long.with_(steps=20).run().key]
    shown = page.get_by_test_id("protocol").all_inner_texts()
    assert shown[0].startswith(f"{protocol_of(done[0])}\t{done[0].accuracy():.3f} (one seed, 42)")


def test_a_bad_link_on_a_dark_phone(contexts: Callable[..., Any], address: str) -> None:
    context = contexts(viewport={"width": 390, "height": 844}, color_scheme="dark")
    query = {"features": "<b>", "lambda0": "-3", "n": "999", "what": "1", "adaptive": "perhaps"}
    page = visit(context, address, query)
    page.get_by_test_id("notes").locator("p").nth(4).wait_for()
    page.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert page.evaluate("document.querySelector('#App').scrollWidth") <= 390
    assert "Traceback" not in page.inner_text("body")
    page.close()


@pytest.mark.parametrize("name", ABLATIONS)
def test_prepared_layers_are_what_they_say(name: str) -> None:
    wanted = {
        "as_run": "vla_authors", "paper": "vla_paper", "exact": "vla_exact",
        "fixed": "A fixed", "norm": "no output norm",
    }  # fmt: skip
    scene = ABLATIONS[name].scene
    assert Ablations.from_query(scene.to_query()) == (scene, [])
    if name in wanted:
        known = LAYERS.get(wanted[name]) or nn.model(wanted[name])
        assert acting(scene.config()) == acting(known)
    assert json.loads(scene.run().canonical)["model"]["mixer"] == "vla"


def test_without_records_the_page_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLA_DATA", str(tmp_path))
    session = AblationsSession({}, tmp_path / "none.sqlite")
    assert "No recorded run" in session.nearest()
    assert (session.table(), session.controls.notes) == ([], [])
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "table4.parquet").write_bytes(b"no parquet")
    (tmp_path / "none.sqlite").write_bytes(b"no store")
    session = AblationsSession({}, tmp_path / "none.sqlite")
    assert any("parquet" in note for note in session.controls.notes)
    assert any("none.sqlite" in note for note in session.controls.notes)


def test_a_load_that_cannot_be_is_told(store: Path) -> None:
    session = AblationsSession({"load": "40"}, store)
    session.train()
    assert "at most 31" in session.controls.notes[0]
    assert not session.live.running
