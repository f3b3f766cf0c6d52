"""One run: repeatable, evaluated on fresh rows, and it really learns."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.train.tiny import TASK, config, model
from vla import tasks
from vla.errors import ArgumentError
from vla.tasks import IGNORED
from vla.train import train
from vla.train.loop import (
    Trainer,
    asked_positions,
    checked_device,
    learning_rates,
    new_model,
    windows,
)

MQAR = tasks.make("mqar_authors", pairs=2, vocab=8)


def test_the_same_seed_gives_the_same_run_bit_for_bit():
    chosen = config(MQAR, steps=20)
    first, second = train(chosen), train(chosen, block=7)
    assert first.curve == second.curve
    assert first.evaluation == second.evaluation
    assert train(chosen.with_(seed=1)).curve != first.curve


def test_weights_repeat_bit_for_bit():
    chosen = config(MQAR, model=model(MQAR, "vla_exact"), steps=8)
    runs = [Trainer(chosen) for _ in range(2)]
    for run, block in zip(runs, (8, 3), strict=True):
        while run.wants_work:
            run.enqueue(block)
    for a, b in zip(*(run.state_dict().values() for run in runs), strict=True):
        assert torch.equal(a, b)


def test_a_run_learns_and_says_so():
    result = train(config(steps=60, lr=3e-2, batch=16))
    assert result.status == "done"
    assert result.evaluation["test"]["accuracy"] > 0.9
    assert result.curve["loss"][-1] < 0.5 * result.curve["loss"][0]
    assert result.curve["step"][-1] == result.step == 60
    assert result.device
    assert result.versions["torch"] == torch.__version__
    assert result.parameters == sum(p.numel() for p in new_model(config()).parameters())


def test_a_rate_of_almost_nothing_teaches_nothing():
    """So the test above can fail: the learning is the optimizer's doing."""
    result = train(config(steps=60, lr=1e-12, batch=16))
    assert abs(result.curve["loss"][-1] - result.curve["loss"][0]) < 0.3


def test_one_step_is_the_textbook_step():
    """Loss over all logits, clipping and AdamW by hand, against the trainer's own step."""
    chosen = config(MQAR, steps=5, dtype="float64", clip=0.1, warmup=0.4)
    run = Trainer(chosen)
    reference = new_model(chosen)
    batch = MQAR.sample(4, generator=_same_draws(run))
    loss = F.cross_entropy(
        reference(batch.tokens).flatten(0, 1), batch.targets.flatten(), ignore_index=IGNORED
    )
    loss.backward()
    run.enqueue(1)
    assert run.host_log[0, 0].item() == pytest.approx(loss.item(), rel=1e-6)

    total = math.sqrt(sum(float((p.grad**2).sum()) for p in reference.parameters()))
    for (name, mine), ref in zip(run.model.named_parameters(), reference.parameters(), strict=True):
        grad = ref.grad * min(1.0, 0.1 / (total + 1e-6))
        lr = 1e-2 * 0.5  # the first of two warm-up steps
        moved = ref * (1 - lr * 1e-2) - lr * grad / (grad.abs() + 1e-8)
        assert torch.allclose(mine, moved, atol=1e-9), name


def _same_draws(run: Trainer) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(run.train_draws.get_state())
    return generator


def test_rates_rise_for_a_tenth_then_fall_to_zero():
    rates = learning_rates(config(steps=100, lr=1e-2))
    assert rates[0].item() == pytest.approx(1e-3)
    assert rates[9].item() == pytest.approx(1e-2)
    assert rates[55].item() == pytest.approx(5e-3)
    assert rates[99].item() < 1e-5
    assert (rates[:10].diff() > 0).all()
    assert (rates[10:].diff() < 0).all()


def test_evaluation_sets_are_fresh_and_apart():
    run = Trainer(config(MQAR))
    seeds = {name: _seed_of(run, stream) for name, stream, _ in run.sets}
    assert seeds["validation"] != seeds["test"]
    assert run.train_draws.initial_seed() not in seeds.values()


def _seed_of(run: Trainer, stream: str) -> int:
    return tasks.seeded(run.config.seed, stream=stream).initial_seed()


def test_evaluation_is_the_share_of_right_answers():
    run = Trainer(config(MQAR, steps=3))
    run.enqueue(3)
    draws = tasks.seeded(42, stream="test")
    hits = count = 0
    for _ in range(2):
        batch = MQAR.sample(4, generator=draws)
        asked = batch.targets != IGNORED
        hits += int((run.model(batch.tokens).argmax(-1) == batch.targets)[asked].sum())
        count += int(asked.sum())
    test = run.result().evaluation["test"]
    assert test["accuracy"] == hits / count
    assert test["count"] == count


def test_further_test_sets_are_evaluated():
    held_out = {"ood": MQAR.with_(keys=(4, 7))}
    result = train(config(MQAR.with_(keys=(0, 4)), also_eval=held_out))
    assert set(result.evaluation) == {"validation", "test", "ood"}


def test_a_loss_that_is_not_finite_ends_the_run_and_is_recorded():
    run = Trainer(config(steps=50))
    run.enqueue(5)
    with torch.no_grad():
        next(run.model.parameters()).fill_(math.nan)
    run.enqueue(5)
    assert run.finished
    result = run.result()
    assert result.status == "nan"
    assert result.step == 6
    assert "step 6" in result.note
    assert result.evaluation == {}
    assert None in result.curve["loss"]
    assert "NaN" not in result.to_json()


def test_positions_with_a_target_are_found_in_order():
    targets = torch.tensor([[-1, 3, -1, 0], [5, -1, 2, -1]])
    assert asked_positions(targets, 2).tolist() == [[1, 3], [0, 2]]


def test_curves_are_means_over_windows():
    log = torch.arange(500, dtype=torch.float32)[:, None].repeat(1, 2)
    curve = windows(log, points=100)
    assert len(curve["step"]) == 100
    assert curve["step"][-1] == 500
    assert curve["loss"][0] == 2.0
    assert windows(log[:3])["accuracy"] == [0.0, 1.0, 2.0]
    assert windows(log[:0]) == {"step": [], "loss": [], "accuracy": []}


def test_devices_are_checked():
    assert checked_device("cpu") == torch.device("cpu")
    with pytest.raises(ArgumentError, match="device"):
        checked_device("tpu")
    if not torch.cuda.is_available():
        with pytest.raises(ArgumentError, match="CUDA"):
            train(config(), "cuda")


def test_a_misfit_is_refused_before_anything_is_made():
    with pytest.raises(ArgumentError, match=r"model\.vocab"):
        train(config(TASK, model=model(vocab=5)))
