"""Rules by name, and a rule from a file that the package has never seen."""

import re
import textwrap

import pytest
import torch

from vla.rules import RULES, load_file, make, names, register
from vla.tokens import make_stream
from vla.trace import record

OUTSIDE = """
    from dataclasses import dataclass
    from vla.rules import Rule, State, Token, register

    @register
    @dataclass(frozen=True)
    class Leaky(Rule):
        '''A delta rule that leaks.'''
        name = "leaky"
        title = "leaky memory"
        equation = "S ← λ S + (v − S k) kᵀ"
        source = "this test"
        colour = "#CC79A7"
        leak: float = 0.9

        def step(self, state, token):
            error = token.v - state.S @ token.k
            S = self.leak * state.S + error[:, None] * token.k
            return State(S=S, step=state.step + 1)
"""


@pytest.fixture
def outside(tmp_path):
    """A rule file; whatever it registers is gone after the test."""
    before = dict(RULES)

    def write(text, name="leaky.py"):
        path = tmp_path / name
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    yield write
    RULES.clear()
    RULES.update(before)


def test_names_come_in_the_order_people_see():
    assert names()[:2] == ["softmax", "linear"]
    assert set(names()) == {
        "softmax", "linear", "gated_delta", "authors_delta", "delta", "vla", "rls",
    }  # fmt: skip


def test_every_rule_says_who_it_is():
    for name in names():
        rule = make(name)
        assert rule.name == name
        assert re.fullmatch("#[0-9A-F]{6}", rule.colour)
        assert rule.title
        assert rule.equation
        assert rule.source
        assert rule.__doc__


def test_unknown_names_and_settings_are_listed():
    with pytest.raises(ValueError, match=r"rule: got 'vlaa', wanted one of .*vla"):
        make("vlaa")
    with pytest.raises(ValueError, match="settings of 'vla': lambda0, gain"):
        make("vla", lamda=1.0)


def test_a_name_belongs_to_one_rule():
    with pytest.raises(ValueError, match="a name no other rule has"):

        @register
        class Other(RULES["linear"]):
            name = "vla"

    assert RULES["vla"].__name__ == "VLA"


def test_a_rule_from_outside_is_traced_without_telling_what_it_did(outside):
    assert load_file(outside(OUTSIDE)) == ["leaky"]
    assert "leaky" in names()
    stream = make_stream("gaussian", n=6, d=5, d_v=4)
    lane = record(["leaky", "vla"], stream).lane("leaky")
    assert lane.title == "leaky memory"
    assert lane.settings == {"leak": 0.9}
    k, v = stream.k.numpy(), stream.v.numpy()
    for step in range(1, 7):
        residual = v[step - 1] - lane.S[step - 1] @ k[step - 1]
        assert abs(lane.norm_error[step] - (residual @ residual) ** 0.5) < 1e-14
    assert torch.allclose(torch.from_numpy(lane.S[2]), _leaky(stream, 2))


def _leaky(stream, steps):
    S = torch.zeros(stream.d_v, stream.d, dtype=torch.float64)
    for t in range(steps):
        k = stream.k[t]
        S = 0.9 * S + torch.outer(stream.v[t] - S @ k, k)
    return S


def test_a_file_may_be_loaded_again(outside):
    path = outside(OUTSIDE)
    load_file(path)
    assert load_file(path) == ["leaky"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "a class under @vla.rules.register"),
        ("1 / 0", "a file that runs .*ZeroDivisionError"),
        ("def", "a file that runs .*SyntaxError"),
    ],
)
def test_bad_files_are_explained(outside, text, message):
    with pytest.raises(ValueError, match=message):
        load_file(outside(text))


def test_a_file_that_fails_halfway_leaves_nothing_behind(outside):
    with pytest.raises(ValueError, match="a file that runs"):
        load_file(outside(textwrap.dedent(OUTSIDE) + "1 / 0"))
    assert "leaky" not in names()


def test_missing_and_foreign_files_are_explained(outside, tmp_path):
    with pytest.raises(ValueError, match="a Python file that exists"):
        load_file(tmp_path / "none.py")
    with pytest.raises(ValueError, match=r"ends in \.py"):
        load_file(outside("x = 1", "rule.txt"))


def test_a_rule_without_its_step_is_refused_by_name(outside):
    text = textwrap.dedent(OUTSIDE)
    text = text[: text.index("    def step")]
    with pytest.raises(ValueError, match=r"Leaky.*a class with step\(\).*Define what is missing"):
        load_file(outside(text))
    assert "leaky" not in RULES
