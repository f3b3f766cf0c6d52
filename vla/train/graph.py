"""Runs on CUDA: the whole step captured once, then replayed; many runs side by side.

A step of these small models is hundreds of kernels of a few microseconds, so launching them from
Python takes far longer than running them. Captured, a step is one launch, and the host is free to
feed many runs, each on a stream of its own. README.md beside this says how, and what has been
measured.
"""

from __future__ import annotations

import gc
import math
import os
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from typing import Any

import torch

from vla.tasks import Batch, Task
from vla.train.config import RunConfig
from vla.train.loop import Trainer, new_model
from vla.typing import Tensor

# Read when CUDA starts: a fixed cuBLAS workspace for each stream makes its products reproducible
# while other streams are busy, and more hardware queues keep the streams of many runs apart.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")


class GraphTrainer(Trainer):
    """A run whose step is a CUDA graph, on its own stream.

    The order of events matters: warm-up steps on the stream (they compile kernels and make the
    optimizer's state and cuBLAS's workspace **outside** the graph's memory), then everything back
    to its values at step 0, then the capture, which runs nothing.

    ``capture=False`` launches the same step kernel by kernel: slower, the same numbers.
    """

    depth = 2
    can_restart = True

    def __init__(
        self,
        config: RunConfig,
        device: torch.device | str = "cuda",
        *,
        stream: torch.cuda.Stream | None = None,
        capture: bool = True,
    ) -> None:
        self.stream = stream or torch.cuda.Stream(device)
        self.not_captured = ""
        self.step_graph: torch.cuda.CUDAGraph | None = None
        self.eval_graphs: dict[Task, torch.cuda.CUDAGraph] = {}
        free = torch.cuda.mem_get_info(device)[0]
        self.strict = True
        with torch.cuda.stream(self.stream):
            super().__init__(config, device)
            self._warm_up()
            if capture:
                with self._settings():
                    self._capture_all()
        self.started = time.monotonic()
        self.bytes = max(0, free - torch.cuda.mem_get_info(device)[0])
        """Device memory that this run took from what was free."""

    def _make_buffers(self) -> None:
        super()._make_buffers()
        steps, sets = self.config.steps, len(self.sets)
        self.mirrors = [
            (_pinned(steps, 2), _pinned(sets, 3, dtype=torch.float64)) for _ in range(self.depth)
        ]
        """Where copies of the log land on the host, one for each block under way."""

    def _begin(self) -> None:
        super()._begin()
        self.pending: deque[tuple[int, bool, torch.cuda.Event, tuple[Tensor, Tensor]]] = deque()

    def _settings(self) -> AbstractContextManager[None]:
        return cuda_settings(self.config.precision, strict=self.strict)

    def _warm_up(self) -> None:
        start = [p.detach().clone() for p in self.model.parameters()]
        try:
            self._try_everything()
        except RuntimeError as error:
            if not self.strict or "deterministic" not in str(error):
                raise
            # Some operation of this model has no deterministic form. The setting matters all the
            # same: attention's backward repeats only if it is strict.
            self.strict = False
            self._rewind(start)
            self._try_everything()
        self.stream.synchronize()
        self._rewind(start)

    def _try_everything(self) -> None:
        with self._settings():
            for _ in range(min(2, self.config.steps)):
                self.optimizer.zero_grad(set_to_none=True)
                self.train_step()
            for task in {task for _, _, task in self.sets}:
                self.eval_step(task)

    def _rewind(self, weights: list[Tensor]) -> None:
        """Everything as at step 0, in place: a captured graph knows the buffers by address."""
        with torch.no_grad():
            for parameter, value in zip(self.model.parameters(), weights, strict=True):
                parameter.copy_(value)
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    value.zero_()
        self._begin()

    def restart(self, config: RunConfig) -> None:
        """Take over for a config that differs in seed and learning rate alone: nothing to capture.

        Raises ``ValueError`` for one that differs in more.
        """
        if config.shape_key != self.config.shape_key:
            raise ValueError("only seed and lr may differ; a captured step has the rest built in")
        self.stream.synchronize()
        self.mirrors += [landed for *_, landed in self.pending]
        self.config = config
        weights = [p.detach() for p in new_model(config).parameters()]
        with torch.cuda.stream(self.stream):
            self._rewind(weights)

    def _capture_all(self) -> None:
        try:
            # No gradients yet: backward then assigns them from the graph's own memory, at every
            # replay anew, and nothing has to be zeroed.
            self.optimizer.zero_grad(set_to_none=True)
            self.step_graph = self._capture(self.train_step)
            for task in {task for _, _, task in self.sets}:
                self.eval_graphs[task] = self._capture(partial(self.eval_step, task))
        except RuntimeError as error:
            self.step_graph, self.eval_graphs = None, {}
            self.not_captured = f"not captured ({str(error).splitlines()[0]}): runs eagerly"
            self.optimizer.zero_grad(set_to_none=True)
            # A capture that broke off leaves its generators waiting for its end.
            self.train_draws = torch.Generator(self.device)
            self.eval_draws = torch.Generator(self.device)
            self._begin()

    def _capture(self, body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        _register(graph, (self.train_draws, self.eval_draws))
        pool = self.step_graph.pool() if self.step_graph else None
        self.stream.synchronize()
        # Freeing a tensor, event or graph in the middle of a capture can break it.
        gc.collect()
        gc.disable()
        try:
            graph.capture_begin(pool=pool, capture_error_mode="thread_local")
            try:
                body()
            except BaseException:
                # Ending a broken capture fails too; the first error is the one that explains.
                with suppress(RuntimeError):
                    graph.capture_end()
                raise
            graph.capture_end()
        finally:
            gc.enable()
        return graph

    def _draw(self, task: Task, size: int, generator: torch.Generator) -> Batch:
        # Draws write each place once, so they repeat anyway; the deterministic forms would sort.
        with deterministic(False):
            return super()._draw(task, size, generator)

    def enqueue(self, steps: int) -> None:
        """Queue up to ``steps`` replays and a copy of the log behind them; returns at once."""
        steps = min(steps, self.config.steps - self.queued)
        with torch.cuda.stream(self.stream), self._settings():
            for _ in range(steps):
                self._one_step()
            self.queued += steps
            last = self.queued == self.config.steps
            if last:
                self._evaluate(self._one_eval)
            self._mirror(last)

    def _one_step(self) -> None:
        if self.step_graph is not None:
            self.step_graph.replay()
            return
        self.optimizer.zero_grad(set_to_none=True)
        self.train_step()

    def _one_eval(self, index: int) -> None:
        task = self.sets[index][2]
        if task in self.eval_graphs:
            self.eval_graphs[task].replay()
        else:
            self.eval_step(task)

    def _mirror(self, last: bool) -> None:
        """Have the log copied to the host once the block is done, and an event say when."""
        log, totals = self.mirrors.pop(0)
        log.copy_(self.log, non_blocking=True)
        totals.copy_(self.totals, non_blocking=True)
        event = torch.cuda.Event()
        event.record(self.stream)
        self.pending.append((self.queued, last, event, (log, totals)))
        self.evaluated = False

    def collect(self, *, wait: bool = False) -> bool:
        """Take in the blocks that are done; ``wait`` until one is, if one is under way."""
        news = False
        while self.pending and (self.pending[0][2].query() or (wait and not news)):
            queued, last, event, (log, totals) = self.pending.popleft()
            event.synchronize()
            self.completed, self.evaluated = queued, last
            self.host_log, self.host_totals = log[:queued].clone(), totals.clone()
            self.mirrors.append((log, totals))
            news = True
        return news

    @property
    def wants_work(self) -> bool:
        return super().wants_work and len(self.pending) < self.depth

    def close(self) -> None:
        """Let the work under way end and give the graphs' memory back."""
        self.stream.synchronize()
        for graph in (*self.eval_graphs.values(), self.step_graph):
            if graph is not None:
                graph.reset()
        self.step_graph, self.eval_graphs = None, {}


@contextmanager
def cuda_settings(precision: str, *, strict: bool = False) -> Iterator[None]:
    """Matrix products in ``ieee`` float32 or ``tf32``; deterministic kernels where torch has them.

    Operations without a deterministic form raise if ``strict`` and run otherwise: whether a whole
    run repeats bit for bit is for a test to say, not for this setting. Uninitialised memory is left
    alone: filling it would add a kernel for every tensor.
    """
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        with deterministic(True, strict=strict), warnings.catch_warnings():
            warnings.filterwarnings("ignore", message=".*does not have a deterministic.*")
            warnings.filterwarnings("ignore", message=".*defaults to a non-deterministic.*")
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def deterministic(on: bool, *, strict: bool = False) -> Iterator[None]:
    """Torch's deterministic kernels on or off for the body; ``strict`` refuses all others."""
    before = torch.are_deterministic_algorithms_enabled()
    lenient = torch.is_deterministic_algorithms_warn_only_enabled()
    torch_utils: Any = torch.utils.deterministic
    filling = torch_utils.fill_uninitialized_memory
    torch.use_deterministic_algorithms(on, warn_only=not strict)
    torch_utils.fill_uninitialized_memory = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=lenient)
        torch_utils.fill_uninitialized_memory = filling


def room_for(cost: int, device: torch.device) -> bool:
    """Whether the device has memory for one more run of this many bytes, and half as much."""
    needed = math.ceil(1.5 * cost)
    if torch.cuda.mem_get_info(device)[0] > needed:
        return True
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0] > needed


def _pinned(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Host memory that the device copies to while the host goes on."""
    return torch.empty(*shape, dtype=dtype, pin_memory=True)


def _register(graph: torch.cuda.CUDAGraph, generators: tuple[torch.Generator, ...]) -> None:
    """Tell the graph which generators it draws from. Newer torch finds out, and warns so."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for generator in generators:
            graph.register_generator_state(generator)
