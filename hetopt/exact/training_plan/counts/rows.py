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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from .replicas import Array, Runs, Whole
from .stages import Stages


@dataclass(frozen=True)
class _Shape:
    """Stages that use the same GPUs, in one of some rooms: times in us by run."""

    use: tuple[int, ...]
    before: tuple[int, ...]
    after: int
    us: Array


class Rows:
    """Rows of stages under one limit on synchronisation, for any bottleneck."""

    def __init__(self, stages: Stages, runs: Runs, gpus: Sequence[int]) -> None:
        """`gpus` are of each kind, all its nodes together."""
        self._sides = tuple(g + 1 for g in gpus)
        self._rooms = [(0, 0)]  # kind, GPUs left; the first is none
        self._rooms += [
            (kind, left)
            for kind, us in enumerate(stages.away)
            for left in range(1, len(us) - 1)
        ]
        shapes = [*self._packed(stages), *self._spread(stages)]
        shapes = [shape for shape in shapes if np.isfinite(shape.us).any()]
        every = (*stages.within, *stages.away, *stages.spread)
        times = np.unique(np.concatenate([us.ravel() for us in every]))
        #: All times of stages, in ascending order.
        self.times = times[np.isfinite(times)]
        self._steps = self._numbered(sorted(shapes, key=lambda x: x.before), runs)

    @property
    def nbytes(self) -> int:
        """Memory of the tables."""
        return sum(table.nbytes for table in self._steps)

    def _packed(self, stages: Stages) -> Iterator[_Shape]:
        """Stages in one node, which they begin or go on in."""
        number = {room: i for i, room in enumerate(self._rooms)}
        for kind, (within, away) in enumerate(
            zip(stages.within, stages.away, strict=True)
        ):
            whole = len(away) - 1
            rooms = [(left, i) for (c, left), i in number.items() if c == kind and left]
            rooms = [(whole, 0), *rooms]
            for k in range(1, whole + 1):
                use = tuple(k if c == kind else 0 for c in range(len(stages.away)))
                befores = tuple(i for left, i in rooms if left >= k)
                yield _Shape(use, befores, 0, away[k])
                for left, before in rooms:
                    if left > k:
                        after = number[kind, left - k]
                        yield _Shape(use, (before,), after, within[k])

    def _spread(self, stages: Stages) -> Iterator[_Shape]:
        """Stages in several nodes, of which the one is that they must begin in."""
        number = {room: i for i, room in enumerate(self._rooms)}
        whole = [len(away) - 1 for away in stages.away]
        for kind, tables in enumerate(stages.spread, -1):
            for use in np.ndindex(tables.shape[:-1]):
                rooms = tuple(
                    i for i, (c, left) in enumerate(self._rooms) if not left or use[c]
                )
                if kind < 0:
                    yield _Shape(use, rooms, 0, tables[use])
                elif use[kind] and whole[kind] > 1:
                    after = number[kind, whole[kind] - 1]
                    yield _Shape(use, rooms, after, tables[use])

    def _numbered(self, shapes: list[_Shape], runs: Runs) -> "_Steps":
        us = np.full((runs.layers + 1, runs.layers, len(shapes)), np.inf)
        for i, shape in enumerate(shapes):
            us[runs.last, runs.first, i] = shape.us
        # Several rooms before a stage are looked at as one: the least of them.
        befores = sorted({shape.before for shape in shapes})
        rooms = np.zeros((len(befores), len(self._rooms)), np.bool_)
        for row, each in zip(rooms, befores, strict=True):
            row[list(each)] = True
        number = {before: i for i, before in enumerate(befores)}
        strides = np.ones(len(self._sides), np.int64)
        strides[:-1] = np.cumprod(self._sides[:0:-1])[::-1]
        states = np.indices(self._sides).reshape(len(self._sides), -1)
        use = np.array([shape.use for shape in shapes], np.int64)
        use = use.reshape(len(shapes), len(self._sides))
        sides = np.array(self._sides)[:, None]
        return _Steps(
            us,
            np.array([number[shape.before] for shape in shapes], np.int64),
            np.array([shape.after for shape in shapes], np.int64),
            use @ strides,
            np.array([(states + u[:, None] < sides).all(0) for u in use], np.bool_),
            rooms,
            strides,
            states > 0,
        )

    def least(self, slowest_us: float, most_us: float) -> Array:
        """Least sums of the stage times of all layers, by GPUs at most of each kind.

        No stage is slower than `slowest_us`; infinite beyond `most_us`.
        """
        if not self._steps.us.size:
            return np.full(self._sides, np.inf)
        least = compiled()(*self._steps, slowest_us, most_us)
        found: Array = least.reshape(self._sides)
        for axis in range(found.ndim):
            np.minimum.accumulate(found, axis, out=found)
        return found


_Flags = npt.NDArray[np.bool_]


class _Steps(NamedTuple):
    """Stages, by what they use and by the row of rooms that they may begin in.

    Times in us by [last, first, stage]; the row and the room after each stage, by how
    much its GPUs raise the number of a state, and in which states they are there
    [stage, state]; the rooms of each row; by how much a GPU of each kind raises the
    number of a state, and which states have one [kind, state].
    """

    us: Array
    before: Whole
    after: Whole
    raised: Whole
    there: _Flags
    rooms: _Flags
    strides: Whole
    some: _Flags


_Kernel = Callable[
    [Array, Whole, Whole, Whole, _Flags, _Flags, Whole, _Flags, float, float], Array
]


@cache
def compiled() -> _Kernel:
    """`number_by_number` for this machine where a compiler is, or `plainly`."""
    # Plans that need no proof need not wait for its import.
    try:
        from numba import njit
    except ImportError:
        return plainly
    kernel: _Kernel = njit(cache=True, nogil=True)(number_by_number)
    return kernel


def plainly(
    us: Array,
    before: Whole,
    after: Whole,
    raised: Whole,
    there: _Flags,
    rooms: _Flags,
    strides: Whole,
    some: _Flags,
    slowest_us: float,
    most_us: float,
) -> Array:
    """Least sums by state, with no room left open; by numpy.

    Of states that use more and take no less than another, any sum may be given.
    """
    layers, states = us.shape[1], there.shape[1]
    least: Array = np.full((layers + 1, rooms.shape[1], states), np.inf)
    rows = np.full((layers + 1, len(rooms), states), np.inf)
    least[0, 0, 0] = 0.0
    rows[0, rooms[:, 0], 0] = 0.0
    for last in range(1, layers + 1):
        for stage in range(len(before)):
            firsts = np.flatnonzero(us[last, :, stage] <= slowest_us)
            if len(firsts):
                froms = np.flatnonzero(there[stage])
                sums = rows[firsts, before[stage]][:, froms]
                found = (sums + us[last, firsts, stage][:, None]).min(0)
                found[found > most_us] = np.inf
                into = least[last, after[stage]]
                tos = froms + raised[stage]
                into[tos] = np.minimum(into[tos], found)
        for row, each in enumerate(rooms):
            rows[last, row] = least[last, each].min(0)
    done: Array = least[layers, 0]
    return done


def number_by_number(
    us: Array,
    before: Whole,
    after: Whole,
    raised: Whole,
    there: _Flags,
    rooms: _Flags,
    strides: Whole,
    some: _Flags,
    slowest_us: float,
    most_us: float,
) -> Array:
    """The same for a compiler; it goes on only from what is better than with less."""
    layers, states = us.shape[1], there.shape[1]
    many, kinds = rooms.shape[0], len(strides)
    kept = np.zeros((layers, many, states), np.int64)
    sums = np.zeros((layers, many, states))
    number = np.zeros((layers, many), np.int64)
    for row in range(many):
        number[0, row] = rooms[row, 0]
    least = np.full((rooms.shape[1], states), np.inf)
    lowest = np.zeros(states)
    for last in range(1, layers + 1):
        least[:] = np.inf
        for first in range(last):
            for stage in range(len(before)):
                more = us[last, first, stage]
                if more > slowest_us:
                    continue
                row, room = before[stage], after[stage]
                for i in range(number[first, row]):
                    state = kept[first, row, i]
                    found = sums[first, row, i] + more
                    if there[stage, state] and found <= most_us:
                        to = state + raised[stage]
                        least[room, to] = min(least[room, to], found)
        if last == layers:
            break
        for row in range(many):
            for state in range(states):
                low = np.inf  # of states with one GPU less
                for kind in range(kinds):
                    if some[kind, state]:
                        low = min(low, lowest[state - strides[kind]])
                own = np.inf
                for room in range(rooms.shape[1]):
                    if rooms[row, room]:
                        own = min(own, least[room, state])
                if own < low:
                    i = number[last, row]
                    kept[last, row, i], sums[last, row, i] = state, own
                    number[last, row] = i + 1
                lowest[state] = min(own, low)
    done: Array = least[0]
    return done
