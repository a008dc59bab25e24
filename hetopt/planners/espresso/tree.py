"""Espresso's cost tree: which allocation of the offers is worth placing.

Algorithm 1. For every degree d and every number of stages k a tree of partial
allocations, kinds in order so that none comes twice; a priority queue takes the one of
least upper-bound cost (Eq. 4): all remaining stages on the one best kind, timed by
    T_lower = (K + k - 1) L / sum of the stages' layers a us            (Eq. 5, 6)
A complete allocation is placed, and the cheapest placement that keeps the deadline is
the plan. Four prunings, each of which can be switched off:

boundary  only k from the stages that the model needs on the largest memory to those on
          the smallest (`depth` published), or at least to 8, which the released
          prototype tries whatever the memory (`released`, as the paper's own Table IV
          has 4 and 5 stages where 2 would hold the model)
cost      a partial allocation whose T_lower, for the layers that 80 % of its memory
          holds, costs more than the best plan (Eq. 7); and a complete one that no
          placement makes cheaper than the best plan, as the n fastest of its stages
          need at least (K + n - 1) L / (their layers a us), for the best n
time      T_lower with the remaining stages on the fastest kind misses the deadline
capacity  all remaining stages on the largest memory hold less than the model needs

As published, Eq. 5 and the 80 % are estimates: cost and time pruning can lose the best
allocation, boundary pruning the only one that is fast enough.

Where the paper is silent: under a budget the least time is sought, and cost and time
change places; the capacity that the model needs is its layers with one micro-batch in
flight each; equal priorities are taken last pushed first, which dives; kinds are
ordered as offered. Losses, which it does not know, lengthen the time of what is placed.

Source: Espresso, section III-B, Algorithm 1, Eq. 4 to 7.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import expm1, log1p
from typing import Literal

from ...caching import cached_method
from ...clock import monotonic
from ...errors import NoPlan, keeping
from ...plans import Provisioning
from ...problems.provisioning import MICRO, Data
from .tables import Counts, Kind, Number, Stages, Stock, Wish

Placer = Callable[[Stock, Counts, float], Stages | None]
Depth = Literal["released", "published", "any"]
BETA = 0.8  # share of the memory that layers fill, section III-B
_TRIED = 8  # stages that the released prototype tries
_CHECK = 64  # nodes between two looks at the clock


@dataclass(frozen=True)
class Pruning:
    """Five prunings can be on or off."""

    boundary: bool = True
    cost: bool = True
    time: bool = True
    capacity: bool = True
    tried: int = _TRIED  # stages that boundary pruning leaves, whatever the memory

    @classmethod
    def to(cls, depth: Depth) -> "Pruning":
        """All prunings, with boundary pruning as it is in one of its readings."""
        return cls(boundary=depth != "any", tried=_TRIED * (depth == "released"))


@dataclass
class Counters:
    """Counters of a search: the paper's Fig. 10a in numbers."""

    trees: int = 0
    opened: int = 0  # partial allocations taken from the queue
    placed: int = 0  # complete allocations given to the stage placer
    pruned: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("boundary", "cost", "time", "capacity"), 0
        )
    )


@dataclass
class Search:
    """The best plan so far, and how it was found."""

    wish: Wish
    placer: Placer
    pruning: Pruning
    deadline: float | None
    counters: Counters = field(default_factory=Counters)
    value: Number = float("inf")
    plan: Provisioning | None = None
    nearest_us: Number = float("inf")  # shortest iteration placed that was not granted
    in_time: bool = True

    def run(self, data: Data) -> None:
        """Search all degrees."""
        for d in data.data_parallel:
            stock = Stock.of(data, d)
            if not stock.kinds:
                continue
            within = set(boundary(stock, self.pruning.tried))
            most = min(stock.max_stages, sum(kind.stages for kind in stock.kinds))
            for k in range(1, most + 1):
                if self.pruning.boundary and k not in within:
                    self.counters.pruned["boundary"] += 1
                    continue
                self.counters.trees += 1
                _Tree(self, stock, k).grow()
                if not self.in_time:
                    return

    def late(self) -> bool:
        """Return whether the time for planning is over."""
        if self.deadline is not None and monotonic() > self.deadline:
            self.in_time = False
        return not self.in_time

    def take(self, stock: Stock, counts: Counts) -> None:
        """Place a complete allocation, and keep it where it is the best."""
        self.counters.placed += 1
        price = stock.price(counts)
        stretch = stock.stretch(counts)
        limit = self.value if self.wish.by_time or not price else self.value / price
        stages = self.placer(stock, counts, float(limit / stretch))
        if stages is None:
            return
        time = stock.iteration_us(stages) * stretch
        if not self.wish.grants(time, price):
            self.nearest_us = min(self.nearest_us, time)
            return
        value = self.wish.value(time, price)
        if value < self.value:
            self.value, self.plan = value, stock.plan(stages)


def boundary(stock: Stock, tried: int = _TRIED) -> range:
    """Return the numbers of stages of boundary pruning, at least up to `tried`."""
    by_memory = sorted(range(len(stock.kinds)), key=lambda t: stock.room(t, 0, 1))
    most = max(_stages_needed(stock, by_memory[0]), tried)
    return range(_stages_needed(stock, by_memory[-1]), most + 1)


def _stages_needed(stock: Stock, t: int) -> int:
    """Stages of one kind that hold the model; all that there may be if none do."""
    for k in range(1, stock.max_stages + 1):
        if sum(stock.room(t, s, k) for s in range(k)) >= stock.layers:
            return k
    return stock.max_stages


class _Tree:
    def __init__(self, search: Search, stock: Stock, k: int) -> None:
        self.search, self.stock, self.k = search, stock, k
        self.rates = [kind.rate for kind in stock.kinds]
        self.prices = [kind.price for kind in stock.kinds]
        self.factor = (stock.micro_batches + k - 1) * stock.layers
        self.fastest = max(self.rates)
        self.largest = max(kind.memory_mib for kind in stock.kinds)
        self.needed = stock.layers * min(
            kind.layer_mib + kind.in_flight_mib for kind in stock.kinds
        )

    def grow(self) -> None:
        """Algorithm 1, lines 6 to 21."""
        counters, number = self.search.counters, 0
        queue: list[tuple[float, int, Counts]] = [(0.0, 0, ())]
        while queue:
            if number % _CHECK == 0 and self.search.late():
                return
            counts = heapq.heappop(queue)[2]
            used = sum(counts)
            if used == self.k:
                whole = counts + (0,) * (len(self.rates) - len(counts))
                if self.search.pruning.cost and self._cannot_win(whole):
                    counters.pruned["cost"] += 1
                else:
                    self.search.take(self.stock, whole)
                number += 1
                continue
            counters.opened += 1
            if (why := self._pruning(counts, used)) is not None:
                counters.pruned[why] += 1
                continue
            for child in self._children(counts, used):
                number += 1
                heapq.heappush(queue, (self._upper(child), -number, child))

    def _children(self, counts: Counts, used: int) -> Iterator[Counts]:
        """Yield the next kind, in every number that can still be completed."""
        t = len(counts)
        if t == len(self.rates):
            return
        later = sum(kind.stages for kind in self.stock.kinds[t + 1 :])
        free = self.k - used
        for n in range(max(0, free - later), min(free, self.stock.kinds[t].stages) + 1):
            yield (*counts, n)

    def _time(self, compute: float) -> float:
        return self.factor / compute if compute else 0.0

    def _upper(self, counts: Counts) -> float:
        """Eq. 4: the remaining stages on the one kind, of those left, that is best."""
        compute, price = self._sums(counts)
        rest = self.k - sum(counts)
        kinds = range(len(counts), len(self.rates)) if rest else range(1)
        values = []
        for t in kinds:
            time = self._time(compute + rest * self.rates[t])
            whole = price + rest * self.prices[t]
            values.append(float(self.search.wish.value(time, whole)))
        return min(values, default=float("inf"))

    def _sums(self, counts: Counts) -> tuple[float, int]:
        compute = sum(n * r for n, r in zip(counts, self.rates, strict=False) if n)
        return compute, sum(n * c for n, c in zip(counts, self.prices, strict=False))

    def _pruning(self, counts: Counts, used: int) -> str | None:
        pruning, wish = self.search.pruning, self.search.wish
        compute, price = self._sums(counts)
        rest = self.k - used
        shortest = self._time(compute + rest * self.fastest)
        longest = min(
            wish.longest_us, self.search.value if wish.by_time else wish.longest_us
        )
        if pruning.time and shortest > longest:
            return "time"
        if pruning.capacity:
            memory = sum(
                n * kind.memory_mib
                for n, kind in zip(counts, self.stock.kinds, strict=False)
            )
            if memory + rest * self.largest < self.needed:
                return "capacity"
        if pruning.cost and used:
            share = min(1.0, self.filled(counts) / self.stock.layers)
            cost = self._time(compute) * share * price
            most = wish.most_cost if wish.by_time else self.search.value
            if cost > most:
                return "cost"
        return None

    @cached_method
    def filled(self, counts: Counts) -> float:
        """Return the layers that 80 % of the memory of a partial allocation holds."""
        return BETA * sum(
            n * self.stock.room(t, 0, min(self.k, self.stock.micro_batches))
            for t, n in enumerate(counts)
        )

    def _cannot_win(self, counts: Counts) -> bool:
        """Return whether every placement is late, or no better than the best plan."""
        wish, stock = self.search.wish, self.stock
        price = stock.price(counts)
        time = least_us(stock, counts) * float(stock.stretch(counts))
        return (
            not wish.grants(time, price) or wish.value(time, price) >= self.search.value
        )


def least_us(stock: Stock, counts: Counts) -> float:
    """Return a time that no placement beats, with loads in fractions.

    Sum of times + (K - 1) x the slowest, over shares of the layers, is least where some
    of the fastest stages take equally long and the others nothing.
    """
    used = [(kind, n) for n, kind in zip(counts, stock.kinds, strict=True) if n]
    best, compute, stages = float("inf"), 0.0, 0
    for kind, n in sorted(used, key=lambda pair: pair[0].layer_us):
        for _ in range(n):
            compute += kind.rate
            stages += 1
            waits = stock.micro_batches + stages - 1
            best = min(best, waits * stock.layers / compute)
    # A hair below, so that rounding in floats never hides a plan.
    return (best + _least_exposed(stock, [kind for kind, _ in used], stages)) * (
        1 - 1e-9
    )


def _least_exposed(stock: Stock, kinds: list[Kind], stages: int) -> float:
    """Synchronisation, us, that no placement covers.

    With e exposed, stage 0 has at most e / s layers and each next one b / s more for
    every layer before it: together (e / b) ((1 + b / s)^P - 1), which must reach L.
    """
    sync = min(kind.sync_us for kind in kinds)
    if not sync:
        return 0.0
    backward = max(kind.backward_us for kind in kinds)
    if not backward:
        return sync * stock.layers / stages
    grown = stages * log1p(backward / sync)
    return 0.0 if grown > 600 else backward * stock.layers / expm1(grown)


def search_all(
    data: Data,
    placer: Placer,
    *,
    pruning: Pruning | None = None,
    deadline: float | None = None,
) -> Search:
    """Return the whole search: its plan, or None, and its counters."""
    search = Search(Wish.of(data), placer, pruning or Pruning(), deadline)
    with keeping(lambda: search.plan):
        search.run(data)
    return search


def cheapest_plan(
    data: Data,
    placer: Placer,
    name: str,
    deadline: float | None,
    depth: Depth = "released",
) -> Provisioning:
    """Return the plan of a search; `NoPlan` says how near it came."""
    search = search_all(data, placer, pruning=Pruning.to(depth), deadline=deadline)
    if search.plan is not None:
        return search.plan
    if not search.in_time:
        raise NoPlan(f"{name}: no plan was found in time")
    if search.nearest_us < float("inf"):
        nearest_s = float(data.iterations * search.nearest_us / MICRO)
        raise NoPlan(
            f"{name}: no allocation keeps the deadline or the budget; the fastest "
            f"that it placed takes {nearest_s:.3f} s"
        )
    raise NoPlan(f"{name}: no allocation that it looked at holds the model in time")
