"""Kernels that run here: of the compiled core, or their numpy twins without it."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

from . import kernels, plain
from .compiling import is_compiled

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def _running(kernel: Kernel, twin: Callable[..., object]) -> Kernel:
    return kernel if is_compiled() else cast(Kernel, twin)


least = _running(kernels.least, plain.least)
fronts = _running(kernels.fronts, plain.fronts)
segment_us = _running(kernels.segment_us, plain.segment_us)
segment_price = _running(kernels.segment_price, plain.segment_price)
least_unordered = _running(kernels.least_unordered, plain.least_unordered)
repeated = _running(kernels.repeated, plain.repeated)
joined = _running(kernels.joined, plain.joined)
