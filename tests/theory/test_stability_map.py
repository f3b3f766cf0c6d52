"""Every cell of a stability map is the end of one trace."""

from __future__ import annotations

import time

import pytest

from vla.rules import make
from vla.scene import Scene
from vla.theory.stability_map import LAMBDA0, RHO, stability_map

RULES = {
    "unit": ("vla", {"gain": "unit"}), "rls": ("vla", {"gain": "rls"}),
    "oblique": ("vla", {"gain": "oblique"}), "delta": ("delta", {}), "linear": ("linear", {}),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("n", [1, 6, 21])
def test_cells_are_single_traces(name: str, n: int) -> None:
    lane, settings = RULES[name]
    shown = stability_map(make(lane, **settings), n=n, seed=3)
    for row, column in ((0, 0), (2, 7), (6, 3), (11, 10)):
        scene = Scene(
            kind="correlated", n=n, queries=0, seed=3, rho=RHO[column], lambda0=LAMBDA0[row],
            lanes=(lane,), **settings,
        )  # fmt: skip
        traced = scene.trace().lanes[0]
        # Sums of another order differ by rounding, which A amplifies by up to (n + λ0)/λ0.
        slack = 1e-15 * n * (1 + n / LAMBDA0[row])
        for measured, wanted in (
            (shown.recall, traced.recall_mean), (shown.size, traced.norm_S)
        ):  # fmt: skip
            value = float(measured[row, column])
            assert value == pytest.approx(wanted[-1], rel=1e-9, abs=max(slack, 1e-12))


def test_a_map_is_quick() -> None:
    stability_map(make("vla"), n=2)
    start = time.perf_counter()
    stability_map(make("vla"), n=64)
    assert time.perf_counter() - start < 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [({"n": 0}, "n: got 0"), ({"lambda0": (0.1, -1.0)}, "lambda0"), ({"rho": (1.5,)}, "rho")],
)
def test_what_cannot_be_is_refused(change: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        stability_map(make("vla"), **{"n": 4, **change})  # type: ignore[arg-type]
