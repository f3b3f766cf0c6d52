"""Keys in space against direct linear algebra, and the map's scenes and addresses."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla.errors import ArgumentError
from vla.scene import Scene
from vla.scene.whitening import (
    MAPPED,
    WHITENING,
    Whitening,
    WhiteningSession,
    drawn,
    map_csv,
    to_csv,
)
from vla.theory.geometry import geometry

SPACE = ((0.0, 0.0), (60.0, 10.0), (40.0, 50.0), (-120.0, -35.0), (10.0, 88.0))


def unit(azimuth: float, elevation: float) -> np.ndarray:
    turn, up = math.radians(azimuth), math.radians(elevation)
    return np.array([
        math.cos(up) * math.cos(turn), math.cos(up) * math.sin(turn), math.sin(up),
    ])  # fmt: skip


@pytest.mark.parametrize("lambda0", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("turn", [0.0, 25.0])
def test_every_moment_in_space_is_the_inverse_of_the_penalty(lambda0: float, turn: float) -> None:
    shown = geometry(SPACE, lambda0=lambda0, turn=turn)
    k = np.stack([unit(*angle) for angle in SPACE])
    u = np.stack([unit(a + turn, e) for a, e in SPACE])
    for t, moment in enumerate(shown.moments):
        M = lambda0 * np.eye(3) + u[:t].T @ u[:t]
        A = np.linalg.inv(M)
        np.testing.assert_allclose(moment.M.numpy(), M, atol=1e-12)
        np.testing.assert_allclose(moment.A.numpy(), A, rtol=1e-8, atol=1e-9 / lambda0)
        assert list(moment.axes) == sorted(moment.axes, reverse=True)
        for length, axis in zip(moment.axes, moment.directions.numpy(), strict=True):
            np.testing.assert_allclose(lambda0 * A @ axis, length**2 * axis, atol=1e-8)
        if t:
            alpha = A @ k[t - 1]
            alpha /= np.linalg.norm(alpha)
            np.testing.assert_allclose(moment.direction.numpy(), alpha, atol=1e-7)
            np.testing.assert_allclose(moment.overlaps, k[: t - 1] @ alpha, atol=1e-7)


def test_a_flat_space_is_the_plane() -> None:
    flat = geometry([(a, 0.0) for a in (0.0, 53.1, 120.0)], turn=20, update="pre")
    plane = geometry((0.0, 53.1, 120.0), turn=20, update="pre")
    for solid, even in zip(flat.moments[1:], plane.moments[1:], strict=True):
        assert solid.cosine == pytest.approx(even.cosine)
        assert solid.apart == pytest.approx(even.apart, abs=1e-6)
        for a, b in zip(solid.written, even.written, strict=True):
            assert (a.length, a.left) == pytest.approx((b.length, b.left))
            assert a.recall == pytest.approx(b.recall)
    assert flat.moments[-1].axes[0] == pytest.approx(1)


@pytest.mark.parametrize("angles", [((0.0, 0.0), 5.0), ((0.0, math.inf),)])
def test_keys_of_two_kinds_are_refused(angles: tuple) -> None:
    with pytest.raises(ArgumentError, match="keys"):
        geometry(angles)


def test_typed_keys() -> None:
    assert Whitening(show="space", keys="0/0, 190/45; 7").angles == ((0, 0), (-170, 45), (7, 0))
    assert Whitening(show="plane", keys="0/30, 50/1").angles == (0, 50)
    for keys in ("0/91", "a/b", "1/2/3", "0/nan", "/", "1e999/0"):
        scene, notes = Whitening.from_query({"show": "space", "keys": keys})
        assert len(notes) == 1, keys
        assert scene.angles == ((0, 0), (53.1, 0))


def test_space_has_a_csv() -> None:
    rows = to_csv(geometry(SPACE)).splitlines()
    assert rows[0].split(",")[6:12] == ["a11", "a12", "a13", "a22", "a23", "a33"]
    assert {len(row.split(",")) for row in rows} == {rows[0].count(",") + 1}
    assert "60/10" in rows[4]


def test_a_turned_picture_is_the_same_scene() -> None:
    visit = WhiteningSession(WHITENING["space"].scene.to_query())
    told = {"angles": visit.plane.angles, "step": 3, "serial": 0, "view": [75.04, -10.0]}
    visit.moved(told)
    assert (visit.scene.yaw, visit.scene.pitch) == (75.0, -10.0)
    assert visit.preset == "space"
    assert visit.controls.query["yaw"] == "75.0"
    again = WhiteningSession(visit.controls.query)
    assert again.scene == visit.scene
    assert again.plane.view == [75.0, -10.0]


def test_moved_keys_in_space_are_typed_keys() -> None:
    visit = WhiteningSession({"show": "space"})
    told = {"angles": [[0, 0], [12.34, 56.78]], "step": 2, "serial": 1, "view": [30, 20]}
    visit.moved(told)
    assert visit.scene.keys == "0/0, 12.3/56.8"
    assert visit.plane.answered == 1


@pytest.mark.parametrize("rule", MAPPED)
def test_every_cell_leads_to_its_trace(rule: str) -> None:
    scene = Whitening(show="map", rule=rule, n=5, seed=2)
    shown = drawn(scene)
    for i, j in ((0, 0), (6, 5), (11, 10)):
        query = dict(pair.split("=") for pair in shown["links"][i][j].split("?")[1].split("&"))
        stepped, notes = Scene.from_query(query)
        assert notes == []
        lane = stepped.trace().lanes[0]
        assert shown["values"][i][j] == pytest.approx(lane.recall_mean[-1], rel=1e-6, abs=1e-7)
        assert stepped.step == 5
    assert len(map_csv(scene).splitlines()) == 1 + 12 * 11


def test_what_the_map_says() -> None:
    unit_, rls = (Whitening(show="map", rule=rule).map() for rule in ("unit", "rls"))
    at = unit_.rho.index(0.8)
    below = [i for i, lam in enumerate(unit_.lambda0) if lam <= 0.01]
    assert unit_.recall[below, at].tolist() == pytest.approx([0.57] * len(below), abs=6e-3)
    assert float(rls.recall[0, at]) == pytest.approx(7e-5, rel=0.05)
    assert float(rls.size[0, at]) == pytest.approx(24, abs=0.5)
    assert float(rls.size[0, -1]) == pytest.approx(326, abs=0.5)


def test_one_picture_at_a_time() -> None:
    visit = WhiteningSession({"show": "map", "rule": "delta"})
    assert (visit.plane.shown, visit.heatmap.shown) == (False, True)
    assert "DeltaNet" in visit.heatmap.picture["title"]
    visit.open("claim")
    assert (visit.plane.shown, visit.heatmap.shown) == (True, False)
    assert visit.story == ("claim", "plane")
