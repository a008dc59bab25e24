"""Loops of single pipelines: what they stand for."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hetopt.exact.one_pipeline import completion
from hetopt.exact.one_pipeline.cluster_tables import BIG
from hetopt.exact.one_pipeline.options import pattern_us
from hetopt.exact.one_pipeline.prices import Moves
from hetopt.exact.one_pipeline.stages import least_us

SEEDS = st.integers(0, 2**32)


def some(rng, shape, missing=0.3, most=30):
    found = rng.integers(1, most, shape)
    found[rng.random(shape) < missing] = BIG
    return found


def drawn_moves(rng):
    kinds, states = rng.integers(1, 4, 2)
    each = rng.integers(1, 4, kinds)
    kind = np.repeat(np.arange(kinds), each)
    shape = len(kind), states + 1
    starts = np.searchsorted(kind, np.arange(kinds + 1))
    return Moves(
        kind,
        rng.integers(1, shape[1], shape[0]),
        some(rng, shape),
        some(rng, shape),
        starts,
    )


def drawn_steps(rng, moves):
    layers, count = int(rng.integers(1, 4)), int(rng.integers(0, 9))
    gpus = rng.integers(1, 4, rng.integers(1, 4))
    last = np.sort(rng.integers(1, layers + 1, count))
    use = np.minimum(rng.integers(0, 3, (count, len(gpus))), gpus)
    use[use.sum(axis=1) == 0, 0] = 1
    steps = completion.Steps(
        last,
        (last * rng.random(count)).astype(np.int64),
        rng.integers(0, len(moves.starts) - 1, count),
        rng.integers(1, 30, count),
        use,
        *(rng.random((2, count)) < 0.7),
    )
    wanted = np.ones((layers + 1, moves.shared.shape[1]), bool)
    return steps, wanted, gpus


@given(SEEDS)
def test_a_patterns_time_is_that_of_the_best_shares(seed):
    rng = np.random.default_rng(seed)
    classes, b = rng.integers(1, 4), int(rng.integers(1, 7))
    times = np.sort(some(rng, (classes, b), most=8), axis=1)
    replicas = rng.integers(0, 4, (5, classes))
    replicas[replicas.sum(axis=1) == 0, 0] = 1
    replicas = replicas[replicas.sum(axis=1) <= b]
    found = pattern_us(times, replicas).tolist()
    for counts, us in zip(replicas.tolist(), found, strict=True):
        assert us == least_us(times.tolist(), counts, b, b)


@given(SEEDS)
def test_completion_is_the_least_of_all_chains_within_the_gpus(seed):
    rng = np.random.default_rng(seed)
    moves = drawn_moves(rng)
    steps, wanted, gpus = drawn_steps(rng, moves)
    found = completion.completed_by_count(steps, moves, wanted, gpus)
    known = {}

    def least(cut, state, left):
        if cut == 0:
            return 0
        key = cut, state, left
        if key not in known:
            known[key] = min(onto(cut, state, left), default=BIG)
        return known[key]

    def onto(cut, state, left):
        for option in np.flatnonzero(steps.last == cut):
            after = tuple(a - u for a, u in zip(left, steps.use[option], strict=True))
            if min(after) < 0:
                continue
            for pair in np.flatnonzero(moves.kind == steps.kind[option]):
                before = least(int(steps.first[option]), int(moves.state[pair]), after)
                for able, hops in (
                    (steps.shared[option], moves.shared),
                    (steps.apart[option], moves.apart),
                ):
                    if able and hops[pair, state] < BIG and before < BIG:
                        yield before + int(steps.us[option]) + int(hops[pair, state])

    for at in np.ndindex(*found.shape):
        assert found[at] == least(at[0], at[1], at[2:])
