"""The ports of nodes: what all their stages send, and how long that keeps them busy.

A node with `adapters` has its links' rate once, whatever runs on it. So its port is
busy for all bytes that leave it over links of one rate, divided by that rate; links of
different rates are different networks. It sends and receives at once, as much of both:

passes  activations to the next stages, and gradients to the stages before;
sync    of every layer that it holds, with d of n replicas, (n - d) / n of the bytes of
        each pass, which is what its rings are timed with.

What neither latency nor exposure changes is added up exactly and rounded up once. Of a
stage with several replicas only what must leave the node counts, over the fastest link.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import numpy as np

from ...costs import CostTable
from ...plans import Replica, Stage, TrainingPlan

_Rate = Fraction  # bytes/s of a link


class Busy(NamedTuple):
    """The port that is busy longest, and for how long; no node where none is."""

    us: int
    node: str | None


class Ports:
    """Bytes that leave each node, by the rate of the links that they take."""

    def __init__(self, table: CostTable) -> None:
        """Nothing has been sent yet."""
        self._table, self._cluster = table, table.cluster
        self._sent = defaultdict[tuple[str, _Rate], Fraction](Fraction)

    def send(self, node: str, rate: _Rate, size: Fraction | int) -> None:
        """Add bytes that leave a node; they count where its ports are told."""
        if size and self._cluster.node[node].adapters is not None:
            self._sent[node, rate] += size

    def ring(self, members: Counter[str], each: Mapping[str, Fraction]) -> None:
        """Add a ring: node x of d members sends (n - d) / n of `each[x]` bytes."""
        n = members.total()
        for node in members:
            for rate, others in self._others(node, members).items():
                self.send(node, rate, each[node] * others / n)

    def _others(self, node: str, members: Counter[str]) -> dict[_Rate, int]:
        cluster, away = self._cluster, [name for name in members if name != node]
        if not away or cluster.node[node].adapters is None:
            return {}
        if not cluster.inter.pairs:
            rate = self._table.link(node, away[0])[1]
            return {rate: sum(members[name] for name in away)}
        numbers = [cluster.number[name] for name in away]
        links = cluster.links.row(cluster.number[node])[numbers]
        many = np.bincount(links, weights=[members[name] for name in away])
        found = Counter[_Rate]()
        for link in np.flatnonzero(many).tolist():
            found[cluster.links.exactly(link)[1]] += int(many[link])
        return found

    def busiest(self, hidden: Mapping[str, int] | None = None) -> Busy:
        """The port that is busy longest, less what is `hidden` of each node's."""
        rows = (
            Busy(ceil(size * 10**6 / rate) - (hidden or {}).get(node, 0), node)
            for (node, rate), size in sorted(self._sent.items())
        )
        found = max(rows, key=lambda busy: busy.us, default=Busy(0, None))
        return found if found.us > 0 else Busy(0, None)


def passes(table: CostTable, plan: TrainingPlan) -> Busy:
    """Return the port that activations and their gradients keep busy longest."""
    ports, v = Ports(table), table.workload.costs.schedule.interleave
    if _none(table):
        return ports.busiest()
    each = 4 if table.workload.costs.memory.precision == "fp32" else 2
    size = each * table.workload.sequence_length * table.model.hidden
    for pipeline in plan.pipelines:
        stages, n = pipeline.stages, pipeline.micro_batches
        last = len(stages) - 1
        for j, stage in enumerate(stages if last else ()):
            crossings = v if j < last else v - 1
            receiver = stages[(j + 1) % (last + 1)]
            moved = n * crossings * size
            for here, there in ((stage, receiver), (receiver, stage)):
                for node, rate, samples in _departures(table, here, there):
                    ports.send(node, rate, moved * samples)
    return ports.busiest()


def _departures(
    table: CostTable, here: Stage, there: Stage
) -> Iterable[tuple[str, _Rate, int]]:
    """Samples that a node has more of here than there, and the fastest way to go."""
    held, wanted = _samples(here), _samples(there)
    for node, samples in (held - wanted).items():
        yield node, max(table.link(node, x)[1] for x in wanted if x != node), samples


def _samples(stage: Stage) -> Counter[str]:
    held: Counter[str] = Counter()
    for replica in stage.replicas:
        held[replica.node] += replica.samples
    return held


def sums(
    table: CostTable,
    held: Iterable[tuple[Sequence[Replica], int, int]],
    hidden: Mapping[str, int],
) -> Busy:
    """Return the port that gradients between replicas keep busy longest.

    `held` are replicas with the parameters that all of them have, and those of experts
    that their GPUs divide; `hidden` is how long no node's stages wait for them, in us.
    """
    ports = Ports(table)
    if _none(table):
        return ports.busiest()
    whole, routed = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for replicas, parameters, divided in held:
        whole[tuple(r.node for r in replicas)] += parameters
        if divided:
            gpus = tuple(r.node for r in replicas for _ in r.gpus)
            routed[gpus] += divided
    for nodes, parameters in whole.items():
        if table.split.groups > 1:
            _in_groups(table, ports, nodes, parameters)
        else:
            _all_together(table, ports, nodes, parameters)
    for gpus, parameters in routed.items():
        e, each = table.split.experts, _pass_bytes(table, parameters)
        at_once = {x: Fraction(min(e, count), e) for x, count in Counter(gpus).items()}
        ports.ring(Counter(gpus[::e]), {x: each * part for x, part in at_once.items()})
    return ports.busiest(hidden)


def ties(table: CostTable, plan: TrainingPlan) -> Busy:
    """The port that tied embeddings keep busy longest, of every pipeline's two ends."""
    ports = Ports(table)
    if not _none(table):
        for pipeline in plan.pipelines:
            if len(pipeline.stages) > 1:
                both = pipeline.stages[0].replicas + pipeline.stages[-1].replicas
                nodes = tuple(replica.node for replica in both)
                _all_together(table, ports, nodes, table.model.embedding_parameters)
    return ports.busiest()


def _all_together(
    table: CostTable, ports: Ports, nodes: tuple[str, ...], parameters: int
) -> None:
    """Every context-parallel part of a replica is a member of its own."""
    members = Counter(nodes)
    for node in members:
        members[node] *= table.split.context
    ports.ring(members, dict.fromkeys(nodes, _pass_bytes(table, parameters)))


def _in_groups(
    table: CostTable, ports: Ports, nodes: tuple[str, ...], parameters: int
) -> None:
    """Add rings within groups of neighbours, then one between groups for each place."""
    size = max(1, len(nodes) // table.split.groups)
    each = _pass_bytes(table, parameters)
    for start in range(0, len(nodes), size):
        group = nodes[start : start + size]
        ports.ring(Counter(group), dict.fromkeys(group, each))
    twice = 2 * Fraction(table.workload.costs.memory.gradient_bytes * parameters, size)
    for place in range(size):
        ring = nodes[place::size]
        ports.ring(Counter(ring), dict.fromkeys(ring, twice))


def _pass_bytes(table: CostTable, parameters: int) -> Fraction:
    """Bytes of all passes over the gradients of parameters; ZeRO 3 gathers twice."""
    costs = table.workload.costs
    return Fraction(
        (3 if costs.updates.zero == 3 else 2) * costs.memory.gradient_bytes * parameters
    )


def _none(table: CostTable) -> bool:
    return all(node.adapters is None for node in table.cluster.nodes)
