"""Whale: symmetric dp x tp x pp, batch and layers in proportion to compute.

All structures dp tp pp = GPUs with every micro-batch size of the instance are tried,
and the fastest that fits is kept. Unlike Megatron-LM's, its plans see what GPUs can do:
- within a stage (its intra-TaskGraph balance), replicas take of the batch in proportion
  to their compute, as far as their memory allows;
- between stages (inter-TaskGraph), layers are in proportion to the compute of a stage,
  as far as its memory allows; earlier stages, which hold more micro-batches in flight,
  go to nodes of larger memory;
- all replicas of a stage have the same layers, and one degree holds for all stages.

A balanced share of the batch is one of two things here:
- dp pipelines with micro-batches of one size and unequal numbers of them; a pipeline
  counts as its slowest stage. This is the share of the whole batch, however it is cut.
- one pipeline whose stages have dp replicas with unequal samples of each micro-batch;
  shares may then differ from stage to stage. Needs micro-batches of at least dp.

Choices where the paper is silent:
- compute is peak x efficiency, work is FLOPs (links and hops are not looked at);
- nodes by descending memory of a GPU, equal ones in the instance's order; ranks are
  laid out tp, dp, pp and also tp, pp, dp, as in `megatron`;
- where no structure of all GPUs fits, nodes are left out as `megatron` does.

Source: Jia et al., ATC 2022, section 3.3; the baseline of AutoHet.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import accumulate, pairwise
from math import gcd, lcm
from typing import Literal, NamedTuple

from ..bounds.crossing import layer_flops
from ..caching import cached_method
from ..costs import compute
from ..errors import NoPlan, in_time
from ..plans import TrainingPlan
from ..problems import training_plan
from ..schema import Instance
from ..search.fast_cost import FastCost, Pipe, Slot, stages_on
from ..search.symmetric import (
    Shortage,
    common_degrees,
    equal_cuts,
    least_useful,
    measured,
    worst_shortage,
)
from .metis.costs import Laid, Row, Share, one_pipeline

problem: Literal["training_plan"] = "training_plan"
Fits = Callable[[int, int, int], bool]  # stage, first layer, one past the last


class Structure(NamedTuple):
    """Nodes of the replicas of each stage; replica d of every stage is pipeline d."""

    t: int
    b: int
    stages: tuple[tuple[int, ...], ...]

    @property
    def copies(self) -> int:
        """Return the data-parallel degree."""
        return len(self.stages[0])

    def chains(self) -> Iterator[list[tuple[int, int]]]:
        """Yield node and degree of the stages of each pipeline."""
        for row in zip(*self.stages, strict=True):
            yield [(node, self.t) for node in row]

    def __str__(self) -> str:
        shape = f"tp {self.t}, pp {len(self.stages)}, dp {self.copies}"
        return f"{shape}, micro-batches of {self.b}"


def plan(
    data: Instance,
    *,
    seed: int = 0,
    deadline: float | None = None,
    equal_layers: bool = False,
) -> TrainingPlan:
    """The fastest plan of the family; `NoPlan` says what is short. `seed` is unused.

    With `equal_layers` in all stages, as AutoHet describes Whale.
    """
    cost = FastCost(data, deadline)
    nodes = sorted(cost.timed_nodes, key=lambda i: -cost.room[i])
    trial = _Trial(cost, equal_layers=equal_layers)
    with in_time("whale", lambda: trial.best and trial.best[1]):
        while nodes and trial.best is None:
            for structure in structures(cost, nodes):
                trial.whole_pipelines(structure)
                trial.split_micro_batches(structure)
            nodes.remove(least_useful(cost, nodes))
    if trial.best is None:
        raise NoPlan(f"whale: no structure fits; {trial.nearest()}")
    return trial.best[1]


class _Trial:
    """Turns structures into plans; keeps the best, and how near the others came."""

    def __init__(self, cost: FastCost, *, equal_layers: bool) -> None:
        self._cost = cost
        self._equal_layers = equal_layers
        self._work = work_before(cost)
        self._power = [power_of(cost, node) for node in range(len(cost.nodes))]
        self.best: tuple[int, TrainingPlan] | None = None
        self._short: tuple[Shortage, str] | None = None

    def nearest(self) -> str:
        """Return the least shortage of memory among structures that did not fit."""
        if self._short is None:
            return "the batch has no shares that fit and whose times are known"
        return f"the nearest ({self._short[1]}) lacks {self._short[0]}"

    # --- pipelines with unequal numbers of micro-batches ---------------------------

    def whole_pipelines(self, structure: Structure) -> None:
        """Plan dp pipelines that share the batch."""
        cost, (t, b, stages) = self._cost, structure
        bunch = self._bunch(len(stages))
        bunches, rest = divmod(cost.instance.workload.global_batch, b * bunch)
        if rest or bunches < structure.copies:
            return
        count = bunch * -(-bunches // structure.copies)

        def fits(j: int, first: int, last: int) -> bool:
            return all(
                cost.need_mib(b, count, len(stages), j, Slot(node, t, first, last))
                <= cost.room[node]
                for node in set(stages[j])
            )

        ends = self._cuts(structure, fits)
        if ends is None:
            self._note(structure, count)
            return
        pipes = self._share(structure, ends, bunches)
        if pipes is not None:
            self._offer(cost.iteration_us(pipes), cost.plan(pipes))

    def _bunch(self, stages: int) -> int:
        """Micro-batches come in so many: interleaved, they fill the pipeline."""
        return stages if self._cost.costs.schedule.interleave > 1 else 1

    def _share(
        self, structure: Structure, ends: Sequence[int], bunches: int
    ) -> tuple[Pipe, ...] | None:
        """Return the micro-batches in proportion to the pace of the slowest stage."""
        _, b, stages = structure
        chains = [stages_on(row, ends) for row in structure.chains()]
        paces = [min(map(self._pace, chain)) for chain in chains]
        most = bunches - len(chains) + 1
        caps = {chain: self._most(b, most, chain) for chain in set(chains)}
        counts = proportional(paces, [caps[chain] for chain in chains], bunches)
        if counts is None:
            return None
        bunch = self._bunch(len(stages))
        return tuple(Pipe(k * bunch, b, c) for k, c in zip(counts, chains, strict=True))

    def _pace(self, slot: Slot) -> Fraction:
        work = self._work[slot.last] - self._work[slot.first]
        return Fraction(self._power[slot.node], work)

    def _most(self, b: int, most: int, chain: tuple[Slot, ...]) -> int:
        """Bunches of micro-batches that a pipeline's memory allows, up to `most`."""
        bunch = self._bunch(len(chain))

        def short(count: int) -> bool:
            return not self._cost.fits(Pipe(count * bunch, b, chain))

        return bisect_left(range(1, most), True, key=short) if short(most) else most

    # --- one pipeline with unequal samples -------------------------------------------

    def split_micro_batches(self, structure: Structure) -> None:
        """Plan one pipeline whose stages share each micro-batch among replicas."""
        cost, b = self._cost, structure.b
        count, rest = divmod(cost.instance.workload.global_batch, b)
        if rest or not 2 <= structure.copies <= b or not self._has_times(structure):
            return

        def fits(j: int, first: int, last: int) -> bool:
            return self._shares(structure, count, j, first, last) is not None

        ends = self._cuts(structure, fits)
        if ends is None:
            return
        stages = []
        for j, (first, last) in enumerate(pairwise(ends)):
            samples = self._shares(structure, count, j, first, last)
            if samples is None:
                return
            nodes = structure.stages[j]
            row = Row(
                Share(n, structure.t, s) for n, s in zip(nodes, samples, strict=True)
            )
            stages.append(Laid(row, first, last))
        plan = one_pipeline(cost, count, b, stages)
        judged = training_plan.evaluate(cost.instance, plan)
        if judged.valid:
            self._offer(judged.parts["iteration_us"], plan)

    def _has_times(self, structure: Structure) -> bool:
        nodes = {node for stage in structure.stages for node in stage}
        sizes = range(1, structure.b)
        return all(measured(self._cost, list(nodes), structure.t, s) for s in sizes)

    def _shares(
        self, structure: Structure, count: int, j: int, first: int, last: int
    ) -> list[int] | None:
        t, b, stages = structure
        caps = {
            node: self._samples(b, count, len(stages), j, Slot(node, t, first, last))
            for node in set(stages[j])
        }
        powers = [Fraction(self._power[node]) for node in stages[j]]
        return proportional(powers, [caps[node] for node in stages[j]], b)

    def _samples(self, b: int, count: int, pp: int, j: int, slot: Slot) -> int:
        """Samples of a micro-batch that the memory of a stage allows, up to `b`."""
        fitting = (
            s
            for s in range(b, 0, -1)
            if self._cost.need_mib(s, count, pp, j, slot) <= self._cost.room[slot.node]
        )
        return next(fitting, 0)

    # --- both ------------------------------------------------------------------------

    def _offer(self, value: int, plan: TrainingPlan) -> None:
        if self.best is None or value < self.best[0]:
            self.best = value, plan

    def _cuts(self, structure: Structure, fits: Fits) -> list[int] | None:
        if self._equal_layers:
            ends = equal_cuts(self._cost.layers, len(structure.stages))
            spans = enumerate(pairwise(ends))
            return ends if all(fits(j, *span) for j, span in spans) else None
        powers = [sum(self._power[i] for i in stage) for stage in structure.stages]
        return cuts(self._work, powers, fits, self._cost.costs.schedule.interleave)

    def _note(self, structure: Structure, count: int) -> None:
        """Keep what is short with layers in proportion, memory or not."""
        ends = self._cuts(structure, lambda j, first, last: True)
        if ends is None:
            return
        chains = [stages_on(row, ends) for row in structure.chains()]
        pipes = [Pipe(count, structure.b, chain) for chain in chains]
        if short := worst_shortage(self._cost, pipes):
            found = short, str(structure)
            self._short = min(self._short or found, found)


# --- structures, FLOPs of layers and compute of GPUs ---------------------------------


def structures(cost: FastCost, nodes: Sequence[int]) -> Iterator[Structure]:
    """Every structure on all GPUs of `nodes`, in both layouts of ranks."""
    sizes = sorted(set(cost.instance.workload.micro_batch_sizes))
    for t in common_degrees(cost, nodes):
        groups = [node for node in nodes for _ in range(cost.nodes[node].count // t)]
        for pp in range(1, min(len(groups), cost.layers) + 1):
            dp, left = divmod(len(groups), pp)
            if left:
                continue
            cost.check()
            by_rank = tuple(tuple(groups[j * dp : (j + 1) * dp]) for j in range(pp))
            in_nodes = tuple(tuple(groups[j::pp]) for j in range(pp))
            for b in sizes:
                if measured(cost, nodes, t, b):
                    for stages in dict.fromkeys((by_rank, in_nodes)):
                        yield Structure(t, b, stages)


def work_before(cost: FastCost) -> list[int]:
    """Return the FLOPs of a sample, both passes, of the layers before each, and of all.

    The head's go with the last layer.
    """
    return [*accumulate(layer_flops(cost.table), initial=0)]


def power_of(cost: FastCost, node: int) -> int:
    """Effective MFLOP/s of a GPU of a node, at least 1."""
    gpu = cost.table.gpu(cost.names[node])
    return max(1, int(compute.flops_per_s(gpu) / 10**6))


# --- the largest load is the least: what exceeds the memory of one goes to others -----


def proportional(
    powers: Sequence[Fraction], caps: Sequence[int], total: int
) -> list[int] | None:
    """Shares of `total` in proportion to `powers`, each from 1 to its cap.

    None where there are none. One after the other goes to whom it costs least.
    """
    if total < len(powers) or min(caps) < 1 or sum(caps) < total:
        return None
    shares = [1] * len(powers)
    heap = [(2 / power, i) for i, power in enumerate(powers) if caps[i] > 1]
    heapify(heap)
    for _ in range(total - len(powers)):
        _, i = heappop(heap)
        shares[i] += 1
        if shares[i] < caps[i]:
            heappush(heap, ((shares[i] + 1) / powers[i], i))
    return shares


def cuts(
    work: Sequence[int], powers: Sequence[int], fits: Fits, least: int = 1
) -> list[int] | None:
    """Boundaries of stages whose largest work relative to power is the least.

    `work` is of the layers before each, and of all; `fits` may turn from true to false
    only as a stage grows from `least` layers on, which each has; later ones have few
    rather than earlier ones. None where the layers do not fit.
    """
    stages = _Stages(work, powers, fits, least)
    low, high = 0, stages.whole
    best = stages.ends(high)
    while best is not None and low < high:
        middle = (low + high) // 2
        found = stages.ends(middle)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best


class _Stages:
    """Stages that wait for layers, under a limit of work relative to power."""

    def __init__(
        self, work: Sequence[int], powers: Sequence[int], fits: Fits, least: int
    ) -> None:
        # Without common factors, few limits tell cuts apart.
        common, shared = gcd(*work) or 1, gcd(*powers)
        self._work = [amount // common for amount in work]
        self._powers = [power // shared for power in powers]
        self._unit = lcm(*self._powers)
        self._fits, self._least = fits, least
        self._layers = len(work) - 1
        self.whole = self._work[-1] * self._unit // min(self._powers)

    def ends(self, load: int) -> list[int] | None:
        """Boundaries with at most `load` / unit of work a power in every stage."""
        reached = [[0]]
        for j in range(len(self._powers)):
            found: set[int] = set()
            for first in reached[-1]:
                end = self._end(j, first, load)
                found.update(range(first + self._least, end + 1))
            reached.append(sorted(found))
        if self._layers not in reached[-1]:
            return None
        back = [self._layers]
        for j in range(len(self._powers) - 1, -1, -1):
            firsts = (a for a in reversed(reached[j]) if a + self._least <= back[-1])
            back.append(next(a for a in firsts if self._end(j, a, load) >= back[-1]))
        return back[::-1]

    def _end(self, j: int, first: int, load: int) -> int:
        """One past the last layer of stage `j` at the most; `first` for none."""
        most = self._work[first] + load * self._powers[j] // self._unit
        waiting = (len(self._powers) - 1 - j) * self._least  # for the stages behind
        last = min(bisect_right(self._work, most, lo=first) - 1, self._layers - waiting)
        return min(last, self._memory_end(j, first))

    @cached_method
    def _memory_end(self, j: int, first: int) -> int:
        ends = range(first + self._least, self._layers + 1)
        fitting = bisect_left(ends, True, key=lambda z: not self._fits(j, first, z))
        return first + self._least - 1 + fitting
