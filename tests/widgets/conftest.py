"""Traces to pack and pages to open, each made once."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from browser_fixtures import browser

import vla.rules
from vla.tokens import make_stream
from vla.trace import Trace, record
from vla.widgets import save_html

__all__ = ["browser"]

TEXT = "cat: meow, dog: woof, cow: moo, cat: purr, duck: quack, ? cat, ? dog, ? cow"
HOSTILE = "<script>hacked = 1</script>: </script><img src=x onerror=hacked=1>, cat: =1+1, ? cat"


@pytest.fixture(scope="session")
def words() -> Trace:
    """Two lanes, unequal widths of nothing, one key overwritten, one rule that errs."""
    return record(["vla", "delta"], make_stream("words", text=TEXT, similarity=0.6, d=8))


@pytest.fixture(scope="session")
def four() -> Trace:
    """A rule without a matrix, one without A, two of one rule; keys and values of unequal width."""
    rules = ["softmax", "gated_delta", "vla", vla.rules.make("vla", gain="rls")]
    return record(rules, make_stream("gaussian", n=30, d=12, d_v=7, queries=6))


@pytest.fixture(scope="session")
def long() -> Trace:
    """Matrices at 21 of 601 steps."""
    return record(["vla", "rls"], make_stream("gaussian", n=580, d=8, d_v=8, queries=20), keep=21)


@pytest.fixture(scope="session")
def hostile() -> Trace:
    return record(["vla"], make_stream("words", text=HOSTILE, d=8))


@pytest.fixture
def visit(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a trace as a saved page, offline; no request and no console error may come of it."""
    contexts, complaints = [], []

    def open_page(trace: Trace, width: int = 1280, height: int = 720, **options: Any) -> Any:
        look = options.pop("look", "light")
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=look, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        watch(page, complaints)
        page.goto(save_html(trace, tmp_path / "page.html", **options).as_uri())
        page.get_by_test_id("stepper").wait_for()
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not complaints


def watch(page: Any, complaints: list[str]) -> None:
    """Note every error, warning and request beyond the file itself."""
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda m: complaints.append(m.text) if _is_complaint(m) else None)
    page.on("request", lambda r: complaints.append(r.url) if not _own(r.url) else None)


def _own(url: str) -> bool:
    return url.startswith(("file:", "data:", "blob:"))


def _is_complaint(message: Any) -> bool:
    """The advice about reading pixels often is for the test that does so."""
    return message.type != "log" and "willReadFrequently" not in message.text
