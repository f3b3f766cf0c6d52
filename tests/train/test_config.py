"""Configs: hashable values whose key names a run for ever, and named errors before any work."""

import dataclasses
import hashlib
import json

import pytest

from tests.train.tiny import TASK, config, model
from vla import nn, tasks
from vla.errors import ArgumentError
from vla.train import RunConfig
from vla.train.config import canonical_json, key_of

OTHER = {
    "model": model(width=16),
    "task": TASK.with_(length=8),
    "also_eval": {"longer": TASK.with_(length=7)},
    "steps": 13, "lr": 2e-2, "seed": 7, "batch": 5, "warmup": 0.2, "clip": 2.0,
    "weight_decay": 0.0, "betas": (0.9, 0.99), "eps": 1e-7, "eval_batches": 3, "eval_batch": 5,
    "dtype": "float64", "precision": "tf32",
}  # fmt: skip


def test_the_key_of_a_config_never_changes():
    """Stored runs are found by it: if this fails, stored runs are lost. Raise SCHEMA on purpose."""
    settings = {"name": "copy_authors", "length": 6, "vocab": 8}
    plain = {
        "model": {"mixer": "softmax", "vocab": 8, "width": 8, "heads": 1, "max_length": 6},
        "task": settings, "also_eval": {}, "steps": 10, "lr": 1e-3, "seed": 1,
    }  # fmt: skip
    chosen = RunConfig.from_dict(plain)
    text = chosen.canonical
    assert text.startswith('{"also_eval":{},"batch":64,"betas":[0.9,0.999],"clip":1.0')
    assert '"lr":0.001' in text
    assert '"schema":1' in text
    # The model's settings belong to vla.nn, which may add to them; the rest is pinned.
    rest = {name: value for name, value in json.loads(text).items() if name != "model"}
    assert key_of(canonical_json(rest)) == "cfb5ed152162766819eafa9911a8be42"
    assert chosen.key == hashlib.sha256(text.encode()).hexdigest()[:32]


@pytest.mark.parametrize("name", OTHER)
def test_every_field_is_in_the_key(name):
    changed = config().with_(**{name: OTHER[name]})
    assert changed.key != config().key
    assert changed != config()


def test_no_field_was_forgotten():
    assert set(OTHER) == {f.name for f in dataclasses.fields(RunConfig)}


def test_equal_configs_have_equal_keys_however_they_are_written():
    a = config(lr=1, also_eval={"b": TASK, "a": TASK})
    b = config(lr=1.0, also_eval=(("a", TASK), ("b", TASK)))
    assert a == b
    assert hash(a) == hash(b)
    assert a.key == b.key


@pytest.mark.parametrize(
    "chosen",
    [
        config(),
        config(also_eval={"longer": TASK.with_(length=5)}),
        config(tasks.make("mqar_authors", pairs=3, vocab=16, keys=(0, 8))),
        config(tasks.make("mqar_fair", pairs=3, vocab=16, length=12), dtype="float64"),
    ],
)
def test_json_round_trip(chosen):
    again = RunConfig.from_json(chosen.canonical)
    assert again == chosen
    assert again.key == chosen.key


def test_shape_key_ignores_seed_and_rate_alone():
    assert config(seed=1, lr=1e-3).shape_key == config(seed=2, lr=1e-2).shape_key
    assert config(steps=13).shape_key != config().shape_key


def test_it_prints_what_it_is():
    text = str(config(tasks.make("mqar_authors", pairs=3, vocab=16)))
    assert "n=3" in text
    assert "lr 0.01" in text
    assert "seed 42" in text


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"lr": 0}, "lr"), ({"lr": -1e-3}, "lr"), ({"lr": float("nan")}, "lr"),
        ({"lr": float("inf")}, "lr"), ({"lr": "fast"}, "lr"), ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"), ({"batch": 0}, "batch"), ({"seed": -1}, "seed"),
        ({"warmup": 1.0}, "warmup"), ({"clip": 0}, "clip"), ({"weight_decay": -1}, "weight_decay"),
        ({"betas": (0.9, 1.0)}, "betas"), ({"dtype": "float16"}, "dtype"),
        ({"precision": "fast"}, "precision"), ({"eval_batches": 0}, "eval_batches"),
    ],
)  # fmt: skip
def test_bad_values_are_named(changes, name):
    with pytest.raises(ArgumentError) as caught:
        config(**changes)
    assert caught.value.name == name


def test_bad_parts_are_named_before_any_work():
    with pytest.raises(ArgumentError, match="pairs"):
        tasks.make("mqar_authors", pairs=200)
    with pytest.raises(ArgumentError, match="length"):
        tasks.make("mqar_paper", pairs=8, length=10)
    with pytest.raises(ArgumentError, match="heads"):
        nn.model("linear", width=10, heads=3)


def test_model_and_task_must_fit():
    with pytest.raises(ArgumentError, match=r"model\.vocab"):
        config(model=model(vocab=7)).check()
    with pytest.raises(ArgumentError, match=r"model\.max_length"):
        config(also_eval={"longer": TASK.with_(length=9)}).check()
    config(model=model(max_length=1, positions="none")).check()


def test_unknown_fields_are_refused():
    with pytest.raises(ArgumentError, match="momentum"):
        RunConfig.from_dict({**config().to_dict(), "momentum": 0.9})
