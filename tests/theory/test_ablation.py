"""The layer's switches on a stream, which of them act, and the nearest recorded layer."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from vla.errors import ArgumentError
from vla.nn import build, model
from vla.rules import Token, make
from vla.tasks import make as make_task
from vla.theory.ablation import acting, as_vla, describe_switches, differences, neighbours, recall
from vla.tokens import Stream, make_stream
from vla.train import RunConfig, RunResult, RunRow
from vla.train.presets import ABLATIONS


def pairs(n: int = 9, d: int = 6, **settings: object) -> Stream:
    return make_stream("correlated", n=n, d=d, d_v=d, queries=0, rho=0.4, **settings)


PLAIN = model("vla_paper", features="identity", direction="key", unit_direction=False,
              refresh_every=0)  # fmt: skip


@pytest.mark.parametrize("gain", ["unit", "rls", "oblique"])
@pytest.mark.parametrize("adaptive", [True, False])
def test_recall_is_that_of_the_rule(gain: str, adaptive: bool) -> None:
    """Without convolution and norm the layer is the rule on the stream itself."""
    stream = pairs()
    shown = recall(PLAIN.with_(gain=gain, adaptive=adaptive, lambda0=0.3), stream)
    rule = make("vla", gain=gain, adaptive=adaptive, lambda0=0.3)
    state = rule.init(6, 6)
    for t in range(9):
        state = rule.step(state, Token(stream.k[t], stream.v[t]))
        for i in range(t + 1):
            error = (rule.read(state, stream.k[i]) - stream.v[i]).norm() / stream.v[i].norm()
            assert shown.error[t, i].item() == pytest.approx(error.item(), abs=1e-12)
        assert shown.error[t, t + 1 :].isnan().all()
        assert shown.mean[t].item() == pytest.approx(shown.error[t, : t + 1].mean().item())


def test_orthogonal_keys_come_back_right() -> None:
    stream = make_stream("orthogonal", n=6, d=6, d_v=6, queries=0)
    shown = recall(PLAIN, stream)
    assert shown.error[-1].max() < 1e-10
    assert shown.right.tolist() == [1.0] * 6


def test_every_switch_that_acts_changes_the_recall() -> None:
    stream, base = pairs(seed=3), model("vla_authors", refresh_every=3, refresh_eps=0.5)
    changes = {
        "features": "silu", "normalise_key": False, "short_conv": 3, "adaptive": False,
        "direction": "key", "unit_direction": False, "direction_scale": 1.0, "rank": 2,
        "lambda0": 2.0, "refresh_every": 2, "refresh_eps": 5.0, "gain": "rls", "gated": True,
        "normalise_read": False, "output_norm": "none",
    }  # fmt: skip
    before = recall(base, stream).mean
    for name, value in changes.items():
        after = recall(base.with_(**{name: value}), stream).mean
        assert (after - before).abs().max() > 1e-6, name


def test_learning_starts_where_the_switch_is_off() -> None:
    stream, base = pairs(), model("vla_authors")
    learned = recall(base.with_(learned_lambda0=True), stream)
    assert torch.equal(learned.right, recall(base, stream).right)


def test_switches_that_cannot_act_do_not_count() -> None:
    base = model("vla_authors")
    fixed = base.with_(adaptive=False)
    same = [
        (base, base.with_(floor=0.5)),
        (fixed, fixed.with_(lambda0=3.0, direction="key", refresh_every=0)),
        (fixed, fixed.with_(gain="oblique")),
        (base.with_(refresh_every=0), base.with_(refresh_every=0, refresh_eps=9.0)),
        (base.with_(direction="key"), base.with_(direction="weighted")),
        (base.with_(direction="key"), base.with_(direction="key", unit_direction=False)),
    ]
    stream = pairs(n=24)
    for left, right in same:
        assert acting(left) == acting(right)
        here, there = recall(left, stream).error, recall(right, stream).error
        assert torch.allclose(here, there, rtol=1e-9, atol=1e-12, equal_nan=True)
    assert acting(fixed.with_(gain="rls")) != acting(fixed.with_(gain="rls", lambda0=3.0))


@pytest.mark.parametrize("name", ["delta", "rls"])
def test_other_models_are_the_vla_they_are_said_to_be(name: str) -> None:
    config = model(name, width=12, heads=2, ffn=0, vocab=16, max_length=20)
    twin = as_vla(config)
    assert twin is not None
    mine, theirs = build(config, seed=1).double(), build(twin, seed=1).double()
    theirs.load_state_dict(mine.state_dict())
    tokens = torch.arange(15)[None]
    assert torch.allclose(mine(tokens), theirs(tokens), rtol=0, atol=1e-12)
    assert as_vla(model("softmax")) is None


def row(config: object, seed: int = 42, status: str = "done", label: str = "") -> RunRow:
    task = make_task("mqar_authors", pairs=4)
    run = RunConfig(model=config, task=task, seed=seed, steps=10)  # type: ignore[arg-type]
    result = RunResult(status, evaluation={"test": {"accuracy": 0.5}})
    return RunRow(run.key, run, status, result, label=label)


def test_the_nearest_layer_is_named_with_what_differs() -> None:
    rows = [row(config, seed) for config in ABLATIONS.values() for seed in (42, 123)]
    mine = ABLATIONS["λ0 = 1"].with_(gated=True, lambda0=2.0)
    found = neighbours(mine, rows)
    assert (found[0].title, [d.name for d in found[0].apart]) == ("write gate β", ["lambda0"])
    assert all(a.distance <= b.distance for a, b in itertools.pairwise(found))
    far = neighbours(model("vla_authors", rank=2, learned_lambda0=True, lambda0=5.0), rows)
    assert far[0].title != "A fixed"
    assert [d.name for d in far[0].apart] == ["rank", "lambda0", "learned_lambda0"]
    exact = neighbours(ABLATIONS["A fixed"], rows)[0]
    assert (exact.title, exact.apart, len(exact.rows)) == ("A fixed", (), 2)
    assert not any("softmax" in str(each.config) for each in found)


def test_runs_that_ended_badly_are_no_neighbours() -> None:
    rows = [row(model("vla_authors"), status="nan"), row(model("vla_exact"))]
    assert [each.config.gain for each in neighbours(model("vla_authors"), rows)] == ["rls"]
    assert neighbours(model("vla_authors"), []) == []


def test_words() -> None:
    mine = model("vla_authors", gain="rls", gated=True, lambda0=0.5)
    told = describe_switches(mine)
    assert told == "vla_authors: λ0 0.5, gain rls, write gate β on"
    assert [d.name for d in differences(mine, model("vla_authors"))] == ["lambda0", "gain", "gated"]
    assert math.isclose(differences(mine, model("vla_authors"))[0].theirs, 0.1)


def test_what_is_no_vla_is_refused() -> None:
    with pytest.raises(ArgumentError, match="mixer"):
        recall(model("softmax"), pairs())
