"""How fast the stepper is, in a real browser: ``python -m vla.bench.stepper``.

Prints, as median and 95th percentile: the time from new data to the repainted picture (decode,
draw, next frame shown), the time from a press of ``→`` to the next frame, and the frames a second
while it plays with a step in every frame. The page is a saved one, opened with the network off.
Chromium is taken from ``--chromium``, ``$VLA_CHROMIUM`` or the path.
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vla.errors import ArgumentError
from vla.tokens import EXAMPLE_PAIRS, make_stream
from vla.trace import Trace, record
from vla.widgets import save_html
from vla.widgets.pack import blob

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")
TWO = ("vla", "delta")
FOUR = ("softmax", "linear", "delta", "vla")

_LOAD = """bytes => new Promise(done => {
    const {stepper} = document.querySelector(".vla-stepper");
    const data = Uint8Array.from(atob(bytes), c => c.charCodeAt(0));
    requestAnimationFrame(() => {
        const start = performance.now();
        stepper.load(data);
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
    });
})"""
_STEP = """() => new Promise(done => {
    const {stepper} = document.querySelector(".vla-stepper");
    const start = performance.now();
    stepper.jump(stepper.state.step === stepper.trace.last ? 0 : stepper.state.step + 1);
    requestAnimationFrame(() => requestAnimationFrame(() => done(performance.now() - start)));
})"""
_PLAY = """seconds => new Promise(done => {
    const {stepper} = document.querySelector(".vla-stepper");
    const gaps = [];
    let before = performance.now();
    const end = before + 1000 * seconds;
    const frame = now => {
        if (gaps.length || now > before) gaps.push(now - before);
        before = now;
        stepper.jump(stepper.state.step === stepper.trace.last ? 0 : stepper.state.step + 1);
        if (now < end) requestAnimationFrame(frame); else done(gaps.slice(2));
    };
    requestAnimationFrame(frame);
})"""


def scenes() -> dict[str, tuple[Trace, Trace]]:
    """What is measured: a trace and the one that takes its place when a control changes."""
    words = [make_stream("words", text=EXAMPLE_PAIRS, similarity=s) for s in (0.3, 0.6)]
    random = [make_stream("gaussian", n=190, d=32, d_v=32, queries=10, seed=s) for s in (7, 8)]
    return {
        "2 rules, words, d=16": _pair(TWO, words),
        "4 rules, words, d=16": _pair(FOUR, words),
        "4 rules, T=200, d=32": _pair(FOUR, random),
    }


def _pair(rules: Sequence[str], streams: Sequence[Any]) -> tuple[Trace, Trace]:
    first, second = (record(rules, stream) for stream in streams)
    return first, second


def measure(page: Any, traces: tuple[Trace, Trace], repeats: int) -> dict[str, list[float]]:
    """Milliseconds of every repeat, by what was timed."""
    texts = [base64.b64encode(blob(trace)).decode() for trace in traces]
    page.evaluate(_LOAD, texts[1])
    return {
        "new data to repaint": [page.evaluate(_LOAD, texts[i % 2]) for i in range(repeats)],
        "step to repaint": [page.evaluate(_STEP) for _ in range(repeats)],
        "frame while playing": page.evaluate(_PLAY, 3),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m vla.bench.stepper", description=__doc__)
    parser.add_argument("--repeats", type=int, default=40, help="timings per line (default 40)")
    parser.add_argument("--chromium", default="", help="path of the browser")
    options = parser.parse_args(arguments)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=_chromium(options.chromium), args=list(FLAGS)
        )
        _head(browser.version)
        for name, traces in scenes().items():
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            page.goto(save_html(traces[0], Path(folder) / "page.html").as_uri())
            _print(name, len(blob(traces[0])), measure(page, traces, options.repeats))
            page.close()
        browser.close()


def _chromium(given: str) -> str:
    names = ("chromium", "chromium-browser", "google-chrome")
    found = (
        given or os.environ.get("VLA_CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    )
    if not found:
        raise ArgumentError("chromium", found, "a Chromium", "Install one or set VLA_CHROMIUM.")
    return found


def _head(version: str) -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    print(f"Chromium {version} headless, no GPU, 1280×720, {os.cpu_count()} cores, load {load:.2f}")
    print("(times count only when the load is low)")


def _print(scene: str, size: int, times: dict[str, list[float]]) -> None:
    print(f"\n{scene} ({size / 1024:.0f} KiB)")
    for name, values in times.items():
        middle, late = statistics.median(values), float(np.percentile(values, 95))
        rate = f"  = {1000 / middle:.0f} frames a second" if name.startswith("frame") else ""
        print(f"  {name:<22} median {middle:6.1f} ms   p95 {late:6.1f} ms{rate}")


if __name__ == "__main__":
    main()
