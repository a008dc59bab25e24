"""Kernels of the compiled core find what a look at all paths one by one finds."""

from itertools import pairwise, product

import numpy as np
import pytest
from inputs import trials
from random_graphs import HIGHEST, LOWEST, cost_of, paths, potentials, random_graph

from hetopt.exact.pipelines import kernels
from hetopt.exact.pipelines.kernels import BIG, HALF, MOST
from hetopt.stages import NEVER

_SEEDS = range(60)
_LANES = 32  # intervals that the core looks at at once


def _known(costs):
    """Costs with one value for all that stand for "there is none"."""
    return np.minimum(costs, HALF)


def _intervals(rng, count):
    lows = rng.integers(1, 40, count)
    return lows, lows + rng.integers(0, 40, count)


@pytest.mark.parametrize("number", trials(20, 200))
def test_the_least_cost_is_that_of_the_cheapest_of_all_paths(number):
    for seed in range(number):
        _hold_least_to_all_paths(seed)


def _hold_least_to_all_paths(seed):
    rng = np.random.default_rng(seed)
    graph, costs = random_graph(rng)
    every = [*paths(graph, costs)]
    lows, highs = _intervals(rng, 4)
    scale = int(rng.integers(1, 3))
    kept = potentials(graph, 4)
    found = kernels.least(graph, costs, lows, highs, scale, kept)
    for low, high, least in zip(lows, highs, found, strict=True):
        each = (cost_of(graph, costs, path, high, scale * low) for path in every)
        best = min((x for x in each if x is not None), default=BIG)
        assert min(least, HALF) == min(best, HALF), seed


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("count", [1, _LANES - 1, _LANES + 3])
def test_intervals_are_looked_at_together_as_one_by_one(seed, count):
    """With potentials kept or not, at prices of any height."""
    rng = np.random.default_rng(seed)
    graph, costs = random_graph(rng)
    if seed % 10 == 0:  # where costs are clamped
        high = MOST >> 8
        costs = costs._replace(arc=costs.arc * high, front_cost=costs.front_cost * high)
    lows, highs = _intervals(rng, count)
    kept, none = (potentials(graph, n) for n in (count, 0))
    found = kernels.least(graph, costs, lows, highs, 2, kept)
    assert (kernels.least(graph, costs, lows, highs, 2, none) == found).all()
    for g in range(count):
        own, one = potentials(graph, 1), slice(g, g + 1)
        assert kernels.least(graph, costs, lows[one], highs[one], 2, own) == found[one]
        assert (_known(own[0]) == _known(kept[g])).all()


@pytest.mark.parametrize("seed", _SEEDS)
def test_fronts_are_the_cheapest_sets_of_replicas(seed):
    rng = np.random.default_rng(seed)
    runs, count = rng.integers(1, 4, 2).tolist()
    size = int(rng.integers(1, 5))
    us = rng.integers(1, 30, (runs, count))
    us[rng.random(us.shape) < 0.2] = NEVER
    samples = rng.integers(1, size + 1, count)
    cost = rng.integers(LOWEST, HIGHEST, (runs, count))
    able = rng.random(cost.shape) < 0.8
    order = np.argsort(us, axis=1, kind="stable")
    front_us, front_cost = np.empty((2, *us.shape), np.int64)
    given = order, us, samples, cost, able, size, front_us, front_cost
    kernels.compiled("fronts", *given)
    for run in range(runs):
        for high in range(30):
            usable = np.flatnonzero(able[run] & (us[run] <= high))
            best = _cheapest(usable, samples, cost[run], size)
            shown = front_cost[run][front_us[run] <= high]
            assert min(int(shown.min(initial=BIG)), HALF) == min(best, HALF)


def _cheapest(usable, samples, cost, left):
    """The least cost of replicas, any number of each, that have so many samples."""
    if not left:
        return 0
    some = [item for item in usable if samples[item] <= left]
    rest = (
        int(cost[x]) + _cheapest(usable, samples, cost, left - int(samples[x]))
        for x in some
    )
    return min(rest, default=BIG)


def _segments(rng):
    """Stages of equal layers in nodes of two classes: what kernels of segments take."""
    layers, nodes = int(rng.integers(1, 6)), rng.integers(1, 4, 2)
    kind = np.repeat([0, 1], nodes)
    gpus = np.concatenate([np.arange(1, n + 1) for n in nodes])
    used = [np.sort(rng.integers(1, n + 1, int(rng.integers(0, 3)))) for n in nodes]
    begin = np.cumsum([0, *map(len, used)])
    count, most = int(begin[-1]), int(nodes.max())
    inner = np.sort(rng.integers(1, 50, (count, layers + 1)))
    exits = rng.integers(1, 50, (int(rng.integers(2, 4)), *inner.shape))
    light = rng.integers(0, layers + 1, (count, most + 1))
    return kind, gpus, begin, np.concatenate(used), inner, exits, light


def _divisions(begin, used, light, c, k, layers):
    """All ways to divide layers among stages on `k` GPUs: (arc, its layers), ..."""

    def divided(left, x):
        if not left and not x:
            yield ()
        for arc in range(begin[c], begin[c + 1]):
            for y in range(1, min(x, light[arc, k]) + 1) if used[arc] <= left else ():
                for rest in divided(left - used[arc], x - y):
                    yield ((arc, y), *rest)

    yield from divided(k, layers)


@pytest.mark.parametrize("seed", _SEEDS)
def test_segments_take_the_least_of_all_their_divisions(seed):
    rng = np.random.default_rng(seed)
    kind, gpus, begin, used, inner, exits, light = _segments(rng)
    highs = rng.integers(1, 50, 3)
    layers = inner.shape[1] - 1
    given = (kind, gpus, begin, used, inner, exits, light)
    shape = len(highs), len(gpus), *exits.shape[::2]
    found = kernels.filled("segment_us", shape, highs, *given)
    price = rng.integers(LOWEST, HIGHEST, (len(used), int(gpus.max()) + 1, layers + 1))
    shape = len(gpus), *price.shape[1:]
    given = kind, gpus, begin, used, price, light
    paid = kernels.filled("segment_price", shape, *given)
    for segment, (c, k) in enumerate(zip(kind, gpus, strict=True)):
        for x in range(1, layers + 1):
            every = [*_divisions(begin, used, light, c, k, x)]
            each = (sum(int(price[arc, k, y]) for arc, y in one) for one in every)
            assert min(int(paid[segment, k, x]), HALF) == min(each, default=HALF)
            for (g, high), (end, last) in product(enumerate(highs), enumerate(exits)):
                times = (
                    [*(inner[stage] for stage in one[:-1]), last[one[-1]]]
                    for one in every
                )
                best = min(
                    (int(sum(us)) for us in times if max(us) <= high), default=HALF
                )
                assert min(int(found[g, segment, end, x]), HALF) == best


@pytest.mark.parametrize("seed", _SEEDS)
def test_paths_of_equal_layers_cost_the_least_over_nodes_each_once(seed):
    rng = np.random.default_rng(seed)
    layers, classes, count = (int(rng.integers(1, most)) for most in (5, 4, 4))
    kind = np.repeat(np.arange(classes), rng.integers(1, 3, classes))
    visits = rng.integers(1, 3, classes)
    ways = int(rng.integers(2, 4))
    us = rng.integers(1, 50, (count + 2, len(kind), ways, layers + 1))
    rows = rng.integers(0, count + 2, count)
    us[rng.random(us.shape) < 0.4] = BIG
    price = rng.integers(LOWEST, HIGHEST, (len(kind), layers + 1))
    start = rng.integers(LOWEST, HIGHEST, (count, ways, layers + 1))
    start[rng.random(start.shape) < 0.5] = BIG
    time, scales = 2, rng.integers(1, 5, count)
    steps = int(visits.sum()) + 1
    shape = steps, ways, layers + 1
    table, last = (np.zeros((n, *shape), np.int64) for n in (count, 1))
    given = (time, scales, us, rows, price, kind, visits, start)
    found, same = (
        kernels.filled("least_unordered", rows.shape, *given, kept)
        for kept in (table, last)
    )
    assert (found == same).all()
    assert (_known(last[0]) == _known(table[-1])).all()  # the last one is what stays
    nodes = np.repeat(np.arange(classes), visits)
    for g in range(count):
        each = [*product(range(ways), range(layers + 1))]
        costs = {(way, x): int(start[g, way, x]) for way, x in each}
        for c in nodes:
            more = dict(costs)
            for (ended, x), paid in costs.items():
                for segment, end in product(np.flatnonzero(kind == c), range(ways)):
                    for y in range(1, layers - x + 1):
                        took = int(us[rows[g], segment, end, y])
                        if paid >= HALF or took >= HALF or (ended and end):
                            continue
                        own = time * took + int(scales[g] * price[segment, y])
                        to = ended + end, x + y
                        more[to] = min(more[to], paid + own)
            costs = more
        assert min(int(found[g]), HALF) == min(costs[1, layers], HALF)


@pytest.mark.parametrize("seed", _SEEDS)
def test_stages_in_several_nodes_are_repeated_at_the_least_cost(seed):
    rng = np.random.default_rng(seed)
    layers, ways, count = (
        int(rng.integers(*most)) for most in ((1, 6), (2, 4), (1, 4))
    )
    us = np.sort(rng.integers(1, 40, (ways, layers + 1, int(rng.integers(0, 3)))))
    cost = rng.integers(LOWEST, HIGHEST, us.shape)
    lows, highs = _intervals(rng, count)
    shape = count, ways, layers + 1
    found = kernels.filled("repeated", shape, 2, lows, highs, us, cost)
    for g, x in product(range(count), range(1, layers + 1)):

        def least(way, y, g=g):
            both = zip(us[way, y].tolist(), cost[way, y].tolist(), strict=True)
            each = (2 * t + int(lows[g]) * y for t, y in both if t <= highs[g])
            return min(each, default=None)

        best = np.full(ways, BIG)
        for cuts in product(range(2), repeat=x - 1):
            edges = [0, *(i + 1 for i, cut in enumerate(cuts) if cut), x]
            sizes = [b - a for a, b in pairwise(edges)]
            # Any one of the stages may be the one that ends the pipeline, or leaves.
            for last, way in product(range(len(sizes)), range(ways)):
                each = [least(way if i == last else 0, y) for i, y in enumerate(sizes)]
                if None not in each:
                    best[way] = min(best[way], sum(each))
        assert (np.minimum(found[g, ..., x], HALF) == np.minimum(best, HALF)).all()
