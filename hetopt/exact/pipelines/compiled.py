"""What runs here: kernels that numba compiled, or their numpy twins without it."""

from . import kernels, plain
from .compiling import running

least = running(kernels.least, plain.least)
fronts = running(kernels.fronts, plain.fronts)
segment_us = running(kernels.segment_us, plain.segment_us)
segment_price = running(kernels.segment_price, plain.segment_price)
least_unordered = running(kernels.least_unordered, plain.least_unordered)
repeated = running(kernels.repeated, plain.repeated)
joined = running(kernels.joined, plain.joined)
