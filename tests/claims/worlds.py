"""Pretended runs: what would be recorded if the models were this good."""

from __future__ import annotations

from collections.abc import Callable

from vla.claims import Claim
from vla.train import RunResult, RunRow, Wanted
from vla.train.presets import preset

Score = Callable[[Wanted], float]
CURVE_STEPS = list(range(50, 3001, 50))


def row(item: Wanted, score: float, name: str = "") -> RunRow:
    """One finished run with this accuracy on every set and all along its curve."""
    split = {"accuracy": score, "loss": 1 - score, "count": 960}
    sets = ["validation", "test", *dict(item.config.also_eval)]
    curve = {
        "step": CURVE_STEPS, "loss": [1 - score] * len(CURVE_STEPS),
        "accuracy": [score] * len(CURVE_STEPS),
    }  # fmt: skip
    result = RunResult(
        "done", curve=curve, evaluation=dict.fromkeys(sets, split), device="pretended"
    )
    return RunRow(item.config.key, item.config, "done", result, label=item.label, preset=name)


def world(names: list[str], score: Score) -> dict[str, list[RunRow]]:
    """Runs of whole presets. ``fair`` needs its rates chosen; one each is enough here."""
    return {
        name: [row(item, score(item), name) for item in preset(name).wanted("full")]
        for name in names
    }


def of_vla(item: Wanted) -> bool:
    """Whether a run is of VLA with everything it has."""
    return item.label.startswith(("vla_authors", "VLA (as run)", "rank "))


PERFECT: Score = lambda _: 1.0  # noqa: E731
CHANCE: Score = lambda _: 0.0079  # noqa: E731
VLA_ALONE: Score = lambda item: 1.0 if of_vla(item) else 0.03  # noqa: E731
ALL_BUT_VLA: Score = lambda item: 0.05 if of_vla(item) else 1.0  # noqa: E731
LONGER_ALONE: Score = lambda item: 1.0 if item.config.lr > 5e-4 else 0.05  # noqa: E731
RANKED: Score = lambda item: 0.9 if item.label.startswith("rank 1") else 1.0  # noqa: E731
LEARNED: Score = lambda item: 1.0 if "learned" in item.label else 0.5  # noqa: E731
REFRESHED: Score = lambda item: 0.5 if "no refresh" in item.label else 1.0  # noqa: E731
ONE_SEED: Score = lambda item: 1.0 if item.config.seed == 42 else 0.05  # noqa: E731
HALFWAY: Score = lambda _: 0.623  # noqa: E731
WORLDS = (
    PERFECT, CHANCE, VLA_ALONE, ALL_BUT_VLA, LONGER_ALONE, RANKED, LEARNED, REFRESHED, ONE_SEED,
    HALFWAY,
)  # fmt: skip


def presets_of(claim: Claim) -> list[str]:
    """The presets whose runs a claim looks at, at most."""
    assert claim.trained is not None
    return ["figure5", "table10", "figure6", "table13", "table4", "table7", "readme", "fair"]
