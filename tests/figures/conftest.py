"""Small traces that every figure has to cope with."""

from __future__ import annotations

import pytest

from vla.rules import RULES, load_file, make, names
from vla.tokens import make_stream
from vla.trace import Trace, record

EXTERNAL = '''
from dataclasses import dataclass
from vla.rules import Rule, State, Token, Write, register
from vla.rules.base import outer


@register
@dataclass(frozen=True)
class Forgetful(Rule):
    """A rule that only knows the last pair."""

    name = "forgetful"
    title = "last pair only"
    equation = "S ← v kᵀ"
    source = "this test"
    colour = "#CC79A7"

    def step(self, state, token):
        write = Write(k=token.k, v=token.v, error=token.v, gain=token.k, residual=False,
                      decay=token.k[..., 0] * 0)
        return State(S=outer(token.v, token.k), step=state.step + 1, write=write)
'''


def plain_linear():
    """Linear attention as the additive memory of §1.1."""
    return make("linear", features="identity", unit=True, normalise_read=False)


@pytest.fixture(scope="session")
def trace() -> Trace:
    """Every built-in rule over correlated keys, queries at the end."""
    stream = make_stream("correlated", n=6, d=5, d_v=4, queries=2, rho=0.5)
    return record([*names(), make("vla", gain="oblique")], stream)


@pytest.fixture(scope="session")
def one_step() -> Trace:
    """The shortest stream there is."""
    return record([plain_linear(), "vla"], make_stream("gaussian", n=1, d=1, d_v=1, queries=0))


@pytest.fixture(scope="session")
def long() -> Trace:
    """A stream whose matrices are kept at few steps."""
    stream = make_stream("gaussian", n=2_050, d=4, d_v=4, queries=0)
    return record([plain_linear(), "rls"], stream, keep=7)


@pytest.fixture(scope="session")
def overwritten() -> Trace:
    """Keys written twice."""
    return record(["delta", "vla"], make_stream("words", text="cat: meow, dog: woof, cat: purr"))


@pytest.fixture
def external(tmp_path) -> Trace:
    """A rule that came from a file, beside a built-in one."""
    path = tmp_path / "forgetful.py"
    path.write_text(EXTERNAL)
    before = dict(RULES)
    load_file(path)
    yield record(["forgetful", "vla"], make_stream("gaussian", n=4, d=3, d_v=3, queries=1))
    RULES.clear()
    RULES.update(before)
