"""Metis's device groups: how many GPUs each stage has, and which.

The GPUs are put in a row, type by type in every order of the types, and the stages
take them from the left: a group is a number of GPUs, of several nodes and types where
the row changes. Sizes are pruned as section 4.2.2 says: none smaller than
(1 - variance) GPUs / stages, and orders of sizes only of at most `max_permute_len`
blocks, made by joining the two smallest until so few are left.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from itertools import groupby, permutations

from ...search.fast_cost import FastCost

Group = tuple[tuple[int, int], ...]  # (node, GPUs) in the order of the row


def rows(cost: FastCost) -> list[list[int]]:
    """Nodes in a row, type by type, in every order of the types."""
    types = list(dict.fromkeys(node.gpu for node in cost.nodes))
    numbers = range(len(cost.nodes))
    return [
        [i for gpu in order for i in numbers if cost.nodes[i].gpu == gpu]
        for order in permutations(types)
    ]


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
    for order in _arranged(counts):
        sizes_in_order = tuple(size for block in order for size in block)
        if sizes_in_order not in seen:
            seen.add(sizes_in_order)
            yield sizes_in_order


def _arranged(
    counts: Counter[tuple[int, ...]],
) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every different order of a multiset."""
    if not counts:
        yield ()
        return
    for block in list(counts):
        rest = counts - Counter({block: 1})
        for others in _arranged(rest):
            yield (block, *others)


def groups(cost: FastCost, row: Sequence[int], order: Sequence[int]) -> list[Group]:
    """The groups of a row, from the left."""
    gpus = [node for node in row for _ in range(cost.nodes[node].count)]
    found, start = [], 0
    for size in order:
        mine = gpus[start : start + size]
        found.append(tuple((node, len(list(own))) for node, own in groupby(mine)))
        start += size
    return found
