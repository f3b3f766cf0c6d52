"""Checkpoints: round trips, size, and files that must be refused with a clear message."""

from pathlib import Path

import pytest
import torch

from vla.nn import MODELS, build, load, model, save

pytest.importorskip("safetensors.torch")

TOKENS = torch.arange(60).view(2, 30)


def test_round_trip_with_notes(tmp_path: Path) -> None:
    net = build(model("vla_exact", short_conv=4, width=32, heads=2, max_length=64), seed=1)
    notes = {"task": "mqar_authors", "seed": 42, "accuracy": 0.75}
    size = save(net, tmp_path / "a.safetensors", notes=notes)
    assert size == (tmp_path / "a.safetensors").stat().st_size
    again = load(tmp_path / "a.safetensors")
    assert again.notes == notes
    assert again.model.config == net.config
    assert torch.equal(again.model(TOKENS), net(TOKENS))
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]


@pytest.mark.parametrize("name", ["vla_authors", "vla_exact", "delta", "softmax"])
def test_full_size_model_fits_one_megabyte(name: str, tmp_path: Path) -> None:
    net = build(MODELS[name], seed=1)
    assert save(net, tmp_path / "m", length=73, half=True) < 1_000_000
    again = load(tmp_path / "m").model
    assert again.config.max_length == 73
    assert again.embedding.weight.dtype == torch.float32
    assert torch.allclose(again(TOKENS), net(TOKENS), atol=5e-3)


def damaged(kind: str, path: Path) -> None:
    import safetensors.torch

    net = build(model("delta", width=16, heads=1, max_length=8, vocab=8))
    save(net, path)
    whole = path.read_bytes()
    if kind == "cut":
        path.write_bytes(whole[:-100])
    elif kind == "text":
        path.write_text("not weights")
    elif kind == "foreign":
        safetensors.torch.save_file(net.state_dict(), path)
    elif kind == "other config":
        path.write_bytes(whole.replace(b'\\"layers\\": 2', b'\\"layers\\": 3'))
    elif kind == "unknown setting":
        path.write_bytes(whole.replace(b'\\"layers\\": 2', b'\\"lawyer\\": 2'))
    elif kind == "missing":
        path.unlink()


@pytest.mark.parametrize(
    "kind", ["cut", "text", "foreign", "other config", "unknown setting", "missing"]
)
def test_bad_files_are_refused(kind: str, tmp_path: Path) -> None:
    damaged(kind, tmp_path / "bad")
    with pytest.raises(ValueError, match=r"^checkpoint: got .+, wanted"):
        load(tmp_path / "bad")


def test_nothing_is_left_where_writing_fails(tmp_path: Path) -> None:
    net = build(model("delta", width=16, heads=1, max_length=8, vocab=8))
    with pytest.raises(OSError, match="missing"):
        save(net, tmp_path / "missing" / "a")
    with pytest.raises(ValueError, match="notes: got"):
        save(net, tmp_path / "a", notes={"model": net})
    assert not list(tmp_path.iterdir())
