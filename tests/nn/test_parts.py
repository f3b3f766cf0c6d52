"""Short convolution, norms and the read normaliser against PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from vla.nn import model
from vla.nn.parts import AllHeadsNorm, HeadNorm, ShortConv, normalise_read, prefix_sum


@pytest.mark.parametrize("taps", [1, 2, 4])
@pytest.mark.parametrize("tokens", [1, 3, 10])
def test_short_conv_is_a_causal_depthwise_convolution(taps: int, tokens: int) -> None:
    conv = ShortConv(6, taps).double()
    conv.reset(torch.Generator().manual_seed(0))
    x = torch.randn(2, tokens, 6, dtype=torch.float64)
    kernel = conv.weight.flip(0).T[:, None]
    wanted = F.conv1d(F.pad(x.mT, (taps - 1, 0)), kernel, groups=6).mT
    assert torch.allclose(conv(x), wanted, atol=1e-14)


def test_short_conv_starts_as_a_depthwise_conv1d_does() -> None:
    conv = ShortConv(5000, 4)
    conv.reset(torch.Generator().manual_seed(0))
    theirs = torch.nn.Conv1d(5000, 5000, 4, groups=5000, bias=False).weight
    assert conv.weight.abs().max() <= 0.5
    assert conv.weight.std().item() == pytest.approx(theirs.std().item(), rel=0.03)


@pytest.mark.parametrize("tokens", [1, 63, 64, 65, 200])
def test_prefix_sum_is_cumsum(tokens: int) -> None:
    x = torch.randn(2, tokens, 3, 5, dtype=torch.float64)
    assert torch.allclose(prefix_sum(x), x.cumsum(1), atol=1e-12)
    assert torch.allclose(prefix_sum(x.float()).double(), x.cumsum(1), atol=1e-4)


def test_read_normaliser_has_a_floor() -> None:
    q = k = torch.ones(1, 3, 1, 2)
    o = torch.ones(1, 3, 1, 4)
    assert normalise_read(o, q, k, 0.0)[0, :, 0, 0].tolist() == [0.5, 0.25, pytest.approx(1 / 6)]
    assert normalise_read(o, q, -k, 0.1)[0, 0, 0, 0].item() == pytest.approx(10)


def test_norms() -> None:
    o = torch.randn(2, 7, 4, 32)
    whole = AllHeadsNorm(model("vla_authors"))(o)
    assert torch.allclose(whole.flatten(-2), F.layer_norm(o.flatten(-2), (128,)), atol=1e-6)
    per_head = HeadNorm(32)(o)
    assert torch.allclose(per_head.square().mean(-1), torch.ones(2, 7, 4), atol=1e-3)
