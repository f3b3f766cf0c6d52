"""Which write answers a query, and which one spoils it: a memory's read taken apart, exactly.

One layer's heads are run over one row of tokens. The last token asks. Its read is a sum over the
tokens before it (:func:`parts`), what a token's write does is seen by leaving that one write out
and running the rest again (:func:`reads_without`), and :class:`Query` carries both through the
rest of the model to logits.

Two ways to take a read apart, both exact:

* ``write``: ``S_T = Σ e_t α_tᵀ`` (times later decays), so token t adds ``e_t (α_t·q)``. Later
  writes correct earlier ones, so that a pair stored twice shows up twice.
* ``value``: the corrections are given to the values they correct. ``S_T = Σ v_t w_tᵀ`` with
  ``w_tᵀ = α_tᵀ J_{t+1} … J_T``, so token t adds ``v_t (w_t·q)``, as attention's weights do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F

from vla.errors import ArgumentError, require_choice, require_integer
from vla.nn.mixer import Mixer
from vla.nn.parts import AllHeadsNorm, HeadNorm
from vla.nn.tinylm import Block, TinyLM
from vla.rules import RULES, Rule, State, Token, Write, make, names
from vla.rules.base import matvec, outer
from vla.tokens import Stream
from vla.typing import Float, Int, Tensor

BY = ("write", "value")
MOST_TOKENS = 256
"""Tokens up to the query: leaving each out once takes time and memory that grow as their square."""


class Heads(NamedTuple):
    """Every head's own tokens of one layer, as the recurrence takes them."""

    k: Float[Tensor, "h t d"]
    v: Float[Tensor, "h t dv"]
    q: Float[Tensor, "h t d"]
    u: Float[Tensor, "h t d"]
    beta: Tensor | None
    """``[h, t]`` or ``[h, t, dv]``."""

    @classmethod
    def of(cls, streams: Sequence[Stream]) -> Heads:
        """A layer's streams, one per head (:meth:`vla.nn.TinyLM.streams`), in float64."""
        k, v, q, u = (
            torch.stack([getattr(stream, name) for stream in streams]).double()
            for name in ("k", "v", "q", "u")
        )
        gates = [stream.beta for stream in streams if stream.beta is not None]
        return cls(k, v, q, u, torch.stack(gates).double() if gates else None)

    def token(self, t: int) -> Token:
        """Token t of every head."""
        beta = None if self.beta is None else self.beta[:, t]
        return Token(self.k[:, t], self.v[:, t], beta, self.u[:, t])

    def only(self, head: int) -> Heads:
        """One head of them."""
        one = slice(head, head + 1)
        beta = None if self.beta is None else self.beta[one]
        return Heads(self.k[one], self.v[one], self.q[one], self.u[one], beta)

    @property
    def length(self) -> int:
        """Tokens, T."""
        return self.k.shape[1]


def start(rule: Rule, heads: Heads, *batch: int) -> State:
    """The rule's empty memory for every head, under further leading axes."""
    count, _, d = heads.k.shape
    return rule.init(d, heads.v.shape[-1], batch=(*batch, count), dtype=heads.k.dtype)


def reads(rule: Rule, heads: Heads) -> Float[Tensor, "h t dv"]:
    """What the memory answers to every token's own query, right after its write."""
    state, answers = start(rule, heads), []
    for t in range(heads.length):
        state = rule.step(state, heads.token(t))
        answers.append(rule.read(state, heads.q[:, t]))
    return torch.stack(answers, 1)


def parts(rule: Rule, heads: Heads, *, by: str = "write") -> Float[Tensor, "h t dv"]:
    """What each token adds to the last token's read; they sum to it.

    Raises ``ValueError`` for another ``by``, or a rule that doesn't tell its writes.
    """
    require_choice("by", by, BY)
    state, writes = start(rule, heads), []
    for t in range(heads.length):
        state = rule.step(state, heads.token(t))
        if state.write is None:
            raise ArgumentError("rule", rule.name, "a rule whose states say what was written")
        writes.append(state.write)
    q = heads.q[:, -1]
    if state.cache is not None:
        return _cached_parts(rule, state, q)
    return rule.read(state._replace(S=_memories(writes, by)), q).movedim(0, 1)


def _memories(writes: Sequence[Write], by: str) -> Float[Tensor, "t h dv d"]:
    """The last memory as a sum over tokens."""
    first = writes[0]
    made = torch.zeros(len(writes), *outer(first.v, first.gain).shape, dtype=first.v.dtype)
    for t, write in enumerate(writes):
        corrects = write.residual and by == "value"
        if t and (corrects or write.decay is not None):
            before = made[:t]
            taken = outer(matvec(before, write.k), write.gain.expand_as(before[..., 0, :]))
            made[:t] = _decayed(before, write.decay) - (taken if corrects else 0)
        made[t] = outer(write.v if by == "value" else write.error, write.gain)
    return made


def _decayed(S: Float[Tensor, "t h dv d"], decay: Tensor | None) -> Tensor:
    if decay is None:
        return S
    return S * (decay[..., None] if decay.ndim == 2 else decay[..., None, None])


def _cached_parts(rule: Rule, state: State, q: Float[Tensor, "h d"]) -> Float[Tensor, "h t dv"]:
    """A cache's read is linear in its values: unit values read the weights."""
    assert state.cache is not None
    keys, values = state.cache
    eye = torch.eye(keys.shape[1], dtype=keys.dtype).expand(len(keys), -1, -1)
    return rule.read(state._replace(cache=(keys, eye)), q)[..., None] * values


def reads_without(rule: Rule, heads: Heads) -> Float[Tensor, "i h t dv"]:
    """Every token's read if token i had not been written, for every i: a run each, exact.

    Token i itself still asks, of the memory before it. Run i equals the rule over the stream
    without that token. Raises ``ValueError`` for more than 256 tokens.
    """
    _require_short(heads.length)
    answers = torch.zeros(heads.length, *heads.v.shape, dtype=heads.v.dtype)
    whole, gapped = start(rule, heads), None
    for t in range(heads.length):
        token, q = heads.token(t), heads.q[:, t]
        if gapped is not None:
            gapped = rule.step(gapped, _repeated(token, t))
        # Up to its gap a run is the whole one.
        gapped = _joined(gapped, whole)
        answers[: t + 1, :, t] = rule.read(gapped, q)
        whole = rule.step(whole, token)
        answers[t + 1 :, :, t] = rule.read(whole, q)
    return answers


def _repeated(token: Token, times: int) -> Token:
    """The same token for every run."""
    k, v = token.k.expand(times, -1, -1), token.v.expand(times, -1, -1)
    beta = None if token.beta is None else token.beta.expand(times, *token.beta.shape)
    u = None if token.u is None else token.u.expand(times, *token.u.shape)
    return Token(k, v, beta, u)


def _joined(runs: State | None, one: State) -> State:
    """One run more, as the last of the first axis."""
    cache = None if one.cache is None else (one.cache[0][None], one.cache[1][None])
    S, A, z = (x if x is None else x[None] for x in (one.S, one.A, one.z))
    assert S is not None
    new = State(S=S, A=A, z=z, cache=cache, step=one.step)
    if runs is None:
        return new
    A, z = (None if x is None or y is None else torch.cat([x, y])
            for x, y in ((runs.A, new.A), (runs.z, new.z)))  # fmt: skip
    if runs.cache is not None and cache is not None:
        keys, values = (torch.cat(both) for both in zip(runs.cache, cache, strict=True))
        cache = (keys, values)
    return new._replace(S=torch.cat([runs.S, S]), A=A, z=z, cache=cache)


def _require_short(length: int) -> None:
    if length > MOST_TOKENS:
        wanted = f"at most {MOST_TOKENS} up to the query"
        raise ArgumentError(
            "tokens", f"{length} of them", wanted, "Ask earlier or shorten the row."
        )


@dataclass(frozen=True, eq=False)
class Query:
    """One row whose last token asks, and one layer of the model that answers it.

    The model is used in its own precision; float64 makes every statement here exact to rounding.
    ``head`` restricts what is left out or replaced to one head; ``None`` is all of them. Raises
    ``ValueError`` for no tokens or more than 256, tokens that the model doesn't have, a layer or
    head that isn't there.
    """

    model: TinyLM
    tokens: Int[Tensor, "t"]
    layer: int = 0
    head: int | None = None

    def __post_init__(self) -> None:
        config = self.model.config
        if self.tokens.ndim != 1 or not len(self.tokens):
            raise ArgumentError("tokens", tuple(self.tokens.shape), "one row of at least one token")
        _require_short(len(self.tokens))
        for token in self.tokens.tolist():
            require_integer("token", token, low=0, high=config.vocab - 1)
        require_integer("layer", self.layer, low=0, high=config.layers - 1)
        if self.head is not None:
            require_integer("head", self.head, low=0, high=config.heads - 1)

    @property
    def block(self) -> Block:
        """The layer with its feed-forward part."""
        block = self.model.blocks[self.layer]
        assert isinstance(block, Block)
        return block

    @property
    def mixer(self) -> Mixer:
        """The layer."""
        return self.block.mixer

    @cached_property
    @torch.no_grad()
    def logits(self) -> Float[Tensor, "vocab"]:
        """The answer."""
        return self.model(self.tokens[None])[0, -1]

    @cached_property
    def heads(self) -> Heads:
        """The layer's own keys, values, queries, u and gates."""
        return Heads.of(self.model.streams(self.tokens)[self.layer])

    @cached_property
    @torch.no_grad()
    def before(self) -> Float[Tensor, "1 t w"]:
        """What enters the layer."""
        x = self.model.embed(self.tokens[None])
        for block in list(self.model.blocks)[: self.layer]:
            x = block(x)
        return x

    @cached_property
    @torch.no_grad()
    def reads(self) -> Float[Tensor, "h t dv"]:
        """What every head answers at every token."""
        return self._run(reads)

    @torch.no_grad()
    def parts(self, by: str = "write") -> Float[Tensor, "h t dv"]:
        """What each token adds to each head's last read; see :func:`parts`."""
        return self._run(lambda rule, heads: parts(rule, heads, by=by))

    @torch.no_grad()
    def through(self, heads: Float[Tensor, "i h t dv"]) -> Float[Tensor, "i vocab"]:
        """The answers if the layer's heads had read this: all that comes after them, run again."""
        mixer, x = self.mixer, self.before
        heads = heads.to(x.dtype).movedim(1, 2)
        if self.layer == len(self.model.blocks) - 1:
            heads, x = heads[:, -1:], x[:, -1:]
        x = x + mixer.out(mixer.norm(heads).flatten(-2))
        x = _feed_forward(self.block, x)
        for block in list(self.model.blocks)[self.layer + 1 :]:
            x = block(x)
        return self.model.logits(self.model.norm(x[:, -1]))

    @cached_property
    @torch.no_grad()
    def without(self) -> Float[Tensor, "t vocab"]:
        """The answers with one token's write left out of the layer (or of the one head)."""
        return self.through(self._in_head(self._run(reads_without, axis=1)))

    @torch.no_grad()
    def under(self, rule: Rule, *, gates: bool = True) -> Float[Tensor, "vocab"]:
        """The answer if the layer (or the one head) ran another rule on the same k, v, q, u, β.

        ``gates=False`` leaves β out, for rules to which a gate means something else.
        """
        heads = self.heads if gates else self.heads._replace(beta=None)
        return self.through(self._in_head(reads(rule, heads)[None]))[0]

    def _run(self, work: Callable[[Rule, Heads], Tensor], axis: int = 0) -> Tensor:
        """All heads at once, or one by one where each has learned a λ0 of its own."""
        rules = [self.mixer.rule(head) for head in range(len(self.heads.k))]
        if all(rule == rules[0] for rule in rules):
            return work(rules[0], self.heads)
        return torch.cat([work(rule, self.heads.only(h)) for h, rule in enumerate(rules)], axis)

    def _in_head(self, changed: Float[Tensor, "i h t dv"]) -> Float[Tensor, "i h t dv"]:
        if self.head is None:
            return changed
        kept = self.reads.expand_as(changed).clone()
        kept[:, self.head] = changed[:, self.head]
        return kept

    @torch.no_grad()
    def readout(self, targets: Sequence[int]) -> Float[Tensor, "n h dv"]:
        """The direction in which a head's read raises each target's logit on the direct path.

        Both norms on the way, the heads' and the final one, are frozen at the scale they have here,
        and the feed-forward part and later layers are left aside, so the path is linear: a part's
        product with this direction is its share of the logit, and all shares and what doesn't come
        from this layer's reads add up to the logit.
        """
        final = self.model.norm
        rows = self.model.embedding.weight[list(targets)] * final.weight
        rows = rows - rows.mean(-1, keepdim=True)
        rows = rows / _spread(_last_hidden(self), final.eps)
        return _frozen_norm(self.mixer.norm, self.reads[:, -1], rows @ self.mixer.out.weight)

    def direct(self, targets: Sequence[int], *, by: str = "write") -> Float[Tensor, "n h t"]:
        """What each token's part adds to each target's logit on the direct path."""
        return torch.einsum("nhd,htd->nht", self.readout(targets), self.parts(by))


@torch.no_grad()
def _last_hidden(query: Query) -> Float[Tensor, "w"]:
    """The last token before the final norm."""
    x = query.before
    for block in list(query.model.blocks)[query.layer :]:
        x = block(x)
    return x[0, -1]


@dataclass(frozen=True, eq=False)
class Finding:
    """What became of one query, and which writes did it.

    ``rival`` is the token that was said, or, if that was right, the runner-up.
    """

    query: Query
    right: int
    by: str
    log_p: Float[Tensor, "vocab"]
    """Log-probability of every token as the answer."""
    rival: int
    shares: Float[Tensor, "h t"]
    """Each token's part of each head's read, along that read: they sum to 1 in every head."""
    direct: Float[Tensor, "2 h t"]
    """Each part's share of the logits of ``right`` and ``rival`` (:meth:`Query.readout`)."""
    log_p_without: Float[Tensor, "t"]
    """Log-probability of ``right`` with one token's write left out."""

    @property
    def said(self) -> int:
        """The model's answer."""
        return int(self.log_p.argmax())

    @property
    def correct(self) -> bool:
        """Whether it is the right one."""
        return self.said == self.right

    @property
    def effect(self) -> Float[Tensor, "t"]:
        """What leaving a write out does to the right answer's log-probability; > 0: it hurt."""
        return self.log_p_without - self.log_p[self.right]

    def ranked(self) -> list[int]:
        """Tokens by what their write did to the right answer, the most harmful first."""
        return self.effect.argsort(descending=True, stable=True).tolist()

    def margin(self, token: int) -> list[float]:
        """What a token's part adds to right against rival, head by head."""
        return (self.direct[0] - self.direct[1])[:, token].tolist()


def find(query: Query, right: int, *, by: str = "write") -> Finding:
    """Take one answer apart. Raises ``ValueError`` for an unknown token, or another ``by``."""
    require_integer("right", right, low=0, high=query.model.config.vocab - 1)
    log_p = query.logits.log_softmax(-1)
    first, second = log_p.topk(2).indices.tolist()
    rival = second if first == right else first
    taken, read = query.parts(by), query.reads[:, -1]
    size = read.square().sum(-1).clamp_min(torch.finfo(read.dtype).tiny)
    return Finding(
        query, right, by, log_p, rival,
        shares=torch.einsum("htd,hd->ht", taken, read) / size[:, None],
        direct=torch.einsum("nhd,htd->nht", query.readout([right, rival]), taken),
        log_p_without=query.without.log_softmax(-1)[:, right],
    )  # fmt: skip


@dataclass(frozen=True)
class Rival:
    """What another rule makes of the same keys, values and queries."""

    title: str
    said: int
    log_p: float
    """Log-probability of the right answer."""
    fault: str = ""
    """Why the rule, one from outside, could not be run; ``said`` is then −1."""


DECAYING = ("gated_delta", "authors_delta")
"""Rules whose gate is what remains of the old memory, not the weight of the new."""


def under_other_rules(query: Query, right: int) -> list[Rival]:
    """The same query with the layer's memory run by each rule, the layer's own first.

    Keys, values and queries are the layer's own, features and all; keys are brought to unit length
    where they aren't, for delta rules diverge otherwise. β goes to rules to which it means what it
    means to the layer: to those that decay it is what remains of the old memory. Without such a
    gate they are left out. λ0 and the read's normaliser are the layer's. u is the key.
    """
    own, beta = query.mixer.rule(), query.heads.beta
    rivals = [_rival(f"as trained: {own.title}", query.logits, right)]
    decays = own.name in DECAYING
    for title, rule in _others(query):
        fits = rule.name == own.name or (beta is not None and beta.ndim == 2)
        if rule.name in DECAYING and not (decays and fits):
            continue
        try:
            answer = query.under(rule, gates=decays == (rule.name in DECAYING))
        except Exception as error:  # A rule from outside may raise anything.
            fault = f"{type(error).__name__}: {error}".partition("\n")[0]
            rivals.append(Rival(title, -1, math.nan, fault))
        else:
            rivals.append(_rival(title, answer, right))
    return rivals


def _rival(title: str, logits: Float[Tensor, "vocab"], right: int) -> Rival:
    log_p = logits.log_softmax(-1)
    return Rival(title, int(log_p.argmax()), float(log_p[right]))


def _others(query: Query) -> list[tuple[str, Rule]]:
    config, keys = query.model.config, query.heads.k
    unit = bool(torch.allclose(keys.norm(dim=-1), torch.ones((), dtype=keys.dtype), atol=1e-4))
    wanted = {
        "features": "identity", "query_features": "identity", "normalise_key": not unit,
        "lambda0": config.lambda0 or 0.1, "normalise_read": bool(config.normalise_read),
    }  # fmt: skip
    made = []
    for name in names():
        known = {f.name for f in fields(RULES[name])}
        settings = {key: value for key, value in wanted.items() if key in known}
        if name == "softmax":
            settings["normalise_key"] = False
        for gain in ("unit", "oblique") if name == "vla" else ("",):
            more = {"gain": gain} if gain else {}
            title = RULES[name].title + (f", {gain} gain, u = key" if gain else "")
            made.append((title, make(name, **settings, **more)))
    return made


def _feed_forward(block: Block, x: Float[Tensor, "i t w"]) -> Float[Tensor, "i t w"]:
    if block.ffn_norm is None or block.up is None or block.down is None:
        return x
    return x + block.down(F.gelu(block.up(block.ffn_norm(x))))


def _spread(x: Tensor, eps: float) -> Tensor:
    """What a LayerNorm divides by."""
    return (x.var(correction=0) + eps).sqrt()


def _frozen_norm(
    norm: torch.nn.Module, read: Float[Tensor, "h dv"], rows: Float[Tensor, "n hdv"]
) -> Float[Tensor, "n h dv"]:
    """Rows that act on normalised heads, as rows that act on the heads themselves."""
    if isinstance(norm, AllHeadsNorm):
        scaled = rows * norm.weight
        rows = (scaled - scaled.mean(-1, keepdim=True)) / _spread(read.flatten(), norm.eps)
        return rows.unflatten(-1, read.shape)
    shaped = rows.unflatten(-1, read.shape)
    if isinstance(norm, HeadNorm):
        size = (read.square().mean(-1, keepdim=True) + norm.eps).sqrt()
        return shaped * norm.weight / size
    return shaped
