"""A forked timeline against two timelines stepped by hand."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from vla.rules import RULES, State, Token
from vla.tokens import Stream, edited, from_pairs, make_stream
from vla.trace import Branch, Trace, fork, record, record_fork
from vla.trace.file import from_bytes, to_bytes

LANES = ("softmax", "linear", "gated_delta", "authors_delta", "delta", "vla", "rls")
STREAMS = {
    "words": make_stream("words", d=9, similarity=0.3),
    "gaussian": make_stream("gaussian", n=17, d=7, d_v=5, queries=5, gate="random"),
    "repeated": make_stream("repeated", n=14, d=6, d_v=6, queries=3),
}


def by_hand(rule: str, tokens: list[Token], d: int, d_v: int) -> list[State]:
    made = RULES[rule]()
    states = [made.init(d, d_v)]
    for token in tokens:
        states.append(made.step(states[-1], token))
    return states


def tokens(stream: Stream) -> list[Token]:
    beta = [None] * len(stream) if stream.beta is None else list(stream.beta)
    return [
        Token(stream.k[t], stream.v[t], beta[t], stream.u[t])
        for t in range(len(stream)) if stream.writes[t]
    ]  # fmt: skip


def branch(trace: Trace, rule: str) -> Branch:
    found = trace.lane(rule).branch
    assert found is not None
    return found


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("act", ["drop", "repeat", "edit"])
@pytest.mark.parametrize("token", [0, 2])
def test_both_branches_end_as_by_hand(name: str, act: str, token: int) -> None:
    stream = STREAMS[name]
    other = edited(stream, token) if act == "edit" else None
    trace = record_fork(LANES, fork(stream, act, token, other))
    main = tokens(stream)
    twin = {
        "drop": main[:token] + main[token + 1 :],
        "repeat": [*main[: token + 1], *main[token:]],
        "edit": tokens(other) if other is not None else [],
    }[act]
    for rule in LANES[1:]:
        S = by_hand(rule, main, stream.d, stream.d_v)[-1].S.numpy()
        other_S = by_hand(rule, twin, stream.d, stream.d_v)[-1].S.numpy()
        np.testing.assert_allclose(trace.lane(rule).S[-1], S, atol=1e-12)
        np.testing.assert_allclose(branch(trace, rule).D[-1], S - other_S, atol=1e-12)
        gap = branch(trace, rule).gap
        assert gap[-1] == pytest.approx(np.linalg.norm(S - other_S), abs=1e-12)
        first = token + 1 + (act == "repeat")
        assert trace.forked_at == first
        assert not gap[:first].any()
    assert np.isnan(branch(trace, "softmax").gap).all()


def test_the_clock_is_one() -> None:
    """After a drop the fork is one write behind, at the same step."""
    stream = STREAMS["gaussian"]
    trace = record_fork(["vla"], fork(stream, "drop", 4))
    cut = record(["vla"], stream.without(4)).lane("vla")
    lane = trace.lane("vla")
    twin = lane.S - branch(trace, "vla").D
    np.testing.assert_allclose(twin[5:], cut.S[4:], atol=1e-12)
    np.testing.assert_allclose(twin[4], cut.S[4], atol=1e-12)
    kept = [c for c in range(17) if c != 4]
    own = cut.recall[4:]
    np.testing.assert_allclose(branch(trace, "vla").recall[5:, kept], own, atol=1e-12)
    assert np.isnan(branch(trace, "vla").recall[:, 4]).all()
    assert branch(trace, "vla").answers == ("",) * len(trace)


def test_a_gap_heals_by_the_transitions_that_follow() -> None:
    """Delta rule: D_t = D_f Π (I − k kᵀ), whatever is written. Linear attention: for ever."""
    stream = make_stream("gaussian", n=120, d=5, d_v=4, queries=0)
    trace = record_fork(["linear", "delta"], fork(stream, "edit", 3, edited(stream, 3)))
    D = branch(trace, "delta").D[4]
    for t in range(4, 120):
        k = stream.k[t].numpy()
        D = D - np.outer(D @ k, k)
        np.testing.assert_allclose(branch(trace, "delta").D[t + 1], D, atol=1e-12)
    assert branch(trace, "delta").left < 0.05
    assert branch(trace, "linear").left == pytest.approx(1)
    np.testing.assert_allclose(np.diff(branch(trace, "linear").gap[4:]), 0, atol=1e-12)


def test_a_repeat_that_changes_nothing_is_never_apart() -> None:
    stream = make_stream("orthogonal", n=5, d=6, d_v=6)
    trace = record_fork(["delta", "linear"], fork(stream, "repeat", 1))
    assert branch(trace, "delta").left == pytest.approx(0, abs=1e-12)
    assert branch(trace, "linear").left == pytest.approx(1)
    assert trace.stream.labels[1:3] == ("k1", "fork: k1 again")
    assert not trace.stream.asks()[2]
    assert sum(trace.stream.asks()) == sum(stream.asks())


def test_the_dropped_word_is_asked_in_vain() -> None:
    trace = record_fork(["rls"], fork(STREAMS["words"], "drop", 1))
    lane, other = trace.lane("rls"), branch(trace, "rls")
    assert lane.answers[-1] == "woof"
    assert other.answers[-1] != "woof"
    assert other.correct[-1] == -1
    assert lane.correct[-1] == 1
    assert trace.stream.labels[1] == "dog → woof · fork: dropped"
    # The cat's second pair is dropped: the fork's right answer is the first one.
    again = branch(record_fork(["rls"], fork(STREAMS["words"], "drop", 3)), "rls")
    assert (again.answers[-2], again.correct[-2]) == ("meow", 1)


def test_words_are_edited() -> None:
    stream = STREAMS["words"]
    assert edited(stream, 1).labels[1] == "dog → meow"
    assert edited(stream, 1, "bark").labels[1] == "dog → bark"
    assert edited(stream, 1, "dog → wau").labels[1] == "dog → wau"
    assert torch.equal(edited(stream, 1, "bark").k, stream.k)
    gated = dataclasses.replace(stream, beta=torch.full((len(stream),), 0.3))
    assert torch.equal(edited(gated, 1).beta, gated.beta)  # type: ignore[arg-type]
    for text, says in (("a: b: c", "one key and one value"), ("x, y: z", "one key"),
                       ("pig: oink", "stored before it"), ("? dog: x", "got")):  # fmt: skip
        with pytest.raises(ValueError, match=says):
            edited(stream, 1, text)


def test_other_streams_get_a_value_of_the_same_length() -> None:
    stream = STREAMS["gaussian"]
    other = edited(stream, 3)
    assert torch.equal(other.k, stream.k)
    assert (other.v != stream.v).any(1).nonzero().flatten().tolist() == [3]
    assert float(other.v[3].norm()) == pytest.approx(float(stream.v[3].norm()))
    assert torch.equal(edited(stream, 3).v, other.v)
    assert not torch.equal(edited(stream, 4).v[4], other.v[3])


def test_a_source_moves_with_its_tokens() -> None:
    """As in a trained layer, where a query writes too."""
    stream = dataclasses.replace(
        from_pairs(torch.eye(5).double(), torch.eye(5).double()),
        source=torch.tensor([-1, -1, -1, 1, 2]),
    )
    assert stream.without(0).expected() == [-1, -1, 0, 1]
    assert stream.without(1).expected() == [-1, -1, -1, 1]
    twice = fork(stream, "repeat", 1).branch
    assert twice.expected() == [-1, -1, -1, -1, 1, 3]
    dropped = fork(stream, "drop", 2).branch
    assert dropped.expected() == [-1, -1, -1, 1, -1]
    assert record_fork(["vla"], fork(stream, "repeat", 1)).lane("vla").branch is not None


@pytest.mark.parametrize(
    ("act", "token", "says"),
    [("swap", 0, "one of 'edit'"), ("drop", 5, "a step that stores"), ("drop", 99, "from 1 to 6"),
     ("repeat", -1, "from 1 to 6"), ("edit", 0, "a stream of 6 tokens")],
)  # fmt: skip
def test_forks_that_cannot_be_are_refused(act: str, token: int, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        fork(STREAMS["words"], act, token)


def test_a_forked_trace_survives_its_file() -> None:
    trace = record_fork(["vla", "softmax"], fork(STREAMS["words"], "drop", 1))
    back = from_bytes(to_bytes(trace))
    assert back.forked_at == trace.forked_at
    assert back.stream.expected() == trace.stream.expected()
    for lane, same in zip(trace.lanes, back.lanes, strict=True):
        assert lane.branch is not None
        assert same.branch is not None
        for field in dataclasses.fields(Branch):
            np.testing.assert_array_equal(
                getattr(lane.branch, field.name), getattr(same.branch, field.name)
            )
