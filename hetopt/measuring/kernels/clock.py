"""Times what runs on a device, as often as it takes to be sure."""

import gc
import time
from collections.abc import Callable
from statistics import median
from typing import ParamSpec, TypeVar

from ...text.documents import Document
from .. import decoder
from ..decoder import Tensor

#: One measurement: what it was of, and microseconds.
Row = Document
Task = Callable[[], Row]

_P = ParamSpec("_P")
_R = TypeVar("_R")

_LEAST_S = 0.01  # of one round of runs
_ROUNDS = 3
_ROOM = 0.6  # of memory, for the largest benchmark


class Clock:
    """A device, what it can, and its time."""

    def __init__(self, device: str) -> None:
        self.lib = decoder.torch()
        self.device = device
        self.on_gpu = device == "cuda"
        version = self.lib.cuda.get_device_capability() if self.on_gpu else (0, 0)
        self.has_bf16 = version >= (8, 0)
        self.has_fp8 = version >= (8, 9)

    @property
    def precision(self) -> str:
        """Return what layers are trained in here."""
        if not self.on_gpu:
            return "fp32"
        return "bf16" if self.has_bf16 else "fp16"

    @property
    def dtype(self) -> decoder.Dtype:
        """PyTorch's name of the precision."""
        names = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
        return getattr(self.lib, names[self.precision])

    def random(
        self, *shape: int, dtype: decoder.Dtype = None, grad: bool = False
    ) -> Tensor:
        """A tensor of random numbers, in the device's precision unless told."""
        made = self.lib.randn(*shape, device=self.device, dtype=dtype or self.dtype)
        return made.requires_grad_() if grad else made

    def wait(self) -> None:
        """Until the device has done all."""
        if self.on_gpu:
            self.lib.cuda.synchronize()

    def tidy(self) -> None:
        """Give back memory, where much is held: it takes longer than small kernels."""
        if self.on_gpu:
            free, total = self.lib.cuda.mem_get_info()
            if free < _ROOM * total:
                gc.collect()
                self.lib.cuda.empty_cache()

    def seconds(self, run: Callable[[], object], times: int = 1) -> float:
        """Return the seconds of so many runs in a row, the device's work included."""
        self.wait()
        start = time.perf_counter()
        for _ in range(times):
            run()
        self.wait()
        return time.perf_counter() - start

    def us(self, run: Callable[[], object]) -> float:
        """Microseconds of a run: the median of rounds of runs back to back."""
        run()
        once = min(self.seconds(run), self.seconds(run))
        times = max(1, min(200, int(_LEAST_S / max(once, 1e-6))))
        rounds = [self.seconds(run, times) for _ in range(_ROUNDS)]
        return median(rounds) / times * 1e6

    def compiled(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        """The function as PyTorch compiles it, for fixed shapes; none before it."""
        self.lib.compiler.reset()  # it gives up after so many versions of one function
        made: Callable[_P, _R] = self.lib.compile(function, dynamic=False)
        return made

    def styled(self, function: Callable[_P, _R], style: str) -> Callable[_P, _R]:
        """The function in a style: eager, compiled."""
        return self.compiled(function) if style == "compiled" else function
