"""One run, step by step. Everything a step does happens on the device, its data included.

:class:`Trainer` runs the step as it is; :class:`vla.train.graph.GraphTrainer` captures it once and
replays it. So a step may not read a value back to the host or have a shape that depends on data.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn

from vla import nn as models
from vla import provenance
from vla.errors import ArgumentError
from vla.tasks import IGNORED, Batch, Task, seeded
from vla.train.config import RunConfig
from vla.train.result import CANCELLED, DONE, NAN, RunResult
from vla.typing import Float, Int, Tensor

CURVE_POINTS = 100
"""Most points of a stored curve; each is the mean over a window of steps."""


class Progress(NamedTuple):
    """Where a run is, as far as the host knows."""

    step: int
    loss: float
    accuracy: float


class Trainer:
    """A run in progress. ``enqueue`` work, ``collect`` what came of it, until ``finished``.

    Raises :class:`~vla.errors.ArgumentError` if model and task don't fit.
    """

    depth = 1
    """Blocks of steps that may be under way at once."""

    def __init__(self, config: RunConfig, device: torch.device | str = "cpu") -> None:
        self.config = config.check()
        self.device = torch.device(device)
        self.model = new_model(config).to(self.device)
        self._make_buffers()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=self.lr, betas=config.betas, eps=config.eps,
            weight_decay=config.weight_decay, fused=True, capturable=self.device.type == "cuda",
        )  # fmt: skip
        self._begin()

    def _make_buffers(self) -> None:
        """Device tensors that a step reads and writes in place."""
        steps, on = self.config.steps, self.device
        self.lr = torch.zeros((), dtype=torch.float32, device=on)
        self.lr_table = torch.zeros(steps, dtype=torch.float32, device=on)
        self.step = torch.zeros(1, dtype=torch.int64, device=on)
        self.rows = torch.arange(steps, device=on)[:, None]
        self.log = torch.zeros(steps, 2, dtype=torch.float32, device=on)
        self.sums = torch.zeros(3, dtype=torch.float64, device=on)
        self.totals = torch.zeros(len(self.sets), 3, dtype=torch.float64, device=on)
        self.train_draws = torch.Generator(self.device)
        self.eval_draws = torch.Generator(self.device)

    def _begin(self) -> None:
        """Values at step 0, for a new run or one that takes over this trainer's buffers."""
        self.lr_table.copy_(learning_rates(self.config))
        self.step.zero_()
        self.log.fill_(math.nan)
        self.totals.zero_()
        self.train_draws.manual_seed(_data_seed(self.config.seed, "train"))
        self.queued = self.completed = 0
        self.evaluated = False
        self.host_log = torch.empty(0, 2)
        self.host_totals = torch.zeros(len(self.sets), 3, dtype=torch.float64)
        self.started = time.monotonic()

    @property
    def sets(self) -> list[tuple[str, str, Task]]:
        """Evaluation sets: name, stream of the draws, task."""
        task = self.config.task
        further = [(name, "test", changed) for name, changed in self.config.also_eval]
        return [("validation", "validation", task), ("test", "test", task), *further]

    def train_step(self) -> None:
        """Draw a batch, learn from it, note loss and accuracy: all of it capturable."""
        batch = self._draw(self.config.task, self.config.batch, self.train_draws)
        loss, hits = self._scores(batch, self.config.task)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip, foreach=True)
        self.lr.copy_(self.lr_table.index_select(0, self.step)[0])
        self.optimizer.step()
        self._note(loss.detach(), hits / self._asked(self.config.batch, self.config.task))

    def _draw(self, task: Task, size: int, generator: torch.Generator) -> Batch:
        return task.sample(size, generator=generator, device=self.device)

    def _scores(self, batch: Batch, task: Task) -> tuple[Tensor, Tensor]:
        """Mean loss and number of hits, with logits only where something is asked."""
        at = asked_positions(batch.targets, task.targets_per_row)
        targets = batch.targets.gather(1, at).flatten()
        hidden = self.model.hidden(batch.tokens)
        rows = torch.arange(len(at), device=at.device)[:, None] * hidden.shape[1]
        # An embedding look-up, for its backward adds in a fixed order, unlike plain indexing's.
        picked = F.embedding((at + rows).flatten(), hidden.flatten(0, 1))
        logits = self.model.logits(picked)
        return F.cross_entropy(logits, targets), (logits.detach().argmax(-1) == targets).sum()

    def _asked(self, size: int, task: Task) -> int:
        return size * task.targets_per_row

    def _note(self, loss: Tensor, accuracy: Tensor) -> None:
        # A masked copy of the whole log: indexing by a device tensor can't be captured.
        row = torch.stack([loss.float(), accuracy.float()])
        self.log.copy_(torch.where(self.rows == self.step, row, self.log))
        self.step.add_(1)

    def eval_step(self, task: Task) -> None:
        """Add one fresh batch's hits, loss and count to ``sums``."""
        size = self.config.eval_batch
        batch = self._draw(task, size, self.eval_draws)
        asked = self._asked(size, task)
        with torch.no_grad():
            loss, hits = self._scores(batch, task)
            count = torch.full_like(loss, asked)
            self.sums.add_(torch.stack([hits.to(loss.dtype), loss * asked, count]))

    def enqueue(self, steps: int) -> None:
        """Have up to ``steps`` more steps done, and the evaluation after the last."""
        steps = min(steps, self.config.steps - self.queued)
        for _ in range(steps):
            self.optimizer.zero_grad(set_to_none=True)
            self.train_step()
        self.queued += steps
        if self.queued == self.config.steps and bool(self.log.isfinite().all()):
            self._evaluate(self._eval_eagerly)
        self.completed = self.queued
        self.host_log = self.log[: self.completed].cpu()
        self.host_totals = self.totals.cpu()

    def _eval_eagerly(self, index: int) -> None:
        self.eval_step(self.sets[index][2])

    def _evaluate(self, one_batch: Callable[[int], None]) -> None:
        """Fill ``totals``, one row for each set, from streams that training never drew from."""
        for index, (_, stream, _) in enumerate(self.sets):
            self.eval_draws.manual_seed(_data_seed(self.config.seed, stream))
            self.sums.zero_()
            for _ in range(self.config.eval_batches):
                one_batch(index)
            self.totals[index].copy_(self.sums)
        self.evaluated = True

    def collect(self, *, wait: bool = False) -> bool:  # noqa: ARG002
        """Take in what is done; whether there was anything new. ``wait`` blocks until there is."""
        return True

    @property
    def wants_work(self) -> bool:
        """Whether ``enqueue`` has something to add now."""
        return self.queued < self.config.steps

    @property
    def diverged_at(self) -> int | None:
        """The first completed step whose loss was not finite."""
        bad = (~self.host_log[:, 0].isfinite()).nonzero()
        return int(bad[0]) + 1 if len(bad) else None

    @property
    def finished(self) -> bool:
        """Whether the run has ended: all steps and the evaluation, or a loss that isn't finite."""
        return self.diverged_at is not None or (
            self.completed == self.config.steps and self.evaluated
        )

    @property
    def progress(self) -> Progress:
        """Step, and means over the last tenth of what is known."""
        if not len(self.host_log):
            return Progress(0, math.nan, math.nan)
        loss, accuracy = self.host_log[-max(1, len(self.host_log) // 10) :].mean(0).tolist()
        return Progress(self.completed, loss, accuracy)

    def result(self, *, jobs: int = 1, note: str = "") -> RunResult:
        """The run's record as it stands: ``done``, ``nan``, or ``cancelled`` if it goes on."""
        at = self.diverged_at
        status = NAN if at is not None else DONE if self.finished else CANCELLED
        reason = f"the loss was not finite at step {at}" if at is not None else note
        return RunResult(
            status=status,
            step=at if at is not None else self.completed,
            curve=windows(self.host_log),
            evaluation=self._evaluation() if status == DONE else {},
            device=provenance.device_name(self.device),
            versions=provenance.versions(),
            commit=provenance.commit(),
            duration=time.monotonic() - self.started,
            jobs=jobs,
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
            note=reason,
            parameters=models.parameter_count(self.model),
            state=models.state_size(self.model, self.config.task.length),
        )

    def _evaluation(self) -> dict[str, dict[str, float]]:
        names = [name for name, _, _ in self.sets]
        return {
            name: {"accuracy": hits / count, "loss": loss / count, "count": int(count)}
            for name, (hits, loss, count) in zip(names, self.host_totals.tolist(), strict=True)
        }

    can_restart = False
    """Whether :meth:`restart` saves work: a captured step does, a plain one has nothing to save."""

    def restart(self, config: RunConfig) -> None:
        """Take over for another config of the same shape; see ``can_restart``."""
        raise NotImplementedError("a plain trainer is made anew for every run")

    def close(self) -> None:
        """Give back what the device holds."""

    def state_dict(self) -> dict[str, Tensor]:
        """The weights, on the CPU."""
        return {
            name: value.detach().cpu().clone() for name, value in self.model.state_dict().items()
        }


def train(config: RunConfig, device: torch.device | str = "cpu", *, block: int = 50) -> RunResult:
    """Do one run from start to end.

    Raises :class:`~vla.errors.ArgumentError` for a config whose parts don't fit, or a device that
    isn't there.
    """
    trainer = new_trainer(config, device)
    while not trainer.finished:
        if trainer.wants_work:
            trainer.enqueue(block)
        trainer.collect(wait=True)
    return trainer.result()


def new_trainer(config: RunConfig, device: torch.device | str = "cpu") -> Trainer:
    """The trainer for this device: captured on CUDA, plain elsewhere."""
    device = checked_device(device)
    if device.type != "cuda":
        return Trainer(config, device)
    from vla.train.graph import GraphTrainer

    return GraphTrainer(config, device)


def checked_device(device: torch.device | str) -> torch.device:
    """The device, once it's sure that it is there; raises ``ArgumentError`` if it isn't."""
    name = str(device)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.split(":")[0] not in ("cpu", "cuda"):
        raise ArgumentError("device", name, "'cpu', 'cuda', 'cuda:N' or 'auto'")
    if name.startswith("cuda") and not torch.cuda.is_available():
        raise ArgumentError("device", name, "a CUDA device that is there", "Use --device cpu.")
    return torch.device(name)


def new_model(config: RunConfig) -> models.TinyLM:
    """The untrained model, on the CPU: one seed gives the same weights whatever the device."""
    model = models.build(config.model, seed=config.seed)
    return model.to(getattr(torch, config.dtype))


def asked_positions(targets: Int[Tensor, "b t"], count: int) -> Int[Tensor, "b count"]:
    """Where each row has its ``count`` targets, in order; the same shape whatever was drawn."""
    asked = (targets != IGNORED).to(torch.int8)
    return asked.sort(dim=1, descending=True, stable=True).indices[:, :count]


def learning_rates(config: RunConfig) -> Float[Tensor, "steps"]:
    """The rate at every step: linear warm-up to ``lr``, then half a cosine down to zero."""
    ramp = round(config.warmup * config.steps)
    step = torch.arange(config.steps, dtype=torch.float64)
    rising = (step + 1) / max(1, ramp)
    falling = 0.5 * (1 + torch.cos(math.pi * (step - ramp) / max(1, config.steps - ramp)))
    return (config.lr * torch.where(step < ramp, rising, falling)).float()


def windows(log: Float[Tensor, "steps 2"], points: int = CURVE_POINTS) -> dict[str, list[Any]]:
    """Means of loss and accuracy over at most ``points`` windows, at each window's last step."""
    edges = torch.linspace(0, len(log), min(points, len(log)) + 1).round().int().tolist()
    spans = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
    means = [log[a:b].double().mean(0).tolist() for a, b in spans]
    return {
        "step": [b for _, b in spans],
        "loss": [_short(loss) for loss, _ in means],
        "accuracy": [_short(accuracy) for _, accuracy in means],
    }


def _data_seed(seed: int, stream: str) -> int:
    return seeded(seed, stream=stream).initial_seed()


def _short(value: float) -> float | None:
    return float(f"{value:.7g}") if math.isfinite(value) else None
