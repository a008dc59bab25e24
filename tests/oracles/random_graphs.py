"""Random graphs of stages with prices, and all paths through them, one by one.

What a path costs is written down here from the definition of a path, first stage first;
kernels go the other way and keep the least by state.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from hetopt.exact.pipelines.kernels import BIG, MOST, Costs, Graph
from hetopt.stages import NEVER
from hetopt.stages.classes import Whole

LOWEST, HIGHEST = -60, 90  # prices of arcs


class Visit(NamedTuple):
    """All that a path does in one node: stages (arc, first, last)."""

    c: int
    k: int
    stages: tuple[tuple[int, int, int], ...]


class Several(NamedTuple):
    """A stage in several nodes."""

    first: int
    last: int


Path = tuple[Visit | Several, ...]


def random_graph(rng: np.random.Generator) -> tuple[Graph, Costs]:
    """Up to 4 layers, 3 GPUs in a node; sometimes no arcs at all."""
    layers = int(rng.integers(1, 5))
    own = int(rng.integers(0, 4))
    gpus = rng.integers(1, 4, int(rng.integers(1, 4)))
    most = int(gpus.max())
    used = [np.sort(rng.integers(1, n + 1, own)) for n in gpus]
    count = sum(map(len, used))
    shape = count, layers, layers + 1
    inner, outer = _times(rng, shape), _times(rng, shape)
    fits = rng.integers(np.arange(layers), 2 * layers, shape[:2])
    light = rng.integers(0, 3 * layers, (count, most + 1, layers))
    light = np.clip(light, np.arange(layers), layers)
    arc = rng.integers(LOWEST, HIGHEST, (count, most + 1, layers, layers + 1))
    begin = np.cumsum([0, *map(len, used)])
    state = np.zeros((len(gpus), most + 1), np.int64)
    number = 0
    for c, n in enumerate(gpus.tolist()):
        for k in range(n + 1):
            state[c, k] = number
            number += k + 1
        if rng.random() < 0.4:  # how many GPUs are used in all makes no difference
            state[c, : n + 1] = state[c, n]
            mine = slice(begin[c], begin[c + 1])
            light[mine], arc[mine] = light[mine, n : n + 1], arc[mine, n : n + 1]
    run = np.full((layers + 1, layers + 1), -1)
    spans = [(a, b) for a in range(layers) for b in range(a + 1, layers + 1)]
    run[tuple(np.array(spans).T)] = np.arange(len(spans))
    graph = Graph(
        begin=begin.astype(np.int64),
        gpus=np.concatenate(used).astype(np.int64),
        inner=inner,
        outer=outer,
        fits=np.minimum(fits, layers),
        light=light,
        node_gpus=gpus.astype(np.int64),
        state=state,
        run=run.astype(np.int64),
    )
    us = np.sort(rng.integers(1, 60, (len(spans), int(rng.choice([0, 0, 1, 3])))))
    us[rng.random(us.shape) < 0.2] = BIG
    cost = rng.integers(0, 2 * HIGHEST, us.shape)
    prices = rng.integers(0, HIGHEST // 4, len(gpus))
    time = int(rng.integers(0, 4))
    return graph, Costs(time, prices, arc.astype(np.int64), np.sort(us), cost)


def _times(rng: np.random.Generator, shape: tuple[int, ...]) -> Whole:
    """Times that do not fall as runs grow, but at the last layer; some are missing."""
    us = np.sort(rng.integers(1, 60, shape)).astype(np.int64)
    us[..., -1] = rng.integers(1, 60, shape[:-1])
    layers = shape[1]
    longest = rng.integers(0, 2 * layers, (*shape[:-1], 1))
    us[..., :-1] = np.where(np.arange(layers) > longest, NEVER, us[..., :-1])
    return us


def potentials(graph: Graph, entries: int) -> Whole:
    """A table for potentials of so many intervals."""
    chains = int(graph.state.max()) + int(graph.node_gpus.max()) + 1
    layers = len(graph.run) - 1
    shape = entries, 2 + chains, layers + 1
    return np.zeros(shape, np.int64)


def paths(graph: Graph, costs: Costs, first: int = 0) -> Iterator[Path]:
    """All ways through the layers from `first` on, possible or not."""
    layers = len(graph.run) - 1
    if first == layers:
        yield ()
    heads: list[Visit | Several] = []
    for c, most in enumerate(graph.node_gpus.tolist()):
        for k in range(1, most + 1):
            heads += [Visit(c, k, stages) for stages in _chains(graph, c, k, first)]
    if costs.front_us.shape[1]:
        heads += [Several(first, last) for last in range(first + 1, layers + 1)]
    for head in heads:
        last = head.last if isinstance(head, Several) else head.stages[-1][2]
        for rest in paths(graph, costs, last):
            yield (head, *rest)


def _chains(
    graph: Graph, c: int, left: int, first: int
) -> Iterator[tuple[tuple[int, int, int], ...]]:
    for arc in range(graph.begin[c], graph.begin[c + 1]):
        own = int(graph.gpus[arc])
        for last in range(first + 1, len(graph.run)):
            if own == left:
                yield ((arc, first, last),)
            elif own < left:
                for rest in _chains(graph, c, left - own, last):
                    yield ((arc, first, last), *rest)


def cost_of(
    graph: Graph, costs: Costs, path: Path, high: int, scale: int
) -> int | None:
    """What a path costs; None where a stage does not fit or takes too long."""
    found = 0
    for part, then in pairwise((*path, None)):
        if isinstance(part, Several):
            run = graph.run[part.first, part.last]
            both = zip(costs.front_us[run], costs.front_cost[run], strict=True)
            each = [costs.time * us + scale * y for us, y in both if us <= high]
            if not each:
                return None
            found += min(*each, MOST)
            continue
        found += min(scale * int(costs.gpu[part.c]) * part.k, MOST)
        for stage, following in pairwise((*part.stages, None)):
            arc, first, last = stage
            side = graph.inner
            if following is None and isinstance(then, Visit):
                side = graph.outer
            us = int(side[arc, first, last])
            most = min(graph.fits[arc, first], graph.light[arc, part.k, first])
            if us > high or last > most:
                return None
            price = int(costs.arc[arc, part.k, first, last])
            found += min(costs.time * us + scale * price, MOST)
    return found
