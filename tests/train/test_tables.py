"""Which rate is the best: seeds that only one rate has don't count."""

import pytest

from tests.train.test_run_figures import mqar, row
from vla.train.tables import at_best_rate


def runs(scores):
    return [
        row(mqar(2, lr=lr, seed=seed), score or 0.0, "a", "nan" if score is None else "done")
        for (lr, seed), score in scores.items()
    ]


@pytest.mark.parametrize(
    ("scores", "best"),
    [
        ({(1e-3, 1): 0.9, (1e-3, 2): 0.2, (1e-2, 1): 0.8}, 1e-3),
        ({(1e-3, 1): 0.8, (1e-2, 1): 0.9, (1e-2, 2): 0.1, (1e-2, 3): 0.1}, 1e-2),
        ({(1e-3, 1): 0.9, (1e-2, 1): 0.9, (1e-2, 2): 0.1}, 1e-2),
        ({(1e-3, 1): 0.1, (1e-2, 1): None, (1e-2, 2): 0.9}, 1e-3),
        ({(1e-3, 1): 0.3, (1e-2, 2): 0.4}, 1e-2),
        ({(1e-3, 1): 0.3, (1e-3, 2): 0.4, (1e-2, 1): 0.2, (1e-2, 2): 0.6}, 1e-2),
    ],
    ids=[
        "one lucky seed",
        "three seeds of the best",
        "equals",
        "badly ended",
        "none shared",
        "mean",
    ],
)
def test_rates_are_compared_on_the_seeds_that_all_have(scores, best):
    found = at_best_rate(runs(scores))
    assert {r.config.lr for r in found} == {best}
    assert len(found) == sum(lr == best for lr, _ in scores)


def test_nothing_has_no_best_rate():
    assert at_best_rate([]) == []
