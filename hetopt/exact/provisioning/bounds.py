"""Lower bounds on the iteration of allocations (numbers of stages by type), by numpy.

For every candidate beta an allocation's iteration is at least
    fill + (K - 1) beta + exposed,
fill: the layers on the fastest stages first, each stage between one layer and what it
does within beta and what its memory holds at the best positions; exposed: the least
synchronisation that P stages of such a size leave uncovered (`Degree.need`). All
integers, so nothing is lost to rounding.
"""

from collections.abc import Iterator

import numpy as np

from .tables import NEVER, Degree, Ints, look_up

_CELLS = 1_000_000  # rows x betas of one piece


def least_times(degree: Degree, counts: Ints) -> Ints:
    """The bound of each row of `counts`, least over all betas."""
    pieces = [
        by_beta(degree, counts[a:z]).min(axis=1, initial=NEVER)
        for a, z in spans(len(counts), max(1, _CELLS // max(1, len(degree.betas))))
    ]
    return np.concatenate([np.zeros(0, np.int64), *pieces])


def spans(total: int, size: int) -> Iterator[tuple[int, int]]:
    """`range(total)` in runs of at most `size`."""
    for first in range(0, total, size):
        yield first, min(first + size, total)


def by_beta(degree: Degree, counts: Ints) -> Ints:
    """[row, i]: the bound with no stage above betas[i]; NEVER where nothing fits."""
    fill = _fill(degree, counts)
    longest = (degree.micro_batches - 1) * degree.betas
    total = np.where(fill < NEVER, fill + longest, NEVER)
    if degree.s.any():
        total = np.minimum(total + _exposed(degree, counts), NEVER)
    # A beta that no stage of the allocation can attain repeats a smaller one.
    attained = ((counts > 0)[:, :, None] & degree.beta_of[None]).any(axis=1)
    return np.where(attained, total, NEVER)


def _fill(degree: Degree, counts: Ints) -> Ints:
    shape = (len(counts), len(degree.betas))
    left = np.broadcast_to(degree.layers - counts.sum(axis=1)[:, None], shape)
    time = np.broadcast_to((counts @ degree.w)[:, None], shape)
    fits = np.ones(shape, dtype=bool)
    for t in range(len(degree.w)):
        n = counts[:, t]
        more = degree.room[t][n] - n[:, None]
        fits = fits & ((n == 0)[:, None] | (more >= 0))
        took = np.minimum(left, more)
        left, time = left - took, time + degree.w[t] * took
    return np.where(fits & (left == 0), time, NEVER)


def _exposed(degree: Degree, counts: Ints) -> Ints:
    b, s = extremes(degree, counts)
    stages = counts.sum(axis=1)
    largest = np.minimum(degree.holds, degree.cap[:, 1, None]).max(axis=0)
    out = np.zeros((len(counts), len(degree.betas)), dtype=np.int64)
    for pair in np.unique(np.stack([b, s], axis=1), axis=0):
        rows = np.flatnonzero((b == pair[0]) & (s == pair[1]))
        table = degree.need(int(pair[0]), int(pair[1]))
        out[rows] = look_up(
            table, largest[None, :], stages[rows][:, None], degree.layers
        )
    return out


def extremes(degree: Degree, counts: Ints) -> tuple[Ints, Ints]:
    """The largest backward time and the least synchronisation among the used types."""
    used = counts > 0
    b = np.where(used, degree.b[None, :], 0).max(axis=1, initial=0)
    s = np.where(used, degree.s[None, :], NEVER).min(axis=1, initial=NEVER)
    return b, s
