"""How long replicas take for every run of layers, by kind of nodes: the least.

A stage is looked at in the place nearest to the end of its pipeline that it can have:
there it keeps the fewest micro-batches (1F1B), and so all that fits a plan fits here.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ....costs import CostTable
from ....costs.memory import in_flight
from .kinds import Array, Kind

Whole = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Runs:
    """All runs of layers: the first of each, and one past its last."""

    first: Whole
    last: Whole
    layers: int

    @classmethod
    def of(cls, layers: int) -> "Runs":
        """The runs of a model of so many layers."""
        first, last = np.triu_indices(layers + 1, 1)
        return cls(first, last, layers)

    def __len__(self) -> int:
        return len(self.first)


class Memory:
    """Which runs of layers fit, kept: sizes of micro-batches share replicas."""

    def __init__(self, table: CostTable) -> None:
        """Stages may recompute by any of the rules."""
        self.tables = [table.under(rule) for rule in table.workload.recomputes]
        self._begins: dict[tuple[object, ...], tuple[int, bool]] = {}
        #: How many stages follow each number of layers at the least; None where none
        #: can begin behind it. By kinds, sizes and numbers of micro-batches.
        self.behind: dict[object, list[int | None]] = {}

    def fitting(
        self, rule: int, node: str, group: tuple[int, int], last: int, place: "Place"
    ) -> Whole:
        """First layers of the runs that fit before layer `last`.

        `group` are GPUs and samples.
        """
        table = self.tables[rule]
        n, k = place
        flight = in_flight(table.workload.costs, n, k, 0)

        def fits(first: int) -> bool:
            span, j = range(first, last), int(first > 0)
            need = table.stage_mib(node, span, *group, n, k + j, j)
            return sum(need.values()) <= table.memory_mib(node)

        key = (rule, node, last, flight)
        if (*key, group) not in self._begins:
            # Parts of a run that fits do, too. Fewer samples tell where to look.
            near, _ = self._begins.get((*key, (group[0], group[1] - 1)), (1, True))
            begin = _first(fits, near, last)
            # The first layer is apart: its stage has the embedding.
            self._begins[*key, group] = begin, begin == 1 and fits(0)
        begin, whole = self._begins[*key, group]
        return np.array([*([0] if whole else []), *range(begin, last)], np.int64)


class Place(NamedTuple):
    """Of a stage: micro-batches of its pipeline, and its place from the end, from 1."""

    micro_batches: int
    from_end: int


def _first(fits: Callable[[int], bool], near: int, end: int) -> int:
    """The first number from 1 on that fits, as all after it do; `end` where none does.

    It is looked for beside one that is `near`.
    """
    low, high = 1, end
    if near < end and fits(near):
        high = near
        if near > 1 and not fits(near - 1):
            return near
    elif near < end:
        low = near + 1
        if low < end and fits(low):
            return low
    return low + bisect_left(range(low, high), True, key=fits)


class Replicas:
    """Times in us by kind of nodes: [degree, samples, run], infinite where none fits.

    Micro-batches are of `most` sequences, and a pipeline has `micro_batches` or more.
    """

    def __init__(
        self,
        memory: Memory,
        kinds: Sequence[Kind],
        most: int,
        micro_batches: int,
        check: Callable[[], None],
        stages_behind: Sequence[int] = (),
    ) -> None:
        """`check()` is called before what takes long, and may raise.

        As many stages follow each number of layers as memory demands, or more where
        they are told: of these stages alone, others may follow more closely.
        """
        self._memory, self._most = memory, most
        self._nodes = [kind.speakers for kind in kinds]
        layers = memory.tables[0].layers
        self.runs = Runs.of(layers)
        shapes = [(kind.gpus + 1, most + 1) for kind in kinds]
        # By [degree, samples, last layer, first layer], while they are found.
        grids = [np.full((*shape, layers + 1, layers + 1), np.inf) for shape in shapes]
        key = tuple(self._nodes), most, micro_batches
        if stages_behind and key not in memory.behind:
            Replicas(memory, kinds, most, micro_batches, check)
        behind = memory.behind[key] if stages_behind else [None] * layers + [0]
        for last in range(layers, 0, -1):
            check()
            stages = behind[last]
            if stages is None:  # none begins here
                continue
            if stages_behind:
                stages = max(stages, stages_behind[last])
            place = Place(micro_batches, stages + 1)
            for kind, grid in enumerate(grids):
                for node in self._nodes[kind]:
                    self._ending(node, last, place, grid[:, :, last])
                begins = np.isfinite(grid[:, :, last]).any((0, 1))
                for first in [] if stages_behind else np.flatnonzero(begins).tolist():
                    behind[first] = min(stages + 1, behind[first] or layers)
        memory.behind[key] = behind  # of all layers, once they are looked at
        self.us = [grid[:, :, self.runs.last, self.runs.first] for grid in grids]

    def _ending(self, node: str, last: int, place: Place, us: Array) -> None:
        """Lower the runs before layer `last`, in stages at a place from the end."""
        tables = self._memory.tables
        for t in range(1, tables[0].cluster.node[node].count + 1):
            for s in range(1, self._most + 1):
                if not tables[0].usable(node, t, s):
                    continue
                for rule, table in enumerate(tables):
                    firsts = self._memory.fitting(rule, node, (t, s), last, place)
                    times = np.cumsum([0.0, *table.layer_us(node, t, s)])
                    head = table.head_us(node, t, s) if last == table.layers else 0
                    found = times[last] - times[firsts] + float(head)
                    us[t, s, firsts] = np.minimum(us[t, s, firsts], found)
