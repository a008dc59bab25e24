"""Measures the layers of a model on the device at hand, for `layer_times: profile`.

A profile has one row for each degree and micro-batch. All layers are alike, so one is
measured (`decoder` computes it). What one GPU cannot measure, the sums over a
tensor-parallel group, is added by formula (cost-model: A (t - 1) (alpha + 2 b S H /
(t beta)), A = 4 in each pass, 4 more where the forward pass runs again) over the link
that is given. Memory of a layer is its states, 16 bytes a parameter, and what it keeps
between its passes for one micro-batch: the tensors that autograd saves, each storage
once and the weights not, the same on every device. The peak is what the device's
allocator saw, weights and gradients included; a CPU's does not tell.
"""

import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from statistics import median
from typing import NamedTuple

from ..costs.compute import ceil
from ..costs.memory import mib
from ..errors import InstanceError, Unsupported
from ..findings import Finding
from ..schema import ModelSpec, Profile, exact
from ..text.documents import Document
from .decoder import Shard, Tensor, Weights, layer, shard, torch, weights

#: Repetitions, of which the median counts; bytes of states per parameter.
_REPEATS, _BYTES_PER_PARAMETER = 10, 16


class Timing(NamedTuple):
    """Medians of the two passes, and memory in bytes; peak only where it is told."""

    forward_s: float
    backward_s: float
    kept_bytes: int
    peak_bytes: int | None


class How(NamedTuple):
    """On what, and how the layer is computed."""

    device: str
    recompute: bool
    flash: bool


def timed(shape: Shard, b: int, sequence: int, how: How) -> Timing | None:
    """Measure one layer at `b` sequences; None where it runs out of memory."""
    lib = torch()
    try:
        return _timed(shape, b, sequence, how)
    except lib.OutOfMemoryError:
        gc.collect()
        lib.cuda.empty_cache()
        return None


def _timed(shape: Shard, b: int, sequence: int, how: How) -> Timing:
    lib = torch()
    dtype = lib.bfloat16 if how.device == "cuda" else lib.float32
    lib.manual_seed(0)
    own = weights(shape, how.device, dtype)
    x = lib.randn(b, sequence, shape.hidden, device=how.device, dtype=dtype)
    x.requires_grad_()
    above = lib.randn_like(x)
    run = _run(shape, own, how)
    kept = _kept_bytes(lambda: run(x), {_place(w) for w in own.values()})
    if how.device == "cuda":
        lib.cuda.reset_peak_memory_stats()
    times = [_once(run, x, above, how.device) for _ in range(_REPEATS + 2)][2:]
    peak = lib.cuda.max_memory_allocated() if how.device == "cuda" else None
    return Timing(median(f for f, _ in times), median(b for _, b in times), kept, peak)


def _run(shape: Shard, own: Weights, how: How) -> Callable[[Tensor], Tensor]:
    one = layer(shape, flash=how.flash)

    def plain(x: Tensor) -> Tensor:
        return one(own, x)

    if not how.recompute:
        return plain
    again = import_module("torch.utils.checkpoint").checkpoint
    return lambda x: again(plain, x, use_reentrant=False)


def _once(
    run: Callable[[Tensor], Tensor], x: Tensor, above: Tensor, device: str
) -> tuple[float, float]:
    """Seconds of one forward and one backward pass."""
    start = _now(device)
    y = run(x)
    middle = _now(device)
    y.backward(above)
    return middle - start, _now(device) - middle


def _now(device: str) -> float:
    if device == "cuda":
        torch().cuda.synchronize()
    return time.perf_counter()


def _place(tensor: Tensor) -> int:
    return int(tensor.untyped_storage().data_ptr())


def _kept_bytes(run: Callable[[], Tensor], but: set[int]) -> int:
    """Bytes of the storages that the backward pass of `run` needs, but those given."""
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        if (place := _place(tensor)) not in but:
            kept[place] = tensor.untyped_storage().nbytes()
        return tensor

    hooks = torch().autograd.graph.saved_tensors_hooks(keep, lambda kept: kept)
    with hooks:
        _output = run()  # held, or a storage's place could be taken again
    return sum(kept.values())


# --- a profile -------------------------------------------------------------------


class Asked(NamedTuple):
    """A question to the profiler, and what no measurement tells."""

    model: ModelSpec
    sequence_length: int
    degrees: tuple[int, ...]
    micro_batches: tuple[int, ...]
    gpu: str | None = None
    intra_gbytes_per_s: float | None = None
    intra_latency_us: float = 0.0


class Measured(NamedTuple):
    """One measurement; `row` is None where it ran out of memory."""

    tensor_parallel: int
    micro_batch: int
    row: Profile | None
    peak_mib: int | None


@dataclass(frozen=True, repr=False)
class Profiled(Finding, layout="listing.profile"):
    """All measurements, and where they were taken."""

    gpu: str
    torch: str
    measured: tuple[Measured, ...]

    @property
    def rows(self) -> list[Document]:
        """The profile, as `workload.costs.profile` takes it."""
        found = (one.row for one in self.measured if one.row is not None)
        return [row.model_dump(mode="json", exclude_none=True) for row in found]

    def to_json(self) -> Document:
        """Return the document of `hetopt profile --json`."""
        return {
            "gpu": self.gpu,
            "torch": self.torch,
            "profile": self.rows,
            "measured": [
                {
                    "tensor_parallel": one.tensor_parallel,
                    "micro_batch": one.micro_batch,
                    "fits": one.row is not None,
                    "peak_mib": one.peak_mib,
                }
                for one in self.measured
            ],
        }

    def to_file(self) -> list[Document]:
        """Return the rows, for `costs.compute.profile` of an instance."""
        return self.rows


def profiled(
    asked: Asked, how: How, report: Callable[[int, int], None] | None = None
) -> Profiled:
    """Measure; `report` is told (done, of all). Raises before it measures anything.

    `InstanceError` for a degree that does not divide the model, or that needs a link;
    `Unsupported` without PyTorch, or without the device.
    """
    shapes = {t: shard(asked.model, t) for t in asked.degrees}
    if max(asked.degrees) > 1 and asked.intra_gbytes_per_s is None:
        raise InstanceError(
            f"found tensor-parallel degree {max(asked.degrees)} and no bandwidth for "
            "its all-reduces, which one GPU cannot time; give --intra-gbytes-per-s"
        )
    lib, gpu = torch(), asked.gpu or "CPU"
    if how.device == "cuda":
        if not lib.cuda.is_available():
            raise Unsupported("PyTorch finds no GPU: give --cpu to measure the CPU")
        gpu = asked.gpu or str(lib.cuda.get_device_name())
    measured: list[Measured] = []
    for t, shape in shapes.items():
        full = False
        for b in sorted(asked.micro_batches):
            # What did not fit does not fit twice as large either.
            found = None if full else timed(shape, b, asked.sequence_length, how)
            full = found is None
            measured.append(_measured(asked, gpu, t, b, found, recompute=how.recompute))
            if report is not None:
                report(len(measured), len(shapes) * len(asked.micro_batches))
    return Profiled(gpu, str(lib.__version__), tuple(measured))


def _measured(
    asked: Asked, gpu: str, t: int, b: int, found: Timing | None, *, recompute: bool
) -> Measured:
    if found is None:
        return Measured(t, b, None, None)
    reduced = _all_reduces_s(asked, t, b)
    again, layers = 2 if recompute else 1, asked.model.layers
    forward = ceil((Fraction(found.forward_s) + reduced) * 10**6)
    backward = ceil((Fraction(found.backward_s) + reduced * again) * 10**6)
    kept = mib(found.kept_bytes)
    states = [
        mib(Fraction(_BYTES_PER_PARAMETER * p, t)) for p in asked.model.parameters
    ]
    row = Profile.model_validate(
        {
            "gpu": gpu,
            "tensor_parallel": t,
            "micro_batch": b,
            "layer_us": (forward + backward,) * layers,
            "backward_us": (backward,) * layers,
            "layer_mib": tuple(own + kept for own in states),
            "activation_mib": (kept,) * layers,
        }
    )
    peak = None if found.peak_bytes is None else mib(found.peak_bytes)
    return Measured(t, b, row, peak)


def _all_reduces_s(asked: Asked, t: int, b: int) -> Fraction:
    """Seconds of the all-reduces of one pass through a layer."""
    if t == 1 or asked.intra_gbytes_per_s is None:
        return Fraction(0)
    size = 2 * b * asked.sequence_length * asked.model.hidden
    wire = Fraction(size, t) / (exact(asked.intra_gbytes_per_s) * 10**9)
    return 4 * (t - 1) * (exact(asked.intra_latency_us) / 10**6 + wire)


def shown(found: Profiled) -> Iterator[tuple[str, ...]]:
    """A table's rows: degree, micro-batch, both passes in ms, MiB kept and at peak."""
    for one in found.measured:
        head = (str(one.tensor_parallel), str(one.micro_batch))
        row = one.row
        if row is None or row.backward_us is None or row.activation_mib is None:
            yield (*head, "out of memory", "", "", "")
            continue
        us = row.layer_us[0] - row.backward_us[0], row.backward_us[0]
        kept, peak = str(row.activation_mib[0]), str(one.peak_mib or "unknown")
        yield (*head, *(f"{each / 1000:.3f}" for each in us), kept, peak)
