"""Measured times and memory of layers, put together for sizes and runs not measured.

A micro-batch of b sequences is the row measured at b, else one row for each binary
digit of b, as in Metis (section 4.3). Of those rows

    time     = the sum of their times
    memory   = base + in flight * activations      with activation_mib
             = the sum of their layer_mib          without, as Metis counts: what layers
               keep between micro-batches counts once a row, which is never too little
    base     = the most of layer_mib - activation_mib among the rows
    activations = the sum of activation_mib

all summed over the layers of a run. (Metis weighs runs of layers, which share buffers
and take no more.)

`layer_mib` is what a GPU holds for a layer with one micro-batch in flight: states and
activations. Without activation_mib, what further micro-batches in flight hold comes
from the formula of `memory`. The measurements stand for the layers alone: embedding and
head are priced by formula, as without a profile, unless `head: omit` (a profile that
times them has them as its first and last layer).
"""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from statistics import median_low

from ..caching import cached_method
from ..errors import InstanceError
from ..schema import Instance, Profile
from .compute import ceil

Times = tuple[int, ...]


class Measurements:
    """The profile of an instance; false where it has none."""

    def __init__(self, instance: Instance) -> None:
        """Look up the rows of `instance.workload.costs.profile`."""
        self._name = instance.name
        self._rows = {
            (row.gpu, row.tensor_parallel, row.micro_batch): row
            for row in instance.workload.costs.compute.profile
        }
        #: Whether memory is measured; the schema sees to it that all rows are alike.
        self.weighs = any(row.layer_mib for row in self._rows.values())
        #: Whether updates are measured.
        self.updates = any(row.update_us for row in self._rows.values())

    def __bool__(self) -> bool:
        return bool(self._rows)

    def known(self, gpu: str, t: int, b: int) -> bool:
        """Tell whether every row that (gpu, t, b) asks for was measured."""
        return (gpu, t, b) in self._rows or all(
            (gpu, t, size) in self._rows for size in _digits(b)
        )

    def rows(self, gpu: str, t: int, b: int) -> list[Profile]:
        """The row at `b`, else those of its binary digits.

        Raises `InstanceError` that names the measurement to take.
        """
        if (whole := self._rows.get((gpu, t, b))) is not None:
            return [whole]
        found = []
        for size in _digits(b):
            row = self._rows.get((gpu, t, size))
            if row is None:
                raise InstanceError(
                    f"instance {self._name!r}: no profile of {gpu!r} "
                    f"at tensor_parallel {t} and micro_batch {size}: "
                    "measure it and add it to workload.costs.profile"
                )
            found.append(row)
        return found

    def times_us(self, gpu: str, t: int, b: int) -> tuple[Times, Times | None]:
        """Both passes of each layer, and the backward pass where all rows tell it."""
        rows = self.rows(gpu, t, b)
        times = tuple(map(sum, zip(*(row.layer_us for row in rows), strict=True)))
        parts = [row.backward_us for row in rows if row.backward_us is not None]
        if len(parts) < len(rows):
            return times, None
        return times, tuple(map(sum, zip(*parts, strict=True)))

    @cached_method
    def update_us(self, gpu: str, t: int) -> Times | None:
        """The update of each layer, which does not depend on the micro-batch.

        Of the sizes measured the middle time, the lesser of two; None: not measured.
        """
        rows = [row for key, row in self._rows.items() if key[:2] == (gpu, t)]
        told = [row.update_us for row in rows if row.update_us is not None]
        return tuple(map(median_low, zip(*told, strict=True))) if told else None

    def run_mib(
        self, gpu: str, layers: Sequence[int], t: int, b: int, in_flight: int | Fraction
    ) -> tuple[int, bool]:
        """Memory of a run of layers on each GPU.

        The second value says whether all that is in flight is counted; otherwise it
        is one micro-batch.
        """
        if not isinstance(layers, range):  # virtual stages that a plan tells
            runs = [range(x, x + 1) for x in layers]
            parts = [self.run_mib(gpu, run, t, b, in_flight) for run in runs]
            return sum(mib for mib, _ in parts), all(whole for _, whole in parts)
        base, each = self._held(gpu, t, b)
        whole = base[layers.stop] - base[layers.start]
        if each is None:
            return whole, in_flight <= 1
        moved = Fraction(in_flight) * (each[layers.stop] - each[layers.start])
        return whole + ceil(moved), True

    @cached_method
    def _held(self, gpu: str, t: int, b: int) -> tuple[list[int], list[int] | None]:
        """Return sums before each layer: of what stays, and of what is added."""
        rows = self.rows(gpu, t, b)
        totals = [row.layer_mib or () for row in rows]
        parts = [row.activation_mib for row in rows if row.activation_mib is not None]
        if len(parts) < len(rows):
            return _behind(map(sum, zip(*totals, strict=True))), None
        stays = [
            [whole - part for whole, part in zip(total, moved, strict=True)]
            for total, moved in zip(totals, parts, strict=True)
        ]
        each = map(sum, zip(*parts, strict=True))
        return _behind(map(max, zip(*stays, strict=True))), _behind(each)

    def least_of_rows(self, layer: int) -> Times:
        """Return what a layer takes, row by row."""
        return tuple(
            row.layer_mib[layer] for row in self._rows.values() if row.layer_mib
        )

    @cached_method
    def least_mib(self, gpu: str, t: int, layer: int) -> int | None:
        """The least that a layer takes at a degree, at any size; None: not measured.

        Every size holds at least as much as one of its rows alone.
        """
        rows = (row for key, row in self._rows.items() if key[:2] == (gpu, t))
        return min(
            (row.layer_mib[layer] for row in rows if row.layer_mib), default=None
        )

    def least_group_mib(self, layer: int) -> int:
        """The least that a tensor-parallel group takes for a layer, on all its GPUs."""
        rows = self._rows.values()
        return min(
            row.tensor_parallel * row.layer_mib[layer] for row in rows if row.layer_mib
        )


def _digits(b: int) -> list[int]:
    """The powers of two that `b` is the sum of."""
    return [1 << bit for bit in range(b.bit_length()) if b >> bit & 1]


def _behind(values: Iterable[int]) -> list[int]:
    """Sums over the values before each."""
    return list(accumulate(values, initial=0))
