"""The ways in which a set of nodes can run equal pipelines across all of its nodes."""

from bisect import insort
from collections import Counter
from collections.abc import Iterator
from itertools import permutations
from math import ceil, floor
from typing import NamedTuple

from ...caching import cached_method
from ...costs import memory
from ..balancing import Balancer, Chain
from ..fast_cost import FastCost, Slot
from ..layouts import degree_choices

Nodes = tuple[int, ...]

_MOST_DEGREES = 256  # combinations; where links go by pair, every node is a kind


class Option(NamedTuple):
    """`copies` equal pipelines of one set of nodes."""

    copies: int
    size: int  # sequences of a micro-batch
    slots: tuple[Slot, ...]


class _Case(NamedTuple):
    """A case says how a set's pipelines are made, but for the order of its kinds."""

    least: float  # us that none of them beats
    size: int
    copies: int
    micro_batches: int
    degrees: tuple[int, ...]  # by kind


class Options:
    """Options of sets of nodes, best first; sets of equal nodes share the work."""

    def __init__(self, cost: FastCost, balancer: Balancer, kept: int = 16) -> None:
        """`kept` bounds the options of a set."""
        self.cost = cost
        self.balancer = balancer
        self._keep = kept
        cluster = cost.instance.planned_cluster
        # With links by pair equal nodes differ: then each is a kind of its own.
        alike = not cluster.inter.pairs
        counts = [(cost.kind[i], node.count) for i, node in enumerate(cluster.nodes)]
        self.kind = [
            counts.index(pair) if alike else i for i, pair in enumerate(counts)
        ]
        self._members: dict[int, list[int]] = {}
        for i, kind in enumerate(self.kind):
            self._members.setdefault(kind, []).append(i)
        able = {pair: self._holds_a_layer(counts.index(pair)) for pair in set(counts)}
        self.able = [able[pair] for pair in counts]
        power = {pair: self._node_power(counts.index(pair)) for pair in set(counts)}
        self.power = [power[pair] for pair in counts]
        self._like = {pair: i for i, pair in reversed([*enumerate(counts)])}
        self._room = [cost.room[i] * node.count for i, node in enumerate(cluster.nodes)]
        self._states_mib = 0  # of one copy of the model, at the least
        if not cost.table.profile.weighs:
            every = sum(cost.instance.model.parameters)
            self._states_mib = int(cost.costs.kept_bytes * every // memory.MIB)

    def _holds_a_layer(self, node: int) -> bool:
        """Tell whether a node can be a stage of the least layer, on all of its GPUs."""
        cost, parameters = self.cost, self.cost.instance.model.parameters
        runs = cost.costs.schedule.interleave
        if cost.table.profile.weighs or runs > 1:
            return True  # other rules than that more GPUs need less each
        least = parameters.index(min(parameters))
        slot = Slot(node, cost.nodes[node].count, least, least + 1)
        b = min(cost.instance.workload.micro_batch_sizes)
        need = cost.need_mib(b, 1, 3, 1, slot, cost.table.most_replicas)
        return need <= cost.room[node]

    def _node_power(self, node: int) -> float:
        """Layers per us of all GPUs of a node, at the degree and size that suit it.

        Layers that take no time count as a us; 0 where nothing was measured.
        """
        cost, powers = self.cost, [0.0]
        for b in cost.instance.workload.micro_batch_sizes:
            for t in cost.degrees(node, b):
                us = max(1, cost.prefix(node, t, b)[0][-1])
                powers.append(b * (cost.nodes[node].count // t) * cost.layers / us)
        return max(powers)

    @cached_method
    def of(self, nodes: Nodes) -> list[Option]:
        """Options of a set of nodes; empty where the model does not fit."""
        ordered = tuple(sorted(nodes, key=lambda i: (self.kind[i], i)))
        key = tuple(self.kind[i] for i in ordered)
        if len(nodes) == 1:  # as any that is like it, whatever its links
            node = nodes[0]
            like = self._like[self.cost.kind[node], self.cost.nodes[node].count]
            key = (self.kind[like],)
        back: dict[int, list[int]] = {}
        for kind, i in zip(key, ordered, strict=True):
            back.setdefault(kind, []).append(i)
        return [self._renamed(option, back) for option in self._best(key)]

    def _renamed(self, option: Option, back: dict[int, list[int]]) -> Option:
        """The option on the nodes themselves: a kind's k-th place is its k-th node."""

        def own(node: int) -> int:
            kind = self.kind[node]
            return back[kind][self._members[kind].index(node)]

        slots = tuple(slot._replace(node=own(slot.node)) for slot in option.slots)
        return option._replace(slots=slots)

    @cached_method
    def _best(self, kinds: Nodes) -> list[Option]:
        """The best options of a set, given by the first node of each node's kind."""
        if sum(self._room[k] for k in kinds) < self._states_mib:
            return []  # the states alone are too large
        if not all(self.able[k] for k in set(kinds)):
            return []
        whole = sum(self.power) or 1.0  # 0 where nothing was measured
        share = sum(self.power[k] for k in kinds) / whole
        batch = self.cost.instance.workload.global_batch
        found: list[tuple[float, Option]] = []
        times: list[float] = []  # of these, ascending
        for case in sorted(self._cases(kinds, share * batch)):
            if len(times) >= self._keep and case.least > times[self._keep - 1]:
                break  # nor is any case behind it among the best
            option = self._fastest(kinds, case)
            if option is not None:
                found.append(option)
                insort(times, option[0])
        return [option for _, option in sorted(found)[: self._keep]]

    def _fastest(self, kinds: Nodes, case: _Case) -> tuple[float, Option] | None:
        best: tuple[float, Option] | None = None
        for chain in self._chains(kinds, case):
            slots = self.balancer.balanced(
                case.size, case.micro_batches, chain, None, case.copies
            )
            if slots is None:
                continue
            timing = self.cost.timing(case.size, slots)
            time = timing.total + (case.micro_batches - 1) * timing.slowest
            if best is None or time < best[0]:
                best = time, Option(case.copies, case.size, slots)
        return best

    def _cases(self, kinds: Nodes, sequences: float) -> Iterator[_Case]:
        times = Counter(kinds)
        for b in self.cost.instance.workload.micro_batch_sizes:
            for copies in self._copies(kinds):
                n = max(1, ceil(sequences / (copies * b)))
                for degrees in self._degrees(list(times), copies, b):
                    self.cost.check()
                    stages = {
                        (kind, t): times[kind] * self._stages(kind, copies, t)
                        for kind, t in zip(times, degrees, strict=True)
                    }
                    if sum(stages.values()) <= self.cost.layers:
                        least = self._least_us(b, n, stages)
                        yield _Case(least, b, copies, n, degrees)

    def _stages(self, kind: int, copies: int, t: int) -> int:
        return self.cost.nodes[kind].count // copies // t

    def _least_us(self, b: int, n: int, stages: dict[tuple[int, int], int]) -> float:
        """Return what micro-batches take at the least where equal layers are a fluid.

        Only the slowest stage counts, and nothing crosses links; 0 of unlike layers.
        """
        if not self.balancer.even:
            return 0.0
        speed = 0.0
        for (kind, t), number in stages.items():
            whole = self.cost.prefix(kind, t, b)[0][-1]
            if not whole:
                return 0.0
            speed += number / whole
        return float(floor((n - 1) / speed))

    def _copies(self, kinds: Nodes) -> Iterator[int]:
        counts = [self.cost.nodes[k].count for k in kinds]
        for copies in range(1, min(counts) + 1):
            if any(count % copies == 0 for count in counts):
                yield copies

    def _chains(self, kinds: Nodes, case: _Case) -> Iterator[Chain]:
        times = Counter(kinds)
        distinct = list(times)
        orders = list(permutations(range(len(distinct)))) if len(distinct) < 4 else []
        # Places are different nodes, so that hops between them have their price.
        runs = [
            tuple(
                (node, t)
                for node in self._members[kind][: times[kind]]
                for _ in range(self._stages(kind, case.copies, t))
            )
            for kind, t in zip(distinct, case.degrees, strict=True)
        ]
        for order in orders or self._few_orders(distinct):
            yield tuple(pair for k in order for pair in runs[k])

    def _degrees(
        self, distinct: list[int], copies: int, b: int
    ) -> Iterator[tuple[int, ...]]:
        """Degrees of kinds: all combinations, or for many kinds nearly equal ones."""
        choices = []
        for kind in distinct:
            share = self.cost.nodes[kind].count // copies
            known = self.cost.degrees(kind, b)
            choices.append([t for t in known if share % t == 0])
        return degree_choices(choices, _MOST_DEGREES)

    def _few_orders(self, distinct: list[int]) -> list[tuple[int, ...]]:
        """Most memory first and last, fastest first and last."""
        ranks = range(len(distinct))
        by_room = sorted(ranks, key=lambda k: -self.cost.room[distinct[k]])
        by_power = sorted(ranks, key=lambda k: -self.power[distinct[k]])
        orders = (by_room, by_room[::-1], by_power, by_power[::-1])
        return list(dict.fromkeys(map(tuple, orders)))
