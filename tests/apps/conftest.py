"""The laboratory as a process, and pages that mind what they load and log."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from browser_fixtures import browser  # noqa: F401

START = 60.0
"""Seconds that a server may take to print its address."""


class Lab:
    """``vla lab`` as a process of its own."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "vla.cli", "lab", "--no-browser", *words]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self.address = self._first_line().split(" at ")[1].split()[0]

    def _first_line(self) -> str:
        lines: queue.Queue[str] = queue.Queue()
        assert self.process.stdout is not None
        threading.Thread(
            target=lambda: lines.put(self.process.stdout.readline()), daemon=True
        ).start()
        try:
            line = lines.get(timeout=START)
        except queue.Empty:
            line = ""
        if " at http" not in line:
            self.process.kill()
            pytest.fail(f"no address: {line}{self.process.communicate()[1]}")
        return line

    def interrupt(self) -> tuple[int, str]:
        """Ctrl-C; the exit status and everything on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, errors = self.process.communicate(timeout=20)
        return self.process.returncode, errors

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


@pytest.fixture(scope="session")
def start_lab() -> Iterator[Callable[..., Lab]]:
    """Starts laboratories with given arguments; those still open are closed at the end."""
    with contextlib.ExitStack() as stack:

        def start(*words: str) -> Lab:
            lab = Lab(*words)
            stack.callback(lab.close)
            return lab

        yield start


@pytest.fixture(scope="session")
def lab(start_lab: Callable[..., Lab]) -> Lab:
    """The one laboratory that most tests share."""
    return start_lab()


class Watch:
    """What a page did that it shouldn't have."""

    def __init__(self, context: Any) -> None:
        self.faults: list[str] = []
        context.on("page", self._page)
        context.on("request", self._request)

    def _page(self, page: Any) -> None:
        page.on("pageerror", lambda error: self.faults.append(f"error: {error}"))
        page.on("console", self._console)
        page.on("dialog", self._dialog)

    def _console(self, message: Any) -> None:
        if message.type == "error":
            self.faults.append(f"console: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request: Any) -> None:
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:", "file:")):
            self.faults.append(f"request: {request.url}")


@pytest.fixture(scope="module")
def contexts(browser: Any) -> Iterator[Callable[..., Any]]:  # noqa: F811
    """Makes browser contexts, each like a visitor of its own; faults of any fail the test."""
    opened = []

    def new(**options: Any) -> Any:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 720}, **options})
        context.set_default_timeout(60_000)
        opened.append((context, Watch(context)))
        return context

    new.opened = opened  # type: ignore[attr-defined]
    yield new
    for context, _ in opened:
        context.close()


@pytest.fixture(autouse=True)
def no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    """No console error, no script error, no dialog, no request that leaves this machine."""
    yield
    if "contexts" in request.fixturenames:
        for _, watch in request.getfixturevalue("contexts").opened:
            faults, watch.faults = watch.faults, []
            assert not faults
