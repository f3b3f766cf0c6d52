"""TinyLM: the two-layer Transformer that every mixer of the paper is tried in."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn

from vla.errors import ArgumentError, require_integer
from vla.nn.config import ModelConfig
from vla.nn.mixer import MIXERS, Mixer
from vla.nn.parts import ShortConv
from vla.tokens import Stream
from vla.typing import Float, Int, Tensor

INIT_STD = 0.02


class Block(nn.Module):
    """Pre-LN: ``x + mix(LN x)``, then ``x + ffn(LN x)`` with GELU."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.mixer_norm = nn.LayerNorm(config.width)
        self.mixer: Mixer = MIXERS[config.mixer](config)
        self.ffn_norm = nn.LayerNorm(config.width) if config.ffn else None
        self.up = nn.Linear(config.width, config.ffn) if config.ffn else None
        self.down = nn.Linear(config.ffn, config.width) if config.ffn else None

    def forward(self, x: Float[Tensor, "b t w"]) -> Float[Tensor, "b t w"]:
        """The mixer, then the feed-forward part where there is one."""
        x = x + self.mixer(self.mixer_norm(x))
        if self.ffn_norm is None or self.up is None or self.down is None:
            return x
        return x + self.down(F.gelu(self.up(self.ffn_norm(x))))


class TinyLM(nn.Module):
    """Tokens to logits: the authors' architecture, whatever the mixer.

    Learned absolute positions, pre-LN blocks with a GELU feed-forward part, a final LayerNorm, and
    a head tied to the token embedding. Every weight matrix and embedding starts as N(0, 0.02²),
    biases at 0, LayerNorms at 1; a short convolution, which the authors don't have, as PyTorch's
    ``Conv1d`` does. One seed fixes the weights, on a CPU as on a GPU.
    """

    def __init__(self, config: ModelConfig, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        with torch.random.fork_rng(devices=[]):
            self.embedding = nn.Embedding(config.vocab, config.width)
            self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
            self.norm = nn.LayerNorm(config.width)
            learned = config.positions == "learned"
            self.positions = nn.Embedding(config.max_length, config.width) if learned else None
        self.reset(seed)

    def reset(self, seed: int) -> None:
        """Draw every weight again. Positions come last, so a shorter table changes nothing else."""
        generator = torch.Generator().manual_seed(seed)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=INIT_STD, generator=generator)
                if isinstance(module, nn.Linear) and module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, ShortConv):
                module.reset(generator)

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t vocab"]:
        """Logits at every position. Raises ``ValueError`` for rows longer than ``max_length``."""
        return self.logits(self.hidden(tokens))

    def hidden(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t w"]:
        """After the final LayerNorm: pick positions here to have fewer logits to compute."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)

    def logits(self, hidden: Float[Tensor, "*b w"]) -> Float[Tensor, "*b vocab"]:
        """The tied head."""
        return F.linear(hidden, self.embedding.weight)

    def embed(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t w"]:
        """Token plus position embedding."""
        x = self.embedding(tokens)
        if self.positions is None:
            return x
        length = tokens.shape[1]
        if length > len(self.positions.weight):
            wanted = f"at most max_length = {len(self.positions.weight)} tokens"
            raise ArgumentError("tokens", f"rows of {length}", wanted)
        return x + self.positions.weight[:length]

    def cut(self, length: int) -> TinyLM:
        """The same model with the position table cut to ``length`` rows, for small checkpoints."""
        require_integer("length", length, low=1, high=self.config.max_length)
        weights = self.state_dict()
        if self.positions is not None:
            weights["positions.weight"] = weights["positions.weight"][:length].clone()
        like = self.embedding.weight
        smaller = TinyLM(self.config.with_(max_length=length)).to(like.device, like.dtype)
        smaller.load_state_dict(weights)
        return smaller

    @torch.no_grad()
    def streams(
        self, tokens: Int[Tensor, "t"], labels: Sequence[str] | None = None
    ) -> list[list[Stream]]:
        """Every layer's and head's own keys, values, queries, u and gates on one row of tokens.

        ``streams[layer][head]`` steps through ``model.blocks[layer].mixer.rule(head)`` to the
        outputs the layer has. Keys and queries are as the recurrence takes them. Every token
        writes, with a query of its own, and counts as a key of its own. Streams are on the CPU,
        in the model's precision. ``labels`` default to the token numbers. Raises ``ValueError``
        unless ``tokens`` is one row, for labels of another number, and for a model of rank above 1:
        a stream has one direction per token.
        """
        if tokens.ndim != 1 or not len(tokens):
            raise ArgumentError("tokens", tuple(tokens.shape), "one row of at least one token")
        if self.config.rank is not None:
            raise ArgumentError("rank", self.config.rank, "1, the directions a stream's token has")
        names = tuple(labels) if labels is not None else tuple(map(str, tokens.tolist()))
        if len(names) != len(tokens):
            raise ArgumentError("labels", f"{len(names)} of them", f"one per token, {len(tokens)}")
        x, layers = self.embed(tokens[None]), []
        for number, block in enumerate(self.blocks):
            assert isinstance(block, Block)
            layers.append(_layer_streams(block, x, names, number))
            x = block(x)
        return layers


def build(config: ModelConfig, *, seed: int = 0, device: torch.device | str = "cpu") -> TinyLM:
    """The config's model with weights that ``seed`` fixes, the same on every device.

    Raises ``ValueError`` for a negative seed.
    """
    require_integer("seed", seed, low=0)
    return TinyLM(config, seed=seed).to(device)


def parameter_count(model: nn.Module) -> int:
    """Trained numbers; the tied head counts once."""
    return sum(p.numel() for p in model.parameters())


def state_size(model: TinyLM, length: int) -> dict[str, int]:
    """Numbers carried per sequence after ``length`` tokens, over all layers, by what they are.

    ``S`` (memory), ``A`` (inverse penalty, in full), ``z`` (read normaliser), ``cache`` (softmax,
    grows with ``length``), ``conv`` (short convolution), and their ``total``.
    """
    require_integer("length", length, low=0)
    parts: dict[str, int] = {}
    for block in model.blocks:
        assert isinstance(block, Block)
        for name, numbers in block.mixer.state(length).items():
            parts[name] = parts.get(name, 0) + numbers
    return {**parts, "total": sum(parts.values())}


def _layer_streams(
    block: Block, x: Float[Tensor, "b t w"], labels: tuple[str, ...], layer: int
) -> list[Stream]:
    mixer = block.mixer
    s = mixer.sequences(block.mixer_norm(x))
    q, k, v, u = (x[0].cpu() for x in (s.q, s.k, s.v, mixer.directions(s)))
    gates = mixer.gates(s)
    count = torch.arange(len(labels))
    return [
        Stream(
            k=k[:, h], v=v[:, h], q=q[:, h], u=u[:, h],
            beta=None if gates is None else gates[0, :, h].cpu(),
            writes=torch.ones(len(labels), dtype=torch.bool), key_id=count, labels=labels,
            name="layer", settings={"layer": layer, "head": h, "model": str(mixer.config)},
        )
        for h in range(mixer.config.heads)
    ]  # fmt: skip
