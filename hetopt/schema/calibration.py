"""Times of layers are measured ones, in a row for each size, or `calibrated`.

Constants of calibrated times were fitted to measured runs (`hetopt.costs.constants`);
an instance carries all that it is timed with: it means the same wherever it is read.
"""

from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from math import exp
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .record import Count, Fitted, Name, Record, Spread

#: What GPUs multiply in; a card that lacks one takes the next wider that it has.
Precision = Literal["fp32", "tf32", "fp16", "bf16", "fp8", "mxfp8", "nvfp4"]

Overlap = Literal["tp", "experts", "untold"]

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
    release: Annotated[str, Field(pattern=r"^\d\d\.\d\d$")] | None = Field(
        None, description="Of the software, year and month: 26.02."
    )
    site: Name | None = Field(None, description="A machine whose pace was measured.")
    overlap: tuple[Overlap, ...] = Field(
        (),
        strict=False,
        description="What hides behind products: collectives of tensor parallelism, "
        "tokens on their way to experts, or whether these do is untold.",
    )
    dispatcher: Literal["alltoall", "flexible"] = "alltoall"
    loss: Literal["whole", "plain", "chunked"] = Field(
        "whole",
        description="Of all logits at once, as the framework does or with copies of "
        "32 bits, or of a part of the tokens.",
    )

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


# --- measured times ---------------------------------------------------------------

_Us = Annotated[int, Field(ge=0, le=10**9)]
_Mib = Annotated[int, Field(ge=0, le=10**7)]
# Lists within costs are read as such, not as JSON, by their validator.
_LayerUs = Annotated[tuple[_Us, ...], Field(strict=False)]
_LayerMib = Annotated[tuple[_Mib, ...], Field(strict=False)]


class Profile(Record):
    """Measurements of every layer at one (GPU type, TP degree, micro-batch).

    Both passes are timed together; `backward_us` may tell a part of them. How sizes
    that were not measured and further micro-batches in flight are counted is said in
    `hetopt.costs.profiles`.
    """

    gpu: Name
    tensor_parallel: Count
    micro_batch: Count
    layer_us: _LayerUs = Field(
        description="Forward and backward of each layer, TP communication included."
    )
    backward_us: _LayerUs | None = None
    layer_mib: _LayerMib | None = Field(
        None,
        description="States and activations of each layer on each GPU, with one "
        "micro-batch in flight.",
    )
    activation_mib: _LayerMib | None = Field(
        None, description="The part of layer_mib that each micro-batch in flight holds."
    )
    update_us: _LayerUs | None = Field(
        None, description="The optimiser's update of each layer, once an iteration."
    )

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        count = len(self.layer_us)
        for field in ("backward_us", "update_us", "layer_mib", "activation_mib"):
            listed = getattr(self, field)
            if listed is not None and len(listed) != count:
                raise ValueError(
                    f"{field} lists {len(listed)} layers, layer_us {count}: list one "
                    "number per layer"
                )
        self._is_part("backward_us", "layer_us")
        if self.activation_mib is not None:
            if self.layer_mib is None:
                raise ValueError("found activation_mib without layer_mib: add it")
            self._is_part("activation_mib", "layer_mib")
        return self

    def _is_part(self, part: str, whole: str) -> None:
        pairs = zip(getattr(self, part) or (), getattr(self, whole), strict=False)
        for layer, (some, every) in enumerate(pairs):
            if some > every:
                raise ValueError(
                    f"{part} of layer {layer} is {some}, more than its {whole} "
                    f"{every}: correct one of them"
                )
