"""Captured runs: the same numbers as plain ones, many at once, a graph passed on to the next run.

Without a GPU a stand-in for CUDA checks the order of events (warm-up, rewind, capture, replay,
mirrors, evaluation); with one, the same on the device, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch

from tests.train.tiny import config, model
from vla import nn, tasks
from vla.train import LocalEngine, RunConfig, Store, Wanted, graph, run_sweep, train
from vla.train import sweep as sweeps
from vla.train.errors import DeviceLost
from vla.train.graph import GraphTrainer
from vla.train.loop import Trainer

MQAR = tasks.make("mqar_authors", pairs=2, vocab=8)
OOD = {"ood": MQAR.with_(keys=(4, 7))}


class FakeStream:
    def __init__(self, *_: object) -> None: ...

    def synchronize(self) -> None: ...


class FakeEvent:
    """Done at the second look, so that blocks really are under way for a while."""

    def __init__(self) -> None:
        self.looks = 0

    def record(self, _stream: object) -> None: ...

    def synchronize(self) -> None:
        self.looks = 2

    def query(self) -> bool:
        self.looks += 1
        return self.looks > 1


class FakeGraph:
    """Replays the body. Making it runs nothing, like a capture; replays make gradients anew."""

    def __init__(self, body: Callable[[], None], trainer: GraphTrainer) -> None:
        self.body, self.trainer = body, trainer

    def replay(self) -> None:
        self.trainer.optimizer.zero_grad(set_to_none=True)
        self.body()

    def reset(self) -> None:
        self.body = None  # type: ignore[assignment]


@pytest.fixture
def fake_cuda(monkeypatch):
    """CUDA's calls on a CPU; the list of captures made."""
    captures: list[Callable[[], None]] = []

    def capture(self: GraphTrainer, body: Callable[[], None]) -> FakeGraph:
        captures.append(body)
        return FakeGraph(body, self)

    monkeypatch.setattr(torch.cuda, "Stream", FakeStream)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (10**12, 10**12))
    monkeypatch.setattr(
        graph, "_pinned", lambda *s, dtype=torch.float32: torch.empty(*s, dtype=dtype)
    )
    monkeypatch.setattr(GraphTrainer, "_capture", capture)
    return captures


def finish(run: Trainer, block: int = 5) -> None:
    while not run.finished:
        while run.wants_work:
            run.enqueue(block)
        run.collect(wait=True)


def assert_same(a: Trainer, b: Trainer) -> None:
    first, second = a.result(), b.result()
    assert first.curve == second.curve
    assert first.evaluation == second.evaluation
    for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True):
        assert torch.equal(x, y)


def test_replayed_steps_are_the_plain_steps(fake_cuda):
    chosen = config(MQAR, steps=23, also_eval=OOD)
    captured, plain = GraphTrainer(chosen, "cpu"), Trainer(chosen)
    assert len(fake_cuda) == 3
    finish(captured)
    finish(plain)
    assert_same(captured, plain)


def test_without_capture_the_numbers_are_the_same(fake_cuda):
    chosen = config(MQAR, steps=11)
    eager, plain = GraphTrainer(chosen, "cpu", capture=False), Trainer(chosen)
    assert fake_cuda == []
    finish(eager)
    finish(plain)
    assert_same(eager, plain)


@pytest.mark.usefixtures("fake_cuda")
def test_at_most_two_blocks_are_under_way():
    run = GraphTrainer(config(MQAR, steps=20), "cpu")
    run.enqueue(5)
    run.enqueue(5)
    assert not run.wants_work
    assert run.completed == 0
    assert not run.collect()
    assert run.collect()
    assert run.completed in (5, 10)
    assert run.wants_work


def test_a_graph_serves_the_next_seed_and_rate(fake_cuda):
    run = GraphTrainer(config(MQAR, seed=1, also_eval=OOD), "cpu")
    finish(run)
    made = len(fake_cuda)
    chosen = config(MQAR, seed=2, lr=3e-2, also_eval=OOD)
    run.restart(chosen)
    assert run.completed == 0
    finish(run)
    assert len(fake_cuda) == made
    plain = Trainer(chosen)
    finish(plain)
    assert_same(run, plain)


@pytest.mark.usefixtures("fake_cuda")
def test_a_graph_serves_another_after_a_run_that_diverged_in_the_middle():
    run = GraphTrainer(config(MQAR, steps=40), "cpu")
    with torch.no_grad():
        next(run.model.parameters()).fill_(float("nan"))
    run.enqueue(5)
    run.enqueue(5)
    run.collect(wait=True)
    assert run.finished
    assert run.result().status == "nan"
    run.restart(config(MQAR, steps=40, seed=3))
    finish(run)
    plain = Trainer(config(MQAR, steps=40, seed=3))
    finish(plain)
    assert_same(run, plain)


@pytest.mark.usefixtures("fake_cuda")
def test_a_graph_is_refused_another_shape():
    run = GraphTrainer(config(MQAR), "cpu")
    with pytest.raises(ValueError, match="seed and lr"):
        run.restart(config(MQAR, steps=13))


@pytest.mark.usefixtures("fake_cuda")
def test_what_cannot_be_captured_runs_eagerly_and_says_so(monkeypatch):
    def broken(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing\nlong story")

    monkeypatch.setattr(GraphTrainer, "_capture", broken)
    run = GraphTrainer(config(MQAR), "cpu")
    assert "not permitted" in run.not_captured
    finish(run)
    plain = Trainer(config(MQAR))
    finish(plain)
    assert_same(run, plain)


@pytest.mark.usefixtures("fake_cuda")
def test_what_has_no_deterministic_form_runs_all_the_same(monkeypatch):
    plain_step = Trainer.train_step

    def step(self: Trainer) -> None:
        if torch.are_deterministic_algorithms_enabled():
            assert not torch.utils.deterministic.fill_uninitialized_memory
            if not torch.is_deterministic_algorithms_warn_only_enabled():
                raise RuntimeError("cumsum does not have a deterministic implementation")
        plain_step(self)

    monkeypatch.setattr(Trainer, "train_step", step)
    run = GraphTrainer(config(MQAR), "cpu")
    assert not run.strict
    finish(run)
    assert not torch.are_deterministic_algorithms_enabled()
    plain = Trainer(config(MQAR))
    finish(plain)
    assert_same(run, plain)
    monkeypatch.undo()


@pytest.mark.usefixtures("fake_cuda")
def test_many_runs_interleave_and_graphs_are_passed_on(monkeypatch, tmp_path):
    made: list[GraphTrainer] = []

    def trainer(chosen: RunConfig, device: torch.device) -> GraphTrainer:
        made.append(GraphTrainer(chosen, device))
        return made[-1]

    monkeypatch.setattr(sweeps, "new_trainer", trainer)
    engine = LocalEngine("cpu", block=4)
    engine.jobs = 3
    items = [
        Wanted(config(MQAR, model=model(MQAR, name), seed=seed), name)
        for name in ("linear", "delta")
        for seed in range(4)
    ]
    with Store(tmp_path / "s") as store:
        assert run_sweep(items, store, engine=engine).done == 8
        assert len(made) <= 4
        for row in store.rows():
            alone = train(row.config)
            assert row.result.curve == alone.curve
            assert row.result.evaluation == alone.evaluation
            assert row.result.jobs == 3


@pytest.mark.usefixtures("fake_cuda")
def test_when_memory_runs_out_fewer_runs_go_side_by_side(monkeypatch, tmp_path):
    under_way: list[GraphTrainer] = []

    def trainer(chosen: RunConfig, device: torch.device) -> GraphTrainer:
        if sum(not run.finished for run in under_way) >= 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        under_way.append(GraphTrainer(chosen, device))
        return under_way[-1]

    monkeypatch.setattr(sweeps, "new_trainer", trainer)
    engine = LocalEngine("cpu", block=4)
    engine.jobs = 5
    items = [Wanted(config(MQAR, model=model(MQAR, n))) for n in ("linear", "delta", "softmax")]
    with Store(tmp_path / "s") as store:
        assert run_sweep(items, store, engine=engine).done == 3


@pytest.mark.usefixtures("fake_cuda")
def test_a_lost_gpu_ends_the_sweep_and_fails_no_run(monkeypatch, tmp_path):
    def lost(*_: object) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nlong story")

    def trainer(chosen: RunConfig, _device: torch.device) -> GraphTrainer:
        run = GraphTrainer(chosen, "cpu")
        if chosen.seed == 1:
            monkeypatch.setattr(torch.cuda, "synchronize", lost)
            monkeypatch.setattr(run, "enqueue", lost)
            monkeypatch.setattr(run, "close", lost)
        return run

    monkeypatch.setattr(sweeps, "new_trainer", trainer)
    engine = LocalEngine("cpu", block=4)
    engine.device, engine.jobs = torch.device("cuda"), 2
    items = [Wanted(config(MQAR, seed=seed)) for seed in range(4)]
    with Store(tmp_path / "s") as store:
        with pytest.raises(DeviceLost, match="illegal memory access"):
            run_sweep(items, store, engine=engine)
        assert {row.status for row in store.rows()} <= {"done", "cancelled", "queued"}
        assert store.rows(status="queued")


# What follows runs on a GPU: `pytest -m gpu tests/train`.

GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
ON_GPU = tasks.make("mqar_authors", pairs=4, vocab=32)


def gpu_config(name: str = "vla_authors", **changes) -> RunConfig:
    shape = {"width": 64, "heads": 2, "ffn": 64, "vocab": 32, "max_length": ON_GPU.length}
    settings = {"steps": 60, "lr": 1e-3, "batch": 16, "eval_batches": 3, **changes}
    return RunConfig(nn.model(name, **shape), ON_GPU, **settings)


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("name", list(nn.MODELS))
def test_gpu_capture_works_and_repeats_bit_for_bit(name):
    first, second = (GraphTrainer(gpu_config(name), "cuda") for _ in range(2))
    assert first.not_captured == ""
    finish(first, 20)
    finish(second, 7)
    assert_same(first, second)


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("name", ["softmax", "delta", "vla_authors", "vla_exact"])
def test_gpu_captured_and_launched_steps_agree_bit_for_bit(name):
    captured = GraphTrainer(gpu_config(name), "cuda")
    launched = GraphTrainer(gpu_config(name), "cuda", capture=False)
    finish(captured)
    finish(launched)
    assert_same(captured, launched)


@pytest.mark.gpu
@GPU
def test_gpu_a_restarted_graph_is_a_new_run():
    run = GraphTrainer(gpu_config(seed=1), "cuda")
    finish(run)
    run.restart(gpu_config(seed=2, lr=3e-3))
    finish(run)
    alone = GraphTrainer(gpu_config(seed=2, lr=3e-3), "cuda")
    finish(alone)
    assert_same(run, alone)


@pytest.mark.gpu
@GPU
def test_gpu_runs_side_by_side_are_the_runs_alone(tmp_path):
    names = ("softmax", "linear", "delta", "vla_authors")
    items = [Wanted(gpu_config(n, seed=s), n) for n in names for s in (1, 2, 3)]
    with Store(tmp_path / "s") as store:
        assert run_sweep(items, store, engine=LocalEngine("cuda", jobs=8)).done == len(items)
        for row in store.rows():
            alone = train(row.config, "cuda")
            assert row.result.curve == alone.curve, row.config
            assert row.result.evaluation == alone.evaluation


@pytest.mark.gpu
@GPU
@pytest.mark.parametrize("name", ["softmax", "linear", "delta", "vla_authors", "vla_exact"])
def test_gpu_and_cpu_agree_on_the_same_batches(name, monkeypatch):
    """Devices draw different rows, so the rows are drawn on the CPU for both.

    Tolerance: losses of the first 30 steps to 1e-3 relative, in float32. Later a difference of one
    rounding grows as training does.
    """

    def on_cpu(self: Trainer, task, size, _generator):
        if not hasattr(self, "cpu_draws"):
            self.cpu_draws = tasks.seeded(5)
        batch = task.sample(size, generator=self.cpu_draws)
        return type(batch)(*(part.to(self.device) for part in batch))

    monkeypatch.setattr(Trainer, "_draw", on_cpu)
    monkeypatch.setattr(GraphTrainer, "_draw", on_cpu)
    monkeypatch.setattr(GraphTrainer, "_warm_up", lambda _self: None)
    runs = [
        Trainer(gpu_config(name, steps=30)),
        GraphTrainer(gpu_config(name, steps=30), capture=False),
    ]
    for run in runs:
        finish(run)
    ours, theirs = (run.host_log[:, 0] for run in runs)
    assert torch.allclose(ours, theirs, rtol=1e-3, atol=0)
