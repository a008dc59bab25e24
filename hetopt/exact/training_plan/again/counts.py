"""Whether pipelines by counts of GPUs take the batch, for the check of counts."""

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import compress, product

import numpy as np
import numpy.typing as npt

from ....costs import CostTable
from .rows import Rows
from .stages import MORE, Able, Array, Case, Nodes, StageTables

Whole = npt.NDArray[np.int64]

_AT_ONCE = 24  # ranges of the slowest stage
_KEPT_ENTRIES = 60_000_000  # of sums that are looked at again
_FINEST = 1.0003  # between ranges of the slowest stage; and powers of it, before
_POWERS = (128, 8, 1)
_NEVER = 10**12  # sequences
# From the end, where stages of one pipeline are told apart from those before.
_PLACES, _FEW_PLACES = tuple(range(1, 13)), (1, 2, 3, 5, 9)
_MANY_PLACES = tuple(range(1, 49))  # where numbers of GPUs are many, and stages few
_MOST_APART = 1_000  # numbers of GPUs by kind, where homes are told apart,
_MOST_PLACED = 8_000  # and places
_FEW = 4  # micro-batches, from which on pipelines need the memory of so many


class Counts:
    """Refutes cases by counts of GPUs; tables of one instance."""

    def __init__(
        self, tables: list[CostTable], nodes: Sequence[Nodes], weights: Sequence[float]
    ) -> None:
        """As `StageTables` takes them."""
        self.batch = tables[0].workload.global_batch
        self._given = tables, weights
        self._parts: dict[tuple[int, ...], tuple[Counts | None, tuple[int, ...]]] = {}
        self._stages = StageTables(tables, nodes, weights)
        self._rows = Rows(nodes, tables[0].layers)
        self.sides = self._rows.sides
        self._known: dict[tuple[bytes, float], Array] = {}

    def refute(self, cases: Sequence[Case], left_us: float) -> bool:
        """Whether no plan has pipelines of the cases that take `left_us` or less.

        The cases have numbers of pipelines and of replicas in common.
        """
        if left_us < 0:
            return True
        if cases[0].pipelines == (1, 1):
            ways = [(b, case) for case in cases for b in case.sizes]
            return all(self._one(b, case, left_us) for b, case in ways)
        homes = [*self._homes(cases[0])]
        # One look at all of them may do.
        if len(homes) > 1 and self._at_home(cases, left_us, _POWERS[:1]):
            return True
        return all(self._refute(cases, each, left_us) for each in homes)

    def _refute(
        self, cases: Sequence[Case], homes: tuple[int, ...] | None, left_us: float
    ) -> bool:
        """The same, where nodes of each of these kinds are homes, and no others."""
        if self._at_home([case._replace(homes=homes) for case in cases], left_us):
            return True
        many = [range(1, 1 + self._stages.nodes[kind].number) for kind in homes or ()]
        if all(len(each) == 1 for each in many):
            return False
        # Then it matters how many of them are.
        for numbers in product(*many):
            part, at = self._part(dict(zip(homes or (), numbers, strict=True)))
            own = [case._replace(homes=at) for case in cases]
            if part is None or not part._at_home(own, left_us, each=True):
                return False
        return True

    def _part(self, homes: dict[int, int]) -> tuple["Counts | None", tuple[int, ...]]:
        """Counts where nodes of kinds that are homes are kinds of their own: these."""
        key = tuple(x for pair in homes.items() for x in pair)
        if key not in self._parts:
            nodes, at, known = list[Nodes](), list[int](), True
            for kind, every in enumerate(self._stages.nodes):
                some = homes.get(kind, 0)
                if 0 < some < every.number:
                    known = known and every.total == every.number * every.gpus
                if some:
                    at.append(len(nodes))
                for number in filter(None, (some, every.number - some)):
                    whole = number == every.number
                    gpus = every.total if whole else number * every.gpus
                    nodes.append(every._replace(number=number, total=gpus))
            known = known and math.prod(x.total + 1 for x in nodes) <= _MOST_APART
            tables, weights = self._given
            part = Counts(tables, nodes, weights) if known else None
            self._parts[key] = part, tuple(at)
        return self._parts[key]

    def _homes(self, case: Case) -> Iterator[tuple[int, ...] | None]:
        """Which kinds of nodes may have one that holds all replicas of a layer."""
        fewest = max(case.replicas, case.pipelines[0])
        kinds = [i for i, x in enumerate(self._stages.nodes) if x.gpus >= fewest]
        many = len(kinds) > 2 and math.prod(self.sides) > _MOST_APART
        if case.pipelines[0] == 1 or many:  # which would take too long
            yield None
            return
        for chosen in product((False, True), repeat=len(kinds)):
            yield tuple(compress(kinds, chosen))

    def _at_home(
        self,
        cases: Sequence[Case],
        left_us: float,
        powers: Sequence[int] = _POWERS,
        each: bool = False,
    ) -> bool:
        """The same, where the cases have their homes in common.

        One or more nodes of each of these kinds, or `each` of their nodes.
        """
        homes = cases[0].homes or ()
        ways = [(b, case) for case in cases for b in case.sizes]
        wanted = np.zeros(self.sides, np.int64)
        for power in powers:  # finer ones where these do not do
            most = np.zeros(self.sides, np.int64)
            for b, case in ways:
                one = self._most(b, case, left_us, power, wanted)
                np.maximum(most, one, out=most)
            # Every pipeline holds that layer, and is there.
            for kind in homes:
                used = self._stages.nodes[kind].number if each else 1
                most[(slice(None),) * kind + (slice(used),)] = 0
            together, others = self._taken(most, cases[0].pipelines)
            if together < self.batch:
                return True
            # With less, the others do not take the rest.
            wanted = self.batch - np.flip(others)
        return False

    # -- pipelines -------------------------------------------------------------------

    def _one(self, b: int, case: Case, left_us: float) -> bool:
        """Whether one pipeline of micro-batches of b sequences takes longer."""
        if self.batch % b:
            return True
        n = self.batch // b
        alone = case._replace(pipelines=(1, 1), replicas=1)
        stages = self._stages.able(b, n, alone)
        times = self._rows.times(stages)

        def least(slowest: float) -> float:
            return float(self._rows.least(stages, np.array([slowest]))[0].flat[-1])

        left = _left(times, (n, left_us, case.spent_us), least)
        told = _PLACES if self._stages.small else _FEW_PLACES
        if (states := math.prod(self.sides)) > _MOST_APART:
            told = _MANY_PLACES
        most = min(n, told[-1], self._stages.layers)
        if left is None or most < 2 or states > _MOST_PLACED:
            return left is None
        # Stages further from the end keep more micro-batches.
        each = {k: self._stages.able(b, n, alone, k) for k in told if k <= most}
        places = [each[max(x for x in each if x <= k)] for k in range(1, most + 1)]
        if places[0].key == places[-1].key:
            return False
        times = np.unique(np.concatenate([self._rows.times(x) for x in places]))

        def in_places(slowest: float) -> float:
            return self._rows.least_in_places(places, slowest)

        some = times[times <= left]
        return _left(some, (n, left_us, case.spent_us), in_places) is None

    def _most(
        self, b: int, case: Case, left_us: float, power: int, wanted: Whole
    ) -> Whole:
        """The most sequences that a pipeline takes, by the GPUs that it may use.

        Or fewer, where they are less than are `wanted`.
        """
        few = self._micro_batches(b, 1, case, left_us, power, wanted)
        many = self._micro_batches(b, _FEW, case, left_us, power, wanted)
        both: Whole = b * np.maximum(many, np.minimum(few, _FEW - 1))
        return np.minimum(both, self.batch)

    def _micro_batches(
        self,
        b: int,
        n: int,
        case: Case,
        left_us: float,
        power: int,
        wanted: Whole,
    ) -> Whole:
        def taken(low: float, found: Array) -> Whole:
            sums = np.maximum(found, case.spent_us)
            able = sums <= left_us
            many = np.full(self.sides, float(self.batch))
            if low > 0:
                many = np.where(able, left_us - sums, 0.0) / low * MORE + 1e-9
            each = np.floor(np.minimum(many, self.batch)).astype(np.int64) + 1
            return np.where(able, each, 0)

        def matters(low: float, less: Array) -> bool:
            return bool((b * taken(low, less) >= wanted).any())

        stages = self._stages.able(b, n, case)
        most = np.zeros(self.sides, np.int64)
        for low, found in self._ranges(stages, left_us, power, matters):
            np.maximum(most, taken(low, found), out=most)
        return most

    def _ranges(
        self,
        stages: Able,
        left_us: float,
        power: int,
        matters: Callable[[float, Array], bool],
    ) -> Iterator[tuple[float, Array]]:
        """Least sums, where the slowest stage is from one time up to another.

        Those of ranges that matter with what is known: no more than their own sums.
        """
        lows, highs = [], []
        times = self._rows.times(stages)
        times = times[times <= left_us]
        while len(times):
            first, low = float(times[0]), 0.0
            some = times < 1
            if first >= 1:
                number = math.floor(math.log(first) / math.log(_FINEST)) // power
                low = _FINEST ** (number * power) * (1 - 1e-12)
                some = times < _FINEST ** ((number + 1) * power)
                some[0] = True
            lows.append(low)
            highs.append(float(times[some][-1]))
            times = times[~some]
        key = stages.key
        known = sorted(high for of, high in self._known if of == key)
        chosen = []
        for low, high in zip(lows, highs, strict=True):
            place = bisect_left(known, high)
            if place == len(known) or matters(low, self._known[key, known[place]]):
                chosen.append((low, high))
        highs = [high for _, high in chosen]
        new = [high for high in highs if (key, high) not in self._known]
        if len(self._known) * math.prod(self.sides) > _KEPT_ENTRIES:
            self._known.clear()
            new = highs
        for begin in range(0, len(new), _AT_ONCE):
            part = new[begin : begin + _AT_ONCE]
            found = self._rows.least(stages, np.array(part))
            self._known.update(((key, x), y) for x, y in zip(part, found, strict=True))
        yield from ((low, self._known[key, high]) for low, high in chosen)

    def _taken(self, most: Whole, count: tuple[int, int]) -> tuple[int, Whole]:
        """The most sequences of so many pipelines together: one more at a time.

        And of one fewer, by the GPUs that they may use.
        """
        able = [tuple(use) for use in np.argwhere(most > 0).tolist()]
        fewest, highest = count[0], min(count[1], sum(self.sides))
        exactly = np.where(most > 0, most, -_NEVER)
        every = np.full_like(most, -_NEVER)
        others = np.full_like(most, 0 if fewest < 2 else -_NEVER)
        for number in range(1, highest + 1):
            if fewest <= number + 1 <= highest:
                others = np.maximum(others, exactly)
            if number >= fewest:
                before, every = every, np.maximum(every, exactly)
                if (every == before).all():
                    break
            more = np.full_like(most, -_NEVER)
            for use in able if number < highest else []:
                rest = exactly[self._rows.without(use)]
                out = more[tuple(slice(u, None) for u in use)]
                np.maximum(out, rest + most[use], out=out)
            exactly = np.maximum(more, -_NEVER)
        return int(every.flat[-1]), others


def _left(
    times: Array, what: tuple[int, float, float], least: Callable[[float], float]
) -> float | None:
    """Up to which time a pipeline's slowest stage may be; None where it takes longer.

    `what` are its micro-batches, what is left for it, and what it spends at the least
    beside its bottlenecks. No stage takes less than the longest of the `times` up to
    its own.
    """
    n, left_us, spent_us = what
    limit = left_us / n * MORE
    while True:
        times = times[times <= limit]
        if not len(times):
            return None
        sum_us = max(least(float(times[-1])), spent_us)
        if sum_us > left_us:
            return None
        shorter = (left_us - sum_us) / (n - 1) * MORE if n > 1 else math.inf
        if shorter >= times[-1]:
            return limit
        limit = shorter
