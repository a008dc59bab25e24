"""Shortest paths over stages, all intervals at once, by the compiled core.

A path goes through the layers from the last to the first. A *suffix* of it begins at a
layer `l`. It is in one of these states:

    one node             its first stage lies in one node
    several              its first stage lies in several nodes
    state[c, k] + u      its first stages use u GPUs of a node of class c, of which the
                         pipeline uses k in all

The least costs of suffixes by state are the *potentials*, by [state, l]: of one
node first, then of `several`, then of chains of stages in a node. All costs are clamped
to `MOST`, which may only lower them; a sum at or above `HALF` stands for "none".
No path is worth as much, whatever goes before: `Pricing.most_prices` sees to it. Times
of runs that begin at one layer must not fall as runs grow, but at the last layer.

Least times by the GPUs that a pipeline uses of each class (`labels`) go the other way.
A label stands between two stages: the next layer, and the GPUs used so far of each
class, as one number, the *state*. It keeps the least time and the least cost of what
lies before it, each by itself. Labels go from the first layer on. What a pipeline does
in one node is one step, a *segment*.

A stage hands on by links of a node where the next one has GPUs of that node, too, and
by others where it has none. Both in one node are in one segment. Else one of both is a
stage in several nodes: it has a GPU or more of the node, and the other stage no more
than the rest. So a label has a *side*, which says where the next stage is. With C
classes:

    0            in one node
    1            in several nodes
    2 + c        in one node of class c, which the stage before has GPUs of
    2 + C + c    in several, one of which is of class c and the stage before is there
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._kernels import core
from ...stages.classes import Whole

BIG, HALF, MOST = 1 << 60, 1 << 58, 1 << 55


def compiled(name: str, *given: object) -> None:
    """Run a kernel of the core, which is given the parts of tuples one by one.

    Tables that are filled in come last and are contiguous; others are made so.
    """
    getattr(core, name)(*_parts(given))


def filled(name: str, shape: tuple[int, ...], *given: object) -> Whole:
    """Return a table of a shape that a kernel fills in, as its last one."""
    found = np.empty(shape, np.int64)
    compiled(name, *given, found)
    return found


def _parts(given: tuple[object, ...]) -> Iterator[Any]:
    for one in given:
        if isinstance(one, tuple):
            yield from _parts(one)
        elif isinstance(one, np.ndarray) and not one.flags.c_contiguous:
            # Only what is read may be copied: the core refuses to write to this one.
            copied = np.ascontiguousarray(one)
            copied.flags.writeable = False
            yield copied
        else:
            yield one


class Graph(NamedTuple):
    """Arcs of one size of micro-batches in one box, as kernels read them.

    Arcs of class c are `begin[c]` to `begin[c + 1] - 1`, in ascending order of `gpus`.
    Times in us are by [arc, first, last]: `inner` where the next stage lies in the
    same node, `outer` where it lies in another one. `fits[arc, first]` is where the
    longest run ends that fits, `light[arc, k, first]` the longest that is light enough
    where the pipeline uses k GPUs of the node. `state[c, k] + u` numbers the states
    with u of k GPUs left: where k makes no difference, those of all k are the same.
    """

    begin: Whole
    gpus: Whole
    inner: Whole
    outer: Whole
    fits: Whole
    light: Whole
    node_gpus: Whole
    state: Whole
    run: Whole  # [first, last]


class Costs(NamedTuple):
    """A graph at prices.

    A path costs `time` for each us, and for each us of the slowest stage what its GPUs
    and arcs cost: `gpu[c]`, `arc[arc, k, first, last]`. Stages in several nodes have
    fronts of times in us and least costs, by [run, i], ascending times.
    """

    time: int
    gpu: Whole
    arc: Whole
    front_us: Whole
    front_cost: Whole


def least(
    graph: Graph, costs: Costs, lows: Whole, highs: Whole, scale: int, kept: Whole
) -> Whole:
    """Return the least cost of a path, by interval of the slowest stage.

    No stage takes more than `highs[g]`; prices count `scale * lows[g]` times.
    Potentials are `kept`, by [interval, state, l], where it has so many entries.
    """
    return filled("least", lows.shape, graph, costs, lows, highs, scale, kept)


# --- pipelines by the GPUs that they use ----------------------------------------------


class States(NamedTuple):
    """GPUs used of each class, by number, and stages in several nodes.

    `use` is by [state, class]; a GPU of class c raises the number by `strides[c]`. Such
    stages use `vectors` of GPUs, by [vector, class], and take `vector_us` by [exit,
    run, vector] (`NEVER` where others do as well) for prices of `vector_cost` or more,
    by [run, vector]. Exit 0 is to a stage in no node of theirs, exit 1 + c to one that
    shares a node of class c with them.
    """

    gpus: Whole
    use: Whole
    strides: Whole
    vectors: Whole
    vector_us: Whole
    vector_cost: Whole

    @classmethod
    def of(cls, gpus: Sequence[int]) -> "States":
        """Number the states of so many GPUs by class; no stage is in several nodes."""
        most = np.array(gpus, np.int64)
        sides = most + 1
        use = np.indices(sides.tolist()).reshape(len(sides), -1).T
        strides = np.ones(len(sides), np.int64)
        strides[:-1] = np.cumprod(sides[:0:-1])[::-1]
        none, empty = np.zeros((0, len(sides)), np.int64), np.zeros((1, 0), np.int64)
        states = np.ascontiguousarray(use, np.int64)
        return cls(most, states, strides, none, empty[None], empty)


def most_taken(
    one: Whole, states: States, fewest: int, most: int
) -> tuple[Whole, Whole]:
    """Return what pipelines take together, by their number and the GPUs that there are.

    `one` are the sequences of one pipeline by the GPUs that it uses, 0 where there is
    none. Of 0 to `most` pipelines, -1 where there are too few GPUs; and the most of
    `fewest` - 1 to `most` - 1 of them.
    """
    exactly = np.empty((most + 1, len(one)), np.int64)
    others = np.empty(len(one), np.int64)
    compiled("most_taken", one, states, fewest, most, exactly, others)
    return exactly, others
