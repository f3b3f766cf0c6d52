"""Sweeps: each run once, whatever is killed, interrupted or broken meanwhile."""

import io
import math
import os
import random
import signal
import time
import warnings

import pytest
import torch

from tests.train.tiny import config, model
from vla.errors import ArgumentError
from vla.train import LocalEngine, RunConfig, Store, StoreError, Wanted, run_sweep, train
from vla.train import sweep as sweeps
from vla.train.loop import Progress, Trainer
from vla.train.progress import ProgressBar, Silent, clock
from vla.train.result import RunResult


def wanted(count: int = 4, **changes) -> list[Wanted]:
    return [Wanted(config(seed=seed, **changes), f"run {seed}") for seed in range(count)]


def test_a_sweep_does_each_run_and_then_skips_it(tmp_path, monkeypatch):
    items = wanted()
    with Store(tmp_path / "s") as store:
        first = run_sweep(items, store, preset="p", budget="smoke")
        assert (first.wanted, first.done, first.skipped) == (4, 4, 0)
        monkeypatch.setattr(sweeps, "new_trainer", None)
        again = run_sweep(items, store, preset="p", budget="smoke")
        assert (again.done, again.skipped) == (4, 4)
        for row in store.rows(preset="p"):
            alone = train(row.config)
            assert row.result.curve == alone.curve
            assert row.result.evaluation == alone.evaluation


def test_a_run_asked_for_twice_is_done_once(tmp_path):
    with Store(tmp_path / "s") as store:
        assert run_sweep(wanted(2) + wanted(2), store).wanted == 2


def test_bad_configs_stop_the_sweep_before_any_work(tmp_path):
    misfit = Wanted(config(model=model(vocab=5)))
    with Store(tmp_path / "s") as store:
        with pytest.raises(ArgumentError, match=r"model\.vocab"):
            run_sweep([*wanted(2), misfit], store)
        assert store.rows() == []


class Fails(Trainer):
    """Goes wrong in the middle, as its seed says."""

    def enqueue(self, steps: int) -> None:
        if self.config.seed == 1 and self.queued:
            with torch.no_grad():
                next(self.model.parameters()).fill_(math.nan)
        if self.config.seed == 2:
            raise RuntimeError("CUDA out of memory\nand a long story")
        if self.config.seed == 3:
            raise KeyboardInterrupt
        super().enqueue(steps)


def failing(config: RunConfig, device: torch.device) -> Trainer:
    return Fails(config, device)


def test_nan_and_failures_stop_that_run_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "new_trainer", failing)
    items = [Wanted(config(seed=seed, steps=30), str(seed)) for seed in (0, 1, 2, 4)]
    with Store(tmp_path / "s") as store:
        summary = run_sweep(items, store)
        assert (summary.done, summary.nan, summary.failed) == (2, 1, 1)
        rows = {row.config.seed: row for row in store.rows()}
        assert rows[1].status == "nan"
        assert rows[1].result.step == 11
        assert rows[2].result.note == "RuntimeError: CUDA out of memory"
        assert math.isnan(rows[1].accuracy())


def test_ctrl_c_keeps_what_is_done_and_gives_the_rest_back(tmp_path, monkeypatch):
    monkeypatch.setattr(sweeps, "new_trainer", failing)
    items = [Wanted(config(seed=seed), str(seed)) for seed in (0, 3, 4)]
    with Store(tmp_path / "s") as store:
        summary = run_sweep(items, store)
        assert summary.interrupted
        assert "goes on from here" in str(summary)
        status = {row.config.seed: row.status for row in store.rows()}
        assert status == {0: "done", 3: "cancelled", 4: "queued"}
        monkeypatch.undo()
        assert run_sweep(items, store).done == 3


def test_ctrl_c_between_claim_and_start_gives_the_run_back(tmp_path, monkeypatch):
    def interrupted(*_: object) -> Trainer:
        raise KeyboardInterrupt

    monkeypatch.setattr(sweeps, "new_trainer", interrupted)
    with Store(tmp_path / "s") as store:
        assert run_sweep(wanted(2), store).interrupted
        assert [row.status for row in store.rows()] == ["cancelled", "queued"]


def test_a_full_disk_ends_the_sweep_with_the_reason(tmp_path):
    with Store(tmp_path / "s") as store:
        store.add(wanted(3))
        pages = store._connection().execute("PRAGMA page_count").fetchone()[0]

        class Fills(Silent):
            def ended(self, *_: object) -> None:
                store._connection().execute(f"PRAGMA max_page_count = {pages}")

        with pytest.raises(StoreError, match="the disk is full"):
            run_sweep(wanted(20), store, bar=Fills())
        store._connection().execute("PRAGMA max_page_count = 100000")
        done = len(store.rows(status="done"))
        assert done >= 1
        assert run_sweep(wanted(20), store).done == 20
        assert store.problems() == []


def test_an_adaptive_sweep_asks_for_more_as_it_learns(tmp_path):
    def source(rows):
        more = [Wanted(config(seed=100 + len(rows)), "more")] if len(rows) == 2 else []
        kept = [Wanted(row.config, row.label) for row in rows[2:]]
        return [*wanted(2), *kept, *more]

    with Store(tmp_path / "s") as store:
        summary = run_sweep(source, store, preset="p")
        assert summary.done == 3
        assert [row.label for row in store.rows(preset="p")] == ["run 0", "run 1", "more"]


def in_child(path, items: list[Wanted], lease: float = 60.0) -> int:
    """Sweep in a forked process; its id."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    code = 1
    try:
        torch.set_num_threads(1)
        with Store(path, lease=lease) as store:
            code = 0 if run_sweep(items, store).done == len(items) else 2
    finally:
        os._exit(code)


def reap(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def finished(path) -> dict[str, str]:
    with Store(path) as store:
        return {row.key: row.result.to_json() for row in store.rows(status="done")}


def test_kill_9_at_random_moments_loses_and_doubles_nothing(tmp_path):
    draw, path, items = random.Random(7), tmp_path / "s", wanted(12, steps=30)
    before: dict[str, str] = {}
    kills = 0
    while len(before) < len(items) and kills < 60:
        child = in_child(path, items)
        time.sleep(draw.uniform(0.005, 0.25))
        os.kill(child, signal.SIGKILL)
        kills += reap(child) == -signal.SIGKILL
        now = finished(path)
        # What was recorded stays as it was: no run is done a second time.
        assert before.items() <= now.items()
        before = now
    assert kills >= 3
    assert reap(in_child(path, items)) == 0
    with Store(path) as store:
        rows = store.rows()
        assert {row.key for row in rows} == {item.config.key for item in items}
        assert {row.status for row in rows} == {"done"}
        assert store.problems() == []
        for row in rows[:3]:
            assert row.result.curve == train(row.config).curve


def test_two_processes_share_a_sweep_and_each_ends_with_all_of_it(tmp_path):
    path, items = tmp_path / "s", wanted(10, steps=30)
    children = [in_child(path, items) for _ in range(2)]
    assert [reap(child) for child in children] == [0, 0]
    with Store(path) as store:
        rows = store.rows()
        assert len(rows) == 10
        assert {row.status for row in rows} == {"done"}
        assert {row.attempts for row in rows} == {1}


def test_a_process_takes_over_what_another_drops(tmp_path):
    path, items = tmp_path / "s", wanted(3, steps=2000)
    child = in_child(path, items)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        if path.exists():
            with Store(path) as store:
                if any(row.status == "running" for row in store.rows()):
                    break
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    reap(child)
    with Store(path) as store:
        (cut,) = store.rows(status="running")
        assert store.claim(cut.key)
        assert {row.attempts for row in store.rows(keys=[cut.key])} == {2}


def test_a_result_after_a_lost_lease_is_not_recorded(tmp_path, monkeypatch):
    """As if this process had been stopped for longer than its lease."""
    path, items = tmp_path / "s", wanted(1)
    with Store(path) as other:

        class Paused(Trainer):
            def enqueue(self, steps: int) -> None:
                other._connection().execute("UPDATE runs SET heartbeat = 0")
                if self.queued == 0:
                    assert other.claim(self.config.key)
                    assert other.finish(self.config.key, RunResult(status="done", note="theirs"))
                super().enqueue(steps)

        monkeypatch.setattr(sweeps, "new_trainer", Paused)
        with Store(path) as mine:
            run_sweep(items, mine)
        (row,) = other.rows()
        assert row.result.note == "theirs"


def test_engines_check_their_arguments():
    for bad in ({"jobs": 0}, {"block": -1}, {"threads": 0}, {"jobs": 2}):
        with pytest.raises(ArgumentError):
            LocalEngine("cpu", **bad)


def test_the_bar_tells_share_accuracy_and_time_left():
    bar = ProgressBar(100, 2, io.StringIO())
    bar.started -= 10.0
    line = bar.line({"vla": Progress(25, 1.0, 0.5)})
    assert " 25%" in line
    assert "0/2 runs" in line
    assert "accuracy 0.500" in line
    assert "left 0:30" in line
    assert clock(math.nan) == "?"
    assert clock(3723) == "1:02:03"


def test_a_terminal_gets_one_line_rewritten_and_a_file_gets_lines():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    done = RunResult(status="done", evaluation={"test": {"accuracy": 0.25}})
    for out in (Terminal(), io.StringIO()):
        bar = ProgressBar(10, 1, out)
        bar.show({"a": Progress(5, 1.0, 0.5)})
        bar.ended("a", done, 10)
        bar.close()
        assert ("\r" in out.getvalue()) == out.isatty()
        assert "a: accuracy 0.250" in out.getvalue()
