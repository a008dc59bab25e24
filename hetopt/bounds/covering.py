"""A count of the pipelines with all layers that the GPUs of a cluster hold.

A plan has D pipelines, D no more than their states have room for. One of them takes its
share of the batch or more: n micro-batches or more of a size b. Its stage at position i
from the end keeps min(n, i + 1) of them or more (1F1B; all n with GPipe; else one at
the least), and replicas of t GPUs with s samples each, whose samples sum to b. So with
a weight w of each class of GPUs,

    stage(l, m, f) = min sum of t w over replicas that hold layers l to m - 1 while f
                     micro-batches are kept, their samples summing to b
    cover(0, l)    = stage(l, layers, 1)
    cover(i, l)    = min over m > l of stage(l, m, min(n, i + 1)) + cover(i - 1, m)
    pipeline(n)    = min over i and b of cover(i, 0)

and no plan fits where pipeline(n) + (D - 1) pipeline(1) is more than all GPUs weigh,
for every D. A replica needs what it needs at the least (`hetopt.stages.runs`): where
micro-batches have one sequence, every layer has D replicas, among which ZeRO divides;
else as many as there can be. GPUs weigh alike, by their memory, or by the layers that
they hold.
"""

from functools import reduce
from math import inf

import numpy as np

from .. import capability
from ..caching import cached_method
from ..clock import monotonic
from ..errors import OutOfTime
from ..problems.training_plan import settings
from ..schema import Instance
from ..stages import StageTable
from ..stages.classes import Whole
from ..stages.runs import Flags, fitting
from .training_plan import most_pipelines

#: Micro-batches in flight with tables of their own; more count as these.
_MOST_KEPT = 16
#: Layers of a model up to which a cover is looked for: tables grow with their square.
_MOST_LAYERS = 256
#: Numbers of pipelines that are looked at one by one; where more may fit, they do.
_MOST_PIPELINES = 32
_BEYOND = 1 << 40  # heavier than any cluster; a sum of two is far below 64 bits


def reason(instance: Instance, *, deadline: float = inf) -> str | None:
    """Return why no plan fits, in words; None where that is not seen.

    Nor is it after the deadline, as `clock.monotonic()` tells it. Micro-batches of the
    least size alone come first, which take a fraction of the time: where these may fit,
    nothing is proved of all sizes.
    """
    variants = settings.variants(instance)
    if instance.model.layers > _MOST_LAYERS:
        return None
    if any(not capability.carries("proof pipelines", one) for one in variants):
        return None
    sizes = instance.workload.micro_batch_sizes
    least = settings.variants(instance.with_workload(micro_batch_sizes=(min(sizes),)))
    try:
        for some in (least, variants) if len(sizes) > 1 else (variants,):
            if any(_may_fit(one, deadline) for one in some):
                return None
    except OutOfTime:
        return None
    return (
        "memory: no pipeline fits that takes its part of the batch: its stages need "
        "more GPUs than there are, however the layers are cut; add memory or GPUs, or "
        "take shorter sequences or smaller micro-batches"
    )


def _may_fit(variant: Instance, deadline: float) -> bool:
    """Tell whether no weights refute plans of a stage of ZeRO and a split."""
    table = StageTable(variant)
    covers = _Covers(table, deadline)
    room = [table.costs.memory_mib(each.nodes[0]) for each in table.classes]
    for weights in ([1] * len(room), room, covers.most_layers()):
        covers.weights = np.array(weights, np.int64)
        if not covers.fit():
            return False
    return True


class _Covers:
    """The least that pipelines weigh, on GPUs of one weighing."""

    weights: Whole

    def __init__(self, table: StageTable, deadline: float) -> None:
        """Weigh the stages of a table until the deadline is over."""
        self.table, self._deadline = table, deadline
        recomputes = table.instance.workload.recomputes
        self._rules = [table.costs.under(rule) for rule in recomputes]

    def _check(self) -> None:
        if monotonic() > self._deadline:
            raise OutOfTime

    @cached_method
    def _able(
        self, number: int, group: tuple[int, int], flight: int, replicas: int | None
    ) -> Flags:
        """Tell which runs fit on GPUs of a class, under any rule of recomputation."""
        self._check()
        table = self.table
        place = table.runs, table.classes[number].nodes[0], group, flight
        held = replicas and [replicas] * table.layers
        each = (fitting(rule, *place, held, self._check) for rule in self._rules)
        return reduce(np.logical_or, each)

    def most_layers(self) -> list[int]:
        """Return the thousandths of a layer that a GPU holds, by class."""
        found = [0] * len(self.table.classes)
        for number, each in enumerate(self.table.classes):
            for t, s in self.table.groups(each):
                held = self._able(number, (t, s), 1, None) * self.table.runs.lengths
                found[number] = max(found[number], 1000 * s * int(held.max()) // t)
        return found

    def fit(self) -> bool:
        """Tell whether some number of pipelines may weigh no more than all GPUs."""
        table, allowed = self.table, int((self.weights * self.table.gpus).sum())
        most, batch = most_pipelines(table.costs), table.batch
        if table.sizes != (1,):  # numbers of pipelines do not tell those of replicas
            return self.pipeline(-(-batch // most), None) <= allowed
        alone = self.pipeline(1, None)
        for count in range(1, most + 1):
            if count * alone > allowed:
                return False
            if count > _MOST_PIPELINES:
                return True
            others = (count - 1) * self.pipeline(1, count)
            if others + self.pipeline(-(-batch // count), count) <= allowed:
                return True
        return False

    def pipeline(self, sequences: int, replicas: int | None) -> int:
        """Return what a pipeline of so many sequences weighs at the least.

        Every layer has so many `replicas`, or as many as there can be.
        """
        schedule = self.table.instance.workload.costs.schedule
        all_kept = schedule.in_flight == "gpipe" and schedule.interleave == 1
        kept = _MOST_KEPT if all_kept or schedule.in_flight == "1f1b" else 1
        sizes = ((b, min(kept, -(-sequences // b))) for b in self.table.sizes)
        return min(
            self._of_size(b, range(most if all_kept else 1, most + 1), replicas)
            for b, most in sizes
        )

    def _of_size(self, b: int, flights: range, replicas: int | None) -> int:
        """Return the same of one size; stages keep so many, the last one the least."""
        positions = min(self.table.layers, int(self.table.gpus.sum()))
        stages = [
            np.append(self._stages(b, flight, replicas), _BEYOND)[
                self.table.runs.number  # -1 is no run
            ]
            for flight in flights
        ]
        cover = stages[0][:, -1]  # from each layer to the end, in one stage
        least = int(cover[0])
        for i in range(1, positions):
            each = stages[min(i, len(stages) - 1)]
            longer = (each[:, :-1] + cover[None, :-1]).min(axis=1)
            cover = np.minimum(longer, _BEYOND)
            least = min(least, int(cover[0]))
        return least

    def _stages(self, b: int, flight: int, replicas: int | None) -> Whole:
        least = np.full((b + 1, len(self.table.runs)), _BEYOND, np.int64)
        least[0] = 0
        shares = [
            (s, np.where(able, t * self.weights[number], _BEYOND))
            for number, each in enumerate(self.table.classes)
            for t, s in self.table.groups(each)
            if s <= b
            for able in [self._able(number, (t, s), flight, replicas)]
        ]
        for samples in range(1, b + 1):
            for s, each in shares:
                if s <= samples:
                    both = np.minimum(least[samples - s] + each, _BEYOND)
                    least[samples] = np.minimum(least[samples], both)
        found: Whole = least[b]
        return found
