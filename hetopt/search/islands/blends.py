"""Pipelines through nodes of one or two sorts, so mixed that all nodes are used best.

On thousands of nodes no descent gets from small sets to good ones. Here one pipeline
of each *blend*, so many nodes of a sort and so many of another, is timed once. A small
linear program then says how many pipelines of each there are: those that train the
most within a time, and of all times the shortest in which they train the batch.
"""

from collections.abc import Iterator, Sequence
from itertools import combinations, product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..balancing import Balancer, with_batch
from ..fast_cost import FastCost, Pipe, Slot, Timing

#: Nodes of a sort in a blend; of two sorts all pairs of these numbers.
_NUMBERS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16)
_MOST_SORTS = 6  # with more, pairs take longer to time than they gain
_PARTS = (1, 2)  # stages of a node
_MOST_PARTS = (1, 4, 8, 12, 16, 24)  # of all layers, that a stage may have at the most
_STEP = 1.03  # between two times that are tried
_ROUNDED = 1e-9


class _Way(NamedTuple):
    """All pipelines keep to the stages of each node, and to the layers of each stage.

    So they synchronise alike; `most` is of layers, at the most.
    """

    parts: int
    most: int


class _Blend(NamedTuple):
    """Nodes of each sort in a set, and one pipeline through all of them."""

    nodes: tuple[int, ...]
    size: int
    timing: Timing


class _Mix(NamedTuple):
    """Blends, the sequences that a pipeline of each trains, and how many there are."""

    blends: Sequence[_Blend]
    values: NDArray[np.float64]
    many: NDArray[np.float64]


def plans(
    cost: FastCost, balancer: Balancer, power: Sequence[float]
) -> Iterator[tuple[Pipe, ...]]:
    """Yield plans of blends that leave few nodes over, with ever shorter stages.

    `power` is that of each node, in layers per us. There are none of layers that
    differ: to cut them for each blend would take minutes.
    """
    if not balancer.even:
        return
    for part, parts in product(_MOST_PARTS, _PARTS):
        way = _Way(parts, max(1, -(-cost.layers // part)))
        if (found := _plan(cost, balancer, power, way)) is not None:
            yield found


def _plan(
    cost: FastCost, balancer: Balancer, power: Sequence[float], way: _Way
) -> tuple[Pipe, ...] | None:
    sorts: dict[tuple[str, int], list[int]] = {}
    for i in cost.timed_nodes:
        sorts.setdefault((cost.nodes[i].gpu, cost.nodes[i].count), []).append(i)
    # Nodes that are alike stand side by side, so that most sets are of one kind.
    members = [sorted(some, key=lambda i: (cost.kind[i], i)) for some in sorts.values()]
    if not members or len(members) > _MOST_SORTS:
        return None
    blends = list(_timed(cost, balancer, members, power, way))
    if not blends:
        return None
    batch = cost.instance.workload.global_batch
    limits = np.array([len(some) for some in members], float)
    uses = np.array([blend.nodes for blend in blends], float).T
    us = batch * cost.layers / max(sum(power), 1e-30)  # if nothing were lost
    for _ in range(400):
        values = np.array([_trained(blend, us) for blend in blends], float)
        many = _best_mix(values, uses, limits)
        if values @ many >= batch:
            mix = _Mix(blends, values, many)
            order = _by_power(members, power)
            rows = _dealt(cost, balancer, mix, members, order, way)
            return with_batch(cost, rows)
        us *= _STEP
    return None


def _by_power(members: Sequence[Sequence[int]], power: Sequence[float]) -> list[int]:
    """Numbers of sorts, the weakest nodes first."""
    return sorted(range(len(members)), key=lambda s: power[members[s][0]])


def _timed(
    cost: FastCost,
    balancer: Balancer,
    members: Sequence[Sequence[int]],
    power: Sequence[float],
    way: _Way,
) -> Iterator[_Blend]:
    """One pipeline of each blend that holds the model, weaker nodes first."""
    order = _by_power(members, power)
    batch = cost.instance.workload.global_batch
    for some in [*((s,) for s in order), *combinations(order, 2)]:
        for numbers in np.ndindex(*(len(_NUMBERS) for _ in some)):
            nodes = [0] * len(members)
            for s, k in zip(some, numbers, strict=True):
                nodes[s] = _NUMBERS[k]
            if any(n > len(all_) for n, all_ in zip(nodes, members, strict=True)):
                continue
            sets = sum(map(len, members)) / sum(nodes)
            rows = [[*some[:n]] for some, n in zip(members, nodes, strict=True)]
            found = []
            for b in cost.instance.workload.micro_batch_sizes:
                n = max(1, int(batch / (b * sets)))
                slots = _slots(cost, balancer, rows, order, way, b, n)
                if slots is not None:
                    found.append(_Blend(tuple(nodes), b, cost.timing(b, slots)))
            if found:
                yield min(found, key=lambda one: one.timing.slowest / one.size)


def _slots(
    cost: FastCost,
    balancer: Balancer,
    rows: Sequence[Sequence[int]],
    order: Sequence[int],
    way: _Way,
    b: int,
    n: int,
) -> tuple[Slot, ...] | None:
    """A pipeline through nodes of each sort."""
    chain = tuple(
        (i, max(1, cost.nodes[i].count // way.parts))
        for s in order
        for i in rows[s]
        for _ in range(min(way.parts, cost.nodes[i].count))
    )
    if len(chain) > cost.layers or not cost.known(chain, b):
        return None
    return balancer.balanced(b, n, chain, way.most)


def _trained(blend: _Blend, us: float) -> int:
    """Sequences that a pipeline trains within a time."""
    timing = blend.timing
    left = us - timing.total
    return 0 if left < 0 else blend.size * (1 + int(left / max(1, timing.slowest)))


def _best_mix(
    values: NDArray[np.float64], uses: NDArray[np.float64], limits: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return how many of each column make the most within limits: a simplex method.

    Of several columns that gain, the first is taken, so that it ends.
    """
    rows, columns = uses.shape
    table = np.hstack([uses, np.eye(rows), limits[:, None]])
    prices = np.concatenate([values, np.zeros(rows + 1)])
    basis = list(range(columns, columns + rows))
    for _ in range(50 * rows + columns):
        gaining = np.flatnonzero(prices[:-1] > _ROUNDED)
        if not len(gaining):
            break
        enters = int(gaining[prices[gaining].argmax()])
        column = table[:, enters]
        able = np.flatnonzero(column > _ROUNDED)
        if not len(able):
            break
        leaves = int(able[(table[able, -1] / column[able]).argmin()])
        table[leaves] /= table[leaves, enters]
        for row in range(rows):
            if row != leaves:
                table[row] -= table[row, enters] * table[leaves]
        prices = prices - prices[enters] * table[leaves]
        basis[leaves] = enters
    found = np.zeros(columns)
    for row, column_of in enumerate(basis):
        if column_of < columns:
            found[column_of] = table[row, -1]
    return found


def _dealt(
    cost: FastCost,
    balancer: Balancer,
    mix: _Mix,
    members: Sequence[Sequence[int]],
    order: Sequence[int],
    way: _Way,
) -> list[tuple[int, tuple[Slot, ...]]]:
    """Return whole pipelines of the mix; what is left makes more while any fits."""
    left = [list(some) for some in members]
    found: list[tuple[int, tuple[Slot, ...]]] = []

    def deal(k: int) -> None:
        blend = mix.blends[k]
        taken = [some[:n] for some, n in zip(left, blend.nodes, strict=True)]
        for some, n in zip(left, blend.nodes, strict=True):
            del some[:n]
        n = max(1, int(mix.values[k]) // blend.size)
        slots = _slots(cost, balancer, taken, order, way, blend.size, n)
        if slots is not None:
            found.append((blend.size, slots))

    for k, number in enumerate(mix.many.tolist()):
        for _ in range(int(number + _ROUNDED)):
            deal(k)
    ranked = sorted(
        (k for k in range(len(mix.blends)) if mix.values[k] > 0),
        key=lambda k: (-mix.values[k] / sum(mix.blends[k].nodes), k),
    )
    for k in ranked:
        nodes = mix.blends[k].nodes
        while all(n <= len(some) for n, some in zip(nodes, left, strict=True)):
            deal(k)
    return found
