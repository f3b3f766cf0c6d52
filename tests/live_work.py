"""Work for the tests of ``vla.scene.live``: a process has to be able to import it."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from vla.errors import ArgumentError


def count(report: Any, to: int = 5, pause: float = 0.0) -> dict[str, int]:
    """Counts, and tells everything that can be told."""
    print("printed by the work, which is no message")
    os.write(1, b"and neither is this\n")
    for i in range(to):
        report.share(i / to, f"at {i}")
        report.point("squares", i, i * i)
        time.sleep(pause)
    report.say("All numbers were counted.")
    return {"counted": to}


def forever(report: Any, file: str = "") -> None:
    """Goes on until it is stopped, and says in a file that it could tidy up."""
    try:
        while True:
            report.share(0.5, "on and on")
            time.sleep(0.01)
    finally:
        if file:
            Path(file).write_text("tidied up")


def stubborn(report: Any) -> None:
    """Doesn't mind Ctrl-C."""
    while True:
        try:
            report.share(0.1, "no")
            time.sleep(0.05)
        except KeyboardInterrupt:
            continue


def bad_argument(_: Any) -> None:
    """An error for people."""
    raise ArgumentError("steps", -1, "a number of steps")


def bug(_: Any) -> None:
    """An error for nobody."""
    raise KeyError("<b>mixer</b>")


def silent_death(_: Any) -> None:
    """Ends without a word to the server."""
    print("out of memory, say", file=sys.stderr, flush=True)
    os._exit(7)


def unspeakable(_: Any) -> object:
    """A result that JSON has no form for."""
    return object()
