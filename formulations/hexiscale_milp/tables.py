"""The integers of the `hexiscale` statement: kinds of group, rooms, prices, horizon.

Times are in us; synchronisation is priced in fractions of a us (`Tables.grain`), the
prices rounded down: see the statement's docstring.
"""

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from heapq import heapify, heapreplace
from itertools import accumulate, pairwise

from hetopt import capability
from hetopt.bounds.crossing import Crossing
from hetopt.costs import CostTable, Position
from hetopt.errors import InstanceError, Unsupported
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.schema import Instance, exact

LARGEST = 10**9  # of a coefficient
SLOPES = (1, 2, 4)  # of the synchronisation that a shorter span costs
ENDS = ("embedding", "head")
Block = int | str  # a layer, or one of the ends


@dataclass(frozen=True)
class Kind:
    """A tensor-parallel group of `degree` GPUs on node number `node`."""

    node: int
    degree: int
    layer_us: int
    head_us: int


class Tables:
    """Tables of an instance for the statement; nodes are numbered in its order."""

    def __init__(self, instance: Instance) -> None:
        """Tables of `instance`; `Unsupported` names the field that is not carried."""
        capability.require("statement hexiscale_milp", instance)
        self.instance = instance
        self.costs = instance.workload.costs
        self.table = CostTable(instance)
        self.layers = instance.model.layers
        self.batch = instance.workload.global_batch
        self.nodes = instance.planned_cluster.nodes
        # Caches on bound methods of this object only: they die with it.
        self.room = lru_cache(None)(self._room)
        self.hop = lru_cache(None)(self._hop)
        self.pair = lru_cache(None)(self._pair)
        every = list(self._kinds())
        if not every:
            raise Unsupported(
                "the statement hexiscale_milp: workload.costs.profile measures no micro-batch "
                "of 1 on a GPU that the cluster has, expected one: measure it"
            )
        # A group that cannot hold one layer is never used; keep some for the proof.
        self.kinds = [k for k in every if self.most_layers(k)] or every
        self.kinds_on = [
            [g for g, kind in enumerate(self.kinds) if kind.node == n] for n in range(len(self.nodes))
        ]
        self.degrees = sorted({kind.degree for kind in self.kinds})

    def _kinds(self) -> Iterator[Kind]:
        for number, node in enumerate(self.nodes):
            for t in range(1, node.count + 1):
                if not self.table.usable(node.name, t, 1):
                    continue
                layer_us = self.table.layer_us(node.name, t, 1)[0]
                yield Kind(number, t, layer_us, self.table.head_us(node.name, t, 1))

    # --- room ------------------------------------------------------------------

    def _room(self, kind: Kind, flight: int, *, first: bool, last: bool) -> int:
        """Most layers that fit on each GPU with `flight` micro-batches in flight."""
        alone = self.costs.schedule.in_flight != "1f1b" or flight == 1
        behind = 1 if last and alone else max(2, flight)
        stages, j = (behind, 0) if first else (behind + 1, 1)
        node = self.nodes[kind.node].name

        def need(held: int) -> int:
            return sum(
                self.table.stage_mib(
                    node, range(held), (kind.degree, 1), Position(flight, stages, j)
                ).values()
            )

        return bisect_right(range(1, self.layers + 1), self.table.memory_mib(node), key=need)

    def most_layers(self, kind: Kind) -> int:
        """Most layers that fit at any position with one micro-batch in flight."""
        return max(
            self.room(kind, 1, first=first, last=last) for first in (True, False) for last in (True, False)
        )

    def rooms(self, i: int, j: int) -> Iterator[tuple[int, bool, list[int]]]:
        """Rooms of all kinds at position j of pipeline i, where they bind.

        Yields (flight, last, rooms): with `flight` or more micro-batches in flight,
        on the last stage or on another, a group holds no more layers.
        """
        length = self.lengths[i]
        most = [self.most_layers(kind) for kind in self.kinds]
        for last in (True, False) if j + 1 < length else (True,):
            before = most
            deepest = self._deepest(length - j, is_last=last)
            for flight in range(1, deepest + 1):
                rooms = [self.room(kind, flight, first=j == 0, last=last) for kind in self.kinds]
                if rooms != before:
                    yield flight, last, rooms
                before = rooms

    def _deepest(self, behind: int, *, is_last: bool) -> int:
        """Most micro-batches in flight that matter for memory."""
        if self.costs.memory.activations == "checkpoint" or self.costs.schedule.in_flight == "one":
            return 1
        if self.costs.schedule.in_flight == "gpipe":
            return self.batch
        return 1 if is_last else min(behind, self.batch)

    # --- sizes -----------------------------------------------------------------

    @cached_property
    def lengths(self) -> list[int]:
        """Most stages of pipeline 0, 1, ..., in order of non-increasing length.

        The first i + 1 pipelines have at least as many stages each as pipeline i, so
        this one has at most GPUs / (i + 1). Every pipeline holds every layer, which
        bounds their number by the memory.
        """
        gpus = self.instance.planned_cluster.gpu_count
        per_gpu = [Fraction(0) for _ in self.nodes]
        for kind in self.kinds:
            share = Fraction(self.most_layers(kind), kind.degree)
            per_gpu[kind.node] = max(per_gpu[kind.node], share)
        held = sum(node.count * most for node, most in zip(self.nodes, per_gpu, strict=True))
        pipelines = max(1, min(gpus, self.batch, int(held / self.layers)))
        return [min(self.layers, gpus // (i + 1)) for i in range(pipelines)]

    @cached_property
    def alike(self) -> list[tuple[int, int]]:
        """Nodes next to each other among those that may be exchanged."""
        pairs: list[tuple[int, int]] = []
        for b in range(len(self.nodes)):
            for a in reversed(range(b)):
                if self._exchangeable(a, b):
                    pairs.append((a, b))
                    break
        return pairs

    def _exchangeable(self, a: int, b: int) -> bool:
        one, two = self.nodes[a], self.nodes[b]
        classes = self.table.node_class
        if one.count != two.count or classes[one.name] != classes[two.name]:
            return False
        others = (n.name for n in self.nodes if n not in (one, two))
        link = self.table.cluster.link
        return all(link(one.name, c) == link(two.name, c) for c in others)

    # --- prices ----------------------------------------------------------------

    def _hop(self, sender: int, receiver: Kind) -> int:
        """Return the time of a hop from a stage on node `sender` to a group, us.

        Two stages cannot share a GPU: within a node of one, a hop never happens, and
        is priced as the least of the others, which no minimum over senders notices.
        """
        if sender == receiver.node and self.nodes[sender].count == 1:
            others = (n for n in range(len(self.nodes)) if n != sender)
            return min((self.hop(n, receiver) for n in others), default=0)
        return self.table.hop_us(self.nodes[sender].name, self.nodes[receiver.node].name, receiver.degree, 1)

    @cached_property
    def pieces(self) -> list[int]:
        """Return in how many pieces a gradient can go: least degree times pipelines."""
        counts = range(2, len(self.lengths) + 1)
        return sorted({d * count for d in self.degrees for count in counts})

    def _pair_us(self, parameters: int, a: int, b: int, pieces: int) -> Fraction:
        """Return what a replica on node a pays for one on node b (ring), in us."""
        if a == b and self.nodes[a].count == 1:
            return Fraction(0)  # never two replicas there
        latency, bandwidth = self.table.link(self.nodes[a].name, self.nodes[b].name)
        return 2 * (latency + Fraction(2 * parameters, pieces) / bandwidth) * 10**6

    @cached_property
    def grain(self) -> int:
        """Parts of a us in which synchronisation is priced; as fine as fits."""
        largest = max(
            self._pair_us(self._parameters(block), a, b, 2)
            for block, _ in self.blocks()
            for a in range(len(self.nodes))
            for b in range(len(self.nodes))
        )
        most = largest * len(self.lengths)
        if most > LARGEST:
            raise InstanceError(
                f"instance {self.instance.name!r}: synchronising a layer takes up to "
                f"{int(most)} us, expected at most {LARGEST}: check the bandwidths"
            )
        grain = 1
        while grain < 1000 and most * grain * 10 <= LARGEST:
            grain *= 10
        return grain

    def _pair(self, block: Block, a: int, b: int, pieces: int) -> int:
        """Price of a replica of `block` on b to one on a, in us / grain, down."""
        us = self._pair_us(self._parameters(block), a, b, pieces)
        return int(us * self.grain)

    def _parameters(self, block: Block) -> int:
        model = self.instance.model
        return model.embedding_parameters if block in ENDS else model.parameters[0]

    @cached_property
    def factors(self) -> tuple[Fraction, Fraction]:
        """Factors of the pipelines' time and of the synchronisation."""
        return exact(self.costs.schedule.pipeline_factor), exact(self.costs.updates.sync_factor)

    def blocks(self) -> list[tuple[Block, int]]:
        """Return what is synchronised, in order, and the layer whose holders hold it."""
        layers: list[tuple[Block, int]] = [(l, l) for l in range(self.layers)]
        if self.costs.compute.head == "omit":
            return layers
        return [("embedding", 0), *layers, ("head", self.layers - 1)]

    # --- horizon ---------------------------------------------------------------

    @cached_property
    def obvious(self) -> tuple[int, TrainingPlan] | None:
        """Return the best of some obvious plans and its time, us; None if none fits."""
        known = [
            (found.objective, plan)
            for plan in self._obvious()
            if (found := training_plan.evaluate(self.instance, plan)).valid
            and isinstance(found.objective, int)
        ]
        return min(known, key=lambda pair: pair[0]) if known else None

    @cached_property
    def horizon(self) -> int:
        """Return a time in us that no optimum exceeds."""
        horizon = self.obvious[0] if self.obvious else self._slowest()
        if horizon > LARGEST:
            raise InstanceError(
                f"instance {self.instance.name!r}: an iteration may take {horizon} us, "
                f"expected at most {LARGEST}: lower workload.global_batch"
            )
        return horizon

    @cached_property
    def longest_span(self) -> int:
        """Return the horizon, as a bound on the pipelines' time before its factor."""
        return int(self.horizon / self.factors[0])

    @cached_property
    def least_span(self) -> int:
        """All work over all that the GPUs can do at once, us, rounded up."""
        fastest = [Fraction(0) for _ in self.nodes]  # layers a us, of one GPU
        for kind in self.kinds:
            if not kind.layer_us:
                return 0
            speed = Fraction(1, kind.degree * kind.layer_us)
            fastest[kind.node] = max(fastest[kind.node], speed)
        rate = sum(node.count * speed for node, speed in zip(self.nodes, fastest, strict=True))
        return -int(-(self.layers * self.batch) // rate)

    @cached_property
    def least(self) -> dict[str, int]:
        """Least values of the families of variables where they are not 0."""
        span = min(self.least_span, self.longest_span)
        scaled = -int(-self.factors[0] * span // 1)
        return {"span": span, "span_scaled": min(scaled, self.horizon)}

    @cached_property
    def crossing(self) -> dict[int, int]:
        """The least of f span + sync, us, by the factor f; none where that is not proved.

        `each` may say 1 us less of a block than the judge.
        """
        found = Crossing.of(self.table)
        if found is None or len(self.lengths) == 1:
            return {}
        of = {f: replace(found, pipeline_factor=float(f), sync_factor=1.0) for f in SLOPES}
        return {
            f: priced.least_us(float(self.least["span"])) - len(self.blocks()) for f, priced in of.items()
        }

    @cached_property
    def longest_hop(self) -> int:
        """Return the dearest hop, us."""
        nodes = range(len(self.nodes))
        return max(self.hop(n, kind) for n in nodes for kind in self.kinds)

    @cached_property
    def slowest(self) -> int:
        """The slowest that a stage may be, us: all that fits, and the dearest hop."""
        stages = (self.most_layers(k) * k.layer_us + k.head_us for k in self.kinds)
        return min(max(stages) + self.longest_hop, self.longest_span)

    @cached_property
    def most_work(self) -> list[int]:
        """Layers times micro-batches that a group of each kind does in the horizon."""
        return [self._most_work(kind) for kind in self.kinds]

    def _most_work(self, kind: Kind) -> int:
        held = self.batch * self.most_layers(kind)
        # Layers that take no time fit into any horizon, into one of 0 as well.
        return min(held, self.longest_span // kind.layer_us) if kind.layer_us else held

    def longest_each(self, block: Block) -> int:
        """Return the dearest synchronisation of a block, us."""
        nodes = range(len(self.nodes))
        price = max(self.pair(block, a, b, 2) for a in nodes for b in nodes)
        return -(-len(self.lengths) * price // self.grain)

    @cached_property
    def longest_sync(self) -> int:
        """Return the dearest synchronisation of a stage, us."""
        total = sum(self.longest_each(block) for block, _ in self.blocks())
        factor = self.factors[1]
        return min(total, int(self.horizon / factor)) if factor else total

    def _slowest(self) -> int:
        """Return a time in us that no plan exceeds: every factor at its worst."""
        whole = max(self.layers * k.layer_us + k.head_us for k in self.kinds)
        pipeline = (self.batch + self.layers) * (whole + self.longest_hop)
        sync = sum(self.longest_each(block) for block, _ in self.blocks())
        ours, theirs = self.factors
        return int(ours * pipeline + theirs * sync) + 2

    def _obvious(self) -> Iterator[TrainingPlan]:
        """One pipeline over all GPUs; one inside each node that can hold the model; equal ones."""
        if any(not self.table.usable(node.name, 1, 1) for node in self.nodes):
            return
        gpus = list(self.instance.planned_cluster.gpu_ids())
        yield TrainingPlan(pipelines=(self._chain(gpus, self.batch),))
        inside: list[tuple[list[str], list[int]]] = []
        for node in self.nodes:
            names = [f"{node.name}:{index}" for index in range(node.count)]
            alone = TrainingPlan(pipelines=(self._chain(names, self.batch),))
            found = training_plan.evaluate(self.instance, alone)
            if found.valid:
                yield alone
                rows = found.parts["stages"][0]
                inside.append((names, [r["compute_us"] + r["hop_us"] for r in rows]))
        shares = _shares(self.batch, [taus for _, taus in inside]) if inside else []
        together = [
            self._chain(names, share) for (names, _), share in zip(inside, shares, strict=True) if share
        ]
        if together:
            yield TrainingPlan(pipelines=tuple(together))
        for copies in range(1, min(self.batch, max(node.count for node in self.nodes)) + 1):
            for order in (1, -1):
                yield from self._equal(copies, list(range(len(self.nodes)))[::order])

    def _equal(self, copies: int, order: list[int]) -> Iterator[TrainingPlan]:
        """Pipelines of as many single GPUs of each node, in this order, with layers by speed."""
        each = [self.nodes[n].count // copies for n in order]
        stages = [n for n, count in zip(order, each, strict=True) for _ in range(count)]
        if (layers := self._by_speed(stages)) is None:
            return
        chosen = [(n, x) for n, x in zip(stages, layers, strict=True) if x]
        taken, pipelines = dict.fromkeys(order, 0), []
        for i in range(copies):
            gpus = []
            for n, _ in chosen:
                gpus.append(f"{self.nodes[n].name}:{taken[n]}")
                taken[n] += 1
            share = self.batch * (i + 1) // copies - self.batch * i // copies
            pipelines.append(_pipeline(gpus, [x for _, x in chosen], share))
        yield TrainingPlan(pipelines=tuple(pipelines))

    def _by_speed(self, stages: list[int]) -> list[int] | None:
        """Layers of single GPUs of these nodes, each to the first to end; None if not all fit."""
        kind = {k.node: k for k in self.kinds if k.degree == 1}
        if any(n not in kind for n in stages):
            return None
        hops = [*(self.hop(a, kind[b]) for a, b in pairwise(stages)), 0]
        layers = [0] * len(stages)
        for _ in range(self.layers):
            open_ = [
                (kind[n].layer_us * (x + 1) + hop, j)
                for j, (n, x, hop) in enumerate(zip(stages, layers, hops, strict=True))
                if x < self.most_layers(kind[n])
            ]
            if not open_:
                return None
            layers[min(open_)[1]] += 1
        return layers

    def _chain(self, gpus: list[str], micro_batches: int) -> Pipeline:
        """Return a pipeline of single GPUs with layers as equal as can be."""
        count = min(len(gpus), self.layers)
        cuts = [self.layers * j // count for j in range(count + 1)]
        return _pipeline(gpus[:count], [b - a for a, b in pairwise(cuts)], micro_batches)


def _pipeline(gpus: list[str], layers: list[int], micro_batches: int) -> Pipeline:
    """Return the stages of single GPUs with so many layers."""
    cuts = list(accumulate(layers, initial=0))
    return Pipeline(
        micro_batches=micro_batches,
        stages=tuple(
            Stage(layers=span, replicas=(Replica(gpus=(gpu,)),))
            for gpu, span in zip(gpus, pairwise(cuts), strict=True)
        ),
    )


def _shares(batch: int, stages: list[list[int]]) -> list[int]:
    """Micro-batches of pipelines, by their stages' times: each to the first to end."""
    shares = [0] * len(stages)
    ends = [(sum(taus), i) for i, taus in enumerate(stages)]
    heapify(ends)
    for _ in range(batch):
        end, i = ends[0]
        shares[i] += 1
        heapreplace(ends, (end + max(stages[i]), i))
    return shares
