"""Measured times and memory of layers, a row for each size that was measured."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from .record import Count, Name, Record

_LayerUs = tuple[Annotated[int, Field(ge=0, le=10**9)], ...]
_LayerMib = tuple[Annotated[int, Field(ge=0, le=10**7)], ...]


class Profile(Record):
    """Measurements of every layer at one (GPU type, TP degree, micro-batch).

    Both passes are timed together (`layer_us`, of which `backward_us` may tell a part)
    or apart (`forward_us` and `backward_us`). How sizes that were not measured and
    further micro-batches in flight are counted is said in `hetopt.costs.profiles`.
    """

    _later = frozenset({"forward_us", "layer_mib", "activation_mib", "update_us"})

    gpu: Name
    tensor_parallel: Count
    micro_batch: Count
    layer_us: _LayerUs = Field(
        description="Forward and backward of each layer, TP communication included."
    )
    forward_us: _LayerUs | None = None
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

    @model_validator(mode="before")
    @classmethod
    def _both_passes(cls, data: object) -> object:
        """`layer_us` as the sum of two passes that were timed apart."""
        if not isinstance(data, dict):
            return data
        # Seen from here JSON's lists are lists already, which strict tuples refuse.
        data = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        if "layer_us" in data:
            return data
        passes = [data.get("forward_us"), data.get("backward_us")]
        if not all(
            isinstance(times, tuple) and all(type(us) is int for us in times)
            for times in passes
        ):
            return data  # the fields' own checks say what is wrong
        return {**data, "layer_us": tuple(map(sum, zip(*passes, strict=False)))}

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        count = len(self.layer_us)
        for field in (
            *("forward_us", "backward_us", "update_us"),
            *("layer_mib", "activation_mib"),
        ):
            listed = getattr(self, field)
            if listed is not None and len(listed) != count:
                raise ValueError(
                    f"{field} lists {len(listed)} layers, layer_us {count}: list one "
                    "number per layer"
                )
        if self.forward_us is not None and self.layer_us != tuple(
            map(sum, zip(self.forward_us, self.backward_us or (), strict=False))
        ):
            raise ValueError(
                "layer_us is not forward_us + backward_us: give layer_us, or "
                "forward_us and backward_us"
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
