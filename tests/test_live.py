"""Jobs behind a page: told, stopped, failed, found again; and the widget that shows them."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path += [str(Path(__file__).parent), str(Path(__file__).parent / "train")]

import live_work
import tiny

from vla.errors import ArgumentError
from vla.scene import live, training
from vla.scene.live import CANCELLED, DONE, FAILED, RUNNING, Job, Live, running, start
from vla.train import Store

pytestmark = pytest.mark.timeout(60)
BOTH = pytest.mark.parametrize("where", ["process", "thread"])


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a job, and so no process, behind."""
    yield
    left = [job for job in live._jobs if job.status == RUNNING]
    for job in left:
        job.cancel()
    assert all(job.wait(30) for job in left)


def until(condition: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@BOTH
def test_a_job_tells_share_curve_words_and_result(where: str) -> None:
    job = start(live_work.count, "Counting", where=where, to=4)
    assert job.wait(30)
    assert (job.status, job.result, job.error) == (DONE, {"counted": 4}, "")
    assert job.curves == {"squares": [(0, 0), (1, 1), (2, 4), (3, 9)]}
    assert job.said == ["All numbers were counted."]
    assert (job.title, job.done) == ("Counting", 1.0)
    assert job.seconds > 0


@BOTH
def test_a_stopped_job_could_tidy_up(where: str, tmp_path: Path) -> None:
    job = start(live_work.forever, where=where, file=str(tmp_path / "end"))
    until(lambda: job.news)
    assert job.status == RUNNING
    job.cancel()
    assert job.words == "stopping …"
    assert job.wait(20)
    assert job.status == CANCELLED
    assert (tmp_path / "end").read_text() == "tidied up"
    job.cancel()
    assert job.status == CANCELLED


def test_a_process_that_is_stopped_while_it_starts() -> None:
    job = start(live_work.forever)
    job.cancel()
    assert job.wait(20)
    assert job.status == CANCELLED


def test_a_process_that_does_not_stop_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "GRACE", 0.3)
    job = start(live_work.stubborn)
    until(lambda: job.news)
    job.cancel()
    assert job.wait(20)
    assert job.status == CANCELLED


@BOTH
def test_faults_are_told_in_words(where: str) -> None:
    meant, bug = (start(work, where=where) for work in (live_work.bad_argument, live_work.bug))
    assert meant.wait(30)
    assert bug.wait(30)
    assert (meant.status, bug.status) == (FAILED, FAILED)
    assert meant.error == str(ArgumentError("steps", -1, "a number of steps"))
    assert bug.error == "KeyError: '<b>mixer</b>'"


def test_a_process_that_dies_or_cannot_tell_its_result() -> None:
    dead, mute = start(live_work.silent_death), start(live_work.unspeakable)
    assert dead.wait(30)
    assert mute.wait(30)
    assert dead.status == mute.status == FAILED
    assert "ended with code 7" in dead.error
    assert "out of memory, say" in dead.error
    assert "can't be told" in mute.error


@pytest.mark.parametrize(
    ("work", "more"),
    [(lambda _: None, {}), (live_work.count, {"to": {1}}), (live_work.count, {"to": float("nan")})],
)
def test_what_a_process_cannot_be_given(work: Any, more: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError):
        start(work, **more)
    assert Live().start(work, **more).status == FAILED


def test_another_place_to_work_is_refused() -> None:
    with pytest.raises(ValueError, match="'process', 'thread'"):
        start(live_work.count, where="cloud")


def test_a_key_means_one_job_for_all_pages() -> None:
    first = start(live_work.forever, where="thread", key="bench")
    assert start(live_work.forever, where="thread", key="bench") is first
    assert start(live_work.forever, where="thread", key="other") is not first
    assert running("bench") is first
    assert Live(key="bench").job is first
    first.cancel()
    assert first.wait(10)
    assert running("bench") is None
    assert Live(key="bench").job is None


def test_two_jobs_at_once_do_not_mix() -> None:
    jobs = [start(live_work.count, where="thread", to=n, pause=0.002) for n in (10, 20)]
    assert all(job.wait(20) for job in jobs)
    assert [len(job.curves["squares"]) for job in jobs] == [10, 20]


def test_a_server_that_ends_takes_its_jobs_along(tmp_path: Path) -> None:
    """Killed outright, too: the pipe to the work closes with it."""
    script = (
        "import sys, time; from vla.scene.live import start; import live_work; "
        "job = start(live_work.forever, file=sys.argv[1]); "
        "exec('while not job.news: time.sleep(.01)'); print('on', flush=True); "
        "time.sleep(60 if sys.argv[2] == 'kill' else 0)"
    )
    for how in ("end", "kill"):
        file = tmp_path / how
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(file), how],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent,
        )  # fmt: skip
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        if how == "kill":
            process.kill()
        process.communicate(timeout=20)
        until(lambda file=file: file.exists() and file.read_text() == "tidied up")


def test_long_curves_stay_small_and_keep_both_ends() -> None:
    job = Job()
    for i in range(5000):
        job._take({"point": ["loss", i, i]})
    points = job.curves["loss"]
    assert len(points) <= live.MOST_POINTS
    assert (points[0], points[-1]) == ((0, 0), (4999, 4999))
    drawn = live._thinned(points)
    assert len(drawn) <= live.DRAWN_POINTS + 1
    assert drawn[-1] == [4999, 4999]
    assert live._thinned([(0, float("nan"))]) == [[0, None]]


class Page:
    """What the browser would do."""

    def __init__(self, **more: Any) -> None:
        self.ends: list[Job] = []
        self.live = Live(ended=self.ends.append, **more)
        self.tick = 0

    def ask(self, wish: str = "") -> None:
        self.tick += 1
        self.live.react({"tick": self.tick, "wish": wish})
        assert self.live.ticked == self.tick


def test_the_widget_shows_a_job_from_start_to_end() -> None:
    page = Page(colours={"squares": "#009E73"})
    assert page.live.status == ""
    page.live.start(live_work.count, "Counting", where="thread", to=30, pause=0.005)
    assert (page.live.status, page.live.running) == (RUNNING, True)
    until(lambda: page.ask() or not page.live.running)
    assert (page.live.status, page.live.done, page.live.title) == (DONE, 1.0, "Counting")
    assert page.live.said == ["All numbers were counted."]
    (curve,) = page.live.curves
    assert (curve["name"], curve["colour"]) == ("squares", "#009E73")
    assert curve["points"][-1] == [29, 841]
    page.ask()
    assert [job.status for job in page.ends] == [DONE]
    page.live.clear()
    assert page.live.status == ""


def test_stop_on_one_page_leaves_the_other_alone() -> None:
    here, there = Page(), Page()
    for page in (here, there):
        page.live.start(live_work.forever, where="thread")
    assert here.live.start(live_work.count, where="thread") is here.live.job
    here.ask("stop")
    until(lambda: here.ask() or not here.live.running)
    there.ask()
    assert (here.live.status, there.live.status) == (CANCELLED, RUNNING)
    assert (len(here.ends), len(there.ends)) == (1, 0)


def test_two_pages_follow_one_job() -> None:
    here, told = Page(), []
    job = here.live.start(live_work.forever, where="thread", key="shared")
    there = Page(key="shared", news=lambda job: told.append(job.status))
    assert told == []
    assert (there.live.job, there.live.status) == (job, RUNNING)
    there.ask("stop")
    for page in (here, there):
        until(lambda page=page: page.ask() or not page.live.running)
        assert page.live.status == CANCELLED
        assert page.ends == [job]
    assert told[-1] == CANCELLED


def test_a_page_that_never_asks_again_costs_nothing() -> None:
    """Closed: the job ends by itself, and no thread stays."""
    before = threading.active_count()
    job = Page().live.start(live_work.count, where="thread")
    assert job.wait(10)
    until(lambda: threading.active_count() <= before)
    assert job.status == DONE


def test_a_sweep_is_stopped_and_resumed(tmp_path: Path) -> None:
    """The store is whole after the stop, and the second call does only what is left."""
    config = tiny.config(steps=400)
    more = {
        "configs": [config.with_(seed=seed).canonical for seed in (1, 2)],
        "labels": ["linear", "linear"], "store": str(tmp_path / "runs.sqlite"), "device": "cpu",
        "preset": "mine", "budget": "smoke",
    }  # fmt: skip
    job = start(training.runs, **more)
    until(lambda: any("accuracy" in line for line in job.said) or job.status != RUNNING)
    job.cancel()
    assert job.wait(20)
    with Store(tmp_path / "runs.sqlite") as store:
        assert store.problems() == []
        before = {row.key: row.status for row in store.rows(preset="mine", budget="smoke")}
    assert "running" not in before.values()
    again = start(training.runs, **more)
    assert again.wait(30)
    assert (again.status, again.result["done"]) == (DONE, 2)
    assert again.result["skipped"] == list(before.values()).count("done") >= 1
    with Store(tmp_path / "runs.sqlite") as store:
        rows = store.rows(preset="mine", budget="smoke")
    curve = again.curves or job.curves
    assert {row.status for row in rows} == {"done"}
    assert all(0 <= y <= 1 for points in curve.values() for _, y in points)


def test_a_sweep_with_a_broken_store_says_so(tmp_path: Path) -> None:
    (tmp_path / "runs.sqlite").write_bytes(
        b"not a database, but long enough to be read as one" * 99
    )
    job = start(
        training.sweep, where="thread", preset="figure5", budget="smoke", device="cpu",
        store=str(tmp_path / "runs.sqlite"),
    )  # fmt: skip
    assert job.wait(20)
    assert job.status == FAILED
    assert "damaged" in job.error
