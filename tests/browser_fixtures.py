"""One real Chromium per test session, shared by the stepper's and the apps' tests.

A conftest takes it in by path, as the tests aren't a package::

    sys.path.append(str(Path(__file__).parents[1]))
    from browser_fixtures import browser
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-first-run",
)  # fmt: skip
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")

_open: dict[str, Any] = {}
_users: list[object] = []


def chromium_path() -> str | None:
    """``$VLA_CHROMIUM``, or the first Chromium on the path."""
    return os.environ.get("VLA_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Playwright's browser. Without Chromium the test is skipped, or fails where ``CI`` is set."""
    path = chromium_path()
    if path is None:
        missing = pytest.fail if os.environ.get("CI") else pytest.skip
        missing("no Chromium: install one (Debian: apt install chromium) or set VLA_CHROMIUM")
    user = object()
    _users.append(user)
    yield _start(path)
    _users.remove(user)
    if not _users:
        _stop()


def _start(path: str) -> Any:
    if not _open:
        from playwright.sync_api import sync_playwright

        _open["playwright"] = sync_playwright().start()
        _open["browser"] = _open["playwright"].chromium.launch(
            executable_path=path, args=list(FLAGS)
        )
    return _open["browser"]


def _stop() -> None:
    _open.pop("browser").close()
    _open.pop("playwright").stop()
