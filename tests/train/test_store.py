"""The store: one row a run, claimed by one, ended by its holder alone, whole or clearly not."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from tests.train.tiny import TASK, config
from vla.errors import ArgumentError
from vla.train import RunResult, Store, StoreDamaged, StoreError, Wanted, recover
from vla.train import errors as store_errors
from vla.train.owner import is_gone, machine, new_owner

RESULT = RunResult(
    status="done",
    step=12,
    curve={"step": [6, 12], "loss": [2.0, 1.0], "accuracy": [0.1, 0.5]},
    evaluation={"test": {"accuracy": 0.5, "loss": 1.0, "count": 8}},
)


def wanted(count: int = 3) -> list[Wanted]:
    return [Wanted(config(seed=seed), f"run {seed}") for seed in range(count)]


def filled(path, count: int = 40) -> list[str]:
    """A store of finished runs, closed; their keys."""
    items = wanted(count)
    with Store(path) as store:
        store.add(items, "p", "smoke")
        for config_, _ in items:
            assert store.claim(config_.key)
            assert store.finish(config_.key, RESULT)
    return [item.config.key for item in items]


def test_a_run_is_stored_once(tmp_path):
    with Store(tmp_path / "s") as store:
        assert store.add(wanted(), "p", "smoke") == 3
        assert store.add(wanted(), "q", "full") == 0
        assert len(store.rows()) == 3
        assert [row.label for row in store.rows(preset="q")] == ["run 0", "run 1", "run 2"]
        assert store.rows(preset="q", budget="smoke") == []


def test_only_one_claims_and_only_the_holder_ends(tmp_path):
    key = wanted()[0].config.key
    with Store(tmp_path / "s") as mine, Store(tmp_path / "s") as other:
        mine.add(wanted())
        assert mine.claim(key)
        assert not other.claim(key)
        assert not mine.claim(key)
        assert not other.finish(key, RESULT)
        assert mine.finish(key, RESULT)
        assert not mine.finish(key, RESULT)
        assert not other.claim(key)
        (row,) = other.rows(status="done")
        assert row.result == RESULT
        assert row.attempts == 1


def test_a_run_given_back_can_be_claimed_again(tmp_path):
    key = wanted()[0].config.key
    with Store(tmp_path / "s") as mine, Store(tmp_path / "s") as other:
        mine.add(wanted())
        assert mine.claim(key)
        assert mine.release(key)
        assert other.claim(key)
        assert not mine.release(key)


def test_a_lease_that_ran_out_can_be_taken_and_its_result_is_refused(tmp_path):
    key = wanted()[0].config.key
    with Store(tmp_path / "s", lease=0.05) as slow, Store(tmp_path / "s", lease=0.05) as other:
        slow.add(wanted())
        assert slow.claim(key)
        time.sleep(0.1)
        assert other.claim(key)
        assert not slow.finish(key, RESULT)
        assert other.finish(key, RESULT)


def test_a_heartbeat_keeps_the_lease(tmp_path):
    key = wanted()[0].config.key
    with Store(tmp_path / "s", lease=1.0) as mine, Store(tmp_path / "s", lease=1.0) as other:
        mine.add(wanted())
        assert mine.claim(key)
        with mine.heartbeat():
            time.sleep(1.5)
            assert not other.claim(key)
        assert mine.finish(key, RESULT)


def test_a_dead_owner_is_known_at_once():
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    assert is_gone(f"{machine()}|{dead.pid}|123|x")
    assert is_gone(f"{machine()}|{os.getpid()}|123|a pid that was given out again")
    assert not is_gone(new_owner())
    assert not is_gone(f"elsewhere|{dead.pid}|123|x")


def test_nothing_is_written_if_a_transaction_breaks(tmp_path):
    class Bad:
        key = canonical = None

    with Store(tmp_path / "s") as store:
        with pytest.raises(TypeError):
            store.add([*wanted(2), Wanted(Bad())])  # type: ignore[arg-type]
        assert store.rows() == []
        assert store.add(wanted()) == 3


def test_requeue_asks_for_failed_runs_again(tmp_path):
    key = wanted()[0].config.key
    with Store(tmp_path / "s") as store:
        store.add(wanted())
        store.claim(key)
        store.finish(key, RunResult(status="failed", note="out of memory"))
        assert not store.claim(key)
        assert store.requeue(["failed"]) == 1
        assert store.claim(key)


def test_a_missing_or_foreign_file_is_named(tmp_path):
    with pytest.raises(StoreError, match="no run store here"):
        Store(tmp_path / "absent", create=False)
    with pytest.raises(StoreError, match="--store"):
        Store(tmp_path / "no folder" / "s")
    foreign = sqlite3.connect(tmp_path / "foreign")
    foreign.execute("CREATE TABLE t (x)")
    foreign.close()
    with pytest.raises(StoreError, match="no run store"):
        Store(tmp_path / "foreign")
    (tmp_path / "text").write_text("not a database at all, but long enough to be read as one " * 99)
    with pytest.raises(StoreDamaged, match="--recover"):
        Store(tmp_path / "text")


def test_a_later_version_is_refused(tmp_path):
    with Store(tmp_path / "s"):
        pass
    raw = sqlite3.connect(tmp_path / "s")
    raw.execute("PRAGMA user_version = 99")
    raw.close()
    with pytest.raises(StoreError, match="later version"):
        Store(tmp_path / "s")


def test_a_full_disk_says_so_and_loses_nothing(tmp_path):
    filled(tmp_path / "s", 5)
    with Store(tmp_path / "s") as store:
        db = store._connection()
        pages = db.execute("PRAGMA page_count").fetchone()[0]
        db.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(StoreError, match="the disk is full"):
            store.add([Wanted(config(seed=s)) for s in range(100, 200)])
        db.execute("PRAGMA max_page_count = 100000")
        assert len(store.rows()) == 5
        assert store.problems() == []
        assert store.add([Wanted(config(seed=9))]) == 1


def test_a_file_size_limit_says_so_and_loses_nothing(tmp_path):
    """A real failing write, as a quota or a full file system gives it, in a child."""
    filled(tmp_path / "s", 5)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
            with Store(tmp_path / "s") as store:
                store.add([Wanted(config(seed=s)) for s in range(100, 300)])
        except StoreError as error:
            code = 0 if "Make room" in str(error) or "Free some" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with Store(tmp_path / "s") as store:
        assert len(store.rows(status="done")) == 5
        assert store.problems() == []


@pytest.mark.parametrize(
    "code", ["SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_READONLY_DIRECTORY"]
)
def test_a_read_only_folder_says_so(tmp_path, code):
    error = sqlite3.OperationalError("attempt to write a readonly database")
    error.sqlite_errorname = code
    with (
        pytest.raises(StoreError, match="can't be written") as caught,
        store_errors.explained(tmp_path),
    ):
        raise error
    assert "--store" in str(caught.value)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_the_right_to_write_says_so(tmp_path):
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    with pytest.raises(StoreError, match="can't be written"):
        Store(folder / "s")


def overwrite(path, at: int, count: int) -> None:
    with open(path, "r+b") as file:
        file.seek(at)
        file.write(b"\xa5" * count)


def test_a_damaged_page_is_seen_and_the_other_runs_are_saved(tmp_path):
    keys = filled(tmp_path / "s")
    size = (tmp_path / "s").stat().st_size
    overwrite(tmp_path / "s", size // 2 // 4096 * 4096, 4096)
    with pytest.raises(StoreDamaged, match="--recover"):
        Store(tmp_path / "s").rows()
    kept, lost = recover(tmp_path / "s", tmp_path / "new")
    assert 0 < kept < len(keys)
    assert kept + lost == len(keys)
    with Store(tmp_path / "new") as store:
        rows = store.rows(preset="p")
        assert len(rows) == kept
        assert {row.key for row in rows} <= set(keys)
        assert all(row.result == RESULT for row in rows)
        assert store.problems() == []


def test_a_destroyed_head_loses_no_run(tmp_path):
    keys = filled(tmp_path / "s")
    overwrite(tmp_path / "s", 0, 4096)
    with pytest.raises(StoreDamaged):
        Store(tmp_path / "s")
    assert recover(tmp_path / "s", tmp_path / "new") == (len(keys), 0)
    with Store(tmp_path / "new") as store:
        assert {row.key for row in store.rows(preset="p", status="done")} == set(keys)


def test_damage_inside_a_row_is_seen(tmp_path):
    keys = filled(tmp_path / "s", 5)
    raw = sqlite3.connect(tmp_path / "s")
    raw.execute("UPDATE runs SET result = replace(result, '0.5', '0.9') WHERE id = 2")
    raw.commit()
    raw.close()
    with Store(tmp_path / "s") as store:
        with pytest.raises(StoreDamaged, match=keys[1]):
            store.rows()
        assert len(store.problems()) == 1
    assert recover(tmp_path / "s", tmp_path / "new") == (4, 1)


def test_recovery_refuses_to_overwrite_and_leaves_the_damaged_file_alone(tmp_path):
    filled(tmp_path / "s", 5)
    before = (tmp_path / "s").read_bytes()
    (tmp_path / "there").write_text("mine")
    with pytest.raises(ArgumentError, match="doesn't exist yet"):
        recover(tmp_path / "s", tmp_path / "there")
    with pytest.raises(ArgumentError, match="exists"):
        recover(tmp_path / "absent", tmp_path / "new")
    assert recover(tmp_path / "s", tmp_path / "new") == (5, 0)
    assert (tmp_path / "s").read_bytes() == before


def test_what_is_only_in_the_write_ahead_log_is_recovered(tmp_path):
    with Store(tmp_path / "s") as store:
        store.add(wanted())
        assert (tmp_path / "s-wal").stat().st_size > 0
        assert recover(tmp_path / "s", tmp_path / "new") == (3, 0)


def test_rows_have_fields_by_name(tmp_path):
    filled(tmp_path / "s", 1)
    with Store(tmp_path / "s") as store:
        (row,) = store.rows(preset="p")
    assert row.value("lr") == 1e-2
    assert row.value("task.length") == TASK.length
    assert row.value("model.mixer") == "linear"
    assert row.value("test.accuracy") == row.accuracy() == 0.5
    assert row.value("label") == "run 0"
    assert row.value("task.nonsense") is None
    assert row.value("nonsense") is None
