"""The CPU benchmark runs and records; its times are not judged."""

import json
from pathlib import Path

import pytest

from vla.bench import cpu


def test_it_prints_and_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "SHORT", (1, 3))
    monkeypatch.setattr(cpu, "MODELS", ("vla_exact",))
    path = tmp_path / "new" / "cpu.json"
    assert cpu.main(["--only", "short", "--repeats", "1", "--json", str(path)]) == 0
    assert cpu.main(["--only", "steps", "--repeats", "1"]) == 0
    printed = capsys.readouterr().out
    assert "vla_exact" in printed
    assert "threads, torch" in printed
    record = json.loads(path.read_text())
    assert {"device", "threads", "load_before", "versions", "commit", "date"} <= record.keys()
    assert [row["tokens"] for row in record["rows"]] == [1, 1, 3, 3]
    assert all(row["both"]["median_ms"] > 0 for row in record["rows"])
