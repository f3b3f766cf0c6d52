"""How fast the stepping app answers, in a real browser: ``python -m vla.bench.app``.

Prints, as median and 95th percentile: the time from opening the page to the first picture, and the
time from turning a control to the repainted picture (browser → Python → trace → browser → paint).
``--shots FOLDER`` takes the README's pictures of the app instead. The server runs in a process of
its own on this machine. Chromium is taken from ``--chromium``, ``$VLA_CHROMIUM`` or the path.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import torch

import vla
from vla import lab, provenance
from vla.bench import stepper
from vla.scene import Scene

FOUR = ("linear", "delta", "vla", "rls")
SCENES = {
    "first scene: 3 rules, words, d=16": (Scene(), "similarity"),
    "4 rules, random keys, n=32, d=16": (Scene(kind="gaussian", n=32, lanes=FOUR), "lambda0"),
    "4 rules, random keys, n=128, d=32": (
        Scene(kind="gaussian", n=128, d=32, lanes=FOUR),
        "lambda0",
    ),
}
"""What is measured: the scene, and the key of the knob that is turned."""

TARGET = 150
"""Milliseconds that a control change may take to repaint, at the median."""

_FIND = """const find = (query, within = document) => {
    const found = within.querySelector(query);
    if (found) return found;
    for (const node of within.querySelectorAll("*")) {
        const inner = node.shadowRoot && find(query, node.shadowRoot);
        if (inner) return inner;
    }
    return null;
};"""
_TURN = f"""([key, at]) => new Promise(done => {{
    {_FIND}
    const {{stepper}} = find(".vla-stepper");
    const range = find(`[data-testid=range][data-key=${{key}}]`);
    const before = stepper.trace;
    const [low, high] = [Number(range.min), Number(range.max)];
    const start = performance.now();
    range.value = low + (high - low) * at;
    range.dispatchEvent(new Event("input"));
    const look = () => {{
        if (stepper.trace === before) requestAnimationFrame(look);
        else requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
    }};
    look();
}})"""


def turns(page: Any, key: str, repeats: int) -> list[float]:
    """Milliseconds from each turn of a knob to the picture, the first two left out."""
    places = np.linspace(0.2, 0.8, repeats + 2)
    times = []
    for place in places:
        times.append(page.evaluate(_TURN, [key, float(place)]))
        page.wait_for_timeout(150)
    return times[2:]


@contextmanager
def opened(
    address: str, scene: Scene, chromium: str, **options: Any
) -> Iterator[tuple[Any, float]]:
    """A page of the app on this scene in a browser of its own, and the ms to its picture."""
    from playwright.sync_api import sync_playwright

    size = {"viewport": {"width": 1280, "height": 720}, **options}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=stepper._chromium(chromium), args=list(stepper.FLAGS)
        )
        page = browser.new_page(**size)
        start = time.perf_counter()
        page.goto(f"{address}step/?{urlencode(scene.to_query())}")
        page.get_by_test_id("panel").wait_for()
        page.locator("[data-testid=stepper] canvas").first.wait_for()
        yield page, 1000 * (time.perf_counter() - start)
        browser.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or take the pictures."""
    parser = argparse.ArgumentParser(prog="python -m vla.bench.app", description=__doc__)
    parser.add_argument("--repeats", type=int, default=30, help="turns per scene (default 30)")
    parser.add_argument("--chromium", default="", help="path of the browser")
    parser.add_argument(
        "--shots", type=Path, help="take pictures into this folder, measure nothing"
    )
    options = parser.parse_args(arguments)
    with lab.running() as address:
        if options.shots:
            take_shots(address, options.shots, options.chromium)
            return
        _head()
        for name, (scene, key) in SCENES.items():
            with opened(address, scene, options.chromium) as (page, first):
                _print(name, first, turns(page, key, options.repeats))


def take_shots(address: str, folder: Path, chromium: str) -> None:
    """``step.png`` and ``step-dark.png`` of the first scene, at its last step."""
    folder.mkdir(parents=True, exist_ok=True)
    scene = Scene(step=len(Scene().stream()))
    for name, look in (("step.png", "light"), ("step-dark.png", "dark")):
        options = {"color_scheme": look, "device_scale_factor": 1.5}
        with opened(address, scene, chromium, **options) as (page, _):
            page.wait_for_timeout(800)
            page.screenshot(path=folder / name)
            print(folder / name)


def _head() -> None:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    commit = provenance.commit() or "no checkout"
    print(f"vla {vla.__version__} at {commit}, torch {torch.__version__}, CPU")
    print(
        f"Python {platform.python_version()}, headless Chromium without GPU at 1280×720, "
        f"{os.cpu_count()} cores, load {load:.2f} (times count only when it is low)"
    )


def _print(name: str, first: float, times: list[float]) -> None:
    middle, late = statistics.median(times), float(np.percentile(times, 95))
    print(f"\n{name}")
    print(f"  open to first picture  {first:7.0f} ms")
    print(
        f"  control to repaint     median {middle:6.1f} ms   p95 {late:6.1f} ms   "
        f"({len(times)} turns, wanted ≤ {TARGET} ms)",
        flush=True,
    )


if __name__ == "__main__":
    main()
