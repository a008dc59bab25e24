"""Loops of single pipelines, in the compiled core.

What is in no cell, or behind no cut, is `BIG`.
"""

from typing import NamedTuple

import numpy as np

from ..._kernels import core
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


def below(
    options: Array, columns: Columns, paid: Array, through: Array, limit: int
) -> Array:
    """Return the options that some path of at most `limit` goes through.

    `through` is by cell, what all of a path but the option takes.
    """
    cell, us, pattern = (column[options] for column in columns[:3])
    chosen: Array = options[us + paid[pattern] + through[cell] <= limit]
    return chosen


# --- shortest paths over the layers --------------------------------------------------


class Paths(NamedTuple):
    """Least prices over some options.

    `shared` and `apart` [last, first, kind] are of the least priced option of a cell,
    with a node in common with the stage behind, and without; `through` is what the rest
    of a path takes. `value` [cut, state] is of the layers before each cut, by the state
    behind it.
    """

    shared: Array
    apart: Array
    value: Array
    through: Array


def paths(
    options: Array,
    columns: Columns,
    paid: Array,
    slowest: int,
    moves: Moves,
    layers: int,
) -> Paths:
    """Return shortest paths over some options, by number.

    `paid` is the price of each pattern's GPUs. No stage is slower than `slowest` with
    its least hop.
    """
    side, states = layers + 1, moves.shared.shape[1]
    shape = side, side, len(moves.starts) - 1
    one, two, through = np.full((3, *shape), BIG, np.int64)
    value = np.full((side, states), BIG, np.int64)
    core.paths(
        *(options, *columns[:3], paid, *columns[3:], slowest),
        *(*moves[:4], one, two, value, through),
    )
    return Paths(one, two, value, through)


def onto(found: Paths, moves: Moves, last: int) -> tuple[Array, Array]:
    """Return the least price of each pair's stage that ends at `last`, with all before.

    With a node in common with the stage behind, and without.
    """
    before = found.value[:last, moves.state]
    one = found.shared[last, :last][:, moves.kind] + before
    two = found.apart[last, :last][:, moves.kind] + before
    return one.min(axis=0), two.min(axis=0)


# --- what is before a cut, by the GPUs left -----------------------------------------


def completed_by_count(steps: Steps, moves: Moves, wanted: Flags, gpus: Array) -> Array:
    """Return the least time before each cut, by state and by GPUs left.

    Of the shape [cut, state, GPUs of the first class, of the second...]. Behind cuts
    `wanted` [cut, state] says which states may follow.
    """
    sides = [int(n) + 1 for n in gpus]
    left = np.full((*wanted.shape, *sides), BIG, np.int64)
    left[0] = 0
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
