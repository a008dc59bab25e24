"""What runs here: kernels that numba compiled, or their numpy twins without it."""

from . import compiling, kernels, plain
from .compiling import Kernel

_COMPILED = compiling.kernels().active == "compiled"


def _running(kernel: Kernel, twin: Kernel) -> Kernel:
    return kernel if _COMPILED else twin


least = _running(kernels.least, plain.least)
fronts = _running(kernels.fronts, plain.fronts)
segment_us = _running(kernels.segment_us, plain.segment_us)
segment_price = _running(kernels.segment_price, plain.segment_price)
least_unordered = _running(kernels.least_unordered, plain.least_unordered)
repeated = _running(kernels.repeated, plain.repeated)
joined = _running(kernels.joined, plain.joined)
