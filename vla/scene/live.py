"""Long work behind a page: a job in a process or a thread, and the widget that shows it.

A cell that computes for a minute blocks every control of its page. So the work runs elsewhere, the
page asks for news three times a second while there is any, and each answer takes microseconds.

**The work** is a function of a :class:`Report` and keyword arguments that returns its result::

    def train(report, steps, seed):          # at the top of a module, so that a process finds it
        for step in range(steps):
            loss = ...
            report.share(step / steps, f"step {step}")     # the bar; a thread can be stopped here
            report.point("loss", step, loss)               # the live curve
        report.say("The seed was kept.")                   # a sentence that stays
        return {"loss": loss}

**Without a page**: ``job = start(train, steps=100, seed=1)``, then ``job.cancel()`` or
``job.wait()``, and ``job.status``, ``job.result``, ``job.words``, ``job.curves``.

``where="process"`` (the default) is for anything that computes: training, kernels, timings. It
takes about a second to start, leaves the server free, and arguments and result must be JSON values.
``where="thread"`` is for work that waits or takes a few seconds; it can be a closure with any
arguments, and is stopped at its next ``report.share`` or ``report.check``.

**In an app** the session owns one :class:`Live`, and two cells show it::

    session.live = Live(ended=session.trained)    # called with the job, in the page's own thread
    session.live.start(train, "Training DeltaNet", steps=100, seed=1)    # when asked to

    @app.cell
    def _(session):
        live = mo.ui.anywidget(session.live)      # put mo.as_html(live) where it shall be seen
        return (live,)

    @app.cell
    def _(live, session):
        session.live.react(live.value)
        return

It is invisible until something has been started. ``ended`` is the place to read the run store again
and call ``session.changed``; ``news`` (optional) is called at every answer that brought something.

**Cancelling** is one Ctrl-C in the work's process (``KeyboardInterrupt``; a sweep gives its runs
back), and a kill ten seconds later; in a thread, :class:`Cancelled` at the next report. A page
that is closed leaves its job running: what it trains is wanted, and the run store is whole whatever
happens. Another page finds it by ``key``: ``Live(key="sweep")`` shows a job that was started under
this key, and ``start`` with the key of a job that runs follows that one, so that nothing is done
twice. When the server ends, by whatever means, its jobs' processes are told to stop.

**Faults** never raise in the page: ``job.status`` is then ``failed`` and ``job.error`` says why in
a sentence, as it stands for errors that are for people, else with the kind of error before it.

**Training** into the run store is ready made: :mod:`vla.scene.training`.
"""

from __future__ import annotations

import _thread
import atexit
import contextlib
import importlib
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import anywidget
import traitlets

from vla.errors import ArgumentError, require_choice

RUNNING, DONE, FAILED, CANCELLED = "running", "done", "failed", "cancelled"
GRACE = 10.0
"""Seconds from a request to stop until the process is killed."""
MOST_POINTS = 400
"""Points kept of a curve; from then on every second one goes."""
DRAWN_POINTS = 120
DRAWN_CURVES = 8
"""The live picture's limits: the latest curves, thinned."""
HERE = Path(__file__).parent

Curve = list[tuple[float, float]]
Send = Callable[[dict[str, Any]], None]


class Cancelled(BaseException):
    """Raised in a thread's work at a report after it was asked to stop; let it pass."""


class Report:
    """What work tells of itself. All its methods are cheap; call them as often as you like."""

    def __init__(self, send: Send, asked: Callable[[], bool] = lambda: False) -> None:
        self._send, self._asked = send, asked

    def share(self, done: float, words: str = "") -> None:
        """How much is done, 0 to 1, and a few words on what is under way."""
        self.check()
        self._send({"share": min(1.0, max(0.0, float(done))), "words": words})

    def point(self, curve: str, x: float, y: float) -> None:
        """One point more of the named live curve; one that isn't finite leaves a gap."""
        self._send({"point": [curve, float(x), float(y)]})

    def say(self, words: str) -> None:
        """A sentence that stays on the page."""
        self._send({"say": words})

    def check(self) -> None:
        """Raises :class:`Cancelled` in a thread that was asked to stop."""
        if self._asked():
            raise Cancelled


class Job:
    """One piece of work under way, or ended. Made by :func:`start`; safe to read at any time."""

    def __init__(self, title: str = "", key: str = "") -> None:
        self.title, self.key = title, key
        self.status = RUNNING
        self.done = 0.0
        """Share that is done, 0 to 1."""
        self.words = "starting …"
        self.said: list[str] = []
        self.curves: dict[str, Curve] = {}
        self.result: Any = None
        self.error = ""
        """Why, in a sentence, where ``status`` is ``failed``."""
        self.news = 0
        """Counts what it has told."""
        self.started = time.monotonic()
        self.seconds = 0.0
        """How long it took; while it runs, so far as it has told."""
        self._stop = threading.Event()
        self._over = threading.Event()
        self._end: Callable[[], None] = lambda: None

    def cancel(self) -> None:
        """Ask it to stop; ``status`` says when it has. A job that has ended stays as it is."""
        if self.status == RUNNING and not self._stop.is_set():
            self._stop.set()
            self.words = "stopping …"
            self.news += 1
            self._end()

    @property
    def cancelling(self) -> bool:
        """Whether it was asked to stop."""
        return self._stop.is_set()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for its end; whether it has ended."""
        return self._over.wait(seconds)

    def _take(self, told: Mapping[str, Any]) -> None:
        if "point" in told:
            name, x, y = told["point"]
            _grow(self.curves.setdefault(name, []), (x, y))
        elif "share" in told:
            self.done, words = told["share"], told["words"]
            self.words = "stopping …" if self.cancelling else words
        elif "say" in told:
            self.said.append(told["say"])
        self.seconds = time.monotonic() - self.started
        self.news += 1

    def _close(self, told: Mapping[str, Any]) -> None:
        """The end, once: the first to tell it is believed."""
        if self._over.is_set():
            return
        self.seconds = time.monotonic() - self.started
        self.result, self.error = told.get("result"), told.get("error", "")
        self.done = 1.0 if told["end"] == DONE else self.done
        self.words = ""
        self.status = told["end"]
        self.news += 1
        self._over.set()


def start(
    work: Callable[..., Any], title: str = "", *, where: str = "process", key: str = "",
    **arguments: Any,
) -> Job:  # fmt: skip
    """Begin ``work(report, **arguments)`` and return at once.

    ``where`` is ``process`` or ``thread``. With a ``key`` under which a job runs, that one is
    returned instead. Raises ``ValueError`` for another ``where``, and, for a process, for work that
    isn't at the top of a module or arguments that aren't JSON values.
    """
    require_choice("where", where, ("process", "thread"))
    with _lock:
        if key and (known := running(key)):
            return known
        job = Job(title or getattr(work, "__name__", ""), key)
        (_in_process if where == "process" else _in_thread)(job, work, arguments)
        _jobs[:] = [each for each in _jobs if each.status == RUNNING] + [job]
    return job


def running(key: str) -> Job | None:
    """The job that runs under this key in this server, whoever started it."""
    found = (job for job in _jobs if job.key == key and job.status == RUNNING)
    return next(found, None)


_jobs: list[Job] = []
_lock = threading.RLock()


@atexit.register
def _stop_all() -> None:
    """A server that ends takes its jobs along, with time to give back what they hold."""
    left = [job for job in _jobs if job.status == RUNNING]
    for job in left:
        job.cancel()
    for job in left:
        job.wait(GRACE / 2)


def _do(work: Callable[..., Any], report: Report, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Do the work; whatever happens becomes a message."""
    try:
        return {"end": DONE, "result": work(report, **arguments)}
    except (Cancelled, KeyboardInterrupt):
        return {"end": CANCELLED}
    except BaseException as error:
        return {"end": FAILED, "error": plain(error)}


def plain(error: BaseException) -> str:
    """An error in a sentence: as it stands if it is meant for people, else its kind before it."""
    from vla.train.errors import DeviceLost, StoreError

    words = str(error).strip().partition("\n")[0]
    if isinstance(error, ArgumentError | StoreError | DeviceLost):
        return words
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def _in_thread(job: Job, work: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    report = Report(job._take, job._stop.is_set)
    threading.Thread(target=lambda: job._close(_do(work, report, arguments)), daemon=True).start()


def _in_process(job: Job, work: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    """A fresh Python: it shares no lock with the server, and the server's GIL is its own."""
    order = _order(work, arguments)
    faults = tempfile.TemporaryFile()  # noqa: SIM115 - closed by the thread that listens
    process = subprocess.Popen(
        [sys.executable, "-c", "from vla.scene import live; live.child()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=faults, text=True, encoding="utf-8",
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(order + "\n")
        process.stdin.flush()
    job._end = lambda: _interrupt(process)
    threading.Thread(target=_listen, args=(job, process, faults), daemon=True).start()


def _order(work: Callable[..., Any], arguments: Mapping[str, Any]) -> str:
    name = getattr(work, "__qualname__", "")
    if not name.isidentifier() or work.__module__ == "__main__":
        raise ArgumentError("work", work, "a function at the top of a module that can be imported")
    try:
        return json.dumps([work.__module__, name, dict(arguments)], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ArgumentError("arguments", dict(arguments), f"JSON values ({error})") from None


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Closing its input is the child's Ctrl-C; it works when this process dies, too."""
    with contextlib.suppress(OSError, ValueError):
        assert process.stdin is not None
        process.stdin.close()
    timer = threading.Timer(GRACE, process.kill)
    timer.daemon = True
    timer.start()


def _listen(job: Job, process: subprocess.Popen[str], faults: Any) -> None:
    assert process.stdout is not None
    end: dict[str, Any] | None = None
    for line in process.stdout:
        told = json.loads(line)
        if "end" in told:
            end = told
        else:
            job._take(told)
    code = process.wait()
    process.stdout.close()
    with contextlib.suppress(OSError, ValueError):
        assert process.stdin is not None
        process.stdin.close()
    job._close(end or _without_word(job, code, faults))
    faults.close()


def _without_word(job: Job, code: int, faults: Any) -> dict[str, Any]:
    """The process is gone and didn't say why: killed, out of memory, or it couldn't begin."""
    if job.cancelling:
        return {"end": CANCELLED}
    faults.seek(0)
    lines = faults.read().decode(errors="replace").strip().splitlines()
    why = f"ended by signal {-code}" if code < 0 else f"ended with code {code}"
    return {"end": FAILED, "error": f"The process {why} before it was done. {_last(lines)}".strip()}


def _last(lines: Sequence[str]) -> str:
    return lines[-1][:200] if lines else ""


def child() -> None:
    """The other side: do what the first line of the input says, tell it line by line."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    out = _own_output()
    send = _sender(out)
    try:
        module, name, arguments = json.loads(sys.stdin.readline())
        threading.Thread(target=_await_end, daemon=True).start()
        work = getattr(importlib.import_module(module), name)
    except (KeyboardInterrupt, ValueError):
        return
    end = _do(work, Report(send), arguments)
    try:
        send(end)
    except (TypeError, ValueError) as error:
        send({"end": FAILED, "error": f"Its result can't be told: {error}"})


def _own_output() -> TextIO:
    """The pipe to the server; what the work prints goes where its faults go."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return out


def _sender(out: TextIO) -> Send:
    lock = threading.Lock()

    def send(told: dict[str, Any]) -> None:
        line = json.dumps(told)
        with lock, contextlib.suppress(BrokenPipeError):
            out.write(line + "\n")
            out.flush()

    return send


def _await_end() -> None:
    """The server closed the input, or is gone: one Ctrl-C, not more, to let the work tidy up."""
    with contextlib.suppress(OSError, io.UnsupportedOperation):
        while sys.stdin.readline():
            pass
    _thread.interrupt_main()


def _grow(curve: Curve, point: tuple[float, float]) -> None:
    curve.append(point)
    if len(curve) > MOST_POINTS:
        del curve[1:-1:2]


class Live(anywidget.AnyWidget):
    """A job on a page: bar, words, live curves, a button that stops it, and how it ended.

    ``colours`` gives curves their colour by name, as ``#RRGGBB``. See the head of this file.
    """

    _esm = "\n".join((HERE / part).read_text("utf-8") for part in ("form.js", "live.js"))
    _css = HERE / "live.css"

    title = traitlets.Unicode("").tag(sync=True)
    status = traitlets.Unicode("").tag(sync=True)
    """Empty until something was started."""
    done = traitlets.Float(0.0).tag(sync=True)
    words = traitlets.Unicode("").tag(sync=True)
    said = traitlets.List(traitlets.Unicode()).tag(sync=True)
    error = traitlets.Unicode("").tag(sync=True)
    seconds = traitlets.Float(0.0).tag(sync=True)
    curves: Any = traitlets.List().tag(sync=True)
    axes = traitlets.List(traitlets.Unicode(), ["step", "accuracy"]).tag(sync=True)
    """What the live curves show, across and up."""
    tick = traitlets.Int(0).tag(sync=True)
    ticked = traitlets.Int(0).tag(sync=True)
    """The browser counts its questions in ``tick`` and asks again once this has the same value."""
    wish = traitlets.Unicode("").tag(sync=True)

    def __init__(
        self,
        *,
        ended: Callable[[Job], object] = id,
        news: Callable[[Job], object] = id,
        key: str = "",
        colours: Mapping[str, str] | None = None,
        **traits: Any,
    ) -> None:
        super().__init__(**traits)
        self.ended, self.news = ended, news
        self.colours = dict(colours or {})
        self.job: Job | None = None
        self._seen = -1
        self._told_end = True
        if key and (job := running(key)):
            # No call back from here: whoever makes this widget isn't ready to be called.
            self.job, self._told_end = job, False
            self.title, self.status, self.words = job.title, RUNNING, job.words

    @property
    def running(self) -> bool:
        """Whether the page waits for a job to end."""
        return not self._told_end

    def start(self, work: Callable[..., Any], title: str = "", **more: Any) -> Job:
        """As :func:`start`, shown here. While a job of this page runs, that one goes on.

        Work that can't be begun becomes a failed job with its reason.
        """
        if self.running and self.job:
            return self.job
        try:
            job = start(work, title, **more)
        except (ArgumentError, OSError) as error:
            job = Job(title)
            job._close({"end": FAILED, "error": plain(error)})
        self.follow(job)
        return job

    def follow(self, job: Job) -> None:
        """Show this job, started here or by another page."""
        self.job, self._seen, self._told_end = job, -1, False
        self._tell()

    def react(self, told: Mapping[str, Any]) -> None:
        """Take what the page did: asked for news, or pressed Stop."""
        if told["wish"]:
            self.wish = ""
            if self.job:
                self.job.cancel()
        if self.job and told["tick"] != self.ticked:
            self._tell()
        self.ticked = told["tick"]

    def clear(self) -> None:
        """Forget a job that has ended."""
        if not self.running:
            self.job, self.status = None, ""

    def _tell(self) -> None:
        job = self.job
        assert job is not None
        over = job.status != RUNNING
        if job.news == self._seen and not over:
            return
        self._seen = job.news
        with self.hold_sync():
            self.title, self.status, self.done = job.title, job.status, job.done
            self.words, self.error, self.said = job.words, job.error, list(job.said)
            self.seconds = job.seconds
            self.curves = self._drawn(job)
        self.news(job)
        if over and not self._told_end:
            self._told_end = True
            self.ended(job)

    def _drawn(self, job: Job) -> list[dict[str, Any]]:
        latest = list(job.curves.items())[-DRAWN_CURVES:]
        return [
            {"name": name, "colour": self._colour(name), "points": _thinned(points)}
            for name, points in latest
        ]

    def _colour(self, name: str) -> str:
        """That of the name; a curve called ``name (2)`` has the same."""
        return self.colours.get(name) or self.colours.get(name.rpartition(" (")[0], "")


def _thinned(points: Curve) -> list[list[float | None]]:
    """At most ``DRAWN_POINTS``, the last among them; JSON knows no NaN."""
    step = max(1, -(-len(points) // DRAWN_POINTS))
    kept = [*points[:-1:step], points[-1]] if points else []
    return [[x, y if abs(y) < float("inf") else None] for x, y in kept]
