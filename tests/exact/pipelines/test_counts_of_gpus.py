"""The integer master: its kernels against all paths, its verdicts against all plans."""

from itertools import combinations_with_replacement, pairwise, product

import numpy as np
import pytest
from random_graphs import Several, paths, potentials, random_graph

from hetopt.exact.pipelines import kernels
from hetopt.exact.pipelines.kernels import BIG, HALF, States
from hetopt.stages import NEVER

_SEEDS = range(80)


def _random_states(rng, graph, costs):
    """GPUs of some nodes of each class, and stages in several nodes, if any."""
    runs, several = costs.front_us.shape
    gpus = graph.node_gpus * rng.integers(1, 3, len(graph.node_gpus))
    count = int(rng.integers(1, 4)) if several else 0
    vectors = np.array([rng.integers(0, gpus + 1) for _ in range(count)])
    vectors = vectors.reshape(count, len(gpus)).astype(np.int64)
    us = rng.integers(1, 60, (1 + len(gpus), runs, count))
    us[rng.random(us.shape) < 0.3] = NEVER
    cost = rng.integers(0, 100, (runs, count)) + vectors @ costs.gpu
    least = us.min(0)
    front_us = np.where(np.sort(least) < NEVER, np.sort(least), BIG)
    each = np.take_along_axis(np.broadcast_to(cost, least.shape), np.argsort(least), 1)
    front_cost = np.minimum.accumulate(each, 1) if count else each
    costs = costs._replace(front_us=front_us, front_cost=front_cost.copy())
    return costs, States.of(gpus)._replace(
        vectors=vectors, vector_us=us, vector_cost=cost
    )


def _all_paths(graph, costs, states, high, scale):
    """Time, cost and GPUs of all paths that are possible.

    The vector of each stage in several nodes is chosen, and of which class the node is
    that it shares with the stage before or behind, if any.
    """
    count = range(states.vectors.shape[0])
    for path in paths(graph, costs):
        options = [count if isinstance(x, Several) else [None] for x in path]
        for chosen in product(*options):
            parts = [*zip(path, chosen, strict=True)]
            joints = [
                [
                    None,
                    *(_classes_at(graph, states, *x) & _classes_at(graph, states, *y)),
                ]
                if isinstance(x[0], Several) or isinstance(y[0], Several)
                else [None]
                for x, y in pairwise(parts)
            ]
            for joined in product(*joints):
                found = _cost(graph, costs, states, parts, joined, high, scale)
                if found is not None:
                    yield found


def _classes_at(graph, states, part, vector):
    """Classes of a node of which a part has GPUs, and another stage may have some."""
    if isinstance(part, Several):
        return set(np.flatnonzero(states.vectors[vector]).tolist())
    return {part.c} if part.k < graph.node_gpus[part.c] else set()


def _cost(graph, costs, states, parts, joined, high, scale):
    us, cost, gpus = 0, 0, np.zeros(len(graph.node_gpus), np.int64)
    for i, (part, vector) in enumerate(parts):
        then = parts[i + 1][0] if i + 1 < len(parts) else None
        joint = joined[i] if then else None
        if isinstance(part, Several):
            run = graph.run[part.first, part.last]
            took = int(states.vector_us[0 if joint is None else 1 + joint, run, vector])
            if took > high:
                return None
            us += took
            cost += costs.time * took + scale * int(states.vector_cost[run, vector])
            gpus += states.vectors[vector]
            continue
        gpus[part.c] += part.k
        cost += scale * int(costs.gpu[part.c]) * part.k
        for stage, following in pairwise((*part.stages, None)):
            arc, first, last = stage
            away = following is None and then is not None and joint is None
            took = int((graph.outer if away else graph.inner)[arc, first, last])
            most = min(graph.fits[arc, first], graph.light[arc, part.k, first])
            if took > high or last > most:
                return None
            us += took
            cost += costs.time * took + scale * int(costs.arc[arc, part.k, first, last])
    return us, cost, tuple(gpus.tolist())


@pytest.mark.parametrize("seed", _SEEDS)
def test_no_path_within_the_limits_is_faster_than_the_sums_of_its_gpus(seed):
    rng = np.random.default_rng(seed)
    graph, costs = random_graph(rng)
    graph = graph._replace(inner=np.minimum(graph.inner, graph.outer))
    costs, states = _random_states(rng, graph, costs)
    high, scale = int(rng.integers(5, 70)), int(rng.integers(1, 40))
    sides = []
    for priced, times in ((costs._replace(time=1), 0), (costs, scale)):
        kept = potentials(graph, 1)
        lows, highs = np.array([times]), np.array([high])
        kernels.least(graph, priced, lows, highs, 1, kept)
        sides += [kept[0, 0], kept[0, 1], kept[0, 2:]]
    every = [*_all_paths(graph, costs, states, high, scale)]
    most_cost = int(rng.choice([x for _, x, _ in every] or [0])) + int(
        rng.choice([0, 1 << 40])
    )
    longest = int(rng.choice([x for x, _, _ in every] or [0]))
    most_us = longest + 30 - states.use.sum(1) * int(rng.integers(0, 8))
    shape = 2 + 2 * len(states.gpus), graph.run.shape[0], len(most_us)
    asked = graph, costs, states, *sides, high, scale, most_us, most_cost
    labels = kernels.filled(
        "labels", shape if len(states.vectors) else (1, *shape[1:]), *asked
    )
    found = labels[0, -1]
    exactly = {}
    for us, cost, gpus in every:
        exactly.setdefault(gpus, set()).add(us)
        if (np.array(gpus) > states.gpus).any() or cost > most_cost:
            continue
        if us > most_us[int(np.array(gpus) @ states.strides)]:
            continue
        within = (states.use <= np.array(gpus)).all(1)
        assert found[within].min() <= us
    for state in np.flatnonzero(found < HALF):
        assert int(found[state]) in exactly[tuple(states.use[state].tolist())]


@pytest.mark.parametrize("seed", _SEEDS)
def test_stages_in_several_nodes_share_samples_as_is_best(seed):
    rng = np.random.default_rng(seed)
    gpus, nodes = rng.integers(1, 5, 2), rng.integers(1, 3, 2)
    size, count = int(rng.integers(2, 5)), int(rng.integers(1, 6))
    items = np.stack(
        [rng.integers(*x, count) for x in ((0, 2), (1, 4), (1, size))], axis=1
    )
    us = rng.integers(1, 40, (1, count))
    states = States.of(gpus)
    most = int(items[:, 1].max()) + 1
    wanted = rng.random((most, 1)) < 0.7
    found = np.full((most, 1, len(states.use)), NEVER, np.int64)
    kernels.compiled("vector_us", us, items, nodes, states, size, wanted, found)
    for least in range(1, len(found)):
        if not wanted[least, 0]:
            assert (found[least] == NEVER).all()
            continue
        usable = [i for i in range(count) if items[i, 1] >= least]
        for many in range(2, size + 1):
            for chosen in combinations_with_replacement(usable, many):
                some = items[[*chosen]]
                if some[:, 2].sum() != size:
                    continue
                use = np.bincount(some[:, 0], some[:, 1], 2).astype(int)
                if nodes[np.unique(some[:, 0])].sum() < 2 or (use > gpus).any():
                    continue
                within = (states.use <= use).all(1)
                assert found[least, 0, within].min() <= us[0, [*chosen]].max()


@pytest.mark.parametrize("seed", _SEEDS)
def test_pipelines_take_together_what_the_best_of_all_packings_takes(seed):
    rng = np.random.default_rng(seed)
    gpus = rng.integers(1, 4, 2)
    states = States.of(gpus)
    one = rng.integers(0, 9, len(states.use))
    one[0], one[rng.random(len(one)) < 0.4] = 0, 0
    fewest = int(rng.integers(1, 4))
    most = fewest + int(rng.integers(0, 3))
    found, others = kernels.most_taken(one, states, fewest, most)
    every = {}
    for number in range(most + 1):
        for chosen in combinations_with_replacement(np.flatnonzero(one), number):
            use = states.use[[*chosen]].sum(0)
            for state in np.flatnonzero((states.use >= use).all(1)):
                key = number, int(state)
                every[key] = max(every.get(key, -1), int(one[[*chosen]].sum()))
    for number, state in product(range(most + 1), range(len(one))):
        assert found[number, state] == every.get((number, state), -1)
    for state in range(len(one)):
        each = [every.get((n, state), -1) for n in range(fewest - 1, most)]
        assert others[state] == max(each)
