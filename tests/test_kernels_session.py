"""The kernels app's session without a browser: records found, drawn, told, and made."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from vla.bench.record import read
from vla.figures import bench as pictures
from vla.scene import timing
from vla.scene.kernels import KERNELS, PICTURES, Kernels, KernelsSession
from vla.scene.live import DONE, Cancelled, Report, start

DATA = Path(__file__).parents[1] / "data" / "bench"


def session(tmp_path: Path, **query: str) -> KernelsSession:
    return KernelsSession(query, file=tmp_path / "local.json")


@pytest.mark.parametrize("name", KERNELS)
def test_prepared_scenes_survive_the_address_and_have_an_answer(name: str, tmp_path: Path) -> None:
    scene = KERNELS[name].scene
    assert Kernels.from_query(scene.to_query()) == (scene, [])
    changed = scene.with_(sort="-tokens", find="vla", passes="forward+backward", output="dq")
    assert Kernels.from_query(changed.to_query()) == (changed, [])
    shown = session(tmp_path, **scene.to_query())
    assert shown.prepared == name
    assert shown.controls.notes == []
    assert shown.answer()
    assert shown.entries()


@pytest.mark.parametrize("picture", PICTURES)
@pytest.mark.parametrize("source", ["recorded", "this machine"])
def test_every_picture_without_records(
    picture: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLA_DATA", str(tmp_path))
    shown = session(tmp_path, picture=picture, source=source)
    assert "measured" in shown.words()
    assert shown.entries() == []
    assert "press the button" in shown.standing() or "No recorded" in shown.standing()
    assert {each.met for each in shown.targets()} == {None}


def test_numbers_are_the_records(tmp_path: Path) -> None:
    record = read(DATA / "h200.json")
    shown = session(tmp_path)
    wanted = pictures.chosen(
        record["rows"], shown.scene.shape, "forward", shown.scene.families, ("bf16",)
    )
    assert [e.values["median_ms"] for e in shown.entries()] == [r["median_ms"] for r in wanted]
    low, high = pictures.crossover(record, "B4 H16 d64", "forward")
    assert f"between {low} and {high} tokens" in shown.answer()
    assert record["commit"][:7] in shown.standing()
    assert record["device"] in shown.standing()
    for each in record["left_out"]:
        assert any(each["what"] in line for line in shown.missing())
    decoded = dict(shown.decoding())
    assert decoded == {
        row["method"]: row["median_ms"] for row in record["decode"]
        if (row["heads"], row["width"]) == (16, 64)
    }  # fmt: skip


def test_errors_are_the_records(tmp_path: Path) -> None:
    rows = read(DATA / "h200_errors.json")["rows"]
    shown = session(tmp_path, picture="error", output="dq")
    mine = [row for row in rows if "dq" in row["errors"]]
    assert [e.values["worst"] for e in shown.entries()] == [r["errors"]["dq"] for r in mine]
    worst = max(r["errors"]["dq"] / r["bound"] for r in mine)
    assert f"{worst:.2f} of it" in shown.answer()


def test_a_shape_that_a_record_lacks_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = read(DATA / "h200.json")
    record["rows"] = [row for row in record["rows"] if row["shape"] == "B4 H16 d64"]
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "h200.json").write_text(json.dumps(record))
    monkeypatch.setenv("VLA_DATA", str(tmp_path))
    shown = session(tmp_path, shape="B4 H16 d128")
    assert "B4 H16 d128: no timing in this record" in shown.missing()
    assert "Nothing of this was measured" in shown.words()
    assert shown.answer() == ""


def test_a_damaged_record_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "h200.json").write_text("{}")
    (tmp_path / "local.json").write_text("no json")
    monkeypatch.setenv("VLA_DATA", str(tmp_path))
    assert len(session(tmp_path).controls.notes) == 2


def react(shown: KernelsSession, **more: Any) -> None:
    told = {"look": shown.look, "serial": shown.controls.answered, "values": {}, "wish": ""}
    shown.react({**told, **more})


def test_controls_table_and_prepared_scenes_change_the_scene(tmp_path: Path) -> None:
    shown = session(tmp_path)
    turns: list[object] = []
    shown.changed = turns.append
    shown.sorted({"sort": "-tokens", "find": "vla"})
    assert shown.controls.query == {"sort": "-tokens", "find": "vla"}
    assert turns == []
    react(shown, serial=1, values={"pass": "forward+backward", "shape": "nonsense"})
    assert (shown.scene.passes, shown.scene.shape) == ("forward+backward", "B4 H16 d64")
    assert len(shown.controls.notes) == 1
    react(shown, wish="open:errors")
    assert shown.scene == KERNELS["errors"].scene
    react(shown, look="dark")
    assert len(turns) == 3


def test_the_file_holds_the_table_unrounded(tmp_path: Path) -> None:
    shown = session(tmp_path)
    name, content = shown.to_csv()
    assert name == "vla-latency-B4-H16-d64-forward.csv"
    read_back = list(csv.DictReader(io.StringIO(content.decode())))
    assert [float(r["median_ms"]) for r in read_back] == [
        e.values["median_ms"] for e in shown.entries()
    ]
    assert b"Plotly" in shown.to_page()[1]


SMALL: dict[str, Any] = {
    "shape": [1, 1, 8], "lengths": [128], "methods": ["vla scan fp32", "vla chunk fp32"],
    "device": "cpu",
}  # fmt: skip


def test_this_machine_is_measured_into_a_record(tmp_path: Path) -> None:
    file = tmp_path / "local.json"
    job = start(timing.measure, where="thread", file=str(file), **SMALL)
    assert job.wait(60)
    assert (job.status, job.error) == (DONE, "")
    record = read(file)
    assert [(r["method"], r["tokens"]) for r in record["rows"]] == [("vla scan fp32", 128)]
    assert job.curves["VLA token loop (PyTorch), fp32"] == [(128, record["rows"][0]["median_ms"])]
    again = {**SMALL, "methods": ["vla chunk fp32"], "lengths": [512]}
    assert start(timing.measure, where="thread", file=str(file), **again).wait(60)
    kept = {(r["method"], r["tokens"], r["pass"]) for r in read(file)["rows"]}
    assert kept == {("vla scan fp32", 128, "forward"), ("vla chunk fp32", 512, "forward"),
                    ("vla chunk fp32", 512, "forward+backward")}  # fmt: skip


def test_a_measurement_that_is_stopped_keeps_what_it_has(tmp_path: Path) -> None:
    file = tmp_path / "local.json"
    shutil.copy(DATA / "h200.json", file)
    before = file.read_bytes()

    def stopped_at(share: float) -> None:
        told: list[dict[str, Any]] = []
        asked = lambda: any(t.get("share", 0) >= share for t in told)  # noqa: E731
        more = {**SMALL, "lengths": [128, 512]}
        with pytest.raises(Cancelled):
            timing.measure(Report(told.append, asked), file=str(file), **more)

    stopped_at(0.0)
    assert file.read_bytes() == before
    stopped_at(0.3)
    rows = read(file)["rows"]
    assert [(r["method"], r["tokens"]) for r in rows] == [
        ("vla chunk fp32", 512), ("vla chunk fp32", 512), ("vla scan fp32", 128),
    ]  # fmt: skip
    assert not list(tmp_path.glob("*.part"))


def test_what_fails_is_left_out_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(method: Any, *_: Any) -> Any:
        raise RuntimeError(f"{method.name} has no device\nsecond line")

    monkeypatch.setattr(timing.worker, "measure", broken)
    told: list[dict[str, Any]] = []
    found = timing.measure(Report(told.append), file=str(tmp_path / "x.json"), **SMALL)
    assert found == {"rows": 0, "left_out": 1}
    assert not (tmp_path / "x.json").exists()
    said = [t["say"] for t in told if "say" in t]
    assert said == ["VLA token loop (PyTorch), fp32, T 128 left out. "
                    "RuntimeError: vla scan fp32 has no device"]  # fmt: skip
