"""Times of layers that are `calibrated` are computed with these constants.

The constants were fitted to measured runs (`hetopt.costs.constants`); an instance
carries all that it is timed with, so that it means the same wherever it is read.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from math import exp
from typing import Annotated, Literal

from pydantic import Field

from .record import Fitted, Name, Record, Spread

#: What GPUs multiply in; a card that lacks one takes the next wider that it has.
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]

#: What a card multiplies in that lacks a precision.
WIDER = {
    "nvfp4": "mxfp8",
    "mxfp8": "fp8",
    "fp8": "bf16",
    "bf16": "fp16",
    "fp16": "fp32",
    "tf32": "fp32",
}

OF_80_PERCENT = 1.2816  # standard deviations, either side, of a normal distribution

#: Four digits of an interval's ends.
_DOWN, _UP = Context(4, ROUND_FLOOR), Context(4, ROUND_CEILING)


class Calibration(Record):
    """The program that trains, as far as times depend on it, and the constants.

    A constant `name@quality` is a factor of `name` that holds for that quality alone:
    a framework, a style, a card, a generation, a kernel on a generation. A card whose
    generation has no factor of `attention` for the kernel writes scores to memory, as
    with the kernel `none`.
    """

    framework: Name
    style: Literal["eager", "compiled", "fused"]
    kernel: Literal["cudnn", "flash1", "flash2", "none"]
    precision: Precision
    constants: Annotated[dict[Name, Fitted], Field(max_length=1000)]
    spread: Spread

    @property
    def is_narrow(self) -> bool:
        """Return whether products have eight bits or fewer."""
        return self.precision in ("fp8", "mxfp8", "nvfp4")

    def interval_s(self, seconds: float) -> tuple[float, float]:
        """Return where 80% of the runs lie that are predicted to take these seconds.

        Both ends have four digits and are rounded outward: the prediction is between.
        """
        factor = exp(OF_80_PERCENT * self.spread)
        low, high = str(seconds / factor), str(seconds * factor)
        return float(_DOWN.create_decimal(low)), float(_UP.create_decimal(high))


def multiplied_in(precision: str, peaks: dict[Precision, float]) -> str | None:
    """The precision of `peaks` that products are done in; None where there is none."""
    wanted: str | None = precision
    while wanted is not None and wanted not in peaks:
        wanted = WIDER.get(wanted)
    return wanted
