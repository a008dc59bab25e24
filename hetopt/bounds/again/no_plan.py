"""That an instance has no plan, shown by code of its own.

Every stage of every pipeline is looked at, but nodes: of a pipeline's stages, the last
first, `left[u]` is the least layer that they can begin with on u GPUs of each kind. A
part of a run of layers that fits does so, too; so stages of any pipeline begin no
earlier than that. What stages hold is looked up in the judge's table, with as many
replicas as there can be, and the fewest stages before it.

Pipelines of n micro-batches of b sequences so need some number of GPUs or more. A plan
has pipelines that take the batch together, and no more GPUs than there are: are there
none, there is no plan. First it is seen whether one takes its part at all.

Targets that run grids alone have no plan where no shape of a grid has one (`grids`).
"""

from bisect import bisect_left
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from math import inf, prod

import numpy as np
import numpy.typing as npt

from ...costs import CostTable, Position
from ...modelling import look
from ...problems.training_plan import settings
from ...schema import Instance
from . import grids

SOURCE = "every pipeline that memory and micro-batches allow, by code of its own"
_MOST_STATES = 60_000  # numbers of GPUs of each kind
_MOST_STAGES = 20_000  # replicas of a stage, put together

_Use = tuple[int, ...]  # GPUs by kind
_Starts = dict[_Use, int]  # the least layer that a stage begins with


def shown(instance: Instance) -> str | None:
    """Return what shows that there is no plan; None where nothing does."""
    if grids.refuted(instance, inf):
        return grids.SOURCE
    ways = settings.variants(instance)
    return SOURCE if all(_Pipelines(way).are_none() for way in ways) else None


class _TooLarge(Exception):
    """There is too much to look at."""


class _Pipelines:
    """Pipelines under one stage of ZeRO and one split."""

    def __init__(self, instance: Instance) -> None:
        own, self._work = CostTable(instance), instance.workload
        self._tables = [own.under(rule) for rule in self._work.recomputes]
        self._layers, self._even = own.layers, all(x.even for x in self._tables)
        kinds: dict[object, tuple[str, int, int]] = {}
        for node in own.cluster.nodes:
            key = own.node_class[node.name], node.count
            name, _, gpus = kinds.get(key, (node.name, 0, 0))
            kinds[key] = name, node.count, gpus + node.count
        self._kinds = [*kinds.values()]
        self._sides = tuple(gpus + 1 for *_, gpus in self._kinds)
        self._gpus = sum(gpus for *_, gpus in self._kinds)
        runs = self._work.costs.schedule.interleave
        self._positions = min(self._gpus, self._layers // runs)
        self._fewest = cache(self._find_fewest)
        self._start = cache(self._find_start)

    def are_none(self) -> bool:
        """Tell whether no pipelines take the batch; False where that is not seen."""
        if self._are_too_few():
            return True
        if prod(self._sides) > _MOST_STATES:
            return False
        try:
            return not self._one_takes_its_part() or not self._all_take_the_batch()
        except _TooLarge:
            return False

    def _are_too_few(self) -> bool:
        """Tell whether all GPUs hold fewer layers than the model has.

        By what each holds at the most of a run of layers, with one micro-batch in
        flight.
        """
        places = (0, True), (1, True), (0, False), (1, False)
        held = Fraction(0)
        for c, (*_, gpus) in enumerate(self._kinds):
            ends = (self._layers,) if self._even else range(1, self._layers + 1)
            each = (
                Fraction(end - self._start(c, group, end, 1, place), group[0])
                for group in self._groups(c, max(self._work.micro_batch_sizes))
                for place in places
                for end in (ends if place == places[-1] else (self._layers,))
            )
            held += gpus * max(each, default=Fraction(0))
        return held < self._layers

    def _one_takes_its_part(self) -> bool:
        """Tell whether a pipeline is as long as the longest of the most that fit."""
        sizes, batch = {*self._work.micro_batch_sizes}, self._work.global_batch
        least = min(self.fewest(b, 1) for b in sizes)
        if least > self._gpus:
            return False
        part = -(-batch // min(batch, self._gpus // least))
        return any(self.fewest(b, -(-part // b)) <= self._gpus for b in sizes)

    def _all_take_the_batch(self) -> bool:
        """Tell whether pipelines share the batch, all on as many GPUs as there are.

        Bit q of `taken[k]` says that some on k GPUs take q sequences.
        """
        batch, mask = self._work.global_batch, (1 << self._work.global_batch + 1) - 1
        items = []  # GPUs, size and number of micro-batches at the most
        for b in {*self._work.micro_batch_sizes}:
            most = 0
            for k in range(1, self._gpus + 1):
                numbers = range(1, batch // b + 1)
                n = bisect_left(numbers, True, key=lambda n: self.fewest(b, n) > k)
                if n > most:
                    items.append((k, b, n))
                most = n
        taken = [1]
        for k in range(1, self._gpus + 1):
            look()
            now = taken[-1]
            for gpus, b, n in items:
                if gpus <= k:
                    now |= _more(taken[k - gpus], b, n) & mask
            taken.append(now)
        return bool(taken[-1] >> batch & 1)

    # --- one pipeline --------------------------------------------------------------

    def fewest(self, b: int, n: int) -> int:
        """Return the fewest GPUs of a pipeline; more than there are where none does."""
        if self._work.costs.schedule.in_flight != "gpipe":  # more are not in flight
            n = min(n, 2 * self._positions + 1)
        return self._fewest(b, n)

    def _find_fewest(self, b: int, n: int) -> int:
        fewest, before = self._gpus + 1, self._layers
        left = np.full(self._sides, before, np.int64)
        gpus = np.indices(self._sides).sum(0)
        for i in range(self._positions):
            first = self._put(left, (b, n, i, True))
            fewest = min([fewest, *gpus[first == 0].tolist()])
            later = self._put(left, (b, n, i, False))
            if i and (later == left).all():
                break
            left = later
        return fewest

    def _put(
        self,
        left: npt.NDArray[np.int64],
        place: tuple[int, int, int, bool],
    ) -> npt.NDArray[np.int64]:
        """Return what is left with a stage before; there may be none but at the end."""
        nowhere = self._layers + 1
        found = left.copy() if place[2] else np.full_like(left, nowhere)
        for end in {*left.ravel().tolist()} - {nowhere}:
            for use, start in self._starts(end, place).items():
                look()
                rest = left[tuple(slice(side - u) for side, u in self._pairs(use))]
                into = found[tuple(slice(u, None) for u in use)]
                np.minimum(into, np.where(rest == end, start, into), out=into)
        return found

    def _pairs(self, use: _Use) -> Iterator[tuple[int, int]]:
        return zip(self._sides, use, strict=True)

    def _starts(self, end: int, place: tuple[int, int, int, bool]) -> _Starts:
        """Return where stages before layer `end` begin, by the GPUs of replicas."""
        b, n, i, first = place
        none = (0,) * len(self._kinds)
        best: list[_Starts] = [{} for _ in range(b + 1)]
        best[0] = {none: 0}
        for c in range(len(self._kinds)):
            for t, s in self._groups(c, b):
                start = self._start(c, (t, s), end, n, (i, first))
                if start == end:
                    continue
                for q in range(s, b + 1):
                    for use, at in [*best[q - s].items()]:
                        more = (*use[:c], use[c] + t, *use[c + 1 :])
                        if more[c] < self._sides[c]:
                            at = max(at, start)
                            best[q][more] = min(at, best[q].get(more, end))
                    if len(best[q]) > _MOST_STAGES:
                        raise _TooLarge
        return best[b]

    def _groups(self, c: int, b: int) -> list[tuple[int, int]]:
        """Return degrees and samples of replicas on a kind of node."""
        node, count, _ = self._kinds[c]
        each = product(range(1, count + 1), range(1, b + 1))
        return [(t, s) for t, s in each if self._tables[0].usable(node, t, s)]

    def _find_start(
        self, c: int, group: tuple[int, int], end: int, n: int, at: tuple[int, bool]
    ) -> int:
        """Return the first layer of the longest run before `end` that fits."""
        (node, *_), (i, first) = self._kinds[c], at
        if self._even and end < self._layers:  # as many as at the end
            held = self._layers - self._start(c, group, self._layers, n, at)
            return max(0, end - held)
        place = Position(n, i + 1, 0) if first else Position(n, i + 2, 1)

        def fits(begin: int) -> bool:
            span = range(begin, end)
            return any(
                sum(x.stage_mib(node, span, group, place).values())
                <= x.memory_mib(node)
                for x in self._tables
            )

        return bisect_left(range(end), True, key=fits)


def _more(taken: int, b: int, most: int) -> int:
    """Return the numbers of sequences with 1 to `most` micro-batches of b more."""
    found, step = taken << b, 1
    while step < most:
        more = min(step, most - step)
        found |= found << more * b
        step += more
    return found
