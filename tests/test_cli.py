"""The command line: every fault is told in words, and Ctrl-C ends quietly."""

from __future__ import annotations

import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import vla
from vla import cli, lab

ROOT = Path(__file__).resolve().parents[1]


def test_without_a_command_it_helps(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    shown = capsys.readouterr().out
    for name, command in cli.COMMANDS.items():
        assert name in shown
        assert command.help in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["--version"])
    assert leaving.value.code == 0
    assert capsys.readouterr().out == f"vla {vla.__version__}\n"


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main(["lob"])
    assert leaving.value.code == 2
    assert "invalid choice: 'lob'" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as leaving:
        cli.main([name, "--help"])
    assert leaving.value.code == 0
    assert cli.COMMANDS[name].help in capsys.readouterr().out


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from vla.cli import main\n"
        "try: main(['lab', '--help'])\n"
        "except SystemExit: print('heavy:', {'torch', 'marimo'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert "heavy: set()" in done.stdout


def assert_told(capsys: pytest.CaptureFixture[str], words: list[str], *parts: str) -> None:
    """Status 1 and a message; an exception would have come out of ``main``."""
    assert cli.main(words) == 1
    told = capsys.readouterr().err
    assert told.startswith("vla lab: ")
    for part in parts:
        assert part in told


def test_a_taken_port_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind((lab.HOST, 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = ["lab", "--no-browser", "--port", port]
        assert_told(capsys, words, port, "address already in use", "leave --port out")


def test_a_port_that_is_none_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert_told(capsys, ["lab", "--port", "70000"], "70000", "from 1 to 65535")


@pytest.mark.parametrize("name", ["marimo", "anywidget"])
def test_a_missing_dependency_is_told(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    assert_told(capsys, ["lab", "--no-browser"], name, f"-m pip install -e '{ROOT}[lab]'")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "a Python file that exists"),
        ("x = 1", "a class under @vla.rules.register"),
        ("1 / 0", "ZeroDivisionError"),
    ],
)
def test_a_bad_rule_file_is_told(
    tmp_path: Path, content: str | None, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    if content is not None:
        path.write_text(content)
    assert_told(capsys, ["lab", "--no-browser", "--rule", str(path)], "mine.py", says)


def test_a_wheel_carries_the_apps_and_all_records() -> None:
    """Where the library looks in a wheel is where the build puts them."""
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    carried = build["targets"]["wheel"]["force-include"]
    assert carried["apps"] == "vla/_apps"
    for folder in (ROOT / "data").iterdir():
        assert carried[f"data/{folder.name}"] == f"vla/_data/{folder.name}"
