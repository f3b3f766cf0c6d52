"""The same sweep on a local Ray cluster of two workers; a worker that dies costs nothing."""

import builtins
import os
import signal

import pytest

from tests.train.tiny import config
from vla.errors import ArgumentError
from vla.train import Store, Wanted, run_sweep, train
from vla.train.ray_engine import RayEngine


def test_without_ray_the_message_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **kwargs):
        if name == "ray":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ArgumentError, match=r"pip install 'vla\[ray\]'"):
        RayEngine("cpu")


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray", reason="Ray isn't installed: pip install 'vla[ray]'")
    engine = RayEngine("cpu", cpus=2)
    engine._connect()
    yield engine
    ray.shutdown()


@pytest.mark.filterwarnings("default")
def test_a_cluster_does_the_sweep_and_outlives_a_killed_worker(cluster, tmp_path, monkeypatch):
    from vla.train import ray_engine

    mark = tmp_path / "killed"
    real = ray_engine._do_batch

    def dies_once(configs, device, jobs):
        if '"seed":2' in configs[0] and not mark.exists():
            mark.write_text("")
            os.kill(os.getpid(), signal.SIGKILL)
        return real(configs, device, jobs)

    monkeypatch.setattr(ray_engine, "_do_batch", dies_once)
    items = [Wanted(config(seed=seed), f"run {seed}") for seed in range(4)]
    with Store(tmp_path / "s") as store:
        summary = run_sweep(items, store, engine=cluster)
        assert (summary.done, summary.failed) == (4, 0)
        assert mark.exists()
        for row in store.rows():
            assert row.result.curve == train(row.config).curve
        assert run_sweep(items, store, engine=cluster).skipped == 4
