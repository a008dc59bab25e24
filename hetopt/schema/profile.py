"""Measured times and memory of layers, a row for each size that was measured."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from .record import Count, Name, Record

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

    _later = frozenset({"layer_mib", "activation_mib", "update_us"})

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
