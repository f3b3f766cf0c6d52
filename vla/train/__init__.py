"""Training: one run from one config, sweeps of many, and the store that remembers them.

from vla.train import RunConfig, Store, Wanted, run_sweep, train

result = train(RunConfig(model, task))                     # one run, here and now
with Store("runs.sqlite") as store:                        # many, once each
    run_sweep([Wanted(RunConfig(model, task, seed=s)) for s in (42, 123, 999)], store)
"""

from vla.train.config import RunConfig
from vla.train.errors import StoreDamaged, StoreError
from vla.train.loop import train
from vla.train.recover import recover
from vla.train.result import RunResult, RunRow
from vla.train.store import Store, Wanted
from vla.train.sweep import LocalEngine, run_sweep
from vla.train.transfer import export, import_rows, load_rows

__all__ = [
    "LocalEngine",
    "RunConfig",
    "RunResult",
    "RunRow",
    "Store",
    "StoreDamaged",
    "StoreError",
    "Wanted",
    "export",
    "import_rows",
    "load_rows",
    "recover",
    "run_sweep",
    "train",
]
