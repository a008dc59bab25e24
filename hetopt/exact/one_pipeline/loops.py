"""Loops of single pipelines: in the compiled core, or by numpy where it is not there.

Both give the same whole numbers. What is in no cell, or behind no cut, is `BIG`.
"""

from typing import NamedTuple

import numpy as np

from ... import _kernels
from .cluster_tables import BIG, Array, Flags


class Moves(NamedTuple):
    """Pairs of a kind with a state, sorted by kind, and what each takes to hand on.

    `starts` [kind + 1] says where the pairs of each kind begin, one or more; `shared`
    and `apart` [pair, state] are the hops to a stage in that state: with a node in
    common, and without.
    """

    kind: Array
    state: Array
    shared: Array
    apart: Array
    starts: Array


class Steps(NamedTuple):
    """Options by number, those of the first cuts first, and what their stages use.

    `use` [option, class] are GPUs; `shared` and `apart` say whether a stage may be so
    slow, with the least hop of either way.
    """

    last: Array
    first: Array
    kind: Array
    us: Array
    use: Array
    shared: Flags
    apart: Flags


# --- the least time of a pattern -----------------------------------------------------


def pattern_us(times: Array, replicas: Array, most: Array) -> Array:
    """Return the least time of each pattern [cap, pattern], `BIG` where it has none.

    `times` [class, samples - 1] do not fall as samples grow, to as many as all replicas
    take together; `replicas` [pattern, class] take no more than `most` [cap] each, and
    at least one.
    """
    core = _kernels.core
    if core is None:
        return pattern_us_by_numpy(times, replicas, most)
    found = np.empty((len(most), len(replicas)), np.int64)
    core.pattern_us(times, replicas, most, found)
    return found


def pattern_us_by_numpy(times: Array, replicas: Array, most: Array) -> Array:
    """Return what `pattern_us` does."""
    found = np.full((len(most), len(replicas)), BIG, np.int64)
    events = np.unique(times)
    events = events[events < BIG]
    if not len(events):
        return found
    # Samples that a replica of each class can take by each event.
    taken = np.stack([np.searchsorted(row, events, side="right") for row in times])
    lacking = ((replicas[:, :, None] > 0) & (taken == 0)).any(axis=1)
    for row, cap in zip(found, most, strict=True):
        sums = replicas @ np.minimum(taken, cap)
        enough = ~lacking & (sums >= times.shape[1])
        reached = enough.any(axis=1)
        row[reached] = events[enough.argmax(axis=1)][reached]
    return found


# --- options by cell -----------------------------------------------------------------


class Columns(NamedTuple):
    """Columns of all options: the cell and what a stage takes by itself, its pattern.

    A cell is the last layer, the first and the kind, as one number. `shared` and
    `apart` are the least times with a hop: with a node in common, and without.
    """

    cell: Array
    us: Array
    pattern: Array
    shared: Array
    apart: Array


def cells_us(
    options: Array, columns: Columns, paid: Array, slowest: int, count: int
) -> tuple[Array, Array]:
    """Return the least priced option of each of `count` cells, shared and apart.

    Of some `options`, by number; `paid` is the price of each pattern's GPUs. No stage
    is slower than `slowest` with its least hop.
    """
    one, two = np.empty((2, count), np.int64)
    core = _kernels.core
    if core is not None:
        core.cells_us(options, *columns[:3], paid, *columns[3:], slowest, one, two)
        return one, two
    one[:] = two[:] = BIG
    cell, us, pattern, *ways = (column[options] for column in columns)
    priced = us + paid[pattern]
    for found, least in zip((one, two), ways, strict=True):
        fits = least <= slowest
        np.minimum.at(found, cell[fits], priced[fits])
    return one, two


def below(
    options: Array, columns: Columns, paid: Array, through: Array, limit: int
) -> Array:
    """Return the options that some path of at most `limit` goes through.

    `through` is by cell, what all of a path but the option takes.
    """
    core = _kernels.core
    if core is None:
        cell, us, pattern = (column[options] for column in columns[:3])
        kept = us + paid[pattern] + through[cell] <= limit
    else:
        kept = np.empty(len(options), np.bool_)
        core.below(options, *columns[:3], paid, through, limit, kept)
    chosen: Array = options[kept]
    return chosen


# --- shortest paths over the layers --------------------------------------------------


def swept(shared: Array, apart: Array, moves: Moves) -> Array:
    """Return the least price of the layers before each cut, by the state behind it.

    `shared` and `apart` [last, first, kind] are the least priced options of cells.
    """
    value = np.full((len(shared), moves.shared.shape[1]), BIG, np.int64)
    value[0] = 0
    core = _kernels.core
    if core is None:
        _sweep_by_numpy(shared, apart, moves, value)
    else:
        core.swept(shared, apart, *moves[:4], value)
    return value


def _sweep_by_numpy(shared: Array, apart: Array, moves: Moves, value: Array) -> None:
    for last in range(1, len(shared)):
        one, two = onto(shared, apart, moves, value, last)
        least = np.minimum(
            (one[:, None] + moves.shared).min(axis=0),
            (two[:, None] + moves.apart).min(axis=0),
        )
        value[last] = np.minimum(least, BIG)


def onto(
    shared: Array, apart: Array, moves: Moves, value: Array, last: int
) -> tuple[Array, Array]:
    """Return the least price of each pair's stage that ends at `last`, with all before.

    With a node in common with the stage behind, and without.
    """
    before = value[:last, moves.state]
    one = shared[last, :last][:, moves.kind] + before
    two = apart[last, :last][:, moves.kind] + before
    return one.min(axis=0), two.min(axis=0)


def through(shared: Array, apart: Array, moves: Moves, value: Array) -> Array:
    """Return the least price of all but the option itself, for each cell.

    `value` is what `swept` returned for the same cells.
    """
    found = np.full(shared.shape, BIG, np.int64)
    core = _kernels.core
    if core is None:
        _go_by_numpy(shared, apart, moves, value, found)
    else:
        core.through(shared, apart, *moves[:4], value, found)
    return found


def _go_by_numpy(
    shared: Array, apart: Array, moves: Moves, value: Array, found: Array
) -> None:
    layers = len(shared) - 1
    after = np.full(value.shape, BIG, np.int64)  # by the first stage's state
    after[layers, 0] = 0
    order = np.argsort(moves.state, kind="stable")
    groups = np.flatnonzero(np.diff(moves.state[order], prepend=-1))
    states = moves.state[order][groups]
    for last in range(layers, 0, -1):
        one = np.minimum((moves.shared + after[last]).min(axis=1), BIG)
        two = np.minimum((moves.apart + after[last]).min(axis=1), BIG)
        rest = np.minimum(value[:last, moves.state] + np.minimum(one, two), BIG)
        found[last, :last] = np.minimum.reduceat(rest, moves.starts[:-1], axis=1)
        steps = np.minimum(
            shared[last, :last][:, moves.kind] + one,
            apart[last, :last][:, moves.kind] + two,
        )
        least = np.minimum.reduceat(steps[:, order], groups, axis=1)
        after[:last, states] = np.minimum(after[:last, states], least)


# --- what is before a cut, by the GPUs left -----------------------------------------


def completed_by_count(steps: Steps, moves: Moves, wanted: Flags, gpus: Array) -> Array:
    """Return the least time before each cut, by state and by GPUs left.

    Of the shape [cut, state, GPUs of the first class, of the second...]. Behind cuts
    `wanted` [cut, state] says which states may follow.
    """
    sides = [int(n) + 1 for n in gpus]
    left = np.full((*wanted.shape, *sides), BIG, np.int64)
    left[0] = 0
    core = _kernels.core
    if core is None:
        _complete_by_numpy(steps, moves, wanted, left)
        return left
    rows = np.indices((*sides[:-1], 1)).reshape(len(sides), -1).T
    strides = np.cumprod([1, *sides[:0:-1]])[::-1]
    core.completed_by_count(
        *steps,
        *(moves.starts, *moves[1:4], wanted),
        *(
            np.ascontiguousarray(rows, np.int64),
            np.ascontiguousarray(strides, np.int64),
        ),
        left.reshape(*wanted.shape, -1),
    )
    return left


def _complete_by_numpy(steps: Steps, moves: Moves, wanted: Flags, left: Array) -> None:
    for last in np.unique(steps.last):
        ends: dict[tuple[int, bool], Array] = {}
        for option in np.flatnonzero(steps.last == last):
            _lay(int(option), steps, moves, left, ends)
        for state in np.flatnonzero(wanted[last]):
            for (pair, joined), sums in ends.items():
                hop = (moves.shared if joined else moves.apart)[pair, state]
                if hop < BIG:
                    here = left[last, state]
                    np.minimum(here, sums + hop, out=here)


def _lay(
    option: int,
    steps: Steps,
    moves: Moves,
    left: Array,
    ends: dict[tuple[int, bool], Array],
) -> None:
    """Lay one option before all that it can follow, merged by pair."""
    use, kind = steps.use[option], steps.kind[option]
    here = tuple(slice(int(u), None) for u in use)
    there = tuple(
        slice(0, side - int(u)) for side, u in zip(left.shape[2:], use, strict=True)
    )
    for pair in range(moves.starts[kind], moves.starts[kind + 1]):
        before = left[steps.first[option], moves.state[pair]][there] + steps.us[option]
        for joined in (True, False):
            if (steps.shared if joined else steps.apart)[option]:
                key = (int(pair), joined)
                if key not in ends:
                    ends[key] = np.full(left.shape[2:], BIG, np.int64)
                np.minimum(ends[key][here], before, out=ends[key][here])
