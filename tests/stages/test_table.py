"""The stage table is never on the wrong side of what the judge says of a stage."""

from collections import Counter
from fractions import Fraction
from random import Random

import drawing
import numpy as np
import pytest
from claims import random_plans, tightened
from soaking import pipelines as soaked

from hetopt.costs import under
from hetopt.exact.checking.stages import NONE_US, Stages
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.settings import variants
from hetopt.problems.training_plan.shapes import split_of
from hetopt.stages import NEVER, Runs, StageTable
from hetopt.stages.sync import UNIT

_SEEDS = range(90)

# What stages and settings must be among those that are drawn.
_MET = {
    *("first", "last", "middle", "inner", "outer", "several nodes", "replicas"),
    *("exact", "recompute", "interleave", "links", "profile", "equal"),
}


@pytest.fixture(scope="module")
def drawn():
    """Instances under one way to divide, with valid plans of that way."""
    return [pair for seed in _SEEDS for pair in _ways(Random(seed))]


def _ways(rng):
    data = soaked.draw(rng)
    instance = drawing.read(data["instance"])
    found = {}
    for plan in random_plans(instance, Random(data["plans"]), 6):
        judged = judge.evaluate(instance, plan)
        if judged.valid:
            zero = instance.workload.costs.zero if plan.zero is None else plan.zero
            way = zero, split_of(instance, plan)
            found.setdefault(way, []).append((plan, judged.parts["stages"]))
    for (zero, split), plans in found.items():
        tight = tightened(instance, plans[0][0])
        for each, some in (instance, plans), (tight, plans[:1]):
            (only,) = variants(under(each, zero=zero, split=split))
            yield only, some


def test_no_valid_plan_has_quicker_stages_or_more_replicas_than_tables_say(drawn):
    met = Counter()
    for instance, plans in drawn:
        table, stages = StageTable(instance), Stages(instance)
        met.update(_settings(table))
        assert table.most_replicas == stages.most_replicas
        for plan, rows in plans:
            held = Counter[int]()
            for stage in (stage for each in plan.pipelines for stage in each.stages):
                held.update({x: len(stage.replicas) for x in range(*stage.layers)})
            least = min(held.values())
            assert len(plan.pipelines) <= least <= table.most_replicas
            met["room"] += least == table.most_replicas
            if plan.gpu_count == 1 and table.costs.is_paced:
                continue  # judged by itself
            for c in range(len(table.classes)):
                fits = stages._replica_us(c) < NONE_US
                long = table.runs.lengths >= instance.workload.costs.interleave
                at = table.runs.number[stages.first, stages.last]
                able = (table.replica_us(c) < NEVER)[..., at]
                assert (able == fits)[..., long[at]].all()
            for pipeline, each in zip(plan.pipelines, rows, strict=True):
                for j, row in enumerate(each):
                    met.update(_checked(table, pipeline, j, row))
    assert not _MET - set(+met), "never drawn"
    assert met["room"] > 10, "never as many as have room"


def _settings(table):
    workload, inter = table.instance.workload, table.instance.cluster.inter
    if len(workload.recomputes) > 1:
        yield "recompute"
    if workload.costs.interleave > 1:
        yield "interleave"
    if inter.pairs or inter.islands:
        yield "links"
    if workload.costs.profile:
        yield "profile"
    if table.runs.equal:
        yield "equal"


def _checked(table, pipeline, j, row):
    """One stage: it fits, and takes what the table says or longer."""
    stage, behind = pipeline.stages[j], len(pipeline.stages) - 1 - j
    run = int(table.runs.number[stage.layers])
    nodes = {replica.node for replica in stage.replicas}
    following = pipeline.stages[j + 1].replicas if behind else ()
    away = not nodes & {replica.node for replica in following}
    computed, took = 0, 0
    for replica in stage.replicas:
        pairs = enumerate(table.classes)
        number, one = next(x for x in pairs if replica.node in x[1].nodes)
        us = int(table.replica_us(number)[replica.degree, replica.samples, run])
        assert us < NEVER, "a stage of a valid plan fits"
        hop = 0
        if behind:
            side = one.outer_us if away else one.inner_us
            side = one.least_us if len(nodes) > 1 else side
            hop = int(side[replica.samples])
        computed, took = max(computed, us), max(took, us + hop)
    assert computed <= row["compute_us"]
    assert took <= row["compute_us"] + row["hop_us"]
    yield "last" if not behind else "first" if not j else "middle"
    if len(nodes) > 1:
        yield "several nodes"
    elif behind:
        yield "outer" if away else "inner"
    if len(stage.replicas) > 1:
        yield "replicas"
    if len(table.instance.workload.recomputes) == 1:
        # All replicas fit, and nothing else is left to choose.
        assert computed == row["compute_us"]
        yield "exact"


def test_of_equal_layers_a_run_fits_in_the_middle_where_it_fits_first():
    # Methods that look at stages in any order rely on it.
    for seed in _SEEDS:
        data = soaked.draw_interleaved(Random(seed))
        (only,) = variants(drawing.read(data["instance"]))
        table, stages = StageTable(only), Stages(only)
        if not (table.runs.equal and stages.equal):
            continue
        lengths = np.arange(only.workload.costs.interleave, table.layers - 1)
        first, middle = (table.runs.number[x, x + lengths] for x in (0, 1))
        own_first, own_middle = (stages.begin[x] + lengths - 1 for x in (0, 1))
        for c in range(len(table.classes)):
            for fits, one, other in (
                (table.replica_us(c) < NEVER, first, middle),
                (stages._replica_us(c) < NONE_US, own_first, own_middle),
            ):
                assert (fits[..., other] >= fits[..., one]).all()


def test_transfers_do_not_fall_with_samples_and_leave_a_node_at_no_less(drawn):
    for instance, _ in drawn:
        for each in StageTable(instance).classes:
            for us in (each.inner_us, each.outer_us, each.least_us):
                assert (np.diff(us[1:]) >= 0).all()
            assert (each.inner_us <= each.outer_us).all()
            assert (each.least_us <= each.inner_us).all()


def test_sizes_of_runs_hold_the_exact_size_between_them(drawn):
    for instance, _ in drawn:
        table = StageTable(instance)
        exchanged, sync = table.costs.exchanged, table.sync
        routed = table.costs.divided(exchanged)
        own = [p - r for p, r in zip(exchanged.layers, routed, strict=True)]
        end = exchanged.end or 0
        whole = sum(own) + 2 * end
        average = Fraction(whole or 1, table.layers)
        for first in range(table.layers):
            for last in range(first + 1, table.layers + 1):
                run = table.runs.number[first, last]
                size = sum(own[first:last])
                size += end * ((first == 0) + (last == table.layers))
                units = UNIT * size / average
                assert sync.low[run] <= units <= sync.high[run]
                assert sync.high[run] - sync.low[run] <= 1


@pytest.mark.parametrize("layers", [1, 2, 3, 7])
def test_runs_share_a_number_where_length_and_ends_are_the_same(layers):
    apart, alike = (Runs.of(layers, equal=equal) for equal in (False, True))
    keys = {}
    for first in range(layers):
        for last in range(first + 1, layers + 1):
            key = last - first, first == 0, last == layers
            number = int(alike.number[first, last])
            assert keys.setdefault(key, number) == number
            a, b = alike.spans[number].tolist()
            assert (b - a, a == 0, b == layers) == key
            assert alike.ends[number] == (last == layers)
            assert apart.spans[apart.number[first, last]].tolist() == [first, last]
    assert len(alike) == len(keys)
    assert len(apart) == layers * (layers + 1) // 2
    none = np.tril(np.ones((layers + 1, layers + 1), bool))
    for runs in (apart, alike):
        assert ((runs.number < 0) == none).all()
