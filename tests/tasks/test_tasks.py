"""Every row against a slow reader that knows the task's words only; the draws against chance."""

import doctest
import importlib
import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from vla.tasks import HELD_OUT_KEYS, TASKS, TRAIN_KEYS, Task, make, seeded
from vla.tasks.draws import expected_mode, permutations, weighted_choice

Row = list[int]

CASES = [
    make("mqar_authors", pairs=1, length=4),
    make("mqar_authors", pairs=24),
    make("mqar_authors", pairs=8, length=64),
    make("mqar_authors", pairs=16, keys=HELD_OUT_KEYS),
    make("mqar_authors", pairs=127),
    make("mqar_paper", pairs=1),
    make("mqar_paper", pairs=24),
    make("mqar_paper", pairs=8, length=101, keys=TRAIN_KEYS),
    make("mqar_fair", pairs=1),
    make("mqar_fair", pairs=16, length=129),
    make("mqar_fair", pairs=64, power=1.0),
    make("mqar_fair", pairs=4, filler="blank", vocab=64),
    make("copy_authors"),
    make("copy_authors", length=9),
    make("copy", length=3),
    make("copy", length=64),
    make("delayed_recall", pairs=8, length=100),
    make("delayed_recall", pairs=4, length=13),
    make("associative_recall", pairs=16, length=257, queries=5),
    make("associative_recall", pairs=1, length=4),
    make("associative_recall", pairs=500, length=10_000),
]


def read_mqar(task: Task, row: Row) -> Row:
    n, bar = task.pairs, task.vocab - 1
    stored = dict(zip(row[: 2 * n : 2], row[1 : 2 * n : 2], strict=True))
    assert len(stored) == n
    assert all(task.keys[0] <= key < task.keys[1] for key in stored)
    assert all(0 <= value < bar for value in stored.values())
    asked = row[2 * n :]
    while asked[0] == bar:
        asked = asked[1:]
    if task.name == "mqar_authors":
        assert len(asked) == task.length - 2 * n - 1
    else:
        assert sorted(asked) == sorted(stored)
    return [-1] * (len(row) - len(asked)) + [stored[key] for key in asked]


def read_fair(task: Task, row: Row) -> Row:
    n, first_value = task.pairs, task.vocab // 2
    stored = dict(zip(row[: 2 * n : 2], row[1 : 2 * n : 2], strict=True))
    assert len(stored) == n
    assert len(set(stored.values())) == n
    assert all(0 < key < first_value <= value < task.vocab for key, value in stored.items())
    asks = [0 < token < first_value and t >= 2 * n for t, token in enumerate(row)]
    asked = [token for token, asked in zip(row, asks, strict=True) if asked]
    assert sorted(asked) == sorted(stored)
    assert all(t % 2 == 0 for t, asked in enumerate(asks) if asked)
    rest = [token for t, token in enumerate(row) if t >= 2 * n and not asks[t]]
    assert all((token == 0) == (task.filler == "blank") for token in rest)
    return [stored[token] if ask else -1 for token, ask in zip(row, asks, strict=True)]


def read_copy(task: Task, row: Row) -> Row:
    bar = row.index(task.vocab - 1)
    assert bar == task.length // 2
    content, again = row[:bar], row[bar + 1 :]
    assert again == content[: len(again)]
    if task.name == "copy_authors":
        return [-1] * (bar + 1) + again
    return ([-1] * bar + content + [-1])[: len(row)]


def read_delayed(task: Task, row: Row) -> Row:
    n, first_value, bar = task.pairs, task.vocab // 2, task.vocab - 1
    stored = dict(zip(row[: 2 * n : 2], row[1 : 2 * n : 2], strict=True))
    assert len(stored) == n
    assert row.index(bar) == len(row) - n - 1
    assert all(first_value <= token < bar for token in row[2 * n : -n - 1])
    assert sorted(row[-n:]) == sorted(stored)
    assert all(key < first_value <= value < bar for key, value in stored.items())
    return [-1] * (len(row) - n) + [stored[key] for key in row[-n:]]


def read_associative(task: Task, row: Row) -> Row:
    first_value, bar = task.vocab // 2, task.vocab - 1
    front, asked = row[: -1 - task.queries], row[-task.queries :]
    assert row[-1 - task.queries] == bar
    if len(front) % 2:
        assert front[0] == bar
        front = front[1:]
    slots = list(zip(front[::2], front[1::2], strict=True))
    stored = {key: value for key, value in slots if key < first_value}
    assert len(stored) == task.pairs
    assert len([key for key, _ in slots if key < first_value]) == task.pairs
    assert all(first_value <= value < bar for _, value in slots)
    assert len(set(asked)) == task.queries
    return [-1] * (len(row) - task.queries) + [stored[key] for key in asked]


READERS: dict[str, Callable[[Task, Row], Row]] = {
    "mqar_authors": read_mqar,
    "mqar_paper": read_mqar,
    "mqar_fair": read_fair,
    "copy_authors": read_copy,
    "copy": read_copy,
    "delayed_recall": read_delayed,
    "associative_recall": read_associative,
}


@pytest.mark.parametrize("task", CASES, ids=str)
def test_a_slow_reader_gives_the_same_answers(task: Task) -> None:
    batch = task.sample(5, generator=seeded(7))
    assert batch.tokens.shape == batch.targets.shape == (5, task.length)
    assert batch.tokens.dtype == batch.targets.dtype == torch.int64
    assert int(batch.tokens.min()) >= 0
    assert int(batch.tokens.max()) < task.vocab
    for row, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
        assert READERS[task.name](task, row) == targets
        assert sum(target >= 0 for target in targets) == task.targets_per_row


def test_every_task_has_a_reader_and_a_case() -> None:
    assert set(READERS) == set(TASKS) == {task.name for task in CASES}


@pytest.mark.parametrize("module", ["base", "mqar", "copy", "recall", "draws"])
def test_drawings_in_docstrings(module: str) -> None:
    result = doctest.testmod(importlib.import_module(f"vla.tasks.{module}"))
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize("name", TASKS)
def test_every_task_draws_an_example_row(name: str) -> None:
    text = TASKS[name].__doc__ or ""
    assert ".draw(seed=" in text
    assert "input " in text
    assert "target " in text


@pytest.mark.parametrize("task", CASES, ids=str)
def test_one_integer_fixes_everything(task: Task) -> None:
    torch.manual_seed(1)
    first = task.sample(3, generator=seeded(11))
    torch.manual_seed(2)
    again = task.sample(3, generator=seeded(11))
    assert torch.equal(first.tokens, again.tokens)
    assert torch.equal(first.targets, again.targets)


def test_seeds_and_streams_are_apart() -> None:
    task = make("mqar_authors")
    generator = seeded(42)
    rows = [task.sample(4, generator=generator).tokens for _ in range(2)]
    rows += [task.sample(4, generator=seeded(43)).tokens]
    rows += [
        task.sample(4, generator=seeded(42, stream=stream)).tokens
        for stream in ("validation", "test")
    ]
    assert not any(torch.equal(a, b) for a, b in itertools.combinations(rows, 2))


class _Recorder(TorchDispatchMode):
    """Names of the operations that ran."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        del types
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


SYNCING = {"_local_scalar_dense", "nonzero", "masked_select", "unique", "_unique2", "equal", "item"}


@pytest.mark.parametrize("name", TASKS)
def test_nothing_waits_for_the_device_or_has_a_shape_from_data(name: str) -> None:
    recorder, generator = _Recorder(), seeded(0)
    with recorder:
        make(name).sample(4, generator=generator)
    assert recorder.names
    assert not recorder.names & SYNCING


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", TASKS)
def test_a_cuda_graph_draws_fresh_rows(name: str) -> None:
    task, generator = make(name), seeded(0, "cuda")
    task.sample(4, generator=generator, device="cuda")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        batch = task.sample(4, generator=generator, device="cuda")
    drawn = []
    for _ in range(2):
        graph.replay()
        drawn.append(batch.tokens.cpu())
        for row, targets in zip(batch.tokens.tolist(), batch.targets.tolist(), strict=True):
            assert READERS[name](task, row) == targets
    assert not torch.equal(*drawn)


def assert_uniform(counts: torch.Tensor) -> None:
    """χ² within five standard deviations of its mean."""
    counts = counts.double().flatten()
    mean = counts.mean()
    degrees = len(counts) - 1
    assert abs(((counts - mean) ** 2 / mean).sum() - degrees) < 5 * math.sqrt(2 * degrees)


def test_authors_keys_values_and_queries_are_uniform() -> None:
    task = make("mqar_authors", pairs=12)
    batch = task.sample(20_000, generator=seeded(3))
    keys, values = batch.tokens[:, :24:2], batch.tokens[:, 1:24:2]
    assert_uniform(torch.bincount(values.flatten(), minlength=127))
    for place in (0, 11):
        assert_uniform(torch.bincount(keys[:, place], minlength=127))
    asked = (batch.tokens[:, 25:, None] == keys[:, None]).double().argmax(-1)
    assert_uniform(torch.bincount(asked.flatten(), minlength=12))
    # Two neighbours of a row are independent: all 144 couples are as common.
    couples = asked[:, 0] * 12 + asked[:, 1]
    assert_uniform(torch.bincount(couples, minlength=144))


def test_held_out_keys_share_no_token_with_train_keys() -> None:
    train, held = (make("mqar_authors", keys=keys) for keys in (TRAIN_KEYS, HELD_OUT_KEYS))
    seen = [t.sample(2000, generator=seeded(0)).tokens[:, :48:2].unique() for t in (train, held)]
    assert seen[0].tolist() == list(range(64))
    assert seen[1].tolist() == list(range(64, 127))


def test_orders_are_equally_likely() -> None:
    orders = permutations(60_000, 4, seeded(5), torch.device("cpu"))
    code = (orders * torch.tensor([64, 16, 4, 1])).sum(-1)
    counts = code.bincount(minlength=256)
    assert_uniform(counts[counts > 0])
    assert int((counts > 0).sum()) == 24


def test_weighted_choice_is_successive_sampling() -> None:
    weights = torch.tensor([5.0, 3.0, 2.0])
    rows = weighted_choice(100_000, 2, weights, seeded(6), torch.device("cpu"))
    p = (weights / weights.sum()).tolist()
    for first, second in itertools.permutations(range(3), 2):
        expected = p[first] * p[second] / (1 - p[first])
        share = ((rows[:, 0] == first) & (rows[:, 1] == second)).double().mean().item()
        assert share == pytest.approx(expected, abs=5 * math.sqrt(expected / 100_000))


def test_fair_gaps_follow_the_power_law() -> None:
    task = make("mqar_fair", pairs=1, length=34, power=0.5, vocab=16)
    batch = task.sample(50_000, generator=seeded(8))
    place = (batch.targets >= 0).int().argmax(-1) // 2 - 1
    weight = torch.arange(1, 17).double() ** -0.5
    expected = 50_000 * weight / weight.sum()
    chi2 = ((torch.bincount(place, minlength=16) - expected) ** 2 / expected).sum()
    assert chi2 < 15 + 5 * math.sqrt(30)


def test_associative_pairs_and_filler_are_spread_evenly() -> None:
    task = make("associative_recall", pairs=3, length=42, vocab=64)
    tokens = task.sample(20_000, generator=seeded(9)).tokens[:, :40]
    assert_uniform((tokens[:, ::2] < 32).sum(0))
    noise = tokens[:, ::2][tokens[:, ::2] >= 32]
    assert_uniform(torch.bincount(noise - 32, minlength=31))


@pytest.mark.parametrize(("draws", "values"), [(1, 5), (3, 4), (8, 127), (24, 127), (64, 127)])
def test_expected_mode_against_counting(draws: int, values: int) -> None:
    rng = np.random.default_rng(0)
    samples = rng.integers(values, size=(20_000, draws))
    modes = np.array([np.bincount(row).max() for row in samples])
    spread = 5 * modes.std() / math.sqrt(len(modes)) + 1e-9
    assert expected_mode(draws, values) == pytest.approx(modes.mean(), abs=spread)


def test_guess_is_what_a_constant_answer_scores() -> None:
    task = make("mqar_authors", pairs=12)
    batch = task.sample(20_000, generator=seeded(1))
    best = batch.tokens[:, 1:24:2].mode(-1).values
    asked = batch.targets[:, 25:]
    assert (asked == best[:, None]).double().mean().item() == pytest.approx(task.guess, abs=3e-3)


def test_guesses_are_probabilities() -> None:
    for task in CASES:
        assert 0 < task.guess <= 1
    assert make("mqar_fair", pairs=16).guess == 1 / 16
    assert make("delayed_recall", pairs=1).guess == pytest.approx(1)


def test_names_presets_and_changes() -> None:
    assert make("mqar", preset="fair", pairs=8) == make("mqar_fair", pairs=8)
    assert make("copy", preset="authors") == make("copy_authors")
    assert hash(make("copy")) == hash(make("copy"))
    task = make("mqar_authors", pairs=8)
    assert make(task.name, **task.settings) == task
    assert task.with_(pairs=16) == make("mqar_authors", pairs=16)
    assert task.with_(vocab=64).keys == (0, 63)
    assert make("mqar_authors", pairs=8, length=64).with_(pairs=4).length == 64
    assert make("mqar_authors", keys=[0, 64]).keys == TRAIN_KEYS


@pytest.mark.parametrize(
    ("name", "settings", "argument"),
    [
        ("mqar_authors", {"pairs": 128}, "pairs"),
        ("mqar_authors", {"pairs": 65, "keys": TRAIN_KEYS}, "pairs"),
        ("mqar_authors", {"pairs": 0}, "pairs"),
        ("mqar_authors", {"pairs": True}, "pairs"),
        ("mqar_authors", {"pairs": 8, "length": 17}, "length"),
        ("mqar_authors", {"length": -1}, "length"),
        ("mqar_authors", {"length": 73.0}, "length"),
        ("mqar_authors", {"keys": (0, 128)}, "keys"),
        ("mqar_authors", {"keys": (9, 9)}, "keys"),
        ("mqar_authors", {"vocab": 1}, "vocab"),
        ("mqar_paper", {"pairs": 8, "length": 24}, "length"),
        ("mqar_fair", {"pairs": 4096}, "pairs"),
        ("mqar_fair", {"pairs": 16, "length": 63}, "length"),
        ("mqar_fair", {"filler": "zeros"}, "filler"),
        ("mqar_fair", {"power": 0.0}, "power"),
        ("copy", {"length": 2}, "length"),
        ("delayed_recall", {"pairs": 65}, "pairs"),
        ("delayed_recall", {"pairs": 8, "length": 24}, "length"),
        ("associative_recall", {"pairs": 2, "queries": 3}, "queries"),
        ("associative_recall", {"pairs": 8, "length": 17}, "length"),
        ("mqar", {"preset": "unknown"}, "task"),
        ("nothing", {}, "task"),
        ("copy", {"lenght": 9}, "setting"),
    ],
)
def test_bad_settings_are_named_before_any_work(name: str, settings: dict, argument: str) -> None:
    with pytest.raises(ValueError, match=rf"^{argument}: got .+, wanted .+"):
        make(name, **settings)


def test_bad_calls_are_named() -> None:
    with pytest.raises(ValueError, match="batch: got 0"):
        make("copy").sample(0, generator=seeded(0))
    with pytest.raises(ValueError, match="stream: got 'tests'"):
        seeded(0, stream="tests")
    with pytest.raises(ValueError, match="seed: got -1"):
        seeded(-1)
