"""How fast each app answers, in a real browser: ``python -m vla.bench.app``.

Prints for every app of the laboratory, as median and 95th percentile: the time from opening its
page to the first picture (server and browser warm), and the time from turning its main control to
the repainted page (browser → Python → browser → paint). ``--json FILE`` keeps the record,
``--shots FOLDER`` takes the pictures of the README and of the front page instead. The server runs
in a process of its own on this machine. Chromium is taken from ``--chromium``, ``$VLA_CHROMIUM``
or the path.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np

from vla import lab, provenance
from vla.bench import stepper
from vla.scene import Scene

SCRIPT = Path(__file__).with_name("page.js").read_text(encoding="utf-8")
CANVAS, PLOTLY = 150, 300
"""Milliseconds that a change may take at the median, by what draws it."""
FIRST = 5000
"""Milliseconds to the first picture, warm."""
VISITS = 3


class Case(NamedTuple):
    """One measurement: an app's scene, and the key of the control that is turned."""

    slug: str
    scene: str
    query: Mapping[str, str]
    key: str | None = None
    """``None``: the first slider that moves, else the first list."""


@dataclass(frozen=True)
class Reading:
    """What was measured of a case, in milliseconds."""

    app: str
    scene: str
    control: str
    drawn_by: str
    wanted_ms: int
    median_ms: float
    p95_ms: float
    turns: int
    first_picture_ms: float
    visits: int


_FOUR = ("linear", "delta", "vla", "rls")
CASES = (
    Case("step", "first scene: 3 rules, words, d=16", {}, "similarity"),
    Case(
        "step", "4 rules, random keys, n=32, d=16",
        Scene(kind="gaussian", n=32, lanes=_FOUR).to_query(), "lambda0",
    ),
    Case(
        "step", "4 rules, random keys, n=128, d=32",
        Scene(kind="gaussian", n=128, d=32, lanes=_FOUR).to_query(), "lambda0",
    ),
    Case("whitening", "first scene", {}, "lambda0"),
    Case("stability", "first scene: 4 rules, T=2000, d=32", {}, "lambda0"),
    Case("ablations", "first scene", {}, "gain"),
    Case("sweeps", "first scene", {}, "experiment"),
    Case("kernels", "first scene", {}, "pass"),
    Case("blame", "first scene", {}, "seed"),
    Case("claims", "first scene", {}, "verdict"),
)  # fmt: skip
"""Apps without a case of their own are measured on the scene on which they open."""


def cases(apps: Sequence[lab.App]) -> list[Case]:
    """What is measured of these apps: :data:`CASES`, and the opening scene of any other."""
    listed = []
    for app in apps:
        own = [case for case in CASES if case.slug == app.slug]
        listed += own or [Case(app.slug, "first scene", {})]
    return listed


@contextmanager
def context(chromium: str, **options: Any) -> Iterator[Any]:
    """A browser context at 1280×720 whose pages know ``page.js``, in a browser of its own."""
    from playwright.sync_api import sync_playwright

    size = {"viewport": {"width": 1280, "height": 720}, **options}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=stepper._chromium(chromium), args=list(stepper.FLAGS)
        )
        made = browser.new_context(**size)
        made.add_init_script(SCRIPT)
        made.set_default_timeout(60_000)
        yield made
        browser.close()


def visit(made: Any, address: str, case: Case) -> tuple[Any, float]:
    """A page on the case's scene, and the ms from opening it to its first picture."""
    page = made.new_page()
    page.goto(f"{address}{case.slug}/?{urlencode(case.query)}", wait_until="commit")
    return page, float(page.evaluate("window.vlaPage.first()"))


def measure(made: Any, address: str, case: Case, repeats: int) -> Reading:
    """Open the scene a few times, then turn its control. Raises ``RuntimeError`` if none answers.

    The first visit and the first two turns only warm up.
    """
    firsts = []
    for _ in range(VISITS):
        page, _ = visit(made, address, case)
        page.close()
        page, first = visit(made, address, case)
        firsts.append(first)
        page.evaluate("window.vlaPage.settled()")
        if len(firsts) < VISITS:
            page.close()
    key = case.key or page.evaluate("window.vlaPage.turn()")
    times = [_turn(page, case, key, at) for at in np.linspace(0.2, 0.8, repeats + 2)][2:]
    drawn_by = "plotly" if page.evaluate("window.vlaPage.plotly()") else "canvas"
    page.close()
    return Reading(
        app=case.slug, scene=case.scene, control=key, drawn_by=drawn_by,
        wanted_ms=PLOTLY if drawn_by == "plotly" else CANVAS,
        median_ms=round(statistics.median(times), 1),
        p95_ms=round(float(np.percentile(times, 95)), 1), turns=len(times),
        first_picture_ms=round(statistics.median(firsts), 1), visits=VISITS,
    )  # fmt: skip


def _turn(page: Any, case: Case, key: str, at: float) -> float:
    time = page.evaluate("([key, at]) => window.vlaPage.repaint(key, at)", [key, float(at)])
    if time is None:
        raise RuntimeError(f"{case.slug}: turning {key} repainted nothing")
    return float(time)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or take the pictures."""
    options = _parser().parse_args(arguments)
    apps = [app for app in lab.find_apps() if not options.only or app.slug in options.only]
    with lab.running() as address:
        if options.shots:
            from vla.bench import shots

            shots.take(address, apps, options.shots, options.chromium)
            return
        head = _head()
        _say(head)
        with context(options.chromium) as made:
            readings = [
                _print(measure(made, address, case, options.repeats)) for case in cases(apps)
            ]
    if options.json:
        record = {**head, "readings": [asdict(reading) for reading in readings]}
        options.json.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m vla.bench.app", description=__doc__)
    parser.add_argument("--repeats", type=int, default=30, help="turns per scene (default 30)")
    parser.add_argument("--only", nargs="+", metavar="APP", help="these apps: step, stability, …")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the record in this file")
    parser.add_argument("--chromium", default="", help="path of the browser")
    parser.add_argument(
        "--shots", type=Path, metavar="FOLDER",
        help="take the README's pictures into this folder and the front page's, measure nothing",
    )  # fmt: skip
    return parser


def _head() -> dict[str, Any]:
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return {
        "what": "apps",
        "date": datetime.date.today().isoformat(),
        "device": provenance.device_name("cpu"),
        "cores": os.cpu_count(),
        "load": round(load, 2),
        "versions": provenance.versions(),
        "commit": provenance.commit(),
        "browser": "headless Chromium without GPU, 1280×720",
    }


def _say(head: Mapping[str, Any]) -> None:
    print(f"vla {head['versions']['vla']} at {head['commit'] or 'no checkout'}, {head['browser']}")
    print(
        f"{head['device']}, {head['cores']} cores, load {head['load']:.2f} "
        "(times count only when it is low)\n"
    )
    print(f"{'app: scene':<48}{'control':<12}{'median':>9}{'p95':>9}{'wanted':>9}{'first':>9}  ms")


def _print(reading: Reading) -> Reading:
    scene = f"{reading.app}: {reading.scene}"
    slow = reading.median_ms > reading.wanted_ms or reading.first_picture_ms > FIRST
    print(
        f"{scene[:47]:<48}{reading.control:<12}{reading.median_ms:>9.0f}{reading.p95_ms:>9.0f}"
        f"{reading.wanted_ms:>9}{reading.first_picture_ms:>9.0f}{'  over' if slow else ''}",
        flush=True,
    )
    return reading


if __name__ == "__main__":
    main()
