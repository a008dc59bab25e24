"""Time and memory of training plans, fast: what searches call thousands of times.

It covers the plans whose stages have one replica each, and agrees with the judge
(`hetopt.problems.training_plan`) to the microsecond under every cost setting; times
share no code with it, and a test holds the two together.

A plan is compact here: a `Pipe` is micro-batches, their size and `Slot`s, and a slot
is a number of GPUs of a node with a run of layers. GPUs of a node are alike, so their
ids are chosen at the end (`FastCost.plan`). Nodes go by their number in the cluster.

Every search of plans asks here, again and again. So this is also where it learns that
its time is over: with a deadline, what is not known yet raises `OutOfTime`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import accumulate, pairwise
from operator import add
from typing import NamedTuple

import numpy as np

from ..caching import cached_method
from ..clock import monotonic
from ..costs import CostTable, Position, memory
from ..costs.communication import rounds
from ..errors import InternalError, OutOfTime
from ..plans import Pipeline, Replica, Stage, TrainingPlan
from ..problems.training_plan.shapes import split_of
from ..schema import Instance, Recompute, exact
from .synchronisation import Sent, Slot, Sums, SyncTimes, added, bounded_method

_NEVER_MIB = 1 << 40

__all__ = ["Best", "FastCost", "Pipe", "Slot", "Timing", "lockstep_us", "stages_on"]


class Pipe(NamedTuple):
    """A pipeline: how many micro-batches of what size, through which stages."""

    micro_batches: int
    size: int
    slots: tuple[Slot, ...]


class Timing(NamedTuple):
    """Times of the stages of a pipeline for one micro-batch, in us.

    n micro-batches take total + (n - 1) slowest, but in lockstep.
    """

    total: int
    slowest: int
    taus: tuple[int, ...]  # each stage's, with what it sends and what keeps it busy
    behind: tuple[int, ...]  # backward times of all stages before each
    sent: Sent = ()  # bytes of a micro-batch through each port
    alone: int | None = None  # on the one GPU of a plan, where that takes another time


class FastCost:
    """Evaluator of compact plans of one instance; everything computed is kept."""

    def __init__(
        self,
        instance: Instance,
        deadline: float | None = None,
        used: Mapping[str, int] | None = None,
    ) -> None:
        """Make the evaluator; `InstanceError` where there is no cluster.

        `deadline` is a `clock.monotonic()` instant; it may be set anew. `used` is as
        `CostTable` has it.
        """
        self.instance = instance
        self.deadline = deadline
        self.table = CostTable(instance, used)
        self.costs = instance.workload.costs
        self.layers = instance.model.layers
        self.nodes = instance.planned_cluster.nodes
        self.names = [node.name for node in self.nodes]
        one_of = {node.gpu: node.name for node in self.nodes}
        room = {gpu: self.table.memory_mib(name) for gpu, name in one_of.items()}
        self.room = [room[node.gpu] for node in self.nodes]
        node_class = self.table.node_class
        same = {id(one): one for one in node_class.values()}  # equal ones are few
        classes = list(dict.fromkeys(same.values()))
        place = {key: classes.index(one) for key, one in same.items()}
        self.kind = [place[id(node_class[name])] for name in self.names]
        self._speaker = {
            kind: name for kind, name in zip(self.kind, self.names, strict=True)
        }
        self.pipeline_factor = exact(self.costs.schedule.pipeline_factor)
        self.sync_factor = exact(self.costs.updates.sync_factor)
        self.sync_floor = self.costs.sync_floor
        self.syncs = SyncTimes(self.table, self.check)
        self._prefix: dict[tuple[object, ...], tuple[list[int], list[int]]] = {}
        self._fit: dict[tuple[object, ...], bool] = {}
        self._needs: dict[tuple[object, ...], int] = {}

    def check(self) -> None:
        """Raise `OutOfTime` where the deadline is over."""
        if self.deadline is not None and monotonic() >= self.deadline:
            raise OutOfTime

    # --- time ------------------------------------------------------------------

    def prefix(
        self, node: int, t: int, b: int, recompute: Recompute | None = None
    ) -> tuple[list[int], list[int]]:
        """Sums of layer times and of backward times over the layers before each."""
        key = (self.kind[node], t, b, recompute)
        if key not in self._prefix:
            name, table = self._speaker[self.kind[node]], self.table.under(recompute)
            both = accumulate(table.layer_us(name, t, b), initial=0)
            back = accumulate(table.backward_us(name, t, b), initial=0)
            self._prefix[key] = list(both), list(back)
        return self._prefix[key]

    @cached_method
    def degrees(self, node: int, b: int) -> list[int]:
        """Degrees that a stage on a node can have: all, or those with a profile."""
        usable, name = self.table.usable, self.names[node]
        return [t for t in range(1, self.nodes[node].count + 1) if usable(name, t, b)]

    def known(self, chain: Iterable[tuple[int, int]], b: int) -> bool:
        """Tell whether times of all these (node, degree) are known at a size.

        Searches ask before they ask for a time: what was not measured is left out.
        """
        return all(t in self.degrees(node, b) for node, t in chain)

    @cached_property
    def timed_nodes(self) -> list[int]:
        """Nodes with a known time at any degree and size; the others stay idle."""
        sizes = self.instance.workload.micro_batch_sizes
        numbers = range(len(self.nodes))
        return [i for i in numbers if any(self.degrees(i, b) for b in sizes)]

    def head_us(self, node: int, t: int, b: int) -> int:
        """Time of the head, both passes, in us."""
        return self.table.head_us(self._speaker[self.kind[node]], t, b)

    @cached_method
    def hop_us(self, sender: int, receiver: int, t: int, b: int, by: int | None) -> int:
        """Time from `by` GPUs of `sender` to the next stage, `t` of `receiver`, in us.

        `by` may be None where nodes have no adapters.
        """
        return self.table.hop_us(self.names[sender], self.names[receiver], t, b, by)

    @bounded_method
    def timing(self, b: int, slots: tuple[Slot, ...]) -> Timing:
        """Times of every stage for micro-batches of `b` sequences."""
        self.check()
        crossings = self.crossings(len(slots))
        rows = [
            self._stage_us(b, slot, after.node, after.t, times, last=after is slots[0])
            for slot, after, times in zip(
                slots, (*slots[1:], slots[0]), crossings, strict=True
            )
        ]
        found = self.combined(*zip(*rows, strict=True))
        if self.syncs.ports.any:
            found = found._replace(sent=self._sent(b, slots))
        if self.table.is_paced and len(slots) == slots[0].t == 1:
            alone = self._on(((self.names[0], 1),)).timing(b, slots).total
            found = found._replace(alone=alone)
        return found

    def crossings(self, stages: int) -> list[int]:
        """Return how often a micro-batch goes on from each of so many stages."""
        runs = self.costs.schedule.interleave
        return [runs] * (stages - 1) + [runs - 1 if stages > 1 else 0]

    def combined(
        self, spans: Sequence[int], backward: Sequence[int], hops: Sequence[int]
    ) -> Timing:
        """Return the times of stages that compute and send for so long."""
        runs = self.costs.schedule.interleave
        sending = [*map(add, spans, hops)]
        taus = sending
        if self.costs.links.hops == "both":
            taus = [tau + hops[j - 1] for j, tau in enumerate(sending)]
        slowest = max(taus)
        # Filling is as many times as fast as there are runs.
        total = slowest - (slowest - sum(sending)) // runs
        behind = tuple(accumulate(backward[:-1], initial=0))
        return Timing(total, slowest, tuple(taus), behind)

    def _on(self, used: tuple[tuple[str, int], ...]) -> "FastCost":
        """Return the evaluator of plans on so many GPUs of each node.

        Its time is over when this one's is.
        """
        found = self._evaluator(used)
        found.deadline = self.deadline
        return found

    @cached_method
    def _evaluator(self, used: tuple[tuple[str, int], ...]) -> "FastCost":
        return FastCost(self.instance, used=dict(used))

    def _sent(self, b: int, slots: tuple[Slot, ...]) -> Sent:
        """Activations and their gradients of a micro-batch, where ports are shared."""
        sent = []
        rows = zip(
            (*slots[1:], slots[0]), slots, self.crossings(len(slots)), strict=True
        )
        for receiver, slot, crossings in rows:
            if not crossings or receiver.node == slot.node:
                continue
            size = crossings * self.table.hop_bytes(b)
            for ends in ((slot.node, receiver.node), (receiver.node, slot.node)):
                if (port := self.syncs.ports.toward(*ends)) is not None:
                    sent.append((port, size))
        return tuple(added([(1, tuple(sent))]).items())

    def passes_us(self, counts: Iterable[int], timings: Iterable[Timing]) -> int:
        """Time of all pipelines: the slowest one's, or the busiest port's.

        `counts` are the micro-batches of each.
        """
        pairs = list(zip(counts, timings, strict=True))
        if len(pairs) == 1 and (alone := pairs[0][1].alone) is not None:
            return pairs[0][0] * alone
        slowest = max(self.pipeline_us(n, timing) for n, timing in pairs)
        if not self.syncs.ports.any:
            return slowest
        sent = added((n, timing.sent) for n, timing in pairs)
        return max(slowest, self.syncs.ports.busiest_us(sent))

    @bounded_method
    def _stage_us(
        self, b: int, slot: Slot, receiver: int, t: int, crossings: int, *, last: bool
    ) -> tuple[int, int, int]:
        """Time of a stage, of its backward pass, and of what it sends."""
        both, back = self.prefix(slot.node, slot.t, b, slot.recompute)
        tau = both[slot.last] - both[slot.first]
        behind = back[slot.last] - back[slot.first]
        if last:
            head = self.head_us(slot.node, slot.t, b)
            tau, behind = tau + head, behind + -(-2 * head // 3)
        if not crossings:
            return tau, behind, 0
        hop = self.hop_us(slot.node, receiver, t, b, slot.t)
        return tau, behind, crossings * hop

    def pipeline_us(self, n: int, timing: Timing) -> int:
        """Time of `n` micro-batches through a pipeline, in us."""
        if self.costs.schedule.pipeline == "critical":
            return timing.total + (n - 1) * timing.slowest
        return lockstep_us(n, timing.taus)

    def whole_us(self, pipelines_us: int, sync_us: int, end_us: int = 0) -> int:
        """Iteration time from what pipelines and sync take, and what ends it."""
        a, b, c = self.pipeline_factor, self.sync_factor, self.sync_floor
        pipelines = -(-a.numerator * pipelines_us // a.denominator)
        syncs = -(-b.numerator * sync_us // b.denominator)
        least = -(-c.numerator * sync_us // c.denominator)
        return max(pipelines + syncs, least) + end_us + self.table.overhead_us

    def end_us(self, pipes: Sequence[tuple[Slot, ...]]) -> int:
        """Tied embeddings summed, and the optimiser where it takes longest."""
        end = 0
        if self.table.tied is not None:
            pairs = [(slots[0], slots[-1]) for slots in pipes if len(slots) > 1]
            end = max((self.syncs.tied_us(*pair) for pair in pairs), default=0)
            if self.syncs.ports.any:
                end = max(end, self.syncs.ties_us(pairs))
        return end + self.updates_us(
            (slot, len(pipes)) for slots in pipes for slot in slots
        )

    def updates_us(self, stages: Iterable[tuple[Slot, int]]) -> int:
        """Return the longest time of the optimiser on stages with so many replicas."""
        if not self.table.times_updates:
            return 0
        rows, used = [*stages], Counter[int]()
        if self.costs.memory.hosts_update:  # GPUs share what their hosts do
            for slot, _ in rows:
                used[slot.node] += slot.t
        return max(
            self._update_us(self.kind[slot.node], *slot[1:4], replicas, used[slot.node])
            for slot, replicas in rows
        )

    @cached_method
    def _update_us(
        self, kind: int, t: int, first: int, last: int, replicas: int, used: int
    ) -> int:
        name, table = self._speaker[kind], self.table
        layers, each = range(first, last), [replicas] * self.layers
        us = table.measured_update_us(name, t, layers, each)
        held = routed = 0
        if us is None:
            held = sum(table.trained.layers[first:last])
            routed = sum(table.divided(table.trained)[first:last])
        ends = (first == 0) + (last == self.layers)
        copies = memory.end_copies(table.model, table.workload, ends)
        held += copies * (table.trained.end or 0)
        shares = memory.shares(self.costs, held, routed, t, replicas)
        return (us or 0) + table.update_us(name, shares, used)

    # --- memory ----------------------------------------------------------------

    def fits(self, pipe: Pipe, replicas: int | None = None) -> bool:
        """Tell whether every stage of the pipeline fits into its GPUs.

        `replicas` are the pipelines of the plan, among which ZeRO divides states; None
        where they are not known yet, which asks for no less memory.
        """
        n, b, slots = pipe
        if not self.costs.updates.zero:
            replicas = 1
        whole = self.costs.schedule.interleave == 1 or n % len(slots) == 0
        key = (self.in_flight(n, len(slots), 0), b, slots, replicas, whole)
        if key not in self._fit:
            if len(self._fit) >= bounded_method.most:
                self._fit.clear()
            self._fit[key] = all(
                self.need_mib(b, n, len(slots), j, slot, replicas)
                <= self.room[slot.node]
                for j, slot in enumerate(slots)
            )
        return self._fit[key]

    @cached_method
    def in_flight(self, n: int, stages: int, j: int) -> int | Fraction:
        """Micro-batches whose activations stage `j` of `stages` holds."""
        return memory.in_flight(self.costs, n, stages, j)

    def need_mib(
        self,
        b: int,
        n: int,
        stages: int,
        j: int,
        slot: Slot,
        replicas: int | None = None,
    ) -> int:
        """Memory of one GPU of stage `j` of `stages`, in MiB.

        More than any GPU has where the stage cannot be interleaved, or replicas make
        no groups. `replicas` as in `fits`.
        """
        self.check()
        runs = self.costs.schedule.interleave
        if runs > 1 and (n % stages or slot.last - slot.first < runs):
            return _NEVER_MIB
        if replicas is not None and not self.makes_groups(replicas):
            return _NEVER_MIB
        layers, place = range(slot.first, slot.last), Position(n, stages, j)
        size, kind = len(layers) if self.table.even else layers, self.kind[slot.node]
        held = self.in_flight(*place), place.ends, replicas
        key = size, kind, slot.t, b, *held, slot.recompute
        if key not in self._needs:
            parts = self.table.under(slot.recompute).stage_mib(
                self.names[slot.node], layers, (slot.t, b), place, replicas or 1
            )
            self._needs[key] = sum(parts.values())
        return self._needs[key]

    def makes_groups(self, replicas: int) -> bool:
        """Tell whether so many replicas make groups of several under ZeRO."""
        groups = self.costs.updates.zero_groups
        return groups == 1 or (replicas % groups == 0 and replicas > groups)

    # --- whole plans -----------------------------------------------------------

    def iteration_us(self, pipes: Sequence[Pipe]) -> int:
        """Iteration time of a plan, computed afresh; memory is not looked at."""
        self.check()
        own = self
        if self.table.calibrated and self.table.split.experts > 1:
            used = Counter[str]()
            for slot in (slot for pipe in pipes for slot in pipe.slots):
                used[self.names[slot.node]] += slot.t
            own = self._on(tuple(sorted(used.items())))
        timings = [own.timing(pipe.size, pipe.slots) for pipe in pipes]
        passes = self.passes_us((pipe.micro_batches for pipe in pipes), timings)
        signatures = self.syncs.signatures(pipe.slots for pipe in pipes)
        sync = self.sync_us(
            [(p.slots, t) for p, t in zip(pipes, timings, strict=True)],
            self.syncs.times(signatures),
        )
        sync *= rounds(self.costs, [(p.micro_batches, len(p.slots)) for p in pipes])
        return self.whole_us(passes, sync, self.end_us([p.slots for p in pipes]))

    def sync_us(
        self, pipes: Iterable[tuple[tuple[Slot, ...], Timing]], times: Sums
    ) -> int:
        """The slowest stage's synchronisation, or the busiest port's.

        Both less what backward passes hide. `times` are those of `SyncTimes.times`.
        """
        pipes, hidden = list(pipes), dict[int, int]()
        if times.sent and self.costs.updates.sync_overlap == "backward":
            for slots, timing in pipes:
                for slot, idle in zip(slots, timing.behind, strict=True):
                    hidden[slot.node] = max(hidden.get(slot.node, 0), idle)
        busiest = self.syncs.ports.busiest_us(times.sent, times.share, hidden)
        return max(busiest, self._stages_us(pipes, times))

    def _stages_us(
        self, pipes: Sequence[tuple[tuple[Slot, ...], Timing]], times: Sums
    ) -> int:
        behind, embedding, head = times[:3]
        overlap = self.costs.updates.sync_overlap == "backward"
        if not (overlap or embedding or head):
            spans = {(s.first, s.last) for slots, _ in pipes for s in slots}
            return max(behind[last] - behind[first] for first, last in spans)
        slowest = 0
        for slots, timing in pipes:
            final = len(slots) - 1
            for j, slot in enumerate(slots):
                sync = behind[slot.last] - behind[slot.first]
                sync += (embedding if j == 0 else 0) + (head if j == final else 0)
                slowest = max(slowest, sync - (timing.behind[j] if overlap else 0))
        return slowest

    @cached_property
    def _near(self) -> list[int]:
        """Each node's place in an order in which quick links lead on to the next."""
        count, cluster = len(self.nodes), self.instance.planned_cluster
        if not cluster.inter.pairs:
            return list(range(count))
        order, left = [0], np.arange(count) > 0
        while left.any():
            rates = cluster.links.bytes_per_s[cluster.links.row(order[-1])]
            order.append(int(np.where(left, rates, -1).argmax()))
            left[order[-1]] = False
        found: list[int] = np.argsort(order).tolist()
        return found

    def place(self, slots: Sequence[Slot]) -> list[int]:
        """Return what sorts pipelines so that those of near nodes are neighbours."""
        return [self._near[slot.node] for slot in slots]

    def ordered(self, pipes: tuple[Pipe, ...]) -> tuple[Pipe, ...]:
        """Return the pipelines in the best of a few orders, where their order counts.

        They stay as they are, or are sorted by the nodes of their stages, from the
        first stage on or from the last.
        """
        if not self.syncs.is_ordered:
            return pipes
        ways = [pipes]
        for step in (1, -1):
            way = sorted(pipes, key=lambda pipe: self.place(pipe.slots[::step]))
            ways.append(tuple(way))
        return min(dict.fromkeys(ways), key=self.iteration_us)

    def compact(self, plan: TrainingPlan) -> tuple[Pipe, ...] | None:
        """The plan in compact form; None where a stage has several replicas.

        None as well for settings of the plan that are not the instance's own.
        """
        number = {name: i for i, name in enumerate(self.names)}
        stages = [stage for pipeline in plan.pipelines for stage in pipeline.stages]
        if any(len(stage.replicas) > 1 for stage in stages):
            return None
        if plan.zero not in (None, self.costs.updates.zero):
            return None
        if split_of(self.instance, plan) != self.costs.split:
            return None
        if any(stage.runs or not stage.span for stage in plan.stages()):
            return None

        def slot(stage: Stage) -> Slot:
            node, t = number[stage.replicas[0].node], stage.replicas[0].degree
            return Slot(node, t, *stage.layers, stage.recompute)

        return tuple(
            Pipe(one.micro_batches, one.micro_batch_size, tuple(map(slot, one.stages)))
            for one in plan.pipelines
        )

    def handing_out(self) -> Callable[[int, int], tuple[str, ...]]:
        """Return what hands out so many GPUs of a node by their ids, in order."""
        given = [0] * len(self.nodes)

        def hand_out(node: int, t: int) -> tuple[str, ...]:
            start, name, there = given[node], self.names[node], self.nodes[node].count
            given[node] = end = start + t
            if end > there:
                raise InternalError(f"a plan uses {end} of {there} GPUs of {name!r}")
            return tuple(f"{name}:{i}" for i in range(start, end))

        return hand_out

    def plan(self, pipes: Iterable[Pipe]) -> TrainingPlan:
        """The plan with GPU ids; each node's are handed out in order."""
        hand_out = self.handing_out()

        def stage(slot: Slot, b: int) -> Stage:
            alone = Replica(gpus=hand_out(slot.node, slot.t), samples=b)
            held, rule = (slot.first, slot.last), slot.recompute
            return Stage(layers=held, replicas=(alone,), recompute=rule)

        return TrainingPlan(
            pipelines=tuple(
                Pipeline(
                    micro_batches=pipe.micro_batches,
                    micro_batch_size=pipe.size,
                    stages=tuple(stage(slot, pipe.size) for slot in pipe.slots),
                )
                for pipe in pipes
            )
        )


class Best:
    """The best of the plans that were offered: its time in us, and its pipelines."""

    def __init__(self, cost: FastCost) -> None:
        """No plan is offered yet."""
        self._cost = cost
        self.us: int | None = None
        self.pipes: tuple[Pipe, ...] = ()

    def offer(self, pipes: tuple[Pipe, ...]) -> int:
        """Return the time of a plan, which is kept where it is better."""
        us = self._cost.iteration_us(pipes)
        if self.us is None or us < self.us:
            self.us, self.pipes = us, pipes
        return us

    def plan(self) -> TrainingPlan | None:
        """Return the plan that is kept; None where there is none."""
        return None if self.us is None else self._cost.plan(self.pipes)


def stages_on(
    chain: Iterable[tuple[int, int]], cuts: Sequence[int]
) -> tuple[Slot, ...]:
    """Return stages on (node, degree)s between cuts, 0 and all layers included."""
    places = zip(chain, pairwise(cuts), strict=True)
    return tuple(Slot(*place, *span) for place, span in places)


def lockstep_us(n: int, taus: Sequence[int]) -> int:
    """Sum over time slots of the slowest stage that is active in the slot."""
    count = len(taus)
    if n >= count:
        up = sum(accumulate(taus[:-1], max))
        down = sum(accumulate(reversed(taus[1:]), max))
        return up + (n - count + 1) * max(taus) + down
    return sum(
        max(taus[max(0, slot - n + 1) : slot + 1]) for slot in range(count + n - 1)
    )
