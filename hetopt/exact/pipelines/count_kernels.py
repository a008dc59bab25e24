"""Least times of pipelines by the GPUs that they use of each class: plain loops.

A label stands between two stages: the next layer, how many stages follow (capped, as in
`kernels`), and the GPUs used so far of each class, as one number, the *state*. It keeps
the least time and the least cost of what lies before it, each by itself. Labels go from
the first layer on. What a pipeline does in one node is one step, a *segment*.

A stage hands on by links of a node where the next one has GPUs of that node, too, and
by others where it has none. Both in one node are in one segment. Else one of both is a
stage in several nodes: it has a GPU or more of the node, and the other stage no more
than the rest. So a label has a *side*, which says where the next stage is. With C
classes:

    0            in one node
    1            in several nodes
    2 + c        in one node of class c, which the stage before has GPUs of
    2 + C + c    in several, one of which is of class c and the stage before is there
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...stages.classes import NEVER, Whole
from .compiling import kernel
from .kernels import BIG, HALF, Costs, Graph


class States(NamedTuple):
    """GPUs used of each class, by number, and stages in several nodes.

    `use` is by [state, class]; a GPU of class c raises the number by `strides[c]`. Such
    stages use `vectors` of GPUs, by [vector, class], and take `vector_us` by [exit, p,
    run, vector] (`NEVER` where others do as well) for prices of `vector_cost` or more,
    by [run, vector]. Exit 0 is to a stage in no node of theirs, exit 1 + c to one that
    shares a node of class c with them.
    """

    gpus: Whole
    use: Whole
    strides: Whole
    vectors: Whole
    vector_us: Whole
    vector_cost: Whole

    @classmethod
    def of(cls, gpus: Sequence[int]) -> "States":
        """Number the states of so many GPUs by class; no stage is in several nodes."""
        most = np.array(gpus, np.int64)
        sides = most + 1
        use = np.indices(sides.tolist()).reshape(len(sides), -1).T
        strides = np.ones(len(sides), np.int64)
        strides[:-1] = np.cumprod(sides[:0:-1])[::-1]
        none, empty = np.zeros((0, len(sides)), np.int64), np.zeros((1, 0), np.int64)
        states = np.ascontiguousarray(use, np.int64)
        return cls(most, states, strides, none, empty[None, None], empty)


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
def segments(
    graph: Graph,
    costs: Costs,
    high: int,
    scale: int,
    suffix: Least,
    room: tuple[int, int],
    at: tuple[int, int, int, int],
    p0: int,
    first: int,
    inside_us: Whole,
    inside_cost: Whole,
    us: Whole,
    cost: Whole,
) -> None:
    """Fill in segments that begin at a layer: [hop, GPUs, p, layer behind].

    The next stage is in no node of theirs (hop 0), or in several, one of which is this
    one (1). `at` are the class, the GPUs that the pipeline uses of the node, the least
    number of them at which segments end, and the most that they have. Of no interest is
    what takes and costs more than `room`.
    """
    c, k, least, top = at
    layers, places = graph.run.shape[0] - 1, us.shape[2]
    several = us.shape[0] > 1
    inside_us[: k + 1] = BIG
    inside_cost[: k + 1] = BIG
    inside_us[0, p0, first] = 0
    inside_cost[0, p0, first] = 0
    state, paid = graph.state[c, k], scale * costs.gpu[c]
    for x in range(first, layers):
        for used in range(top):
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
                        if now > top:
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
                        shared = several and now >= least and now < graph.node_gpus[c]
                        for last in range(x + 1, end + 1):
                            if inner[last] > high and outer[last] > high:
                                break
                            if inner[last] <= high:
                                t = began_us + inner[last]
                                more = costs.time * inner[last] + scale * price[last]
                                r = began_cost + more
                                if now < top:
                                    best = inside_us[now, p, last]
                                    inside_us[now, p, last] = min(best, t)
                                    best = inside_cost[now, p, last]
                                    inside_cost[now, p, last] = min(best, r)
                                if shared:
                                    us[1, now, p, last] = min(us[1, now, p, last], t)
                                    best = cost[1, now, p, last]
                                    cost[1, now, p, last] = min(best, r)
                            if outer[last] <= high and now >= least:
                                t = began_us + outer[last]
                                more = costs.time * outer[last] + scale * price[last]
                                r = began_cost + more
                                us[0, now, p, last] = min(us[0, now, p, last], t)
                                cost[0, now, p, last] = min(cost[0, now, p, last], r)


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


def _room(
    live: Whole, us: Whole, cost: Whole, most_us: Whole, most_cost: int
) -> tuple[int, int]:
    """Return the most time and cost that any of the labels may still add."""
    left_us, left = -BIG, -BIG
    for state in live:
        left_us = max(left_us, most_us[state] - us[state])
        left = max(left, most_cost - cost[state])
    return left_us, left


def _go_on(
    states: States,
    use: Whole,
    live: Whole,
    from_us: Whole,
    from_cost: Whole,
    step: tuple[int, int],
    rest: tuple[int, int],
    most_us: Whole,
    most_cost: int,
    into_us: Whole,
    into_cost: Whole,
) -> bool:
    """Lower labels by a step of some GPUs that goes on from others; tell if any are."""
    raised, found = 0, False
    for c in range(len(use)):
        raised += use[c] * states.strides[c]
    for state in live:
        sum_us, sum_cost = from_us[state] + step[0], from_cost[state] + step[1]
        if sum_cost + rest[1] > most_cost:
            continue
        able = True
        for c in range(len(use)):
            able = able and states.use[state, c] + use[c] <= states.gpus[c]
        if not able:
            continue
        to = state + raised
        if sum_us + rest[0] > most_us[to]:
            continue
        into_us[to] = min(into_us[to], sum_us)
        into_cost[to] = min(into_cost[to], sum_cost)
        found = True
    return found


def _rest(least: Least, across: int, p: int, first: int) -> tuple[int, int]:
    """Return the least time and cost from a layer on, in one node or in several."""
    if across:
        return least.across_us[p, first], least.across_cost[p, first]
    return least.node_us[p, first], least.node_cost[p, first]


def labels(
    graph: Graph,
    costs: Costs,
    states: States,
    least: Least,
    high: int,
    scale: int,
    most_us: Whole,
    most_cost: int,
) -> Whole:
    """Return the least sums of stages up to a label: [side, next layer, p, state].

    Whole paths are those of side 0 behind the last layer. No stage
    takes more than `high`. Paths are left out that cost more than `most_cost`,
    or take longer than `most_us`, which is by state and not more for more GPUs. A path
    may also be left out where one of fewer GPUs takes no more time.
    """
    sides = 2 + 2 * len(states.gpus) if len(states.vectors) else 1
    shape = sides, graph.run.shape[0], least.node_us.shape[0], len(most_us)
    us = np.empty(shape, np.int64)
    _labels(graph, costs, states, least, high, scale, most_us, most_cost, us)
    return us


@kernel
def _labels(
    graph: Graph,
    costs: Costs,
    states: States,
    least: Least,
    high: int,
    scale: int,
    most_us: Whole,
    most_cost: int,
    us: Whole,
) -> None:
    layers, places = graph.run.shape[0] - 1, least.node_us.shape[0]
    classes, count = len(states.gpus), len(most_us)
    several = states.vectors.shape[0] > 0
    widest = max(graph.node_gpus, default=0)
    sides = len(us)
    hops = 2 if several else 1
    us[:] = BIG
    cost = np.full_like(us, BIG)
    us[:2, 0, :, 0] = 0
    cost[:2, 0, :, 0] = 0
    reached = np.zeros((sides, layers + 1, places), np.bool_)
    reached[:2, 0] = True
    step_us = np.zeros((hops, widest + 1, places, layers + 1), np.int64)
    step_cost = np.zeros((hops, widest + 1, places, layers + 1), np.int64)
    best_us, best_cost = np.zeros(count, np.int64), np.zeros(count, np.int64)
    inside_us = np.zeros((widest + 1, places, layers + 1), np.int64)
    inside_cost = np.zeros((widest + 1, places, layers + 1), np.int64)
    live = np.zeros(count, np.int64)
    use = np.zeros(classes, np.int64)
    for first in range(layers):
        for q, side in np.ndindex(places, sides):
            if not reached[side, first, q]:
                continue
            in_node = side == 0 or 2 <= side < 2 + classes
            from_us, from_cost = us[side, first, q], cost[side, first, q]
            rest_us, rest_cost = least.across_us[q, first], least.across_cost[q, first]
            if in_node:
                rest_us, rest_cost = least.node_us[q, first], least.node_cost[q, first]
            number = _kept(
                states,
                from_us,
                from_cost,
                rest_us,
                rest_cost,
                most_us,
                most_cost,
                best_us,
                best_cost,
                live,
            )
            if number == 0:
                continue
            some = live[:number]
            room = _room(some, from_us, from_cost, most_us, most_cost)
            if in_node:
                for c in range(classes):
                    if side and side != 2 + c:
                        continue
                    most = graph.node_gpus[c]
                    top = most - 1 if side else most
                    step_us[:] = BIG
                    step_cost[:] = BIG
                    alike = True
                    for k in range(1, most):
                        alike = alike and graph.state[c, k] == graph.state[c, most]
                    for k in range(most if alike else 1, (most if alike else top) + 1):
                        at = (c, k, 1 if alike else k, min(k, top))
                        segments(
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
                    for hop, k, p in np.ndindex(hops, top + 1, places):
                        use[:] = 0
                        use[c] = k
                        for last in range(first + 1, layers + 1):
                            t = step_us[hop, k, p, last]
                            if t >= HALF:
                                continue
                            r = step_cost[hop, k, p, last]
                            other = step_us[0, k, p, last], step_cost[0, k, p, last]
                            if hop and t >= other[0] and r >= other[1]:
                                continue
                            r += scale * costs.gpu[c] * k
                            for across in range(hop, hops):
                                rest = _rest(least, across, p, last)
                                if t + rest[0] > room[0] or r + rest[1] > room[1]:
                                    continue
                                to = 2 + classes + c if hop else across
                                reached[to, last, p] |= _go_on(
                                    states,
                                    use,
                                    some,
                                    from_us,
                                    from_cost,
                                    (t, r),
                                    rest,
                                    most_us,
                                    most_cost,
                                    us[to, last, p],
                                    cost[to, last, p],
                                )
                continue
            for p in range(max(0, q - 1), places):
                if min(p + 1, places - 1) != q:
                    continue
                for last in range(first + 1, layers + 1):
                    if places > 1 and (last == layers) != (p == 0):
                        continue
                    run = graph.run[first, last]
                    for v in range(states.vectors.shape[0]):
                        if side > 1 and states.vectors[v, side - 2 - classes] == 0:
                            continue
                        away = states.vector_us[0, p, run, v]
                        for hop in range(states.vector_us.shape[0]):
                            t = states.vector_us[hop, p, run, v]
                            if t > high or (hop and t >= away):
                                continue
                            if hop and states.vectors[v, hop - 1] == 0:
                                continue
                            r = costs.time * t + scale * states.vector_cost[run, v]
                            for across in range(2):
                                rest = _rest(least, across, p, last)
                                if t + rest[0] > room[0] or r + rest[1] > room[1]:
                                    continue
                                to = across
                                if hop:
                                    to = 1 + hop + across * classes
                                reached[to, last, p] |= _go_on(
                                    states,
                                    states.vectors[v],
                                    some,
                                    from_us,
                                    from_cost,
                                    (t, r),
                                    rest,
                                    most_us,
                                    most_cost,
                                    us[to, last, p],
                                    cost[to, last, p],
                                )


@kernel
def vector_us(
    us: Whole,
    items: Whole,
    nodes: Whole,
    states: States,
    size: int,
    wanted: NDArray[np.bool_],
    found: Whole,
) -> None:
    """Fill in the least times of stages in several nodes, by the GPUs of replicas.

    They are `found` by [least degree, p, run, state], for the degrees and runs that are
    `wanted`, by [degree, run]; `NEVER` where fewer GPUs of the same classes do as well.
    Times `us` of replicas are by [p, run, replica], and `items` are their class, GPUs
    and samples. From one time to the next, the samples are known that the GPUs of each
    class take within it.
    """
    kinds, degrees, samples = items[:, 0], items[:, 1], items[:, 2]
    places, runs, count = us.shape
    most, widest = len(found) - 1, max(states.gpus, default=0)
    total, classes = len(states.use), len(states.gpus)
    able = np.zeros(total, np.int64)
    number = 0  # of states that have two nodes
    for state in range(total):
        some = 0
        for c in range(classes):
            some += nodes[c] if states.use[state, c] else 0
        if some > 1:
            able[number] = state
            number += 1
    own = np.zeros((classes, most + 1), np.int64)  # samples of one replica
    taken = np.zeros((classes, widest + 1), np.int64)  # and of all of a class
    left = np.zeros(total, np.int64)
    best = np.zeros(total, np.int64)
    for p, run in np.ndindex(places, runs):
        if not wanted[:, run].any():
            continue
        order = np.argsort(us[p, run])
        for degree in range(1, most + 1):
            if not wanted[degree, run]:
                continue
            own[:], taken[:] = 0, 0
            best[:] = NEVER
            left[:number] = able[:number]
            waiting = number
            for i in range(count):
                item = order[i]
                took = us[p, run, item]
                if took >= NEVER or waiting == 0:
                    break
                c, t = kinds[item], degrees[item]
                if t < degree or samples[item] <= own[c, t]:
                    continue
                own[c, t] = samples[item]
                for g in range(t, states.gpus[c] + 1):
                    more = max(taken[c, g - 1], taken[c, g])
                    for d in range(degree, min(most, g) + 1):
                        if own[c, d]:
                            more = max(more, taken[c, g - d] + own[c, d])
                    taken[c, g] = more
                still = 0
                for j in range(waiting):
                    state, whole = left[j], 0
                    for each in range(classes):
                        whole += taken[each, states.use[state, each]]
                    if whole >= size:
                        best[state] = took
                    else:
                        left[still] = state
                        still += 1
                waiting = still
            for state in range(total):
                better = best[state] < NEVER
                for c in range(classes):
                    if states.use[state, c] > 1:
                        less = best[state - states.strides[c]]
                        better = better and less > best[state]
                if better:
                    found[degree, p, run, state] = best[state]


def most_taken(
    one: Whole, states: States, fewest: int, most: int
) -> tuple[Whole, Whole]:
    """Return what pipelines take together, by their number and the GPUs that there are.

    `one` are the sequences of one pipeline by the GPUs that it uses, 0 where there is
    none. Of 0 to `most` pipelines, -1 where there are too few GPUs; and the most of
    `fewest` - 1 to `most` - 1 of them.
    """
    exactly = np.empty((most + 1, len(one)), np.int64)
    others = np.empty(len(one), np.int64)
    _most_taken(one, states, fewest, most, exactly, others)
    return exactly, others


@kernel
def _most_taken(
    one: Whole, states: States, fewest: int, most: int, exactly: Whole, others: Whole
) -> None:
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
    exactly[0], others[:] = 0, -1
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
