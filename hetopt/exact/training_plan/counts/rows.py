"""The least rows of stages for all numbers of GPUs: a walk over the layers.

Stages are laid from the first layer to the last. What follows a stage in its node has
no more GPUs than are left there; a stage that hands on to another node, or is spread,
is followed by any. So a row is known by the layers that it holds, the GPUs that it uses
of each kind (its *state*) and by the node that the next stage must begin in, if any:
its kind and the GPUs left (its *room*, number 0 where there is none).

All times are whole us, which doubles add without error.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...pipelines import compiling
from .kinds import Array
from .replicas import Runs, Whole
from .stages import Stages


class Room(NamedTuple):
    """Where the next stage must begin: anywhere, or in a node of some kind.

    In a chain that may use so many GPUs and has some left; behind a spread stage, which
    has one or more of the node, where there is no chain yet.
    """

    kind: int | None = None
    chain: int = 0
    left: int = 0


class Laid(NamedTuple):
    """A stage of a row: its layers, and the GPUs that it uses of each kind.

    `together` is of which kind of nodes there is one that the next stage is in, too.
    """

    first: int
    last: int
    use: tuple[int, ...]
    packed: bool
    together: int | None


@dataclass(frozen=True)
class Shape:
    """Stages that use the same GPUs, in one of some rooms: times in us by run."""

    use: tuple[int, ...]
    before: tuple[int, ...]
    after: int
    us: Array
    packed: bool


class Rows:
    """Rows of stages under one limit on synchronisation, for any bottleneck."""

    def __init__(self, stages: Stages, runs: Runs, gpus: Sequence[int]) -> None:
        """`gpus` are of each kind, all its nodes together."""
        #: Of a table by GPUs that are used of each kind.
        self.sides = tuple(g + 1 for g in gpus)
        #: Where a stage may begin, by number.
        self.rooms = {Room(): 0}
        kinds = range(len(gpus))
        for room in (room for kind in kinds for room in self._rooms_in(stages, kind)):
            self.rooms[room] = len(self.rooms)
        shapes = [x for x in self.shapes(stages) if np.isfinite(x.us).any()]
        every = (*stages.within, *stages.away, *stages.spread)
        #: All times of stages, in ascending order.
        self.times = np.unique(np.concatenate([us[np.isfinite(us)] for us in every]))
        self._shapes = sorted(shapes, key=lambda x: x.before)
        self._steps = self.numbered(self._shapes, runs)

    def shapes(self, stages: Stages) -> Iterator[Shape]:
        """All stages, in an order that does not depend on their times."""
        for kind in range(len(self.sides)):
            yield from self.packed(stages, kind)
        yield from self._spread(stages)

    @property
    def nbytes(self) -> int:
        """Memory of the tables."""
        return sum(table.nbytes for table in self._steps)

    def chains(self, stages: Stages, kind: int) -> list[int]:
        """How many GPUs of a node of a kind chains use, without those that lose nothing
        by one GPU more."""
        tables = stages.within[kind], stages.away[kind]
        whole = len(tables[0]) - 1
        return [
            c
            for c in range(1, whole + 1)
            if any(np.isfinite(us[c]).any() for us in tables)
            and (c == whole or not all(_equal(us[c], us[c + 1], c) for us in tables))
        ]

    def _rooms_in(self, stages: Stages, kind: int) -> Iterator[Room]:
        """Rooms in nodes of a kind, but for none."""
        if len(stages.away[kind]) > 2:
            yield Room(kind)
        for chain in self.chains(stages, kind):
            yield from (Room(kind, chain, left) for left in range(1, chain))

    def packed(self, stages: Stages, kind: int) -> Iterator[Shape]:
        """Stages in one node of a kind, which they begin or go on in."""
        within, away = stages.within[kind], stages.away[kind]
        for chain in self.chains(stages, kind):
            # Rooms that a stage of the chain may begin in, and what is left there.
            lefts = {Room(): chain, Room(kind): chain - 1}
            lefts |= {Room(kind, chain, left): left for left in range(1, chain)}
            known = [
                (self.rooms[room], left)
                for room, left in lefts.items()
                if room in self.rooms
            ]
            for k in range(1, chain + 1):
                use = tuple(k if c == kind else 0 for c in range(len(stages.away)))
                befores = tuple(i for i, left in known if left >= k)
                if befores:
                    yield Shape(use, befores, 0, away[chain, k], True)
                for before, left in known:
                    if left > k:
                        after = self.rooms[Room(kind, chain, left - k)]
                        yield Shape(use, (before,), after, within[chain, k], True)

    def _spread(self, stages: Stages) -> Iterator[Shape]:
        """Stages in several nodes, of which the one is that they must begin in."""
        for kind, tables in enumerate(stages.spread, -1):
            for use in np.ndindex(tables.shape[:-1]):
                rooms = tuple(
                    i
                    for room, i in self.rooms.items()
                    if room.kind is None or use[room.kind]
                )
                after = self.rooms.get(Room(kind)) if kind >= 0 else 0
                if kind < 0 or (use[kind] and after is not None):
                    yield Shape(use, rooms, after or 0, tables[use], False)

    def numbered(self, shapes: list[Shape], runs: Runs) -> "Steps":
        """The stages, by number, with one time for all places."""
        us = np.full((1, runs.layers + 1, runs.layers, len(shapes)), np.inf)
        for i, shape in enumerate(shapes):
            us[0, runs.last, runs.first, i] = shape.us
        # Several rooms before a stage are looked at as one: the least of them.
        befores = sorted({shape.before for shape in shapes})
        rooms = np.zeros((len(befores), len(self.rooms)), np.bool_)
        for row, each in zip(rooms, befores, strict=True):
            row[list(each)] = True
        number = {before: i for i, before in enumerate(befores)}
        before = np.array([number[shape.before] for shape in shapes], np.int64)
        after = np.array([shape.after for shape in shapes], np.int64)
        using = [shape.use for shape in shapes]
        return Steps.of(us, before, after, rooms, using, self.sides)

    def least(self, slowest_us: float, most_us: Array) -> Array:
        """Least sums of the stage times of all layers, by GPUs at most of each kind.

        No stage is slower than `slowest_us`; infinite beyond `most_us`, which is by
        GPUs and not more of more of them.
        """
        if not self._steps.us.size:
            return np.full(self.sides, np.inf)
        kernel = compiled_whole() if self.whole(most_us) else compiled()
        least = kernel(self._steps, slowest_us, most_us.ravel(), False)
        found: Array = least[-1, 0].reshape(self.sides)
        for axis in range(found.ndim):
            np.minimum.accumulate(found, axis, out=found)
        return found

    def whole(self, most_us: Array) -> bool:
        """Whether so many states are asked for that all take less long."""
        steps = self._steps
        entries = steps.rooms.shape[0] * steps.us.shape[1] * most_us.size
        asked = np.count_nonzero(most_us >= 0)
        return entries <= _WHOLE_ENTRIES and bool(asked > _WHOLE * most_us.size)

    def work(self, slowest_us: float) -> int:
        """Stages that are no slower than a time, times the states."""
        stages = int(np.count_nonzero(self._steps.us <= slowest_us))
        return stages * prod(self.sides)

    def least_row(self, slowest_us: float) -> list[Laid]:
        """Stages of a row whose sum is the least; none where there is no row."""
        steps, laid = self._steps, list[Laid]()
        if not steps.us.size:
            return laid
        (us,) = steps.us  # of any place
        any_us = np.full(steps.there.shape[1], np.inf)
        least = compiled()(steps, slowest_us, any_us, True)
        last, room, state = len(us) - 1, 0, int(least[-1, 0].argmin())
        if np.isinf(least[last, room, state]):
            return laid
        kinds = {i: room_.kind for room_, i in self.rooms.items()}
        while last:
            able = us[last] <= slowest_us
            stages = np.flatnonzero(
                (steps.after == room) & (steps.raised <= state) & able.any(0)
            )
            froms = state - steps.raised[stages]
            stages = stages[steps.there[stages, froms]]
            froms = state - steps.raised[stages]
            begun = steps.rooms[steps.before[stages]].T
            sums = np.where(begun, least[: len(able), :, froms], np.inf).min(1)
            sums = np.where(able, us[last], np.inf)[:, stages] + sums
            first, i = np.unravel_index(int(sums.argmin()), sums.shape)
            shape, row = self._shapes[stages[i]], steps.before[stages[i]]
            laid.append(Laid(int(first), last, shape.use, shape.packed, kinds[room]))
            some = np.flatnonzero(steps.rooms[row])
            last, state = int(first), int(froms[i])
            room = int(some[least[last, some, state].argmin()])
        return laid[::-1]


def _equal(chain: Array, longer: Array, gpus: int) -> bool:
    return np.array_equal(chain[: gpus + 1], longer[: gpus + 1])


_WHOLE, _WHOLE_ENTRIES = 0.25, 4_000_000  # of states, and by layer and row of rooms
_MANY = 8  # times so many states are more than all, where some are looked up
_Flags = npt.NDArray[np.bool_]


class Steps(NamedTuple):
    """Stages, by what they use and by the row of rooms that they may begin in.

    Times in us by [place, last, first, stage]; the row and the room after each stage,
    by how much its GPUs raise the number of a state, and in which states they are there
    [stage, state]; the rooms of each row; by how much a GPU of each kind raises the
    number of a state, the GPUs of each [state, kind], and the place of a stage that
    goes on from a state.
    """

    us: Array
    before: Whole
    after: Whole
    raised: Whole
    there: _Flags
    rooms: _Flags
    strides: Whole
    use: Whole
    place: Whole

    @classmethod
    def of(
        cls,
        us: Array,
        before: Whole,
        after: Whole,
        rooms: _Flags,
        using: Sequence[tuple[int, ...]],
        sides: tuple[int, ...],
    ) -> "Steps":
        """Stages that are `using` so many GPUs; `sides` are of a table of states.

        Where there are several places, the last number of a state is its place.
        """
        strides = np.ones(len(sides), np.int64)
        strides[:-1] = np.cumprod(sides[:0:-1])[::-1]
        states = np.indices(sides).reshape(len(sides), -1)
        use = np.array(using, np.int64).reshape(len(using), len(sides))
        whole = np.array(sides)[:, None]
        there = np.array([(states + u[:, None] < whole).all(0) for u in use], np.bool_)
        place = np.minimum(states[-1], len(us) - 1)
        return cls(
            *(us, before, after, use @ strides, there, rooms, strides),
            np.ascontiguousarray(states.T),
            place,
        )


_Kernel = Callable[[Steps, float, Array, bool], Array]


@cache
def compiled() -> _Kernel:
    """`number_by_number` for this machine where a compiler is, or `plainly`."""
    return compiling.compiled(number_by_number, plainly, least_used, lower)


@cache
def compiled_whole() -> _Kernel:
    """`all_numbers` for this machine where a compiler is, or `plainly`."""
    return compiling.compiled(all_numbers, plainly, lowest, gone_on)


def plainly(steps: Steps, slowest_us: float, most_us: Array, every: bool) -> Array:
    """Least sums by layers that are held, room and state, by numpy.

    They are up to the most of each state; of all numbers of layers if `every`, or of
    the last alone. Of states that use more and take no less than another, any sum may
    be given.
    """
    us, before, after, raised, there, rooms, _, _, place = steps
    layers, states = us.shape[2], there.shape[1]
    least: Array = np.full((layers + 1, rooms.shape[1], states), np.inf)
    rows = np.full((layers + 1, len(rooms), states), np.inf)
    least[0, 0, 0] = 0.0
    rows[0, rooms[:, 0], 0] = 0.0
    for last in range(1, layers + 1):
        for here, stage in np.ndindex(len(us), len(before)):
            firsts = np.flatnonzero(us[here, last, :, stage] <= slowest_us)
            froms = np.flatnonzero(there[stage] & (place == here))
            if len(firsts) and len(froms):
                sums = rows[firsts, before[stage]][:, froms]
                found = (sums + us[here, last, firsts, stage][:, None]).min(0)
                tos = froms + raised[stage]
                found[found > most_us[tos]] = np.inf
                into = least[last, after[stage]]
                into[tos] = np.minimum(into[tos], found)
        for row, each in enumerate(rooms):
            rows[last, row] = least[last, each].min(0)
    return least if every else least[-1:]


def number_by_number(
    steps: Steps, slowest_us: float, most_us: Array, every: bool
) -> Array:
    """The same for a compiler; it goes on only from what is better than with less."""
    us, before, after, raised, there, rooms, strides, use, place = steps
    places, layers, states = us.shape[0], us.shape[2], there.shape[1]
    many = rooms.shape[0]
    # What is gone on from, by layer, row of rooms and place: a part of one list each.
    kept, sums = np.zeros(states, np.int64), np.zeros(states)
    begin = np.zeros((layers, many, places), np.int64)
    end = np.zeros((layers, many, places), np.int64)
    for row in range(many):
        end[0, row, place[0]] = rooms[row, 0]
    told = np.full((layers + 1 if every else 1, rooms.shape[1], states), np.inf)
    told[0, 0, 0] = 0.0
    reached = np.zeros((rooms.shape[1], states), np.int64)
    number = np.zeros(rooms.shape[1], np.int64)  # of states that are reached
    own, some = np.full(states, np.inf), np.zeros(states, np.int64)
    last_kept = 1
    for last in range(1, layers + 1):
        least = told[last if every else 0]
        least[:] = np.inf
        for first in range(last):
            for stage in range(len(before)):
                row, into = before[stage], least[after[stage]]
                for here in range(places):
                    more = us[here, last, first, stage]
                    if more > slowest_us:
                        continue
                    part = slice(begin[first, row, here], end[first, row, here])
                    able, rise = there[stage], raised[stage]
                    lower(into, most_us, kept[part], sums[part], able, rise, more)
        if last == layers:
            break
        number[:] = 0
        for room in range(len(number)):
            for state in range(states):
                if least[room, state] < np.inf:
                    reached[room, number[room]] = state
                    number[room] += 1
        for row in range(many):
            size = 0
            for room in range(len(number)):
                if rooms[row, room]:
                    for state in reached[room, : number[room]]:
                        if own[state] == np.inf:
                            some[size] = state
                            size += 1
                        own[state] = min(own[state], least[room, state])
            if last_kept + size > len(kept):
                kept = np.concatenate((kept, np.zeros(len(kept) + size, np.int64)))
                sums = np.concatenate((sums, np.zeros(len(sums) + size)))
            better = least_used(own, some[:size], use, strides)
            for here in range(places):
                begin[last, row, here] = last_kept
                for state in better:
                    if place[state] == here:
                        kept[last_kept], sums[last_kept] = state, own[state]
                        last_kept += 1
                end[last, row, here] = last_kept
            own[some[:size]] = np.inf
    return told


def lower(
    into: Array,
    most_us: Array,
    froms: Whole,
    sums: Array,
    able: _Flags,
    rise: int,
    more: float,
) -> None:
    """Lower sums by a stage that goes on from some states, where it is able to."""
    for i in range(len(froms)):
        found, to = sums[i] + more, froms[i] + rise
        if able[froms[i]] and found <= most_us[to]:
            into[to] = min(into[to], found)


def least_used(own: Array, some: Whole, use: Whole, strides: Whole) -> Whole:
    """Those of some states that are better than all of them that use less.

    `own` are their sums by state, infinite for all others; `use` and `strides` are as
    in `Steps`. States that use less come before those that use more.
    """
    states, kinds = use.shape
    found, size = np.zeros(len(some), np.int64), 0
    if _MANY * len(some) > states:
        lowest = np.zeros(states)  # of states that use no more
        for state in range(states):
            low = np.inf
            for kind in range(kinds):
                if use[state, kind]:
                    low = min(low, lowest[state - strides[kind]])
            lowest[state] = min(own[state], low)
            if own[state] < low:
                found[size] = state
                size += 1
        return found[:size]
    for state in np.sort(some):
        better = True
        for i in range(size):
            if better and own[found[i]] <= own[state]:
                less = True
                for kind in range(kinds):
                    less = less and use[found[i], kind] <= use[state, kind]
                better = not less
        if better:
            found[size] = state
            size += 1
    return found[:size]


def all_numbers(steps: Steps, slowest_us: float, most_us: Array, every: bool) -> Array:
    """The same where stages have one place, with all states beside each other.

    What is beyond the most is looked at, too, and nothing is told apart: processors add
    several numbers at once where these are neighbours.
    """
    us, before, after, raised, there, rooms, _, _, _ = steps
    layers, states, many = us.shape[2], there.shape[1], rooms.shape[0]
    sums = np.full((many, layers, states), np.inf)
    reached = np.zeros((many, layers, 2), np.int64)  # of the states, from and to
    for row in range(many):
        if rooms[row, 0]:
            sums[row, 0, 0], reached[row, 0, 1] = 0.0, 1
    told = np.full((layers + 1 if every else 1, rooms.shape[1], states), np.inf)
    told[0, 0, 0] = 0.0
    best = np.full(states, np.inf)
    for last in range(1, layers + 1):
        least = told[last if every else 0]
        least[:] = np.inf
        for stage in range(len(before)):
            row, rise = before[stage], raised[stage]
            times, some = us[0, last, :last, stage], best[: states - rise]
            low, high = lowest(some, sums[row], reached[row], times, slowest_us)
            into = least[after[stage], low + rise : high + rise]
            able, some = there[stage, low:high], best[low:high]
            for i in range(len(into)):
                found = some[i] if able[i] else np.inf
                into[i] = found if found < into[i] else into[i]
                some[i] = np.inf
        for room in range(len(least)):
            for state in range(states):
                if least[room, state] > most_us[state]:
                    least[room, state] = np.inf
        if last < layers:
            gone_on(sums, reached, least, rooms, last)
    return told


def lowest(
    best: Array, sums: Array, reached: Whole, us: Array, slowest_us: float
) -> tuple[int, int]:
    """Lower what is best by stages that go on from some layers: from and to where.

    Two layers at a time, and without branches: so it is done for several states at
    once.
    """
    low, high, other = len(best), 0, -1
    for first in range(len(us)):
        begin, end = reached[first]
        if us[first] > slowest_us or begin >= min(end, len(best)):
            continue
        low, high = min(low, begin), max(high, min(end, len(best)))
        if other < 0:
            other = first
            continue
        begin = min(begin, reached[other, 0])
        end = min(max(end, reached[other, 1]), len(best))
        us_a, us_b, into = us[other], us[first], best[begin:end]
        sums_a, sums_b = sums[other, begin:end], sums[first, begin:end]
        for i in range(len(into)):
            one, two = sums_a[i] + us_a, sums_b[i] + us_b
            found = one if one < two else two
            into[i] = found if found < into[i] else into[i]
        other = -1
    if other >= 0:
        begin, end = reached[other, 0], min(reached[other, 1], len(best))
        us_a, into, sums_a = us[other], best[begin:end], sums[other, begin:end]
        for i in range(len(into)):
            found = sums_a[i] + us_a
            into[i] = found if found < into[i] else into[i]
    return min(low, high), high


def gone_on(
    sums: Array, reached: Whole, least: Array, rooms: _Flags, layer: int
) -> None:
    """What stages go on from behind a layer, by row of rooms."""
    states = least.shape[1]
    for row in range(len(rooms)):
        into = sums[row, layer]
        for room in range(len(least)):
            if rooms[row, room]:
                for state in range(states):
                    found = least[room, state]
                    into[state] = found if found < into[state] else into[state]
        low, high = states, 0
        for state in range(states):
            if into[state] < np.inf:
                low, high = min(low, state), state + 1
        reached[row, layer] = low, high
