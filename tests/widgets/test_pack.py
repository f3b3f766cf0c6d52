"""What travels to the browser is the trace, and nothing in it can become markup."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vla.errors import ArgumentError
from vla.figures.theme import DARK, LIGHT, Theme
from vla.rules import make
from vla.tokens import make_stream
from vla.trace import Trace, describe, fork, record, record_fork, with_rounding
from vla.trace.rounding import first_passing
from vla.widgets import Stepper, lane_ids, pack, save_html, to_html, unpack
from vla.widgets.html import page_template
from vla.widgets.pack import MAX_PAIRS, SCALARS, blob

CSS = Path(__file__).parents[2] / "vla" / "widgets" / "stepper.css"


def arrays(trace: Trace) -> list[tuple[Any, dict[str, np.ndarray], dict[str, Any]]]:
    header, buffer = pack(trace)
    return [
        (lane, {k: unpack(buffer, place) for k, place in packed["arrays"].items()}, packed)
        for lane, packed in zip(trace.lanes, header["lanes"], strict=True)
    ]


@pytest.mark.parametrize("name", ["words", "four", "long"])
def test_every_array_comes_back(name: str, request: pytest.FixtureRequest) -> None:
    for lane, got, _ in arrays(request.getfixturevalue(name)):
        for key in SCALARS:
            np.testing.assert_allclose(got[key], getattr(lane, key), rtol=1e-6, atol=1e-30)
        for key in ("k", "v", "gain", "error", "read"):
            np.testing.assert_allclose(
                got[key], getattr(lane, key)[lane.kept], rtol=1e-6, atol=1e-30
            )
        np.testing.assert_array_equal(got["kept"], lane.kept)
        for key in got.keys() & {"S", "A", "M"}:
            scale = np.abs(getattr(lane, key)).max()
            np.testing.assert_allclose(got[key], getattr(lane, key), atol=1e-6 * scale)


def test_absent_matrices_are_absent(four: Trace) -> None:
    packed = {entry["id"]: entry for _, _, entry in arrays(four)}
    assert {"A", "M", "S"} <= packed["vla"]["arrays"].keys()
    assert not {"A", "M"} & packed["gated_delta"]["arrays"].keys()
    assert "S" not in packed["softmax"]["arrays"]
    assert not packed["softmax"]["has_matrix"]


def test_a_matrix_that_is_not_symmetric_travels_whole(words: Trace) -> None:
    rng = np.random.default_rng(0)
    lane = dataclasses.replace(words.lanes[0], A=rng.normal(size=words.lanes[0].A.shape))
    got = arrays(dataclasses.replace(words, lanes=(lane,)))[0]
    assert not got[2]["arrays"]["A"].get("triangle")
    np.testing.assert_allclose(got[1]["A"], lane.A, rtol=1e-6)


def test_header_is_json_and_says_what_the_trace_says(words: Trace) -> None:
    header, _ = pack(words)
    assert json.loads(json.dumps(header, allow_nan=False)) == header
    assert header["labels"] == list(words.stream.labels)
    assert header["wanted"] == {"5": "purr", "6": "woof", "7": "moo"}
    assert header["overwritten_at"] == words.overwritten_at.tolist()
    for lane, packed in zip(words.lanes, header["lanes"], strict=True):
        assert packed["parts_at"] == lane.parts_at
        assert packed["sentences"] == [describe(words, lane, t) for t in range(len(words))]
        assert {int(t) for t in packed["correct"]} == {6, 7, 8}
        for step, word in packed["answers"].items():
            assert word == lane.answers[int(step)]


def test_scale_is_the_largest_entry_over_all_lanes_and_steps(four: Trace) -> None:
    header, _ = pack(four)
    assert header["scales"]["S"] == max(np.abs(lane.S).max() for lane in four.lanes)
    assert header["scales"]["A"] == max(
        np.abs(lane.A).max() for lane in four.lanes if lane.A is not None
    )


def test_nan_travels_as_nan_and_is_left_out_of_scales(words: Trace) -> None:
    S = words.lanes[0].S.copy()
    S[3, 0, 0] = np.nan
    broken = dataclasses.replace(words, lanes=(dataclasses.replace(words.lanes[0], S=S),))
    header, buffer = pack(broken)
    assert np.isfinite(header["scales"]["S"])
    assert np.isnan(unpack(buffer, header["lanes"][0]["arrays"]["S"])[3, 0, 0])


def test_lanes_of_one_rule_differ_in_id_and_dash() -> None:
    trace = record([make("vla"), make("vla", gain="rls")], make_stream("gaussian", n=3, queries=0))
    header, _ = pack(trace)
    assert lane_ids(trace.lanes) == ["vla", "vla-2"]
    assert [lane["dash"] for lane in header["lanes"]] == [0, 1]


def test_published_forms_are_dashed(four: Trace) -> None:
    dashes = {lane["id"]: lane["dash"] for lane in pack(four)[0]["lanes"]}
    assert dashes["gated_delta"] > 0
    assert dashes["vla"] == 0


def test_long_traces_carry_matrices_at_kept_steps_and_a_sample_of_pairs(long: Trace) -> None:
    header, buffer = pack(long)
    assert header["pairs_total"] == 580
    assert len(header["pairs"]) == MAX_PAIRS
    place = header["lanes"][0]["arrays"]
    assert place["S"]["shape"][0] == len(long.lanes[0].kept) < len(long)
    assert place["norm_S"]["shape"] == [len(long)]
    assert len(buffer) < 2 * 2**20


def test_too_large_a_trace_says_what_to_do(words: Trace) -> None:
    with pytest.raises(ArgumentError, match=r"Keep the matrices of fewer steps"):
        pack(words, max_bytes=10_000)


@pytest.mark.parametrize("call", [pack, blob, to_html, Stepper])
def test_what_is_not_a_trace_is_refused(call: Any) -> None:
    with pytest.raises(ArgumentError, match=r"a vla\.trace\.Trace"):
        call({"not": "a trace"})


def test_no_lanes_is_refused(words: Trace) -> None:
    with pytest.raises(ArgumentError, match="at least one rule"):
        pack(dataclasses.replace(words, lanes=()))


def test_blob_is_aligned_and_holds_both_parts(words: Trace) -> None:
    data = blob(words)
    length = int.from_bytes(data[:4], "little")
    assert length % 4 == 0
    header, buffer = pack(words)
    assert json.loads(data[4 : 4 + length]) == header
    assert data[4 + length :] == buffer


def test_a_word_cannot_break_out_of_the_page(hostile: Trace) -> None:
    page = to_html(hostile, title="</title><script>hacked = 1</script>%%DATA%%")
    assert "hacked" not in re.sub(r"&lt;.*?%%DATA%%</title>", "", page)
    assert page.count("</script>") == 3


def test_view_is_escaped_in_the_page(words: Trace) -> None:
    page = to_html(words, lanes=["</script><script>hacked"])
    assert "</script><script>hacked" not in page


def test_policy_allows_the_one_script_by_its_hash() -> None:
    page = page_template()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)[1]
    script = re.search(r'<script type="module">(.*)</script>', page, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)


@pytest.mark.parametrize("option", [{"step": 99}, {"theme": "sepia"}, {"step": -1}])
def test_bad_options_are_refused(words: Trace, option: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ArgumentError):
        save_html(words, tmp_path / "page.html", **option)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("look", "rule"), [(LIGHT, ""), (DARK, '[data-look="dark"]')])
def test_style_sheet_has_the_tokens_of_the_figures(look: Theme, rule: str) -> None:
    block = CSS.read_text().split(f".vla-stepper{rule} {{", 1)[1].split("}", 1)[0]
    tokens = dict(re.findall(r"--([\w-]+):\s*([^;]+);", block))
    for name in ("paper", "ink", "muted", "grid"):
        assert tokens[name].upper() == getattr(look, name)
    assert tokens["diverging"].upper().split() == list(look.diverging)


class TestStepper:
    def test_a_new_trace_keeps_the_place(self, words: Trace, four: Trace) -> None:
        stepper = Stepper(four, step=20, lanes=["vla"])
        stepper.show(words)
        assert stepper.trace is words
        assert stepper.step == len(words) - 1
        assert stepper.lanes == ["vla", "delta"]
        assert stepper.data == blob(words)

    def test_all_lanes_stays_all_lanes(self, words: Trace, four: Trace) -> None:
        stepper = Stepper(words, step=3)
        stepper.trace = four
        assert (stepper.step, stepper.lanes) == (3, [])

    def test_a_refused_trace_leaves_the_old_one(self, words: Trace) -> None:
        stepper = Stepper(words, step=2, max_bytes=200_000)
        with pytest.raises(ArgumentError):
            stepper.show(record("vla", make_stream("gaussian", n=64, d=64, d_v=64)))
        assert stepper.trace is words
        assert stepper.data == blob(words)

    def test_steps_are_cut_to_the_trace(self, words: Trace) -> None:
        stepper = Stepper(words)
        stepper.step = 1000
        assert stepper.step == len(words) - 1
        stepper.step = -3
        assert stepper.step == 0

    @pytest.mark.parametrize(
        "option",
        [{"theme": "sepia"}, {"speed": 3.0}, {"lanes": ["rls"]}, {"step": 50}, {"height": -1}],
    )
    def test_bad_options_are_refused(self, words: Trace, option: dict[str, Any]) -> None:
        with pytest.raises(ArgumentError):
            Stepper(words, **option)

    def test_a_view_restores_itself(self, words: Trace) -> None:
        stepper = Stepper(words, step=4, speed=8.0, theme="dark", lanes=["delta"], log=True)
        again = Stepper(words, **stepper.view())
        assert again.view() == stepper.view()
        assert '"step": 4' in stepper.to_html()

    def test_colours_start_stretched_only_where_one_lane_would_drown_another(
        self, words: Trace
    ) -> None:
        assert not Stepper(words).stretch
        loud = record(["vla", "linear"], words.stream)
        assert Stepper(loud).stretch
        assert not Stepper(loud, stretch=False).stretch
        assert '"stretch": true' in to_html(loud)

    def test_low_precision_traces_pack(self) -> None:
        stream = make_stream("gaussian", n=4, queries=1)
        assert Stepper(record("vla", stream, dtype=torch.bfloat16)).data


def test_a_fork_and_its_formats_travel() -> None:
    rules = {name: make(name) for name in ("softmax", "vla", "delta")}
    stream = make_stream("words", d=8)
    trace = with_rounding(record_fork(rules, fork(stream, "drop", 1)), rules, threshold=0.004)
    header, _ = pack(trace)
    assert (header["forked_at"], header["threshold"]) == (2, 0.004)
    assert {"gap", "rounding"} <= {curve["key"] for curve in header["curves"]}
    for lane, got, packed in arrays(trace):
        branch = lane.branch
        assert branch is not None
        np.testing.assert_allclose(got["gap"], branch.gap, rtol=1e-6)
        np.testing.assert_allclose(got["branch_recall"], branch.recall, rtol=1e-6)
        np.testing.assert_allclose(got["branch_recall_mean"], branch.recall_mean, rtol=1e-6)
        np.testing.assert_allclose(got["error_bfloat16"], lane.error_bfloat16, rtol=1e-6)
        assert packed["passes"]["float32"] == first_passing(lane, "float32", 0.004)
        assert packed["passes"]["bfloat16"] == first_passing(lane, "bfloat16", 0.004)
        assert packed["branch"]["answers"]["5"] == branch.answers[5]
        if lane.rule == "softmax":
            assert "D" not in got
            assert packed["branch"]["left"] is None
        else:
            np.testing.assert_allclose(got["D"], branch.D, atol=1e-6)
            assert packed["branch"]["left"] == pytest.approx(branch.left)
    plain, _ = pack(record(rules, stream))
    assert plain["forked_at"] is plain["threshold"] is None
    assert plain["lanes"][1]["branch"] is None
