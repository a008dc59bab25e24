"""Layers in PyTorch, as wide as one GPU's tensor-parallel shard.

    x = x + attention(norm(x));   x = x + mlp(norm(x))

Attention is causal and grouped-query aware, the MLP gated (SiLU) or not (GELU or ReLU),
by the architecture. Attention and MLP are split by heads and by columns, as Megatron
does; norms are whole. Sums over GPUs are left out: one GPU cannot time them.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from ..errors import InstanceError, Unsupported
from ..schema import ModelSpec

#: PyTorch is an extra: types of its objects are not known where it is absent.
Foreign: TypeAlias = Any
Tensor: TypeAlias = Foreign
Dtype: TypeAlias = Foreign
Weights: TypeAlias = dict[str, Tensor]

#: A layer: its weights and x of shape (b, S, H) to its output, of that shape.
Layer = Callable[[Weights, Tensor], Tensor]


def torch() -> Foreign:
    """PyTorch; `Unsupported` where it is not installed."""
    try:
        return import_module("torch")
    except ImportError:
        raise Unsupported("PyTorch is not installed: pip install torch") from None


class Shard(NamedTuple):
    """Widths of one tensor-parallel shard of a layer."""

    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    gated: bool
    activation: str
    rms: bool


def shard(model: ModelSpec, t: int) -> Shard:
    """The widths at degree `t`; `InstanceError` where they are not divisible."""
    if model.experts:
        raise Unsupported(
            f"model {model.name!r} has experts, whose load a layer by itself does not "
            "tell; expected a dense model"
        )
    if not model.common_attention or {*model.kinds} != {("attention", "dense")}:
        raise Unsupported(
            f"model {model.name!r} has layers other than attention and an MLP "
            "(latent, layer_kinds, mtp_layers), which are not profiled; expected a "
            "dense model"
        )
    kv_heads, width = model.kv_heads or model.heads, model.mlp_width
    for field, number in (("heads", model.heads), ("intermediate", width)):
        if number % t:
            raise InstanceError(
                f"tensor-parallel degree {t} does not divide {field} {number} of "
                f"model {model.name!r}: leave it out"
            )
    return Shard(
        model.hidden,
        model.heads // t,
        max(1, kv_heads // t),
        model.attention_width // model.heads,
        width // t,
        model.gated,
        model.activation,
        model.norm.startswith("rms") or model.gated,
    )


def weights(shape: Shard, device: str, dtype: Dtype) -> Weights:
    """Random weights that take part in the backward pass."""
    lib, h = torch(), shape.hidden
    inner = shape.heads * shape.head_dim
    fused = inner + 2 * shape.kv_heads * shape.head_dim
    wide = shape.intermediate * (2 if shape.gated else 1)
    sizes = {
        "qkv": (fused, h),
        "out": (h, inner),
        "up": (wide, h),
        "down": (h, shape.intermediate),
    }
    made = {
        name: lib.randn(*size, device=device, dtype=dtype) * 0.02
        for name, size in sizes.items()
    }
    made |= {n: lib.ones(h, device=device, dtype=dtype) for n in ("norm_1", "norm_2")}
    return {name: value.requires_grad_() for name, value in made.items()}


def layer(shape: Shard, *, flash: bool) -> Layer:
    """The layer as a function that PyTorch can compile; flash: no scores in memory."""
    lib = torch()

    def run(own: Weights, x: Tensor) -> Tensor:
        y = _norm(lib, shape, own["norm_1"], x)
        x = x + _attention(lib, shape, own, y, flash=flash)
        return x + _mlp(lib, shape, own, _norm(lib, shape, own["norm_2"], x))

    return run


def _norm(lib: Foreign, shape: Shard, weight: Tensor, x: Tensor) -> Tensor:
    functional, weight = lib.nn.functional, weight.to(x.dtype)
    if shape.rms:
        return functional.rms_norm(x, (shape.hidden,), weight)
    return functional.layer_norm(x, (shape.hidden,), weight)


def _attention(
    lib: Foreign, shape: Shard, own: Weights, x: Tensor, *, flash: bool
) -> Tensor:
    b, s, _ = x.shape
    inner, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    q, k, v = lib.nn.functional.linear(x, own["qkv"]).split((inner, kv, kv), dim=-1)
    q = q.view(b, s, shape.heads, shape.head_dim).transpose(1, 2)
    k, v = (y.view(b, s, shape.kv_heads, -1).transpose(1, 2) for y in (k, v))
    if shape.kv_heads < shape.heads:
        each = shape.heads // shape.kv_heads
        k, v = (y.repeat_interleave(each, dim=1) for y in (k, v))
    if flash:
        mixed = lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    else:
        scores = q @ k.transpose(-1, -2) / shape.head_dim**0.5
        ahead = lib.ones(s, s, dtype=lib.bool, device=x.device).triu(1)
        mixed = scores.masked_fill(ahead, float("-inf")).softmax(dim=-1) @ v
    mixed = mixed.transpose(1, 2).reshape(b, s, inner)
    return lib.nn.functional.linear(mixed, own["out"])


def _mlp(lib: Foreign, shape: Shard, own: Weights, x: Tensor) -> Tensor:
    functional = lib.nn.functional
    wide = functional.linear(x, own["up"])
    if shape.gated:
        gate, up = wide.chunk(2, dim=-1)
        wide = functional.silu(gate) * up
    else:
        bend = functional.relu if shape.activation == "relu" else functional.gelu
        wide = bend(wide)
    return functional.linear(wide, own["down"])
