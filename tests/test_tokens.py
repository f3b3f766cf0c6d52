"""Streams: their geometry, their seeds, and what they refuse."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vla.tokens import STREAMS, Stream, from_pairs, make_stream

GROWING = [name for name in STREAMS if name not in ("words", "orthogonal")]


def same(a, b):
    fields = ("k", "v", "q", "u", "writes", "key_id")
    return all(torch.equal(getattr(a, x), getattr(b, x)) for x in fields) and a.labels == b.labels


@pytest.mark.parametrize("name", STREAMS)
def test_same_seed_same_stream(name):
    assert same(make_stream(name, seed=3), make_stream(name, seed=3))
    assert make_stream(name).settings == STREAMS[name].defaults
    assert make_stream(name, seed=3).settings["seed"] == 3


@pytest.mark.parametrize("name", STREAMS)
def test_settings_make_the_stream_again(name):
    stream = make_stream(name, seed=11, d=13)
    assert same(make_stream(stream.name, **stream.settings), stream)


@pytest.mark.parametrize("name", [n for n in STREAMS if n != "words"])
def test_another_seed_is_another_stream(name):
    assert not same(make_stream(name, seed=3), make_stream(name, seed=4))


@pytest.mark.parametrize("name", GROWING)
@pytest.mark.parametrize("n", [13, 40])
def test_more_pairs_leave_the_first_ones_as_they_were(name, n):
    short, long = (make_stream(name, n=m, gate="random") for m in (12, n))
    for field in ("k", "v", "u", "beta"):
        assert torch.equal(getattr(short, field)[:12], getattr(long, field)[:12]), field


@pytest.mark.parametrize(
    ("name", "knob", "value"),
    [("gaussian", "queries", 9), ("correlated", "queries", 0), ("clustered", "d_v", 3),
     ("repeated", "values", "same")],
)  # fmt: skip
def test_one_knob_leaves_the_other_ingredients_alone(name, knob, value):
    plain, turned = make_stream(name), make_stream(name, **{knob: value})
    n = int(plain.writes.sum())
    assert torch.equal(plain.k[:n], turned.k[:n])
    assert torch.equal(plain.u[:n], turned.u[:n])


@pytest.mark.parametrize("name", ["correlated", "clustered", "near_duplicates", "drifting"])
def test_the_geometry_knob_leaves_the_values_alone(name):
    knob = {"correlated": {"rho": 0.1}, "clustered": {"spread": 1.0},
            "near_duplicates": {"epsilon": 0.5}, "drifting": {"degrees": 40.0}}[name]  # fmt: skip
    plain, turned = make_stream(name), make_stream(name, **knob)
    assert torch.equal(plain.v, turned.v)
    assert not torch.equal(plain.k, turned.k)


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_is_well_formed(name):
    stream = make_stream(name)
    n = len(stream)
    assert stream.k.shape == stream.q.shape == stream.u.shape == (n, stream.d)
    assert stream.v.shape == (n, stream.d_v)
    assert torch.allclose(stream.k.norm(dim=-1), torch.ones(n, dtype=torch.float64))
    assert torch.allclose(stream.u.norm(dim=-1), torch.ones(n, dtype=torch.float64))
    assert torch.equal(stream.q, stream.k)
    asks = ~stream.writes
    assert asks.any()
    assert all(
        label.startswith("? ") == bool(a) for label, a in zip(stream.labels, asks, strict=True)
    )
    assert all(t >= 0 for t in stream.expected())


def cosines(keys):
    return keys @ keys.mT


def test_orthogonal_keys_are_orthonormal():
    k = make_stream("orthogonal", n=16, d=16, queries=0).k
    assert torch.allclose(cosines(k), torch.eye(16, dtype=torch.float64), atol=1e-12)
    with pytest.raises(ValueError, match="at most d = 8 orthogonal keys"):
        make_stream("orthogonal", n=9, d=8)


@pytest.mark.parametrize("rho", [0.0, 0.6, 0.99])
def test_correlated_keys_have_cosine_rho(rho):
    c = cosines(make_stream("correlated", n=15, d=16, rho=rho, queries=0).k)
    wanted = rho + (1 - rho) * torch.eye(15, dtype=torch.float64)
    assert torch.allclose(c, wanted, atol=1e-12)
    crowded = cosines(make_stream("correlated", n=100, d=16, rho=rho, queries=0).k)
    off = crowded[torch.triu(torch.ones(100, 100), 1) > 0]
    assert abs(float(off.mean()) - rho) < 0.03


def test_clusters_are_tight_inside_and_apart_across():
    k = make_stream("clustered", n=12, clusters=3, spread=0.1, d=32, queries=0).k
    c = cosines(k)
    inside = torch.arange(12)[:, None] % 3 == torch.arange(12) % 3
    assert float(c[inside].min()) > 0.95
    assert float(c[~inside].max()) < 0.7


def test_repeated_keys_come_round_with_new_or_same_values():
    new = make_stream("repeated", n=9, distinct=3, queries=3)
    same_values = make_stream("repeated", n=9, distinct=3, values="same", queries=3)
    assert torch.equal(new.k[0], new.k[3])
    assert not torch.equal(new.v[0], new.v[3])
    assert torch.equal(same_values.v[0], same_values.v[6])
    assert new.key_id[:9].tolist() == [0, 1, 2] * 3
    assert sorted(new.expected()[9:]) == [6, 7, 8]


@pytest.mark.parametrize("d", [7, 8])
def test_drifting_keys_turn_by_the_angle(d):
    s = make_stream("drifting", n=9, distinct=1, degrees=10.0, d=d, queries=0)
    turned = (s.k[:-1] * s.k[1:])[:, : d // 2 * 2].sum(-1)
    planes = (s.k[:-1][:, : d // 2 * 2] ** 2).sum(-1)
    assert torch.allclose(turned / planes, torch.full((8,), math.cos(math.radians(10))).double())
    assert torch.equal(s.v[0], s.v[1])


def test_a_drifting_map_changes_the_values_only():
    still = make_stream("drifting", turns="map", degrees=0.0, queries=0)
    moving = make_stream("drifting", turns="map", degrees=20.0, queries=0)
    assert torch.equal(still.k, moving.k)
    assert torch.equal(still.v[0], moving.v[0])
    assert not torch.allclose(still.v[5], moving.v[5])


@pytest.mark.parametrize("epsilon", [1e-9, 0.01, 1.0])
def test_near_duplicates_are_twins_of_the_cosine_asked_for(epsilon):
    k = make_stream("near_duplicates", n=11, epsilon=epsilon, queries=0).k
    gap = (k[0:10:2] - k[1:11:2]).norm(dim=-1) ** 2 / 2
    assert torch.allclose(gap, torch.full((5,), epsilon).double(), rtol=1e-6)
    assert len(k) == 11


def test_words_are_decoded_and_overwritten():
    s = make_stream("words", text="cat: meow, dog: woof, cat: purr, ? cat, ? dog", d=12)
    assert s.labels == ("cat → meow", "dog → woof", "cat → purr", "? cat", "? dog")
    assert s.vocabulary.words == ("meow", "woof", "purr")
    assert s.vocabulary.nearest(s.v[s.expected()]) == ["meow", "woof", "purr", "purr", "woof"]
    assert s.writes.tolist() == [True, True, True, False, False]
    assert torch.equal(s.k[0], s.k[3])


def test_a_query_carries_no_value():
    s = make_stream("gaussian", queries=5)
    assert float(s.v[~s.writes].abs().max()) == 0


def test_more_queries_than_keys_go_round_again():
    s = make_stream("gaussian", n=3, queries=7)
    asked = s.key_id[3:].tolist()
    assert sorted(asked[:3]) == sorted(asked[3:6]) == [0, 1, 2]


def test_gates_are_drawn_only_when_asked_for():
    assert make_stream("gaussian").beta is None
    beta = make_stream("gaussian", gate="random").beta
    assert float(beta.min()) >= 0.1
    assert float(beta.max()) <= 1


def test_expected_is_minus_one_for_what_was_never_stored():
    s = from_pairs(torch.eye(3), torch.eye(3), key_id=[0, 1, 0])
    asked = Stream(**{**vars(s), "writes": torch.tensor([False, True, True])})
    assert asked.expected() == [-1, 1, 2]


def test_a_stream_of_ones_own_keeps_its_keys():
    k, v = 3 * torch.eye(4), torch.ones(4, 2)
    s = from_pairs(k, v, queries=2, seed=1)
    assert torch.equal(s.k[:4], k)
    assert len(s) == 6


def test_one_token_can_be_left_out():
    s = make_stream("words", gate="random")
    cut = s.without(1)
    assert len(cut) == len(s) - 1
    assert "dog → woof" not in cut.labels
    assert torch.equal(cut.beta, torch.cat([s.beta[:1], s.beta[2:]]))
    cut.check()


def test_precision_changes_everything_that_is_a_number():
    s = make_stream("gaussian", gate="random").to(torch.float32)
    assert {x.dtype for x in (s.k, s.v, s.q, s.u, s.beta)} == {torch.float32}


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"n": 0}, "n: got 0, wanted a whole number from 1 to 100000"),
        ({"n": 10**9}, "from 1 to 100000"),
        ({"n": 2.5}, "a whole number"),
        ({"n": True}, "a whole number"),
        ({"d": 100_000}, "from 1 to 256"),
        ({"d_v": 0}, "from 1 to 256"),
        ({"seed": -1}, "seed"),
        ({"queries": -1}, "queries"),
        ({"gate": "on"}, "one of 'none', 'random'"),
        ({"colour": 1}, "one of n, d, d_v, queries, gate, seed"),
    ],
)
def test_absurd_settings_state_the_limit(settings_, message):
    with pytest.raises(ValueError, match=message):
        make_stream("gaussian", **settings_)


@pytest.mark.parametrize("rho", [-0.1, 1.0, float("nan"), float("inf"), "0.5"])
def test_absurd_correlations_are_refused(rho):
    with pytest.raises(ValueError, match=r"rho: got .* a number from 0\.0 to 0\.999"):
        make_stream("correlated", rho=rho)


def test_too_many_tokens_in_all_are_refused():
    with pytest.raises(ValueError, match="at most 100000"):
        make_stream("gaussian", n=100_000, queries=1, d=1, d_v=1)


def test_unknown_streams_are_listed():
    with pytest.raises(ValueError, match="stream: got 'x', wanted one of 'words'"):
        make_stream("x")


def test_no_tokens_bad_shapes_and_nan_are_refused():
    with pytest.raises(ValueError, match="T = 0"):
        from_pairs(torch.empty(0, 3), torch.empty(0, 3))
    with pytest.raises(ValueError, match="of one length"):
        from_pairs(torch.eye(3), torch.eye(2))
    bad = torch.eye(3)
    bad[1, 1] = torch.nan
    with pytest.raises(ValueError, match="k: got 'NaN or infinity at token 1'"):
        from_pairs(bad, torch.eye(3))
    with pytest.raises(ValueError, match="v: got 'NaN or infinity at token 1'"):
        from_pairs(torch.eye(3), bad)


@pytest.mark.parametrize("name", STREAMS)
def test_parameter_tables_are_fit_for_controls(name):
    maker = STREAMS[name]
    assert maker.title
    assert maker.sentence.endswith(".")
    for p in maker.parameters:
        p.check(p.default)
        assert p.help.endswith("."), p.name
        if p.kind in ("int", "float"):
            assert p.low <= p.default <= p.high


@settings(deadline=None, max_examples=60)
@given(data=st.data(), name=st.sampled_from([n for n in STREAMS if n != "words"]))
def test_any_settings_in_range_make_a_stream_or_say_why_not(data, name):
    draws = {}
    for p in STREAMS[name].parameters:
        if p.kind == "int":
            draws[p.name] = data.draw(st.integers(int(p.low), min(int(p.high), 60)), label=p.name)
        elif p.kind == "float":
            draws[p.name] = data.draw(st.floats(p.low, p.high), label=p.name)
        else:
            draws[p.name] = data.draw(st.sampled_from(p.choices), label=p.name)
    if name == "orthogonal" and draws["n"] > draws["d"]:
        with pytest.raises(ValueError, match="orthogonal keys"):
            make_stream(name, **draws)
    elif name == "near_duplicates" and draws["d"] == 1:
        with pytest.raises(ValueError, match="twins"):
            make_stream(name, **draws)
    else:
        assert len(make_stream(name, **draws)) == draws["n"] + draws["queries"]
