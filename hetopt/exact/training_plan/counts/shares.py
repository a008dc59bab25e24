"""Samples of a micro-batch, shared by replicas: the least time of the slowest.

Tables of one replica are by [degree, samples, run], those of several by [GPUs at most,
samples, run] of one kind of nodes, or by GPUs of several kinds.
"""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from .kinds import Array


def slowest(us: Array, gpus: int) -> Array:
    """Least time of replicas on one kind of nodes, however many there are."""
    best = _none(us, gpus)
    for k in range(1, gpus + 1):
        np.minimum(best[k], best[k - 1], out=best[k])
        _add(best, best, us, k)
    return best


def numbered(us: Array, gpus: int, most: int) -> Iterator[Array]:
    """The same of 0, of 1, ..., of `most` replicas or fewer, on what these may use."""
    best = _none(us, 0)
    yield best
    for replicas in range(1, most + 1):
        fewer, best = best, _none(us, min(gpus, replicas * (len(us) - 1)))
        best[: len(fewer)] = fewer
        for k in range(1, len(best)):
            np.minimum(best[k], best[k - 1], out=best[k])
            _add(best, fewer, us, k)
        yield best


def _none(us: Array, gpus: int) -> Array:
    best = np.full((gpus + 1, *us.shape[1:]), np.inf)
    best[:, 0] = 0.0
    return best


def _add(best: Array, others: Array, us: Array, gpus: int) -> None:
    """Lower what so many GPUs take by one replica more than `others` have."""
    samples = us.shape[1]
    for t, s in np.argwhere(np.isfinite(us[: gpus + 1]).any(2)).tolist():
        if t * s:
            rest = others[min(gpus - t, len(others) - 1), : samples - s]
            found = np.maximum(rest, us[t, s])
            np.minimum(best[gpus, s:], found, out=best[gpus, s:])


def together(each: Sequence[Array]) -> Array:
    """All samples, shared by GPUs of all kinds: [u_0, u_1, ..., run]."""
    shares = each[0]
    for others in each[1:-1]:
        found = np.full((*shares.shape[:-2], *others.shape), np.inf)
        for u, s in np.ndindex(others.shape[:2]):
            slow = np.maximum(shares[..., : others.shape[1] - s, :], others[u, s])
            out = found[..., u, s:, :]
            np.minimum(out, slow, out=out)
        shares = found
    if len(each) == 1:
        whole: Array = shares[:, -1]
        return whole
    # What the last kind does not take, the others do.
    rows = [np.maximum(shares, last[::-1]).min(-2) for last in each[-1]]
    return np.stack(rows, axis=-2)


def parted(each: Sequence[Sequence[Array]], replicas: int) -> Array:
    """The same by so many replicas of all kinds; `each` is by kind and number."""
    sides = [tables[replicas].shape[0] for tables in each]
    found = np.full((*sides, each[0][0].shape[-1]), np.inf)
    for numbers in product(range(replicas + 1), repeat=len(each)):
        if sum(numbers) == replicas:
            some = [tables[n] for tables, n in zip(each, numbers, strict=True)]
            us = together(some)
            into = found[tuple(slice(side) for side in us.shape[:-1])]
            np.minimum(into, us, out=into)
    return found
