"""A walk in the compiled core: tables for it, and the oracle that it asks.

`carried` says which settings the core carries: one virtual stage per GPU, pipelines
whose order says nothing, and nodes whose ports and hosts they do not share. Every
number is the evaluator's (`FastCost`): the core asks for it once, and computes the
synchronisation over plain links alone by itself.
"""

from array import array
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from typing import Any

from .._kernels import core
from ..schema import Recompute
from .balancing import Balancer, Chain
from .fast_cost import FastCost, Pipe, Slot
from .state import SMOOTH, SPREAD, State

#: Up to here links that differ pair by pair are a table of floats in the core.
MOST_PAIRED_NODES = 512
_FLIGHTS = {"one": 0, "1f1b": 1, "gpipe": 2}
_ASKED, _RING, _SLOWEST = range(3)


def carried(cost: FastCost) -> bool:
    """Tell whether the compiled core carries the settings of an instance."""
    costs = cost.costs
    return (
        costs.schedule.interleave == 1
        and not cost.syncs.is_ordered
        and costs.schedule.in_flight in _FLIGHTS
        and not cost.syncs.ports.any
        and not costs.memory.hosts_update
    )


def is_compiled(cost: FastCost) -> bool:
    """Tell whether walks of an instance run in the compiled core."""
    return core is not None and carried(cost)


class Oracle:
    """Answers of an evaluator to the core, which asks each question once."""

    def __init__(self, balancer: Balancer, rules: list[Recompute | None]) -> None:
        """`rules` are by number; the first is the workload's own."""
        self._balancer, self._cost = balancer, balancer.cost
        self._rules = rules
        kinds = self._cost.syncs.layer_kinds()
        self.kinds = list(dict.fromkeys(kinds))
        self.kind_of_layer = [self.kinds.index(kind) for kind in kinds]

    def prefix(self, node: int, t: int, b: int, rule: int) -> "array[int]":
        """Return sums of layer times before each layer, then of backward times."""
        both, back = self._cost.prefix(node, t, b, self._rules[rule])
        return array("q", [*both, *back])

    def head(self, node: int, t: int, b: int) -> int:
        """Return the time of the head."""
        return self._cost.head_us(node, t, b)

    def hop(self, sender: int, receiver: int, t: int, b: int, by: int) -> int:
        """Return the time of a transfer to the next stage."""
        return self._cost.hop_us(sender, receiver, t, b, by)

    def alone(self, node: int, b: int, rule: int) -> int:
        """Return the time of a micro-batch of a plan on one GPU."""
        slot = Slot(node, 1, 0, self._cost.layers, self._rules[rule])
        timing = self._cost.timing(b, (slot,))
        return timing.total if timing.alone is None else timing.alone

    def usable(self, node: int, t: int, b: int) -> bool:
        """Return whether a stage may have so many GPUs of a node."""
        return self._cost.table.usable(self._cost.names[node], t, b)

    def cap(self, *stage: int) -> int:
        """Return the most equal layers that memory allows on a stage."""
        return self._balancer.cap(*stage)

    def fits(self, *stage: int) -> bool:
        """Return whether a stage fits into memory."""
        b, n, stages, j, node, t, first, last, rule, replicas = stage
        slot = Slot(node, t, first, last, self._rules[rule])
        need = self._cost.need_mib(b, n, stages, j, slot, replicas)
        return need <= self._cost.room[node]

    def cuts(
        self, b: int, n: int, most: int, replicas: int, *flat: int
    ) -> "array[int] | None":
        """Return where stages end, as balanced as can be; None where none fits."""
        chain: Chain = tuple(zip(flat[::2], flat[1::2], strict=True))
        limit = None if most < 0 else most
        slots = self._balancer.balanced(b, n, chain, limit, replicas)
        return None if slots is None else array("q", [slot.last for slot in slots])

    def sync(self, kind: int, digits: bytes) -> int:
        """Return the synchronisation time of a kind of layers, or of the ends."""
        signature = int.from_bytes(digits, "little")
        if kind == len(self.kinds):
            return self._cost.syncs.end_us(signature)
        return self._cost.syncs.layer_us(*self.kinds[kind], signature)

    def tied(self, node: int, t: int, last_node: int, last_t: int) -> int:
        """Return the time to sum tied embeddings."""
        ends = Slot(node, t, 0, 0), Slot(last_node, last_t, 0, 0)
        return self._cost.syncs.tied_us(*ends)

    def update(
        self, node: int, t: int, first: int, last: int, *ends_and_replicas: int
    ) -> int:
        """Return the time of the optimiser on a stage."""
        is_first, is_last, replicas = ends_and_replicas
        slot = Slot(node, t, first, last)
        return self._cost.update_us(
            slot, replicas, 0, first=bool(is_first), last=bool(is_last)
        )


class CompiledWalk:
    """A walk of the core; beyond its numbers, `OverflowError` says so."""

    def __init__(self, start: State, balancer: Balancer, seed: int) -> None:
        """Begin at a state of an instance that is `carried`."""
        slots = [slot for line in start.lines for slot in line.slots]
        self._rules: list[Recompute | None] = [
            *dict.fromkeys([None, *(slot.recompute for slot in slots)])
        ]
        oracle = Oracle(balancer, self._rules)
        plan = array("q")
        for pipe in start.pipes():
            plan.extend((pipe.size, pipe.micro_batches, len(pipe.slots)))
            for *place, rule in pipe.slots:
                plan.extend((*place, self._rules.index(rule)))
        given = tables(balancer, oracle)
        self._walk: Any = core.Walk(oracle, seed % (1 << 64), *given, plan)

    @property
    def objective(self) -> int:
        """The objective of the best plan."""
        objective: int = self._walk.objective()
        return objective

    def begin(self) -> None:
        """Go on from the best plan."""
        self._walk.begin()

    def pipes(self) -> tuple[Pipe, ...]:
        """Return the best plan in compact form."""
        return tuple(self._read(self._walk.best()))

    def now(self) -> tuple[tuple[Pipe, ...], int, float, int]:
        """Return the plan at hand, its objective and score, and the draws' state."""
        flat, objective, score, draws = self._walk.now()
        return tuple(self._read(flat)), objective, score, draws

    def run(self, most: int, temperature: float, target: int | None) -> int:
        """Look at `most` candidates, as `walking.Walking` says."""
        looked_at: int = self._walk.run(
            most, temperature, -1 if target is None else target
        )
        return looked_at

    def _read(self, flat: list[int]) -> Iterator[Pipe]:
        at = 0
        while at < len(flat):
            size, n, stages = flat[at : at + 3]
            end = at + 3 + 5 * stages
            columns = (flat[at + 3 + i : end : 5] for i in range(5))
            slots = (
                Slot(node, t, first, last, self._rules[rule])
                for node, t, first, last, rule in zip(*columns, strict=True)
            )
            yield Pipe(n, size, tuple(slots))
            at = end


def walk_from(state: State, balancer: Balancer, seed: int) -> CompiledWalk | None:
    """Return a walk in the core; None where it is not there or cannot carry it."""
    if not is_compiled(balancer.cost):
        return None
    with suppress(OverflowError):
        return CompiledWalk(state, balancer, seed)
    return None


def tables(balancer: Balancer, oracle: Oracle) -> "tuple[array[Any], ...]":
    """Return the problem as `walk.c` reads it: header, factors, nodes and so on."""
    cost = balancer.cost
    costs, syncs, nodes = cost.costs, cost.syncs, cost.nodes
    links = syncs.plain(MOST_PAIRED_NODES)
    inside = links.inside if links else [(0.0, 0.0)] * len(nodes)
    classes = {link: number for number, link in enumerate(dict.fromkeys(inside))}
    paired_hops = bool(cost.instance.planned_cluster.inter.pairs)
    table = array("q")
    for number, (node, kind, link) in enumerate(
        zip(nodes, cost.kind, inside, strict=True)
    ):
        spot = number if paired_hops else kind
        table.extend((node.count, kind, spot, classes[link]))
    ends = syncs.end_parameters
    parameters = [-1 if routed else whole for whole, routed in oracle.kinds]
    sizes = array("q", cost.instance.workload.micro_batch_sizes)
    header = (
        cost.layers,
        cost.instance.workload.global_batch,
        len(nodes),
        sum(node.count for node in nodes),
        max(node.count for node in nodes),
        syncs.digit_bytes,
        len(classes),
        len(sizes),
        *syncs.passes,
        cost.overhead_us,
        -1 if ends is None else len(oracle.kinds),
        *_parts(cost.pipeline_factor),
        *_parts(cost.sync_factor),
        costs.schedule.pipeline == "lockstep",
        costs.links.hops == "both",
        _FLIGHTS[costs.schedule.in_flight],
        balancer.even,
        bool(costs.updates.zero),
        bool(costs.updates.zero or costs.memory.flat_gradients),
        costs.updates.sync_overlap == "backward",
        costs.updates.zero == 3 and costs.updates.gathers != "iteration",
        cost.ties,
        cost.updates,
        _ASKED if links is None else _RING if links.ring else _SLOWEST,
        links is not None and links.paired,
    )
    factors = float(cost.pipeline_factor), float(cost.sync_factor), SMOOTH, SPREAD
    across = links.across if links else [(0.0, 0.0)]
    return (
        array("q", header),
        array("d", factors),
        table,
        sizes,
        array("q", oracle.kind_of_layer),
        array("q", parameters if ends is None else [*parameters, ends]),
        array("d", [number for link in classes for number in link]),
        array("d", [number for link in across for number in link]),
    )


def _parts(factor: Fraction) -> tuple[int, int]:
    return factor.numerator, factor.denominator
