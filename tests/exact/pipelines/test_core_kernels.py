"""The compiled core refuses tables of another kind, shape or range."""

import numpy as np
import pytest
from random_graphs import potentials, random_graph

from hetopt import _kernels
from hetopt.exact.pipelines import kernels
from hetopt.exact.pipelines.kernels import States


def _asked():
    """What `repeated` takes: two ways, three layers, one front of each."""
    one, front = np.ones(2, np.int64), np.zeros((2, 4, 1), np.int64)
    return [1, one, one.copy(), front, front.copy(), np.zeros((2, 2, 4), np.int64)]


@pytest.mark.parametrize(
    ("which", "wrong", "error"),
    [
        (3, np.zeros((2, 4, 1)), TypeError),  # floats
        (3, np.zeros((2, 4, 1), np.int32), TypeError),
        (3, np.zeros((2, 5, 1), np.int64), ValueError),
        (3, np.zeros((2, 4), np.int64), ValueError),
        (4, np.zeros((3, 4, 1), np.int64), ValueError),
        (4, "text", TypeError),
        (0, 1.5, TypeError),
        (0, 1 << 70, OverflowError),
        (5, np.zeros((2, 4, 2), np.int64).swapaxes(1, 2), (ValueError, BufferError)),
        (5, b"16 x 8 bytes" * 8, BufferError),
    ],
)
def test_tables_of_another_kind_or_shape_are_refused(which, wrong, error):
    asked = _asked()
    with pytest.raises(TypeError, match="another number"):
        _kernels.core.repeated(*asked[:-1])
    _kernels.core.repeated(*asked)
    asked[which] = wrong
    with pytest.raises(error):
        _kernels.core.repeated(*asked)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("begin", 99), ("begin", -1), ("gpus", 0), ("gpus", 99), ("fits", 99)),
        *(("light", -1), ("node_gpus", 99), ("state", 1 << 40)),
        *(("run", 10**6), ("run", -1)),
    ],
)
def test_entries_outside_of_tables_are_refused(name, value):
    seed = 0
    while True:
        graph, costs = random_graph(np.random.default_rng(seed))
        if len(graph.gpus) and costs.front_us.size:
            break
        seed += 1
    kept = potentials(graph, 1)
    one = np.ones(1, np.int64)
    kernels.least(graph, costs, one, one, 1, kept)
    changed = getattr(graph, name).copy()
    changed[:] = value
    with pytest.raises(ValueError, match="outside"):
        kernels.least(graph._replace(**{name: changed}), costs, one, one, 1, kept)


def test_states_that_are_no_mixtures_of_gpus_are_refused():
    states = States.of((2, 1))
    one = np.zeros(len(states.use), np.int64)
    kernels.most_taken(one, states, 1, 2)
    wrong = states.use[::-1].copy(), states.use + 1, np.zeros_like(states.use)
    for use in wrong:
        with pytest.raises(ValueError, match="outside"):
            kernels.most_taken(one, states._replace(use=use), 1, 2)
    with pytest.raises(ValueError, match="outside"):
        kernels.most_taken(
            one, states._replace(strides=states.strides[::-1].copy()), 1, 2
        )
