"""A handful of runs with a store of their own that is thrown away: what a cluster's worker does."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from vla.train.config import RunConfig
from vla.train.result import RunResult
from vla.train.store import Store, Wanted
from vla.train.sweep import LocalEngine, run_sweep


def do_batch(configs: Sequence[str], device: str, jobs: int) -> list[RunResult]:
    """The results of these configs (as canonical JSON), in their order."""
    wanted = [Wanted(RunConfig.from_json(text)) for text in configs]
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "batch.sqlite") as store:
        run_sweep(wanted, store, engine=LocalEngine(device, jobs=jobs))
        found = {row.key: row.result for row in store.rows()}
    return [found[item.config.key] for item in wanted]
