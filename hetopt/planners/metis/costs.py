"""Time and memory of one pipeline whose stages have several replicas.

What Metis, AMP, Alpa and Galvatron choose by. It agrees with the judge
(`hetopt.problems.training_plan`) under every cost setting and shares no code with it.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, product
from typing import NamedTuple

from ...costs.communication import rounds
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...search.fast_cost import FastCost, Pipe, Slot

_KEPT = 400_000  # entries of a cache


class Share(NamedTuple):
    """A replica: `t` GPUs of a node, and the samples of a micro-batch it takes."""

    node: int
    t: int
    samples: int


class Row(tuple[Share, ...]):
    """The replicas of a stage; made once, and equal to itself only, to be found fast.

    Two that are made alike are different keys, and have equal times.
    """

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__


class Laid(NamedTuple):
    """A stage: its replicas, and its layers `first` to `last` - 1."""

    shares: Row
    first: int
    last: int


class LineCost:
    """Evaluator of single pipelines of one instance."""

    def __init__(self, instance: Instance, deadline: float | None = None) -> None:
        """Make the evaluator; `InstanceError` where there is no cluster.

        After the `deadline` it raises `OutOfTime`, as `FastCost` does.
        """
        self.instance = instance
        self.cost = FastCost(instance, deadline)
        self.layers = self.cost.layers
        # lru_cache on bound methods of this object only: it dies with the object.
        self.compute_us = lru_cache(_KEPT)(self._compute_us)
        self.hop_us = lru_cache(_KEPT)(self._hop_us)
        self._weighed = lru_cache(_KEPT)(self._short_mib)
        self._ties = self.cost.table.tied is not None
        self._syncs: dict[Row, list[int]] = {}

    @property
    def sizes(self) -> list[int]:
        """Micro-batch sizes that divide the global batch."""
        sizes = sorted(set(self.instance.workload.micro_batch_sizes))
        return [b for b in sizes if self.instance.workload.global_batch % b == 0]

    def micro_batches(self, b: int) -> int:
        """Return the micro-batches of `b` sequences in the global batch."""
        return self.instance.workload.global_batch // b

    # --- stages ------------------------------------------------------------------

    def _compute_us(self, shares: Row, first: int, last: int) -> int:
        """Time of a run of layers on the slowest replica, the head's included."""
        return max(self.span_us(share, first, last) for share in set(shares))

    def span_us(self, share: Share, first: int, last: int) -> int:
        """Return the time of a run of layers on one replica, the head's included."""
        sums = self.cost.prefix(*share)[0]
        head = self.cost.head_us(*share) if last == self.layers else 0
        return sums[last] - sums[first] + head

    def backward_span_us(self, share: Share, first: int, last: int) -> int:
        """Return the time of its backward passes alone."""
        sums = self.cost.prefix(*share)[1]
        head = self.cost.head_us(*share) if last == self.layers else 0
        return sums[last] - sums[first] - (-2 * head // 3)

    def _hop_us(self, sender: Row, receiver: Row) -> int:
        """Time of a micro-batch from a stage to the next, by the fastest link."""
        self.cost.check()
        b = max(share.samples for share in sender)
        here, there = ({(s.node, s.t) for s in row} for row in (sender, receiver))
        pairs = product(here, there)
        return min(self.cost.hop_us(x, y, t, b, by) for (x, by), (y, t) in pairs)

    def sync_us(self, stage: Laid) -> int:
        """Return the time to synchronise a stage's gradients among its replicas."""
        if len(stage.shares) == 1:
            return 0
        key = stage.shares
        if key not in self._syncs:
            names = self.cost.names
            holders = sorted((names[share.node], share.t) for share in key)
            table, sent = self.cost.table, self.cost.table.exchanged
            each = {p: table.sync_us(p, holders) for p in {*sent.layers}}
            ends = 0
            if sent.end is not None:
                ends = table.sync_us(sent.end, holders)
            rows = (each[p] for p in sent.layers)
            self._syncs[key] = [*accumulate(rows, initial=0), ends]
        sums = self._syncs[key]
        ends_held = (stage.first == 0) + (stage.last == self.layers)
        return sums[stage.last] - sums[stage.first] + ends_held * sums[-1]

    def short_mib(
        self, n: int, stages: int, j: int, shares: Row, first: int, last: int
    ) -> int:
        """MiB that a GPU of stage `j` of `stages` lacks; none where it is negative."""
        if self.cost.costs.schedule.interleave == 1:
            # Only what is behind a stage, and whether it is the first, matters.
            stages, j = stages - j + (j > 0), int(j > 0)
        return self._weighed(n, stages, j, shares, first, last)

    def _short_mib(
        self, n: int, stages: int, j: int, shares: Row, first: int, last: int
    ) -> int:
        return max(
            self.cost.need_mib(
                samples, n, stages, j, Slot(node, t, first, last), len(shares)
            )
            - self.cost.room[node]
            for node, t, samples in set(shares)
        )

    # --- pipelines ---------------------------------------------------------------

    def fits(self, n: int, line: Sequence[Laid]) -> bool:
        """Return whether every stage fits into its GPUs."""
        return all(
            self.short_mib(n, len(line), j, s.shares, s.first, s.last) <= 0
            for j, s in enumerate(line)
        )

    def iteration_us(self, n: int, line: Sequence[Laid]) -> int:
        """Iteration time of `n` micro-batches; memory is not looked at."""
        node, t, size = line[0].shares[0]
        if len(line) == len(line[0].shares) == t == 1:  # calibrated by itself
            pipe = Pipe(n, size, (Slot(node, t, 0, self.layers),))
            return self.cost.iteration_us([pipe])
        crossings = self.cost.crossings(len(line))
        hops = [
            times and times * self.hop_us(stage.shares, after.shares)
            for stage, after, times in zip(
                line, (*line[1:], line[0]), crossings, strict=True
            )
        ]
        timing = self.cost.combined(
            [self.compute_us(stage.shares, stage.first, stage.last) for stage in line],
            [self._backward_us(stage) for stage in line],
            hops,
        )
        syncs = zip(line, timing.behind, strict=True)
        sync = max(0, *(self.sync_us(stage) - hidden for stage, hidden in syncs))
        sync *= rounds(self.cost.costs, [(n, len(line))])
        end = self._tied_us(line) + self.cost.updates_us(
            (Slot(share.node, share.t, stage.first, stage.last), len(stage.shares))
            for stage in line
            for share in stage.shares
        )
        return self.cost.whole_us(self.cost.pipeline_us(n, timing), sync, end)

    def _backward_us(self, stage: Laid) -> int:
        if self.cost.costs.updates.sync_overlap == "none":
            return 0
        return max(
            self.backward_span_us(share, stage.first, stage.last)
            for share in set(stage.shares)
        )

    def _tied_us(self, line: Sequence[Laid]) -> int:
        """Return the time to sum tied embeddings over the first and the last stage."""
        if not self._ties or len(line) == 1:
            return 0
        names, table = self.cost.names, self.cost.table
        holders = [(names[x.node], x.t) for x in line[0].shares + line[-1].shares]
        return table.sync_us(table.model.embedding_parameters, holders)

    # --- plans -------------------------------------------------------------------

    def plan(self, n: int, b: int, line: Sequence[Laid]) -> TrainingPlan:
        """Return the plan with GPU ids; each node's are handed out in order."""
        return one_pipeline(self.cost, n, b, line)


def one_pipeline(cost: FastCost, n: int, b: int, line: Sequence[Laid]) -> TrainingPlan:
    """The plan of `n` micro-batches of `b`; GPUs of a node are handed out in order."""
    hand_out = cost.handing_out()

    def replica(share: Share) -> Replica:
        return Replica(gpus=hand_out(share.node, share.t), samples=share.samples)

    stages = tuple(
        Stage(
            layers=(stage.first, stage.last), replicas=tuple(map(replica, stage.shares))
        )
        for stage in line
    )
    pipeline = Pipeline(micro_batches=n, micro_batch_size=b, stages=stages)
    return TrainingPlan(pipelines=(pipeline,))
