"""Splits: how replicas share a micro-batch, without those that another dominates.

A stage takes as long as its slowest replica, hands on as much as its largest share, and
fits where all its replicas do: whatever a replica costs, of a stage the most counts.
What stages synchronise and update does not depend on shares. So of two ways in which
the same GPUs share a micro-batch one is not needed where the other costs no more
anywhere.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Group = tuple[int, int]  # a pool, and the GPUs of a replica there
#: What a replica of a group costs, by share from 0 on; the less, the better.
Costs = Mapping[Group, NDArray[np.int16]]


def every(number: int, samples: int) -> Iterator[tuple[int, ...]]:
    """Yield all splits of the samples among so many replicas, one or more each."""
    for cut in combinations(range(1, samples), number - 1):
        yield tuple(z - a for a, z in pairwise((0, *cut, samples)))


def needed(
    groups: Sequence[Group], samples: int, costs: Costs
) -> Iterator[tuple[int, ...]]:
    """Yield the splits that are not dominated, where larger shares cost no less.

    In the order of `groups`, where equal ones stand together.
    """
    numbers = Counter(groups)
    # Of equal replicas the largest share counts; none is larger than it has to be.
    most = np.array([*_largest([*numbers.values()], samples)], np.int64)
    if not len(most):
        return
    tables = [costs[group] for group in numbers]
    parts = (table[x] for table, x in zip(tables, most.T, strict=True))
    whole = np.maximum.reduce([*parts])
    for row in most[_best(whole, most.max(1))].tolist():
        spare = sum(n * x for n, x in zip(numbers.values(), row, strict=True)) - samples
        shares: list[int] = []
        for n, x in zip(numbers.values(), row, strict=True):
            less = min(spare, n * (x - 1))
            spare -= less
            shares += [x - (less + i) // n for i in range(n)]
        yield tuple(shares)


def _largest(numbers: Sequence[int], samples: int) -> Iterator[tuple[int, ...]]:
    """Yield largest shares of so many equal replicas each, which take all samples."""
    n, *others = numbers
    most = -(-(samples - sum(others)) // n)
    if samples < sum(numbers):
        return
    if not others:
        yield (most,)
        return
    for x in range(1, most + 1):
        for rest in _largest(others, max(samples - n * x, sum(others))):
            yield (x, *rest)


def _best(whole: Any, largest: Any) -> Any:
    """Return rows that no leader dominates, one leader for each largest share."""
    kept = np.ones(len(whole), np.bool_)
    total = whole.sum(1, dtype=np.int64)
    for most in np.unique(largest):
        able = np.flatnonzero(kept & (largest <= most))
        if not len(able):
            continue
        leader = able[np.argmin(total[able])]
        worse = (whole >= whole[leader]).all(1) & (largest >= largest[leader])
        worse[leader] = False
        kept &= ~worse
    return kept
