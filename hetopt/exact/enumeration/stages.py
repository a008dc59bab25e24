"""Stages on named nodes: times, memory and links, exact as the judge has them.

GPUs of a node are alike, and so are equal nodes of one GPU on equal links: both are a
`Pool` of GPUs. A stage is a tuple of its `Replica`s.
Times are matrices over (first layer, one past the last), in us: the stage with layer 0
is its pipeline's first, the one that ends with the layers its last.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cache, cached_property, lru_cache
from itertools import accumulate, combinations, combinations_with_replacement
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...costs import CostTable
from ...schema import Instance, Node
from ...stages.runs import Runs, fitting
from . import splits

Matrix = NDArray[np.int64]
Counts = NDArray[np.int8]
Floats = NDArray[np.float64]
NEVER = 1 << 52  # us; longer than any plan, and sums of some still fit into 64 bits


class TooMany(Exception):
    """There are more stages, columns or cuts than time or memory should hold."""


class Pool(NamedTuple):
    """A pool has equal GPUs: those of a node, or of equal nodes with one GPU each."""

    nodes: tuple[str, ...]
    each: int  # GPUs of each node

    @property
    def gpus(self) -> int:
        """Return the number of GPUs of the pool."""
        return len(self.nodes) * self.each


class Replica(NamedTuple):
    """A replica: `t` GPUs of a pool, and the samples of a micro-batch it takes.

    `rule` is the number of its stage's rule of recomputation among the workload's.
    """

    pool: int
    t: int
    samples: int
    rule: int = 0


Stage = tuple[Replica, ...]  # sorted
Ranks = NDArray[np.int16]


class StageTables:
    """The tables have every stage of one instance, and keep what is computed."""

    def __init__(self, instance: Instance, replicas: int = 1) -> None:
        """Make the tables; `InstanceError` where there is no cluster.

        `replicas` hold each layer, among which ZeRO divides states.
        """
        self._replicas = replicas
        self.table = table = CostTable(instance)
        self.costs = instance.workload.costs
        self.rules = instance.workload.recomputes
        self._tables = [table.under(rule) for rule in self.rules]
        self.layers = table.layers
        self.batch = instance.workload.global_batch
        groups = _equal_nodes(table)
        self.pools = [
            pool
            for group in groups
            for pool in (
                [Pool(tuple(n.name for n in group), 1)]
                if group[0].count == 1
                else [Pool((n.name,), n.count) for n in group]
            )
        ]
        number = {pool.nodes[0]: p for p, pool in enumerate(self.pools)}
        #: Pools of several GPUs a node that can change places.
        self.alike = [
            [number[n.name] for n in group]
            for group in groups
            if group[0].count > 1 and len(group) > 1
        ]
        self.gpus = tuple(pool.gpus for pool in self.pools)
        self._groups = [
            (p, t) for p, pool in enumerate(self.pools) for t in range(1, pool.each + 1)
        ]
        sizes = table.exchanged.layers
        #: Different sizes of layers, and which one each layer has.
        self.sizes = sorted(set(sizes))
        self.size_of = np.array([self.sizes.index(p) for p in sizes])
        # lru_cache on bound methods of this object only: it dies with the object.
        self.compute_us = lru_cache(None)(lambda stage: self.each_us([stage])[0])
        self._replica_us = lru_cache(None)(self._replica_us_of)
        self.backward_us = lru_cache(None)(self._backward_us)
        self.hop_us = lru_cache(None)(self._hop_us)
        self.update_us = lru_cache(None)(self._update_us)
        self.most = lru_cache(None)(lambda x, behind: self.each_most([x], behind)[0])
        self._flights = lru_cache(None)(self._most_in_flight)
        self._ranks: dict[tuple[int, int], dict[tuple[int, int], Ranks]] = {}
        self._runs = Runs.of(self.layers, equal=table.even)

    # --- what stages there are ---------------------------------------------------

    def stages(
        self, b: int, replicas: int, check: Callable[[], None] = lambda: None
    ) -> Iterator[tuple[Stage, tuple[int, ...]]]:
        """Yield stages of at most `replicas` replicas for `b` samples, and GPUs used.

        Dominated stages are left out. There may be millions:
        `check` may end it with an exception.
        """
        for count in range(1, min(b, replicas, sum(self.gpus)) + 1):
            for chosen in combinations_with_replacement(self._groups, count):
                used = self.used((Replica(p, t, 0) for p, t in chosen))
                if any(u > g for u, g in zip(used, self.gpus, strict=True)):
                    continue
                for rule in range(len(self.rules)):
                    for stage in self._sharing(chosen, b, rule, check):
                        yield stage, used

    def _sharing(
        self,
        chosen: tuple[tuple[int, int], ...],
        b: int,
        rule: int,
        check: Callable[[], None],
    ) -> Iterator[Stage]:
        """Yield stages of replicas in such groups (pool, GPUs), by how they share."""
        costs = self._costs(b, rule, check)
        found: set[Stage] = set()
        ways = splits.every(len(chosen), b)
        if all(group in costs for group in chosen):
            ways = splits.needed(chosen, b, costs)
        for shares in ways:
            check()
            each = zip(chosen, shares, strict=True)
            stage = tuple(sorted(Replica(p, t, s, rule) for (p, t), s in each))
            if stage not in found and all(map(self._measured, stage)):
                found.add(stage)
                yield stage

    def _costs(
        self, b: int, rule: int, check: Callable[[], None]
    ) -> dict[tuple[int, int], Ranks]:
        """Return costs of replicas by their share, by pool and GPUs, as ranks.

        Those are left out of which larger shares may be better.
        """
        # A slower backward pass hides more synchronisation.
        if b == 1 or self.costs.updates.sync_overlap == "backward":
            return {}
        if (b, rule) not in self._ranks:
            each: dict[tuple[int, int], Matrix] = {}
            for group in self._groups:
                found = self._costs_of(*group, b, rule, check)
                if found is not None and (np.diff(found, axis=0) >= 0).all():
                    each[group] = found
            ranks = _ranks([*each.values()])
            self._ranks[b, rule] = dict(zip(each, ranks, strict=True))
        return self._ranks[b, rule]

    def _costs_of(
        self, pool: int, t: int, b: int, rule: int, check: Callable[[], None]
    ) -> Matrix | None:
        """Return times of all runs of layers and what does not fit, by share."""
        runs, rows = np.triu_indices(self.layers + 1, 1), []
        every = [Replica(pool, t, max(1, s), rule) for s in range(b + 1)]
        if not all(map(self._measured, every)):
            return None
        for replica in every:
            check()
            flights = self._flights(self._node(replica), *replica[1:])
            rows.append(np.append(self._replica_us(replica)[runs], -flights[runs]))
        return np.array(rows)

    def used(self, places: Iterable[Replica]) -> tuple[int, ...]:
        """Return the GPUs of each pool that replicas take."""
        used = [0] * len(self.pools)
        for replica in places:
            used[replica.pool] += replica.t
        return tuple(used)

    def _measured(self, replica: Replica) -> bool:
        return self.table.usable(*self._key(replica))

    # --- time --------------------------------------------------------------------

    def _key(self, replica: Replica) -> tuple[str, int, int]:
        return self.pools[replica.pool].nodes[0], replica.t, replica.samples

    def each_us(self, stages: Sequence[Stage]) -> Matrix:
        """Return the slowest replica's time of each stage, with the head at the end."""
        return _over_replicas(stages, self._replica_us, np.maximum)

    def _replica_us_of(self, replica: Replica) -> Matrix:
        key = self._key(replica)
        found = _runs(self._tables[replica.rule].layer_us(*key))
        found[:-1, -1] += self.table.head_us(*key)
        return found

    def _backward_us(self, stage: Stage) -> Matrix:
        """Return the backward part of `compute_us`, of stages before the last."""

        def replica_us(replica: Replica) -> Matrix:
            return _runs(self._tables[replica.rule].backward_us(*self._key(replica)))

        return np.asarray(_over_replicas([stage], replica_us, np.maximum)[0])

    def _hop_us(self, sender: Stage, receiver: Stage) -> int:
        """Return the transfer to the next stage, of the sender's largest share."""
        samples = max(replica.samples for replica in sender)
        return min(
            self.table.hop_us(*self._ends_of(x.pool, y.pool), y.t, samples, None)
            for x in set(sender)
            for y in set(receiver)
        )

    def _ends_of(self, a: int, b: int) -> tuple[str, str]:
        """Return a node of each pool, different ones where a pool has several."""
        one, other = self.pools[a], self.pools[b]
        return one.nodes[0], other.nodes[1 if a == b and other.each == 1 else 0]

    def sync_us(self, parameters: int, groups: Iterable[tuple[int, int]]) -> int:
        """Return the time to synchronise a layer among groups (pool, GPUs)."""
        given = [0] * len(self.pools)
        holders = []
        for pool, t in sorted(groups):
            nodes = self.pools[pool].nodes
            holders.append((nodes[given[pool] % len(nodes)], t))
            given[pool] += 1
        return self.table.sync_us(parameters, holders)

    def _update_us(self, stage: Stage, used: tuple[int, ...]) -> Matrix:
        """Return times of the optimiser over each run, on the slowest replica.

        `used` are the GPUs of each pool that a packing uses, which share its host.
        """
        trained, tied = self.table.trained, self.table.model.tied_embeddings
        groups = {(replica.pool, replica.t) for replica in stage}

        @cache
        def one(held: int) -> int:
            return max(
                self.table.update_us(
                    self.pools[pool].nodes[0],
                    [(Fraction(held, t), self._replicas)],
                    min(used[pool], self.pools[pool].each),
                )
                for pool, t in groups
            )

        ahead = [0, *accumulate(trained.layers)]
        found = np.zeros((self.layers + 1, self.layers + 1), dtype=np.int64)
        for start, end in combinations(range(self.layers + 1), 2):
            first, final = start == 0, end == self.layers
            copies = first + final - (first and final and tied)
            held = ahead[end] - ahead[start] + copies * (trained.end or 0)
            found[start, end] = one(held)
        return found

    @cached_property
    def work_bound(self) -> tuple[Floats, Floats] | None:
        """Return the most samples per us of a GPU of each pool, and shares of layers.

        With any prices of pools, a sample costs at least the cheapest pool's price for
        each of its layers, and GPUs are worth no more than their time: weak duality.
        The prices are the speeds. The shares are those of the layers before each. None
        where layers take no time on some pool: then prices say nothing.
        """
        work = np.array([self._work_us(p) for p in range(len(self.pools))])
        total = work.sum(axis=1)
        if not total.all():
            return None
        each = (work / total[:, None]).min(axis=0)
        if not each.any():
            return None
        shares = np.cumsum([0.0, *each]) / each.sum()
        return 1 / (total * each.sum()), shares

    def _work_us(self, pool: int) -> list[float]:
        """Return the least GPU time of a sample in each layer, huge if unmeasured."""
        sizes = range(1, max(self.table.workload.micro_batch_sizes) + 1)
        places = [
            replica
            for t in range(1, self.pools[pool].each + 1)
            for s in sizes
            for rule in range(len(self.rules))
            if self._measured(replica := Replica(pool, t, s, rule))
        ]
        rows = [
            [
                p.t * us / p.samples
                for us in self._tables[p.rule].layer_us(*self._key(p))
            ]
            for p in places
        ]
        return list(map(min, zip(*rows, strict=True))) or [1e18] * self.layers

    # --- memory ------------------------------------------------------------------

    def each_most(self, stages: Sequence[Stage], behind: int) -> Matrix:
        """Return the most micro-batches with which each run fits; NEVER is any number.

        `behind` stages follow. 0 as well where the run is better recomputed by another
        rule.
        """
        most = weighed = self._weighed(stages, behind)
        if len(self.rules) == 1 or self.costs.updates.sync_overlap == "backward":
            # A slower backward pass hides more synchronisation: no rule is useless.
            return most
        times = self.each_us(stages)
        own = np.array([stage[0].rule for stage in stages])[:, None, None]
        for rule in range(len(self.rules)):
            # Elsewhere a rule that is no quicker must allow more micro-batches; of
            # equal rules the first is kept.
            others = [
                tuple(sorted(replica._replace(rule=rule) for replica in stage))
                for stage in stages
            ]
            quicker = self.each_us(others)
            useless = np.where(rule < own, quicker <= times, quicker < times)
            useless &= self._weighed(others, behind) >= weighed
            most = np.where(useless, 0, most)
        return most

    def _weighed(self, stages: Sequence[Stage], behind: int) -> Matrix:
        def most_of(replica: Replica) -> Matrix:
            flights = self._flights(self._node(replica), *replica[1:])
            if self.costs.schedule.in_flight == "gpipe":
                return flights
            enough = 1 if self.costs.schedule.in_flight == "one" else behind + 1
            return np.where(flights >= enough, NEVER, flights)

        return _over_replicas(stages, most_of, np.minimum)

    def _node(self, replica: Replica) -> str:
        """Return the node that represents all with GPUs of the replica's type."""
        gpu = self.table.cluster.node[self.pools[replica.pool].nodes[0]].gpu
        return next(n.name for n in self.table.cluster.nodes if n.gpu == gpu)

    def _most_in_flight(self, node: str, t: int, samples: int, rule: int) -> Matrix:
        """Return the most micro-batches in flight of each run, 0 if it never fits."""
        rows = self._tables[rule], self._runs, node, (t, samples)
        limits = {"one": 1, "gpipe": self.batch, "1f1b": sum(self.gpus)}
        most = limits[self.costs.schedule.in_flight]
        fits = fitting(*rows, most, self._replicas)
        found = np.where(fits, most, 0)
        waiting = [(0, most, ~fits)]  # runs that fit with the first, not the second
        while waiting:
            low, high, some = waiting.pop()
            if high - low == 1 or not some.any():
                found[some] = low
                continue
            middle = (low + high) // 2
            fits = fitting(*rows, middle, self._replicas)
            waiting += [(low, middle, some & ~fits), (middle, high, some & fits)]
        return np.append(found, 0)[self._runs.number]


def lies_in(tables: StageTables, stage: Stage) -> int:
    """Return the pool of a stage's replicas, or one past the last where in several."""
    pool = stage[0].pool
    return pool if all(x.pool == pool for x in stage) else len(tables.pools)


def _runs(each: Sequence[int]) -> Matrix:
    """Return sums over all runs of layers; NEVER where a run is empty."""
    ahead = np.cumsum([0, *each], dtype=np.int64)
    sums = ahead[None, :] - ahead[:, None]
    sums[np.tril_indices(len(ahead))] = NEVER
    return np.asarray(sums, dtype=np.int64)


def _over_replicas(
    stages: Sequence[Stage], table: Callable[[Replica], Matrix], worst: "np.ufunc"
) -> Matrix:
    places = sorted({replica for stage in stages for replica in stage})
    number = {replica: i for i, replica in enumerate(places)}
    whole = np.stack([*map(table, places)])
    rows = [sorted({number[replica] for replica in stage}) for stage in stages]
    width = max(map(len, rows))
    each = np.array([row + row[:1] * (width - len(row)) for row in rows])
    found = whole[each[:, 0]]
    for column in each.T[1:]:
        worst(found, whole[column], out=found)
    return np.asarray(found)


def _ranks(each: Sequence[Matrix]) -> list[Ranks]:
    """Return tables of the same columns, of numbers in each column's order.

    Columns that have the same order are there once.
    """
    if not each:
        return []
    whole = np.concatenate(each)
    ranks = [np.searchsorted(np.sort(column), column) for column in whole.T]
    found = np.unique(np.array(ranks, np.int16), axis=0).T
    return np.split(found, np.cumsum([len(table) for table in each])[:-1])


def _equal_nodes(table: CostTable) -> list[list[Node]]:
    """Return groups of nodes that can be exchanged without changing any cost."""
    groups: list[list[Node]] = []
    for node in table.cluster.nodes:
        for group in groups:
            if _equal(table, group[0], node):
                group.append(node)
                break
        else:
            groups.append([node])
    return groups


def _equal(table: CostTable, one: Node, other: Node) -> bool:
    """Tell whether exchanging two nodes changes nothing; this is transitive."""
    classes = table.node_class
    if one.count != other.count or classes[one.name] != classes[other.name]:
        return False
    return all(
        table.cluster.link(one.name, third.name)
        == table.cluster.link(other.name, third.name)
        for third in table.cluster.nodes
        if third.name not in (one.name, other.name)
    )
