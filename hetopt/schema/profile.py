"""Measured times and memory of layers, a row for each size that was measured."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from .record import Count, Name, Record

_LayerUs = tuple[Annotated[int, Field(ge=0, le=10**9)], ...]
_LayerMib = tuple[Annotated[int, Field(ge=0, le=10**7)], ...]
_RunMib = tuple[Annotated[_LayerMib, Field(strict=False)], ...]


class Profile(Record):
    """Measurements of every layer at one (GPU type, TP degree, micro-batch).

    Both passes are timed together (`layer_us`, of which `backward_us` may tell a part)
    or apart (`forward_us` and `backward_us`). How sizes that were not measured and
    further micro-batches in flight are counted is said in `hetopt.costs.profiles`.
    """

    _later = frozenset(
        {"forward_us", "layer_mib", "activation_mib", "window_mib", "update_us"}
    )

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
    window_mib: _RunMib | None = Field(
        None,
        description="For each layer the memory of it and the next one, of it and the "
        "next two, and so on; of all layers as many runs as of the first, where there "
        "are so many layers behind. Layers that share buffers take less together.",
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
        if self.window_mib is not None:
            self._windows_agree(self.window_mib)
        return self

    def _windows_agree(self, windows: _RunMib) -> None:
        """Check that runs are those of the first layer, and that more take no less."""
        if self.layer_mib is None:
            raise ValueError("found window_mib without layer_mib: add it")
        if self.activation_mib is not None:
            raise ValueError(
                "window_mib and activation_mib exclude each other: remove one"
            )
        count = len(self.layer_us)
        if len(windows) != count:
            raise ValueError(
                f"window_mib lists {len(windows)} layers, layer_us {count}: give a "
                "list for each layer"
            )
        most = len(windows[0]) if windows else 0
        runs = [(mib, *row) for mib, row in zip(self.layer_mib, windows, strict=True)]
        for first, run in enumerate(runs):
            if len(run) != (want := 1 + min(most, count - 1 - first)):
                raise ValueError(
                    f"window_mib of layer {first} lists {len(run) - 1} runs, expected "
                    f"{want - 1}, as many as of layer 0 or as there are layers behind: "
                    "measure them"
                )
            behind = runs[first + 1] if first + 1 < count else ()
            for more, (mib, less) in enumerate(
                zip(run[1:], zip(run, behind, strict=False), strict=False)
            ):
                if mib < max(less):
                    raise ValueError(
                        f"window_mib of layers {first} to {first + 1 + more} is {mib}, "
                        f"less than the {max(less)} of one layer fewer: correct one "
                        "of them"
                    )

    def _is_part(self, part: str, whole: str) -> None:
        pairs = zip(getattr(self, part) or (), getattr(self, whole), strict=False)
        for layer, (some, every) in enumerate(pairs):
            if some > every:
                raise ValueError(
                    f"{part} of layer {layer} is {some}, more than its {whole} "
                    f"{every}: correct one of them"
                )
