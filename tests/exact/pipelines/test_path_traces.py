"""The stages that are read back from potentials are a path of just that cost."""

from collections import Counter
from itertools import product
from random import Random

import drawing
import numpy as np
from soaking import pipelines as soaked

from hetopt.errors import InstanceError
from hetopt.exact.pipelines.arcs import arcs
from hetopt.exact.pipelines.coupling import Coupling, Sharing
from hetopt.exact.pipelines.kernels import HALF, MOST
from hetopt.exact.pipelines.pricing import Limits, Prices, Pricing, Rows, flat
from hetopt.problems.training_plan.settings import variants
from hetopt.stages import StageTable

_LEAST, _MOST = 60, 200  # seeds, on until every way was among them
_WAYS = {"chain", "several nodes", "none", "dear shares"}


def _pricing(table, rng):
    """Stages of some size of micro-batches, in a box drawn at random."""
    size = rng.choice(table.sizes)
    replicas = rng.choice([1, 2, 4])
    pipelines = rng.choice([1, replicas])
    each = arcs(table, size)
    sync_us = rng.choice([None, 1000, 100_000])
    sharing = Sharing(replicas, pipelines, max(pipelines, 3), sync_us)
    whole = int(table.runs.number[0, table.layers])
    sizes = int(table.sync.low[whole]), int(table.sync.high[whole])
    gpus = tuple(table.gpus.tolist())
    rows = Rows(gpus, *sizes, replicas, sharing.most, pipelines)
    most_us = int(each.times[-1]) if len(each.times) else 1
    limits = Limits(2 * most_us, table.batch)
    return Pricing(table, Coupling(table, each, sharing), limits, rows)


def _prices(pricing, rng):
    """Prices of all rows, some of none."""
    most = flat(pricing.most_prices)
    scale = 10.0 ** rng.randint(-9, -2)
    each = [rng.choice([0, int(rng.random() * scale * x)]) for x in most]
    count = len(pricing.rows.gpus)
    return Prices(tuple(each[:count]), tuple(each[count : 2 * count]), *each[-3:])


def test_a_path_costs_what_the_kernel_says_and_its_stages_are_possible():
    found = Counter()
    for seed in range(_MOST):
        if seed >= _LEAST and set(found) >= _WAYS:
            break
        rng = Random(seed)
        try:
            instance = variants(drawing.read(soaked.draw(rng)["instance"]))[0]
        except InstanceError:
            continue
        found.update(_examined(StageTable(instance), rng))
    assert set(found) >= _WAYS


def _examined(table, rng):
    pricing = _pricing(table, rng)
    _grows(pricing.arcs, table.layers)
    prices, times = _prices(pricing, rng), pricing.arcs.times
    if not len(times):
        yield "none"
        return
    begin = rng.randrange(len(times))
    span = begin, rng.randint(begin + 1, len(times))
    low, high = int(times[begin]), int(times[span[1] - 1])
    time = rng.choice([0, 1, 1 << 10])
    lows, highs = np.array([low]), np.array([high])
    (least,) = pricing.least(prices, time, lows, highs)
    stages = pricing.stages(prices, time, span)
    if least >= HALF:
        assert not stages
        yield "none"
        return
    _possible(pricing, stages, high)
    scale = pricing.runs * low
    assert _cost(pricing, prices, stages, time, scale) == least
    if any(stage.arc < 0 for _, stage in stages):
        yield "several nodes"
    if any(
        stage.together > pricing.arcs.gpus[stage.arc]
        for _, stage in stages
        if stage.arc >= 0
    ):
        yield "chain"
    if any(prices.share) and (pricing.coupling.demand > 0).any():
        yield "dear shares"


def _grows(each, layers):
    """Longer runs take no less, but where the pipeline ends: kernels stop there."""
    for side, first in product((each.inner, each.outer), range(layers)):
        assert (np.diff(side[:, first, first + 1 : layers]) >= 0).all()


def _possible(pricing, stages, high):
    """All layers are held in order, each stage fits, is light enough, and in time."""
    each, runs = pricing.arcs, pricing.table.runs
    edges = [0, *(stage.last for _, stage in stages)]
    assert edges[:-1] == [stage.first for _, stage in stages]
    assert edges[-1] == pricing.layers
    for us, stage in stages:
        run = int(runs.number[stage.first, stage.last])
        size = pricing.table.sync.low[run]
        assert us <= high
        if stage.arc >= 0:
            assert size <= pricing.coupling.light[stage.arc, stage.together]
            sides = (side[stage.arc] for side in (each.inner, each.outer))
            assert us in {int(us[stage.first, stage.last]) for us in sides}
            continue
        assert each.shared[[*stage.items], 2].sum() == each.size
        for item in stage.items:
            assert each.shared_us[run, item] <= us
            assert size <= pricing.coupling.shared_light[item]


def _cost(pricing, prices, stages, time, scale):
    """What the path costs: GPUs by node, stages by what they pay and take."""
    each, number, found = pricing.arcs, pricing.table.runs.number, 0
    paid, shared = pricing._paid(prices), pricing._shared_cost(prices)
    left = 0
    for us, stage in stages:
        run = int(number[stage.first, stage.last])
        if stage.arc < 0:
            assert not left
            price = sum(int(shared[run, item]) for item in stage.items)
        else:
            if not left:
                left, kind = stage.together, int(each.kind[stage.arc])
                found += min(scale * prices.gpu[kind] * left, MOST)
            price = int(paid[stage.arc, stage.together, run])
            left -= int(each.gpus[stage.arc])
        found += min(time * us + scale * price, MOST)
    assert not left
    return found
