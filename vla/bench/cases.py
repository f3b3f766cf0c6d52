"""What is measured: shapes, lengths, methods. Each method is built from the same inputs."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F

from vla.typing import Tensor


class Shape(NamedTuple):
    """Batch, heads and width; keys, values and queries are equally wide."""

    batch: int
    heads: int
    width: int

    @property
    def name(self) -> str:
        """As in ``B4 H16 d64``."""
        return f"B{self.batch} H{self.heads} d{self.width}"


class Method(NamedTuple):
    """How to call one implementation, and how far it is asked to go.

    Softmax attention is torch's SDPA with the backend it picks (cuDNN's FlashAttention on an H200);
    fla refuses the gated backward for this Triton on Hopper, so there only the forward is asked.
    """

    name: str
    build: Callable[["Inputs"], Callable[[], Tensor]]
    dtype: torch.dtype
    longest: int = 131_072
    backward: bool = True
    needs_gpu: bool = True
    lengths: tuple[int, ...] | None = None


class Inputs(NamedTuple):
    """Unit queries and keys, Gaussian values, a gate in (0, 1), all ``[b, t, h, ...]``."""

    q: Tensor
    k: Tensor
    v: Tensor
    beta: Tensor


SHAPES = (Shape(8, 4, 32), Shape(1, 16, 64), Shape(4, 16, 64), Shape(4, 16, 128))
LENGTHS = tuple(512 * 2**i for i in range(9))
CPU_SHAPES = (Shape(1, 4, 32),)
CPU_LENGTHS = (128, 512, 2048)
FEW = (2048, 8192, 32_768)


def make_inputs(shape: Shape, tokens: int, dtype: torch.dtype, device: str) -> Inputs:
    """Seeded by nothing but the shape, so that every method sees the same numbers."""
    generator = torch.Generator(device).manual_seed(tokens)
    size = (shape.batch, tokens, shape.heads, shape.width)

    def draw(*axes: int) -> Tensor:
        return torch.randn(*axes, generator=generator, device=device)

    q, k = (F.normalize(draw(*size), dim=-1).to(dtype).requires_grad_() for _ in range(2))
    v = draw(*size).to(dtype).requires_grad_()
    return Inputs(q, k, v, torch.sigmoid(draw(*size[:3])).to(dtype).requires_grad_())


def _vla(backend: str, **options: Any) -> Callable[[Inputs], Callable[[], Tensor]]:
    def build(x: Inputs) -> Callable[[], Tensor]:
        from vla.ops import vla_attention

        return lambda: vla_attention(x.q, x.k, x.v, None, x.beta, backend=backend, **options)[0]

    return build


def _attention(x: Inputs) -> Callable[[], Tensor]:
    q, k, v = (y.transpose(1, 2) for y in (x.q, x.k, x.v))
    return lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)


def _flash(x: Inputs) -> Callable[[], Tensor]:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v = (y.transpose(1, 2) for y in (x.q, x.k, x.v))

    def call() -> Tensor:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    return call


def _fla_delta(x: Inputs) -> Callable[[], Tensor]:
    from fla.ops.delta_rule import chunk_delta_rule

    return lambda: chunk_delta_rule(x.q, x.k, x.v, x.beta)[0]


def _fla_gated(x: Inputs) -> Callable[[], Tensor]:
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    decay = torch.full(x.beta.shape, -0.01, device=x.q.device)
    return lambda: chunk_gated_delta_rule(x.q, x.k, x.v, g=decay, beta=x.beta)[0]


def _fla_mesa(x: Inputs) -> Callable[[], Tensor]:
    from fla.ops.mesa_net import chunk_mesa_net

    heads, width = x.k.shape[2:]
    lamb = torch.ones(heads, width, device=x.q.device)
    decay = torch.full(x.beta.shape, -0.01, device=x.q.device)
    return lambda: chunk_mesa_net(x.q, x.k, x.v, g=decay, beta=x.beta, lamb=lamb)[0]


BF16, F32 = torch.bfloat16, torch.float32
METHODS = (
    Method("vla triton bf16", _vla("triton"), BF16),
    Method("vla triton refresh 20 bf16", _vla("triton", refresh_every=20), BF16, lengths=FEW),
    Method("vla triton tf32", _vla("triton", precision="tf32"), F32, lengths=FEW),
    Method("vla triton tf32x3", _vla("triton", precision="tf32x3"), F32, lengths=FEW),
    Method(
        "vla triton ieee", _vla("triton", precision="ieee"), F32, backward=False, lengths=(2048,)
    ),
    Method("vla chunk fp32", _vla("chunk"), F32, 8192, needs_gpu=False, lengths=(512, *FEW)),
    Method(
        "vla scan fp32",
        _vla("scan"),
        F32,
        backward=False,
        needs_gpu=False,
        lengths=(128, 512, 2048),
    ),
    Method("softmax attention bf16", _attention, BF16),
    Method("flash attention 2 bf16", _flash, BF16, lengths=FEW),
    Method("fla chunk_delta_rule bf16", _fla_delta, BF16),
    Method("fla chunk_gated_delta_rule bf16", _fla_gated, BF16, backward=False),
    Method("fla chunk_mesa_net bf16", _fla_mesa, BF16, lengths=FEW),
)


def methods_named(names: list[str] | None) -> tuple[Method, ...]:
    """All methods, or those whose name contains one of ``names``."""
    if not names:
        return METHODS
    return tuple(m for m in METHODS if any(n in m.name for n in names))


def lengths_of(method: Method, lengths: tuple[int, ...]) -> list[int]:
    """The lengths asked of a method: its own selection, none above its longest."""
    chosen = [t for t in lengths if method.lengths is None or t in method.lengths]
    return [t for t in chosen if t <= method.longest]


def traffic(shape: Shape, tokens: int, dtype: torch.dtype, backward: bool) -> int:
    """Fewest bytes a pass can move: each input read once, each output written once.

    Forward reads q, k, v, β and writes o; backward reads those and do, and writes four gradients.
    """
    rows = shape.batch * tokens * shape.heads
    item = torch.empty((), dtype=dtype).element_size()
    forward = rows * (4 * shape.width + 1) * item
    return forward + backward * rows * (7 * shape.width + 2) * item
