"""Fused Triton kernels of the exact chunkwise form; README.md beside this file explains them."""

from vla.ops.kernels.entry import (
    delta_rule_triton,
    linear_attention_triton,
    supports,
    vla_attention_triton,
)

__all__ = ["delta_rule_triton", "linear_attention_triton", "supports", "vla_attention_triton"]
