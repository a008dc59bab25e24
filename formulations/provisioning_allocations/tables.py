"""Tables of provisioning by allocations: blocks, allocations, first plans.

An allocation says how many stages are rented of each offer. It is kept where no plan is
known that costs less than `least` asks of it:
    least = min over b of  fill(b) + (K - 1) b + uncovered(b),
b: the times that a slowest stage may take; fill: all layers, a stage holding from one to
what it does in b and what its memory holds, at the last positions at best, the fastest
first; uncovered: synchronisation that so many stages of so many layers leave exposed,
with the longest backward pass and the shortest synchronisation among their offers.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, permutations
from math import prod
from typing import NamedTuple

from hetopt.errors import Unsupported
from hetopt.modelling import look
from hetopt.plans import Provisioning, RentedStage
from hetopt.problems import provisioning
from hetopt.problems.provisioning import Data

from .._provisioning import Kind, budget, kinds_of, latest, positions, rooms, unit

MOST_COUNTS = 200_000  # vectors of counts that are looked at, of a degree
MOST_ORDERED = 3  # offers of an allocation whose orders are all tried for a first plan
MOST_BUILT = 40  # allocations that first plans are built of, of a degree

Counts = tuple[int, ...]  # stages by offer


class Allocation(NamedTuple):
    """Stages of each offer, their price an hour, and how long an iteration may take, us."""

    stages: Counts
    price: int
    least: int
    most: int


class Block(NamedTuple):
    """Positions from the last stage that have the same room for every offer."""

    first: int
    size: int
    room: tuple[int, ...]

    def filled(self, stages: int) -> int:
        """Return the stages of a pipeline of so many that are here."""
        return min(self.size, max(0, stages - self.first))


class Tables:
    """The problem of one degree, by offers that have room, the fastest first."""

    def __init__(self, data: Data) -> None:
        (d,) = data.data_parallel
        room, kinds = rooms(data), kinds_of(data)
        fitting = [kinds[o, d] for e, o, d in room if e == 0]
        self.data, self.d = data, d
        self.kinds: list[Kind] = sorted(fitting, key=lambda kind: kind.both)
        self.room = [
            tuple(room.get((e, kind.offer.gpu, d), 0) for kind in self.kinds) for e in range(positions(data))
        ]
        self.latest, self.budget = latest(data), budget(data)
        self._needs: dict[tuple[int, int, int, int], int] = {}

    @cached_property
    def blocks(self) -> list[Block]:
        """Return blocks from the last stage on; positions without room are left out."""
        found: list[Block] = []
        for e, room in enumerate(self.room):
            if not any(room):
                break
            if found and found[-1].room == room:
                found[-1] = found[-1]._replace(size=found[-1].size + 1)
            else:
                found.append(Block(e, 1, room))
        return found

    def allocations(self) -> list[Allocation]:
        """All that may meet the deadline or the budget, the most promising first."""
        most = [min(kind.offer.rentable // self.d, len(self.room)) for kind in self.kinds]
        if (looked := prod(n + 1 for n in most)) > MOST_COUNTS:
            raise Unsupported(
                f"{looked} numbers of stages of each offer may be, expected at most {MOST_COUNTS}: "
                "use the exact method, or provisioning"
            )
        positions_ = sum(block.size for block in self.blocks)
        found = [self._allocation(stages) for stages in _counts(most, positions_)]
        return sorted((a for a in found if a is not None), key=self.cost)

    def cost(self, allocation: Allocation) -> int:
        """Return the least objective of an allocation, in the statement's integers."""
        return allocation.least * self.weight(allocation)

    def weight(self, allocation: Allocation) -> int:
        """Return the weight of a us of an iteration in the objective."""
        return 1 if self.data.minimises_time else allocation.price

    def _allocation(self, stages: Counts) -> Allocation | None:
        """Return None where no iteration is short enough."""
        look()
        rows = zip(stages, self.kinds, self._prices, strict=True)
        price = sum(kind.offer.billed(self.d * n) * each for n, kind, each in rows)
        ends = [*self.latest, *(units // price for units in self.budget if price)]
        most = min([self.longest, *ends])
        least = self._least(stages, most)
        return None if least is None else Allocation(stages, price, least, most)

    @cached_property
    def _prices(self) -> list[int]:
        """Return the price of a GPU of each offer, in the statement's units an hour."""
        return [kind.offer.micro_usd_per_hour // unit(self.data) for kind in self.kinds]

    @cached_property
    def longest(self) -> int:
        """Return a time in us that no iteration exceeds: all layers on the slowest."""
        both = max((kind.both for kind in self.kinds), default=0)
        sync = max((kind.sync for kind in self.kinds), default=0)
        return self.data.layers * (self.data.micro_batches * both + sync)

    @cached_property
    def slowest(self) -> list[int]:
        """Return the times that a slowest stage may take, us, ascending."""
        return sorted(
            {kind.both * x for i, kind in enumerate(self.kinds) for x in range(1, self.room[0][i] + 1)}
        )

    @cached_property
    def _holds(self) -> list[list[list[int]]]:
        """Return by offer and slowest time the layers on 0, 1, ... stages from the end."""
        return [
            [
                list(accumulate((self.within(row[i], kind, slow) for row in self.room), initial=0))
                for slow in self.slowest
            ]
            for i, kind in enumerate(self.kinds)
        ]

    @cached_property
    def _widest(self) -> list[list[int]]:
        """Return by offer and slowest time the layers of one stage at the most."""
        return [
            [self.within(room, kind, slow) for slow in self.slowest]
            for kind, room in zip(self.kinds, self.room[0], strict=True)
        ]

    def within(self, room: int, kind: Kind, slow: int) -> int:
        """Return the layers that fit and take no longer than `slow` us."""
        return min(room, slow // kind.both) if kind.both else room

    def _least(self, stages: Counts, most: int) -> int | None:
        """Return the least iteration over all slowest times, us; None where it exceeds `most`."""
        used, P = [i for i, n in enumerate(stages) if n], sum(stages)
        start = sum(self.kinds[i].both * stages[i] for i in used)
        backward, sync = max(self.kinds[i].backward for i in used), min(self.kinds[i].sync for i in used)
        rest = self.data.layers - P
        holds = [(self._holds[i], stages[i]) for i in used]
        fluid = rest * min(self.kinds[i].both for i in used)  # the layers left, at the least

        def hold(r: int) -> bool:
            """Tell whether the stages hold all layers within the r-th time: so they do within later ones."""
            more = [held[r][n] - n for held, n in holds]
            return min(more) >= 0 and sum(more) >= rest

        least: int | None = None
        for r in range(bisect_left(range(len(self.slowest)), True, key=hold), len(self.slowest)):
            slow = self.slowest[r]
            time, left = start + (self.data.micro_batches - 1) * slow, rest
            if time + fluid > most or (least is not None and time + fluid >= least):
                break  # nor is any later one shorter
            for i, (held, n) in zip(used, holds, strict=True):
                took = min(left, held[r][n] - n)
                left, time = left - took, time + self.kinds[i].both * took
            widest = max(self._widest[i][r] for i in used)
            time += self._least_exposed(P, widest, backward, sync)
            if time <= most and (least is None or time < least):
                least = time
        return least

    def _least_exposed(self, stages: int, widest: int, backward: int, sync: int) -> int:
        """The least exposed synchronisation of so many stages of at most `widest` layers."""
        if not sync:
            return 0
        key = stages, widest, backward, sync
        if key not in self._needs:
            low, high = 0, sync * self.data.layers
            while low < high:
                middle = (low + high) // 2
                hidden, held = middle, 0
                for _ in range(stages):
                    layers = min(widest, hidden // sync)
                    held, hidden = held + layers, hidden + backward * layers
                low, high = (low, middle) if held >= self.data.layers else (middle + 1, high)
            self._needs[key] = low
        return self._needs[key]

    def built_at_once(self, found: Sequence[Allocation]) -> int | None:
        """The objective of a good plan of the first allocations, where one was built."""
        best: int | None = None
        for allocation in found[:MOST_BUILT]:
            if best is not None and self.cost(allocation) >= best:
                break
            for time in self._build(allocation):
                objective = time * self.weight(allocation)
                best = objective if best is None else min(best, objective)
        return best

    def _build(self, allocation: Allocation) -> Iterator[int]:
        """Iterations of plans of an allocation, us, as the judge times them."""
        used = [i for i, n in enumerate(allocation.stages) if n]
        orders = list(permutations(used)) if len(used) <= MOST_ORDERED else [tuple(used), tuple(used[::-1])]
        for order in orders:
            look()
            kinds = [i for i in order for _ in range(allocation.stages[i])]
            for slow in self.slowest:
                if (self.data.micro_batches - 1) * slow > allocation.most:
                    break
                if (layers := self._fill(kinds, slow)) is None:
                    continue
                stages = tuple(
                    RentedStage(gpu=self.kinds[i].offer.gpu, layers=x)
                    for i, x in zip(kinds, layers, strict=True)
                )
                plan = Provisioning(data_parallel=self.d, stages=stages, **self.data.choice)
                judged = provisioning.evaluate(self.data, plan)
                if judged.valid:
                    yield int(judged.parts["iteration_us"])

    def _fill(self, kinds: list[int], slow: int) -> list[int] | None:
        """Layers of stages of these kinds within `slow`, with little exposed; None where not all fit."""
        most = [
            self.within(self.room[len(kinds) - 1 - j][i], self.kinds[i], slow) for j, i in enumerate(kinds)
        ]
        if min(most) < 1 or sum(most) < self.data.layers:
            return None
        low, high = 0, max(kind.sync for kind in self.kinds) * self.data.layers
        while low < high:
            middle = (low + high) // 2
            enough = sum(self._cover(kinds, most, middle)) >= self.data.layers
            low, high = (low, middle) if enough else (middle + 1, high)
        found = self._cover(kinds, most, low)
        spare = sum(found) - self.data.layers
        for j in sorted(range(len(kinds)), key=lambda j: -self.kinds[kinds[j]].both):
            less = min(spare, found[j] - 1)
            found[j], spare = found[j] - less, spare - less
        return None if spare else found

    def _cover(self, kinds: list[int], most: list[int], exposed: int) -> list[int]:
        """Layers of each stage, as many as `exposed` us and the passes before them cover."""
        hidden, found = exposed, []
        for i, room in zip(kinds, most, strict=True):
            kind = self.kinds[i]
            layers = max(1, min(room, hidden // kind.sync if kind.sync else room))
            hidden += kind.backward * layers
            found.append(layers)
        return found


def _counts(most: Sequence[int], stages: int) -> Iterator[Counts]:
    """Counts of at most `most`, together from 1 to `stages`."""
    rows: list[Counts] = [()]
    for top in most:
        rows = [(*row, n) for row in rows for n in range(min(top, stages - sum(row)) + 1)]
    return (row for row in rows if any(row))
