"""Layers to the stages of a pipeline, micro-batches to pipelines, balanced exactly.

`balanced` minimises sum_k tau_k + (n - 1) max_k tau_k over all ways to cut the layers
into runs, one for each group of GPUs in the given order, within memory. `shared`
minimises the time of the slowest pipeline over all ways to share the batch.

Under a limit on the slowest stage the least sum for layers that differ comes from a
shortest path over (stage, layers behind), whose steps are windows: where a run ends
tells from where on it may begin. The least limit that can be kept is found by halving;
then limits fall from the highest for which the least sum of all could pay, each below
the slowest stage of the path before.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate
from typing import NamedTuple, TypeVar

from .._kernels import core
from .fast_cost import FastCost, Pipe, Slot, Timing, stages_on
from .synchronisation import bounded_method

Found = TypeVar("Found")
_BITS = 256  # of the longest time
Chain = tuple[tuple[int, int], ...]  # (node number, degree) of each stage, in order


class _Row(NamedTuple):
    """A stage that waits for layers of equal size."""

    each: int  # us of a layer, at least 1
    fixed: int  # us of the hop, of the head on the last stage
    cap: int  # the most layers that it may take


class Balancer:
    """Balances pipelines of one instance; what was computed is kept."""

    def __init__(self, cost: FastCost) -> None:
        """A balancer that times and weighs by `cost`."""
        self.cost = cost
        self._caps: dict[tuple[object, ...], int] = {}
        self._reaches: dict[tuple[object, ...], array[int]] = {}
        self._prefixes: dict[tuple[int, int, int], Sequence[int]] = {}

    @cached_property
    def even(self) -> bool:
        """Return whether all layers are alike, in parameters, time and memory."""
        model, costs = self.cost.instance.model, self.cost.costs
        told = ("layer_us", "backward_us", "layer_mib", "activation_mib")
        rows = [getattr(row, name) for row in costs.compute.profile for name in told]
        calibrated = self.cost.table.calibrated
        if calibrated and len(set(calibrated.sorts)) > 1:
            return False
        return model.even and all(len(set(row)) == 1 for row in rows if row)

    def balanced(
        self,
        b: int,
        n: int,
        chain: Chain,
        most: int | None = None,
        replicas: int | None = None,
    ) -> tuple[Slot, ...] | None:
        """The best cut of the layers for `n` micro-batches of `b`, None if none fits.

        No stage takes more than `most` layers. ZeRO divides states among `replicas`.
        """
        if not self.cost.costs.updates.zero:
            replicas = 1
        return self._balanced(b, n, chain, most, replicas)

    @bounded_method
    def _balanced(
        self, b: int, n: int, chain: Chain, most: int | None, replicas: int | None
    ) -> tuple[Slot, ...] | None:
        self.cost.check()
        make = self._even if self.even else self._uneven
        return make(b, n, chain, most, replicas)

    def sectioned(
        self,
        b: int,
        n: int,
        chain: Chain,
        sections: Sequence[tuple[int, int]],
        replicas: int | None = None,
    ) -> tuple[Slot, ...] | None:
        """A cut of which each section, so many stages, has so many layers.

        Sections are balanced one by one; None where one does not fit. Layers that
        differ are balanced as they are in `balanced`: sections are not kept to.
        """
        if not self.even:
            return self.balanced(b, n, chain, None, replicas)
        rows = self._rows(b, n, chain, self.cost.layers, replicas)
        counts: list[int] = []
        for stages, layers in sections:
            some = rows[len(counts) : len(counts) + stages]
            if not _enough(some, layers):
                return None
            counts += _best_counts(some, layers, n)
        return stages_on(chain, [*accumulate(counts, initial=0)])

    def alike(
        self, b: int, n: int, chains: Sequence[Chain], replicas: int | None = None
    ) -> list[tuple[Slot, ...]] | None:
        """Return pipelines on these chains that are all cut alike.

        A stage is as slow as the slowest of them, and holds what all of them hold;
        ZeRO divides states among `replicas`. None where no common cut was found to fit.
        """
        ends = self._common(b, n, frozenset(chains), replicas)
        if ends is None:
            return None
        return [stages_on(chain, (0, *ends)) for chain in chains]

    @bounded_method
    def _common(
        self, b: int, n: int, chains: frozenset[Chain], replicas: int | None
    ) -> list[int] | None:
        self.cost.check()
        layers = self.cost.layers
        if self.even:
            each = [self._rows(b, n, chain, layers, replicas) for chain in chains]
            rows = [
                _Row(
                    max(row.each for row in place),
                    max(row.fixed for row in place),
                    min(row.cap for row in place),
                )
                for place in zip(*each, strict=True)
            ]
            if not _enough(rows, layers):
                return None
            counts = _best_counts(rows, layers, n)
            if min(counts) >= self.cost.costs.schedule.interleave:
                return list(accumulate(counts))

        def whole(at: tuple[int, int]) -> int:
            return self.cost.prefix(*at, b)[0][layers]

        places = zip(*sorted(chains), strict=True)
        slowest = tuple(max(place, key=whole) for place in places)
        slots = self._uneven(b, n, slowest, None, replicas)
        return None if slots is None else [slot.last for slot in slots]

    def _fixed(self, b: int, chain: Chain, j: int) -> int:
        node, t = chain[j]
        if j == len(chain) - 1:
            return self.cost.head_us(node, t, b)
        return self.cost.hop_us(node, *chain[j + 1], b, t)

    # --- layers that are all alike -----------------------------------------------

    def _even(
        self, b: int, n: int, chain: Chain, most: int | None, replicas: int | None
    ) -> tuple[Slot, ...] | None:
        layers = self.cost.layers
        rows = self._rows(b, n, chain, layers if most is None else most, replicas)
        if not _enough(rows, layers):
            return None
        counts = _best_counts(rows, layers, n)
        if min(counts) < self.cost.costs.schedule.interleave:  # so few make no runs
            return self._uneven(b, n, chain, most, replicas)
        return stages_on(chain, [*accumulate(counts, initial=0)])

    def _rows(
        self, b: int, n: int, chain: Chain, most: int, replicas: int | None = None
    ) -> list[_Row]:
        return [
            _Row(
                # Layers that take no time are balanced as if they took a us.
                max(1, self.cost.prefix(*place, b)[0][1]),
                self._fixed(b, chain, j),
                min(most, self._cap(b, n, len(chain), j, *place, replicas)),
            )
            for j, place in enumerate(chain)
        ]

    def _place(
        self, b: int, n: int, stages: int, j: int, node: int, t: int, d: int | None
    ) -> tuple[object, ...]:
        cost = self.cost
        # Interleaved, whether a stage can be at all depends on n.
        rest = n % stages if cost.costs.schedule.interleave > 1 else 0
        flight, ends = cost.in_flight(n, stages, j), (j == 0, j == stages - 1)
        return cost.kind[node], t, b, flight, ends, rest, d

    def _cap(
        self, b: int, n: int, stages: int, j: int, node: int, t: int, d: int | None
    ) -> int:
        """The most equal layers that memory allows on stage `j`, at least the runs."""
        cost, runs = self.cost, self.cost.costs.schedule.interleave
        key = self._place(b, n, stages, j, node, t, d)

        def is_too_many(layers: int) -> bool:
            slot = Slot(node, t, 0, max(layers, runs))
            return cost.need_mib(b, n, stages, j, slot, d) > cost.room[node]

        if key not in self._caps:
            counts = range(1, cost.layers + 1 if runs <= cost.layers else 1)
            self._caps[key] = bisect_left(counts, True, key=is_too_many)
        return self._caps[key]

    # --- layers that differ --------------------------------------------------------

    def _uneven(
        self, b: int, n: int, chain: Chain, most: int | None, replicas: int | None
    ) -> tuple[Slot, ...] | None:
        """The best runs of layers, each as long as memory allows at the most."""
        rows = [
            UnlikeRow(
                self._fixed(b, chain, j),
                self._sums(b, *place),
                self._reach(b, n, len(chain), j, *place, replicas),
            )
            for j, place in enumerate(chain)
        ]
        fewest = self.cost.costs.schedule.interleave  # a layer for each run
        ends = best_cuts(rows, n, fewest, self.cost.layers if most is None else most)
        return None if ends is None else stages_on(chain, (0, *ends))

    def _sums(self, b: int, node: int, t: int) -> Sequence[int]:
        """Sums of layer times before each layer, as the compiled core reads them."""
        key = (self.cost.kind[node], t, b)
        if key not in self._prefixes:
            sums: Sequence[int] = self.cost.prefix(node, t, b)[0]
            with suppress(OverflowError):  # they stay as they are
                sums = array("q", sums)
            self._prefixes[key] = sums
        return self._prefixes[key]

    def _reach(
        self, b: int, n: int, stages: int, j: int, node: int, t: int, d: int | None
    ) -> "array[int]":
        """Where runs on stage `j` end at the latest by memory, by their first layers.

        What holds fewer layers never needs more, so no end lies before the last one.
        """
        cost, layers = self.cost, self.cost.layers
        runs = cost.costs.schedule.interleave
        key = self._place(b, n, stages, j, node, t, d)
        if key not in self._reaches:
            reach, end = array("q"), 0
            for first in range(layers + 1):
                end = max(end, min(layers, first + runs - 1))
                while end < layers:
                    slot = Slot(node, t, first, end + 1)
                    need = cost.need_mib(b, n, stages, j, slot, d)
                    if need > cost.room[node]:
                        break
                    end += 1
                reach.append(end)
            self._reaches[key] = reach
        return self._reaches[key]


def _enough(rows: Sequence[_Row], layers: int) -> bool:
    caps = [row.cap for row in rows]
    return len(rows) <= layers <= sum(caps) and min(caps) >= 1


def _best_counts(rows: Sequence[_Row], layers: int, n: int) -> list[int]:
    """Layers of each stage; the caps allow `layers` and at least one each."""

    def ask(shift: int) -> list[int]:
        flat = array("q")
        for each, fixed, cap in rows:
            flat.extend((max(1, each >> shift), fixed >> shift, min(cap, layers)))
        counts = array("q", bytes(8 * len(rows)))
        core.best_counts(flat, layers, n, counts)
        return counts.tolist()

    return within(ask)


def shared(
    cost: FastCost, timings: Sequence[Timing], sizes: Sequence[int]
) -> list[int] | None:
    """Micro-batches of each pipeline, so that the slowest ends soonest.

    Exact for equal sizes. With unequal ones the last few sequences are placed
    greedily. None where the batch cannot be shared with at least one micro-batch each.
    """
    batch, rule = cost.instance.workload.global_batch, cost.costs.schedule.pipeline
    lockstep = rule == "lockstep"

    def ask(shift: int) -> list[int] | None:
        rows, taus = array("q"), array("q")
        for t, size in zip(timings, sizes, strict=True):
            rows.extend((size, t.total >> shift, t.slowest >> shift, len(t.taus)))
            if lockstep:
                taus.extend(tau >> shift for tau in t.taus)
        counts = array("q", bytes(8 * len(sizes)))
        found = core.shared(batch, lockstep, rows, taus, counts)
        return counts.tolist() if found else None

    return within(ask)


def with_batch(
    cost: FastCost, rows: Sequence[tuple[int, tuple[Slot, ...]]]
) -> tuple[Pipe, ...] | None:
    """Pipelines of these sizes and stages, as they share the batch; None: no fit."""
    sizes = [size for size, _ in rows]
    counts = shared(cost, [cost.timing(*row) for row in rows], sizes)
    if counts is None:
        return None
    pipes = tuple(Pipe(n, *row) for n, row in zip(counts, rows, strict=True))
    return pipes if all(cost.fits(pipe, len(pipes)) for pipe in pipes) else None


class UnlikeRow(NamedTuple):
    """A stage that waits for layers that differ."""

    fixed: int  # us beside its layers: of the hop, of the head on the last stage
    sums: Sequence[int]  # of layer times in us, before each layer and after the last
    reach: Sequence[int]  # where a run from each layer on ends at the latest; rising


def best_cuts(
    rows: Sequence[UnlikeRow], n: int, fewest: int, most: int
) -> list[int] | None:
    """Return where each stage ends for `n` micro-batches; None where no cut fits.

    Each stage has from `fewest` to `most` layers.
    """
    layers = len(rows[0].sums) - 1

    def ask(shift: int) -> list[int] | None:
        flat = array("q")
        for fixed, sums, reach in rows:
            flat.append(fixed >> shift)
            flat.extend([us >> shift for us in sums] if shift else sums)
            flat.extend(reach)
        ends = array("q", bytes(8 * len(rows)))
        found = core.best_cuts(flat, layers, n, fewest, most, ends)
        return ends.tolist() if found else None

    return within(ask)


def within(ask: Callable[[int], Found]) -> Found:
    """Return what the core answers, given times shifted by so many bits.

    Times beyond its numbers lose their last bits: what is found fits all the same, and
    is the best but for rounding.
    """
    for shift in range(0, _BITS, 8):
        with suppress(OverflowError):
            return ask(shift)
    return ask(_BITS)
