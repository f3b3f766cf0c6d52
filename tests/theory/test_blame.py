"""A read taken apart: parts sum to it, left-out writes equal a rerun, shares add up to logits."""

from __future__ import annotations

import pytest
import torch

from vla.errors import ArgumentError
from vla.nn import MODELS, TinyLM, build, model
from vla.rules import Rule, make
from vla.theory.blame import (
    BY,
    Heads,
    Query,
    find,
    parts,
    reads,
    reads_without,
    start,
    under_other_rules,
)  # fmt: skip
from vla.tokens import Stream, make_stream

T, D = 11, 5
RULES = {
    "softmax": make("softmax"),
    "linear": make("linear"),
    "delta": make("delta"),
    "gated_delta": make("gated_delta"),
    "authors_delta": make("authors_delta"),
    "vla": make("vla", direction="token", refresh_every=4),
    "vla as run": make("vla").as_run(),
    "rls": make("rls"),
    "oblique, unnormalised keys": make("vla", gain="oblique", normalise_key=False),
}


def some_heads(count: int = 3, *, rows: bool = False) -> tuple[list[Stream], Heads]:
    streams = [
        make_stream("gaussian", n=T, d=D, d_v=4, queries=0, gate="random", seed=seed)
        for seed in range(count)
    ]
    heads = Heads.of(streams)
    if rows:
        heads = heads._replace(beta=torch.rand(count, T, 4, dtype=torch.float64))
    return streams, heads


def last_read(rule: Rule, heads: Heads, tokens: list[int], q: torch.Tensor) -> torch.Tensor:
    """The plain loop over some of the tokens, head by head."""
    answers = []
    for h in range(len(heads.k)):
        one = Heads(*(x if x is None else x[h : h + 1] for x in heads))
        state = start(rule, one)
        for t in tokens:
            state = rule.step(state, one.token(t))
        answers.append(rule.read(state, q[h : h + 1])[0])
    return torch.stack(answers)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("name", RULES)
def test_parts_sum_to_the_read(name: str, by: str) -> None:
    rule, (_, heads) = RULES[name], some_heads(rows=name == "authors_delta")
    taken = parts(rule, heads, by=by)
    wanted = last_read(rule, heads, list(range(T)), heads.q[:, -1])
    assert torch.allclose(taken.sum(1), wanted, rtol=0, atol=1e-10)
    assert torch.allclose(reads(rule, heads)[:, -1], wanted, rtol=0, atol=1e-12)
    assert taken.abs().amax((0, 2)).min() > 0


@pytest.mark.parametrize("name", RULES)
def test_a_part_by_value_is_what_its_value_does(name: str) -> None:
    """The read is linear in the values: with all others at zero, only this part is left."""
    rule, (_, heads) = RULES[name], some_heads(rows=name == "authors_delta")
    taken = parts(rule, heads, by="value")
    for t in (0, 4, T - 1):
        alone = torch.zeros_like(heads.v)
        alone[:, t] = heads.v[:, t]
        wanted = last_read(rule, heads._replace(v=alone), list(range(T)), heads.q[:, -1])
        assert torch.allclose(taken[:, t], wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", RULES)
def test_left_out_equals_rerunning_without_the_token(name: str) -> None:
    rule, (_, heads) = RULES[name], some_heads(rows=name == "authors_delta")
    left = reads_without(rule, heads)
    for gone in range(T):
        kept = torch.arange(T) != gone
        cut = Heads(*(x if x is None else x[:, kept] for x in heads))
        own = last_read(rule, heads, list(range(gone)), heads.q[:, gone])
        assert torch.allclose(left[gone][:, kept], reads(rule, cut), rtol=0, atol=1e-10), gone
        assert torch.allclose(left[gone][:, gone], own, rtol=0, atol=1e-10), gone


def test_left_out_equals_the_stream_without_the_token() -> None:
    rule, (streams, heads) = RULES["vla"], some_heads()
    left = reads_without(rule, heads)
    for gone in (3, 7):
        cut = Heads.of([stream.without(gone) for stream in streams])
        assert torch.allclose(left[gone, :, -1], reads(rule, cut)[:, -1], rtol=0, atol=1e-10)


def small(name: str, **settings: object) -> TinyLM:
    shape = {"width": 12, "heads": 3, "ffn": 8, "vocab": 16, "max_length": 32, **settings}
    net = build(model(name, **shape), seed=3).double()
    with torch.no_grad():  # Weights at N(0, 0.02²) would leave the answer to the embedding.
        generator = torch.Generator().manual_seed(5)
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape, generator=generator).double())
    return net


def row(length: int = 13) -> torch.Tensor:
    return torch.randint(16, (length,), generator=torch.Generator().manual_seed(1))


MODELS_AND_NORMS = [*((name, {}) for name in MODELS), ("vla_exact", {"output_norm": "head"}),
                    ("vla_paper", {"short_conv": 3}), ("delta", {"ffn": 0}),
                    ("vla_authors", {"learned_lambda0": True})]  # fmt: skip


@pytest.mark.parametrize(("name", "settings"), MODELS_AND_NORMS)
@pytest.mark.parametrize("layer", [0, 1])
def test_heads_carried_on_give_the_models_answer(name: str, settings: dict, layer: int) -> None:
    query = Query(small(name, **settings), row(), layer)
    assert torch.allclose(query.through(query.reads[None])[0], query.logits, rtol=0, atol=1e-10)
    if settings.get("learned_lambda0"):
        assert len({query.mixer.rule(head).lambda0 for head in range(3)}) == 3
        return
    same = query.under(query.mixer.rule())
    assert torch.allclose(same, query.logits, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("name", "settings"), MODELS_AND_NORMS)
@pytest.mark.parametrize("by", BY)
def test_shares_and_the_rest_are_the_logit(name: str, settings: dict, by: str) -> None:
    """The rest is computed by itself: embedding and biases on the same frozen path."""
    net = small(name, **{**settings, "layers": 1, "ffn": 0})
    query = Query(net, row())
    shares = query.direct([2, 9], by=by)
    x = query.before[0, -1]
    mixed = net.blocks[0].mixer.out(net.blocks[0].mixer.norm(query.reads[None, :, -1]).flatten(-2))
    total = x + mixed[0]
    scale = (total.var(correction=0) + net.norm.eps).sqrt()
    bias = getattr(net.blocks[0].mixer.norm, "bias", None)
    rest = x if bias is None else x + net.blocks[0].mixer.out(bias)
    frozen = (rest - rest.mean()) / scale * net.norm.weight + net.norm.bias
    wanted = query.logits[[2, 9]] - net.embedding.weight[[2, 9]] @ frozen
    assert torch.allclose(shares.sum((1, 2)), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize(("layer", "head"), [(0, None), (1, 1)])
def test_a_write_left_out_of_a_model(layer: int, head: int | None) -> None:
    """Against a model whose mixer really skips the token."""
    net = small("vla_exact")
    query = Query(net, row(), layer, head)
    for gone in (0, 12):
        changed = query.reads.clone()
        for at in range(gone, 13):
            seen = [t for t in range(at + 1) if t != gone]
            read = last_read(query.mixer.rule(), query.heads, seen, query.heads.q[:, at])
            for h in range(3) if head is None else [head]:
                changed[h, at] = read[h]
        x = query.before + net.blocks[layer].mixer.out(
            net.blocks[layer].mixer.norm(changed.movedim(0, 1)[None]).flatten(-2)
        )
        block = net.blocks[layer]
        x = x + block.down(torch.nn.functional.gelu(block.up(block.ffn_norm(x))))
        for later in list(net.blocks)[layer + 1 :]:
            x = later(x)
        wanted = net.logits(net.norm(x))[0, -1]
        assert torch.allclose(query.without[gone], wanted, rtol=0, atol=1e-10)


def test_one_head_alone_is_replaced() -> None:
    net = small("delta")
    whole, one = (Query(net, row(), 1, head).under(make("linear")) for head in (None, 2))
    assert (whole - one).abs().max() > 1e-3


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"layer": 2}, "layer: got 2"),
        ({"head": 3}, "head: got 3"),
        ({"tokens": torch.tensor([3, 16])}, "token: got 16"),
        ({"tokens": torch.zeros(0, dtype=torch.long)}, "at least one token"),
        ({"tokens": torch.zeros(257, dtype=torch.long)}, "at most 256"),
    ],
)
def test_bad_queries_are_refused(change: dict, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        Query(**{"model": small("delta", max_length=512), "tokens": row(), **change})


def test_unknown_ways_and_tokens_are_refused() -> None:
    _, heads = some_heads()
    with pytest.raises(ArgumentError, match="'write', 'value'"):
        parts(make("delta"), heads, by="key")
    long = Heads(*(x if x is None else x.repeat_interleave(30, 1) for x in heads))
    with pytest.raises(ArgumentError, match="at most 256"):
        reads_without(make("delta"), long)


@pytest.mark.parametrize("by", BY)
def test_a_finding_adds_up(by: str) -> None:
    query = Query(small("vla_exact"), row(), 1)
    found = find(query, 7, by=by)
    assert torch.allclose(found.shares.sum(1), torch.ones(3).double(), rtol=0, atol=1e-10)
    assert found.log_p.exp().sum().item() == pytest.approx(1)
    assert found.rival == found.said or found.correct
    assert torch.equal(found.direct, query.direct([7, found.rival], by=by))
    worst = found.ranked()[0]
    assert found.effect[worst] == found.effect.max()
    without = query.without[worst].log_softmax(-1)[7] - query.logits.log_softmax(-1)[7]
    assert found.effect[worst].item() == pytest.approx(without.item())


@pytest.mark.parametrize("name", ["vla_exact", "authors_delta", "softmax", "linear"])
def test_other_rules_answer_too(name: str) -> None:
    query = Query(small(name), row(), 1)
    own, *others = under_other_rules(query, 7)
    assert own.said == int(query.logits.argmax())
    titles = [rival.title for rival in others]
    assert len(set(titles)) == len(titles) >= 5
    assert any("DeltaNet as" in title for title in titles) == (name == "authors_delta")
    assert all(rival.log_p < 0 for rival in others)


def test_the_same_rule_gives_the_same_answer() -> None:
    """A delta layer under the delta rule; exact weighted RLS is what the exact layer runs."""
    for name, title in (("delta", "DeltaNet"), ("vla_exact", "exact RLS")):
        own, *others = under_other_rules(Query(small(name), row(), 1), 7)
        same = next(rival for rival in others if rival.title == title)
        assert same.log_p == pytest.approx(own.log_p, abs=1e-9)
