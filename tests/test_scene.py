"""A scene and its address: nothing is lost, nothing bad gets through."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vla.rules import RULES
from vla.rules.vla import VLA
from vla.scene import PRESETS, Knob, Scene, knobs, lane_names, lane_title
from vla.tokens import STREAMS


def values(knob: Knob) -> st.SearchStrategy[Any]:
    """Every value that a knob may have."""
    if knob.kind == "int":
        return st.integers(int(knob.low), int(knob.high))
    if knob.kind == "float":
        return st.floats(knob.low, knob.high)
    if knob.kind == "flag":
        return st.booleans()
    if knob.kind == "choice":
        return st.sampled_from(list(knob.choices()))
    if knob.kind == "names":
        known = lane_names()
        some = st.sets(st.sampled_from(known), min_size=1 if knob.default else 0)
        return some.map(lambda chosen: tuple(name for name in known if name in chosen))
    word = st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=6)
    return st.lists(st.tuples(word, word), min_size=1, max_size=5).map(
        lambda pairs: ", ".join(f"{key}: {value}" for key, value in pairs)
    )


fields = st.fixed_dictionaries({name: values(knob) for name, knob in knobs().items()})
foreign = st.text(max_size=60) | st.sampled_from(
    ["nan", "inf", "-1", "1e999", "9" * 400, "<script>alert(1)</script>", "\0", "", "x" * 5000]
)


@settings(deadline=None, max_examples=60)
@given(fields)
def test_an_address_gives_the_scene_back(given_fields: dict[str, Any]) -> None:
    scene, _ = Scene(**given_fields).repaired()
    query = scene.to_query()
    assert all(isinstance(key, str) and isinstance(text, str) for key, text in query.items())
    assert Scene.from_query(query) == (scene, [])


@settings(deadline=None, max_examples=80)
@given(
    st.dictionaries(st.sampled_from([k.key for k in knobs().values()]), foreign | st.lists(foreign))
)
def test_any_address_gives_a_scene_that_has_a_stream(query: dict[str, Any]) -> None:
    scene, messages = Scene.from_query(query)
    assert len(scene.stream()) > 0
    assert scene.rules()
    assert all(message and len(message) < 500 for message in messages)
    for name, knob in knobs().items():
        value = getattr(scene, name)
        if knob.kind in ("int", "float"):
            assert knob.low <= value <= knob.high


def test_the_address_of_the_first_scene_is_empty() -> None:
    assert Scene().to_query() == {}
    assert Scene.from_query({}) == (Scene(), [])
    assert Scene(rho=0.7, lanes=("vla", "baseline")).to_query() == {
        "rho": "0.7",
        "rules": "vla,baseline",
    }


@pytest.mark.parametrize(
    ("query", "change", "says"),
    [
        ({"n": "1000000"}, {"n": 128}, "out of range"),
        ({"n": "0"}, {"n": 1}, "out of range"),
        ({"n": "many"}, {}, "not a whole number"),
        ({"rho": "nan"}, {}, "not a finite number"),
        ({"rho": "NaN"}, {}, "not a finite number"),
        ({"lambda0": "0"}, {"lambda0": 1e-6}, "out of range"),
        ({"lambda0": "-3"}, {"lambda0": 1e-6}, "out of range"),
        ({"stream": "<script>"}, {}, "“<script>” is not one of"),
        ({"rules": "vla,nobody"}, {"lanes": ("vla",)}, "“nobody” is not known"),
        ({"rules": "nobody"}, {}, "not one or more of"),
        ({"adaptive": "maybe"}, {}, "not 0 or 1"),
        ({"text": "x" * 3000}, {}, "at most 2000 characters"),
        ({"text": "cat: meow, dog"}, {}, "one key and one value"),
        ({"text": ""}, {}, "at least one pair"),
        ({"text": "cat: meow, ? dog"}, {}, "a query of a word stored before it"),
        ({"stream": "orthogonal", "n": "20", "d": "4"}, {"n": 4}, "4 orthogonal keys"),
        ({"lamda0": "1"}, {}, "means nothing here: “lamda0”"),
        ({"seed": ["1", "2"]}, {"seed": 2}, None),
        ({"session_id": "s"}, {}, None),
    ],
)  # fmt: skip
def test_repairs_are_told(query: dict[str, Any], change: dict[str, Any], says: str | None) -> None:
    scene, messages = Scene.from_query(query)
    assert {name: getattr(scene, name) for name in change} == change
    assert len(messages) == (says is not None)
    assert says is None or says in messages[0]


def test_every_stream_parameter_is_a_field() -> None:
    """A width for values is the width of keys here, and gates are a knob of the rules."""
    known = set(knobs())
    for maker in STREAMS.values():
        assert {p.name for p in maker.parameters} - known == (
            {"d_v"} if maker.name != "words" else set()
        )


@pytest.mark.parametrize("kind", STREAMS)
def test_every_stream_traces_with_every_lane(kind: str) -> None:
    scene = Scene(kind=kind, n=4, d=6, queries=2, lanes=tuple(lane_names()))
    trace = scene.trace()
    assert len(trace.lanes) == len(lane_names()) - 1  # a layer's own rule needs a layer
    assert trace.stream.name == kind


def test_knobs_reach_the_rules_that_have_them() -> None:
    rules = Scene(
        lanes=tuple(lane_names()), lambda0=2.0, gain="oblique", direction="token", features="silu",
        refresh_every=3, refresh_eps=0.5, adaptive=False, normalise_key=False,
    ).rules()  # fmt: skip
    assert rules["vla"] == VLA(
        lambda0=2.0, gain="oblique", direction="token", features="silu", refresh_every=3,
        refresh_eps=0.5, adaptive=False, normalise_key=False,
    )  # fmt: skip
    assert rules["rls"].settings["lambda0"] == 2.0
    assert rules["delta"].settings["features"] == "silu"
    assert rules["VLA, knobs at default"] == VLA()
    assert rules["VLA as published"] == VLA.as_published()


def test_untouched_knobs_leave_every_rule_as_it_is() -> None:
    for name, rule in Scene(lanes=tuple(RULES)).rules().items():
        assert rule == RULES[name]()


def test_gates() -> None:
    assert Scene().stream().beta is None
    same = Scene(gate="same", beta=0.25).stream().beta
    assert same is not None
    assert same.unique().tolist() == [0.25]
    drawn = Scene(gate="random", seed=3).stream().beta
    assert drawn is not None
    assert torch.equal(drawn, Scene(gate="random", seed=3).stream().beta)
    assert len(drawn.unique()) == len(drawn)


def test_one_knob_leaves_the_stream_as_it_was() -> None:
    before, after = Scene(kind="gaussian").stream(), Scene(kind="gaussian", lambda0=3.0).stream()
    assert torch.equal(before.k, after.k)
    assert torch.equal(before.v, after.v)


def test_lanes_have_titles() -> None:
    assert len({lane_title(name) for name in lane_names()}) == len(lane_names())
    scene = Scene(lanes=("vla", "published"), hidden=("published",))
    assert scene.visible() == ["vla"]
    assert [lane.title for lane in scene.trace().lanes] == ["VLA", "VLA as published"]


def test_no_rule_is_a_message() -> None:
    with pytest.raises(ValueError, match="at least one rule"):
        Scene(lanes=()).trace()


def test_every_preset_survives_its_address() -> None:
    for preset in PRESETS.values():
        assert Scene.from_query(preset.scene.to_query()) == (preset.scene, [])
