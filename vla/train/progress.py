"""A sweep's progress: one line that is rewritten on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from typing import TextIO

from vla.train.loop import Progress
from vla.train.result import DONE, RunResult

QUIET_SECONDS = 15.0
"""Between lines when the output is no terminal."""


class ProgressBar:
    """Steps done, the runs under way with their accuracy, and the time left."""

    def __init__(self, total_steps: int, total_runs: int, out: TextIO | None = None) -> None:
        self.out = sys.stderr if out is None else out
        self.total_steps, self.total_runs = total_steps, total_runs
        self.done_steps = self.done_runs = 0
        self.started = time.monotonic()
        self._shown = -math.inf
        self._width = 0

    def grow(self, steps: int, runs: int) -> None:
        """More was asked for after the start."""
        self.total_steps += steps
        self.total_runs += runs

    def show(self, active: Mapping[str, Progress]) -> None:
        """Redraw with the runs under way, by name."""
        now = time.monotonic()
        if now - self._shown < (0.1 if self.out.isatty() else QUIET_SECONDS):
            return
        self._shown = now
        self._write(self.line(active), keep=not self.out.isatty())

    def line(self, active: Mapping[str, Progress]) -> str:
        """The line as text."""
        steps = self.done_steps + sum(p.step for p in active.values())
        share = steps / max(1, self.total_steps)
        filled = round(20 * min(1.0, share))
        parts = [
            f"[{'#' * filled}{'.' * (20 - filled)}] {share:4.0%}",
            f"{self.done_runs}/{self.total_runs} runs",
            f"left {clock(self.left(steps))}",
        ]
        known = {name: p for name, p in active.items() if p.step}
        if known:
            name, best = max(known.items(), key=lambda item: item[1].step)
            more = f" (+{len(active) - 1})" if len(active) > 1 else ""
            parts.append(f"{name}: step {best.step}, accuracy {best.accuracy:.3f}{more}")
        return "  ".join(parts)

    def left(self, steps: int) -> float:
        """Seconds left at the speed so far; NaN before the first step."""
        spent = time.monotonic() - self.started
        return spent * (self.total_steps - steps) / steps if steps else math.nan

    def ended(self, name: str, result: RunResult, steps: int) -> None:
        """One run has ended: say how."""
        self.done_runs += 1
        self.done_steps += steps
        if result.status == DONE:
            accuracy = result.evaluation["test"]["accuracy"]
            tail = f"accuracy {accuracy:.3f}"
        else:
            tail = f"{result.status}: {result.note}" if result.note else result.status
        self.say(f"{name}: {tail} ({result.duration:.1f} s)")

    def say(self, text: str) -> None:
        """A line that stays."""
        self._write(text, keep=True)

    def close(self) -> None:
        """Leave the line clean."""
        if self._width:
            self._write("", keep=False)

    def _write(self, text: str, *, keep: bool) -> None:
        if not self.out.isatty():
            print(text, file=self.out, flush=True)
            return
        padded = text.ljust(self._width)
        self._width = 0 if keep else len(text)
        print(f"\r{padded}", end="\n" if keep else "", file=self.out, flush=True)


class Silent(ProgressBar):
    """No output at all: for libraries, apps and tests."""

    def __init__(self) -> None:
        super().__init__(0, 0)

    def _write(self, text: str, *, keep: bool) -> None:
        pass


def clock(seconds: float) -> str:
    """``1:02:03``, ``4:05`` or ``?``."""
    if not math.isfinite(seconds):
        return "?"
    minutes, secs = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{secs:02}" if hours else f"{minutes}:{secs:02}"
