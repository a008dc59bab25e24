"""Shortest paths over stages: plain loops over whole numbers, in C where that is built.

A path goes through the layers from the last to the first. A *suffix* of it begins at a
layer `l` with `p` stages in all (capped). It is in one of these states:

    site                 its first stage lies in one node of that site
    several              its first stage lies in several nodes
    state[c, k] + u      its first stages use u GPUs of a node of class c, of which the
                         pipeline uses k in all

The least costs of suffixes by state are the *potentials*, by [state, p, l]: of sites
first, then of `several`, then of chains of stages in a node. All costs are clamped to
`MOST`, which may only lower them; a sum at or above `HALF` stands for "there is none".
No path is worth as much, whatever goes before: `Pricing.most_prices` sees to it. Times
of runs that begin at one layer must not fall as runs grow, but at the last layer.
"""

from typing import NamedTuple

import numpy as np

from ...stages.classes import NEVER, Whole
from ...stages.memory import Flags
from .compiling import kernel

BIG, HALF, MOST = 1 << 60, 1 << 58, 1 << 55
LANES = 32  # intervals at once: what one step of a loop for wide registers takes


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
    sites: int
    site: Whole
    node_gpus: Whole
    state: Whole
    run: Whole  # [first, last]


class Costs(NamedTuple):
    """A graph at prices.

    A path costs `time` for each us, and for each us of the slowest stage what its GPUs
    and arcs cost: `gpu[c]`, `arc[arc, k, first, last]`. Stages in several nodes have
    fronts of times in us and least costs, by [p, run, i], ascending times.
    """

    time: int
    gpu: Whole
    arc: Whole
    front_us: Whole
    front_cost: Whole


class _Lanes(NamedTuple):
    """Potentials of as many intervals as there are lanes, and what the search keeps.

    `potential` is by [p, l, state * lanes + lane]. States are suffixes that begin in
    one node, by site; in several nodes; then chains. `now` are those of stages from
    the layer at hand on; `stops[side, arc, p]` where runs end that some slowest stage
    permits: inner and outer; `front[p, run, lane]` the least costs of stages in several
    nodes; `cost` by lane that of one stage.
    """

    highs: Whole
    scales: Whole
    potential: Whole
    now: Whole
    stops: Whole
    front: Whole
    cost: Whole


def _finite(cost: int) -> int:
    """Return a potential: a cost below `HALF`, or `BIG`."""
    return cost if cost < HALF else BIG


def _stop(
    us: Whole, arc: int, p: int, first: int, end: int, high: int, hint: int
) -> int:
    """Return where the longest run ends that takes `high` or less, begun at a hint."""
    stop = min(max(hint, first), end)
    while stop > first and us[arc, p, first, stop] > high:
        stop -= 1
    while stop < end and us[arc, p, first, stop + 1] <= high:
        stop += 1
    return stop


def _in_nodes(
    graph: Graph, costs: Costs, lanes: _Lanes, top: int, p: int, first: int
) -> None:
    """Lower what stages in a node cost that begin with a stage from layer `first` on.

    `p` stages follow that stage. The last one in the node hands on to a stage in
    another node, of this site or of another one, or to a stage in several nodes, of
    which this may be one. Loops over lanes stand here, as calls would cost as much.
    """
    highs, scales, cost, now = lanes.highs, lanes.scales, lanes.cost, lanes.now
    rest, stops, inner, outer = lanes.potential, lanes.stops, graph.inner, graph.outer
    layers, sites, time = graph.run.shape[0] - 1, graph.sites, costs.time
    exits = sites + (costs.front_us.shape[2] > 0)
    count = len(highs)
    for c in range(len(graph.node_gpus)):
        most, site = graph.node_gpus[c], graph.site[c]
        for arc in range(graph.begin[c], graph.begin[c + 1]):
            used, fits = graph.gpus[arc], graph.fits[arc, p, first]
            final = fits == layers and inner[arc, p, first, layers] <= top
            end = min(fits, layers - 1)
            near = _stop(inner, arc, p, first, end, top, stops[0, arc, p])
            off = _stop(outer, arc, p, first, end, top, stops[1, arc, p])
            stops[0, arc, p], stops[1, arc, p] = near, off
            reach = max(near, off) if sites == 1 else end
            for k in range(used, most + 1):
                state = graph.state[c, k] + sites + 1
                # Where k makes no difference, the most GPUs stand for all.
                if k < most and graph.state[c, k] == graph.state[c, most]:
                    continue
                light = graph.light[arc, k, first]
                here = (state + used) * count
                for last in range(first + 1, min(reach, light) + 1):
                    price = costs.arc[arc, k, first, last]
                    for place in range(exits):
                        us = inner[arc, p, first, last]
                        if place == site:
                            us = outer[arc, p, first, last]
                        elif place < sites:
                            us = graph.far[arc, p, first, last]
                        if us > top:
                            continue
                        paid, there = time * us, place * count
                        for j in range(count):
                            own = min(paid + scales[j] * price, MOST)
                            own = own if us <= highs[j] else BIG
                            own += rest[p, last, there + j]
                            now[here + j] = min(now[here + j], own)
                    if last > near or used == k:
                        continue
                    us = inner[arc, p, first, last]
                    paid = time * us
                    for j in range(count):
                        own = min(paid + scales[j] * price, MOST)
                        cost[j] = own if us <= highs[j] else BIG
                    for left in range(1, k + 1 - used):
                        into = (state + used + left) * count
                        there = (state + left) * count
                        for j in range(count):
                            own = cost[j] + rest[p, last, there + j]
                            now[into + j] = min(now[into + j], own)
                if final and light == layers:  # nothing is handed on
                    us = inner[arc, p, first, layers]
                    price = costs.arc[arc, k, first, layers]
                    paid, there = time * us, site * count
                    for j in range(count):
                        own = min(paid + scales[j] * price, MOST)
                        own = own if us <= highs[j] else BIG
                        own += rest[p, layers, there + j]
                        now[here + j] = min(now[here + j], own)


def _in_several(graph: Graph, lanes: _Lanes, p: int, first: int) -> None:
    """Lower what suffixes cost that begin with a stage in several nodes."""
    rest, now, count = lanes.potential, lanes.now, len(lanes.highs)
    layers, places = graph.run.shape[0] - 1, lanes.front.shape[0]
    for last in range(first + 1, layers + 1):
        if places > 1 and (last == layers) != (p == 0):
            continue
        run = graph.run[first, last]
        for place in range(graph.sites + 1):
            for j in range(count):
                own = lanes.front[p, run, j] + rest[p, last, place * count + j]
                here = graph.sites * count + j
                now[here] = min(now[here], own)


def _set_fronts(costs: Costs, lanes: _Lanes) -> None:
    """Look for the least costs of stages in several nodes."""
    lanes.front[:] = BIG
    for p, run, i in np.ndindex(costs.front_us.shape):
        us, price = costs.front_us[p, run, i], costs.front_cost[p, run, i]
        for j in range(len(lanes.highs)):
            if us <= lanes.highs[j]:
                own = min(costs.time * us + lanes.scales[j] * price, MOST)
                lanes.front[p, run, j] = min(lanes.front[p, run, j], own)


def _suffixes(graph: Graph, costs: Costs, lanes: _Lanes) -> None:
    """Fill in the potentials, from the last layer to the first."""
    found, now, count = lanes.potential, lanes.now, len(lanes.highs)
    layers, places, top = graph.run.shape[0] - 1, lanes.front.shape[0], max(lanes.highs)
    found[:] = BIG
    found[0, layers, : graph.sites * count] = 0
    lanes.stops[:] = 0
    _set_fronts(costs, lanes)
    for first in range(layers - 1, -1, -1):
        now[:] = BIG
        for p in range(places):
            _in_nodes(graph, costs, lanes, top, p, first)
            if costs.front_us.shape[2] > 0:
                _in_several(graph, lanes, p, first)
            # The last two numbers of stages behind lead to the same one.
            if p + 2 == places:
                continue
            for c in range(len(graph.node_gpus)):
                into = graph.site[c] * count
                for k in range(1, graph.node_gpus[c] + 1):
                    at = (graph.state[c, k] + k + graph.sites + 1) * count
                    for j in range(count):
                        own = min(lanes.scales[j] * costs.gpu[c] * k, MOST)
                        own = _finite(now[at + j]) + own
                        now[into + j] = min(now[into + j], own)
            after = min(p + 1, places - 1)
            for x in range(len(now)):
                found[after, first, x] = _finite(now[x])
            now[:] = BIG


def least(
    graph: Graph, costs: Costs, lows: Whole, highs: Whole, scale: int, kept: Whole
) -> Whole:
    """Return the least cost of a path, by interval of the slowest stage.

    No stage takes more than `highs[g]`; prices count `scale * lows[g]` times.
    Potentials are `kept`, by [interval, state, p, l], where it has so many entries.
    """
    found = np.empty(len(lows), np.int64)
    _least(graph, costs, lows, highs, scale, kept, found)
    return found


@kernel
def _least(
    graph: Graph,
    costs: Costs,
    lows: Whole,
    highs: Whole,
    scale: int,
    kept: Whole,
    found: Whole,
) -> None:
    found[:] = BIG
    states, places, end = kept.shape[1:]
    count = min(LANES, len(lows))
    lanes = _Lanes(
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty((places, end, states * count), np.int64),
        np.empty(states * count, np.int64),
        np.empty((2, len(graph.gpus), places), np.int64),
        np.empty((places, costs.front_us.shape[1], count), np.int64),
        np.empty(count, np.int64),
    )
    for begin in range(0, len(lows), LANES):
        begin = min(begin, len(lows) - count)
        lanes.highs[:] = highs[begin : begin + count]
        lanes.scales[:] = scale * lows[begin : begin + count]
        _suffixes(graph, costs, lanes)
        for j in range(count):
            for p, place in np.ndindex(places, graph.sites + 1):
                own = lanes.potential[p, 0, place * count + j]
                found[begin + j] = min(found[begin + j], own)
            if kept.shape[0] == len(lows):
                for state, p, at in np.ndindex(kept.shape[1:]):
                    own = lanes.potential[p, at, state * count + j]
                    kept[begin + j, state, p, at] = own


def fronts(
    order: Whole, us: Whole, samples: Whole, cost: Whole, able: Flags, size: int
) -> tuple[Whole, Whole]:
    """Return the least costs of replicas that share a micro-batch, by their slowest.

    Both are by [p, run, i], ascending times and falling costs; `BIG` where there are no
    more. Replicas are by [p, run, i] in `order` of their times `us`; `cost` and `able`
    are by [run, replica]. A knapsack over samples grows by one replica at a time.
    """
    front_us, front_cost = np.empty((2, *order.shape), np.int64)
    _fronts(order, us, samples, cost, able, size, front_us, front_cost)
    return front_us, front_cost


@kernel
def _fronts(
    order: Whole,
    us: Whole,
    samples: Whole,
    cost: Whole,
    able: Flags,
    size: int,
    front_us: Whole,
    front_cost: Whole,
) -> None:
    places, runs, count = order.shape
    front_us[:], front_cost[:] = BIG, BIG
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


def _alike(kind: Whole, gpus: Whole, begin: Whole, used: Whole, light: Whole) -> Whole:
    """Tell by segment whether it has the stages of the next one that is not alike (1).

    Segments stand by class, each with one GPU more than the one before.
    """
    found = np.zeros(len(gpus), np.int64)
    after = len(gpus) - 1
    for segment in range(len(gpus) - 2, -1, -1):
        k, c = gpus[segment], kind[segment]
        same = c == kind[after] and k < gpus[after]
        for arc in range(begin[c], begin[c + 1]):
            if same and used[arc] <= k and light[arc, k] != light[arc, gpus[after]]:
                same = False
        if same:
            found[segment] = 1
        else:
            after = segment
    return found


def segment_us(
    highs: Whole,
    kind: Whole,
    gpus: Whole,
    begin: Whole,
    used: Whole,
    inner: Whole,
    exits: Whole,
    light: Whole,
) -> Whole:
    """Return least times of equal layers on GPUs of a node: [interval, segment, e, x].

    A *segment* is all that a pipeline does in one node of class `kind` on `gpus` GPUs.
    Its last stage hands on to another node (0), or ends the pipeline (1), or hands on
    to another site (2), if there are any. Times of stages are by [arc, layers], those
    of last ones, `exits`, by [e, arc, layers]; stages hold up to `light[arc, GPUs]`
    layers.
    """
    shape = len(highs), len(gpus), exits.shape[0], inner.shape[1]
    found = np.empty(shape, np.int64)
    _segment_us(highs, kind, gpus, begin, used, inner, exits, light, found)
    return found


@kernel
def _segment_us(
    highs: Whole,
    kind: Whole,
    gpus: Whole,
    begin: Whole,
    used: Whole,
    inner: Whole,
    exits: Whole,
    light: Whole,
    found: Whole,
) -> None:
    layers, ways = inner.shape[1] - 1, exits.shape[0]
    most = max(gpus, default=0)
    least_us = np.zeros((most + 1, ways, layers + 1), np.int64)
    # By segments that have the same stages as one of more GPUs: 1, others 0.
    alike = _alike(kind, gpus, begin, used, light)
    for g in range(len(highs)):
        high = highs[g]
        for segment in range(len(gpus) - 1, -1, -1):
            k = gpus[segment]
            if alike[segment] == 1:
                found[g, segment] = least_us[k]
                continue
            least_us[:] = BIG
            for left in range(1, k + 1):
                for arc in range(begin[kind[segment]], begin[kind[segment] + 1]):
                    own = used[arc]
                    if own > left:
                        break
                    for y in range(1, min(light[arc, k], layers) + 1):
                        if own == left:
                            for end in range(ways):
                                if exits[end, arc, y] <= high:
                                    now = least_us[left, end, y]
                                    more = exits[end, arc, y]
                                    least_us[left, end, y] = min(now, more)
                            continue
                        us = inner[arc, y]
                        if us > high:
                            break
                        for end in range(ways):
                            for x in range(1, layers - y + 1):
                                more = least_us[left - own, end, x] + us
                                now = least_us[left, end, x + y]
                                least_us[left, end, x + y] = min(now, more)
            found[g, segment] = least_us[k]


def segment_price(
    kind: Whole, gpus: Whole, begin: Whole, used: Whole, price: Whole, light: Whole
) -> Whole:
    """Return the least prices of stages in a node: [segment, GPUs, layers].

    `price` is by [arc, GPUs of the segment, layers], and may be negative.
    """
    most = int(gpus.max(initial=0))
    found = np.empty((len(gpus), most + 1, price.shape[2]), np.int64)
    _segment_price(kind, gpus, begin, used, price, light, found)
    return found


@kernel
def _segment_price(
    kind: Whole,
    gpus: Whole,
    begin: Whole,
    used: Whole,
    price: Whole,
    light: Whole,
    found: Whole,
) -> None:
    layers = price.shape[2] - 1
    found[:] = BIG
    for segment in range(len(gpus)):
        k, least_of = gpus[segment], found[segment]
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


def least_unordered(
    time: int,
    scales: Whole,
    us: Whole,
    rows: Whole,
    price: Whole,
    kind: Whole,
    visits: Whole,
    start: Whole,
    kept: Whole,
) -> Whole:
    """Return the least cost of a path through equal layers, by interval.

    Paths go on from `start[g, e, layers]`: one that is not over yet (0), is over (1),
    or has left its site (2), if there are several. Segments cost `time` for each us and
    `scales[g]` times their `price`, by [segment, layers]; times of the interval g are
    `us[rows[g]]`, by [segment, e, layers]. Nodes are visited class by class, each once:
    `visits[c]` of class c. `kept[g, n, e, layers]` are the least costs after n visits,
    where it has an entry an interval.
    """
    found = np.empty(len(rows), np.int64)
    _least_unordered(time, scales, us, rows, price, kind, visits, start, kept, found)
    return found


@kernel
def _least_unordered(
    time: int,
    scales: Whole,
    us: Whole,
    rows: Whole,
    price: Whole,
    kind: Whole,
    visits: Whole,
    start: Whole,
    kept: Whole,
    found: Whole,
) -> None:
    count, ways, layers = len(rows), us.shape[2], us.shape[3] - 1
    one = np.zeros((len(visits), ways, layers + 1), np.int64)
    for g in range(count):
        table = kept[g if kept.shape[0] == count else 0]
        one[:] = BIG
        row = rows[g]
        for segment in range(us.shape[1]):
            c = kind[segment]
            if visits[c] == 0:
                continue
            for end in range(ways):
                for y in range(layers + 1):
                    took = us[row, segment, end, y]
                    cost = time * (took if took < HALF else 0)
                    cost = min(cost + scales[g] * price[segment, y], MOST)
                    cost = cost if took < HALF else BIG
                    one[c, end, y] = min(one[c, end, y], cost)
        table[0] = start[g]
        n = 0
        for c in range(len(visits)):
            for _ in range(visits[c]):
                table[n + 1] = table[n]
                for y in range(1, layers + 1):
                    for ended in range(ways):
                        more = one[c, ended, y]
                        if more >= HALF:
                            continue
                        for end in range(ways if ended == 0 else 1):
                            for x in range(layers + 1 - y):
                                own = table[n, end, x] + more
                                now = table[n + 1, end + ended, x + y]
                                table[n + 1, end + ended, x + y] = min(now, own)
                n += 1
        found[g] = table[n, 1, layers]


def repeated(
    time: int,
    scales: Whole,
    highs: Whole,
    front_us: Whole,
    front_cost: Whole,
    numbers: int,
) -> Whole:
    """Return what stages in several nodes alone cost: [interval, n, e, layers].

    n + 1 of them, or as many and more where n is the last of these `numbers`. They are
    of equal layers, and one of them may end the pipeline (1) or hand on to another site
    (2); fronts are by [e, layers, i].
    """
    found = np.empty((len(highs), numbers, *front_us.shape[:2]), np.int64)
    _repeated(time, scales, highs, front_us, front_cost, found)
    return found


@kernel
def _repeated(
    time: int,
    scales: Whole,
    highs: Whole,
    front_us: Whole,
    front_cost: Whole,
    found: Whole,
) -> None:
    ways, layers, numbers = front_us.shape[0], front_us.shape[1] - 1, found.shape[1]
    found[:] = BIG
    one = np.zeros((ways, layers + 1), np.int64)
    for g in range(len(highs)):
        for y in range(1, layers + 1):
            for end in range(ways):
                one[end, y] = BIG
                for i in range(front_us.shape[2]):
                    if front_us[end, y, i] > highs[g]:
                        break
                    cost = time * front_us[end, y, i]
                    cost = min(cost + scales[g] * front_cost[end, y, i], MOST)
                    one[end, y] = min(one[end, y], cost)
        found[g, 0, :, 1:] = one[:, 1:]
        for x in range(1, layers):
            for n in range(numbers):
                into = min(n + 1, numbers - 1)
                for end in range(ways):
                    before = found[g, n, end, x]
                    if before >= HALF:
                        continue
                    for ended in range(ways if end == 0 else 1):
                        for y in range(1, layers - x + 1):
                            own = before + one[ended, y]
                            now = found[g, into, end + ended, y + x]
                            found[g, into, end + ended, y + x] = min(now, own)


def joined(before: Whole, inside: Whole, most: int) -> Whole:
    """Return least costs of paths that go on in a site, or do not visit it.

    All are by [interval, ended, layers]; a path holds up to `most` layers in the site,
    `inside`.
    """
    found = np.empty(before.shape, np.int64)
    _joined(before, inside, most, found)
    return found


@kernel
def _joined(before: Whole, inside: Whole, most: int, found: Whole) -> None:
    found[:] = before
    layers = before.shape[2] - 1
    for g in range(before.shape[0]):
        for y in range(1, min(most, layers) + 1):
            for ended in range(2):
                own = inside[g, ended, y]
                if own >= HALF:
                    continue
                for end in range(2 - ended):
                    for x in range(layers + 1 - y):
                        rest = before[g, end, x] + own
                        now = found[g, end + ended, x + y]
                        found[g, end + ended, x + y] = min(now, rest)
