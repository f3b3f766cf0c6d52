"""Long runs against the recorder, the refresh's floor, Table 2, and each prepared answer."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from vla import paper
from vla.errors import ArgumentError
from vla.figures.stability import published_stretch
from vla.figures.theme import alt
from vla.rules import make
from vla.scene.stability import STABILITY, Stability, StabilitySession
from vla.theory.stability import follow, long_stream, marks, state_rules, table_2
from vla.trace import record


def last(rules, stream, **settings):
    return list(follow(rules, stream, **settings))[-1]


RULES = {
    **{name: make(name) for name in state_rules()},
    "refreshed": make("vla", refresh_every=7, refresh_eps=0.01),
    "oblique": make("vla", gain="oblique"),
    "exact": make("vla", gain="rls"),
    "token": make("vla", direction="token"),
    "fixed": make("vla", adaptive=False),
    "raw": make("vla", normalise_key=False),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("keys", ["gaussian", "elu+1"])
def test_every_lane_has_the_recorders_norms(name: str, keys: str) -> None:
    stream = long_stream(83, 5, keys=keys, seed=3)
    course = last({name: RULES[name]}, stream)
    lane, trace = course.lanes[0], record({name: RULES[name]}, stream).lanes[0]
    assert course.done == 1
    assert lane.steps == [0, *marks(83)]
    np.testing.assert_allclose(lane.norm_S, trace.norm_S[lane.steps], rtol=1e-8, atol=1e-12)
    if trace.A is None:
        assert not lane.norm_A
    else:
        np.testing.assert_allclose(lane.norm_A, trace.norm_A[lane.steps], rtol=1e-8)
        np.testing.assert_allclose(lane.eigen_A, trace.eigen_A[lane.steps], rtol=1e-7)


def test_slices_are_short_and_progress_grows() -> None:
    stream = long_stream(5000, 2)
    done = [course.done for course in follow({"linear": make("linear")}, stream, points=3)]
    assert len(done) >= 5
    assert all(a < b for a, b in itertools.pairwise(done))
    assert done[-1] == 1


def test_a_refresh_keeps_a_floor_under_the_inverse_penalty() -> None:
    """d = 32, period 20, ε = 1e-3: 0.233 from 5 000 tokens on; without it A falls as 1/T."""
    stream = long_stream(8000, 32)
    rules = {"vla": make("vla", refresh_every=20), "rls": make("rls")}
    refreshed, plain = last(rules, stream, points=24).lanes
    assert refreshed.norm_A[-1] == pytest.approx(0.233, abs=4e-3)
    assert plain.norm_A[-1] < 0.03


def test_linear_grows_as_the_root_and_the_others_level_off() -> None:
    course = last(Stability().rules(), long_stream(4000, 16), points=60)
    sizes = {lane.rule: lane.norm_S for lane in course.lanes}
    assert sizes["linear"][-1] / sizes["linear"][-11] == pytest.approx(2, abs=0.5)
    for name in ("delta", "vla"):
        assert sizes[name][-1] / sizes[name][-11] == pytest.approx(1, abs=0.25)
    assert sizes["rls"][-1] < sizes["rls"][-11]


def test_table_2_prints_a_power_and_the_unnormalised_form_explodes() -> None:
    rows = table_2(draws=2)
    for row in rows:
        # Printed to two digits, from a norm printed to three.
        assert math.log10(row.printed_step) * 25 == pytest.approx(
            math.log10(row.printed_product), abs=0.05
        )
        assert row.step > row.printed_step
        assert row.product > 1e20
        assert 1 < row.unit_step < 1.3
        assert row.unit_product < 2
    assert [row.printed_step for row in rows] == [
        paper.number(row["unnormalised_norm"]) for row in paper.table(2)
    ]
    assert "printed 5.36" in alt(published_stretch(rows))


@pytest.mark.parametrize("settings", [{"length": 0}, {"length": 100_001}, {"keys": "odd"}])
def test_streams_that_cannot_run_are_refused(settings: dict) -> None:
    with pytest.raises(ArgumentError):
        long_stream(**{"length": 5, "d": 2, **settings})


def cells(name: str) -> dict[tuple[str, str], float]:
    session = StabilitySession(STABILITY[name].scene.to_query())
    while session._work:
        session._advance()
    assert session.preset == name
    return {(cell.lane, cell.name): cell.value for cell in session.cells()}


def test_what_the_prepared_scenes_say() -> None:
    found = cells("proposition")
    assert found["VLA", "largest ‖J‖"] == pytest.approx(1.4, abs=0.1)
    assert found["VLA", "product at the end"] < 1
    assert cells("own_u")["VLA", "largest product"] > 1.1
    found = cells("spectrum")
    assert found["VLA", "largest"] / found["VLA", "least eigenvalue of A"] > 30
    found = cells("growth")
    assert found["linear attention", "‖S‖"] > 1000 > 40 > found["VLA", "‖S‖"]
    assert found["exact RLS", "‖S‖"] < 5


@pytest.mark.parametrize(
    "query",
    [
        {"T": "1e9"}, {"T": "-4"}, {"T": "99999999"}, {"view": "<b>"}, {"rules": "nobody"},
        {"lambda0": "nan"}, {"d": "9" * 9000}, {"bogus": "1"}, {"refresh": "x"},
    ],
)  # fmt: skip
def test_bad_addresses_are_repaired_with_a_message(query: dict[str, str]) -> None:
    scene, notes = Stability.from_query(query)
    assert notes
    assert all(len(note) < 300 for note in notes)
    assert scene.rules()


def test_a_run_can_be_stopped_and_keeps_what_it_has() -> None:
    session = StabilitySession({"T": "10"})
    session.scene = Stability(length=20_000, d=8)
    session._start(0.0)
    assert session._work
    session._obey("stop")
    assert session.controls.progress < 0
    assert "Stopped at" in session.controls.notes[0]
    assert session.course.done < 1
    assert session.to_csv().startswith("rule,step")
    session.figure()
