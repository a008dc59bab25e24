"""Metis's device groups: how many GPUs each stage has, and which.

A group takes k GPUs of each node, 0 <= k <= those the node has (section 4.1); groups
that differ in equal nodes alone count once. Those that are worth most come first: the
GPUs are put in a row, type by type or in turns of the types, and the stages take them
from the left. Sizes are pruned as section 4.2.2 says: none smaller than (1 - variance)
GPUs / stages, and orders of sizes only of at most `max_permute_len` blocks, made by
joining the two smallest until so few are left.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby, permutations, zip_longest
from typing import TypeVar

from ...search.fast_cost import FastCost

Group = tuple[tuple[int, int], ...]  # (node, GPUs) in the order of the row
Element = TypeVar("Element")


def rows(cost: FastCost) -> list[list[int]]:
    """Return nodes in a row, type by type or in turns, in every order of the types."""
    of: dict[str, list[int]] = {}
    for i, node in enumerate(cost.nodes):
        of.setdefault(node.gpu, []).append(i)
    orders = [[of[gpu] for gpu in order] for order in permutations(of)]
    by_type = ([i for nodes in order for i in nodes] for order in orders)
    in_turn = (
        [i for turn in zip_longest(*order) for i in turn if i is not None]
        for order in orders
    )
    return [list(row) for row in dict.fromkeys(map(tuple, (*by_type, *in_turn)))]


def sizes(
    gpus: int,
    stages: int,
    variance: float,
    max_permute_len: int,
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[int, ...]]:
    """Sizes of the groups of `stages` stages, in every order that is looked at.

    Sizes are powers of two (section 2.2), and any where no powers of two add up.
    `check()` is called again and again, and may raise.
    """
    least = gpus / stages * (1 - variance)
    powers = [1 << i for i in range(gpus.bit_length()) if (1 << i) >= least]
    found = False
    for choices in (powers, [s for s in range(1, gpus + 1) if s >= least]):
        for parts in _sums(gpus, stages, choices, check):
            found = True
            yield from _orders(parts, max_permute_len)
        if found:
            return


def _sums(
    total: int, count: int, choices: Sequence[int], check: Callable[[], None]
) -> Iterator[tuple[int, ...]]:
    """Multisets of `count` numbers of `choices` that add up to `total`, ascending."""
    check()
    if not count:
        if not total:
            yield ()
        return
    if not choices or choices[0] * count > total or choices[-1] * count < total:
        return
    first, rest = choices[0], choices[1:]
    for times in range(count, -1, -1):
        if first * times <= total:
            for others in _sums(total - first * times, count - times, rest, check):
                yield (first,) * times + others


def _orders(parts: Sequence[int], most: int) -> Iterator[tuple[int, ...]]:
    """Different orders of the parts, joined to at most `most` blocks."""
    blocks: list[tuple[int, int, tuple[int, ...]]] = [
        (size, i, (size,)) for i, size in enumerate(parts)
    ]
    heapify(blocks)
    number = len(blocks)
    while len(blocks) > max(1, most):
        one, two = heappop(blocks), heappop(blocks)
        number += 1
        heappush(blocks, (one[0] + two[0], number, one[2] + two[2]))
    counts = Counter(block for _, _, block in sorted(blocks))
    seen = set()  # blocks of several sizes may make the same order of sizes
    for order in _arrangements(counts):
        sizes_in_order = tuple(size for block in order for size in block)
        if sizes_in_order not in seen:
            seen.add(sizes_in_order)
            yield sizes_in_order


def _arrangements(
    counts: Counter[tuple[int, ...]],
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every different order of a multiset."""
    if not counts:
        yield ()
        return
    for block in list(counts):
        rest = counts - Counter({block: 1})
        for others in _arrangements(rest):
            yield (block, *others)


def groups(cost: FastCost, row: Sequence[int], order: Sequence[int]) -> list[Group]:
    """Return the groups of a row, from the left."""
    gpus = [node for node in row for _ in range(cost.nodes[node].count)]
    found, start = [], 0
    for size in order:
        mine = gpus[start : start + size]
        found.append(tuple((node, len(list(own))) for node, own in groupby(mine)))
        start += size
    return found


def mappings(cost: FastCost, order: Sequence[int]) -> Iterator[tuple[Group, ...]]:
    """All groups of these sizes, stage by stage, each k GPUs of each node.

    Nodes are equal that look alike and have served the earlier stages alike: of these
    the first takes most. Groups of few types and nodes come first.
    """
    apart = bool(cost.instance.planned_cluster.inter.pairs)
    looks: list[Hashable] = [
        i if apart else (cost.kind[i], node.count) for i, node in enumerate(cost.nodes)
    ]
    taken: list[tuple[int, ...]] = [() for _ in cost.nodes]
    yield from _mappings(cost, looks, taken, order, [])


def _mappings(
    cost: FastCost,
    looks: list[Hashable],
    taken: list[tuple[int, ...]],
    order: Sequence[int],
    before: list[Group],
) -> Iterator[tuple[Group, ...]]:
    cost.check()
    if len(before) == len(order):
        yield tuple(before)
        return
    for group in _choices(cost, looks, taken, order[len(before)]):
        held = dict(group)
        after = [(*row, held.get(i, 0)) for i, row in enumerate(taken)]
        yield from _mappings(cost, looks, after, order, [*before, group])


def _choices(
    cost: FastCost, looks: list[Hashable], taken: list[tuple[int, ...]], size: int
) -> list[Group]:
    """Return the groups of a size from what is left, of few types and nodes first."""
    alike: dict[Hashable, list[int]] = defaultdict(list)
    for i, row in enumerate(taken):
        if sum(row) < cost.nodes[i].count:
            alike[looks[i], row].append(i)
    equals = list(alike.values())
    left = [cost.nodes[nodes[0]].count - sum(taken[nodes[0]]) for nodes in equals]
    found = list(_selections(equals, left, size))

    def worth(group: Group) -> tuple[int, int]:
        return len({cost.nodes[i].gpu for i, _ in group}), len(group)

    return sorted(found, key=worth)


def _selections(
    equals: Sequence[Sequence[int]], left: Sequence[int], size: int
) -> Iterator[Group]:
    """`size` GPUs of sets of equal nodes that have so many left each."""
    if not equals:
        if not size:
            yield ()
        return
    nodes, most = equals[0], left[0]
    for here in range(min(size, most * len(nodes)), -1, -1):
        for others in _selections(equals[1:], left[1:], size - here):
            for parts in _falling_numbers(here, len(nodes), most):
                mine = tuple(zip(nodes, parts, strict=False))
                yield tuple(sorted((*mine, *others)))


def _falling_numbers(total: int, count: int, most: int) -> Iterator[tuple[int, ...]]:
    """Yield at most `count` falling numbers from 1 to `most` that add up to `total`."""
    if not total:
        yield ()
        return
    if total > count * most:
        return
    for first in range(min(total, most), 0, -1):
        for others in _falling_numbers(total - first, count - 1, first):
            yield (first, *others)


def in_turns(sources: Iterable[Iterable[Element]]) -> Iterator[Element]:
    """Elements of all sources: one of each in turn, one more source every round."""
    begun: deque[Iterator[Element]] = deque()
    unseen = iter(sources)
    while True:
        fresh = next(unseen, None)
        if fresh is not None:
            begun.append(iter(fresh))
        elif not begun:
            return
        for _ in range(len(begun)):
            source = begun.popleft()
            for element in source:
                yield element
                begun.append(source)
                break
