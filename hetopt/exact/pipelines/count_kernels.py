"""Least times of pipelines by the GPUs that they use of each class: plain loops.

A label stands between two stages: the next layer, how many stages follow (capped, as in
`kernels`), and the GPUs used so far of each class, as one number, the *state*. It keeps
the least time and the least cost of what lies before it, each by itself. Labels go from
the first layer on. What a pipeline does in one node is one step, a *segment*.
"""

from typing import NamedTuple

import numpy as np

from ...stages.classes import NEVER, Whole
from .compiling import kernel
from .kernels import BIG, HALF, Costs, Graph


class States(NamedTuple):
    """GPUs used of each class, by number, and stages in several nodes.

    `use` is by [state, class]; a GPU of class c raises the number by `strides[c]`. Such
    stages use `vectors` of GPUs, by [vector, class], and take `vector_us` by [p, run,
    vector] (`NEVER` where others do as well) for prices of `vector_cost` or more, by
    [run, vector].
    """

    gpus: Whole
    use: Whole
    strides: Whole
    vectors: Whole
    vector_us: Whole
    vector_cost: Whole


class Least(NamedTuple):
    """The least that a suffix takes, and costs, by [p, first layer].

    It begins with a stage in one node, in several, or within a node: the potentials of
    `kernels`.
    """

    node_us: Whole
    across_us: Whole
    chain_us: Whole
    node_cost: Whole
    across_cost: Whole
    chain_cost: Whole


@kernel
def _segments(
    graph: Graph,
    costs: Costs,
    high: int,
    scale: int,
    suffix: Least,
    room: tuple[int, int],
    at: tuple[int, int, int],
    p0: int,
    first: int,
    inside_us: Whole,
    inside_cost: Whole,
    us: Whole,
    cost: Whole,
) -> None:
    """Fill in segments that begin at a layer: [hop, GPUs, p, layer behind].

    The next stage is in one node (hop 0) or in several (1). `at` are the class, the
    GPUs that the pipeline uses of the node, and the least number of them at which
    segments end. Of no interest is what takes and costs more than `room`.
    """
    c, k, least = at
    layers, places = graph.run.shape[0] - 1, us.shape[2]
    several = us.shape[0] > 1
    inside_us[: k + 1] = BIG
    inside_cost[: k + 1] = BIG
    inside_us[0, p0, first] = 0
    inside_cost[0, p0, first] = 0
    state, paid = graph.state[c, k], scale * costs.gpu[c]
    for x in range(first, layers):
        for used in range(k):
            for n in range(places):
                if inside_us[used, n, x] >= HALF:
                    continue
                began_us, began_cost = inside_us[used, n, x], inside_cost[used, n, x]
                rest_us, rest_cost = BIG, BIG
                for left in range(max(1, least - used), k - used + 1):
                    rest_us = min(rest_us, suffix.chain_us[state + left, n, x])
                    more = suffix.chain_cost[state + left, n, x] + paid * (used + left)
                    rest_cost = min(rest_cost, more)
                if began_us + rest_us > room[0] or began_cost + rest_cost > room[1]:
                    continue
                for p in range(max(0, n - 1), places):
                    if min(p + 1, places - 1) != n:
                        continue
                    for arc in range(graph.begin[c], graph.begin[c + 1]):
                        now = used + graph.gpus[arc]
                        if now > k:
                            break
                        end = min(graph.fits[arc, p, x], graph.light[arc, k, x])
                        inner, outer = graph.inner[arc, p, x], graph.outer[arc, p, x]
                        price = costs.arc[arc, k, x]
                        if end == layers:
                            if now >= least and inner[layers] <= high:
                                t = began_us + inner[layers]
                                more = (
                                    costs.time * inner[layers] + scale * price[layers]
                                )
                                us[0, now, p, layers] = min(us[0, now, p, layers], t)
                                r = min(cost[0, now, p, layers], began_cost + more)
                                cost[0, now, p, layers] = r
                            end -= 1
                        for last in range(x + 1, end + 1):
                            if inner[last] > high and outer[last] > high:
                                break
                            if inner[last] <= high:
                                t = began_us + inner[last]
                                more = costs.time * inner[last] + scale * price[last]
                                r = began_cost + more
                                if now < k:
                                    best = inside_us[now, p, last]
                                    inside_us[now, p, last] = min(best, t)
                                    best = inside_cost[now, p, last]
                                    inside_cost[now, p, last] = min(best, r)
                                if several and now >= least:
                                    us[1, now, p, last] = min(us[1, now, p, last], t)
                                    best = cost[1, now, p, last]
                                    cost[1, now, p, last] = min(best, r)
                            if outer[last] <= high and now >= least:
                                t = began_us + outer[last]
                                more = costs.time * outer[last] + scale * price[last]
                                r = began_cost + more
                                us[0, now, p, last] = min(us[0, now, p, last], t)
                                cost[0, now, p, last] = min(cost[0, now, p, last], r)


@kernel
def _kept(
    states: States,
    us: Whole,
    cost: Whole,
    rest_us: int,
    rest_cost: int,
    most_us: Whole,
    most_cost: int,
    best_us: Whole,
    best_cost: Whole,
    found: Whole,
) -> int:
    """List the labels that are worth going on with, and return their number.

    A label goes where one of fewer GPUs is neither slower nor dearer: `best_us` and
    `best_cost` are of one such label for each state.
    """
    number = 0
    if rest_us >= HALF or rest_cost >= HALF:
        return 0
    for state in range(len(us)):
        t, r = us[state], cost[state]
        best_us[state], best_cost[state] = BIG, BIG
        worse = False
        for c in range(len(states.strides)):
            if states.use[state, c] > 0:
                less = state - states.strides[c]
                if best_us[less] <= t and best_cost[less] <= r and t < HALF:
                    worse = True
                if best_us[less] < best_us[state]:
                    best_us[state], best_cost[state] = best_us[less], best_cost[less]
        if t >= HALF or worse:
            continue
        best_us[state], best_cost[state] = t, r
        if t + rest_us <= most_us[state] and r + rest_cost <= most_cost:
            found[number] = state
            number += 1
    return number


@kernel
def _room(
    live: Whole, us: Whole, cost: Whole, most_us: Whole, most_cost: int
) -> tuple[int, int]:
    """Return the most time and cost that any of the labels may still add."""
    left_us, left = -BIG, -BIG
    for state in live:
        left_us = max(left_us, most_us[state] - us[state])
        left = max(left, most_cost - cost[state])
    return left_us, left


@kernel
def least_sums(
    graph: Graph,
    costs: Costs,
    states: States,
    least: Least,
    high: int,
    scale: int,
    most_us: Whole,
    most_cost: int,
) -> Whole:
    """Return the least sums of the stages of a path, by the GPUs that it uses.

    No stage takes more than `high`. Paths are left out that cost more than `most_cost`,
    or take longer than `most_us`, which is by state and not more for more GPUs. A path
    may also be left out where one of fewer GPUs takes no more time.
    """
    layers, places = graph.run.shape[0] - 1, least.node_us.shape[0]
    classes, count = len(states.gpus), len(most_us)
    several = states.vectors.shape[0] > 0
    widest = 0
    for c in range(classes):
        widest = max(widest, graph.node_gpus[c])
    hops = 2 if several else 1
    us = np.full((hops, layers + 1, places, count), BIG, np.int64)
    cost = np.full((hops, layers + 1, places, count), BIG, np.int64)
    us[:, 0, :, 0] = 0
    cost[:, 0, :, 0] = 0
    step_us = np.zeros((hops, widest + 1, places, layers + 1), np.int64)
    step_cost = np.zeros((hops, widest + 1, places, layers + 1), np.int64)
    best_us, best_cost = np.zeros(count, np.int64), np.zeros(count, np.int64)
    inside_us = np.zeros((widest + 1, places, layers + 1), np.int64)
    inside_cost = np.zeros((widest + 1, places, layers + 1), np.int64)
    live = np.zeros(count, np.int64)
    for first in range(layers):
        for q in range(places):
            number = _kept(
                states,
                us[0, first, q],
                cost[0, first, q],
                least.node_us[q, first],
                least.node_cost[q, first],
                most_us,
                most_cost,
                best_us,
                best_cost,
                live,
            )
            room = _room(
                live[:number], us[0, first, q], cost[0, first, q], most_us, most_cost
            )
            for c in range(classes) if number else range(0):
                most = graph.node_gpus[c]
                step_us[:] = BIG
                step_cost[:] = BIG
                alike = True
                for k in range(1, most):
                    alike = alike and graph.state[c, k] == graph.state[c, most]
                for k in range(most if alike else 1, most + 1):
                    at = (c, k, 1 if alike else k)
                    _segments(
                        graph,
                        costs,
                        high,
                        scale,
                        least,
                        room,
                        at,
                        q,
                        first,
                        inside_us,
                        inside_cost,
                        step_us,
                        step_cost,
                    )
                for hop in range(hops):
                    for k in range(1, most + 1):
                        raised, paid = k * states.strides[c], scale * costs.gpu[c] * k
                        able = states.gpus[c] - k
                        for p in range(places):
                            for last in range(first + 1, layers + 1):
                                t = step_us[hop, k, p, last]
                                if t >= HALF:
                                    continue
                                if hop:
                                    rest_us = least.across_us[p, last]
                                    rest_cost = least.across_cost[p, last]
                                else:
                                    rest_us = least.node_us[p, last]
                                    rest_cost = least.node_cost[p, last]
                                r = step_cost[hop, k, p, last] + paid
                                if t + rest_us > room[0] or r + rest_cost > room[1]:
                                    continue
                                into_us, into_cost = (
                                    us[hop, last, p],
                                    cost[hop, last, p],
                                )
                                for j in range(number):
                                    state = live[j]
                                    if states.use[state, c] > able:
                                        continue
                                    to = state + raised
                                    sum_us = us[0, first, q, state] + t
                                    sum_cost = cost[0, first, q, state] + r
                                    if sum_us + rest_us > most_us[to]:
                                        continue
                                    if sum_cost + rest_cost > most_cost:
                                        continue
                                    into_us[to] = min(into_us[to], sum_us)
                                    into_cost[to] = min(into_cost[to], sum_cost)
            if not several:
                continue
            number = _kept(
                states,
                us[1, first, q],
                cost[1, first, q],
                least.across_us[q, first],
                least.across_cost[q, first],
                most_us,
                most_cost,
                best_us,
                best_cost,
                live,
            )
            if number == 0:
                continue
            room = _room(
                live[:number], us[1, first, q], cost[1, first, q], most_us, most_cost
            )
            for p in range(max(0, q - 1), places):
                if min(p + 1, places - 1) != q:
                    continue
                for last in range(first + 1, layers + 1):
                    if places > 1 and (last == layers) != (p == 0):
                        continue
                    rest_us = min(least.node_us[p, last], least.across_us[p, last])
                    rest_cost = min(
                        least.node_cost[p, last], least.across_cost[p, last]
                    )
                    run = graph.run[first, last]
                    for v in range(states.vectors.shape[0]):
                        t = states.vector_us[p, run, v]
                        if t > high:
                            continue
                        r = costs.time * t + scale * states.vector_cost[run, v]
                        if t + rest_us > room[0] or r + rest_cost > room[1]:
                            continue
                        raised = 0
                        for c in range(classes):
                            raised += states.vectors[v, c] * states.strides[c]
                        for j in range(number):
                            state = live[j]
                            sum_us = us[1, first, q, state] + t
                            sum_cost = cost[1, first, q, state] + r
                            if sum_cost + rest_cost > most_cost:
                                continue
                            able = True
                            for c in range(classes):
                                all_ = states.use[state, c] + states.vectors[v, c]
                                able = able and all_ <= states.gpus[c]
                            if not able:
                                continue
                            to = state + raised
                            if sum_us + rest_us > most_us[to]:
                                continue
                            for hop in range(hops):
                                now = us[hop, last, p, to]
                                us[hop, last, p, to] = min(now, sum_us)
                                now = cost[hop, last, p, to]
                                cost[hop, last, p, to] = min(now, sum_cost)
    found: Whole = us[0, layers, 0]
    return found


@kernel
def vector_us(
    us: Whole, items: Whole, nodes: Whole, states: States, size: int
) -> Whole:
    """Return the least time of a stage in several nodes, by the GPUs of its replicas.

    It is by [least degree, p, run, state]; `NEVER` where fewer GPUs do as well. Times
    `us` of replicas are by [p, run, replica], and `items` are their class, GPUs and
    samples.
    """
    kinds, degrees, samples = items[:, 0], items[:, 1], items[:, 2]
    places, runs, count = us.shape
    most = 0
    for each in degrees:
        most = max(most, each)
    total, classes = len(states.use), len(states.gpus)
    found = np.full((most + 1, places, runs, total), NEVER, np.int64)
    widest = 0
    for each in states.gpus:
        widest = max(widest, each)
    own = np.zeros((widest + 1, size + 1), np.int64)
    one, other = (
        np.zeros((total, size + 1), np.int64),
        np.zeros((total, size + 1), np.int64),
    )
    for degree in range(1, most + 1):
        for p in range(places):
            for run in range(runs):
                one[:] = NEVER
                one[0, 0] = 0
                for c in range(classes):
                    own[:] = NEVER
                    own[:, 0] = 0
                    for g in range(1, states.gpus[c] + 1):
                        own[g] = own[g - 1]
                        for i in range(count):
                            t, s = degrees[i], samples[i]
                            if kinds[i] != c or t < degree or t > g:
                                continue
                            took = us[p, run, i]
                            if took >= NEVER:
                                continue
                            for x in range(s, size + 1):
                                own[g, x] = min(own[g, x], max(own[g - t, x - s], took))
                    other[:] = NEVER
                    for state in range(total):
                        if one[state, 0] >= NEVER and one[state].min() >= NEVER:
                            continue
                        if states.use[state, c]:
                            continue
                        for g in range(states.gpus[c] + 1):
                            to = state + g * states.strides[c]
                            for x in range(size + 1):
                                if one[state, x] >= NEVER:
                                    continue
                                for s in range(size + 1 - x):
                                    if own[g, s] < NEVER:
                                        t = max(one[state, x], own[g, s])
                                        other[to, x + s] = min(other[to, x + s], t)
                    one[:] = other
                for state in range(total):
                    number = 0  # of nodes that there are of the classes
                    for c in range(classes):
                        number += nodes[c] if states.use[state, c] else 0
                    if number < 2:
                        one[state, size] = NEVER
                for state in range(total):
                    t = one[state, size]
                    better = t < NEVER
                    for c in range(classes):
                        if states.use[state, c]:
                            less = state - states.strides[c]
                            better = better and one[less, size] > t
                    if better:
                        found[degree, p, run, state] = t
    return found


@kernel
def most_taken(
    one: Whole, states: States, fewest: int, most: int
) -> tuple[Whole, Whole]:
    """Return what pipelines take together, by their number and the GPUs that there are.

    `one` are the sequences of one pipeline by the GPUs that it uses, 0 where there is
    none. Of 0 to `most` pipelines, -1 where there are too few GPUs; and the most of
    `fewest` - 1 to `most` - 1 of them.
    """
    count, classes = len(one), len(states.gpus)
    items = np.zeros(count, np.int64)
    number = 0
    best = np.zeros(count, np.int64)  # of one pipeline, by GPUs that there are
    for state in range(count):
        for c in range(classes):
            if states.use[state, c]:
                best[state] = max(best[state], best[state - states.strides[c]])
        if one[state] > best[state]:
            items[number] = state
            number += 1
            best[state] = one[state]
    exactly = np.full((most + 1, count), -1, np.int64)
    exactly[0] = 0
    others = np.full(count, -1, np.int64)
    for parts in range(most):
        if parts >= fewest - 1:
            for state in range(count):
                others[state] = max(others[state], exactly[parts, state])
        for state in range(count):
            found = -1
            for j in range(number):
                item = items[j]
                if item > state:
                    break
                rest = exactly[parts, state - item]
                if rest < 0 or rest + one[item] <= found:
                    continue
                able = True
                for c in range(classes):
                    able = able and states.use[item, c] <= states.use[state, c]
                if able:
                    found = rest + one[item]
            exactly[parts + 1, state] = found
    return exactly, others
