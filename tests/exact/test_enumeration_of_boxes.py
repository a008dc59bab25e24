"""Boxes closed by enumeration: the best plan of all boxes is that of trying all."""

from random import Random

import numpy as np
import pytest
from brute_force_training import best_training_plan
from hypothesis import assume, given
from hypothesis import strategies as st
from inputs import drawn, examples
from places import TESTS
from test_exact_small_clusters import cluster_of, several, tiny

import hetopt
from hetopt.bounds.single_gpu import single_gpu_us
from hetopt.exact.enumeration import boxes, completion
from hetopt.exact.enumeration.boxes import BoxEnumeration, is_enumerated
from hetopt.exact.enumeration.columns import Column
from hetopt.exact.enumeration.completion import Limits
from hetopt.exact.enumeration.listing import Lister, Listing
from hetopt.exact.enumeration.packings import lasting, tightened
from hetopt.exact.enumeration.stages import StageTables
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.pipelines.boxes import Box
from hetopt.exact.pipelines.kernels import States
from hetopt.problems import training_plan as judge
from hetopt.schema import Instance
from hetopt.search import islands

LONG = 1 << 40  # us


def either(random: Random) -> Instance:
    """One sequence per micro-batch, or several."""
    return (tiny if random.random() < 0.5 else several)(random)


def parts(box: Box, bound: PipelineBound, random: Random) -> list[Box]:
    """The box, divided a few times as the engine or at any synchronisation time."""
    found = [box]
    for _ in range(random.randint(0, 5)):
        box = found.pop(random.randrange(len(found)))
        if random.random() < 0.4 and bound.priced:
            at = random.randint(box.sync_low_us, box.sync_low_us + 2_000)
            if box.sync_high_us is None or at < box.sync_high_us:
                found += [box.part(sync_high_us=at), box.part(sync_low_us=at)]
                continue
        split = bound.division.split(box, LONG)
        found += [split.low, split.high] if split else [box]
    return found


@examples(30)
@given(drawn(either), st.randoms(use_true_random=False))
def test_the_best_plan_of_all_boxes_is_that_of_trying_all(instance, random):
    assume(is_enumerated(instance))
    best = best_training_plan(
        instance, several_replicas=max(instance.workload.micro_batch_sizes) > 1
    )

    def offer(plan):
        judged = judge.evaluate(instance, plan)
        assert judged.valid
        return judged.objective

    bound = PipelineBound(instance, 10**6, 1)
    listing = BoxEnumeration(instance, LONG, offer, lambda: None)
    every = [part for box in bound.first for part in parts(box, bound, random)]
    random.shuffle(every)
    assert all(listing.closes(box, 1) for box in every)
    # Plans on one GPU are looked at before, where they take other times.
    value = min([listing.value, *single_gpu_us(instance)])
    assert value == (LONG if best is None else best[0])


@examples(15)
@given(drawn(either), st.floats(1.0, 1.5))
def test_limits_leave_every_column_of_a_packing(instance, factor):
    assume(is_enumerated(instance))
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
            every += Lister(tables, size, stages, Ample(tables), lambda: None).columns()
    asked = replicas, us, (1, min(gpus, tables.batch)), 10**9
    kinds = [Listing(tables, lambda: None, 10**9, within) for within in (None, us)]
    each = [[*listing.columns(*asked)] for listing in kinds]

    def useful(columns):
        some = tightened(tables, columns, us, lambda: None)
        pairs = zip(*lasting(tables, some, us), strict=True)
        return sorted((x.size, x.stages, samples) for x, samples in pairs)

    assert all(useful(listed) == useful(every) for listed in each)


@pytest.mark.parametrize(
    ("module", "name"), [(completion, "_STATES"), (boxes, "_STAGES")]
)
def test_what_is_too_much_closes_no_box_however_often_it_is_tried(
    monkeypatch, module, name
):
    monkeypatch.setattr(module, name, 1)
    instance = cluster_of("A2 B2", layers=4, global_batch=8)
    listing = BoxEnumeration(instance, LONG, lambda plan: 0, lambda: None)
    (box, *_) = PipelineBound(instance, 10**9, 1).first
    assert not any(listing.closes(box, effort) for effort in (0, 0, 1, 1))
    assert listing.value == LONG


@pytest.mark.slow
def test_boxes_that_prices_leave_open_are_closed_on_sixteen_gpus():
    instance = hetopt.load("hexiscale/homogeneous-rdma-llama2-7b")
    assert is_enumerated(instance)
    planned = judge.evaluate(instance, islands.plan(instance)).objective

    def refuted(listing: BoxEnumeration | None) -> bool:
        bound = PipelineBound(instance, planned, planned // 2, whole=True)
        bound.listed = listing and listing.closes
        refutation = bound.refute(planned - 1)
        while refutation.step():
            pass
        assert not refutation.proved or listing is None or not refutation.certificate()
        return refutation.proved

    def offer(plan):
        return judge.evaluate(instance, plan).objective

    assert not refuted(None)
    listing = BoxEnumeration(instance, planned, offer, lambda: None)
    assert refuted(listing)
    assert listing.value <= planned
