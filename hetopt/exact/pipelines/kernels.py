"""Shortest paths over stages: plain loops over whole numbers, made to be compiled.

A path goes through the layers from the last to the first. Its state is the number of
stages behind (`p`, capped), the next layer, and, inside a node, how many GPUs the
pipeline uses there in all and how many of them are left for the stages at hand. So

    node[site, p, l]     a suffix of the pipeline from layer l on that begins with a
                         stage in one node of a site
    across[p, l]         a suffix that begins with a stage in several nodes
    chain[c, k, u; p, l] a suffix whose first stages use u GPUs of a node of class c, of
                         which the pipeline uses k in all

are the least costs, the *potentials*. All costs are clamped to `MOST`, which may only
lower them; a sum at or above `HALF` stands for "there is none".
"""

from typing import NamedTuple

import numpy as np

from ...stages.classes import NEVER, Whole
from ...stages.memory import Flags
from .compiling import kernel

BIG, HALF, MOST = 1 << 60, 1 << 58, 1 << 55


class Graph(NamedTuple):
    """Arcs of one size of micro-batches in one box, as kernels read them.

    Arcs of class c are `begin[c]` to `begin[c + 1] - 1`, in ascending order of `gpus`.
    Times in us are by [arc, p, first, last]: `inner` where the next stage lies in the
    same node, `outer` where it lies in another one, `far` in another site (empty where
    there is one site). `fits[arc, p, first]` is where the longest run ends that fits,
    `light[arc, k, first]` the longest that is light enough where the pipeline uses k
    GPUs of the node. `site` is by class; `state[c, k] + u` numbers the states with u of
    k GPUs left: where k makes no difference, those of all k are the same.
    """

    begin: Whole
    gpus: Whole
    inner: Whole
    outer: Whole
    far: Whole
    fits: Whole
    light: Whole
    site: Whole
    node_gpus: Whole
    state: Whole
    run: Whole  # [first, last]


class Costs(NamedTuple):
    """What prices make of a graph.

    A path costs `time` for each us, and for each us of the slowest stage what its GPUs
    and arcs cost: `gpu[c]`, `arc[arc, k, first, last]`. Stages in several nodes have
    fronts of times in us and least costs, by [p, run, i], ascending times.
    """

    time: int
    gpu: Whole
    arc: Whole
    front_us: Whole
    front_cost: Whole


@kernel
def _behind(node: Whole, across: Whole, p: int, last: int) -> int:
    """Return the least cost of a suffix that begins anywhere."""
    found: int = across[p, last]
    for site in range(node.shape[0]):
        found = min(found, node[site, p, last])
    return found


@kernel
def _across(
    graph: Graph,
    costs: Costs,
    high: int,
    scale: int,
    node: Whole,
    across: Whole,
    p: int,
    first: int,
) -> None:
    """Lower what a suffix costs that begins with a stage in several nodes."""
    layers, places = graph.run.shape[0] - 1, node.shape[1]
    after = min(p + 1, places - 1)
    found = across[after, first]
    for last in range(first + 1, layers + 1):
        rest = _behind(node, across, p, last)
        if rest >= HALF or (places > 1 and (last == layers) != (p == 0)):
            continue
        run = graph.run[first, last]
        for i in range(costs.front_us.shape[2]):
            us = costs.front_us[p, run, i]
            if us > high:
                break
            cost = costs.time * us + scale * costs.front_cost[p, run, i]
            found = min(found, min(cost, MOST) + rest)
    across[after, first] = found


@kernel
def _chain(
    graph: Graph,
    costs: Costs,
    high: int,
    scale: int,
    node: Whole,
    across: Whole,
    chain: Whole,
    c: int,
    k: int,
    p: int,
    first: int,
) -> None:
    """Lower what stages in a node cost that begin with a stage from layer `first` on.

    `p` stages follow that stage. The last one in the node hands on to a stage in
    another node, of this site or of another one, or to a stage in several nodes, of
    which this may be one.
    """
    layers, places = graph.run.shape[0] - 1, node.shape[1]
    after, site, state = min(p + 1, places - 1), graph.site[c], graph.state[c, k]
    several, sites = costs.front_us.shape[2] > 0, node.shape[0]
    for left in range(1, k + 1):
        found = chain[state + left, after, first]
        for arc in range(graph.begin[c], graph.begin[c + 1]):
            used = graph.gpus[arc]
            if used > left:
                break
            end = min(graph.fits[arc, p, first], graph.light[arc, k, first])
            price = costs.arc[arc, k, first]
            inner = graph.inner[arc, p, first]
            if end == layers:
                # The end of the pipeline: nothing is handed on.
                us = inner[layers]
                if used == left and us <= high and node[site, p, layers] < HALF:
                    cost = costs.time * us + scale * price[layers]
                    found = min(found, min(cost, MOST) + node[site, p, layers])
                end -= 1
            if used < left:
                rest = chain[state + left - used, p]
                for last in range(first + 1, end + 1):
                    if inner[last] > high:
                        break
                    if rest[last] < HALF:
                        cost = costs.time * inner[last] + scale * price[last]
                        found = min(found, min(cost, MOST) + rest[last])
                continue
            outer = graph.outer[arc, p, first]
            for last in range(first + 1, end + 1):
                if outer[last] > high:
                    break
                if node[site, p, last] < HALF:
                    cost = costs.time * outer[last] + scale * price[last]
                    found = min(found, min(cost, MOST) + node[site, p, last])
            if several:
                for last in range(first + 1, end + 1):
                    if inner[last] > high:
                        break
                    if across[p, last] < HALF:
                        cost = costs.time * inner[last] + scale * price[last]
                        found = min(found, min(cost, MOST) + across[p, last])
            for other in range(sites):
                if other != site:
                    far = graph.far[arc, p, first]
                    for last in range(first + 1, end + 1):
                        if far[last] > high:
                            break
                        if node[other, p, last] < HALF:
                            cost = costs.time * far[last] + scale * price[last]
                            found = min(found, min(cost, MOST) + node[other, p, last])
        chain[state + left, after, first] = found


@kernel
def _suffixes(
    graph: Graph,
    costs: Costs,
    high: int,
    scale: int,
    node: Whole,
    across: Whole,
    chain: Whole,
) -> None:
    """Fill in the potentials of one interval, from the last layer to the first."""
    layers, places = graph.run.shape[0] - 1, node.shape[1]
    node[:] = BIG
    across[:] = BIG
    chain[:] = BIG
    for site in range(node.shape[0]):
        node[site, 0, layers] = 0
    for first in range(layers - 1, -1, -1):
        for p in range(places):
            for c in range(len(graph.node_gpus)):
                for k in range(1, graph.node_gpus[c] + 1):
                    state = graph.state[c, k]
                    # Where k makes no difference, the most GPUs stand for all.
                    most = k == graph.node_gpus[c]
                    if most or state != graph.state[c, graph.node_gpus[c]]:
                        _chain(
                            graph,
                            costs,
                            high,
                            scale,
                            node,
                            across,
                            chain,
                            c,
                            k,
                            p,
                            first,
                        )
            if costs.front_us.shape[2] > 0:
                _across(graph, costs, high, scale, node, across, p, first)
        for p in range(places):
            for c in range(len(graph.node_gpus)):
                site = graph.site[c]
                for k in range(1, graph.node_gpus[c] + 1):
                    found = chain[graph.state[c, k] + k, p, first]
                    if found < HALF:
                        found += min(scale * costs.gpu[c] * k, MOST)
                        node[site, p, first] = min(node[site, p, first], found)


@kernel
def least(
    graph: Graph,
    costs: Costs,
    lows: Whole,
    highs: Whole,
    scale: int,
    node: Whole,
    across: Whole,
    chain: Whole,
) -> Whole:
    """Return the least cost of a path, by interval of the slowest stage.

    No stage takes more than `highs[g]`; prices count `scale * lows[g]` times. Tables
    of potentials have one entry an interval, or one for all, which is overwritten.
    """
    found = np.full(len(lows), BIG, np.int64)
    keep = node.shape[0] == len(lows)
    for g in range(len(lows)):
        at = g if keep else 0
        prices = scale * lows[g]
        _suffixes(graph, costs, highs[g], prices, node[at], across[at], chain[at])
        for p in range(node.shape[2]):
            found[g] = min(found[g], _behind(node[at], across[at], p, 0))
    return found


@kernel
def fronts(
    order: Whole, us: Whole, samples: Whole, cost: Whole, able: Flags, size: int
) -> tuple[Whole, Whole]:
    """Return the least costs of replicas that share a micro-batch, by their slowest.

    Both are by [p, run, i], ascending times and falling costs; `BIG` where there are no
    more. Replicas are by [p, run, i] in `order` of their times `us`; `cost` and `able`
    are by [run, replica]. A knapsack over samples grows by one replica at a time.
    """
    places, runs, count = order.shape
    front_us = np.full((places, runs, count), BIG, np.int64)
    front_cost = np.full((places, runs, count), BIG, np.int64)
    least_cost = np.zeros(size + 1, np.int64)
    for p in range(places):
        for run in range(runs):
            least_cost[:] = BIG
            least_cost[0] = 0
            number = 0
            for i in range(count):
                item = order[p, run, i]
                if us[p, run, item] >= NEVER:
                    break
                if not able[run, item]:
                    continue
                before, own = least_cost[size], samples[item]
                for s in range(own, size + 1):
                    if least_cost[s - own] < HALF:
                        found = least_cost[s - own] + cost[run, item]
                        least_cost[s] = min(least_cost[s], found)
                if least_cost[size] < before:
                    front_us[p, run, number] = us[p, run, item]
                    front_cost[p, run, number] = least_cost[size]
                    number += 1
    return front_us, front_cost


@kernel
def segment_us(
    highs: Whole,
    kind: Whole,
    gpus: Whole,
    begin: Whole,
    used: Whole,
    inner: Whole,
    outer: Whole,
    ended: Whole,
    light: Whole,
) -> Whole:
    """Return least times of equal layers on GPUs of a node: [interval, segment, 2, x].

    A *segment* is all that a pipeline does in one node of class `kind` on `gpus` GPUs.
    Its last stage hands on to another node (0), or ends the pipeline (1). Times of
    stages are by [arc, layers]; stages hold up to `light[arc, GPUs]` layers.
    """
    layers = inner.shape[1] - 1
    most = 0
    for k in gpus:
        most = max(most, k)
    found = np.full((len(highs), len(gpus), 2, layers + 1), BIG, np.int64)
    least_us = np.zeros((most + 1, 2, layers + 1), np.int64)
    for g in range(len(highs)):
        high = highs[g]
        for segment in range(len(gpus)):
            least_us[:] = BIG
            k = gpus[segment]
            for left in range(1, k + 1):
                for arc in range(begin[kind[segment]], begin[kind[segment] + 1]):
                    own = used[arc]
                    if own > left:
                        break
                    for y in range(1, min(light[arc, k], layers) + 1):
                        if own == left:
                            if outer[arc, y] <= high:
                                now = least_us[left, 0, y]
                                least_us[left, 0, y] = min(now, outer[arc, y])
                            if ended[arc, y] <= high:
                                now = least_us[left, 1, y]
                                least_us[left, 1, y] = min(now, ended[arc, y])
                            continue
                        us = inner[arc, y]
                        if us > high:
                            break
                        for end in range(2):
                            for x in range(1, layers - y + 1):
                                if least_us[left - own, end, x] < HALF:
                                    more = least_us[left - own, end, x] + us
                                    now = least_us[left, end, x + y]
                                    least_us[left, end, x + y] = min(now, more)
            found[g, segment] = least_us[k]
    return found


@kernel
def segment_price(
    kind: Whole, gpus: Whole, begin: Whole, used: Whole, price: Whole, light: Whole
) -> Whole:
    """Return the least prices of segments, by [segment, layers].

    `price` is by [arc, GPUs of the segment, layers], and may be negative.
    """
    layers = price.shape[2] - 1
    most = 0
    for k in gpus:
        most = max(most, k)
    found = np.full((len(gpus), layers + 1), BIG, np.int64)
    least_of = np.zeros((most + 1, layers + 1), np.int64)
    for segment in range(len(gpus)):
        k = gpus[segment]
        least_of[: k + 1] = BIG
        least_of[0, 0] = 0
        for left in range(1, k + 1):
            for arc in range(begin[kind[segment]], begin[kind[segment] + 1]):
                own = used[arc]
                if own > left:
                    break
                for y in range(1, min(light[arc, k], layers) + 1):
                    paid = price[arc, k, y]
                    for x in range(layers - y + 1):
                        if least_of[left - own, x] < HALF:
                            more = least_of[left - own, x] + paid
                            least_of[left, x + y] = min(least_of[left, x + y], more)
        found[segment] = least_of[k]
    return found


@kernel
def least_unordered(
    time: int,
    scales: Whole,
    us: Whole,
    price: Whole,
    kind: Whole,
    visits: Whole,
    start: Whole,
    kept: Whole,
) -> Whole:
    """Return the least cost of a path through equal layers, by interval.

    Paths go on from `start[g, ended, layers]`. Segments cost `time` for each us and `scales[g]` times their `price`, by [segment,
    layers]. Nodes are visited class by class, each once: `visits[c]` of class c.
    `kept[g, n, ended, layers]` are the least costs after n visits, where it has an
    entry an interval.
    """
    count, layers = us.shape[0], us.shape[3] - 1
    found = np.full(count, BIG, np.int64)
    one = np.zeros((len(visits), 2, layers + 1), np.int64)
    for g in range(count):
        table = kept[g if kept.shape[0] == count else 0]
        one[:] = BIG
        for segment in range(us.shape[1]):
            for end in range(2):
                for x in range(1, layers + 1):
                    if us[g, segment, end, x] < HALF:
                        cost = time * us[g, segment, end, x]
                        cost = min(cost + scales[g] * price[segment, x], MOST)
                        c = kind[segment]
                        one[c, end, x] = min(one[c, end, x], cost)
        table[0] = start[g]
        n = 0
        for c in range(len(visits)):
            for _ in range(visits[c]):
                table[n + 1] = table[n]
                for x in range(layers):
                    for y in range(1, layers - x + 1):
                        on, ended = one[c, 0, y], one[c, 1, y]
                        if on < HALF:
                            for end in range(2):
                                if table[n, end, x] < HALF:
                                    more = table[n, end, x] + on
                                    now = table[n + 1, end, x + y]
                                    table[n + 1, end, x + y] = min(now, more)
                        if ended < HALF and table[n, 0, x] < HALF:
                            more = table[n, 0, x] + ended
                            table[n + 1, 1, x + y] = min(table[n + 1, 1, x + y], more)
                n += 1
        found[g] = table[n, 1, layers]
    return found


@kernel
def repeated(
    time: int,
    scales: Whole,
    highs: Whole,
    front_us: Whole,
    front_cost: Whole,
    run: Whole,
    ended: Whole,
) -> Whole:
    """Return the least cost of stages in several nodes alone: [interval, ended, layers].

    One of them or more, of equal layers: y of them are the run `run[y]`, or the run
    `ended[y]` at the end of the pipeline; fronts are by [run, i].
    """
    layers = len(run) - 1
    found = np.full((len(highs), 2, layers + 1), BIG, np.int64)
    one = np.zeros((2, layers + 1), np.int64)
    for g in range(len(highs)):
        for y in range(1, layers + 1):
            for end in range(2):
                number = ended[y] if end == 1 else run[y]
                one[end, y] = BIG
                for i in range(front_us.shape[1]):
                    if number < 0 or front_us[number, i] > highs[g]:
                        break
                    cost = time * front_us[number, i]
                    cost = min(cost + scales[g] * front_cost[number, i], MOST)
                    one[end, y] = min(one[end, y], cost)
        for x in range(1, layers + 1):
            on, over = one[0, x], one[1, x]
            for y in range(1, x):
                before = found[g, 0, x - y]
                if before < HALF and one[0, y] < HALF:
                    on = min(on, before + one[0, y])
                if before < HALF and one[1, y] < HALF:
                    over = min(over, before + one[1, y])
                if found[g, 1, x - y] < HALF and one[0, y] < HALF:
                    over = min(over, found[g, 1, x - y] + one[0, y])
            found[g, 0, x], found[g, 1, x] = on, over
    return found
