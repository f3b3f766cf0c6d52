"""Run by test_ray.py as a process of its own: Ray leaves processes and warnings behind."""

import os
import signal
import sys
from pathlib import Path

from tests.train.tiny import config
from vla.train import Store, Wanted, ray_engine, run_sweep

MARK = Path(sys.argv[1]).with_name("killed")
REAL = ray_engine._do_batch


def dies_once(configs: list[str], device: str, jobs: int) -> list:
    """The worker with seed 2 kills itself the first time, as a lost machine would be lost."""
    if '"seed":2' in configs[0] and not MARK.exists():
        MARK.write_text("")
        os.kill(os.getpid(), signal.SIGKILL)
    return REAL(configs, device, jobs)


if __name__ == "__main__":
    ray_engine._do_batch = dies_once
    items = [Wanted(config(seed=seed), f"run {seed}") for seed in range(4)]
    engine = ray_engine.RayEngine("cpu", cpus=2)
    with Store(sys.argv[1]) as store:
        print(run_sweep(items, store, preset="ray", engine=engine))
        print(run_sweep(items, store, preset="ray", engine=engine))
