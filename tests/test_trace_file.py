"""One file for a trace: exact there and back, and a sentence for anything else."""

import csv
import dataclasses
import hashlib
import io
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vla.errors import ArgumentError
from vla.rules import names
from vla.rules.vla import VLA
from vla.tokens import make_stream
from vla.trace import load, record, save, to_csv
from vla.trace.file import VERSION, from_bytes, to_bytes

TEXT = "cat: meow, <script>: =1+1, 猫: a;b, ? cat, ? <script>"
RULES = [*names(), VLA.as_run()]
TRACES = {
    "words": record(RULES, make_stream("words", text=TEXT, d=6)),
    "gated": record(RULES, make_stream("repeated", gate="random", d=5)),
    "bfloat16": record("vla", make_stream("gaussian", n=4, d=3), dtype=torch.bfloat16),
    "thin": record(["vla", "rls"], make_stream("gaussian", n=50, d=4), keep=5),
}
CONTENT = to_bytes(TRACES["words"])


def identical(a, b):
    """Equal in every field, bit for bit, NaN with NaN."""
    if dataclasses.is_dataclass(a):
        fields = [f.name for f in dataclasses.fields(a)]
        return type(a) is type(b) and all(identical(getattr(a, x), getattr(b, x)) for x in fields)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, tuple):
        return len(a) == len(b) and all(identical(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("name", TRACES)
def test_round_trip_is_exact(tmp_path, name):
    path = save(TRACES[name], tmp_path / "a.vla")
    assert identical(load(path), TRACES[name])


def test_a_bfloat16_stream_survives(tmp_path):
    trace = record("vla", make_stream("gaussian", n=4, d=3).to(torch.bfloat16))
    assert identical(load(save(trace, tmp_path / "a")), trace)


def test_identical_notices_one_bit():
    trace = TRACES["gated"]
    lane = dataclasses.replace(trace.lanes[0], norm_S=np.nextafter(trace.lanes[0].norm_S, 9))
    assert not identical(dataclasses.replace(trace, lanes=(lane, *trace.lanes[1:])), trace)


def test_saving_replaces_whole_files_and_leaves_no_scraps(tmp_path):
    path = tmp_path / "a.vla"
    path.write_text("old")
    save(TRACES["thin"], path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.vla"]
    assert identical(load(path), TRACES["thin"])


def test_a_failed_save_keeps_the_old_file(tmp_path, monkeypatch):
    path = save(TRACES["thin"], tmp_path / "a.vla")
    before = path.read_bytes()

    def full(*_):
        raise OSError("no space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(ValueError, match=r"path: got .*no space left"):
        save(TRACES["words"], path)
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_missing_folders_and_files_are_explained(tmp_path):
    with pytest.raises(ValueError, match="a file in a folder that can be written"):
        save(TRACES["thin"], tmp_path / "none" / "a.vla")
    with pytest.raises(ValueError, match="a file that can be read"):
        load(tmp_path / "none.vla")
    with pytest.raises(ValueError, match="a file that can be read"):
        load(tmp_path)


def zipped(**members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "."), data)
    return out.getvalue()


class _Bomb:
    def __reduce__(self):
        return (Path.touch, (Path("/tmp/executed-by-a-trace"),))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"hello", b"PK\x03\x04", CONTENT[: len(CONTENT) // 2], CONTENT[:-1], CONTENT[100:],
        zipped(), zipped(header__json="{}"), zipped(header__json="[]"), zipped(header__json="\xff"),
        zipped(header__json=json.dumps({"format": "other", "version": 1})),
        pickle.dumps(_Bomb()),
    ],
)  # fmt: skip
def test_foreign_and_truncated_files_are_refused_with_a_sentence(content):
    with pytest.raises(ValueError, match="trace file: got 'x', wanted a trace saved by vla"):
        from_bytes(content, name="x")
    assert not Path("/tmp/executed-by-a-trace").exists()


def remade(change):
    """The words trace with its members changed."""
    with zipfile.ZipFile(io.BytesIO(CONTENT)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return out.getvalue()


def test_a_newer_version_says_update():
    def newer(members):
        header = json.loads(members["header.json"])
        members["header.json"] = json.dumps({**header, "version": VERSION + 1}).encode()

    with pytest.raises(ValueError, match=r"format version 1 or older, not 2\. Update vla"):
        from_bytes(remade(newer))


def test_an_exchanged_array_is_noticed():
    def exchange(members):
        name = "trace.lanes.0.norm_S.npy"
        out = io.BytesIO()
        np.save(out, np.ones(6))
        assert name in members
        members[name] = out.getvalue()

    with pytest.raises(ValueError, match=r"an undamaged trace\.lanes\.0\.norm_S"):
        from_bytes(remade(exchange))


def test_an_edited_header_is_noticed():
    def edit(members):
        members["header.json"] = members["header.json"].replace(b"meow", b"woof")

    with pytest.raises(ValueError, match="an undamaged header"):
        from_bytes(remade(edit))


def test_an_array_of_objects_is_never_unpickled():
    def poison(members):
        out = io.BytesIO()
        np.save(out, np.array([_Bomb()], dtype=object), allow_pickle=True)
        header = json.loads(members["header.json"])
        header["sha256"]["trace.pairs"] = hashlib.sha256(out.getvalue()).hexdigest()
        members["trace.pairs.npy"] = out.getvalue()
        members["header.json"] = json.dumps(header).encode()
        digest = hashlib.sha256(members["header.json"]).hexdigest()
        members["header.sha256"] = digest.encode()

    with pytest.raises(ValueError, match="a trace saved by vla"):
        from_bytes(remade(poison))
    assert not Path("/tmp/executed-by-a-trace").exists()


@settings(deadline=None, max_examples=150)
@given(place=st.integers(0, len(CONTENT) - 1), flip=st.integers(1, 255))
def test_any_damaged_byte_is_refused_or_harmless(place, flip):
    damaged = bytearray(CONTENT)
    damaged[place] ^= flip
    try:
        again = from_bytes(bytes(damaged))
    except ArgumentError:
        return
    assert identical(again, TRACES["words"])


def test_csv_has_a_line_for_every_lane_and_step(tmp_path):
    trace = TRACES["words"]
    text = to_csv(trace, tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text(encoding="utf-8") == text
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == len(trace.lanes) * len(trace)
    for row in rows:
        lane, step = trace.lane(row["lane"]), int(row["step"])
        for name in ("norm_S", "cosine", "ridge_distance", "recall_mean", "product_norm"):
            value = getattr(lane, name)[step]
            assert row[name] == "" if np.isnan(value) else float(row[name]) == value
        assert int(row["correct"]) == lane.correct[step]


def test_csv_words_are_never_formulas():
    stream = make_stream("words", text="=cmd: @x, +a: -b, ? =cmd")
    rows = list(csv.DictReader(io.StringIO(to_csv(record("rls", stream)))))
    assert [row["token"] for row in rows][1:3] == ["'=cmd → @x", "'+a → -b"]
    assert [row["answer"] for row in rows][1:3] == ["'@x", "'-b"]
