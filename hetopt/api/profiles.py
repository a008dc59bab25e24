"""Layers of a model, measured on this machine."""

from collections.abc import Callable, Sequence

from ..errors import InstanceError
from ..measuring.profiling import Asked, How, Profiled, profiled
from ..schema import ModelSpec
from .calling import Place
from .scheduling import load_model


def profile(
    model: Place | ModelSpec,
    sequence_length: int,
    *,
    gpu: bool = True,
    gpu_name: str | None = None,
    micro_batches: Sequence[int] = (1, 2, 4),
    tensor_parallel: Sequence[int] = (1,),
    intra_gbytes_per_s: float | None = None,
    recompute: bool = True,
    flash: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Profiled:
    """Measure time and memory of a model's layers on this machine's GPU, or its CPU.

    `model` is a preset, a `config.json` or a `ModelSpec`. `progress` hears how many
    measurements are done, and of how many. Raises `InstanceError` where nothing fits
    into memory, or degrees lack a bandwidth; `Unsupported` without PyTorch or a GPU.
    """
    spec = model if isinstance(model, ModelSpec) else load_model(model)
    degrees, sizes = (tuple(sorted({*x})) for x in (tensor_parallel, micro_batches))
    asked = Asked(spec, sequence_length, degrees, sizes, gpu_name, intra_gbytes_per_s)
    how = How("cuda" if gpu else "cpu", recompute, flash)
    found = profiled(asked, how, progress)
    if not found.rows:
        raise InstanceError(
            "nothing fits into this device's memory: give smaller sizes"
        )
    return found
