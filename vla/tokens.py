"""Streams of tokens to step through: random geometries and typed word pairs.

Every ingredient (keys, values, u projection, gates, order of the queries) draws from a generator of
its own, seeded by ``(seed, ingredient)``. So turning one knob leaves the other ingredients as they
were; a larger ``n`` only appends pairs (the queries at the end may change); another ``d`` draws
everything anew.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from vla.errors import ArgumentError, require_choice, require_integer
from vla.typing import Bool, Float, Int, Tensor
from vla.words import ARROWS, Entry, Vocabulary, embed, parse_pairs

MAX_TOKENS = 100_000
MAX_WIDTH = 256
EXAMPLE_PAIRS = "cat: meow, dog: woof, cow: moo, cat: purr, ? cat, ? dog"


@dataclass(frozen=True)
class Stream:
    """One head's tokens, in order. Token ``t`` of the stream makes step ``t + 1`` of a trace.

    A token either writes its pair (``writes``) or only asks (a query: the memory is read with
    ``q`` and stays as it is). Every token has a ``q``; for a writing token it is its own key.
    """

    k: Float[Tensor, "t d"]
    v: Float[Tensor, "t dv"]
    q: Float[Tensor, "t d"]
    u: Float[Tensor, "t d"]
    """A seeded random projection of the key, for rules whose direction isn't the key itself."""
    writes: Bool[Tensor, "t"]
    key_id: Int[Tensor, "t"]
    """Which key a token writes or asks for. The same id twice means the pair is overwritten."""
    labels: tuple[str, ...]
    """What the token strip shows: ``cat → meow``, ``? cat``, ``k7``."""
    beta: Float[Tensor, "t"] | Float[Tensor, "t dv"] | None = None
    """Gate of each token; per value row in the authors' DeltaNet's own streams."""
    vocabulary: Vocabulary | None = None
    """The words behind ``v``, so that an answer can be decoded; ``None`` for unnamed values."""
    name: str = "custom"
    settings: dict[str, Any] = field(default_factory=dict)
    """What made this stream, seed included: enough to make it again."""
    source: Int[Tensor, "t"] | None = None
    """The token whose value a read should give back, −1 for none, where keys don't tell: in a
    trained layer a query also writes, and what it looks for was written under another key."""
    remarks: tuple[str, ...] = ()
    """A clause about each token, empty for most; ``()`` is none at all."""

    def __len__(self) -> int:
        return self.k.shape[0]

    @property
    def d(self) -> int:
        """Width of keys."""
        return self.k.shape[1]

    @property
    def d_v(self) -> int:
        """Width of values."""
        return self.v.shape[1]

    def expected(self) -> list[int]:
        """For each token, the token whose value a read should give back, −1 if never stored.

        It is the last write of the same key up to and including the token itself, or what
        ``source`` says.
        """
        if self.source is not None:
            return [int(place) for place in self.source]
        last: dict[int, int] = {}
        answer = []
        for t, (key, writes) in enumerate(
            zip(self.key_id.tolist(), self.writes.tolist(), strict=True)
        ):
            if writes:
                last[key] = t
            answer.append(last.get(key, -1))
        return answer

    def asks(self) -> list[bool]:
        """For each token whether its read is a question that has an answer to be compared with."""
        if self.source is not None:
            return [place >= 0 for place in self.source.tolist()]
        return [not writes for writes in self.writes.tolist()]

    def to(self, dtype: torch.dtype) -> Stream:
        """The same stream in another precision."""
        cast = {name: getattr(self, name).to(dtype) for name in ("k", "v", "q", "u")}
        beta = None if self.beta is None else self.beta.to(dtype)
        return replace(self, **cast, beta=beta)

    def without(self, token: int) -> Stream:
        """The same stream with one token left out: the other branch of a forked timeline."""
        require_integer("token", token, low=0, high=len(self) - 1)
        keep = torch.arange(len(self)) != token
        cut = {name: getattr(self, name)[keep] for name in _PER_TOKEN}
        beta = None if self.beta is None else self.beta[keep]
        labels = self.labels[:token] + self.labels[token + 1 :]
        remarks = self.remarks[:token] + self.remarks[token + 1 :]
        source = None if self.source is None else _source_without(self.source, token)
        return replace(self, **cut, beta=beta, labels=labels, remarks=remarks, source=source)

    def check(self) -> None:
        """Raise ``ValueError`` for no tokens, absurd sizes, ragged fields, NaN or infinity."""
        _require_size("stream", len(self), self.d, self.d_v)
        lengths = {name: len(getattr(self, name)) for name in (*_PER_TOKEN, "labels")}
        lengths |= {"source": len(self)} if self.source is None else {"source": len(self.source)}
        lengths |= {"remarks": len(self.remarks)} if self.remarks else {}
        if len(set(lengths.values())) != 1:
            raise ArgumentError("stream", lengths, "every field as long as k")
        if not self.k.shape == self.q.shape == self.u.shape:
            shapes = {name: tuple(getattr(self, name).shape) for name in ("k", "q", "u")}
            raise ArgumentError("stream", shapes, "k, q and u of one shape")
        for name in ("k", "v", "q", "u", "beta"):
            rows = getattr(self, name)
            if rows is not None and not rows.isfinite().all():
                first = int((~rows.reshape(len(self), -1).isfinite().all(-1)).nonzero()[0])
                raise ArgumentError(name, f"NaN or infinity at token {first}", "finite numbers")


_PER_TOKEN = ("k", "v", "q", "u", "writes", "key_id")


def _source_without(source: Int[Tensor, "t"], token: int) -> Int[Tensor, "s"]:
    """Places after the one left out move up; what pointed at it points at nothing."""
    kept = source[torch.arange(len(source)) != token]
    return torch.where(kept == token, -1, kept - (kept > token).long())


class Parameter(NamedTuple):
    """One knob of a stream maker: enough to draw a control, check a value, parse a URL."""

    name: str
    kind: str
    """``int``, ``float``, ``choice`` or ``text``."""
    default: Any
    low: float | None = None
    high: float | None = None
    help: str = ""
    choices: tuple[str, ...] = ()

    def check(self, value: Any) -> None:
        """Raise ``ValueError`` unless ``value`` fits; the message states the limits."""
        if self.kind == "int":
            require_integer(self.name, value, low=int(self.low or 0), high=int(self.high or 0))
        elif self.kind == "float":
            self._check_float(value)
        elif self.kind == "choice":
            require_choice(self.name, value, self.choices)
        elif not isinstance(value, str):
            raise ArgumentError(self.name, value, "text")

    def _check_float(self, value: Any) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        assert self.low is not None
        assert self.high is not None
        if not (number and self.low <= value <= self.high):
            raise ArgumentError(self.name, value, f"a number from {self.low} to {self.high}")


class StreamMaker(NamedTuple):
    """A kind of stream: what people read about it, its knobs, and the function behind it."""

    name: str
    title: str
    sentence: str
    parameters: tuple[Parameter, ...]
    build: Callable[[_Recipe], Stream]

    @property
    def defaults(self) -> dict[str, Any]:
        """Every parameter at its default."""
        return {p.name: p.default for p in self.parameters}


STREAMS: dict[str, StreamMaker] = {}
"""Name to maker, in the order in which apps show them."""


def make_stream(name: str, **settings: Any) -> Stream:
    """The named stream. Settings left out take the defaults of the maker's parameter table.

    Raises ``ValueError`` for an unknown stream, an unknown setting or a value out of its range.
    """
    require_choice("stream", name, STREAMS)
    maker = STREAMS[name]
    known = maker.defaults
    for setting in settings:
        if setting not in known:
            raise ArgumentError("setting", setting, f"one of {', '.join(known)}")
    full = {**known, **settings}
    for parameter in maker.parameters:
        parameter.check(full[parameter.name])
    stream = maker.build(_Recipe(name, full))
    stream.check()
    return stream


def from_pairs(
    k: Tensor,
    v: Tensor,
    *,
    key_id: Sequence[int] | None = None,
    queries: int = 0,
    seed: int = 0,
    name: str = "custom",
) -> Stream:
    """A stream from given keys ``[t, d]`` and values ``[t, d_v]``, such as a trained layer's own.

    Keys are used as given. ``key_id`` says which keys are the same (default: all different);
    ``queries`` asks for so many of the stored keys at the end. Raises ``ValueError`` for wrong
    shapes, NaN or infinity, T = 0.
    """
    if k.ndim != 2 or v.ndim != 2 or len(k) != len(v):
        got = f"k {tuple(k.shape)} and v {tuple(v.shape)}"
        raise ArgumentError("pairs", got, "k [t, d] and v [t, d_v] of one length")
    _require_size("pairs", len(k), k.shape[1], v.shape[1])
    require_integer("queries", queries, low=0, high=MAX_TOKENS)
    recipe = _Recipe(name, {"seed": seed, "queries": queries, "gate": "none"})
    ids = list(range(len(k))) if key_id is None else list(key_id)
    stream = recipe.finish(k, v, ids)
    stream.check()
    return stream


def edited(stream: Stream, token: int, text: str = "") -> Stream:
    """The same stream with another pair at one token: what a fork's other branch stores there.

    In a stream of words ``text`` is the new value, or ``key: value``; left out, it is the first
    other value that the stream knows. In any other stream the token gets a fresh value, drawn by
    the stream's seed. Raises ``ValueError`` for a token that only asks, for text that isn't a pair,
    and for a key whose loss leaves a later query without an answer.
    """
    require_integer("token", token, low=0, high=len(stream) - 1)
    if not stream.writes[token]:
        raise ArgumentError("token", f"{token}, which only asks", "a token that stores")
    if stream.vocabulary is not None and stream.name == "words":
        return _edited_words(stream, token, text)
    seed = {"seed": stream.settings.get("seed", 0)}
    fresh = _Recipe("edit", seed).normal(f"edit {token}", 1, stream.d_v)[0]
    v = stream.v.clone()
    v[token] = (fresh / fresh.norm() * v[token].double().norm()).to(v.dtype)
    labels = list(stream.labels)
    labels[token] = f"{labels[token]}, another value"
    return replace(stream, v=v, labels=tuple(labels))


def _edited_words(stream: Stream, token: int, text: str) -> Stream:
    entries = parse_pairs(stream.settings["text"])
    old = entries[token]
    known = [entry.value for entry in entries if entry.value not in (None, old.value)]
    text = text.strip() or (known[0] if known and known[0] else "something else")
    pair = text if any(mark in text for mark in (":", *ARROWS)) else f"{old.key}: {text}"
    new = parse_pairs(pair)
    if len(new) != 1 or new[0].asks:
        raise ArgumentError("edit", text, "one value, or key: value")
    entries[token] = new[0]
    line = ", ".join(f"? {e.key}" if e.asks else f"{e.key}: {e.value}" for e in entries)
    other = make_stream("words", **{**stream.settings, "text": line})
    return replace(other, beta=stream.beta)


@dataclass(frozen=True)
class _Recipe:
    """A maker's settings, and the draws made from them."""

    name: str
    settings: dict[str, Any]

    def __getitem__(self, setting: str) -> Any:
        return self.settings[setting]

    def normal(self, ingredient: str, *shape: int) -> Tensor:
        """Gaussian numbers of one ingredient; more rows leave the first rows as they were."""
        return torch.from_numpy(self._generator(ingredient).standard_normal(shape))

    def units(self, ingredient: str, *shape: int) -> Tensor:
        """Rows of unit length, uniform on the sphere."""
        return _unit(self.normal(ingredient, *shape))

    def basis(self, ingredient: str, d: int) -> Tensor:
        """A random orthonormal basis, row by row."""
        return torch.linalg.qr(self.normal(ingredient, d, d)).Q.mT.contiguous()

    def finish(
        self,
        keys: Tensor,
        values: Tensor,
        ids: Sequence[int],
        *,
        latest: bool = False,
        labels: Sequence[str] | None = None,
    ) -> Stream:
        """Pairs into a stream: queries over stored keys at the end, then u and gates."""
        ids = list(ids)
        asked = self._asked(ids, latest=latest)
        last = {key: t for t, key in enumerate(ids)}
        source = torch.tensor([*range(len(ids)), *(last[key] for key in asked)])
        written = list(labels or (f"k{key}" for key in ids))
        return self._stream(
            keys[source],
            values[source],
            writes=torch.arange(len(source)) < len(ids),
            key_id=torch.tensor([*ids, *asked]),
            labels=(*written, *(f"? k{key}" for key in asked)),
        )

    def _stream(self, k: Tensor, v: Tensor, writes: Tensor, **rest: Any) -> Stream:
        d = k.shape[1]
        u = _unit(k.double() @ self.normal("u", d, d).mT).to(k.dtype)
        v = torch.where(writes[:, None], v, 0.0)
        return Stream(
            k=k, v=v, q=k.clone(), u=u, writes=writes, beta=self._gates(len(k), k.dtype),
            name=self.name, settings=dict(self.settings), **rest,
        )  # fmt: skip

    def _asked(self, ids: list[int], *, latest: bool) -> list[int]:
        distinct = list(dict.fromkeys(ids))
        count = self.settings["queries"]
        if latest:
            newest = list(dict.fromkeys(reversed(ids)))
            return [newest[i % len(newest)] for i in range(count)]
        rounds = math.ceil(count / len(distinct))
        generator = self._generator("queries")
        order = [distinct[i] for _ in range(rounds) for i in generator.permutation(len(distinct))]
        return order[:count]

    def _gates(self, length: int, dtype: torch.dtype) -> Tensor | None:
        if self.settings["gate"] == "none":
            return None
        return torch.from_numpy(self._generator("beta").uniform(0.1, 1.0, length)).to(dtype)

    def _generator(self, ingredient: str) -> np.random.Generator:
        return np.random.default_rng([self.settings["seed"], zlib.crc32(ingredient.encode())])


_SEED = Parameter("seed", "int", 7, 0, 2**31 - 1, "Same seed, same stream.")
_D = Parameter("d", "int", 16, 1, MAX_WIDTH, "Width of keys; a memory holds about d pairs.")
_D_V = Parameter("d_v", "int", 16, 1, MAX_WIDTH, "Width of values.")
_N = Parameter("n", "int", 12, 1, MAX_TOKENS, "How many pairs are written.")
_QUERIES = Parameter("queries", "int", 4, 0, MAX_TOKENS, "How many stored keys are asked for.")
_GATE = Parameter(
    "gate", "choice", "none", help="Write gate β: none, or drawn from 0.1 to 1 for every token.",
    choices=("none", "random"),
)  # fmt: skip
_COMMON = (_N, _D, _D_V, _QUERIES, _GATE, _SEED)

_Builder = Callable[[_Recipe], Stream]


def _maker(title: str, sentence: str, *own: Parameter, common: tuple = _COMMON) -> Callable:
    def enter(build: _Builder) -> _Builder:
        name = build.__name__.strip("_")
        STREAMS[name] = StreamMaker(name, title, sentence, (*own, *common), build)
        return build

    return enter


@_maker(
    "typed words",
    "Your own pairs; a query is answered by the nearest word.",
    Parameter(
        "text", "text", EXAMPLE_PAIRS, help="Pairs and queries, commas between: cat: meow, ? cat."
    ),
    Parameter("similarity", "float", 0.0, 0.0, 0.99, "Cosine mixed into every two words."),
    common=(_D, _GATE, _SEED),
)
def _words(recipe: _Recipe) -> Stream:
    entries = parse_pairs(recipe["text"])
    if not any(not entry.asks for entry in entries):
        raise ArgumentError("pairs", recipe["text"], "at least one pair to store")
    similarity, d = recipe["similarity"], recipe["d"]
    values = list(dict.fromkeys(entry.value for entry in entries if entry.value is not None))
    vocabulary = Vocabulary(tuple(values), embed(values, d, similarity=similarity))
    ids = {key: i for i, key in enumerate(dict.fromkeys(entry.key for entry in entries))}
    return replace(
        recipe._stream(
            embed([entry.key for entry in entries], d, similarity=similarity),
            _value_rows(entries, vocabulary),
            writes=torch.tensor([not entry.asks for entry in entries]),
            key_id=torch.tensor([ids[entry.key] for entry in entries]),
            labels=tuple(entry.label for entry in entries),
        ),
        vocabulary=vocabulary,
    )


def _value_rows(entries: list[Entry], vocabulary: Vocabulary) -> Tensor:
    rows = {word: i for i, word in enumerate(vocabulary.words)}
    return vocabulary.vectors[[rows.get(entry.value or "", 0) for entry in entries]]


@_maker("random", "Keys in random directions: nearly orthogonal until n comes near d.")
def _gaussian(recipe: _Recipe) -> Stream:
    n, d, d_v = recipe["n"], recipe["d"], recipe["d_v"]
    return recipe.finish(recipe.units("keys", n, d), recipe.units("values", n, d_v), range(n))


@_maker("orthogonal", "Keys that don't meet: every rule that corrects recalls them exactly.")
def _orthogonal(recipe: _Recipe) -> Stream:
    n, d = recipe["n"], recipe["d"]
    if n > d:
        raise ArgumentError("n", n, f"at most d = {d} orthogonal keys", "Raise d or lower n.")
    values = recipe.units("values", n, recipe["d_v"])
    return recipe.finish(recipe.basis("keys", d)[:n], values, range(n))


@_maker(
    "correlated",
    "Any two keys have cosine ρ: the nearer to 1, the harder to tell apart.",
    Parameter("rho", "float", 0.6, 0.0, 0.999, "Cosine between any two keys (exact for n < d)."),
)
def _correlated(recipe: _Recipe) -> Stream:
    n, d, rho = recipe["n"], recipe["d"], recipe["rho"]
    basis = recipe.basis("keys", d)
    common, own = basis[:1], basis[1 : n + 1]
    if len(own) < n:
        extra = recipe.normal("more keys", n - len(own), d)
        own = torch.cat([own, _unit(extra - extra @ common.mT @ common)])
    keys = _unit(math.sqrt(rho) * common + math.sqrt(1 - rho) * own)
    return recipe.finish(keys, recipe.units("values", n, recipe["d_v"]), range(n))


@_maker(
    "clustered",
    "Keys in a few bunches: near twins inside a bunch, strangers across.",
    Parameter("clusters", "int", 3, 1, 100, "How many bunches."),
    Parameter("spread", "float", 0.3, 0.0, 3.0, "Size of a bunch against its distance from 0."),
)
def _clustered(recipe: _Recipe) -> Stream:
    n, d = recipe["n"], recipe["d"]
    centres = recipe.units("centres", recipe["clusters"], d)
    chosen = centres[torch.arange(n) % len(centres)]
    keys = _unit(chosen + recipe["spread"] / math.sqrt(d) * recipe.normal("keys", n, d))
    return recipe.finish(keys, recipe.units("values", n, recipe["d_v"]), range(n))


@_maker(
    "repeated",
    "A few keys again and again, with a new value each time or the same one.",
    Parameter("distinct", "int", 3, 1, 1000, "How many different keys."),
    Parameter(
        "values", "choice", "new", help="New values overwrite the old; same ones repeat.",
        choices=("new", "same"),
    ),
)  # fmt: skip
def _repeated(recipe: _Recipe) -> Stream:
    n, d = recipe["n"], recipe["d"]
    ids = torch.arange(n) % recipe["distinct"]
    keys = recipe.units("keys", recipe["distinct"], d)[ids]
    values = recipe.units("values", n, recipe["d_v"])
    return recipe.finish(keys, values if recipe["values"] == "new" else values[ids], ids.tolist())


@_maker(
    "drifting",
    "The world turns: a few keys rotate, or the map from keys to values does.",
    Parameter(
        "turns", "choice", "keys", help="What rotates: the keys, or the true map.",
        choices=("keys", "map"),
    ),
    Parameter("degrees", "float", 5.0, 0.0, 180.0, "Rotation per token, in every plane."),
    Parameter("distinct", "int", 3, 1, 1000, "How many keys rotate (for keys)."),
)  # fmt: skip
def _drifting(recipe: _Recipe) -> Stream:
    n, d, d_v = recipe["n"], recipe["d"], recipe["d_v"]
    angles = torch.arange(n, dtype=torch.float64) * math.radians(recipe["degrees"])
    if recipe["turns"] == "map":
        keys = recipe.units("keys", n, d)
        first = _unit(keys @ recipe.normal("map", d_v, d).mT)
        return recipe.finish(keys, _rotate(first, angles), range(n), latest=True)
    ids = torch.arange(n) % recipe["distinct"]
    keys = _rotate(recipe.units("keys", recipe["distinct"], d)[ids], angles)
    values = recipe.units("values", recipe["distinct"], d_v)[ids]
    return recipe.finish(keys, values, ids.tolist(), latest=True)


@_maker(
    "near_duplicates",
    "Keys in pairs of twins with cosine 1 − ε and different values: the adversary's stream.",
    Parameter("epsilon", "float", 0.01, 0.0, 1.0, "1 minus the cosine of two twins."),
)
def _near_duplicates(recipe: _Recipe) -> Stream:
    n, d = recipe["n"], recipe["d"]
    if d < 2:
        raise ArgumentError("d", d, "at least 2, so that twins can differ")
    couples = (n + 1) // 2
    first = recipe.units("keys", couples, d)
    other = recipe.normal("twins", couples, d)
    other = _unit(other - (other * first).sum(-1, keepdim=True) * first)
    cosine = 1 - recipe["epsilon"]
    second = cosine * first + math.sqrt(1 - cosine**2) * other
    keys = torch.stack([first, second], 1).reshape(-1, d)[:n]
    return recipe.finish(keys, recipe.units("values", n, recipe["d_v"]), range(n))


def _unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(x.dtype).tiny)


def _rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Turn row i by ``angles[i]`` in the planes (0, 1), (2, 3), …; an odd last coordinate stays."""
    even = x.shape[-1] // 2 * 2
    a, b = x[:, 0:even:2], x[:, 1:even:2]
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    turned = torch.stack([cos * a - sin * b, sin * a + cos * b], -1).reshape(len(x), even)
    return torch.cat([turned, x[:, even:]], -1)


def _require_size(name: str, length: int, d: int, d_v: int) -> None:
    if length == 0:
        raise ArgumentError(name, "no tokens (T = 0)", "at least one token")
    if length > MAX_TOKENS:
        raise ArgumentError(name, f"{length} tokens", f"at most {MAX_TOKENS}")
    if not (1 <= d <= MAX_WIDTH and 1 <= d_v <= MAX_WIDTH):
        raise ArgumentError(name, f"d = {d}, d_v = {d_v}", f"widths from 1 to {MAX_WIDTH}")
