"""``vla sweep`` and ``vla runs``, as commands."""

import os
import signal
import subprocess
import sys
import time

import pytest

from vla import cli
from vla.nn import checkpoint
from vla.train import Store, load_rows

TINY = [
    "sweep", "one", "--task", "copy_authors", "--set", "task.length=6", "--set", "task.vocab=8",
    "--set", "model.width=8", "--set", "model.heads=1", "--set", "model.layers=1",
    "--set", "model.ffn=0", "--set", "batch=4", "--set", "eval_batches=2",
    "--model", "linear,delta", "--steps", "12", "--lr", "1e-2", "--seed", "1,2", "--device", "cpu",
]  # fmt: skip


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("VLA_STORE", raising=False)
    return tmp_path


def run(capsys, *words: str) -> tuple[int, str, str]:
    code = cli.main(list(words))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.usefixtures("here")
def test_a_sweep_then_all_that_runs_can_do(capsys):
    code, out, err = run(capsys, *TINY, "--export", "first.parquet")
    assert code == 0
    assert "4 runs wanted: 4 done" in out
    assert "4 runs written" in out
    assert "accuracy" in err

    code, out, _ = run(capsys, *TINY, "--quiet")
    assert "4 were stored already" in out

    code, out, _ = run(capsys, "runs")
    assert out.count("copy_authors") == 4
    _, out, _ = run(capsys, "runs", "--where", "seed=1", "--where", "model.mixer=delta")
    assert "1 runs" in out
    _, out, _ = run(capsys, "runs", "--preset", "one", "--compare", "lr")
    assert "0.01" in out
    assert "±" in out
    _, out, _ = run(capsys, "runs", "--preset", "one", "--sort", "test.accuracy")
    assert "4 runs" in out
    key = load_rows("first.parquet")[0].key
    _, out, _ = run(capsys, "runs", "--show", key[:12])
    assert key in out
    assert "commit" in out

    code, out, _ = run(capsys, "runs", "--store", "other.sqlite", "--import", "first.parquet")
    assert "4 runs taken in" in out
    code, out, _ = run(capsys, "runs", "--store", "other.sqlite", "--import", "first.parquet")
    assert "0 runs taken in, 4 were there already" in out
    _, out, _ = run(capsys, "runs", "--store", "other.sqlite", "--check")
    assert "no damage. 4 done" in out
    code, out, _ = run(
        capsys, "runs", "--store", "other.sqlite", "--preset", "one", "--export", "b.parquet"
    )
    assert code == 0
    assert [r.result for r in load_rows("b.parquet")] == [
        r.result for r in load_rows("first.parquet")
    ]
    _, out, _ = run(capsys, "runs", "--file", "b.parquet", "--where", "seed=2")
    assert "2 runs" in out

    code, out, _ = run(capsys, "runs", "--requeue", "done", "--where", "seed=2")
    assert "2 runs will be done again" in out
    _, out, _ = run(capsys, *TINY, "--quiet")
    assert "2 were stored already" in out
    _, out, _ = run(capsys, "runs", "--recover", "new.sqlite")
    assert "4 runs saved" in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["sweep", "figure99"], "preset: got 'figure99', wanted one of 'figure5'"),
        (["sweep", "figure5", "--budget", "huge"], "budget"),
        (["sweep", "figure5", "--device", "tpu"], "device"),
        (["sweep", "figure5", "--device", "cpu", "--jobs", "2"], "jobs"),
        (["sweep", "figure5", "--engine", "slurm"], "engine"),
        (["sweep", "figure5", "--export", "no/such/folder.parquet"], "folder that exists"),
        (["sweep", "figure5", "--weights", "no/such"], "weights"),
        (["sweep", "figure5", "--store", "no/such/s.sqlite"], "--store"),
        (["sweep", "one", "--lr", "0"], "lr"),
        (["sweep", "one", "--lr", "fast"], "lr"),
        (["sweep", "one", "--seed", "1.5"], "seed"),
        (["sweep", "one", "--model", "gpt"], "model"),
        (["sweep", "one", "--task", "chess"], "task"),
        (["sweep", "one", "--set", "task.pairs=200"], "pairs"),
        (["sweep", "one", "--set", "task.length=10"], "length"),
        (["sweep", "one", "--set", "model.heads=3"], "heads"),
        (["sweep", "one", "--set", "model.colour=red"], "colour"),
        (["sweep", "one", "--set", "momentum=1"], "momentum"),
        (["sweep", "one", "--set", "width"], "NAME=VALUE"),
        (["runs"], "no run store here"),
        (["runs", "--file", "absent.parquet"], "absent.parquet"),
    ],
)
def test_bad_input_is_one_line_before_any_work(here, capsys, words, said):
    code, _, err = run(capsys, *words)
    assert code == 2
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert list(here.iterdir()) == [] or words[0] == "sweep"
    assert not any(p.suffix == ".parquet" for p in here.iterdir())


def test_a_file_that_is_no_parquet_is_named(here, capsys):
    (here / "x.parquet").write_text("no parquet")
    code, _, err = run(capsys, "runs", "--file", "x.parquet")
    assert code == 2
    assert "x.parquet" in err


def test_a_damaged_store_is_one_line(here, capsys):
    (here / "vla-runs.sqlite").write_bytes(b"\xa5" * 20_000)
    code, _, err = run(capsys, "runs")
    assert code == 2
    assert "--recover" in err


def test_lists_and_plans(here, capsys):
    code, out, _ = run(capsys, "sweep")
    assert code == 0
    assert "figure5" in out
    assert "full 60" in out
    code, out, _ = run(capsys, "sweep", "table7", "--plan", "--device", "cpu")
    assert code == 0
    assert "table7 smoke: 8 runs" in out
    assert list(here.iterdir()) == []


def test_weights_are_saved(here, capsys):
    (here / "w").mkdir()
    code, _, _ = run(capsys, *TINY, "--weights", "w", "--quiet")
    assert code == 0
    files = sorted((here / "w").iterdir())
    assert len(files) == 4
    model, notes = checkpoint.load(files[0])
    with Store("vla-runs.sqlite") as store:
        (row,) = store.rows(keys=[notes["key"]])
    assert notes["evaluation"] == row.result.evaluation
    assert model.config == row.config.model


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "vla.cli", *words]


def wait_for(path, status: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists():
            with Store(path) as store:
                if store.rows(status=status):
                    return
        time.sleep(0.05)
    raise AssertionError(f"no run was ever {status}")


LONG = [*TINY[:-2], "--device", "cpu", "--quiet"]
LONG[LONG.index("--steps") + 1] = "200"


def _as_in_a_terminal() -> None:
    """Tests that a shell runs in the background would hand on that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_command_that_is_ended_goes_on_where_it_was(here, capsys, how):
    child = subprocess.Popen(command(*LONG), stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "OMP_NUM_THREADS": "1"},
                             preexec_fn=_as_in_a_terminal)  # fmt: skip
    store = here / "vla-runs.sqlite"
    wait_for(store, "running")
    child.send_signal(how)
    out, _ = child.communicate(timeout=60)
    if how == signal.SIGKILL:
        assert child.returncode == -signal.SIGKILL
    else:
        assert child.returncode == 130
        assert "goes on from here" in out
        with Store(store) as opened:
            assert not opened.rows(status="running")
    with Store(store) as opened:
        done = len(opened.rows(status="done"))
    code, out, _ = run(capsys, *LONG)
    assert code == 0
    assert f"4 runs wanted: 4 done, 0 not finite, 0 failed; {done} were stored already" in out
