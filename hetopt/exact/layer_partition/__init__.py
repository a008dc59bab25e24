"""Layer partition, exactly: cheapest paths under a limit, the limit bisected.

Both objectives are  alpha x sum of times + beta x slowest time:  (0, 1) is
`bottleneck`, (1, K - 1) is `iteration`. Let S(B) be the least sum when no stage is
slower than B (`lattice`). A pipeline whose slowest stage takes between b and B
costs at least alpha S(B) + beta b. Ranges of the slowest time are split, cheapest
bound first; a path found under B with slowest time b' <= B settles b'..B at once.

Free order: stages of one kind are counted, not permuted. With too many kinds for the
tables, similar kinds are merged into one with the best of each (least times, most
memory, least hop): a relaxation, so a valid bound. Its path gives an order, and that
order's exact partition a plan.

Source: the problem is AutoHet's, Eq. 4; the method is our own.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from ...modelling import Limits
from ...plans import Partition
from ...problems.layer_partition import Data
from ...result import Result, Stop
from ...solving.run import Halt, Report, Run
from .lattice import Array, Kind, Lattice, Path, kinds_of

problem = "layer_partition"

# Entries of the tables, 8 bytes each: what a relaxation may take, one after the other.
_STATES = (200_000.0, 2_000_000.0, 40_000_000.0)


def solve(
    data: Data,
    *,
    limits: Limits = Limits(),  # noqa: B008 -- frozen
    warm_start: Partition | None = None,
    report: Report | None = None,
) -> Result:
    """The best partition with proof, or the best known and a bound at a limit."""
    run = Run(problem, data, limits, report)
    run.start_from(warm_start)
    with run:
        _work(data, run)
    return run.result()


def _work(data: Data, run: Run) -> None:
    layers, stages = len(data.layer_mib), len(data.stages)
    if layers < stages:
        run.reasons = (
            f"layers: {layers} there are, {stages} stages need one each, "
            f"{stages - layers} too few",
        )
        return
    run.tighten(_fluid(data), "fastest stage for every layer")
    kinds = kinds_of(data)
    if data.order == "given":
        order = [
            i for n in range(stages) for i, k in enumerate(kinds) if n in k.members
        ]
        _Search(data, run, Lattice(data, kinds, order), kinds).work("bisected limit")
        return
    if Lattice.states(kinds, layers) > _STATES[0]:
        _first_plans(data, run)
    for states in _STATES:
        merged = _merged(kinds, states / (layers + 1))
        exact = len(merged) == len(kinds)
        source = "bisected limit" if exact else f"{len(merged)} merged kinds of stage"
        lattice = Lattice(data, merged)
        _Search(data, run, lattice, merged, relaxed=not exact).work(source)
        if exact or run.reasons or run.closed():
            return
    raise Halt(Stop.MEMORY)


def _weights(data: Data) -> tuple[int, int]:
    """Alpha and beta of the objective."""
    if data.objective == "bottleneck":
        return 0, 1
    return 1, data.micro_batches - 1


def _fluid(data: Data) -> int:
    """Every layer where it is fastest, no memory, the dearest hop spared."""
    alpha, beta = _weights(data)
    fastest = np.min(np.array([s.layer_us for s in data.stages]), axis=0)
    hops = [stage.hop_us for stage in data.stages]
    total = int(fastest.sum()) + sum(hops) - max(hops)
    return alpha * total + beta * int(fastest.max())


class _Search:
    """Ranges of the slowest time on one lattice, cheapest bound first.

    `relaxed`: the kinds are merged ones; paths bound the problem, and only the exact
    partition of their order is a plan.
    """

    def __init__(
        self,
        data: Data,
        run: Run,
        lattice: Lattice,
        kinds: Sequence[Kind],
        *,
        relaxed: bool = False,
    ) -> None:
        self.data, self.run, self.lattice, self.kinds = data, run, lattice, kinds
        self.relaxed = relaxed
        self.alpha, self.beta = _weights(data)
        self.best: int | None = None  # cost on this lattice, a plan's where exact
        if not relaxed and run.objective is not None:
            self.best = int(run.objective)

    def work(self, source: str) -> None:
        """Bring the bound up to the best path, or leave at a limit."""
        check = self.run.check
        loosest = self.lattice.shortest(_no_limit(self.data), check)
        if loosest is None:
            self.run.reasons = _too_tight(self.data, self.lattice, check)
            return
        self._take(loosest)
        # (bound, least slowest, most slowest, least sum)
        ranges = [self._range(0, loosest.slowest_us - 1, loosest.total_us)]
        while ranges:
            bound, low, high, total = heappop(ranges)
            if self._is_settled(bound) or low > high:
                continue
            self.run.tighten(bound, source)
            check()
            high = self._worth(high, total)
            if low > high:
                continue
            middle = (low + high) // 2
            path = self.lattice.shortest(middle, check)
            heappush(ranges, self._range(middle + 1, high, total))
            if path is not None:
                self._take(path)
                heappush(ranges, self._range(low, path.slowest_us - 1, path.total_us))
        if self.best is not None:
            self.run.tighten(min(self.best, self._plan_cost()), source)

    def _plan_cost(self) -> int:
        """The incumbent's cost; no bound may pass it."""
        if self.run.objective is None:
            return self.best or 0
        return int(self.run.objective)

    def _is_settled(self, bound: int) -> bool:
        """Tell whether nothing cheaper than what is known costs `bound` or more."""
        if self.best is not None and bound >= self.best:
            return True
        return self.run.objective is not None and bound >= self.run.objective

    def _worth(self, high: int, total: int) -> int:
        """The slowest time above which no pipeline beats the best path."""
        if self.best is None or not self.beta:
            return high
        return min(high, (self.best - 1 - self.alpha * total) // self.beta)

    def _range(self, low: int, high: int, total: int) -> tuple[int, int, int, int]:
        return self.alpha * total + self.beta * low, low, high, total

    def _take(self, path: Path) -> None:
        cost = self.alpha * path.total_us + self.beta * path.slowest_us
        if self.best is not None and cost >= self.best:
            return
        self.best = cost
        order = self._order(path)
        if not self.relaxed:
            names = tuple(self.data.stages[n].name for n in order)
            self.run.offer(Partition(order=names, layers=path.layers))
            return
        _improve(self.data, self.run, order)

    def _order(self, path: Path) -> list[int]:
        """Stages by position; those of one kind in the order of the data."""
        left = [list(kind.members) for kind in self.kinds]
        return [left[kind].pop(0) for kind in path.kinds]


def _first_plans(data: Data, run: Run) -> None:
    """Plans in the order of the data, and with the largest memory first.

    Early positions hold the most micro-batches.
    """
    listed = list(range(len(data.stages)))
    for order in (listed, sorted(listed, key=lambda n: -data.stages[n].memory_mib)):
        run.check()
        _improve(data, run, order)


def _improve(data: Data, run: Run, order: list[int]) -> None:
    """The exact partition of one order, as an incumbent."""
    names = tuple(data.stages[n].name for n in order)
    given = data.model_copy(
        update={"order": "given", "stages": tuple(data.stages[n] for n in order)}
    )
    inner = Run(problem, given, replace(run.limits, gap=None, time_s=run.left_s()))
    with inner:
        kinds = kinds_of(given)
        chain = [
            i for n in range(len(order)) for i, k in enumerate(kinds) if n in k.members
        ]
        _Search(given, inner, Lattice(given, kinds, chain), kinds).work("")
    if inner.plan is not None:
        run.offer(Partition(order=names, layers=inner.plan.layers))
    if inner.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt


def _no_limit(data: Data) -> int:
    """A time that no stage takes."""
    return max(sum(s.layer_us) + s.hop_us for s in data.stages) + 1


def _too_tight(
    data: Data, lattice: Lattice, check: Callable[[], None]
) -> tuple[str, ...]:
    """How much more memory every stage needs for a first partition to fit."""
    low, high = (
        0,
        max(
            sum(once) + data.micro_batches * sum(each)
            for once, each in map(data.needs, data.stages)
        ),
    )
    while high - low > 1:
        middle = (low + high) // 2
        if lattice.shortest(_no_limit(data), check, middle) is None:
            low = middle
        else:
            high = middle
    where = "in the given order" if data.order == "given" else "in any order"
    return (
        f"memory: no partition fits {where}; "
        f"every stage needs at least {high} MiB more",
    )


def _merged(kinds: Sequence[Kind], nodes: float) -> list[Kind]:
    """Kinds, merged until their lattice has at most `nodes` nodes.

    Merged are neighbours by total time and memory, the pair that differs least.
    """
    found = sorted(kinds, key=lambda k: (int(k.times[-1]), k.memory_mib))
    losses = [_loss(a, b) for a, b in pairwise(found)]
    while len(found) > 1 and np.prod([k.count + 1.0 for k in found]) > nodes:
        at = int(np.argmin(losses))
        found[at : at + 2] = [_best_of(found[at], found[at + 1])]
        around = found[max(0, at - 1) : at + 2]
        losses[max(0, at - 1) : at + 2] = [_loss(a, b) for a, b in pairwise(around)]
    return found


def _loss(a: Kind, b: Kind) -> float:
    """Return what merging two kinds gives away, in relative time and memory."""
    best = _best_of(a, b)
    return sum(
        kind.count
        * (
            float(kind.times[-1] - best.times[-1]) / max(1.0, float(kind.times[-1]))
            + (best.memory_mib - kind.memory_mib) / max(1.0, float(best.memory_mib))
        )
        for kind in (a, b)
    )


def _best_of(a: Kind, b: Kind) -> Kind:
    """A kind that is at least as good as both, everywhere."""

    def least(x: Array, y: Array) -> Array:
        sums = np.cumsum(np.minimum(np.diff(x), np.diff(y)))
        return np.concatenate([[0], sums])

    return Kind(
        least(a.times, b.times),
        least(a.once_mib, b.once_mib),
        least(a.each_mib, b.each_mib),
        max(a.memory_mib, b.memory_mib),
        min(a.hop_us, b.hop_us),
        tuple(sorted(a.members + b.members)),
    )
