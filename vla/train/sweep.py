"""Many runs: skip what is stored, share the device, keep what is done whatever happens."""

from __future__ import annotations

import dataclasses
import itertools
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

import torch

from vla.errors import ArgumentError, require_integer
from vla.train.errors import DeviceLost, StoreError
from vla.train.loop import Trainer, checked_device, new_trainer
from vla.train.progress import ProgressBar, Silent
from vla.train.result import DONE, FAILED, FINISHED, NAN, RunResult, RunRow
from vla.train.store import Store, Wanted, each_once

POLL_SECONDS = 0.5
"""Between looks at runs that another process is doing."""

CUDA_JOBS = 16
"""Most runs on one GPU at once, unless told otherwise; memory may allow fewer."""

Source = Callable[[Sequence[RunRow]], list[Wanted]]
"""The runs wanted, given those recorded so far: an adaptive sweep asks for more as it learns."""

Keep = Callable[[Wanted, Trainer], None]
"""Called with every run that ended well, while its weights are still there."""


class Engine(Protocol):
    """How runs are done: here, or on a cluster."""

    def run(self, todo: Sequence[Wanted], store: Store, bar: ProgressBar) -> None:
        """Claim and do those runs of ``todo`` that nobody holds, and record each in ``store``."""


@dataclass(frozen=True)
class Summary:
    """What became of a sweep."""

    wanted: int
    skipped: int
    """Stored already when the sweep began."""
    done: int
    nan: int
    failed: int
    seconds: float
    interrupted: bool = False

    def __str__(self) -> str:
        text = (
            f"{self.wanted} runs wanted: {self.done} done, {self.nan} not finite, "
            f"{self.failed} failed; {self.skipped} were stored already. {self.seconds:.1f} s."
        )
        return text + (" Interrupted: the same command goes on from here." * self.interrupted)


def run_sweep(
    wanted: Iterable[Wanted] | Source,
    store: Store,
    *,
    preset: str = "",
    budget: str = "",
    engine: Engine | None = None,
    bar: ProgressBar | None = None,
) -> Summary:
    """Do every run of ``wanted`` that isn't stored yet; Ctrl-C keeps what is done.

    Every config is checked before any work starts: raises :class:`~vla.errors.ArgumentError` for
    the first that doesn't fit, :class:`~vla.train.errors.StoreError` if the store fails,
    :class:`~vla.train.errors.DeviceLost` if the GPU does.
    """
    source: Source = wanted if callable(wanted) else _fixed(list(wanted))
    sweep = _Sweep(source, store, preset, budget, engine or LocalEngine(), bar or Silent())
    return sweep.run()


def _fixed(items: list[Wanted]) -> Source:
    return lambda _rows: items


class _Sweep:
    def __init__(self, source: Source, store: Store, preset: str, budget: str,
                 engine: Engine, bar: ProgressBar) -> None:  # fmt: skip
        self.source, self.store, self.engine, self.bar = source, store, engine, bar
        self.preset, self.budget = preset, budget
        self.items: list[Wanted] = []
        self.skipped = 0
        self.started = time.monotonic()

    def run(self) -> Summary:
        interrupted = False
        try:
            with self.store.heartbeat():
                while self._ask():
                    self._do_all()
        except KeyboardInterrupt:
            interrupted = True
        finally:
            self.bar.close()
        return self._summary(interrupted)

    def _ask(self) -> bool:
        """Queue what is wanted by now; whether anything of it is new."""
        known = {item.config.key for item in self.items}
        rows = self.store.rows(keys=known) if known else []
        labels = {item.config.key: item.label for item in self.items}
        self.items = _checked(self.source([_named(row, labels) for row in rows]))
        new = [item for item in self.items if item.config.key not in known]
        stored = self.store.statuses(item.config.key for item in new)
        self.store.add(new, self.preset, self.budget)
        fresh = [item for item in new if stored.get(item.config.key) not in FINISHED]
        self.skipped += len(new) - len(fresh)
        self.bar.grow(sum(item.config.steps for item in fresh), len(fresh))
        return bool(new)

    def _do_all(self) -> None:
        """Do what nobody holds, then wait for others' runs and take over those that are dropped."""
        while todo := self._unfinished():
            before = time.monotonic()
            self.engine.run(todo, self.store, self.bar)
            if self._unfinished() and time.monotonic() - before < POLL_SECONDS:
                time.sleep(POLL_SECONDS)

    def _unfinished(self) -> list[Wanted]:
        status = self.store.statuses(item.config.key for item in self.items)
        return [item for item in self.items if status.get(item.config.key) not in FINISHED]

    def _summary(self, interrupted: bool) -> Summary:
        status = list(self.store.statuses(item.config.key for item in self.items).values())
        return Summary(
            wanted=len(self.items),
            skipped=self.skipped,
            done=status.count(DONE),
            nan=status.count(NAN),
            failed=status.count(FAILED),
            seconds=time.monotonic() - self.started,
            interrupted=interrupted,
        )


class LocalEngine:
    """Runs in this process: one after another on a CPU, side by side on a GPU.

    On a GPU ``jobs`` runs share it, each on its own stream; a run whose shape was captured already
    takes over that graph. ``jobs=None`` is one on a CPU and up to 16 on a GPU, fewer if memory is
    short. On a CPU a run uses ``threads`` threads: with one, its numbers don't depend on how many
    cores there are. Raises :class:`~vla.errors.ArgumentError` for a device that isn't there.
    """

    def __init__(
        self,
        device: torch.device | str = "cpu",
        *,
        jobs: int | None = None,
        block: int | None = None,
        threads: int = 1,
        keep: Keep | None = None,
    ) -> None:
        self.device = checked_device(device)
        on_cuda = self.device.type == "cuda"
        self.jobs = jobs if jobs is not None else (CUDA_JOBS if on_cuda else 1)
        self.block = block or (50 if on_cuda else 10)
        self.keep, self.threads = keep, threads
        require_integer("jobs", self.jobs, low=1)
        require_integer("threads", threads, low=1)
        if self.jobs > 1 and not on_cuda:
            raise ArgumentError("jobs", jobs, "1 on a CPU", "Start the command twice: both share.")
        require_integer("block", self.block, low=1)

    def run(self, todo: Sequence[Wanted], store: Store, bar: ProgressBar) -> None:
        """Do those runs of ``todo`` that nobody holds. See :class:`Engine`."""
        turn = _Turns(self, list(todo), store, bar)
        before = torch.get_num_threads()
        torch.set_num_threads(self.threads)
        try:
            turn.go()
        finally:
            turn.drop_all()
            torch.set_num_threads(before)


class _Turns:
    """One pass over a list of runs: some waiting, some under way, taking turns."""

    def __init__(
        self, engine: LocalEngine, todo: list[Wanted], store: Store, bar: ProgressBar
    ) -> None:
        self.engine, self.todo, self.store, self.bar = engine, todo, store, bar
        self.active: dict[str, tuple[Wanted, Trainer]] = {}
        self.held: set[str] = set()
        """Runs claimed, or about to be: an interruption may come between claim and start."""
        self.idle: dict[str, list[Trainer]] = defaultdict(list)
        self.jobs = engine.jobs
        self.cost = 0

    def go(self) -> None:
        while self.todo or self.active:
            self._fill()
            news = [self._advance(key) for key in list(self.active)]
            if self.active and not any(news):
                next(iter(self.active.values()))[1].collect(wait=True)
            self.bar.show({str(w.label or w.config): t.progress for w, t in self.active.values()})

    def _advance(self, key: str) -> bool:
        """Give one run its turn; whether the host learned anything."""
        wanted, trainer = self.active[key]
        try:
            if trainer.wants_work:
                trainer.enqueue(self.engine.block)
            news = trainer.collect()
        except RuntimeError as error:
            self._require_device(error)
            self._fail(wanted, error)
            trainer.close()
            return True
        if trainer.finished:
            self._end(wanted, trainer)
        return news

    def _fill(self) -> None:
        while self.todo and len(self.active) < self.jobs and self._has_room():
            wanted = self.todo.pop(self._next_index())
            self.held.add(wanted.config.key)
            if self.store.claim(wanted.config.key):
                self._start(wanted)
            else:
                self.held.discard(wanted.config.key)

    def _has_room(self) -> bool:
        if not self.active or not self.cost or any(self.idle.values()):
            return True
        from vla.train.graph import room_for

        return room_for(self.cost, self.engine.device)

    def _next_index(self) -> int:
        """A run that an idle graph fits, else one of a shape not under way, else the first."""
        shapes = [item.config.shape_key for item in self.todo]
        busy = {item.config.shape_key for item, _ in self.active.values()}
        fits = (i for i, shape in enumerate(shapes) if self.idle.get(shape))
        other = (i for i, shape in enumerate(shapes) if shape not in busy)
        return next(fits, next(other, 0))

    def _start(self, wanted: Wanted) -> None:
        try:
            trainer = self._trainer(wanted)
        except torch.OutOfMemoryError as error:
            self._postpone(wanted, error)
            return
        except (RuntimeError, ValueError) as error:
            self._require_device(error)
            self._fail(wanted, error)
            return
        self.cost = max(self.cost, getattr(trainer, "bytes", 0))
        self.active[wanted.config.key] = (wanted, trainer)

    def _trainer(self, wanted: Wanted) -> Trainer:
        idle = self.idle.get(wanted.config.shape_key)
        if not idle:
            return new_trainer(wanted.config, self.engine.device)
        trainer = idle.pop()
        trainer.restart(wanted.config)
        return trainer

    def _postpone(self, wanted: Wanted, error: torch.OutOfMemoryError) -> None:
        """Memory was shorter than it looked: do this run later, with fewer beside it."""
        if not self.active:
            self._fail(wanted, error)
            return
        self.jobs = len(self.active)
        self.store.release(wanted.config.key)
        self.todo.append(wanted)

    def _end(self, wanted: Wanted, trainer: Trainer) -> None:
        note = getattr(trainer, "not_captured", "")
        result = trainer.result(jobs=self.engine.jobs, note=note)
        if self.engine.keep and result.status == DONE:
            self.engine.keep(wanted, trainer)
        self._record(wanted, result)
        del self.active[wanted.config.key]
        self._retire(trainer)

    def _retire(self, trainer: Trainer) -> None:
        """Keep a captured graph for a run of the same shape, if there is one to come."""
        shape = trainer.config.shape_key
        coming = sum(item.config.shape_key == shape for item in self.todo)
        if trainer.can_restart and coming > len(self.idle[shape]):
            self.idle[shape].append(trainer)
        else:
            trainer.close()

    def _require_device(self, error: Exception) -> None:
        """Raise :class:`DeviceLost` if it wasn't the run that failed but the GPU under it."""
        if self.engine.device.type != "cuda":
            return
        try:
            torch.cuda.synchronize(self.engine.device)
        except RuntimeError:
            why = str(error).partition("\n")[0]
            raise DeviceLost(
                f"{self.engine.device}: the GPU answers no more ({why}). No run is lost: run the "
                "same command again."
            ) from error

    def _fail(self, wanted: Wanted, error: Exception) -> None:
        self.active.pop(wanted.config.key, None)
        reason = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        self._record(wanted, RunResult(status=FAILED, note=reason))

    def _record(self, wanted: Wanted, result: RunResult) -> None:
        name = wanted.label or str(wanted.config)
        if self.store.finish(wanted.config.key, result):
            self.bar.ended(name, result, wanted.config.steps)
        else:
            self.bar.say(f"{name}: another process took this run over; its result stands")
        self.held.discard(wanted.config.key)

    def drop_all(self) -> None:
        """Give back what is still under way: after Ctrl-C, or an error of the store."""
        for key in self.held:
            # If the store is what failed, the lease runs out by itself.
            with suppress(StoreError):
                self.store.release(key)
        trainers = (trainer for _, trainer in self.active.values())
        for trainer in itertools.chain(trainers, *self.idle.values()):
            # On a device that is lost nothing can be closed.
            with suppress(RuntimeError):
                trainer.close()


def _checked(items: list[Wanted]) -> list[Wanted]:
    """Each config once and valid, before any work starts."""
    unique = each_once(items)
    for item in unique:
        item.config.check()
    return unique


def _named(row: RunRow, labels: dict[str, str]) -> RunRow:
    return dataclasses.replace(row, label=labels.get(row.key, ""))
