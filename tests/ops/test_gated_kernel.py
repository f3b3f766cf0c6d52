"""The decaying delta rules' kernel against the float64 token loop, outputs poisoned with NaN.

Runs on a GPU, or interpreted in the subprocess of ``test_kernels.py``.
"""

import os

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.ops.oracle import poisoned
from vla.errors import ArgumentError
from vla.ops.gated import gated_delta_rule, gated_delta_scan

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
GPU = torch.cuda.is_available() and not INTERPRETED
DEVICE = "cuda" if GPU else "cpu"
live = pytest.mark.skipif(not (GPU or INTERPRETED), reason="runs interpreted in a subprocess")
BOUNDS = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}


def check(
    tokens: int,
    width: int = 16,
    value_width: int = 16,
    *,
    rows: bool = True,
    dtype: torch.dtype = torch.float32,
    spread: float = 3.0,
    heads: int = 2,
) -> None:
    """Output and all gradients, inputs rounded to ``dtype`` for both sides."""
    generator = torch.Generator().manual_seed(tokens + width)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    size = (2, tokens, heads)
    q, k = draw(*size, width), F.normalize(draw(*size, width), dim=-1)
    v, weight = draw(*size, value_width), draw(*size, value_width)
    gate = F.logsigmoid(spread * draw(*((*size, value_width) if rows else size)))
    inputs = [x.to(dtype) for x in (q, k, v, gate)]
    exact = [x.double().requires_grad_() for x in inputs]
    mine = [x.to(DEVICE).requires_grad_() for x in inputs]
    wanted = gated_delta_scan(*exact)
    theirs = torch.autograd.grad((wanted * weight.to(dtype)).sum(), exact)
    with poisoned():
        o = gated_delta_rule(*mine, backend="triton")
        got = torch.autograd.grad((o * weight.to(dtype).to(DEVICE)).sum(), mine)
    for name, a, b in zip("oqkvg", (o, *got), (wanted, *theirs), strict=True):
        a, b = a.detach().double().cpu(), b.detach()
        assert a.shape == b.shape
        scale = max(float(b.norm()), 1e-12)
        assert float((a - b).norm()) / scale < BOUNDS[dtype], name


@live
@pytest.mark.parametrize("rows", [True, False], ids=["per row", "per token"])
@pytest.mark.parametrize("tokens", [1, 2, 15, 16, 17, 33])
def test_ragged_lengths(tokens, rows):
    check(tokens, rows=rows, heads=1)


@live
@pytest.mark.parametrize(("width", "value_width"), [(32, 32), (20, 5), (64, 16)])
def test_widths(width, value_width):
    check(18, width, value_width)


@live
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits(dtype):
    check(20, dtype=dtype, heads=1)


@live
def test_gates_that_close():
    check(20, spread=200.0, heads=1)


@live
def test_without_gradients_it_stores_no_states():
    x = torch.randn(1, 20, 1, 16, device=DEVICE)
    gate = torch.full((1, 20, 1), -0.1, device=DEVICE)
    o = gated_delta_rule(x, F.normalize(x, dim=-1), x, gate, backend="triton")
    assert o.grad_fn is None


@live
def test_what_it_cannot_run_is_said():
    wide = torch.zeros(1, 2, 1, 200, device=DEVICE)
    with pytest.raises(ArgumentError, match="wider than 128"):
        gated_delta_rule(wide, wide, wide, wide[..., 0], backend="triton")


@pytest.mark.skipif(GPU or INTERPRETED, reason="triton can run here")
def test_without_a_gpu_triton_is_refused():
    x = torch.zeros(1, 2, 1, 4)
    with pytest.raises(ArgumentError, match="Triton needs a GPU"):
        gated_delta_rule(x, x, x, x[..., 0], backend="triton")


@pytest.mark.gpu
@pytest.mark.skipif(not GPU, reason="needs a CUDA device")
class TestOnTheGpu:
    @pytest.mark.parametrize("rows", [True, False], ids=["per row", "per token"])
    @pytest.mark.parametrize("width", [16, 32, 64, 128])
    @pytest.mark.parametrize("tokens", [1, 17, 100, 512])
    def test_lengths_and_widths(self, tokens, width, rows):
        check(tokens, width, width, rows=rows)

    def test_repeats_to_the_bit(self):
        x = torch.randn(4, 300, 4, 32, device="cuda")
        k, gate = F.normalize(x, dim=-1), F.logsigmoid(torch.randn_like(x))
        runs = [gated_delta_rule(x, k, x, gate, backend="triton") for _ in range(2)]
        assert torch.equal(*runs)
