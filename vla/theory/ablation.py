"""What a layer's switches do: to one stream's recall at once, and which of them act at all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from vla.errors import require_choice, require_integer
from vla.figures.runs import shown
from vla.nn import ModelConfig, name_of
from vla.nn.models import MODELS
from vla.nn.parts import ShortConv
from vla.nn.vla import VLA
from vla.rules import Token
from vla.tokens import Stream
from vla.train.presets import ABLATIONS
from vla.train.result import DONE, RunRow
from vla.typing import Float, Tensor


@dataclass(frozen=True, eq=False)
class Recall:
    """How well an untrained layer reads back the pairs it was given; step t is after t pairs."""

    error: Float[Tensor, "n n"]
    """``‖N(o) − N(v)‖/‖N(v)‖`` of each pair (column) after each write (row), N the layer's output
    norm; NaN for pairs not written yet."""
    right: Float[Tensor, "n"]
    """After each write, the share of pairs whose own value is the nearest in angle."""

    @property
    def mean(self) -> Float[Tensor, "n"]:
        """Mean error of the pairs stored by then."""
        return self.error.nanmean(1)


@torch.no_grad()
def recall(config: ModelConfig, stream: Stream, *, seed: int = 0) -> Recall:
    """Give a stream's pairs to one head of the layer, untrained, and ask for all after each write.

    The head is the real layer (:class:`vla.nn.VLA`) in float64 whose projections pass keys, values
    and queries on as they are; W_u, W_β and the taps of the convolution are as drawn by ``seed``.
    Queries stand after the pairs, in the pairs' order, so a convolution sees other neighbours there
    than it saw at the write. Raises ``ValueError`` for a mixer other than VLA, or no pairs.
    """
    require_choice("mixer", config.mixer, ("vla",))
    k, v = stream.k[stream.writes].double(), stream.v[stream.writes].double()
    require_integer("pairs", len(k), low=1)
    layer = _passing(config, k.shape[1], v.shape[1], seed)
    written, asked = torch.cat([k, k, v], 1), torch.cat([k, k, torch.zeros_like(v)], 1)
    s = layer.sequences(torch.cat([written, asked])[None])
    u, rule = layer.directions(s)[0, :, 0], layer.rule()
    state, rows = rule.init(k.shape[1], v.shape[1]), []
    for t in range(len(k)):
        beta = None if s.gate is None else s.gate[0, t, 0]
        state = rule.step(state, Token(s.k[0, t, 0], s.v[0, t, 0], beta, u[t]))
        answers = rule.read(state._replace(S=state.S[None], z=_one(state.z)), s.q[0, len(k) :, 0])
        rows.append(_normed(layer, answers))
    return _measured(torch.stack(rows), _normed(layer, v))


def _one(z: Tensor | None) -> Tensor | None:
    return None if z is None else z[None]


def _passing(config: ModelConfig, d: int, d_v: int, seed: int) -> VLA:
    """One head that takes ``[q, k, v]`` and projects it to just that."""
    shape = {"heads": 1, "width": 2 * d + d_v, "key_width": d, "value_width": d_v}
    layer = VLA(config.with_(**shape, backend="auto", precision="auto")).double()
    generator = torch.Generator().manual_seed(seed)
    for module in layer.modules():
        if isinstance(module, torch.nn.Linear):
            torch.nn.init.normal_(module.weight, std=0.02, generator=generator)
        elif isinstance(module, ShortConv):
            module.reset(generator)
    layer.qkv.weight.copy_(torch.eye(2 * d + d_v))
    return layer


def _normed(layer: VLA, x: Float[Tensor, "n dv"]) -> Float[Tensor, "n dv"]:
    return layer.norm(x[None, :, None])[0, :, 0]


def _measured(answers: Float[Tensor, "t n dv"], values: Float[Tensor, "n dv"]) -> Recall:
    n = len(values)
    stored = torch.ones(n, n, dtype=torch.bool).tril()
    size = values.norm(dim=-1).clamp_min(1e-300)
    error = ((answers - values).norm(dim=-1) / size).where(stored, torch.nan)
    scores = F.normalize(answers, dim=-1) @ F.normalize(values, dim=-1).mT
    best = scores.where(stored[:, None, :], -torch.inf).argmax(-1) == torch.arange(n)
    return Recall(error, (best & stored).sum(1) / torch.arange(1, n + 1))


SWITCHES = {
    "features": "features", "normalise_key": "unit keys", "short_conv": "short convolution",
    "adaptive": "A adapts", "direction": "u", "unit_direction": "unit u",
    "direction_scale": "u scaled by", "rank": "rank", "lambda0": "λ0",
    "learned_lambda0": "learned λ0", "refresh_every": "refresh period",
    "refresh_eps": "refresh size", "gain": "gain", "gated": "write gate β",
    "normalise_read": "z·q readout", "output_norm": "output norm",
}  # fmt: skip
"""Settings that are switches of the layer, and how people read them."""


def acting(config: ModelConfig) -> dict[str, Any]:
    """The switches that change anything, given the others, each written in one way.

    With A fixed nothing of the penalty acts, and λ0 only under the gain "rls"; without a refresh
    its size doesn't; √β k without a gate is k. Two configs with equal results are the same layer.
    """
    switches = {name: getattr(config, name) for name in SWITCHES}
    switches |= {"rank": config.rank or 1, "learned_lambda0": bool(config.learned_lambda0)}
    fixed = ("direction", "unit_direction", "direction_scale", "rank", "learned_lambda0",
             "refresh_every", "refresh_eps")  # fmt: skip
    if not config.adaptive:
        switches = {name: value for name, value in switches.items() if name not in fixed}
        if config.gain != "rls":
            del switches["lambda0"]
        if config.normalise_key and config.gain == "oblique":
            switches["gain"] = "unit"
        return switches
    if not config.refresh_every:
        del switches["refresh_eps"]
    if config.direction == "weighted" and (not config.gated or config.unit_direction):
        switches["direction"] = "key"
    if switches["direction"] == "key" and config.normalise_key:
        switches["unit_direction"] = True
    return switches


def as_vla(config: ModelConfig) -> ModelConfig | None:
    """The VLA layer that a model is: itself, DeltaNet (A fixed), exact RLS; ``None`` for others."""
    if config.mixer == "vla":
        return config
    shared = {name: getattr(config, name) for name in ("features", "gated")}
    if config.mixer == "delta":
        return config.with_(mixer="vla", adaptive=False, **shared)
    if config.mixer == "rls":
        return config.with_(mixer="vla", direction="weighted", unit_direction=False, gain="rls",
                            lambda0=config.lambda0, **shared)  # fmt: skip
    return None


class Difference(NamedTuple):
    """One switch that differs."""

    name: str
    mine: Any
    theirs: Any


def differences(mine: ModelConfig, theirs: ModelConfig) -> list[Difference]:
    """Switches that act in both of two VLA layers and differ."""
    ours, other = acting(mine), acting(theirs)
    return [
        Difference(name, ours[name], other[name])
        for name in SWITCHES
        if name in ours and name in other and not _same(ours[name], other[name])
    ]


def distance(mine: ModelConfig, theirs: ModelConfig) -> int:
    """How many switches differ; one that acts in only one of the layers counts as well.

    So a layer whose A is fixed is far from one whose penalty has settings of its own. The size of
    a refresh doesn't count beside its period.
    """
    alone = acting(mine).keys() ^ acting(theirs).keys()
    return len(differences(mine, theirs)) + len(alone - {"refresh_eps"})


def _same(x: Any, y: Any) -> bool:
    both = isinstance(x, float) and isinstance(y, float)
    return math.isclose(x, y, rel_tol=1e-9) if both else bool(x == y)


@dataclass(frozen=True)
class Neighbour:
    """One recorded layer: its runs under all protocols, and how it differs."""

    title: str
    config: ModelConfig
    rows: tuple[RunRow, ...]
    apart: tuple[Difference, ...]
    distance: int
    """See :func:`distance`; 0 is the very layer."""


def neighbours(config: ModelConfig, rows: Sequence[RunRow]) -> list[Neighbour]:
    """Every recorded layer that is a VLA, the nearest first (:func:`distance`).

    Among equally near ones that with the most runs comes first. Nothing is interpolated. Runs that
    did not end well are left out.
    """
    groups: dict[str, list[tuple[ModelConfig, RunRow]]] = {}
    for row in rows:
        known = as_vla(row.config.model)
        if known is not None and row.status == DONE:
            groups.setdefault(str(acting(known)), []).append((known, row))
    found = [
        Neighbour(_title(group[0][1]), group[0][0], tuple(row for _, row in group),
                  tuple(differences(config, group[0][0])), distance(config, group[0][0]))
        for group in groups.values()
    ]  # fmt: skip
    return sorted(found, key=lambda each: (each.distance, -len(each.rows)))


def _title(row: RunRow) -> str:
    """The ablation's name where it is one, else the nearest model and what differs from it."""
    layer = as_vla(row.config.model)
    for label, known in ABLATIONS.items():
        if known.mixer == "vla" and layer is not None and acting(known) == acting(layer):
            return label
    return shown(row.label) or describe_switches(row.config.model)


def describe_switches(config: ModelConfig) -> str:
    """The nearest named model, and the switches that differ from it."""
    name = name_of(config)
    known = MODELS[name]
    mine, theirs = as_vla(config), as_vla(known)
    if mine is None or theirs is None:
        return name
    changed = ", ".join(told(each.name, each.mine) for each in differences(mine, theirs))
    return f"{name}: {changed}" if changed else name


def told(name: str, value: Any) -> str:
    """A switch as people read it: ``λ0 0.1``, ``u scaled by 1/√d``, ``write gate β off``.

    >>> told("direction_scale", 0.0), told("gated", False), told("gain", "rls")
    ('u scaled by 1/√d', 'write gate β off', 'gain rls')
    """
    if isinstance(value, bool):
        words = "on" if value else "off"
    elif name == "direction_scale" and value == 0:
        words = "1/√d"
    elif name in ("refresh_every", "short_conv") and not value:
        words = "none"
    else:
        words = f"{value:g}" if isinstance(value, float) else str(value)
    return f"{SWITCHES[name]} {words}"
