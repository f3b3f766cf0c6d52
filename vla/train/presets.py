"""The paper's experiments, its README's, and the fair one, each as a list of runs at three budgets.

``full`` is the published size on a GPU, ``cpu`` a smaller model for a laptop, ``smoke`` a check of
under a minute that something is learned. A preset is a pure function of the runs recorded so far,
so that one which widens a learning-rate grid or repeats the best rate with further seeds is the
same thing as one that is a fixed list.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vla import nn, tasks
from vla.errors import require_choice
from vla.tasks import HELD_OUT_KEYS, TRAIN_KEYS, Task
from vla.train.config import RunConfig
from vla.train.result import DONE, RunRow
from vla.train.store import Wanted, each_once

BUDGETS = ("smoke", "cpu", "full")
SEEDS = (42, 123, 999)
"""The paper's."""
PAPERS_FOUR = ("softmax", "linear", "authors_delta", "vla_authors")
"""The models of the paper's figures, as the authors' code has them."""


@dataclass(frozen=True)
class Size:
    """What a budget makes of the protocol: the model's shape, and how long it trains."""

    shape: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = (42,)
    speed: float = 1.0
    """Published steps are multiplied by this."""
    least: int = 10
    """Steps are at least so many."""
    lr: float = 1.0
    """Published learning rates are multiplied by this."""
    most: float = math.inf
    """And are at most this."""

    def steps(self, published: int) -> int:
        """The number of steps at this budget."""
        return max(self.least, round(published * self.speed))

    def rate(self, published: float) -> float:
        """The learning rate at this budget."""
        return published if self.lr == 1 else min(self.most, _rounded(published * self.lr))


FULL = Size(seeds=SEEDS)
CPU = Size(
    shape={"width": 64, "heads": 2, "ffn": 128},
    train={"batch": 32, "eval_batches": 8},
    speed=0.5, lr=10 / 3, most=3e-3,
)  # fmt: skip
SMOKE = Size(
    shape={"width": 32, "heads": 1, "ffn": 0, "short_conv": 4},
    train={"batch": 32, "eval_batches": 2},
    speed=0.075, least=150, lr=100 / 3, most=1e-2,
)  # fmt: skip
SIZES = {"smoke": SMOKE, "cpu": CPU, "full": FULL}
"""``cpu`` and ``smoke`` raise the learning rate, since they train for fewer steps; ``smoke`` also
has a short convolution, without which nothing is learned in its few steps. Neither is a result."""

Plan = Callable[[str, Sequence[RunRow]], Iterator[Wanted]]


@dataclass(frozen=True)
class Preset:
    """A named experiment."""

    name: str
    title: str
    question: str
    plan: Plan

    def wanted(self, budget: str = "full", rows: Sequence[RunRow] = ()) -> list[Wanted]:
        """The runs it asks for, each once, given those recorded.

        Raises ``ValueError`` for an odd budget.
        """
        require_choice("budget", budget, BUDGETS)
        return each_once(self.plan(budget, rows))


def preset(name: str) -> Preset:
    """The named preset; raises :class:`~vla.errors.ArgumentError` for an unknown name."""
    require_choice("preset", name, PRESETS)
    return PRESETS[name]


def _run(model: nn.ModelConfig, task: Task, size: Size, steps: int, lr: float, seed: int,
         label: str = "", **more: Any) -> Wanted:  # fmt: skip
    """One run, the model's tables cut to the task: unused rows never change a result."""
    shaped = model.with_(**size.shape, vocab=task.vocab, max_length=task.length)
    config = RunConfig(
        model=shaped, task=task, steps=size.steps(steps), lr=size.rate(lr), seed=seed,
        **{**size.train, **more},
    )  # fmt: skip
    return Wanted(config, label or nn.name_of(model))


def _authors_task(pairs: int, budget: str, **settings: Any) -> Task:
    """MQAR as the authors ran it; ``smoke`` has fewer tokens and asks more often."""
    if budget == "smoke":
        settings = {"vocab": 16, "length": 6 * pairs, **settings}
    return tasks.make("mqar_authors", pairs=pairs, **settings)


def _grid(models: Sequence[str], loads: Sequence[int], budget: str, steps: int, lr: float,
          seeds: Sequence[int], tail: str = "") -> Iterator[Wanted]:  # fmt: skip
    for load in loads:
        task = _authors_task(load, budget)
        for name in models:
            for seed in seeds:
                yield _run(nn.model(name), task, SIZES[budget], steps, lr, seed, f"{name}{tail}")


def _figure5(budget: str, rows: Sequence[RunRow]) -> Iterator[Wanted]:
    del rows
    loads = {"full": (4, 8, 12, 16, 24), "cpu": (4, 8), "smoke": (2, 4)}[budget]
    yield from _grid(PAPERS_FOUR, loads, budget, 2000, 3e-4, SIZES[budget].seeds)


LONGER = ", trained longer"
"""And at a higher rate: at full budget 3 000 or 2 000 steps at 1e-3."""


def _table10(budget: str, rows: Sequence[RunRow]) -> Iterator[Wanted]:
    """Tables 10 and 11 at their 1 000 steps; then the loads they call overload, trained longer."""
    del rows
    size = SIZES[budget]
    loads = {"full": (8, 16, 24, 32, 48), "cpu": (16, 32), "smoke": (3,)}[budget]
    yield from _grid(PAPERS_FOUR, loads, budget, 1000, 3e-4, size.seeds)
    over = {"full": (32, 48), "cpu": (32,), "smoke": (6,)}[budget]
    longer = ("delta",) if budget == "smoke" else ("delta", "vla_authors")
    yield from _grid(longer, over, budget, 3000, 1e-3, size.seeds, LONGER)


RETENTION = ", each key asked once, after a wait"
FASTER = ", higher rate"
"""At full budget 1e-3 in the place of 3e-4."""


def _figure6(budget: str, rows: Sequence[RunRow]) -> Iterator[Wanted]:
    """The authors' kind, where a longer row asks more, and one where it remembers longer.

    At full budget VLA has all seeds, and VLA and DeltaNet a second rate: what isn't recalled after
    so many steps may be forgotten or not yet learned, and the rate tells which.
    """
    del rows
    models = PAPERS_FOUR if budget != "smoke" else ("softmax", "linear", "vla_authors")
    yield from _contexts(models, budget, 3e-4, (42,))
    if budget == "full":
        yield from _contexts(("vla_authors",), budget, 3e-4, SEEDS[1:])
        yield from _contexts(("vla_authors", "delta"), budget, 1e-3, SEEDS, FASTER)


def _contexts(models: Sequence[str], budget: str, lr: float, seeds: Sequence[int],
              tail: str = "") -> Iterator[Wanted]:  # fmt: skip
    pairs = {"full": 8, "cpu": 4, "smoke": 3}[budget]
    lengths = {"full": (64, 128, 256, 512), "cpu": (32, 64), "smoke": (12, 24)}[budget]
    vocab = {"vocab": 16} if budget == "smoke" else {}
    for length in lengths:
        for name in models:
            for kind, wait in (("mqar_authors", ""), ("mqar_paper", RETENTION)):
                task = tasks.make(kind, pairs=pairs, length=length, **vocab)
                for seed in seeds:
                    yield _run(nn.model(name), task, SIZES[budget], 2000, lr, seed,
                               f"{name}{tail}{wait}")  # fmt: skip


def _table13(budget: str, rows: Sequence[RunRow]) -> Iterator[Wanted]:
    """Keys never trained on, as in the paper; then trained longer, for 1 000 steps may be few."""
    del rows
    size = SIZES[budget]
    loads = {"full": (8, 16, 24), "cpu": (4, 8), "smoke": (3,)}[budget]
    seen, unseen = ((0, 8), (8, 15)) if budget == "smoke" else (TRAIN_KEYS, HELD_OUT_KEYS)
    longer = {"full": ("delta", "vla_authors", "vla_exact"), "cpu": ("vla_authors",), "smoke": ()}
    for load in loads:
        task = _authors_task(load, budget, keys=seen)
        held_out = {"ood": task.with_(keys=unseen)}
        for name in PAPERS_FOUR:
            yield _run(nn.model(name), task, size, 1000, 3e-4, 42, name, also_eval=held_out)
        for name in longer[budget]:
            for seed in size.seeds:
                yield _run(nn.model(name), task, size, 2000, 1e-3, seed, f"{name}{LONGER}",
                           also_eval=held_out)  # fmt: skip


_VLA = nn.model("vla_authors")
ABLATIONS: dict[str, nn.ModelConfig] = {
    "VLA (as run)": _VLA,
    "A fixed": _VLA.with_(adaptive=False),
    "no key norm": _VLA.with_(normalise_key=False),
    "no key norm, α as it is": _VLA.with_(normalise_key=False, gain="rls"),
    "authors_delta": nn.model("authors_delta"),
    "linear": nn.model("linear"),
    "no output norm": _VLA.with_(output_norm="none"),
    "u of unit length": _VLA.with_(direction_scale=1.0),
    "u = key": _VLA.with_(direction="key", direction_scale=1.0, unit_direction=False),
    "λ0 = 0.01": _VLA.with_(lambda0=0.01),
    "λ0 = 1": _VLA.with_(lambda0=1.0),
    "gain α as it is": _VLA.with_(gain="rls"),
    "gain α/(k·α)": _VLA.with_(gain="oblique"),
    "write gate β": _VLA.with_(gated=True),
    "SiLU features": _VLA.with_(features="silu", normalise_read=False),
    "no z·q readout": _VLA.with_(normalise_read=False),
    "no refresh": _VLA.with_(refresh_every=0),
    "A fixed, no output norm": _VLA.with_(adaptive=False, output_norm="none"),
    "linear + output norm": nn.model("linear", output_norm="layer"),
    "softmax + output norm": nn.model("softmax", output_norm="layer"),
    "delta + output norm": nn.model("delta", output_norm="layer"),
    "exact": nn.model("vla_exact"),
}
"""Table 4's rows, then those that the paper leaves out. SiLU keys can be negative, and so can their
z·q: that row reads without it."""

PUBLISHED_ABLATIONS = tuple(ABLATIONS)[:6]


def _table4(budget: str, rows: Sequence[RunRow]) -> Iterator[Wanted]:
    """Table 4 at its 1 000 steps, then every component at n = 24 where VLA has learned."""
    del rows
    size = SIZES[budget]
    if budget == "smoke":
        chosen = ("VLA (as run)", "A fixed", "no output norm", "linear", "exact")
        for label in chosen:
            yield _run(ABLATIONS[label], _authors_task(3, budget), size, 1500, 3e-4, 42, label)
        return
    for load in (16, 48) if budget == "full" else (8,):
        for label in PUBLISHED_ABLATIONS:
            task = _authors_task(load, budget)
            yield _run(ABLATIONS[label], task, size, 1000, 3e-4, 42, label)
    load, rates = (24, (3e-4, 1e-3)) if budget == "full" else (8, (3e-4,))
    task = _authors_task(load, budget)
    for label, model in ABLATIONS.items():
        for lr in rates:
            for seed in size.seeds:
                yield _run(model, task, size, 2000, lr, seed, label)


def _readme_models() -> dict[str, nn.ModelConfig]:
    """Every combination of rank, λ0 and stabiliser, the authors' own first."""
    stabilised = {"": _VLA, ", no refresh": _VLA.with_(refresh_every=0)}
    return {
        f"rank {rank}{learned}{tail}": model.with_(rank=rank, learned_lambda0=bool(learned))
        for learned in ("", ", learned λ0")
        for tail, model in stabilised.items()
        for rank in (1, 2, 4)
    }


README_MODELS = _readme_models()
README_SMOKE = ("rank 1", "rank 2", "rank 4", "rank 1, learned λ0")
"""Its rows are shorter than the refresh's period."""


def _readme(budget: str, rows: Sequence[RunRow]) -> Iterator[Wanted]:
    """The authors' README: rank-r updates, a learned λ0, and the ε-bounded stabiliser (refresh).

    Their log of such runs names neither task nor steps, so this is the protocol of their figures.
    """
    del rows
    size = SIZES[budget]
    task = _authors_task({"full": 24, "cpu": 8, "smoke": 3}[budget], budget)
    for label in README_SMOKE if budget == "smoke" else README_MODELS:
        for lr in (3e-4, 1e-3) if budget == "full" else (3e-4,):
            for seed in size.seeds:
                yield _run(README_MODELS[label], task, size, 2000, lr, seed, label)


SHIFTED = ", copy as it should be"


def _table7(budget: str, rows: Sequence[RunRow]) -> Iterator[Wanted]:
    """The authors' copy task, which is the identity map, and a copy that needs memory."""
    del rows
    size = SIZES[budget]
    length = {"full": 64, "cpu": 32, "smoke": 16}[budget]
    vocab = {"vocab": 16} if budget == "smoke" else {}
    for kind, tail in (("copy_authors", ""), ("copy", SHIFTED)):
        for name in PAPERS_FOUR:
            task = tasks.make(kind, length=length, **vocab)
            yield _run(nn.model(name), task, size, 1500, 3e-4, 42, f"{name}{tail}", batch=32)


FAIR_MODELS = {
    "full": ("softmax", "linear", "delta", "vla_authors", "vla_exact"),
    "cpu": ("softmax", "linear", "delta", "vla_exact"),
    "smoke": ("linear", "delta"),
}
FAIR_RATES = {
    "full": (3e-4, 1e-3, 3e-3, 1e-2, 3e-2),
    "cpu": (1e-3, 3e-3, 1e-2),
    "smoke": (3e-3, 1e-2),
}
WIDEST = 2
"""Steps by which a grid may be widened beyond each of its edges."""
MATCHED = ", state as large as VLA's"
"""One head of twice the width: as many numbers, and keys with twice the directions."""
NO_CONV = ", no short convolution"


def _fair(budget: str, rows: Sequence[RunRow]) -> Iterator[Wanted]:
    """The field's protocol: one grid of rates for all, widened where the best is at its edge, then
    further seeds at the best rate. Rates are chosen on validation, results are read on test."""
    size = FAIR_SIZES[budget]
    rates = FAIR_RATES[budget]
    wide = WIDEST if budget == "full" else 0
    known = _by_group(rows)
    for item in _fair_groups(budget, size):
        base = item.config
        found = known.get(base.shape_key, {})
        for lr in widened(rates, {lr: at.get(42) for lr, at in found.items()}, wide):
            yield Wanted(base.with_(lr=lr), item.label)
        best = best_rate({lr: at.get(42) for lr, at in found.items()}, rates, wide)
        for seed in size.seeds if best is not None else ():
            yield Wanted(base.with_(lr=best, seed=seed), item.label)


FAIR_SIZES = {
    "full": Size(shape={"width": 64, "heads": 2, "ffn": 0}, seeds=SEEDS),
    "cpu": Size(
        shape={"width": 32, "heads": 1, "ffn": 0}, seeds=(42, 123), speed=0.2,
        train={"batch": 32, "eval_batches": 8},
    ),
    "smoke": Size(
        shape={"width": 32, "heads": 1, "ffn": 0}, speed=0.12,
        train={"batch": 32, "eval_batches": 2},
    ),
}  # fmt: skip


def _fair_groups(budget: str, size: Size) -> Iterator[Wanted]:
    """One run per model and load; the grid varies its learning rate, then its seed."""
    d_h = size.shape["width"] // size.shape["heads"]
    vocab = {"full": 8192, "cpu": 512, "smoke": 32}[budget]
    conv = {"short_conv": 4, "output_norm": "layer"}
    for share in (0.5, 1, 2) if budget != "smoke" else (0.125,):
        pairs = round(share * d_h)
        task = tasks.make("mqar_fair", pairs=pairs, vocab=vocab, **_fair_length(budget))
        for name in FAIR_MODELS[budget]:
            yield _run(nn.model(name, **conv), task, size, 2500, 1.0, 42, name)
        if budget == "full" and share >= 1:
            matched = replace(size, shape={**size.shape, "heads": 1})
            yield _run(nn.model("delta", **conv), task, matched, 2500, 1.0, 42, "delta" + MATCHED)
            for name in ("delta", "vla_exact"):
                bare = nn.model(name, output_norm="layer")
                yield _run(bare, task, size, 2500, 1.0, 42, name + NO_CONV)


def _fair_length(budget: str) -> dict[str, int]:
    return {"length": 16} if budget == "smoke" else {}


def _by_group(rows: Sequence[RunRow]) -> dict[str, dict[float, dict[int, float]]]:
    """Validation accuracy by shape, rate and seed; a run that ended badly counts as −1."""
    found: dict[str, dict[float, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        if row.status in ("done", "nan", "failed"):
            score = row.accuracy("validation") if row.status == DONE else -1.0
            found[row.config.shape_key][row.config.lr][row.config.seed] = score
    return found


def widened(
    rates: Sequence[float], scores: dict[float, float | None], most: int = WIDEST
) -> list[float]:
    """The grid, with one more rate beyond each edge that is the best so far, ``most`` at a side.

    ``scores`` are those known. Until the whole grid is known it stays as it is.
    """
    grid = sorted(rates)
    for _ in range(2 * most):
        known = {lr: scores.get(lr) for lr in grid}
        if any(score is None for score in known.values()):
            break
        top = max(score for score in known.values() if score is not None)
        low, high = known[grid[0]] == top, known[grid[-1]] == top
        # Where several rates tie at the top, the grid already brackets the best.
        if sum(score == top for score in known.values()) > 1:
            break
        if low and sum(lr < min(rates) for lr in grid) < most:
            grid.insert(0, _rounded(grid[0] ** 2 / grid[1]))
        elif high and sum(lr > max(rates) for lr in grid) < most:
            grid.append(_rounded(grid[-1] ** 2 / grid[-2]))
        else:
            break
    return grid


def best_rate(
    scores: dict[float, float | None], rates: Sequence[float], most: int = WIDEST
) -> float | None:
    """The best rate once the widened grid is known; among equals the middle one."""
    grid = widened(rates, scores, most)
    known = [(lr, scores.get(lr)) for lr in grid]
    if any(score is None for _, score in known):
        return None
    top = max(score for _, score in known if score is not None)
    best = [lr for lr, score in known if score == top]
    return best[(len(best) - 1) // 2]


def _rounded(lr: float) -> float:
    """Two digits: a rate that was computed hashes the same everywhere."""
    return float(f"{lr:.1e}") if math.isfinite(lr) else lr


PRESETS = {
    each.name: each
    for each in (
        Preset(
            "figure5", "MQAR capacity (Figure 5)",
            "How many pairs does each model recall, as the authors trained it?", _figure5,
        ),
        Preset(
            "table10", "Overload (Tables 10 and 11)",
            "What is left at n = 32 and 48 after 1 000 steps, and after 3 000?", _table10,
        ),
        Preset(
            "figure6", "Long context (Figure 6)",
            "Does recall survive a longer row: one that asks more, or one that waits longer?",
            _figure6,
        ),
        Preset(
            "table13", "Keys never trained on (Table 13)",
            "Does recall carry over to keys that were values alone in training?", _table13,
        ),
        Preset(
            "table4", "Component ablation (Table 4 and what it leaves out)",
            "Which parts of the layer does the result need?", _table4,
        ),
        Preset(
            "readme", "Rank, λ0 and stabiliser (the authors' README)",
            "Do more directions per token, a learned λ0 or the refresh change what is recalled?",
            _readme,
        ),
        Preset(
            "table7", "Copy (Table 7)",
            "What does the copy task measure, as run and as it should be?", _table7,
        ),
        Preset(
            "fair", "The field's protocol",
            "Which memory recalls more when all have the same convolution, norm and tuning?",
            _fair,
        ),
    )
}  # fmt: skip
