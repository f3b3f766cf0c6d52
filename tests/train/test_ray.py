"""The same sweep on a local Ray cluster of two workers; a worker that dies costs nothing."""

import builtins
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vla.errors import ArgumentError
from vla.train import Store, train
from vla.train.ray_engine import RayEngine

ROOT = Path(__file__).resolve().parents[2]


def test_without_ray_the_message_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "ray":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ArgumentError, match=r"pip install 'vla\[ray\]'"):
        RayEngine("cpu")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason="Ray isn't installed: pip install 'vla[ray]'"
)
def test_a_cluster_does_the_sweep_and_outlives_a_killed_worker(tmp_path):
    path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "tests.train.ray_sweep", str(tmp_path / "s")],
        cwd=ROOT, capture_output=True, text=True, timeout=240, check=False,
        env={
            **os.environ, "PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1",
            "RAY_raylet_start_wait_time_s": "120",
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first, second = [line for line in done.stdout.splitlines() if "runs wanted" in line]
    assert "4 done, 0 not finite, 0 failed; 0 were stored already" in first
    assert "4 were stored already" in second
    assert (tmp_path / "killed").exists()
    with Store(tmp_path / "s") as store:
        rows = store.rows(preset="ray")
    assert {row.config.seed for row in rows} == {0, 1, 2, 3}
    for row in rows:
        assert row.result.curve == train(row.config).curve
