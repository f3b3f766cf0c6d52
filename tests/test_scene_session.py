"""A visit to the stepping app without a browser: what can't be traced leaves the picture alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from vla import lab
from vla.rules import RULES, Rule, State, Token
from vla.scene import PRESETS, Scene, knobs
from vla.scene.panel import describe
from vla.scene.session import Session
from vla.trace.file import from_bytes


def session(**fields: object) -> Session:
    return Session(Scene(**fields).to_query())  # type: ignore[arg-type]


def test_it_starts_where_the_address_says() -> None:
    visit = session(kind="gaussian", n=6, step=4, lanes=("delta", "vla"), hidden=("delta",))
    assert visit.stepper.step == 4
    assert visit.stepper.lanes == ["vla"]
    assert len(visit.stepper.trace.lanes) == 2
    assert visit.panel.query == visit.scene.to_query()


def test_a_step_beyond_the_end_is_the_end() -> None:
    assert session(step=4000).stepper.step == len(Scene().stream())


def test_a_knob_keeps_the_place() -> None:
    visit = Session({})
    visit.stepper.step = 5
    visit.walked(5, [])
    visit.choose({**visit.panel.values, "lambda0": "2"}, serial=1)
    assert visit.scene == Scene(lambda0=2.0, step=5)
    assert visit.stepper.step == 5
    assert visit.panel.answered == 1
    assert visit.stepper.trace.lane("vla").settings["lambda0"] == 2.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"text": "cat"}, "one key and one value"),
        ({"stream": "orthogonal", "n": "30"}, "orthogonal keys"),
    ],
)
def test_what_fails_leaves_the_picture(change: dict[str, str], says: str) -> None:
    visit = Session({})
    before = visit.stepper.trace
    visit.choose({**visit.panel.values, **change}, serial=3)
    assert says in visit.panel.notes[0]
    assert "last picture stays" in visit.panel.notes[0]
    assert visit.stepper.trace is before
    assert visit.scene == Scene()
    assert visit.panel.answered == 3
    visit.choose(visit.panel.values, serial=4)
    assert visit.panel.notes == []


def test_presets_bring_their_own_place() -> None:
    visit = Session({})
    seen: list[object] = []
    visit.changed = lambda changed: seen.append(changed.story)
    visit.obey("open:twins")
    assert visit.scene == PRESETS["twins"].scene
    assert visit.stepper.step == 0
    assert visit.panel.values == visit.scene.texts()
    visit.choose({**visit.panel.values, "seed": "8"}, serial=1)
    visit.walked(2, [])
    visit.walked(4, [])
    visit.walked(1, [])
    assert seen == [("twins", False), (None, False), (None, True), (None, False)]
    with pytest.raises(ValueError, match="one of overwrite"):
        visit.open("nobody")


@pytest.mark.parametrize("name", PRESETS)
def test_a_prepared_scene_plays_in_five_seconds(name: str) -> None:
    visit = Session({})
    visit.open(name)
    left = len(visit.stepper.trace) - 1 - visit.stepper.step
    assert left / (2 * visit.stepper.speed) <= 5
    assert left > 5 or visit.stepper.speed == 1


def test_a_memory_beyond_float32_is_shown() -> None:
    visit = Session({})
    visit.open("explosion")
    visit.choose({**visit.panel.values, "n": "40"}, serial=1)
    assert visit.panel.notes == []
    assert visit.stepper.trace.lane("vla").norm_S.max() > 1e40


def test_a_wish_for_an_unknown_scene_is_ignored() -> None:
    visit = Session({})
    visit.obey("open:<script>")
    assert visit.scene == Scene()
    assert visit.panel.wish == ""


def test_hidden_lanes_are_remembered() -> None:
    visit = session(lanes=("vla", "published"))
    visit.walked(3, ["vla"])
    assert visit.scene.hidden == ("published",)
    visit.walked(3, [])
    assert visit.scene.hidden == ()


def test_a_trace_from_a_file() -> None:
    visit = Session({})
    other = session(kind="gaussian", n=4, lanes=("vla",))
    visit.load("other.zip", other.save())
    assert visit.panel.source == "other.zip"
    assert visit.preset is None
    assert len(visit.stepper.trace.lanes) == 1
    visit.walked(2, ["vla"])
    assert visit.scene == Scene()
    visit.choose(visit.panel.values, serial=1)
    assert visit.panel.source == ""
    assert len(visit.stepper.trace.lanes) == len(Scene().lanes)


@pytest.mark.parametrize("content", [b"", b"not a zip", b"cut"])
def test_a_bad_file_is_a_message(content: bytes) -> None:
    visit = Session({})
    content = visit.save()[:-100] if content == b"cut" else content
    before = visit.stepper.trace
    visit.panel.upload, visit.panel.upload_name = content, "bad.zip"
    visit.obey("load")
    assert len(visit.panel.notes) == 1
    assert visit.stepper.trace is before
    assert visit.panel.source == ""


def test_a_file_too_large_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    visit = Session({})
    monkeypatch.setattr("vla.scene.session.MAX_UPLOAD", 10)
    visit.load("big.zip", b"x" * 11)
    assert "at most 10" in visit.panel.notes[0]


def test_saving_gives_the_trace_on_show() -> None:
    visit = Session({})
    visit.obey("save")
    assert len(from_bytes(visit.panel.saved)) == len(visit.stepper.trace)


def test_a_loaded_rule_file_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Session({}).panel.origin == ""
    monkeypatch.setattr(lab, "rule_files", [lab.RuleFile(Path("mine.py"), ("mine",))])
    assert Session({}).panel.origin == "Rules from mine.py: mine."


@dataclass(frozen=True)
class Broken(Rule):
    """A rule from outside that fails at its first token."""

    name = "broken"
    title, equation, source, colour = "broken", "", "", "#000000"

    def step(self, state: State, token: Token) -> State:  # noqa: ARG002
        raise ZeroDivisionError("no reason")


def test_a_rule_that_fails_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(RULES, "broken", Broken)
    visit = Session({})
    visit.choose({**visit.panel.values, "rules": "vla,broken"}, serial=1)
    assert visit.panel.notes == ["ZeroDivisionError: no reason. The last picture stays."]
    assert visit.scene == Scene()
    opened = Session({"rules": "broken"})
    assert opened.scene == Scene()
    assert opened.panel.notes == ["ZeroDivisionError: no reason. The prepared scene is shown."]


def test_saving_twice_saves_twice() -> None:
    visit, seen = Session({}), []
    visit.panel.observe(lambda change: seen.append(len(change["new"])), "saved")
    visit.obey("save")
    visit.obey("save")
    assert [size > 0 for size in seen] == [True, False, True]


def test_every_knob_is_described() -> None:
    for name, knob in knobs().items():
        told = describe(name, knob)
        assert told["help"].strip()
        assert told["kind"] in ("int", "float", "choice", "flag", "text", "names")
        assert bool(told["options"]) == (knob.kind in ("choice", "names"))
        if knob.kind in ("int", "float"):
            assert told["low"] <= float(told["default"]) <= told["high"]
            assert told["step"] > 0 or told["low"] > 0
