"""A profile of a model's layers, one row for each degree and micro-batch.

What one GPU cannot measure, the sums over a tensor-parallel group, is added by formula
(cost-model: A (t - 1) (alpha + 2 b S H / (t beta)), A = 4 in each pass, 4 more where
the forward pass runs again) over the link that is given. All layers are alike, so one
is measured. Memory of a layer is its states, by bytes a parameter, and what it keeps
between its passes for one micro-batch.
"""

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from ...costs.compute import ceil
from ...costs.memory import mib
from ...errors import InstanceError
from ...schema import ModelSpec, Profile, exact
from ...text.documents import Document
from .. import decoder
from . import timing
from .layer import shard
from .timing import How, Timing


class Asked(NamedTuple):
    """A question to the profiler, and what no measurement tells."""

    model: ModelSpec
    sequence_length: int
    degrees: tuple[int, ...]
    micro_batches: tuple[int, ...]
    gpu: str | None = None
    bytes_per_parameter: int = 16
    intra_gbytes_per_s: float | None = None
    intra_latency_us: float = 0.0


class Measured(NamedTuple):
    """One measurement; `row` is None where it ran out of memory."""

    tensor_parallel: int
    micro_batch: int
    row: Profile | None
    peak_mib: int | None


class Profiled(NamedTuple):
    """All measurements, and where they were taken."""

    gpu: str
    torch: str
    measured: tuple[Measured, ...]

    @property
    def rows(self) -> list[Document]:
        """The profile, as `workload.costs.profile` takes it."""
        found = (one.row for one in self.measured)
        return [
            row.model_dump(mode="json", exclude_none=True, exclude={"layer_us"})
            for row in found
            if row is not None
        ]


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
    timing.check(how.device)
    gpu = asked.gpu or timing.device_name(how.device)
    measured: list[Measured] = []
    for t, shape in shapes.items():
        full = False
        for b in sorted(asked.micro_batches):
            # What did not fit does not fit twice as large either.
            found = None if full else timing.timed(shape, b, asked.sequence_length, how)
            full = found is None
            measured.append(_measured(asked, gpu, t, b, found, recompute=how.recompute))
            if report is not None:
                report(len(measured), len(shapes) * len(asked.micro_batches))
    return Profiled(gpu, str(decoder.torch().__version__), tuple(measured))


def _measured(
    asked: Asked, gpu: str, t: int, b: int, found: Timing | None, *, recompute: bool
) -> Measured:
    if found is None:
        return Measured(t, b, None, None)
    reduced = _all_reduces_s(asked, t, b)
    forward = Fraction(found.forward_s) + reduced
    backward = Fraction(found.backward_s) + reduced * (2 if recompute else 1)
    layers = asked.model.layers
    kept = mib(found.kept_bytes)
    states = [
        mib(Fraction(asked.bytes_per_parameter * p, t)) for p in asked.model.parameters
    ]
    row = Profile.model_validate(
        {
            "gpu": gpu,
            "tensor_parallel": t,
            "micro_batch": b,
            "forward_us": (ceil(forward * 10**6),) * layers,
            "backward_us": (ceil(backward * 10**6),) * layers,
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
        if row is None or row.forward_us is None or row.backward_us is None:
            yield (*head, "out of memory", "", "", "")
            continue
        kept = row.activation_mib[0] if row.activation_mib else 0
        passes = (f"{us[0] / 1000:.3f}" for us in (row.forward_us, row.backward_us))
        yield (*head, *passes, str(kept), str(one.peak_mib or "unknown"))
