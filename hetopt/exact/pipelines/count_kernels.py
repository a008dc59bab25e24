"""Least times of pipelines by the GPUs that they use of each class.

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

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...stages.classes import Whole
from .kernels import Costs, Graph, compiled


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


class Least(NamedTuple):
    """The least that a suffix takes, and costs, by first layer.

    It begins with a stage in one node, in several, or within a node: the potentials of
    `kernels`.
    """

    node_us: Whole
    across_us: Whole
    chain_us: Whole
    node_cost: Whole
    across_cost: Whole
    chain_cost: Whole


def labels(
    graph: Graph,
    costs: Costs,
    states: States,
    least: Least,
    high: int,
    scale: int,
    most_us: Whole,
    most_cost: int,
) -> Whole:
    """Return the least sums of stages up to a label: [side, next layer, state].

    Whole paths are those of side 0 behind the last layer. No stage takes more than
    `high`. Paths are left out that cost more than `most_cost`, or take longer than
    `most_us`, which is by state and not more for more GPUs. A path may also be left out
    where one of fewer GPUs takes no more time.
    """
    sides = 2 + 2 * len(states.gpus) if len(states.vectors) else 1
    shape = sides, graph.run.shape[0], len(most_us)
    us = np.empty(shape, np.int64)
    compiled("labels", graph, costs, states, least, high, scale, most_us, most_cost, us)
    return us


def vector_us(
    us: Whole,
    items: Whole,
    nodes: Whole,
    states: States,
    size: int,
    wanted: NDArray[np.bool_],
    found: Whole,
) -> None:
    """Fill in the least times of stages in several nodes, by the GPUs of replicas.

    They are `found` by [least degree, run, state], for the degrees and runs that are
    `wanted`, by [degree, run]; `NEVER` where fewer GPUs of the same classes do as well.
    Times `us` of replicas are by [run, replica], and `items` are their class, GPUs
    and samples. From one time to the next, the samples are known that the GPUs of each
    class take within it.
    """
    compiled("vector_us", us, items, nodes, states, size, wanted, found)


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
