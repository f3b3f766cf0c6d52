"""Trained checkpoints, and what one head of them stores on an MQAR row.

Checkpoints are the ``*.safetensors`` files of ``data/checkpoints`` (or of the folder that
``$VLA_CHECKPOINTS`` names), known by their names without the ending. A row is ``k v k v …``, then
(in the protocols that have one) a separator, then queries.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from vla.errors import ArgumentError, require_choice, require_integer
from vla.tokens import Stream
from vla.typing import Float, Tensor
from vla.words import Vocabulary

if TYPE_CHECKING:
    from vla.nn import TinyLM
    from vla.rules import Rule
    from vla.tasks import Task

MAX_ROW = 256
"""Tokens of a row that is stepped."""
MAX_PAIRS = 64

_HERE = Path(__file__).resolve().parent
_PLACES = (_HERE / "_data" / "checkpoints", _HERE.parent / "data" / "checkpoints")


@dataclass(frozen=True, eq=False)
class Trained:
    """A checkpoint with the task it was trained on."""

    name: str
    model: TinyLM
    task: Task
    notes: dict[str, Any]

    @property
    def layers(self) -> int:
        """How many layers it has."""
        return self.model.config.layers

    @property
    def heads(self) -> int:
        """How many heads each layer has."""
        return self.model.config.heads

    @property
    def most_tokens(self) -> int:
        """The longest row that it takes and that is stepped here."""
        config = self.model.config
        return MAX_ROW if config.positions == "none" else min(MAX_ROW, config.max_length)

    @property
    def most_pairs(self) -> int:
        """The largest load whose row it takes."""
        each = 4 if self.task.name == "mqar_fair" else 3
        low, high = self.task.keys  # type: ignore[attr-defined]
        return max(1, min(MAX_PAIRS, (self.most_tokens - each % 2) // each, high - low))

    def rule(self, layer: int) -> Rule:
        """The rule that this layer runs, for tokens as :func:`head_stream` gives them."""
        require_integer("layer", layer, low=0, high=self.layers - 1)
        return self.model.blocks[layer].mixer.rule()  # type: ignore[union-attr, operator]


def folder() -> Path | None:
    """Where the checkpoints are; ``None`` if there is no such folder."""
    given = os.environ.get("VLA_CHECKPOINTS")
    places = (Path(given),) if given else _PLACES
    return next((place for place in places if place.is_dir()), None)


def names() -> list[str]:
    """The checkpoints at hand, in alphabetical order."""
    place = folder()
    return sorted(path.stem for path in place.glob("*.safetensors")) if place else []


def load(name: str) -> Trained:
    """A checkpoint by its name, kept in memory until its file changes.

    Raises ``ValueError`` where it is missing, damaged, or doesn't say which MQAR task it learned.
    """
    known = names()
    if not known:
        remedy = "Train one: vla sweep one --model vla_authors --weights data/checkpoints"
        raise ArgumentError("checkpoint", name, "a file in data/checkpoints", remedy)
    require_choice("checkpoint", name, known)
    place = folder()
    assert place is not None
    path = place / f"{name}.safetensors"
    return _load(path, path.stat().st_mtime_ns)


def row_of(trained: Trained, *, pairs: int = 0, seed: int = 0) -> tuple[int, ...]:
    """A row of the checkpoint's own task: fresh test data, the same for the same seed.

    ``pairs`` = 0 is the load it was trained on. Another load moves the queries to positions that a
    model with learned positions may not know.
    Raises ``ValueError`` for more pairs than the task has keys, or a row the model can't take.
    """
    from vla.tasks import seeded

    require_integer("pairs", pairs, low=0, high=trained.most_pairs)
    task = trained.task.with_(pairs=pairs) if pairs else trained.task
    tokens = task.sample(1, generator=seeded(seed, stream="test")).tokens[0].tolist()
    return _checked(trained, tokens)


def parse_row(trained: Trained, text: str) -> tuple[int, ...]:
    """Typed token numbers with spaces or commas between, ``|`` for the separator.

    Raises ``ValueError`` for anything else, numbers outside the vocabulary and long rows.
    """
    words = text.replace("|", f" {trained.task.separator} ").replace(",", " ").split()
    if not words or not all(re.fullmatch(r"\d{1,7}", word) for word in words):
        wanted = "token numbers such as 5 17 8 44 | 5"
        raise ArgumentError("tokens", text.strip(), wanted)
    return _checked(trained, [int(word) for word in words])


def edited_row(trained: Trained, tokens: tuple[int, ...], place: int, text: str) -> tuple[int, ...]:
    """The row with another token at one place; without a text, the next token of its kind.

    Raises ``ValueError`` for text that isn't one token of the vocabulary.
    """
    require_integer("fork at", place + 1, low=1, high=len(tokens))
    if text.strip():
        new = parse_row(trained, text)
        if len(new) != 1:
            raise ArgumentError("edit", text, "one token number")
        return (*tokens[:place], *new, *tokens[place + 1 :])
    other = tokens[place] + 1
    if other in (trained.task.separator, trained.model.config.vocab):
        other = tokens[place] - 1
    return (*tokens[:place], other, *tokens[place + 1 :])


def asked(task: Task, tokens: tuple[int, ...]) -> list[int]:
    """For each token the place of the value that it asks for; −1 for a token that asks nothing.

    A query is a stored key that comes again: after the separator, or, in a protocol without one,
    anywhere later. What is stored are the pairs ``k v k v …`` that the row begins with.
    """
    value_at, end = _stored(task, tokens)
    return [value_at.get(token, -1) if t >= end else -1 for t, token in enumerate(tokens)]


def head_stream(name: str, layer: int, head: int, tokens: tuple[int, ...]) -> Stream:
    """What one head gets on this row: its own keys, values, queries, u and gates.

    Every token writes, as in the layer, and reads with its own query; ``Stream.source`` says which
    token's value a query should give back, ``Stream.remarks`` what the whole model answers. The
    vocabulary are the values written before the queries, named by their tokens. So a head that
    finds nothing by a query may still belong to a model that answers it.

    A short convolution spreads a value over the tokens after it. There a head has a shift, the one
    at which most queries of this row find their value: ``settings["shift"]``, also in the remarks.
    Raises ``ValueError`` for a layer or head that the model lacks.
    """
    trained = load(name)
    require_integer("layer", layer, low=0, high=trained.layers - 1)
    require_integer("head", head, low=0, high=trained.heads - 1)
    row = _row(trained, tokens)
    stream, source, shift = row.streams[layer][head], row.source, row.shifts[layer][head]
    moved = [place + shift if 0 <= place < t - shift else place for t, place in enumerate(source)]
    stored = [t for t, place in enumerate(source) if place < 0 or t in moved]
    words = tuple(trained.task.symbol(tokens[max(t - shift, 0)]) for t in stored)
    text = " ".join(map(str, tokens))
    settings = {
        "checkpoint": name, "layer": layer, "head": head, "tokens": text, "shift": shift
    }  # fmt: skip
    later = f"; this head keeps a value {shift} token{'s' * (shift > 1)} later" if shift else ""
    return Stream(**{
        **vars(stream), "source": torch.tensor(moved), "name": "layer", "settings": settings,
        "remarks": tuple(said and said + later for said in row.remarks),
        "labels": _labels(trained.task, tokens, source),
        "vocabulary": Vocabulary(words, stream.v[stored].double()),
    })  # fmt: skip


@lru_cache(maxsize=8)
def _load(path: Path, changed: int) -> Trained:
    del changed
    return read(path)


def read(path: Path) -> Trained:
    """A checkpoint from any file. Raises ``ValueError`` as :func:`load` does."""
    from vla.nn import checkpoint
    from vla.train.config import RunConfig

    found = checkpoint.load(path)
    try:
        task = RunConfig.from_json(found.notes["run"]).task
    except (KeyError, TypeError, ValueError) as error:
        wanted = "notes that say how it was trained, as vla sweep --weights writes them"
        raise ArgumentError("checkpoint", path.stem, wanted) from error
    if not task.name.startswith("mqar"):
        raise ArgumentError("checkpoint", path.stem, f"one trained on MQAR, not on {task.name}")
    return Trained(path.stem, found.model.eval(), task, found.notes)


def _checked(trained: Trained, tokens: list[int]) -> tuple[int, ...]:
    most, config = trained.most_tokens, trained.model.config
    if not 1 <= len(tokens) <= most:
        raise ArgumentError("tokens", f"{len(tokens)} of them", f"1 to {most} for {trained.name}")
    if max(tokens) >= config.vocab:
        raise ArgumentError("tokens", max(tokens), f"numbers below {config.vocab}")
    return tuple(tokens)


def _stored(task: Task, tokens: tuple[int, ...]) -> tuple[dict[int, int], int]:
    """Where each stored key has its value, and the place at which the pairs end."""
    value_at: dict[int, int] = {}
    shared = task.name != "mqar_fair"
    end = tokens.index(task.separator) if shared and task.separator in tokens else len(tokens)
    for place in range(0, end - 1, 2):
        key, value = tokens[place : place + 2]
        if not shared and not _is_pair(task, key, value, value_at):
            return value_at, place
        value_at[key] = place + 1
    return value_at, end


def _is_pair(task: Task, key: int, value: int, value_at: dict[int, int]) -> bool:
    first, end = task.keys  # type: ignore[attr-defined]
    return first <= key < end <= value and key not in value_at


class _Row(NamedTuple):
    """What a model does with a row: every head's stream, and what it answers to each query."""

    streams: list[list[Stream]]
    source: list[int]
    remarks: tuple[str, ...]
    shifts: list[list[int]]


@lru_cache(maxsize=16)
@torch.no_grad()
def _row(trained: Trained, tokens: tuple[int, ...]) -> _Row:
    row = torch.tensor(tokens)
    said = trained.model(row[None])[0].argmax(-1).tolist()
    source = asked(trained.task, tokens)
    remarks = tuple(
        "" if place < 0 else _remark(trained.task, answer, tokens[place])
        for answer, place in zip(said, source, strict=True)
    )
    shifts = [
        [_shift(v, o, source, trained.model.config.short_conv) for v, o in zip(*layer, strict=True)]
        for layer in _values_and_reads(trained.model, row)
    ]
    return _Row(trained.model.streams(row), source, remarks, shifts)


def _values_and_reads(model: TinyLM, row: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Every layer's values and outputs, ``[h, t, dv]`` both."""
    x, layers = model.embed(row[None]), []
    for block in model.blocks:
        s = block.mixer.sequences(block.mixer_norm(x))  # type: ignore[union-attr, operator]
        read = block.mixer.attend(s)  # type: ignore[union-attr, operator]
        layers.append((s.v[0].movedim(1, 0), read[0].movedim(1, 0)))
        x = block(x)
    return layers


def _shift(
    v: Float[Tensor, "t dv"], read: Float[Tensor, "t dv"], source: list[int], taps: int
) -> int:
    """How many tokens after a value's own place most reads find it: 0 without a convolution."""
    queries = [t for t, place in enumerate(source) if place >= 0]
    if taps < 2 or not queries:
        return 0
    scores = read[queries] @ torch.nn.functional.normalize(v, dim=-1).mT
    later = torch.arange(len(v)) >= torch.tensor(queries)[:, None]
    found = scores.masked_fill(later, -torch.inf).argmax(-1) - torch.tensor(source)[queries]
    hits = [int((found == shift).sum()) for shift in range(taps)]
    return hits.index(max(hits))


def _remark(task: Task, said: int, wanted: int) -> str:
    verdict = "right" if said == wanted else "wrong"
    return f"the whole model answers {task.symbol(said)}, {verdict}"


def _labels(task: Task, tokens: tuple[int, ...], source: list[int]) -> tuple[str, ...]:
    """A value is named by its pair, a query by its question mark."""
    values = set(_stored(task, tokens)[0].values())
    words = [task.symbol(token) for token in tokens]
    return tuple(
        f"? {word}" if source[t] >= 0 else f"{words[t - 1]} → {word}" if t in values else word
        for t, word in enumerate(words)
    )
