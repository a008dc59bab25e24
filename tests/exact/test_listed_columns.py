"""Columns that are listed: none is left out that a packing of the batch may hold."""

import numpy as np
from brute_force_training import best_training_plan
from hypothesis import assume, given
from hypothesis import strategies as st
from inputs import drawn, examples
from places import TESTS
from test_exact_small_clusters import several, tiny

import hetopt
from hetopt.exact.enumeration import is_small, listing
from hetopt.exact.enumeration.columns import Column
from hetopt.exact.enumeration.completion import Limits
from hetopt.exact.enumeration.packings import lasting, tightened
from hetopt.exact.enumeration.stages import StageTables
from hetopt.exact.pipelines.kernels import States

LONG = 1 << 40  # us


@examples(15)
@given(st.one_of(drawn(tiny), drawn(several)), st.floats(1.0, 1.5))
def test_limits_leave_every_column_of_a_packing(instance, factor):
    assume(is_small(instance))
    leave_every_column(instance, factor)


def test_limits_leave_columns_whose_transfers_take_longest():
    path = TESTS / "exact" / "slow_transfers.json"
    leave_every_column(hetopt.load(path), 1.0)


class Ample(Limits):
    """Every column of some stages is within these limits."""

    def __init__(self, tables):
        states = States.of(tables.gpus)
        self.strides, self.highs = states.strides, np.array([LONG])
        self.whole = np.full((2, len(states.use)), LONG)
        self._suffix = np.full((2, len(tables.pools) + 1, tables.layers + 1), LONG)

    def suffix(self, state):
        return self._suffix


def nothing():
    """Nothing ends it."""


def leave_every_column(instance, factor):
    """What is listed within limits is what the knapsack of all columns leaves."""
    tables = StageTables(instance)
    best = best_training_plan(
        instance, several_replicas=max(instance.workload.micro_batch_sizes) > 1
    )
    if best is None:
        return
    us = int(best[0] * factor)
    gpus, every = sum(tables.gpus), list[Column]()
    sizes = {b for b in instance.workload.micro_batch_sizes if b <= tables.batch}
    replicas = {size: min(size, gpus) for size in sizes}
    for size, most in replicas.items():
        if stages := [*tables.stages(size, most)]:
            found = listing.Listing(tables, size, Ample(tables), nothing)
            every += found.columns(stages)
    counts = 1, min(gpus, tables.batch)
    listed = [*listing.columns(tables, replicas, us, counts, nothing)]

    def useful(columns):
        some = tightened(tables, columns, us, lambda: None)
        pairs = zip(*lasting(tables, some, us), strict=True)
        return sorted((x.size, x.stages, samples) for x, samples in pairs)

    assert useful(listed) == useful(every)
