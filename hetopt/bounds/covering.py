"""A count of the pipelines with all layers that the GPUs of a cluster hold.

A plan has D pipelines, D no more than their states have room for. One of them takes its
share of the batch or more: n micro-batches or more of a size b. Its stage at position i
from the end keeps min(n, i + 1) of them or more (1F1B; else one at the least), and
replicas of t GPUs with s samples each, whose samples sum to b. So with a weight w of
each class of GPUs,

    stage(l, m, f) = min sum of t w over replicas that hold layers l to m - 1 while f
                     micro-batches are kept, their samples summing to b
    cover(0, l)    = stage(l, layers, 1)
    cover(i, l)    = min over m > l of stage(l, m, min(n, i + 1)) + cover(i - 1, m)
    pipeline(n)    = min over i and b of cover(i, 0)

and no plan fits where pipeline(n) + (D - 1) pipeline(1) is more than all GPUs weigh,
for every D. A replica needs what it needs at the least (`hetopt.stages.runs`): where
micro-batches have one sequence, every layer has D replicas, among which ZeRO divides;
else as many as there can be. The weights are those of GPUs that count alike, and of
GPUs that count by their memory.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

import numpy as np

from .. import capability
from ..clock import monotonic
from ..errors import OutOfTime
from ..problems.training_plan import settings
from ..schema import Instance
from ..stages import StageTable
from ..stages.classes import Whole
from ..stages.runs import fitting
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
    only = {"micro_batch_sizes": (min(sizes),)} if len(sizes) > 1 else {}
    workload = instance.workload.model_copy(update=only)
    least = settings.variants(instance.model_copy(update={"workload": workload}))
    try:
        for some in (least, variants) if only else (variants,):
            if any(_may_fit(one, deadline) for one in some):
                return None
    except OutOfTime:
        return None
    return (
        "memory: no pipeline that takes its part of the batch fits: its stages need "
        "more GPUs than there are, however the layers are cut; add memory or GPUs, or "
        "take shorter sequences or smaller micro-batches"
    )


def _may_fit(variant: Instance, deadline: float) -> bool:
    """Tell whether no weights refute plans of a stage of ZeRO and a split."""
    table = StageTable(variant)
    room = [table.costs.memory_mib(each.nodes[0]) for each in table.classes]
    weights = (np.ones(len(room), np.int64), np.array(room, np.int64))
    return all(_is_covered(_Covers(table, each, deadline)) for each in weights)


def _is_covered(covers: "_Covers") -> bool:
    """Tell whether some number of pipelines may weigh no more than all GPUs."""
    table, allowed = covers.table, covers.allowed
    most, batch = most_pipelines(table.costs), table.batch
    if table.sizes != (1,):  # numbers of pipelines do not tell those of replicas
        return covers.pipeline(-(-batch // most), None) <= allowed
    alone = covers.pipeline(1, None)
    for count in range(1, most + 1):
        if count * alone > allowed:
            return False
        if count > _MOST_PIPELINES:
            return True
        others = (count - 1) * covers.pipeline(1, count)
        if others + covers.pipeline(-(-batch // count), count) <= allowed:
            return True
    return False


@dataclass(frozen=True)
class _Covers:
    """The least that pipelines weigh, on GPUs of one weighing."""

    table: StageTable
    weights: Whole
    deadline: float

    def check(self) -> None:
        """Raise `OutOfTime` where the deadline is over."""
        if monotonic() > self.deadline:
            raise OutOfTime

    @property
    def allowed(self) -> int:
        """Return what all GPUs weigh."""
        return int((self.weights * self.table.gpus).sum())

    def pipeline(self, sequences: int, replicas: int | None) -> int:
        """Return what a pipeline of so many sequences weighs at the least.

        Every layer has so many `replicas`, or as many as there can be.
        """
        kept = _MOST_KEPT if self.table.places else 1
        sizes = ((b, min(kept, -(-sequences // b))) for b in self.table.sizes)
        return min(self._of_size(b, most, replicas) for b, most in sizes)

    def _of_size(self, b: int, most: int, replicas: int | None) -> int:
        positions = min(self.table.layers, int(self.table.gpus.sum()))
        stages = [
            np.append(self._stages(b, flight, replicas), _BEYOND)[
                self.table.runs.number  # -1 is no run
            ]
            for flight in range(1, most + 1)
        ]
        cover = stages[0][:, -1]  # from each layer to the end, in one stage
        least = int(cover[0])
        for i in range(1, positions):
            each = stages[min(i, most - 1)]
            longer = (each[:, :-1] + cover[None, :-1]).min(axis=1)
            cover = np.minimum(longer, _BEYOND)
            least = min(least, int(cover[0]))
        return least

    def _stages(self, b: int, flight: int, replicas: int | None) -> Whole:
        """Return the least weight of a stage for every run of layers."""
        least = np.full((b + 1, len(self.table.runs)), _BEYOND, np.int64)
        least[0] = 0
        shares = [*self._replicas(b, flight, replicas)]
        for samples in range(1, b + 1):
            for s, each in shares:
                if s <= samples:
                    both = np.minimum(least[samples - s] + each, _BEYOND)
                    least[samples] = np.minimum(least[samples], both)
        found: Whole = least[b]
        return found

    def _replicas(
        self, b: int, flight: int, replicas: int | None
    ) -> Iterator[tuple[int, Whole]]:
        """Yield samples and the least weight of such a replica, by run of layers."""
        table = self.table
        tables = [table.costs.under(r) for r in table.instance.workload.recomputes]
        held = replicas and [replicas] * table.layers
        for number, each in enumerate(table.classes):
            for t, s in (group for group in table.groups(each) if group[1] <= b):
                self.check()
                able = np.zeros(len(table.runs), np.bool_)
                place = table.runs, each.nodes[0], (t, s), flight, held
                for rule in tables:
                    able |= fitting(rule, *place, self.check)
                yield s, np.where(able, t * self.weights[number], _BEYOND)
