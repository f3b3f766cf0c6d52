"""The streaming command, shortened."""

import json
from pathlib import Path

import pytest
import torch

from vla.ops import streaming
from vla.ops.streaming import ExactInverse, Settings, stream

from .oracle import relative_error


@pytest.mark.parametrize("refresh", [0, 20])
def test_the_state_stays_sound(refresh: int) -> None:
    readings = list(stream(Settings(tokens=20_000, piece=3_000, width=8, refresh_every=refresh)))
    assert [reading.tokens for reading in readings] == [100, 1_000, 10_000, 20_000]
    assert all(reading.sound for reading in readings)
    assert all(reading.distance < 1e-6 for reading in readings)
    assert readings[-1].memory_mib - readings[1].memory_mib < 8


def test_refresh_keeps_a_from_shrinking() -> None:
    """Process noise: without it A falls as 1/T, with it A stays (math of the Kalman filter)."""
    without, with_ = (
        list(stream(Settings(tokens=10_000, width=8, refresh_every=every)))[-1] for every in (0, 20)
    )
    assert without.largest_eigenvalue < 2e-3
    assert with_.smallest_eigenvalue > 1e-2


@pytest.mark.parametrize("refresh", [0, 3])
def test_the_exact_inverse_is_sherman_morrison_of_each_token(refresh: int) -> None:
    exact = ExactInverse(Settings(width=4, refresh_every=refresh, refresh_eps=0.1))
    u = torch.randn(1, 10, 1, 4, dtype=torch.float64)
    exact.add(u[:, :4])
    exact.add(u[:, 4:])
    A = torch.eye(4, dtype=torch.float64) / 0.1
    for t in range(10):
        z = A @ u[0, t, 0]
        A = A - torch.outer(z, z) / (1 + u[0, t, 0] @ z)
        if refresh and (t + 1) % refresh == 0:
            A = A + 0.1 * torch.eye(4, dtype=torch.float64)
    assert relative_error(exact.inverse()[0], A) < 1e-12


def test_an_unsound_state_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def spoiled(*args, **kwargs):
        o, state = original(*args, **kwargs)
        return o, state._replace(A=state.A - torch.eye(8))

    original = streaming.vla_attention
    monkeypatch.setattr(streaming, "vla_attention", spoiled)
    assert not list(stream(Settings(tokens=100, width=8)))[-1].sound


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "new" / "streaming.json"
    arguments = ["--tokens", "1000", "--width", "4", "--device", "cpu", "--json", str(path)]
    assert streaming.main(arguments) == 0
    printed = capsys.readouterr().out
    assert "no refresh" in printed
    assert "refresh every 20" in printed
    record = json.loads(path.read_text())
    assert {"device", "load", "threads", "versions", "commit", "date", "runs"} <= record.keys()
    assert [run["settings"]["refresh_every"] for run in record["runs"]] == [0, 20]
    assert record["runs"][0]["readings"][-1]["tokens"] == 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["--tokens", "0"],
        ["--device", "nonsense"],
        ["--device", "cuda:99"],
        ["--gain", "x"],
        ["--piece", "0"],
    ],
)
def test_bad_arguments_end_in_a_sentence(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        streaming.main(["--device", "cpu", *arguments])
    assert ended.value.code == 2
    assert "got" in capsys.readouterr().err
