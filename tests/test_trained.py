"""What a trained head stores: rows, queries, and reads that are the layer's own outputs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from vla import trained
from vla.nn import build, checkpoint, model
from vla.scene import Scene
from vla.scene.session import Session
from vla.tasks import IGNORED, make, seeded
from vla.trace import describe
from vla.train.config import RunConfig

MODELS = ("vla_authors", "vla_exact", "delta", "authors_delta", "linear", "softmax")
TASKS = ("mqar_authors", "mqar_paper", "mqar_fair")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Untrained models with the notes of a run; their numbers need not be good, only their own."""
    place = tmp_path_factory.mktemp("checkpoints")
    for name in MODELS:
        save(place, name, model(name, width=16, heads=2, ffn=16, vocab=24, max_length=40))
    return place


def save(place: Path, name: str, config: object, task: str = "mqar_authors") -> None:
    wanted = make(task, pairs=5, vocab=24)
    run = RunConfig(model=config, task=wanted, steps=1)  # type: ignore[arg-type]
    built = build(config, seed=3)  # type: ignore[arg-type]
    with torch.no_grad():  # Untrained gates and keys are all alike; make them differ.
        for weight in built.parameters():
            weight.mul_(6)
    checkpoint.save(built, place / f"{name}.safetensors", notes={"run": run.canonical})


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLA_CHECKPOINTS", str(folder))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("layer", [0, 1])
@torch.no_grad()
def test_the_layers_own_lane_reads_its_outputs(name: str, layer: int) -> None:
    scene = Scene(kind="layer", checkpoint=name, layer=layer, head=1, lanes=("layer",))
    read = scene.trace().lanes[0].read[1:]
    net = trained.load(name).model.double()
    x = net.embed(torch.tensor(scene.row())[None])
    for block in net.blocks[:layer]:
        x = block(x)
    mixer = net.blocks[layer].mixer
    wanted = mixer.attend(mixer.sequences(net.blocks[layer].mixer_norm(x)))[0, :, 1]
    net.float()
    torch.testing.assert_close(torch.from_numpy(read), wanted, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_queries_are_found_in_the_row_itself(task: str, seed: int) -> None:
    """What is inferred from the tokens is what the task's targets say."""
    drawn = make(task, pairs=4, vocab=40)
    batch = drawn.sample(8, generator=seeded(seed))
    for tokens, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        places = trained.asked(drawn, tuple(tokens))
        said = [tokens[place] if place >= 0 else IGNORED for place in places]
        assert said == targets


def test_a_value_that_a_convolution_moves_is_found_where_it_went() -> None:
    """Built by hand: reads are the values two places on, so the shift is 2; without taps, 0."""
    generator = torch.Generator().manual_seed(0)
    v = torch.randn(12, 5, generator=generator)
    source = [-1] * 8 + [1, 3, 5, 3]
    read = torch.zeros(12, 5)
    for t, place in enumerate(source):
        if place >= 0:
            read[t] = 3 * v[place + 2]
    assert trained._shift(v, read, source, 4) == 2
    assert trained._shift(v, read, source, 0) == 0
    assert trained._shift(v, read, [-1] * 12, 4) == 0


@pytest.mark.parametrize("name", MODELS)
def test_convolved_heads_still_read_the_layers_outputs(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shape = {"width": 16, "heads": 2, "ffn": 16, "vocab": 24, "max_length": 40, "short_conv": 4}
    save(tmp_path, name, model(name, **shape))
    monkeypatch.setenv("VLA_CHECKPOINTS", str(tmp_path))
    scene = Scene(kind="layer", checkpoint=name, layer=1, head=1, lanes=("layer",))
    stream = scene.stream()
    shift, row = stream.settings["shift"], scene.row()
    trace, task = scene.trace(), trained.load(name).task
    for t, place in enumerate(trained.asked(task, row)):
        if (
            place >= 0
            and stream.expected()[t] == place + shift
            and not trace.lanes[0].correct[t + 1]
        ):
            said = describe(trace, "layer", t + 1)
            assert f"wrong, but {task.symbol(row[place])} was stored" in said
    assert 0 <= shift < 4
    places = trained.asked(trained.load(name).task, row)
    for t, place in enumerate(stream.expected()):
        assert place in (places[t], places[t] + shift if places[t] >= 0 else -1)
        assert place < t
    assert len(scene.trace()) == len(row) + 1
    layers = trained._values_and_reads(trained.load(name).model, torch.tensor(row))
    read = scene.trace().lanes[0].read[1:]
    torch.testing.assert_close(
        torch.from_numpy(read), layers[1][1][1].detach().double(), rtol=2e-4, atol=2e-4
    )


def test_a_typed_row_is_the_row() -> None:
    known = trained.load("delta")
    assert trained.parse_row(known, "5 17, 8 4 | 8") == (5, 17, 8, 4, 23, 8)
    scene = Scene(kind="layer", checkpoint="delta", tokens="5 17 8 4 | 8 9", lanes=("layer",))
    stream = scene.stream()
    assert stream.labels == ("5", "5 → 17", "8", "8 → 4", "|", "? 8", "9")
    assert stream.expected() == [-1, -1, -1, -1, -1, 3, -1]
    assert stream.asks() == [False] * 5 + [True, False]
    assert stream.remarks[5].startswith("the whole model answers")
    said = trained.load("delta").model(torch.tensor(scene.row())[None])[0, 5].argmax()
    assert f"answers {int(said)}, " in stream.remarks[5]


def test_the_drawn_row_is_as_in_training_unless_asked() -> None:
    known = trained.load("delta")
    assert len(trained.row_of(known)) == known.task.length == 16
    assert len(trained.row_of(known, pairs=3)) == 10
    assert trained.row_of(known, seed=1) == trained.row_of(known, seed=1)
    assert trained.row_of(known, seed=1) != trained.row_of(known, seed=2)


@pytest.mark.parametrize(
    ("query", "change", "says"),
    [
        ({"layer": "5"}, {"layer": 1}, "layer: 5 is more than delta has; 1 is shown"),
        ({"head": "9"}, {"head": 1}, "head: 9 is more than"),
        ({"pairs": "60"}, {"pairs": 13}, "pairs: 60 is more than"),
        ({"tokens": "<b>"}, {"tokens": "", "kind": "layer"}, "token numbers such as"),
        ({"tokens": "1 99"}, {"tokens": ""}, "numbers below 24"),
        ({"tokens": "1 " * 41}, {"tokens": ""}, "1 to 40 for delta"),
        ({"checkpoint": "../x"}, {"kind": "layer"}, "not one of"),
    ],
)
def test_bad_addresses_are_repaired(
    query: dict[str, str], change: dict[str, object], says: str
) -> None:
    scene, notes = Scene.from_query({"stream": "layer", "checkpoint": "delta", **query})
    assert says in " ".join(notes)
    assert {name: getattr(scene, name) for name in change} == change
    assert Scene.from_query(scene.to_query()) == (scene, [])
    assert len(scene.stream()) > 0


def test_a_link_names_its_checkpoint() -> None:
    scene = Scene(kind="layer", checkpoint=trained.names()[0], head=1, pairs=4, step=9)
    assert scene.to_query()["checkpoint"] == trained.names()[0]
    assert Scene.from_query(scene.to_query()) == (scene, [])


def test_a_layers_lane_needs_a_layer() -> None:
    scene = Scene(lanes=("delta", "layer"))
    assert list(scene.rules()) == ["delta"]
    assert list(Scene(lanes=("layer",)).rules()) == ["vla"]
    assert Scene(lanes=("delta", "layer"), hidden=("layer",)).visible() == ["delta"]


def test_mapped_keys_are_not_mapped_again() -> None:
    rules = Scene(kind="layer", checkpoint="linear", lanes=("linear", "authors_delta")).rules()
    assert rules["linear"].settings["features"] == "identity"
    assert rules["authors_delta"].settings["query_features"] == "identity"


def test_a_visit_walks_through_heads() -> None:
    visit = Session({"stream": "layer", "checkpoint": "delta", "rules": "delta,layer"})
    assert [lane.rule for lane in visit.stepper.trace.lanes] == ["delta", "layer"]
    visit.choose({**visit.panel.values, "head": "7"}, serial=1)
    assert "head: 7 is more than delta has" in visit.panel.notes[0]
    assert visit.scene.head == 1
    visit.walked(4, ["layer"])
    assert visit.scene.hidden == ("delta",)
    visit.choose({**visit.panel.values, "stream": "words"}, serial=2)
    assert [lane.rule for lane in visit.stepper.trace.lanes] == ["delta"]


def test_without_checkpoints_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLA_CHECKPOINTS", str(tmp_path))
    assert trained.names() == []
    scene, notes = Scene.from_query({"stream": "layer"})
    assert scene.kind == "words"
    assert "vla sweep one" in " ".join(notes)


def test_a_checkpoint_that_does_not_say_its_task_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLA_CHECKPOINTS", str(tmp_path))
    checkpoint.save(build(model("delta", width=8, heads=1)), tmp_path / "bare.safetensors")
    (tmp_path / "broken.safetensors").write_bytes(b"no")
    for name, says in (("bare", "how it was trained"), ("broken", "whole safetensors file")):
        with pytest.raises(ValueError, match=says):
            trained.load(name)
