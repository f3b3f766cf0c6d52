"""The sweeps app's session without a browser: runs found, merged, picked, compared, told."""

from __future__ import annotations

import csv
import dataclasses
import io
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

import sweep_rows

from vla.figures import runs as pictures
from vla.scene.sweeps import EXPERIMENTS, KINDS, SWEEPS, Sweeps, SweepsSession, answer
from vla.train import export
from vla.train.presets import BUDGETS, FASTER, PRESETS, RETENTION


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No recorded runs but those that a test makes."""
    monkeypatch.setenv("VLA_DATA", str(tmp_path))
    return tmp_path


def session(data: Path, **query: str) -> SweepsSession:
    return SweepsSession(query, store=data / "runs.sqlite")


def test_every_preset_of_vla_sweep_has_a_place() -> None:
    missing = set(PRESETS) - set(EXPERIMENTS.values())
    assert not missing
    assert {each.scene.experiment for each in SWEEPS.values()} == set(EXPERIMENTS)


@pytest.mark.parametrize("name", SWEEPS)
def test_prepared_scenes_survive_the_address(name: str) -> None:
    scene = SWEEPS[name].scene
    assert Sweeps.from_query(scene.to_query()) == (scene, [])
    assert scene.bare() == scene
    changed = scene.with_(pick="0123abcd,89ef0123", sort="-test", find="delta 24", budget="cpu")
    assert Sweeps.from_query(changed.to_query()) == (changed, [])


def test_an_address_is_repaired_with_messages() -> None:
    scene, notes = Sweeps.from_query(
        {"pick": "<b>,0123abcd,zz", "sort": "-nothing", "budget": "huge", "experiment": "x"}
    )
    assert (scene.pick, scene.sort, scene.budget) == ("0123abcd", "label", "full")
    assert len(notes) == 4


@pytest.mark.parametrize("experiment", EXPERIMENTS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_without_any_run_every_scene_says_so(data: Path, experiment: str, budget: str) -> None:
    shown = session(data, experiment=experiment, budget=budget)
    assert shown.words()
    assert "No run of this experiment" in shown.standing()
    assert shown.answer() == ""
    assert shown.learning() is None
    assert shown.missing() == len(PRESETS[EXPERIMENTS[experiment]].wanted(budget))
    drawn = [
        t for t in shown.figure().data if t.name and ("published" in t.name or "log" in t.name)
    ]
    published = budget == "full" and experiment not in ("fair", "ablation", "rank and λ0")
    assert bool(drawn) == published


@pytest.mark.parametrize("name", SWEEPS)
def test_every_scene_draws_its_recorded_runs(data: Path, name: str) -> None:
    scene = SWEEPS[name].scene
    rows = sweep_rows.record(data, scene.preset)
    shown = session(data, **scene.to_query())
    assert len(shown.entries()) == len(rows)
    assert shown.answer()
    assert shown.controls.notes == []
    assert shown.prepared == name
    keys = {key for t in shown.figure().data if isinstance(t.meta, dict)
            for point in t.meta["keys"] for key in point}  # fmt: skip
    assert keys <= {row.key for row in rows}
    assert keys or scene.preset == "table7" or scene.view == "learning rates"


def test_recorded_and_live_runs_are_told_apart(data: Path) -> None:
    recorded = sweep_rows.record(data, budget="smoke")
    sweep_rows.store(data / "runs.sqlite")
    both = session(data, budget="smoke")
    assert len(both.rows) == len(recorded)
    assert not both.live_rows
    live = session(data, budget="smoke", source="live")
    assert len(live.live_rows) == len(recorded)
    badges = {entry.words["source"] for entry in live.entries()}
    assert badges == {"live: a laptop, commit feedbee+"}
    marks = next(t for t in live.figure().data if isinstance(t.meta, dict))
    assert set(marks.marker.symbol) == {"diamond"}
    assert "live: a laptop, commit feedbee+" in marks.customdata[0]
    marks = next(t for t in both.figure().data if isinstance(t.meta, dict))
    assert set(marks.marker.symbol) == {"circle"}
    assert "recorded: NVIDIA H200, commit feedbee+" in marks.customdata[0]
    assert len(session(data, budget="smoke", source="recorded").rows) == len(recorded)
    assert "Every run" in live.standing()


def test_a_clicked_point_picks_its_runs_and_a_second_click_lets_them_go(data: Path) -> None:
    sweep_rows.record(data)
    shown = session(data)
    curve = next(i for i, t in enumerate(shown.figure().data) if isinstance(t.meta, dict))
    keys = [key[:8] for key in shown.figure().data[curve].meta["keys"][1]]
    point = {"curveNumber": curve, "pointIndex": 1}
    shown.clicked([point])
    assert shown.scene.picked == tuple(keys)
    assert len(keys) == 3
    assert shown.controls.query["pick"] == ",".join(keys)
    assert shown.sheet.picked == keys
    curves = shown.learning()
    assert curves is not None
    line = next(t for t in curves.data if t.mode == "lines" and t.fill is None)
    mine = [row for row in shown.rows if row.key[:8] in keys]
    assert line.y[-1] == pytest.approx(statistics.fmean(row.accuracy() for row in mine))
    shown.clicked([point])
    assert shown.scene.pick == ""
    shown.clicked([{"curveNumber": 99, "pointIndex": 0}, {}])
    assert shown.scene.pick == ""


def test_curves_of_picked_runs_are_named_by_what_differs(data: Path) -> None:
    sweep_rows.record(data)
    shown = session(data)
    softmax = [row.key[:8] for row in shown.rows if row.label == "softmax"]
    shown = session(data, pick=",".join(softmax))
    curves = shown.learning()
    assert curves is not None
    names = {t.name for t in curves.data if t.mode == "lines" and t.fill is None}
    assert names == {f"softmax attention, n {n}" for n in (4, 8, 12, 16, 24)}
    loss = session(data, pick=",".join(softmax), curve="loss").learning()
    assert loss is not None
    assert "loss" in loss.layout.yaxis.title.text


def test_picks_that_are_not_there_are_told(data: Path) -> None:
    sweep_rows.record(data)
    shown = session(data, pick="00000000")
    assert shown.controls.notes == ["pick: 1 of the picked runs are not among those on show."]


def react(shown: SweepsSession, **more: Any) -> None:
    told = {"look": shown.look, "serial": shown.controls.answered, "values": {}, "wish": ""}
    shown.react({**told, **more})


def test_controls_table_and_prepared_scenes_change_the_scene(data: Path) -> None:
    sweep_rows.record(data)
    shown = session(data)
    turns: list[object] = []
    shown.changed = turns.append
    shown.sorted({"sort": "-test", "find": "delta", "picked": []})
    assert (shown.scene.sort, shown.scene.find) == ("-test", "delta")
    assert turns == []
    key = shown.rows[0].key[:8]
    shown.sorted({"sort": "-test", "find": "delta", "picked": [key]})
    assert len(turns) == 1
    react(shown, serial=1, values={"budget": "full", "curve": "loss"})
    assert (shown.scene.quantity, shown.scene.pick) == ("loss", key)
    react(shown, serial=2, values={"budget": "smoke"})
    assert shown.scene.pick == "", "another size has other runs"
    react(shown, wish="open:fair")
    assert shown.scene == SWEEPS["fair"].scene
    assert shown.controls.preset == "fair"
    react(shown, look="dark")
    assert shown.figure().layout.paper_bgcolor is None
    assert shown.figure().layout.template.layout.paper_bgcolor == "#14181C"


def test_published_numbers_beside_ours(data: Path) -> None:
    rows = sweep_rows.record(data)
    shown = session(data)
    lines = shown.compared()
    assert [each.apart for each in lines] == sorted((e.apart for e in lines), reverse=True)
    assert len(lines) == 4 * 5 + 4
    each = next(e for e in lines if e.label == "vla_authors" and e.x == 8)
    mine = [r.accuracy() for r in rows if r.label == "vla_authors" and r.value("task.pairs") == 8]
    assert each.ours == pytest.approx(statistics.fmean(mine))
    assert each.published == 1.0
    near = sum(e.apart <= 0.05 for e in lines)
    assert (
        f"Of 24 published numbers with runs beside them, {near} lie within 0.05" in shown.answer()
    )
    assert f"{lines[0].ours:.3f}" in shown.answer()
    assert session(data, budget="smoke").compared() == []
    assert len(shown.beside()) == 24


def test_table4_is_compared_at_its_own_steps(data: Path) -> None:
    rows = sweep_rows.record(data, "table4")
    shown = session(data, experiment="ablation", load="n = 16 (Table 4)")
    fixed = next(e for e in shown.compared() if e.label == "A fixed")
    mine = next(r for r in rows if r.label == "A fixed" and r.value("task.pairs") == 16)
    assert (fixed.published, fixed.ours) == (0.091, pytest.approx(mine.accuracy()))
    assert session(data, experiment="ablation").compared() == []


def test_the_fair_answer_ranks_by_the_runs(data: Path) -> None:
    rows = sweep_rows.record(data, "fair")
    text = answer(Sweeps(experiment="fair"), rows, [])
    top = max(r.value("task.pairs") for r in rows)
    assert text.startswith(f"At n = {top}: ")
    numbers = [float(part.rpartition(" ")[2].rstrip(".")) for part in text.split(";")]
    assert numbers == sorted(numbers, reverse=True)


def test_the_answer_to_learning_rates_is_whether_the_best_is_at_an_edge(data: Path) -> None:
    rows = sweep_rows.record(data, "fair")
    shown = session(data, experiment="fair", view="learning rates", model="vla_exact")
    mine = [r for r in rows if r.label == "vla_exact" and r.value("task.pairs") == 16]
    best = max(mine, key=lambda row: row.accuracy("validation")).config.lr
    rates = sorted(row.config.lr for row in mine)
    edge = ", at the edge of the grid" if best in (rates[0], rates[-1]) else ""
    assert f"n = 16: {best:g} of {rates[0]:g} to {rates[-1]:g}{edge};" in shown.answer()


def test_a_variant_without_a_finite_loss_has_a_row_of_its_own() -> None:
    rows = sweep_rows.rows("table4", "smoke")
    bad = dataclasses.replace(rows[2].result, status="nan", step=7, evaluation={})
    rows[2] = dataclasses.replace(rows[2], status="nan", result=bad)
    figure = pictures.variants(rows)
    assert {"no output norm"} == {t.y[0] for t in figure.data if t.type == "bar" and t.x[0] == 0}
    (note,) = figure.layout.annotations
    assert (note.y, note.text) == ("no output norm", "nan at step 7")
    text = answer(Sweeps(experiment="ablation", budget="smoke"), rows, [])
    assert "Without a finite loss: no output norm." in text


def test_files_hold_every_run_and_a_page_of_its_own(data: Path) -> None:
    rows = sweep_rows.record(data)
    shown = session(data)
    name, content = shown.to_csv()
    read = list(csv.DictReader(io.StringIO(content.decode())))
    assert name == "vla-figure5-full.csv"
    assert {line["key"]: float(line["test"]) for line in read} == {
        row.key[:8]: row.accuracy() for row in rows
    }
    name, page = shown.to_page()
    assert name.endswith(".html")
    assert b"https://cdn" not in page.split(b"<body>")[0]
    assert pictures.shown("vla_authors").encode() in page


def test_a_damaged_file_or_store_is_told_and_the_rest_stays(data: Path) -> None:
    sweep_rows.store(data / "runs.sqlite")
    (data / "runs").mkdir()
    (data / "runs" / "figure5.parquet").write_bytes(b"not a file that was exported")
    shown = session(data, budget="smoke")
    assert len(shown.rows) == 8
    assert "vla runs --export" in shown.controls.notes[0]
    (data / "runs.sqlite").write_bytes(b"no database" * 1000)
    shown = session(data, budget="smoke")
    assert shown.rows == []
    assert "damaged" in " ".join(shown.controls.notes)


def test_the_full_size_on_a_cpu_is_priced_first(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    shown = session(data)
    monkeypatch.setattr(shown.live, "start", lambda work, *_, **__: begun.append(work.__name__))
    shown.run()
    shown.costs["figure5", "full"] = "about 5 h"
    shown.run()
    shown.open("fair")
    react(shown, serial=1, values={"budget": "smoke"})
    shown.run()
    assert begun == ["cost", "sweep", "sweep"]
    assert "about 5 h" not in shown.standing()


def test_what_is_recorded_can_be_trained_again_and_what_is_not_is_missing(data: Path) -> None:
    made = sweep_rows.record(data)
    shown = session(data)
    assert shown.offer() == f"Train {len(made)} runs here again (full)"
    assert "; the record has them all." in shown.standing()
    export(made[1:], data / "runs" / "figure5.parquet")
    assert session(data).offer() == f"Train the {len(made)} missing runs here (full)"
    assert session(data, budget="smoke").offer() == "Train the 8 missing runs here (smoke)"
    sweep_rows.store(data / "runs.sqlite")
    assert session(data, budget="smoke").offer() == "All trained"


def test_the_time_of_recorded_runs_leaves_out_the_pauses(data: Path) -> None:
    """Two seconds at noon, whatever ran side by side, and two an hour later."""
    made = sweep_rows.record(data)
    assert "busy for 0:02, up to 16 at once" in session(data).standing()
    later = dataclasses.replace(made[0].result, finished="2026-11-30T13:00:00+00:00")
    overlap = dataclasses.replace(made[1].result, finished="2026-11-30T13:00:01+00:00")
    moved = [dataclasses.replace(row, result=result)
             for row, result in zip(made, (later, overlap), strict=False)]  # fmt: skip
    export([*moved, *made[2:]], data / "runs" / "figure5.parquet")
    assert "busy for 0:05, up to 16 at once" in session(data).standing()


def test_rows_that_ask_more_and_rows_that_wait_are_pictures_of_their_own(data: Path) -> None:
    made = sweep_rows.record(data, "figure6")
    drawn = {}
    for kind in KINDS:
        shown = session(data, experiment="long context", kind=kind)
        drawn[kind] = {t.name for t in shown.figure().data}
        assert bool(shown.compared()) == (kind != "wait longer")
        wait = {pictures.shown(row.label) for row in made if RETENTION in row.label}
        assert bool(drawn[kind] & wait) == (kind != "ask more")
    assert drawn["both"] == drawn["ask more"] | drawn["wait longer"]
    log = [name for name in drawn["both"] if "log" in (name or "")]
    assert log
    assert not drawn["wait longer"] & set(log)
    as_run = session(data, experiment="long context").answer()
    assert "Not published: At T = 512: " in as_run
    assert pictures.shown("vla_authors" + FASTER) in as_run
    waits = session(data, experiment="long context", kind="wait longer").answer()
    assert RETENTION not in waits


def test_many_alike_are_told_as_one() -> None:
    made = sweep_rows.rows("readme", "full")
    same = {k: {"accuracy": 1.0, "loss": 0.0, "count": 64} for k in ("validation", "test")}
    rows = [dataclasses.replace(r, result=dataclasses.replace(r.result, evaluation=same))
            for r in made]  # fmt: skip
    scene = Sweeps(experiment="rank and λ0")
    assert answer(scene, rows, []) == "At n = 24: all 12 have 1.000."
    assert "between" in answer(scene, made, [])
