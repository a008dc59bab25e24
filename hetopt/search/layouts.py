"""Layouts: as many replicas of every stage, each stage on GPUs of a sort of its own.

All pipelines are cut alike. Sorts of nodes have a degree each, or idle, and give their
groups of GPUs one stage after another, in an order of the sorts that may begin within
one of them: the first and the last stages may be on one sort, those between on another.
A stage where a sort ends has replicas of two. On hundreds of GPUs such plans are often
better than any of sets of whole nodes.

What a layout would take at the least, were layers a fluid and links free, says where
to begin; from there the layout that differs in one choice and is better is taken, again
and again. A plan that is tried is cut and shared exactly, and has the judge's time.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import permutations, product
from math import gcd, isqrt, prod
from typing import NamedTuple, TypeVar

from ..clock import monotonic
from .balancing import Balancer, Chain, with_batch
from .fast_cost import Best, FastCost, Pipe, Slot

#: With more sorts of nodes there are too many degrees and orders to look at.
_MOST_SORTS = 5
#: Combinations of degrees; of more, those that are nearly equal are looked at.
_MOST_DEGREES = 128
#: Layouts that are begun from, at the most; each has another size or other degrees.
_BEGINNINGS = 12
#: Layouts that are tried where no number is given; the last gains come before.
_TRIED = 300
#: Layouts that are tried one after another without a better plan, at the most.
_PATIENCE = 100
#: Steps between numbers of replicas that are tried as neighbours.
_STEPS = (1, 3, 9)
_Item = TypeVar("_Item")


class Layout(NamedTuple):
    """Choices of a layout; `turn` stages of the first sorts go to the end of pipelines.

    `whole` leaves groups idle that make no stage with others of their sort;
    `near` puts neighbouring stages of a pipeline on one node in place of replicas.
    """

    size: int
    replicas: int
    degrees: tuple[int, ...]  # of each sort, 0 where it is idle
    order: int = 0
    turn: int = 0
    whole: bool = False
    near: bool = False


class _Groups(NamedTuple):
    """Groups of GPUs of a sort: models per us, the share of one that fits, number."""

    speed: float
    held: float
    number: int


class Layouts:
    """The layouts of one instance, and the best plan of those that were tried."""

    def __init__(self, cost: FastCost, balancer: Balancer) -> None:
        """Nothing is tried yet."""
        self._cost, self._balancer = cost, balancer
        self._sorts = _sorted_out(cost)
        numbers = range(len(self._sorts))
        # In a circle of sorts it does not matter which one is first.
        self._orders = [(0, *rest) for rest in permutations(numbers[1:])][:24]
        workload = cost.instance.workload
        self._sizes = sorted(set(workload.micro_batch_sizes))
        self._batch = workload.global_batch
        self._runs = cost.costs.schedule.interleave
        self._tried: dict[Layout, int | None] = {}
        self._gained = 0  # layouts that were tried when the best one was found
        self.best = Best(cost)

    def search(self, until: float | None, most: int = _TRIED) -> None:
        """Try at most so many layouts, until a `clock.monotonic()` instant."""
        if not 1 <= len(self._sorts) <= _MOST_SORTS:
            return
        self._until, self._most = until, most
        for layout in self._beginnings():
            self._climb(layout)
            if self._over():
                return

    def _over(self) -> bool:
        late = self._until is not None and monotonic() >= self._until
        tried = len(self._tried)
        return late or tried >= self._most or tried - self._gained >= _PATIENCE

    # --- where to begin ----------------------------------------------------------

    def _beginnings(self) -> Iterator[Layout]:
        """Yield layouts with a plan, the one of the least fluid time first."""
        begun: set[tuple[int, tuple[int, ...]]] = set()
        for _, layout in sorted(self._listed()):
            if self._over() or len(begun) == _BEGINNINGS:
                return
            key = layout.size, layout.degrees
            if key not in begun and self._us(layout) is not None:
                begun.add(key)
                yield layout

    def _listed(self) -> Iterator[tuple[float, Layout]]:
        for b in self._sizes:
            for degrees in self._degrees(b):
                groups = self._fluid(b, degrees)
                for d in replica_counts(self._batch // b, self._groups_of(degrees)):
                    us = self._fluid_us(groups, self._batch / (b * d), d)
                    if us is not None:
                        yield us, Layout(b, d, degrees)

    def _options(self, b: int, sort: int) -> list[int]:
        """Return the degrees of a sort, and 0: it idles."""
        nodes = self._sorts[sort]
        count = gcd(*(self._cost.nodes[node].count for node in nodes))
        return [0, *(t for t in self._cost.degrees(nodes[0], b) if count % t == 0)]

    def _degrees(self, b: int) -> Iterator[tuple[int, ...]]:
        options = [self._options(b, sort) for sort in range(len(self._sorts))]
        yield from filter(any, degree_choices(options, _MOST_DEGREES))

    def _groups_of(self, degrees: Sequence[int]) -> int:
        pairs = zip(self._sorts, degrees, strict=True)
        return sum(self._groups(nodes, t) for nodes, t in pairs if t)

    def _groups(self, nodes: Sequence[int], t: int) -> int:
        return sum(self._cost.nodes[node].count // t for node in nodes)

    def _fluid(self, b: int, degrees: Sequence[int]) -> list[_Groups]:
        cost, layers, found = self._cost, self._cost.layers, list[_Groups]()
        for nodes, t in zip(self._sorts, degrees, strict=True):
            if t:
                us = max(1, cost.prefix(nodes[0], t, b)[0][-1])
                whole = Slot(nodes[0], t, 0, layers)
                most = cost.table.most_replicas
                need = max(1, cost.need_mib(b, 1, 1, 0, whole, most))
                held = cost.room[nodes[0]] / need
                found.append(_Groups(1 / us, held, self._groups(nodes, t)))
        return sorted(found, reverse=True)

    def _fluid_us(
        self, groups: Sequence[_Groups], micro_batches: float, d: int
    ) -> float | None:
        """Return the time if layers were a fluid and nothing crossed links.

        None where the stages do not hold the model.
        """
        best: float | None = None
        rate = held = 0.0
        place, upto = 0, groups[0].number  # of the sort where the next stage ends
        for stages in range(1, self._cost.layers // self._runs + 1):
            while upto < stages * d:
                place += 1
                if place == len(groups):
                    return best
                upto += groups[place].number
            rate += groups[place].speed  # of its slowest replica
            held += groups[place].held
            us = (micro_batches + stages - 1) / rate
            if held >= 1 and (best is None or us < best):
                best = us
        return best

    # --- climbing ----------------------------------------------------------------

    def _climb(self, layout: Layout) -> None:
        value, better = self._us(layout), True
        while better and value is not None:
            better = False
            for other in self._neighbours(layout):
                if self._over():
                    return
                found = self._us(other)
                if found is not None and found < value:
                    layout, value, better = other, found, True
                    break

    def _neighbours(self, layout: Layout) -> Iterator[Layout]:
        stages = len(self._rows(layout))
        for step in (1, -1, 2, -2):
            if stages > 1:
                yield layout._replace(turn=(layout.turn + step) % stages)
        groups = self._groups_of(layout.degrees)
        counts = sorted(replica_counts(self._batch // layout.size, groups))
        place = bisect_left(counts, layout.replicas)
        for step in _STEPS:
            for other in (place - step, place + step):
                if 0 <= other < len(counts) and counts[other] != layout.replicas:
                    yield layout._replace(replicas=counts[other])
        for sort, t in enumerate(layout.degrees):
            for other in _beside(self._options(layout.size, sort), t):
                degrees = list(layout.degrees)
                degrees[sort] = other
                if not any(degrees):
                    continue
                yield layout._replace(degrees=tuple(degrees))
                # As many stages, of more replicas or of fewer.
                if d := layout.replicas * self._groups_of(degrees) // groups:
                    yield layout._replace(degrees=tuple(degrees), replicas=d)
        for size in _beside(self._sizes, layout.size):
            yield layout._replace(size=size)
            # As many sequences at a time: more, smaller pipelines, or fewer.
            if d := layout.replicas * layout.size // size:
                yield layout._replace(size=size, replicas=d)
        yield layout._replace(whole=not layout.whole)
        for order in _beside(range(len(self._orders)), layout.order):
            yield layout._replace(order=order)
        for near, turn in product((layout.near, not layout.near), range(stages)):
            yield layout._replace(near=near, turn=turn)

    # --- plans -------------------------------------------------------------------

    def _us(self, layout: Layout) -> int | None:
        if layout not in self._tried:
            pipes = self.plan(layout)
            value = None if pipes is None else self.best.offer(pipes)
            self._tried[layout] = value
            if pipes is not None and self.best.pipes is pipes:
                self._gained = len(self._tried)
        return self._tried[layout]

    def plan(self, layout: Layout) -> tuple[Pipe, ...] | None:
        """Return the plan of a layout, cut and shared exactly; None where none fits."""
        cost, b, d = self._cost, layout.size, layout.replicas
        rows = self._rows(layout)
        chains: list[Chain] = list(zip(*rows, strict=True))
        total = self._batch // b
        if not chains or d > total or not cost.makes_groups(d):
            return None
        if not all(cost.known(set(row), b) for row in rows):
            return None
        slots = self._balancer.alike(b, max(1, total // d), chains, d)
        return None if slots is None else with_batch(cost, [(b, row) for row in slots])

    def _rows(self, layout: Layout) -> list[tuple[tuple[int, int], ...]]:
        d = layout.replicas
        groups = [
            [
                (node, t)
                for node in self._sorts[sort]
                for _ in range(self._cost.nodes[node].count // t)
            ]
            for sort in self._orders[layout.order]
            if (t := layout.degrees[sort])
        ]
        if layout.whole:
            groups = [some[: len(some) // d * d] for some in groups]
        stages = in_pipelines(groups, d) if layout.near else in_stages(groups, d)
        stages = stages[: self._cost.layers // self._runs]
        turn = layout.turn % max(1, len(stages))
        return [*stages[turn:], *stages[:turn]]


def _sorted_out(cost: FastCost) -> list[list[int]]:
    """Return the nodes by sort, as finely as there are few sorts."""
    nodes, kind = cost.nodes, cost.kind
    sorts: dict[object, list[int]] = {}
    for key in (
        lambda i: (kind[i], nodes[i].count),
        lambda i: (nodes[i].gpu, nodes[i].count),
        lambda i: nodes[i].gpu,
    ):
        sorts = {}
        for i in cost.timed_nodes:
            sorts.setdefault(key(i), []).append(i)
        if len(sorts) <= _MOST_SORTS:
            break
    return list(sorts.values())


def degree_choices(
    options: Sequence[Sequence[int]], most: int
) -> Iterator[tuple[int, ...]]:
    """Yield all combinations; of more than `most` those that are nearly equal."""
    if prod(map(len, options)) <= most:
        yield from product(*options)
        return
    alike = (
        tuple(max((t for t in some if t <= top), default=min(some)) for some in options)
        for top in sorted(set().union(*options))
    )
    yield from dict.fromkeys(alike)


def replica_counts(micro_batches: int, most: int) -> Iterator[int]:
    """Yield the numbers of pipelines up to `most` worth a look, the largest first.

    Of those that leave the busiest pipeline as many micro-batches it is the least.
    """
    most = min(most, micro_batches)
    root = isqrt(micro_batches)
    # Both kinds of divisors: few pipelines, or pipelines of few micro-batches.
    counts = {
        *range(1, root + 1),
        *(-(-micro_batches // n) for n in range(1, root + 2)),
    }
    yield from sorted((d for d in counts if 0 < d <= most), reverse=True)


def in_stages(groups: Sequence[Sequence[_Item]], d: int) -> list[tuple[_Item, ...]]:
    """Deal groups of each sort to stages of `d`: replicas of a stage stand together."""
    flat = [one for some in groups for one in some]
    return [tuple(flat[j : j + d]) for j in range(0, len(flat) // d * d, d)]


def in_pipelines(groups: Sequence[Sequence[_Item]], d: int) -> list[tuple[_Item, ...]]:
    """Deal groups so that stages of a pipeline stand together, where of one sort."""
    stages: list[tuple[_Item, ...]] = []
    rest: list[_Item] = []
    for some in groups:
        mixed, waiting = bool(rest), [*rest, *some]
        if mixed and len(waiting) >= d:  # a stage of several sorts
            stages.append(tuple(waiting[:d]))
            waiting = waiting[d:]
        m = len(waiting) // d
        run, rest = waiting[: m * d], waiting[m * d :]
        stages += [tuple(run[i * m + j] for i in range(d)) for j in range(m)]
    return stages


def _beside(values: Sequence[int], value: int) -> Iterator[int]:
    """Yield the values before and after one, which need not be among them.

    Values ascend: degrees of a size may be none of another, for stages that are left.
    """
    before, after = bisect_left(values, value), bisect_right(values, value)
    yield from values[max(0, before - 1) : before]
    yield from values[after : after + 1]
