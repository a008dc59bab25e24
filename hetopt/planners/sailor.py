"""Sailor: stages of equally many layers, each on the types of GPUs that suit it.

For every number of stages, micro-batch size and degree D of data parallelism a dynamic
programme goes through the stages and splits each one's D replicas among the types of
GPUs that are left; a replica is a tensor-parallel group of one type on one node. The
rest of the pipeline is solved for what then remains. It minimises

    sum_j (T_j + C_j) + (n - 1) max_j (T_j + C_j) + max_j S_j

where T_j is the time of the slowest replica of stage j, C_j the slowest link from one
of its replicas to the replica of the same number in the next stage, S_j its
synchronisation, and n the number of micro-batches. The rest of a pipeline is chosen by
its own sum, so that the programme is a heuristic, as published. What keeps it small:

- layers are cut into stages as equal as can be, the last ones take one more;
- the degree of a type in a stage is the least that fits, but for the fastest of several
  types raised as long as doubling it makes the stage 1.5 times as fast;
- D falls from the most there can be, until a plan is no faster than the last;
- of splits over which a stage computes as long only the first is followed, which takes
  the fewest GPUs of the faster types (`splits: first`); `all` follows every one.

Source: Strati et al., SOSP 2025 (arXiv 2504.17096); the rules are those of the planner
released with it, as we had no more of the paper than its abstract. Different here:
- memory, times and links are the cost model's, and plans are compared by it (Sailor
  compares them by its simulator), with replica i of all stages as pipeline i;
- where D does not divide the micro-batches, the first pipelines have one more, where
  Sailor gives all of them as many and the batch a few samples more;
- types are ordered by their speed, where Sailor takes the order of its input;
- every type at the least degree that fits is tried, too;
- splits are compared by computation alone, where Sailor leaves out successive ones of
  equal time, synchronisation included;
- a type in a stage in which no plan can be faster than the best is left out;
- a type on which one stage does not fit may have other stages; Sailor drops it;
- machines take the part of its zones: their GPUs are handed out machine by machine.
  Regions, prices and limits on cost or throughput are left out.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from ..caching import cached_method
from ..errors import NoPlan, in_time
from ..plans import TrainingPlan
from ..schema import Instance
from ..search.fast_cost import Best, FastCost, Pipe, Slot
from ..search.symmetric import equal_cuts

problem: Literal["training_plan"] = "training_plan"
Splits = Literal["first", "all"]
SPEEDUP = 1.5  # of doubling a degree, below which it is not doubled
Free = tuple[int, ...]  # GPUs of each node that no stage has
Raised = tuple[bool, ...]  # by type: whether degrees are raised for speed


def plan(
    data: Instance,
    *,
    seed: int = 0,
    deadline: float | None = None,
    splits: Splits = "first",
) -> TrainingPlan:
    """The fastest of the plans that the programmes find; `NoPlan` where none fits.

    `seed` has no effect. `splits` says which splits of a stage's replicas among types
    are followed.
    """
    search = Search(FastCost(data, deadline), splits)
    with in_time("sailor", search.best.plan):
        search.run()
    if (found := search.best.plan()) is not None:
        return found
    workload = data.workload
    raise NoPlan(
        "sailor: no stages of equally many layers fit on any split of the GPUs; "
        f"micro-batch sizes {list(workload.micro_batch_sizes)}, global batch "
        f"{workload.global_batch}"
    )


class Search:
    """All numbers of stages, sizes of micro-batches and degrees, and the best plan."""

    def __init__(self, cost: FastCost, splits: Splits = "first") -> None:
        self.cost, self.splits = cost, splits
        self.types = types_of(cost)
        self.best = Best(cost)

    def run(self) -> None:
        """Look at everything; `OutOfTime` after the deadline."""
        sizes = sorted(set(self.cost.instance.workload.micro_batch_sizes))
        gpus = sum(node.count for node in self.cost.nodes)
        for stages in range(1, min(self.cost.layers, gpus) + 1):
            for b in sizes:
                for raised in raising(len(self.types)):
                    self.degrees(stages, b, gpus // stages, raised)

    def degrees(self, stages: int, b: int, most: int, raised: Raised) -> None:
        """Fall through data-parallel degrees until plans are no faster."""
        last = None
        total, left = divmod(self.cost.instance.workload.global_batch, b)
        for d in () if left else worthwhile(total, most):
            pipes = self.allocated(stages, b, d, raised)
            if pipes is None:
                continue
            value = self.best.offer(pipes)
            if last is not None and value >= last:
                return
            last = value

    def allocated(
        self, stages: int, b: int, d: int, raised: Raised
    ) -> tuple[Pipe, ...] | None:
        """Return the pipelines that the programme finds; None where nothing fits.

        Or where nothing can be faster than the best so far.
        """
        programme = Programme(self.cost, self.types, stages, b, d, raised, self.splits)
        if self.best.us is not None:
            programme.forget_slow(self.best.us)
        found = programme.solve(0, tuple(node.count for node in self.cost.nodes))
        if found is None:
            return None
        rows = enumerate(zip(*found.rows, strict=True))
        share, more = divmod(programme.total, d)
        pipes = tuple(Pipe(share + (i < more), b, tuple(row)) for i, row in rows)
        return pipes if all(self.cost.fits(pipe, d) for pipe in pipes) else None


def types_of(cost: FastCost) -> list[list[int]]:
    """Nodes of each type of GPU, the fastest type first, the largest nodes first."""
    types: dict[int, list[int]] = {}
    for node in cost.timed_nodes:
        types.setdefault(cost.kind[node], []).append(node)

    def layers_us(nodes: list[int]) -> int:
        sizes = cost.instance.workload.micro_batch_sizes
        known = [(t, b) for b in sizes for t in cost.degrees(nodes[0], b)]
        t, b = min(known, key=lambda pair: (pair[1], pair[0]))
        return cost.prefix(nodes[0], t, b)[0][-1]

    for nodes in types.values():
        nodes.sort(key=lambda node: (-cost.nodes[node].count, node))
    return sorted(types.values(), key=layers_us)


def raising(types: int) -> Iterator[Raised]:
    """Yield which types' degrees to raise: those of the release, then none."""
    yield tuple(i > 0 or types == 1 for i in range(types))
    yield (False,) * types


class Suffix(NamedTuple):
    """The stages from one on: times of all, of the slowest, and each one's replicas."""

    us: int  # what the programme minimises
    total: int
    slowest: int
    sync: int
    rows: tuple[tuple[Slot, ...], ...]


class Choice(NamedTuple):
    """A choice puts a stage on a type: its degree, and its time for a micro-batch."""

    t: int
    us: int


class Programme:
    """One number of stages, size of micro-batches and degree of data parallelism."""

    def __init__(
        self,
        cost: FastCost,
        types: Sequence[Sequence[int]],
        stages: int,
        b: int,
        d: int,
        raised: Raised,
        splits: Splits = "first",
    ) -> None:
        self.cost, self.types, self.splits = cost, types, splits
        self.stages, self.b, self.d = stages, b, d
        self.total = cost.instance.workload.global_batch // b
        self.n = -(-self.total // d)  # of the pipelines that have most
        ends = equal_cuts(cost.layers, stages)
        self.cuts = [cost.layers - end for end in reversed(ends)]
        self.choices = [
            [
                self._choice(j, nodes, raised=more)
                for nodes, more in zip(types, raised, strict=True)
            ]
            for j in range(stages)
        ]
        self._syncs: dict[tuple[object, ...], int] = {}

    # --- what a type offers a stage ----------------------------------------------

    def _choice(self, j: int, nodes: Sequence[int], *, raised: bool) -> Choice | None:
        """Return the degree of a type in a stage, None where none fits."""
        largest = nodes[0]
        usable = set(self.cost.degrees(largest, self.b))
        degrees = [t for t in sorted(usable) if not t & (t - 1)]
        wanted, before = 0, None
        for t in degrees if raised else ():
            us = self.stage_us(j, largest, t)
            if before is not None and before < SPEEDUP * us:
                break
            wanted, before = t, us
        # Measured memory may grow with the degree: lesser ones come then.
        lesser = [t for t in reversed(degrees) if t < wanted]
        for t in (*(t for t in degrees if t >= wanted), *lesser):
            if self._fits(j, largest, t):
                return Choice(t, self.stage_us(j, largest, t))
        return None

    def forget_slow(self, worst: int) -> None:
        """Leave types out of stages in which no plan takes less than `worst`.

        An iteration is no shorter than n times its slowest stage and, divided by the
        runs of layers of a GPU, the others.
        """
        least = [min((c.us for c in row if c), default=worst) for row in self.choices]
        runs, factor = self.cost.costs.schedule.interleave, self.cost.pipeline_factor

        def fast(j: int, choice: Choice) -> bool:
            others = sum(least) - least[j]
            return factor * (self.n * choice.us + others // runs) < worst

        self.choices = [
            [choice if choice and fast(j, choice) else None for choice in row]
            for j, row in enumerate(self.choices)
        ]

    def stage_us(self, j: int, node: int, t: int) -> int:
        """Time of a stage on a node for a micro-batch, without what it sends."""
        sums = self.cost.prefix(node, t, self.b)[0]
        head = self.cost.head_us(node, t, self.b) if j == self.stages - 1 else 0
        return sums[self.cuts[j + 1]] - sums[self.cuts[j]] + head

    def _fits(self, j: int, node: int, t: int) -> bool:
        slot = self.slot(j, node, t)
        need = self.cost.need_mib(self.b, self.n, self.stages, j, slot, self.d)
        return need <= self.cost.room[node]

    def slot(self, j: int, node: int, t: int) -> Slot:
        """Return a replica of a stage."""
        return Slot(node, t, self.cuts[j], self.cuts[j + 1])

    # --- splits of the replicas of a stage ---------------------------------------

    def rows(self, j: int, free: Free) -> Iterator[tuple[tuple[Slot, ...], Free]]:
        """Replicas of a stage by every split that is followed, and what they leave."""
        offers = [
            0 if choice is None else sum(free[node] // choice.t for node in nodes)
            for choice, nodes in zip(self.choices[j], self.types, strict=True)
        ]
        if sum(offers) < self.d:
            return
        found = (
            every_split(offers, self.d)
            if self.splits == "all"
            else self._few(j, offers)
        )
        for split in found:
            yield self._take(j, split, free)

    def _few(self, j: int, offers: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The first split of each time: as few as can be of the types before others."""
        times = [choice.us if choice else None for choice in self.choices[j]]
        told = set()
        for limit in times:
            if limit is None:
                continue
            left, split = self.d, [0] * len(offers)
            for i in reversed(range(len(offers))):
                us = times[i]
                if us is not None and us <= limit:
                    split[i] = min(left, offers[i])
                    left -= split[i]
            if not left and tuple(split) not in told:
                told.add(tuple(split))
                yield tuple(split)

    def _take(
        self, j: int, split: Sequence[int], free: Free
    ) -> tuple[tuple[Slot, ...], Free]:
        row, left = [], list(free)
        for i, wanted in enumerate(split):
            choice, missing = self.choices[j][i], wanted
            for node in self.types[i]:
                if choice is None or not missing:
                    break
                count = min(missing, left[node] // choice.t)
                row += [self.slot(j, node, choice.t)] * count
                left[node] -= count * choice.t
                missing -= count
        return tuple(row), tuple(left)

    # --- the programme -----------------------------------------------------------

    @cached_method
    def solve(self, j: int, free: Free) -> Suffix | None:
        """The best that is found for the stages from `j` on with the GPUs left."""
        self.cost.check()
        every = (self._with(j, row, left) for row, left in self.rows(j, free))
        able = (found for found in every if found is not None)
        return min(able, key=lambda found: found.us, default=None)

    def _with(self, j: int, row: tuple[Slot, ...], left: Free) -> Suffix | None:
        """Return the stages from `j` on, where `j` has these replicas."""
        us = max(self.stage_us(j, slot.node, slot.t) for slot in set(row))
        sync = self.sync_us(row)
        if j == self.stages - 1:
            return Suffix(self.n * us + sync, us, us, sync, (row,))
        rest = self.solve(j + 1, left)
        if rest is None:
            return None
        us += max(
            self.cost.hop_us(x.node, y.node, y.t, self.b, x.t)
            for x, y in set(zip(row, rest.rows[0], strict=True))
        )
        total, slowest = us + rest.total, max(us, rest.slowest)
        sync = max(sync, rest.sync)
        whole = total + (self.n - 1) * slowest + sync
        return Suffix(whole, total, slowest, sync, (row, *rest.rows))

    def sync_us(self, row: Sequence[Slot]) -> int:
        """Return the time to synchronise a stage's gradients among its replicas."""
        if len(row) == 1:
            return 0
        table = self.cost.table
        holders = sorted((self.cost.names[slot.node], slot.t) for slot in row)
        span = (row[0].first, row[0].last)
        key = (*span, tuple(holders))
        if key not in self._syncs:
            self._syncs[key] = sum(
                table.layer_sync_us(layer, holders) for layer in range(*span)
            )
        return self._syncs[key]


def worthwhile(total: int, most: int) -> Iterator[int]:
    """Degrees up to `most` that leave each pipeline fewer of `total` micro-batches.

    The largest first; of those that leave as many, the least.
    """
    for d in range(min(most, total), 0, -1):
        if d == 1 or -(-total // d) < -(-total // (d - 1)):
            yield d


def every_split(offers: Sequence[int], d: int) -> Iterator[tuple[int, ...]]:
    """Every way to take `d` of what is offered, the least of the first ones first."""
    if len(offers) == 1:
        if d <= offers[0]:
            yield (d,)
        return
    for count in range(min(d, offers[0]) + 1):
        for others in every_split(offers[1:], d - count):
            yield (count, *others)
