"""Stages put before suffixes: their least times, and what is left out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_exact_small_clusters import cluster_of

from hetopt.exact.enumeration import listing
from hetopt.exact.enumeration.listing import Listing
from hetopt.exact.enumeration.stages import NEVER, StageTables


@given(st.integers(0, 2**32), st.booleans())
def test_suffixes_are_extended_by_the_best_stage(seed, first):
    rng = np.random.default_rng(seed)
    stages, layers, ranges = rng.integers(1, 5, 3)
    shape = stages, layers + 1, layers + 1
    us = rng.integers(1, 20, shape)
    us[:, ~np.triu(np.ones(shape[1:], bool), 1)] = NEVER
    fits = rng.integers(0, ranges + 1, shape).astype(np.int8)
    maxima = rng.integers(1, 20, (ranges, layers + 1))
    maxima[rng.random(maxima.shape) < 0.3] = NEVER
    sums = np.where(maxima < NEVER, maxima + 3, NEVER)
    some = np.flatnonzero(rng.random(stages) < 0.7)
    hops, rank = rng.integers(0, 5, stages), np.arange(ranges, 0, -1)
    every = listing.Extensions(us, hops, fits[:, :1] if first else fits, rank)
    found = listing.extended(some, every, sums, maxima)
    times = us[some, : every.fits.shape[1]] + hops[some, None, None]
    able = every.fits[some][:, None] >= rank[:, None, None]
    each = np.where(able, times[:, None], NEVER)
    total = (each + sums[:, None]).min(axis=3)
    top = np.maximum(each, maxima[:, None]).min(axis=3)
    for mine, other in zip(found, (total, top), strict=True):
        assert np.array_equal(mine, np.minimum(other, NEVER))


def test_what_is_listed_does_not_depend_on_what_is_put_at_once():
    instance = cluster_of("A2 B2", layers=6, micro_batch_sizes=(1, 2))
    tables = StageTables(instance)

    listing = Listing(tables, lambda: None)

    def rows(us, at_once):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("hetopt.exact.enumeration.listing._AT_ONCE", at_once)
            rows = listing.columns({2: 2}, us, (1, 4))
            return {row.stages: row.ranges for row in rows}

    ample = rows(10**9, 1 << 20)
    assert ample == rows(10**9, 1)
    within = int(min(part.total for parts in ample.values() for part in parts) * 9)
    few = rows(within, 1 << 20)
    assert few == rows(within, 1)
    assert all(few[row] == ample[row] for row in few)
    # Whatever does the batch alone is there.
    alone = {
        row
        for row, parts in ample.items()
        for part in parts
        if part.total + (tables.batch // 2 - 1) * part.slowest <= within
    }
    assert alone <= few.keys() < ample.keys()
