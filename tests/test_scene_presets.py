"""Every sentence of a prepared scene, computed from its trace."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from vla.scene import PRESETS, Scene, preset_of
from vla.trace import Lane, Trace
from vla.trace.rounding import first_passing

PAPER, RUN = "VLA as published", "VLA as run by the authors"


@cache
def traced(name: str) -> Trace:
    return PRESETS[name].scene.trace()


def asked(trace: Trace) -> np.ndarray:
    return np.flatnonzero(~trace.stream.writes.numpy()) + 1


def answers(name: str) -> dict[str, list[str]]:
    trace = traced(name)
    return {lane.rule: [lane.answers[t] for t in asked(trace)] for lane in trace.lanes}


def right(name: str) -> dict[str, int]:
    trace = traced(name)
    return {lane.rule: int((lane.correct[asked(trace)] == 1).sum()) for lane in trace.lanes}


def lane(name: str, rule: str) -> Lane:
    return traced(name).lane(rule)


def written(trace: Trace) -> np.ndarray:
    return np.flatnonzero(trace.stream.writes.numpy()) + 1


def key_cosine(name: str, first: int = 0, second: int = 1) -> float:
    k = traced(name).stream.k
    return float(k[first] @ k[second] / k[first].norm() / k[second].norm())


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_words_and_a_valid_scene(name: str) -> None:
    preset = PRESETS[name]
    assert preset.question.endswith("?")
    assert preset.seen.endswith(".")
    assert preset.answer.endswith(".")
    assert preset.scene.repaired() == (preset.scene, [])
    assert preset.scene.step < len(traced(name))
    assert preset_of(preset.scene.with_(step=2)) == name


def test_a_first_visit_stands_three_steps_in() -> None:
    assert next(iter(PRESETS.values())).scene == Scene()
    assert Scene().step == 3
    assert preset_of(Scene(seed=8)) is None


def test_overwrite() -> None:
    assert traced("overwrite").stream.writes.tolist() == [True] * 4 + [False] * 2
    assert answers("overwrite") == {
        "linear": ["woof", "woof"],
        "delta": ["purr", "purr"],
        "vla": ["purr", "woof"],
    }


def test_average() -> None:
    assert answers("average") == {"vla": ["purr", "woof"], "rls": ["meow", "woof"]}
    assert lane("average", "rls").parts_at is None
    meow, purr = lane("average", "rls").recall[-1, [0, 3]]
    assert meow == pytest.approx(purr, rel=0.05)
    meow, purr = lane("average", "vla").recall[-1, [0, 3]]
    assert purr < 0.5 * meow


def test_twins() -> None:
    assert key_cosine("twins") == pytest.approx(0.9, abs=0.05)
    assert answers("twins") == {
        "linear": ["meow", "meow"],
        "delta": ["purr", "purr"],
        "vla": ["meow", "purr"],
        "rls": ["meow", "purr"],
    }


def test_overload() -> None:
    scene = PRESETS["overload"].scene
    assert (scene.n, scene.d, scene.queries) == (32, 16, 8)
    assert right("overload") == {"linear": 1, "delta": 3, "vla": 6, "rls": 7}
    assert all(lane.recall_mean[-1] > 0.5 for lane in traced("overload").lanes)


def test_orthogonal() -> None:
    assert set(right("orthogonal").values()) == {8}
    assert lane("orthogonal", "delta").recall[-1].max() < 1e-12
    assert lane("orthogonal", "vla").recall[-1].max() < 1e-12
    np.testing.assert_allclose(lane("orthogonal", "rls").recall[-1], 0.1 / 1.1)
    assert 1 - lane("orthogonal", "gated_delta").recall[-1, 0] == pytest.approx(1 / 128)


def test_gate() -> None:
    assert right("gate") == {"gated_delta": 0, "authors_delta": 0, "delta": 1, "vla": 1}
    assert answers("gate")["delta"] == ["meow"]
    gates = [dict(lane("gate", rule).settings)["beta"] for rule in ("gated_delta", "authors_delta")]
    assert gates == [0.5, 0.5]


def test_drowning() -> None:
    assert right("drowning") == {"linear": 1, "delta": 4, "vla": 4}
    assert lane("drowning", "linear").norm_S[-1] > 40
    for rule in ("delta", "vla"):
        assert lane("drowning", rule).norm_error[written(traced("drowning"))][-1] < 0.01


def test_refresh() -> None:
    vla, rls = lane("refresh", "vla"), lane("refresh", "rls")
    late = written(traced("refresh"))[30:]
    assert vla.norm_error[late].mean() < 0.5 * rls.norm_error[late].mean()
    assert vla.norm_A[-1] > 10 * rls.norm_A[-1]
    assert right("refresh") == {"vla": 4, "rls": 0}
    assert vla.recall_mean[-1] > rls.recall_mean[-1]
    still = PRESETS["refresh"].scene.with_(refresh_every=0).trace()
    np.testing.assert_allclose(still.lane("vla").S, still.lane("rls").S, atol=1e-10)


def test_remark_1() -> None:
    linear, delta, vla = (lane("remark1", rule) for rule in ("linear", "delta", "vla"))
    np.testing.assert_allclose(vla.S, delta.S, atol=1e-14)
    assert delta.settings["beta"] == 1
    assert np.abs(vla.S - linear.S).max() > 0.1


def test_norm() -> None:
    for rule in ("vla", "rls"):
        assert np.nanmax(lane("norm", rule).spectral_svd) > 1.4
        assert np.nanmax(lane("norm", rule).product_norm) < 1 + 1e-12
    assert key_cosine("norm", 0, 5) == pytest.approx(0.9)


def test_explosion() -> None:
    assert lane("explosion", "vla").norm_S[10] > 1e20
    assert lane("explosion", "rls").norm_S.max() < 10


def test_three_forms() -> None:
    assert right("three_forms") == {PAPER: 1, RUN: 1, "vla": 8, "rls": 8}


def test_words() -> None:
    said = answers("words")
    assert said["vla"] == said["rls"] == ["France", "Italia", "日本"]
    assert said["delta"][0] != "France"
    assert said["delta"][1:] == ["Italia", "日本"]
    assert said["linear"] == ["France"] * 3


def test_healing() -> None:
    trace = traced("healing")
    assert trace.forked_at == 3
    left = {lane.rule: lane.branch.left for lane in trace.lanes if lane.branch}
    wanted = {"linear": 1, "delta": 0.03, "vla": 0.01, "rls": 0.14}
    assert left == pytest.approx(wanted, abs=5e-3)
    linear = lane("healing", "linear").branch
    assert linear is not None
    assert linear.gap[-1] == pytest.approx(4.5, abs=0.05)


def test_digits() -> None:
    errors = {
        rule: (lane("digits", rule).error_float32, lane("digits", rule).error_bfloat16)
        for rule in ("delta", "vla", "rls")
    }
    assert errors["delta"][1].max() < 0.02
    assert errors["vla"][1][1:3].max() > 1
    assert errors["rls"][1][1:3].max() > 1
    assert first_passing(lane("digits", "vla"), "float32", 0.01) == 44


@pytest.mark.skipif("trained" not in PRESETS, reason="its checkpoint isn't here")
def test_trained() -> None:
    trace = traced("trained")
    asks = np.flatnonzero(trace.stream.asks()) + 1
    found = {lane.rule: int((lane.correct[asks] == 1).sum()) for lane in trace.lanes}
    assert found == {"linear": 3, "delta": 8, "layer": 8}
    assert asks[0] == PRESETS["trained"].scene.step + 1
    assert all(trace.stream.remarks[t - 1].endswith("right") for t in asks)
