"""Boxes of the engine that prices leave open, closed by enumeration.

A box says how long all pipelines synchronise, how many there are, and what sizes their
micro-batches have. All columns that a packing of the box may hold are listed
(`completion`), put together (`packings`) and cut in all ways (`join`), with the exact
synchronisation of each packing. So the least time of a plan in the box is known: either
none is better than the best plan known, or a better one is found.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from itertools import islice

from ... import capability
from ...bounds.longest import longest
from ...plans import TrainingPlan
from ...problems.training_plan import settings
from ...schema import Instance, Record
from ..pipelines.boxes import Box
from .columns import Column
from .join import Cutoff, Join
from .listing import Listing
from .packings import Packings, SyncTimes, is_enough, lasting, tightened
from .stages import StageTables, TooMany

_GPUS = 16
_STAGES = 6_000  # of one size of micro-batches


class Effort(Record):
    """The effort says how much is listed of one box before it is left open."""

    extensions: int  # stages put before suffixes, of one size
    columns: int  # columns within their limits, of all sizes
    packings: int  # sets of columns that may take the batch


#: The effort for a box at first, and where nothing else is left to do.
EFFORTS = (
    Effort(extensions=100_000, columns=4_000, packings=20_000),
    Effort(extensions=400_000, columns=16_000, packings=80_000),
)


def is_enumerated(instance: Instance) -> bool:
    """Tell whether boxes of an instance may be closed by enumeration.

    Plans take as long as columns say, all have the instance's own settings, and any
    plan runs.
    """
    workload = instance.workload
    return (
        instance.planned_cluster.gpu_count <= _GPUS
        and workload.target.free
        and not max(workload.zeros)
        and len(settings.variants(instance)) == 1
        and capability.carries_exactly("proof enumeration", instance)
        and longest(instance).fit
    )


class BoxEnumeration:
    """Looks for the best plans of boxes, one after another."""

    def __init__(
        self,
        instance: Instance,
        value: int,
        offer: Callable[[TrainingPlan], int],
        check: Callable[[], None],
    ) -> None:
        """Look for plans below `value` us, and `offer` each, which the judge times."""
        self._instance, self._offer, self._check = instance, offer, check
        #: No plan of a box that was closed takes less, in us; and how many there are.
        self.value, self.closed = value, 0
        self._synced: dict[object, int] = {}

    @cached_property
    def _tables(self) -> StageTables:
        return StageTables(self._instance)

    @cached_property
    def _listing(self) -> Listing:
        return Listing(self._tables, self._check, _STAGES)

    def closes(self, box: Box, effort: int) -> bool:
        """Tell whether all plans of a box are known to take `value` or longer.

        What is better is found and offered on the way, and lowers the value. `effort`
        is a number of `EFFORTS`.
        """
        with suppress(TooMany):
            self._close(box, EFFORTS[effort])
            self.closed += 1
            return True
        return False

    def _close(self, box: Box, effort: Effort) -> None:
        """Look at all plans of a box; `TooMany` where that takes long.

        Every pipeline has a replica of each layer, or more; exactly one where no
        micro-batch has several sequences. A single pipeline takes the whole batch.
        """
        tables = self._tables
        cutoff = Cutoff.of(self._instance, tables.table, self.value)
        us = cutoff.us_left(box.sync_low_us)
        if us < 0:
            return
        every = sorted(set(self._instance.workload.micro_batch_sizes))
        sizes = [
            b for b in every[box.size_low : box.size_high + 1] if b <= tables.batch
        ]
        if box.count_high == 1:
            sizes = [b for b in sizes if tables.batch % b == 0]
        fewest = max(box.count_low, box.replicas_low if sizes == [1] else 1)
        counts = fewest, min(box.count_high, box.replicas_high, sum(tables.gpus))
        replicas = {b: min(b, sum(tables.gpus)) for b in sizes}
        rows = self._listing.columns(replicas, us, counts, effort.extensions)
        found = [*islice(rows, effort.columns + 1)]
        if len(found) > effort.columns:
            raise TooMany
        self._pack(box, found, counts, cutoff, effort.packings)

    def _pack(
        self,
        box: Box,
        listed: list[Column],
        counts: tuple[int, int],
        cutoff: Cutoff,
        most: int,
    ) -> None:
        tables, us = self._tables, cutoff.us_left(box.sync_low_us)
        some = tightened(tables, listed, us, self._check)
        columns, samples = lasting(tables, some, us)
        fewest, highest = counts
        exactly = fewest if fewest == highest else None
        packings = Packings(tables, columns, samples, self._check, exactly)
        for number, chosen in enumerate(packings):
            if number == most:
                raise TooMany
            if not fewest <= len(chosen) <= highest:
                continue
            chosen = tuple(sorted(chosen, key=lambda column: len(column.stages)))
            sync = SyncTimes(tables, chosen, self._synced)
            if box.sync_high_us is not None and sync.least > box.sync_high_us:
                continue  # all of its plans lie in other boxes
            if is_enough(tables, chosen, cutoff.us_left(sync.least)):
                Join(tables, sync, chosen, cutoff, self._submit, self._check).run(0)

    def _submit(self, plan: TrainingPlan, us: int) -> int:
        self.value = min(self.value, us)
        return self._offer(plan)
