"""Operators that SimuMax measured on a card, as rows of our own micro-benchmarks.

Its description of a system (`configs/system/*.json`, `accelerator.op`) has, for each
operator, a peak in TFLOP/s and shares of it by shape (`accurate_efficient_factor`):

    b=1, m=4096, k=8192, n=10240, layout=TN, accumulate=False, out_dtype=bf16
    batch=1, seq_len=4096, head_num=32, kv_head_num=8, qk_head_dim=128, v_head_dim=128

Products are of 2 b m n k FLOPs: forward passes (TN), gradients of inputs (NN) and of
weights (NT, over k tokens). Attention is of 2 and 5 times b s^2 heads (d_qk + d_v),
causal or not. What all shapes share (`efficient_factor`), grouped products, bandwidths
and networks are not read: whole runs tell those constants.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from .. import catalogue
from ..errors import InstanceError, Place
from ..text.complaints import validated
from ..text.documents import Fields
from ..text.parsing import read_tree
from .kernels.clock import Row

#: Most shapes of an operator that a file has.
MOST_SHAPES = 100_000
_SHARE = Annotated[float, Field(gt=0, le=10)]
_PRODUCTS = {"matmul": "bf16", "fp8_matmul": "fp8"}
#: Generations whose attention Transformer Engine gives to cuDNN.
_BY_CUDNN = ("Hopper", "Blackwell")


class _Open(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Operator(_Open):
    """A peak, and the shares of it that shapes reach."""

    tflops: Annotated[float, Field(gt=0, le=1e6)]
    accurate_efficient_factor: Annotated[
        dict[str, _SHARE], Field(max_length=MOST_SHAPES)
    ] = {}

    def us(self, flops: float, shape: str) -> float:
        """Return the microseconds that so many FLOPs of a shape took."""
        share = self.accurate_efficient_factor[shape]
        return flops / (self.tflops * share * 1e6)


class _Accelerator(_Open):
    op: dict[str, Operator]


class _System(_Open):
    sys_name: str = ""
    accelerator: _Accelerator


def rows(path: Place, gpu: str | None = None) -> list[Row]:
    """Return the rows of a file, that of the device first.

    `gpu` is the card, else the file's `sys_name` is. `InstanceError` names file and
    field, and asks for the card where the catalogue has none of that name.
    """
    system = validated(_System, read_tree(Path(path)), str(path))
    card = catalogue.find_gpu(gpu or system.sys_name)
    if card is None:
        raise InstanceError.at(
            path,
            "sys_name",
            f"found {gpu or system.sys_name!r}, expected a card of the catalogue; "
            "name it with -o gpu=NAME",
        )
    found = [*_products(path, system), *_attention(path, system, card.generation)]
    if not found:
        raise InstanceError.at(
            path,
            "accelerator.op",
            "found no accurate_efficient_factor of matmul, fp8_matmul or sdp_fwd and "
            "sdp_bwd, expected measured shapes; measure them first",
        )
    device = {"what": "device", "name": card.name, "from": system.sys_name}
    return [device, *found]


def _products(path: Place, system: _System) -> Iterator[Row]:
    for name, precision in _PRODUCTS.items():
        if (op := system.accelerator.op.get(name)) is None:
            continue
        for shape in op.accurate_efficient_factor:
            words = _words(path, name, shape, ("b", "m", "k", "n"))
            b, m, k, n = (int(words[x]) for x in "bmkn")
            us = op.us(2 * b * m * k * n, shape)
            sizes = {
                "TN": {"m": b * m, "n": n, "k": k, "fwd": us},
                "NN": {"m": b * m, "n": k, "k": n, "dx": us},
                "NT": {"m": b * k, "n": m, "k": n, "dw": us},
            }.get(words.get("layout", "TN"))
            if sizes is None:
                raise _strange(path, name, shape)
            yield {"what": "gemm", "precision": precision, **sizes}


def _attention(path: Place, system: _System, generation: str) -> Iterator[Row]:
    """Both passes of shapes that have both, of keys as wide as values."""
    once, back = (system.accelerator.op.get(x) for x in ("sdp_fwd", "sdp_bwd"))
    if once is None or back is None:
        return
    backend = "cudnn" if generation in _BY_CUDNN else "flash"
    for shape in once.accurate_efficient_factor:
        if shape not in back.accurate_efficient_factor:
            continue
        names = ("batch", "seq_len", "head_num", "qk_head_dim", "v_head_dim")
        words = _words(path, "sdp_fwd", shape, names)
        b, s, heads, keys, values = (int(words[x]) for x in names)
        if keys != values:
            continue
        flops = b * s * s * heads * (keys + values)
        yield {
            **{"what": "attn", "backend": backend},
            **{"b": b, "s": s, "heads": heads, "d": keys},
            **{"fwd": once.us(2 * flops, shape), "bwd": back.us(5 * flops, shape)},
        }


def _words(path: Place, name: str, shape: str, numbers: tuple[str, ...]) -> Fields:
    """Return what a shape tells by name; `InstanceError` where it lacks a number."""
    words = dict(re.findall(r"(\w+)=(\w+)", shape))
    if not all(re.fullmatch("[1-9][0-9]{0,8}", words.get(x, "")) for x in numbers):
        raise _strange(path, name, shape)
    return words


def _strange(path: Place, name: str, shape: str) -> InstanceError:
    return InstanceError.at(
        path,
        f"accelerator.op.{name}.accurate_efficient_factor",
        f"found the shape {shape[:80]!r}, expected one as SimuMax writes it, such as "
        "'b=1, m=4096, k=8192, n=8192, layout=TN'; correct it, or leave it out",
    )
