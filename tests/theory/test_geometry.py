"""The geometry of a few keys against direct linear algebra, and each prepared answer's numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from vla.errors import ArgumentError
from vla.scene.whitening import WHITENING, Whitening, WhiteningSession, prepared_of, to_csv
from vla.theory import overlap
from vla.theory.geometry import geometry

ANGLES = (0.0, 53.1, -120.0, 17.0, 90.0)


@pytest.mark.parametrize("lambda0", [1e-3, 0.1, 2.0])
@pytest.mark.parametrize("turn", [0.0, 25.0])
def test_every_moment_is_the_inverse_of_the_penalty(lambda0: float, turn: float) -> None:
    shown = geometry(ANGLES, lambda0=lambda0, turn=turn)
    u = np.radians(np.array(ANGLES) + turn)
    u = np.stack([np.cos(u), np.sin(u)], -1)
    for t, moment in enumerate(shown.moments):
        M = lambda0 * np.eye(2) + u[:t].T @ u[:t]
        A = np.linalg.inv(M)
        np.testing.assert_allclose(moment.M.numpy(), M, atol=1e-12)
        np.testing.assert_allclose(moment.A.numpy(), A, rtol=1e-9, atol=1e-9 / lambda0)
        turned = math.radians(moment.tilt)
        axis = np.array([math.cos(turned), math.sin(turned)])
        np.testing.assert_allclose(
            lambda0 * A @ axis, moment.axes[0] ** 2 * axis, atol=1e-9
        )  # the long axis is an eigenvector
        if t:
            alpha = A @ shown.k[t - 1].numpy()
            np.testing.assert_allclose(
                moment.direction.numpy(), alpha / np.linalg.norm(alpha), atol=1e-8
            )


@pytest.mark.parametrize("gain", ["unit", "rls", "oblique"])
def test_gains_against_a_loop(gain: str) -> None:
    shown = geometry(ANGLES, lambda0=0.3)
    S, v = np.zeros((5, 2)), np.eye(5)
    for t, moment in enumerate(shown.moments[1:]):
        k = shown.k[t].numpy()
        vector = moment.A.numpy() @ k
        if gain != "rls":
            vector = vector / (np.linalg.norm(vector) if gain == "unit" else k @ vector)
        error = v[t] - S @ k
        S = S + np.outer(error, vector)
        written = next(each for each in moment.written if each.gain == gain)
        assert written.length == pytest.approx(np.linalg.norm(vector))
        assert written.residual == pytest.approx(np.linalg.norm(error))
        assert written.left == pytest.approx(abs(1 - k @ vector) * np.linalg.norm(error), abs=1e-9)
        errors = np.linalg.norm(v[: t + 1] - shown.k[: t + 1].numpy() @ S.T, axis=1)
        np.testing.assert_allclose(written.recall, errors, atol=1e-9)


def test_pre_and_post_agree_only_where_u_is_along_k() -> None:
    assert max(m.apart for m in geometry(ANGLES).moments[1:]) < 1e-6
    assert geometry((0, 45), turn=40).moments[2].apart > 10
    post, pre = (geometry(ANGLES, turn=30, update=name).moments[3] for name in ("post", "pre"))
    np.testing.assert_allclose(post.direction, post.after)
    np.testing.assert_allclose(pre.direction, pre.before)


def test_the_curves_pass_through_what_was_measured() -> None:
    shown = geometry((0, 53.13), lambda0=0.1)
    assert shown.left == pytest.approx(overlap(shown.rho, 0.1).item(), abs=1e-12)
    at = shown.over_rho().numpy()
    assert np.interp(shown.rho, at[:, 0], at[:, 1]) == pytest.approx(shown.left, abs=2e-3)
    by = shown.over_lambda0().numpy()
    assert np.interp(-1, np.log10(by[:, 0]), by[:, 1]) == pytest.approx(shown.left, abs=1e-9)


@pytest.mark.parametrize("angles", [(), tuple(range(9)), (0.0, math.nan)])
def test_keys_that_cannot_be_drawn_are_refused(angles: tuple[float, ...]) -> None:
    with pytest.raises(ArgumentError, match="keys"):
        geometry(angles)


def test_what_the_prepared_scenes_say() -> None:
    last = {name: preset.scene.geometry().moments[-1] for name, preset in WHITENING.items()}
    left = {name: preset.scene.geometry().left for name, preset in WHITENING.items()}
    alpha = last["space"].direction.numpy()  # type: ignore[union-attr]
    assert math.degrees(math.asin(alpha[2])) == pytest.approx(87, abs=0.5)
    k = WHITENING["space"].scene.geometry().k
    assert (k[:2] @ k[2]).tolist() == pytest.approx([0.49, 0.60], abs=5e-3)
    assert left["claim"] == pytest.approx(0.068, abs=5e-4)
    assert left["limit"] == pytest.approx(7.5e-7, rel=0.01)
    assert last["limit"].cosine == pytest.approx(0.8, abs=1e-3)
    assert left["soft"] == pytest.approx(0.35, abs=5e-3)
    unit, rls, oblique = last["gains"].written
    assert unit.left == pytest.approx(0.49, abs=5e-3)
    assert (rls.left, rls.worst_old) == pytest.approx((0.304, 0.304), abs=1e-3)
    assert (oblique.left, oblique.worst_old) == pytest.approx((0, 0.33), abs=4e-3)
    assert last["round"].cosine == pytest.approx(1)
    assert last["round"].axes[0] == pytest.approx(last["round"].axes[1])
    assert last["round"].written[0].worst_old > 1
    assert last["again"].overlaps[0] == pytest.approx(0.018, abs=5e-4)
    assert 0.2 < last["again"].overlaps[0] / left["claim"] < 0.3
    assert last["prepost"].apart == pytest.approx(77, abs=0.5)


def test_scenes_survive_their_address() -> None:
    for name, preset in WHITENING.items():
        scene, notes = Whitening.from_query(preset.scene.to_query())
        assert (scene, notes) == (preset.scene, [])
        assert prepared_of(WHITENING, scene) == name


@pytest.mark.parametrize(
    "query",
    [
        {"keys": "<script>"}, {"keys": "nan,1"}, {"keys": ",".join(["1"] * 40)}, {"keys": ""},
        {"keys": "1e999"}, {"lambda0": "-1"}, {"lambda0": "x" * 9000}, {"turn": "1e9"},
        {"update": "both"}, {"step": "7"}, {"bogus": "1"},
    ],
)  # fmt: skip
def test_bad_addresses_are_repaired_with_a_message(query: dict[str, str]) -> None:
    session = WhiteningSession(query)
    assert session.controls.notes
    assert all(len(note) < 300 for note in session.controls.notes)
    assert session.scene.step < len(session.geometry.moments)


def test_csv_has_a_row_per_step_and_gain() -> None:
    rows = to_csv(geometry(ANGLES)).splitlines()
    assert len(rows) == 1 + 3 * len(ANGLES)
    assert {row.count(",") for row in rows} == {rows[0].count(",")}
