"""Runs a layer on a device: median times of both passes, memory kept and at the peak.

What a layer keeps between its passes is counted from the tensors that autograd saves,
each storage once and the weights not: the same on every device. The peak is what the
device's allocator saw, weights and gradients included; a CPU's does not tell.
"""

import gc
import time
from collections.abc import Callable
from importlib import import_module
from statistics import median
from typing import NamedTuple

from ...errors import Unsupported
from .. import decoder
from ..decoder import Shard, Tensor, Weights


class Timing(NamedTuple):
    """Medians of the two passes, and memory in bytes; peak only where it is told."""

    forward_s: float
    backward_s: float
    kept_bytes: int
    peak_bytes: int | None


class How(NamedTuple):
    """On what, how often, and how the layer is computed."""

    device: str
    dtype: str
    repeats: int
    recompute: bool
    flash: bool


def check(device: str) -> None:
    """`Unsupported` where there is no such device."""
    if device == "cuda" and not decoder.torch().cuda.is_available():
        raise Unsupported("PyTorch finds no GPU here: give --cpu to measure the CPU")


def device_name(device: str) -> str:
    """Return what the device calls itself."""
    if device == "cuda":
        return str(decoder.torch().cuda.get_device_name())
    return "CPU"


def timed(shape: Shard, b: int, sequence: int, how: How) -> Timing | None:
    """Measure one layer at `b` sequences; None where it runs out of memory."""
    lib = decoder.torch()
    try:
        return _timed(shape, b, sequence, how)
    except lib.OutOfMemoryError:
        gc.collect()
        lib.cuda.empty_cache()
        return None


def _timed(shape: Shard, b: int, sequence: int, how: How) -> Timing:
    lib = decoder.torch()
    dtype = getattr(lib, how.dtype)
    lib.manual_seed(0)
    own = decoder.weights(shape, how.device, dtype)
    x = lib.randn(b, sequence, shape.hidden, device=how.device, dtype=dtype)
    x.requires_grad_()
    above = lib.randn_like(x)
    run = _run(shape, own, how)
    kept = _kept_bytes(lambda: run(x), {_place(w) for w in own.values()})
    if how.device == "cuda":
        lib.cuda.reset_peak_memory_stats()
    times = [_once(run, x, above, how.device) for _ in range(how.repeats + 2)][2:]
    peak = lib.cuda.max_memory_allocated() if how.device == "cuda" else None
    return Timing(median(f for f, _ in times), median(b for _, b in times), kept, peak)


def _run(shape: Shard, own: Weights, how: How) -> Callable[[Tensor], Tensor]:
    layer = decoder.layer(shape, flash=how.flash)

    def plain(x: Tensor) -> Tensor:
        return layer(own, x)

    if not how.recompute:
        return plain
    again = import_module("torch.utils.checkpoint").checkpoint
    return lambda x: again(plain, x, use_reentrant=False)


def _once(
    run: Callable[[Tensor], Tensor], x: Tensor, above: Tensor, device: str
) -> tuple[float, float]:
    """Seconds of one forward and one backward pass."""
    start = _now(device)
    y = run(x)
    middle = _now(device)
    y.backward(above)
    return middle - start, _now(device) - middle


def _now(device: str) -> float:
    if device == "cuda":
        decoder.torch().cuda.synchronize()
    return time.perf_counter()


def _place(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _kept_bytes(run: Callable[[], Tensor], but: set[int]) -> int:
    """Bytes of the storages that the backward pass of `run` needs, but those given."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if (place := _place(tensor)) not in but:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    hooks = decoder.torch().autograd.graph.saved_tensors_hooks(keep, lambda kept: kept)
    with hooks:
        _output = run()  # held, or a storage's place could be taken again
    return sum(kept.values())
