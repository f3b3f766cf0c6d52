"""The README's code runs as written, and its numbers are those of the record."""

import json
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest

from vla import rules
from vla.tokens import make_stream
from vla.trace import record
from vla.train import RunRow, load_rows
from vla.train.presets import FASTER, MATCHED, NO_CONV
from vla.train.tables import at_best_rate, matching

RUNS = Path(__file__).parents[1] / "data" / "runs"
TEXT = (Path(__file__).parents[1] / "README.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)


def test_the_operation_continues_from_its_state():
    names: dict = {}
    exec(next(block for block in BLOCKS if "vla_attention" in block), names)
    assert names["o"].shape == (2, 1000, 4, 32)
    assert names["state"].step == 2000


def test_the_rule_of_ones_own_is_traced(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(next(block for block in BLOCKS if "@register" in block))
    try:
        assert rules.load_file(path) == ["half_delta"]
        lane = record(["half_delta"], make_stream("orthogonal", n=4, d=8)).lane("half_delta")
        assert lane.recall_mean[4] == pytest.approx(0.5)
    finally:
        rules.RULES.pop("half_delta", None)


def shown(value: float) -> str:
    """As the README writes an accuracy: .997, 1.000."""
    return f"{value:.3f}".removeprefix("0")


def cell(values: list[float]) -> str:
    """Mean, and the seeds' range where it shows."""
    low, high = shown(min(values)), shown(max(values))
    return shown(statistics.fmean(values)) + (f" ({low}–{high})" if low != high else "")


def recorded(preset: str, **fields: object) -> list[RunRow]:
    named = {name.replace("__", "."): value for name, value in fields.items()}
    return matching(load_rows(RUNS / f"{preset}.parquet"), named)


def mean_of(preset: str, label: str, **fields: object) -> float:
    return statistics.fmean(r.accuracy() for r in recorded(preset, label=label, **fields))


def test_the_fair_table_is_the_record():
    columns = ["softmax", "vla_exact", "delta" + MATCHED, "delta", "vla_authors", "linear"]
    rows = recorded("fair")
    for share, pairs in (("½", 16), ("1", 32), ("2", 64)):
        cells = []
        for label in columns:
            best = at_best_rate(matching(rows, {"label": label, "task.pairs": pairs}))
            assert len(best) in (0, 3)
            cells.append(cell([r.accuracy() for r in best]) if best else "")
        assert f"| {share} | {' | '.join(cells)} |".replace("|  |", "| |") in TEXT
    bare = {label: mean_of("fair", label + NO_CONV, task__pairs=32, lr=3e-3)
            for label in ("vla_exact", "delta")}  # fmt: skip
    assert f"RLS has {shown(bare['vla_exact'])}, DeltaNet {shown(bare['delta'])}" in TEXT
    assert f"(`fair`, {len(rows)} runs)" in TEXT


def test_the_first_rows_of_what_training_shows_are_the_record():
    at_24 = {m: shown(mean_of("figure5", m, task__pairs=24))
             for m in ("vla_authors", "softmax", "linear", "authors_delta")}  # fmt: skip
    assert (f"VLA {at_24['vla_authors']}, softmax {at_24['softmax']}, linear {at_24['linear']}, "
            f"their DeltaNet {at_24['authors_delta']}") in TEXT  # fmt: skip
    fixed = [mean_of("table4", "A fixed", task__pairs=24, lr=lr) for lr in (3e-4, 1e-3)]
    assert f"{shown(fixed[0])} at 3e-4; {shown(fixed[1])} at 1e-3, every seed" in TEXT
    bare = recorded("table4", label="no output norm", task__pairs=24)
    slow = statistics.fmean(r.accuracy() for r in bare if r.config.lr == 3e-4)
    fast = sorted((r.accuracy() for r in bare if r.config.lr == 1e-3), reverse=True)
    assert f"{shown(slow)} at learning rate 3e-4" in TEXT
    assert f"learns ({', '.join(map(shown, fast))})" in TEXT
    far = [f"{mean_of('figure6', 'vla_authors', task__length=t):.2f}".lstrip("0")
           for t in (256, 512)]  # fmt: skip
    assert f"{far[0]} at 256, {far[1]} at 512" in TEXT
    near = recorded("figure6", label="vla_authors", task__length=128)
    fast = [r for m in ("vla_authors", "delta") for r in recorded("figure6", label=m + FASTER)]
    assert min(r.accuracy() for r in near + fast) > 0.9995


def test_the_ledgers_counts_are_the_kept_ones():
    kept = json.loads((RUNS.parent / "claims" / "ledger.json").read_text())["entries"]
    count = Counter(entry["finding"]["verdict"] for entry in kept)
    assert f"decides {len(kept)} claims" in TEXT
    words = re.sub(r"\s+", " ", TEXT)
    assert (f"{count['holds']} hold, {count['changed']} with a stated change, "
            f"{count['fails']} fail, {count['undecided']} can't be decided") in words  # fmt: skip
