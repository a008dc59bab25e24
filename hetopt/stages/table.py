"""Times of all stages of one instance, computed when asked for and kept."""

from collections.abc import Container, Iterator
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np

from .. import capability
from ..caching import cached_method
from ..costs import CostTable
from ..schema import Instance, exact
from .classes import NEVER, NodeClass, Whole, node_classes, whole_us
from .runs import Runs, fitting
from .sync import SyncSizes


class StageTable:
    """Times, sizes and memory of the stages of one instance, ZeRO and split fixed.

    Arrays are of whole numbers and cannot be written to.
    """

    def __init__(self, instance: Instance, apart: Container[str] = ()) -> None:
        """Read the instance; `InstanceError` where it has no cluster.

        Nodes that are `apart` are classes of their own. Raises `Unsupported` for what
        the proofs by prices do not carry.
        """
        capability.require("proof pipelines", instance)
        self.instance = instance
        self.costs = CostTable(instance)
        workload = instance.workload
        self._rules = [self.costs.under(rule) for rule in workload.recomputes]
        self.layers = instance.model.layers
        self.batch = workload.global_batch
        #: Sizes of micro-batches, in ascending order.
        self.sizes = tuple(sorted(set(workload.micro_batch_sizes)))
        self.classes = node_classes(self.costs, self.sizes[-1], apart)
        #: Nodes and GPUs of each class; GPUs of one node.
        self.nodes = _fixed([len(each.nodes) for each in self.classes])
        self.node_gpus = _fixed([each.gpus for each in self.classes])
        self.gpus = _fixed(self.nodes * self.node_gpus)
        self.runs = Runs.of(self.layers, equal=self._equal)

    @cached_property
    def sync(self) -> SyncSizes:
        """Return what runs of layers synchronise."""
        return SyncSizes.of(self.costs, self.runs, self.classes)

    @cached_property
    def _equal(self) -> bool:
        table = self.costs
        if not table.even or len(set(table.exchanged.layers)) > 1:
            return False
        if len(set(table.divided(table.exchanged))) > 1:
            return False
        return all(
            len(set(rule.layer_us(each.nodes[0], t, s))) == 1
            for each in self.classes
            for t, s in self.groups(each)
            for rule in self._rules
        )

    def groups(self, each: NodeClass) -> Iterator[tuple[int, int]]:
        """Yield degrees and samples that a replica in a node of a class may have."""
        for t in range(1, each.gpus + 1):
            for s in range(1, self.sizes[-1] + 1):
                if self.costs.usable(each.nodes[0], t, s):
                    yield t, s

    @cached_method
    def replica_us(self, number: int) -> Whole:
        """Return the least times of replicas in nodes of a class, without transfers.

        They are by [degree, samples, run]; `NEVER` where it does not fit with one
        micro-batch.
        """
        return _fixed(self._replicas(number))

    @cached_property
    def most_replicas(self) -> int:
        """Return how many replicas of all layers have room together, at the most.

        A node holds the parameters of as many runs of layers as its GPUs are shared by.
        Layers without any are counted: whatever they weigh, it is a bound.
        """
        own = self.instance.model.parameters
        weights = own if any(own) else (1,) * self.layers
        behind = np.array([*accumulate(weights, initial=0)])
        first, last = self.runs.spans.T
        size, held = behind[last] - behind[first], 0
        for number, count in enumerate(self.nodes.tolist()):
            able = (self.replica_us(number) < NEVER).any(1)
            largest = (able * size).max(1).tolist()  # by degree
            most = [0]
            for k in range(1, len(largest)):
                most.append(max(most[k - t] + largest[t] for t in range(1, k + 1)))
            held += count * most[-1]
        return int(held // behind[-1])

    def _replicas(self, number: int) -> Whole:
        each, runs = self.classes[number], self.runs
        node = each.nodes[0]
        first, last = runs.spans.T
        us = np.full((each.gpus + 1, self.sizes[-1] + 1, len(runs)), NEVER, np.int64)
        for t, s in self.groups(each):
            for rule in self._rules:
                behind = np.cumsum(whole_us([0, *rule.layer_us(node, t, s)]))
                head = np.where(runs.ends, min(rule.head_us(node, t, s), NEVER), 0)
                took = behind[last] - behind[first] + head
                able = runs.anywhere(fitting(rule, runs, node, (t, s), 1))
                us[t, s, able] = np.minimum(us[t, s], took)[able]
        # Kernels want times that do not fall as runs grow: one that is too short to be
        # a stage takes as long as the shortest one that is.
        short, long = runs.longer(self.instance.workload.costs.schedule.interleave)
        us[..., short] = us[..., long]
        return np.minimum(us, NEVER)

    @cached_property
    def overhead_us(self) -> int:
        """Return what an iteration takes beside its pipelines and synchronisation."""
        return self.costs.overhead_us + self.costs.least_update_us

    @cached_property
    def factors(self) -> tuple[Fraction, Fraction]:
        """Return the exact factors of pipelines and of synchronisation."""
        costs = self.instance.workload.costs
        return exact(costs.schedule.pipeline_factor), exact(costs.updates.sync_factor)


def _fixed(values: object) -> Whole:
    found = np.array(values, np.int64)
    found.flags.writeable = False
    return found
