"""The same sweep on a Ray cluster: workers do the runs, this process keeps the store.

Workers never touch the store, so it may lie on a disk that they can't see. A worker that is lost
has its runs done again elsewhere by Ray; one that is lost too often has its runs given back, and
the sweep hands them out afresh.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import torch

from vla.errors import ArgumentError, require_integer
from vla.train.progress import ProgressBar
from vla.train.result import FAILED, RunResult
from vla.train.store import Store, Wanted

RETRIES = 5
"""Times that Ray does a task again whose worker was lost."""

GIVE_UP = 3
"""Times that a run is handed out afresh after that, before it counts as failed."""


class RayEngine:
    """Runs on the workers of a Ray cluster. See :class:`vla.train.sweep.Engine`.

    On CPU workers each run is one task on one core. On GPU workers a task is ``jobs`` runs that
    share one GPU, as they do without Ray. ``address=None`` starts a cluster on this machine (with
    ``cpus`` cores) unless one is connected. Raises :class:`~vla.errors.ArgumentError` if Ray isn't
    installed.
    """

    def __init__(
        self,
        device: str = "cpu",
        *,
        jobs: int | None = None,
        address: str | None = None,
        cpus: int | None = None,
    ) -> None:
        self.ray = _import_ray()
        self.device = "cpu" if device == "auto" else str(device)
        if self.device.split(":")[0] not in ("cpu", "cuda"):
            raise ArgumentError("device", device, "'cpu' or 'cuda'")
        self.jobs = jobs if jobs is not None else (16 if self.device == "cuda" else 1)
        require_integer("jobs", self.jobs, low=1)
        self.address, self.cpus = address, cpus
        self.lost: dict[str, int] = {}

    def run(self, todo: Sequence[Wanted], store: Store, bar: ProgressBar) -> None:
        """Claim, hand out, collect."""
        self._connect()
        held = {item.config.key: item for item in todo}
        waiting: dict[Any, list[Wanted]] = {}
        try:
            claimed = [item for item in todo if store.claim(item.config.key)]
            held = {item.config.key: item for item in claimed}
            waiting.update(self._submit(claimed))
            while waiting:
                ready, _ = self.ray.wait(list(waiting), timeout=1.0)
                for task in ready:
                    self._take(task, waiting.pop(task), held, store, bar)
                bar.show({})
        finally:
            for task in waiting:
                self.ray.cancel(task, force=True)
            for key in held:
                store.release(key)

    def _connect(self) -> None:
        if self.ray.is_initialized():
            return
        try:
            self.ray.init(
                address=self.address, num_cpus=self.cpus, include_dashboard=False,
                logging_level="error", log_to_driver=False,
            )  # fmt: skip
        except Exception as error:
            # Ray raises plain exceptions of every kind here; none of them is about a run.
            where = self.address or "on this machine"
            wanted = f"a Ray cluster that can be reached or started ({error})"
            raise ArgumentError("ray-address", where, wanted) from error

    def _submit(self, claimed: Sequence[Wanted]) -> list[tuple[Any, list[Wanted]]]:
        on_gpu = self.device.startswith("cuda")
        size = self.jobs if on_gpu else 1
        batches = [list(claimed[i : i + size]) for i in range(0, len(claimed), size)]
        work = self.ray.remote(_do_batch).options(
            num_cpus=1, num_gpus=1 if on_gpu else 0, max_retries=RETRIES
        )
        return [
            (work.remote([w.config.canonical for w in batch], self.device, self.jobs), batch)
            for batch in batches
        ]

    def _take(self, task: Any, batch: list[Wanted], held: dict[str, Wanted], store: Store,
              bar: ProgressBar) -> None:  # fmt: skip
        """Record a task's results, or give its runs back if every worker that tried was lost."""
        try:
            results = self.ray.get(task)
        except self.ray.exceptions.RayError as error:
            results = [self._after_loss(item, error) for item in batch]
        for item, plain in zip(batch, results, strict=True):
            held.pop(item.config.key)
            if plain is None:
                store.release(item.config.key)
                bar.say(f"{item.label}: its worker was lost; the run is handed out again")
                continue
            result = RunResult.from_dict(plain)
            store.finish(item.config.key, result)
            bar.ended(item.label or str(item.config), result, item.config.steps)

    def _after_loss(self, item: Wanted, error: Exception) -> dict[str, Any] | None:
        times = self.lost[item.config.key] = self.lost.get(item.config.key, 0) + 1
        if times < GIVE_UP:
            return None
        note = f"its worker was lost {times} times ({type(error).__name__})"
        return asdict(RunResult(status=FAILED, note=note))


def _do_batch(configs: list[str], device: str, jobs: int) -> list[dict[str, Any]]:
    """On a worker: do these runs here, as a store-less sweep would, and return their results."""
    from vla.train.batch import do_batch

    torch.set_num_threads(1)
    return [asdict(result) for result in do_batch(configs, device, jobs)]


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        wanted = "Ray, for --engine ray"
        raise ArgumentError("engine", "ray", wanted, "pip install 'vla[ray]'") from error
    return ray
