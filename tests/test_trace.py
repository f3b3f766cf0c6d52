"""A trace against the same numbers worked out one step at a time, the slow and obvious way."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vla.rules import RULES, Rule, State, Token, make, names, register, transition
from vla.rules.vla import VLA
from vla.tokens import STREAMS as ALL_STREAMS
from vla.tokens import from_pairs, make_stream
from vla.trace import describe, record

LANES = {
    **{name: make(name) for name in names()},
    "published": VLA.as_published(),
    "run": VLA.as_run(),
    "exact": VLA.exact(),
    "oblique": VLA(gain="oblique", lambda0=1.0),
    "fixed": VLA(adaptive=False),
}
WORDS = "cat: meow, dog: woof, ? cat, cow: moo, cat: purr, ? cat, ? dog"
STREAMS = {
    "words": make_stream("words", text=WORDS, d=8),
    "gated": make_stream("repeated", n=14, distinct=6, d=7, d_v=5, queries=4, gate="random"),
    "twins": make_stream("near_duplicates", n=12, d=6, d_v=9, queries=3),
}


@pytest.fixture(scope="module", params=STREAMS)
def traced(request):
    return record(LANES, STREAMS[request.param])


@pytest.fixture(scope="module")
def recomputed(traced):
    """Every state of every lane, one step at a time."""
    return {name: slow_states(rule, traced.stream) for name, rule in LANES.items()}


def slow_states(rule, stream):
    """State after every step, queries skipped; entry 0 is empty."""
    states = [rule.init(stream.d, stream.d_v)]
    for t in range(len(stream)):
        beta = None if stream.beta is None else stream.beta[t]
        token = Token(stream.k[t], stream.v[t], beta, stream.u[t])
        states.append(rule.step(states[-1], token) if stream.writes[t] else states[-1])
    return states


@pytest.fixture(params=LANES)
def both(request, traced, recomputed):
    """A lane, its rule, the stream, and every state recomputed."""
    name = request.param
    return traced.lane(name), LANES[name], traced.stream, recomputed[name]


def close(got, wanted, tolerance=1e-11):
    return np.allclose(got, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


def test_matrices_are_the_rules_own(both):
    lane, _, stream, states = both
    assert lane.kept.tolist() == list(range(len(stream) + 1))
    assert close(lane.S, torch.stack([s.S for s in states]))
    if states[0].A is not None:
        assert close(lane.A, torch.stack([s.A for s in states]))


def test_vectors_are_what_the_step_used(both):
    lane, _, stream, states = both
    for step in range(1, len(states)):
        if not stream.writes[step - 1]:
            assert np.isnan(lane.error[step]).all()
            assert np.isnan(lane.k[step]).all()
            continue
        write = states[step].write
        for name in ("k", "v", "error", "gain"):
            assert close(getattr(lane, name)[step], getattr(write, name)), name
        assert close(lane.norm_error[step], write.error.norm())


def test_residual_is_value_minus_answer(both):
    lane, rule, stream, states = both
    for step in range(1, len(states)):
        if stream.writes[step - 1] and rule.name not in ("linear", "softmax"):
            answer = states[step - 1].S.numpy() @ lane.k[step]
            assert close(lane.error[step], stream.v[step - 1].numpy() - answer)


def test_norms_and_changes(both):
    lane, _, _, states = both
    S = [s.S for s in states]
    assert close(lane.norm_S, [x.norm() for x in S])
    assert close(lane.norm_dS[1:], [(b - a).norm() for a, b in itertools.pairwise(S)])


def test_M_is_the_sum_and_A_its_inverse(both):
    lane, rule, stream, states = both
    if states[0].A is None:
        assert lane.A is None
        assert lane.M is None
        assert np.isnan(lane.norm_A).all()
        return
    M = rule.lambda0 * np.eye(stream.d)
    for step, state in enumerate(states):
        if step and stream.writes[step - 1] and state.write.u is not None:
            u = state.write.u.numpy()
            M = M + np.outer(u, u)
            assert close(lane.delta[step], 1 + u @ states[step - 1].A.numpy() @ u)
        assert close(lane.M[step], M)
        assert close(lane.norm_M[step], np.linalg.norm(M))
        assert close(lane.norm_A[step], state.A.norm())
        assert close(lane.eigen_A[step], np.linalg.eigvalsh(state.A.numpy()), 1e-9)
        if not getattr(rule, "refresh_every", 0):
            assert close(lane.A[step] @ M, np.eye(stream.d), 1e-9)


def test_cosine_and_spectra(both):
    lane, _, stream, states = both
    P = torch.eye(stream.d, dtype=torch.float64)
    for step in range(1, len(states)):
        if not stream.writes[step - 1]:
            assert lane.spectral_svd[step] == lane.spectral_closed[step] == 1
            continue
        write = states[step].write
        J = transition(write)
        size = write.k.norm() * write.gain.norm()
        if size > 0:
            assert close(lane.cosine[step], write.k @ write.gain / size)
        P = P @ J
        assert close(lane.spectral_svd[step], torch.linalg.matrix_norm(J, 2).max(), 1e-9)
        assert close(lane.spectral_closed[step], lane.spectral_svd[step], 1e-7)
        assert close(lane.product_norm[step], torch.linalg.matrix_norm(P, 2).max(), 1e-9)


def test_reads_and_recall_go_through_the_rule(both, traced):
    lane, rule, stream, states = both
    for step, state in enumerate(states):
        if step:
            assert close(lane.read[step], rule.read(state, stream.q[step - 1]))
        for column, token in enumerate(traced.pairs):
            got = lane.recall[step, column]
            if token >= step:
                assert np.isnan(got)
                continue
            v = stream.v[token]
            assert close(got, (rule.read(state, stream.k[token]) - v).norm() / v.norm())


def test_mean_recall_leaves_out_what_was_overwritten(both, traced):
    lane, _, stream, _ = both
    for step in range(1, len(stream) + 1):
        last = {}
        for column, token in enumerate(traced.pairs):
            if token < step:
                last[int(stream.key_id[token])] = column
        assert close(lane.recall_mean[step], lane.recall[step, list(last.values())].mean())
    assert np.isnan(lane.recall_mean[0])


def test_overwritten_at_is_the_step_of_the_next_write(traced):
    ids, writes = traced.stream.key_id.tolist(), traced.stream.writes.tolist()
    for column, token in enumerate(traced.pairs):
        later = [t + 1 for t in range(token + 1, len(ids)) if writes[t] and ids[t] == ids[token]]
        assert traced.overwritten_at[column] == (later[0] if later else -1)


def test_ridge_distance_is_to_the_batch_least_squares_answer(both):
    lane, rule, stream, states = both
    if not rule.has_matrix:
        assert np.isnan(lane.ridge_distance[1:]).all()
        return
    lambda0 = rule.settings.get("lambda0", 0.1)
    weighted = stream.beta is not None and (rule.name == "rls" or rule == VLA.exact())
    rows, values = [], []
    for step in range(1, len(states)):
        if stream.writes[step - 1]:
            root = math.sqrt(float(stream.beta[step - 1])) if weighted else 1.0
            rows.append(root * states[step].write.k.numpy())
            values.append(root * stream.v[step - 1].numpy())
        stacked = np.vstack([*rows, math.sqrt(lambda0) * np.eye(stream.d)])
        wanted = np.vstack([*values, np.zeros((stream.d, stream.d_v))])
        best = np.linalg.lstsq(stacked, wanted, rcond=None)[0].T
        distance = np.linalg.norm(lane.S[step] - best) / np.linalg.norm(best)
        assert close(lane.ridge_distance[step], distance, 1e-9)


def test_only_exact_least_squares_never_parts_from_the_batch_answer(traced):
    for lane in traced.lanes:
        if lane.rule in ("rls", "exact"):
            assert lane.parts_at is None
            assert float(lane.ridge_distance.max()) < 1e-10
        elif lane.rule != "softmax":
            assert lane.parts_at == int(np.flatnonzero(lane.ridge_distance > 1e-6)[0])


def test_answers_are_words_and_verdicts_follow_them(both):
    lane, _, stream, _ = both
    if stream.vocabulary is None:
        assert set(lane.answers) == {""}
        return
    right = ["", "meow", "woof", "meow", "moo", "purr", "purr", "woof"]
    assert lane.correct[0] == -1
    for step in range(1, len(right)):
        assert lane.correct[step] == (lane.answers[step] == right[step])


def test_unnamed_answers_are_judged_by_the_nearest_stored_value():
    stream = make_stream("orthogonal", n=6, d=6, d_v=32, queries=6)
    assert record("rls", stream).lane("rls").correct.tolist() == [-1, *[1] * 12]
    crowded = make_stream("gaussian", n=20, d=4, queries=20)
    lane = record("delta", crowded).lane("delta")
    values = crowded.v[:20].numpy()
    for step in range(21, 41):
        nearest = int((values @ lane.read[step]).argmax())
        assert lane.correct[step] == (nearest == int(crowded.key_id[step - 1]))
    assert 0 < lane.correct[21:].mean() < 1


def test_row_zero_is_the_empty_memory(both):
    lane, _, stream, _ = both
    assert lane.norm_S[0] == 0
    assert lane.product_norm[0] == 1
    assert np.isnan(lane.spectral_svd[0])
    assert lane.answers[0] == ""
    if lane.A is not None:
        assert close(lane.norm_A[0] * lane.norm_M[0], stream.d)


def test_a_query_leaves_the_memory_alone(both):
    lane, _, stream, _ = both
    for step in np.flatnonzero(~stream.writes.numpy()) + 1:
        assert np.array_equal(lane.S[step], lane.S[step - 1])
        assert lane.norm_dS[step] == 0
        assert lane.product_norm[step] == lane.product_norm[step - 1]


def test_same_rule_twice_says_the_difference():
    trace = record(["vla", VLA(gain="rls"), VLA(gain="rls", lambda0=1.0)], STREAMS["words"])
    assert [lane.rule for lane in trace.lanes] == ["vla", "vla-2", "vla-3"]
    assert trace.lane("vla").title == "VLA (lambda0=0.1, gain=unit)"
    assert trace.lane("vla-3").title == "VLA (lambda0=1.0, gain=rls)"
    assert trace.lane("vla-2").settings["gain"] == "rls"
    assert {lane.colour for lane in trace.lanes} == {VLA.colour}


def test_lanes_may_be_named():
    trace = record({"mine": VLA(), "theirs": make("delta")}, STREAMS["words"])
    assert [(lane.rule, lane.title) for lane in trace.lanes] == [
        ("mine", "mine"),
        ("theirs", "theirs"),
    ]


def test_one_name_or_one_rule_is_a_list_of_one():
    assert len(record("vla", STREAMS["words"]).lanes) == 1
    assert len(record(VLA(), STREAMS["words"]).lanes) == 1
    with pytest.raises(KeyError):
        record("vla", STREAMS["words"]).lane("rls")


@pytest.mark.parametrize(
    ("dtype", "least", "most"), [("float32", 1e-9, 1e-4), ("bfloat16", 1e-5, 0.3)]
)
def test_lower_precision_parts_from_the_exact_answer(dtype, least, most):
    trace = record("rls", STREAMS["gated"], dtype=getattr(torch, dtype), tolerance=least)
    lane = trace.lane("rls")
    assert trace.dtype == dtype
    assert lane.S.dtype == np.float64
    assert lane.parts_at is not None
    assert least < np.nanmax(lane.ridge_distance) < most


@pytest.mark.usefixtures("unchecked")
def test_blocks_do_not_show():
    """Longer than a block of the recorder, and a first pair asked for after many blocks."""
    stream = make_stream("gaussian", n=600, d=6, d_v=4, queries=3)
    trace = record(["vla", "rls", "linear"], stream)
    for lane in trace.lanes:
        states = slow_states(make(lane.rule), stream)
        assert close(lane.S[-1], states[-1].S)
        assert close(lane.norm_S, [s.S.norm() for s in states])
        S = torch.stack([s.S for s in states])
        assert close(lane.norm_dS[1:], (S[1:] - S[:-1]).flatten(1).norm(dim=1))
    assert float(trace.lane("rls").ridge_distance.max()) < 1e-10


@pytest.mark.usefixtures("unchecked")
def test_long_streams_keep_matrices_within_the_bound_and_the_same_numbers():
    stream = make_stream("gaussian", n=300, d=8, d_v=8, queries=4)
    rules = ["vla", "rls", "delta", "softmax"]
    full, bound = record(rules, stream), 400_000
    thin = record(rules, stream, max_bytes=bound)
    for a, b in zip(full.lanes, thin.lanes, strict=True):
        kept = b.kept
        assert kept[0] == 0
        assert kept[-1] == 304
        assert 3 < len(kept) < 100
        for name in ("S", "A", "M", "recall"):
            if getattr(a, name) is not None:
                assert close(getattr(b, name), getattr(a, name)[kept])
        for name in (
            "norm_S",
            "norm_error",
            "cosine",
            "delta",
            "read",
            "spectral_closed",
            "norm_A",
        ):
            assert close(getattr(b, name), getattr(a, name)), name
        for name in ("spectral_svd", "product_norm", "recall_mean", "ridge_distance"):
            assert close(getattr(b, name)[kept], getattr(a, name)[kept]), name
            assert np.isnan(np.delete(getattr(b, name), kept)).all()
    matrices = (getattr(lane, x) for lane in thin.lanes for x in ("S", "A", "M", "recall"))
    assert sum(x.nbytes for x in matrices if x is not None) <= bound


def test_a_stream_that_only_asks_is_recorded():
    stream = from_pairs(torch.eye(3), torch.eye(3))
    asks = dataclasses.replace(stream, writes=torch.zeros(3, dtype=torch.bool))
    trace = record([*names(), VLA.as_run()], asks)
    assert len(trace.pairs) == 0
    for lane in trace.lanes:
        assert lane.correct.tolist() == [-1] * 4
        assert np.isnan(lane.recall_mean).all()
        assert float(np.abs(lane.read).max()) == 0


def test_a_zero_key_and_a_zero_value_are_recorded():
    k, v = torch.eye(4, dtype=torch.float64), torch.eye(4, dtype=torch.float64)
    k[1], v[2] = 0, 0
    lane = record("vla", from_pairs(k, v)).lane("vla")
    assert np.isnan(lane.cosine[2])
    assert lane.norm_dS[2] == 0
    assert np.isfinite(lane.recall[4]).all()


@settings(deadline=None, max_examples=10)
@given(data=st.data(), kind=st.sampled_from([x for x in ALL_STREAMS if x != "words"]))
def test_any_small_stream_is_recorded_and_the_two_spectra_agree(data, kind):
    knobs = {x: data.draw(st.integers(1, 5), label=x) for x in ("n", "d", "d_v")}
    gate = data.draw(st.sampled_from(("none", "random")))
    knobs["d"] += knobs["n"] + 1
    trace = record([*names(), VLA(gain="oblique")], make_stream(kind, gate=gate, **knobs))
    for lane in trace.lanes:
        assert np.allclose(lane.spectral_svd[1:], lane.spectral_closed[1:], rtol=1e-6)
        assert np.isfinite(lane.norm_S).all()
        assert np.isfinite(lane.recall[-1]).all()


@pytest.mark.parametrize("d_v", [1, 3])
def test_width_one_is_recorded(d_v):
    trace = record(LANES, make_stream("gaussian", n=3, d=1, d_v=d_v))
    for lane in trace.lanes:
        assert np.allclose(lane.spectral_svd[1:], lane.spectral_closed[1:], atol=1e-12)


def test_chosen_steps_are_kept():
    numbers = np.array([3, 5])
    assert record("vla", STREAMS["words"], keep=numbers).lanes[0].kept.tolist() == [0, 3, 5, 7]
    lane = record("vla", STREAMS["words"], keep=[3, 5]).lane("vla")
    assert lane.kept.tolist() == [0, 3, 5, 7]
    assert len(record("vla", STREAMS["words"], keep=3).lane("vla").kept) == 3


def test_an_exploding_memory_is_recorded_not_crashed_on():
    k = torch.randn(60, 96, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    stream = from_pairs(1e6 * k, torch.ones(60, 4, dtype=torch.float64))
    v2 = VLA(normalise_key=False, gain="rls", direction="token")
    lane = record(v2, stream).lane("vla")
    assert not np.isfinite(lane.norm_S[-1]) or lane.norm_S[-1] > 1e100
    assert lane.parts_at is not None


class _Scratch(Rule):
    title, equation, source, colour = "scratch", "S ← …", "a test", "#000000"


@pytest.fixture
def scratch():
    """Registers rules for one test."""
    before = dict(RULES)
    yield lambda cls: register(dataclasses.dataclass(frozen=True)(cls))
    RULES.clear()
    RULES.update(before)


def test_a_rule_that_tells_nothing_is_worked_out_from_its_states(scratch):
    class Silent(_Scratch):
        name = "silent"

        def step(self, state, token):
            return VLA().step(state, token)._replace(write=None)

        def init(self, *args, **kwargs):
            return VLA().init(*args, **kwargs)

        def features_of(self, x):
            return VLA().features_of(x)

    trace = record([scratch(Silent)(), "vla"], STREAMS["words"])
    silent, told = trace.lane("silent"), trace.lane("vla")
    for name in ("S", "A", "error", "norm_error", "norm_dS", "recall", "ridge_distance", "answers"):
        got, wanted = getattr(silent, name), getattr(told, name)
        assert got == wanted if name == "answers" else close(got, wanted), name
    assert close(silent.gain, told.gain, 1e-9)
    assert close(silent.cosine, told.cosine, 1e-9)
    assert np.isnan(silent.spectral_svd[1])


def test_a_rule_whose_change_is_no_single_write_has_no_gain(scratch):
    class Decaying(_Scratch):
        name = "decaying"

        def step(self, state, token):
            return State(S=0.5 * state.S + torch.outer(token.v, token.k))

    lane = record(scratch(Decaying)(), STREAMS["gated"]).lane("decaying")
    assert np.isnan(lane.gain[3]).all()
    assert np.isfinite(lane.norm_error[1:15]).all()


def test_a_rule_that_writes_in_place_does_not_spoil_the_record(scratch):
    class InPlace(_Scratch):
        name = "in_place"

        def step(self, state, token):
            state.S.add_(torch.outer(token.v - state.S @ token.k, token.k))
            return state

    trace = record([scratch(InPlace)(), "delta"], STREAMS["words"])
    assert close(trace.lane("in_place").S, trace.lane("delta").S)


def test_a_rule_whose_reads_do_not_batch_is_read_step_by_step(scratch):
    class Aging(_Scratch):
        name = "aging"

        def step(self, state, token):
            S = state.S + torch.outer(token.v - state.S @ token.k, token.k)
            return State(S=S, step=state.step + 1)

        def read(self, state, q):
            return super().read(state, q) / (1 + state.step)

    stream = STREAMS["twins"]
    rule = scratch(Aging)()
    lane = record(rule, stream).lane("aging")
    states = slow_states(rule, stream)
    for step in range(1, len(stream) + 1):
        assert close(lane.read[step], rule.read(states[step], stream.q[step - 1]))
        first = rule.read(states[step], stream.k[0]) - stream.v[0]
        assert close(lane.recall[step, 0], first.norm() / stream.v[0].norm())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rules": []}, "rules: got '0 rules', wanted 1 to 16"),
        ({"rules": ["vla"] * 17}, "17 rules"),
        ({"rules": ["nope"]}, "rule: got 'nope', wanted one of"),
        ({"keep": [99]}, "keep: got 99, wanted a whole number from 0 to 7"),
        ({"keep": 1}, "keep: got 1"),
        ({"max_bytes": 100}, "max_bytes: got 100, wanted at least"),
        ({"keep": [1, 2, 3, 4, 5], "max_bytes": 5000}, "keep: got '7 steps', wanted at most"),
        ({"tolerance": 0.0}, "tolerance"),
        ({"dtype": torch.float16}, "dtype: got torch.float16, wanted one of torch.float64"),
    ],
)
def test_bad_requests_are_explained(options, message):
    options = {"rules": "vla", **options}
    with pytest.raises(ValueError, match=message):
        record(options.pop("rules"), STREAMS["words"], **options)


def test_bad_streams_are_explained():
    stream = STREAMS["gated"]
    nothing = {x: getattr(stream, x)[:0] for x in ("k", "v", "q", "u", "writes", "key_id", "beta")}
    with pytest.raises(ValueError, match="T = 0"):
        record("vla", dataclasses.replace(stream, labels=(), **nothing))
    beta = stream.beta.clone()
    beta[2] = torch.nan
    with pytest.raises(ValueError, match="beta: got 'NaN or infinity at token 2'"):
        record("vla", dataclasses.replace(stream, beta=beta))
    with pytest.raises(ValueError, match="every field as long as k"):
        record("vla", dataclasses.replace(stream, labels=("a",)))


def test_a_growing_cache_and_wide_rows_have_limits():
    long = make_stream("gaussian", n=10_001, d=1, d_v=1, queries=0)
    with pytest.raises(ValueError, match="at most 10000 for 'softmax'"):
        record(["vla", "softmax"], long)
    wide = make_stream("gaussian", n=10_000, d=256, d_v=256, queries=0)
    with pytest.raises(ValueError, match="GiB of vectors', wanted at most 2"):
        record(["vla"] * 16, wide)


def test_sentences_say_what_the_step_did():
    trace = record(["vla", "gated_delta"], STREAMS["words"])
    say = [describe(trace, "vla", step) for step in range(len(trace))]
    lane = trace.lane("vla")
    assert say[0] == "The memory is empty."
    assert say[1].startswith("cat → meow is written: error 1; k·α̂ = 1; δ = ")
    assert f"It now reads back with error {lane.recall[4, 2]:.3g}." in say[4]
    assert say[3] == "cat is asked: the answer is meow, right."
    assert say[6] == "cat is asked: the answer is purr, right."
    assert "reads back worse: error" in say[4]
    assert describe(trace, lane, 2) == say[2]
    assert "cat" not in say[5].split("It now")[1]
    with pytest.raises(IndexError):
        describe(trace, "vla", 8)


def test_sentences_name_the_wrong_answer_and_the_right_one():
    stream = make_stream("words", text="a: x, b: y, c: z, d: w, ? a", d=2)
    trace = record("gated_delta", stream)
    assert trace.lanes[0].correct[-1] == 0
    answer = trace.lanes[0].answers[-1]
    assert describe(trace, "gated_delta", 5) == (
        f"a is asked: the answer is {answer}, wrong, but x was stored."
    )


def test_sentences_of_unnamed_values_and_thin_traces():
    stream = make_stream("gaussian", n=8, queries=2)
    trace = record("vla", stream, keep=[4])
    assert describe(trace, "vla", 9).endswith("is right; the memory stays as it is.")
    assert "reads back" not in describe(trace, "vla", 4)
