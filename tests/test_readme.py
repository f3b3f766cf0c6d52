"""The README's code runs as written."""

import re
from pathlib import Path

import pytest

from vla import rules
from vla.tokens import make_stream
from vla.trace import record

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
