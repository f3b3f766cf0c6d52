"""A JupyterLab of our own, and the notebooks' helper modules."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

sys.path.append(str(Path(__file__).parents[1]))
from browser_fixtures import browser  # noqa: F401

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
sys.path.append(str(NOTEBOOKS))  # as in a chapter's kernel, which runs in that folder
QUIET = "@jupyterlab/apputils-extension/notification.jupyterlab-settings"


def load(name: str) -> ModuleType:
    """A module of the notebooks' folder, which isn't a package."""
    spec = importlib.util.spec_from_file_location(f"notebooks_{name}", NOTEBOOKS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def execute() -> ModuleType:
    """``notebooks/execute.py``."""
    return load("execute")


@pytest.fixture(scope="module")
def jupyterlab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab that serves a copy of the notebooks and nothing of the user's."""
    home = tmp_path_factory.mktemp("jupyterlab")
    shutil.copytree(NOTEBOOKS, home / "notebooks")
    settings = home / "settings" / QUIET
    settings.parent.mkdir(parents=True)
    settings.write_text(json.dumps({"fetchNews": "false", "checkForUpdates": False}))
    port = _free_port()
    log = (home / "log").open("w")
    server = subprocess.Popen(
        _command(port, home / "notebooks"), env=_environment(home), cwd=home, stdout=log, stderr=log
    )
    try:
        _wait(f"http://127.0.0.1:{port}/api", server, home / "log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(30)
        log.close()


def _command(port: int, root: Path) -> list[str]:
    return [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        f"--port={port}", "--ServerApp.port_retries=0", f"--ServerApp.root_dir={root}",
        "--IdentityProvider.token=", "--expose-app-in-browser",
    ]  # fmt: skip


def _environment(home: Path) -> dict[str, str]:
    own = {
        "JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "runtime", "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces", "IPYTHONDIR": "ipython",
    }  # fmt: skip
    return os.environ | {name: str(home / folder) for name, folder in own.items()}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _wait(url: str, server: subprocess.Popen, log: Path, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if server.poll() is not None:
            pytest.fail(f"JupyterLab stopped: {log.read_text()[-2000:]}")
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            time.sleep(0.3)
    pytest.fail(f"JupyterLab didn't answer in {seconds} s: {log.read_text()[-2000:]}")
