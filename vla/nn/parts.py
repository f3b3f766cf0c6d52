"""Small parts that several mixers share."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn

from vla.nn.config import ModelConfig
from vla.typing import Float, Tensor


class ShortConv(nn.Module):
    """Causal depthwise convolution: each channel mixes its last ``taps`` tokens, no activation.

    ``weight[j]`` multiplies the token ``j`` steps back. Written as shifted sums, which repeat bit
    for bit on a GPU.
    """

    def __init__(self, channels: int, taps: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(taps, channels))

    def reset(self, generator: torch.Generator) -> None:
        """Uniform within ±1/√taps: what PyTorch gives a depthwise ``Conv1d``."""
        bound = 1 / math.sqrt(len(self.weight))
        nn.init.uniform_(self.weight, -bound, bound, generator=generator)

    def forward(self, x: Float[Tensor, "b t c"]) -> Float[Tensor, "b t c"]:
        """Tokens before the first count as zero."""
        taps = len(self.weight)
        padded = F.pad(x, (0, 0, taps - 1, 0))
        mixed = self.weight[0] * x
        for back in range(1, taps):
            start = taps - 1 - back
            mixed = mixed + self.weight[back] * padded[:, start : start + x.shape[1]]
        return mixed


class HeadNorm(nn.Module):
    """RMS norm of every head's output by itself, one scale per channel, as DeltaNet's layer has."""

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, o: Float[Tensor, "b t h dv"]) -> Float[Tensor, "b t h dv"]:
        """Scale the last axis."""
        return F.rms_norm(o, (o.shape[-1],), self.weight, self.eps)


class AllHeadsNorm(nn.LayerNorm):
    """LayerNorm over all heads together: what the authors' VLA has, and only it."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config.heads * config.d_v)

    def forward(self, o: Float[Tensor, "b t h dv"]) -> Float[Tensor, "b t h dv"]:
        """Normalise over heads and channels, shape kept."""
        return super().forward(o.flatten(-2)).view_as(o)


def output_norm(config: ModelConfig) -> nn.Module:
    """What stands between the heads and W_o."""
    if config.output_norm == "layer":
        return AllHeadsNorm(config)
    return HeadNorm(config.d_v) if config.output_norm == "head" else nn.Identity()


def normalise_read(
    o: Float[Tensor, "b t h dv"],
    q: Float[Tensor, "b t h d"],
    k: Float[Tensor, "b t h d"],
    floor: float,
) -> Float[Tensor, "b t h dv"]:
    """``o / max(z·q, floor)``, ``z`` the running sum of keys (Katharopoulos et al. 2020)."""
    z = (prefix_sum(k) * q).sum(-1, keepdim=True)
    return o / z.clamp_min(max(floor, 1e-12))


def prefix_sum(x: Float[Tensor, "b t h d"], block: int = 64) -> Float[Tensor, "b t h d"]:
    """Running sums over tokens as products with triangles of ones, in blocks.

    ``cumsum`` of floats on a GPU isn't promised to repeat bit for bit.
    """
    flat = F.pad(x.flatten(2), (0, 0, 0, -x.shape[1] % block)).unflatten(1, (-1, block))
    ones = torch.ones(block, block, dtype=x.dtype, device=x.device)
    blocks = torch.ones(flat.shape[1], flat.shape[1], dtype=x.dtype, device=x.device)
    before = blocks.tril(-1) @ flat.sum(2)
    sums = ones.tril() @ flat + before[:, :, None]
    return sums.flatten(1, 2)[:, : x.shape[1]].view_as(x)
