"""Prices of GPUs over time at which each job by itself is bounded well.

`certificate` says what prices prove. Here they are sought by subgradients, on finer and
finer intervals, in floats: the bound holds whatever they are. It is the dual of the
linear programme that mixes schedules of each job (Dantzig-Wolfe), which has jobs'
completion times where interval-indexed programmes (Hall, Schulz, Shmoys and Wein 1997)
have mean busy times.

Given  jobs j with release r[j], leases c on N[c] GPUs of group q[c] that do at most the
share rate[j,c] of the job in a us; prices y[q,i] in intervals i; a worth mu of the job:
    C + paid  >=  mu + C + sum_i (us of [r, C] in i) m[i]
    m[i]  =  min(0, min_c y[q[c],i] N[c] - mu rate[c])
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, inf
from time import monotonic

import numpy as np
import numpy.typing as npt

from ..problems.job_scheduling import Data
from ..result import Bound
from ..solving.certificates import QueueCertificate
from .certificate import Group, Work, average_us, groups, work

PRICES = "prices of GPUs over time, each job for itself"

MOST_JOBS = 200  # half a minute's work, on one core
HALVINGS = 8  # of the time until all jobs one after the other are done: the first grid
MOST_INTERVALS = 64
ROUNDS = 80  # of changing prices, a grid
STEP, CALMER = 0.1, 0.6  # the first step, in jobs per GPU; its part on the next grid

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Queue:
    """Jobs in rows, leases in columns; a missing one has rate 0 and no GPUs."""

    release: Array  # us after the first of them
    rate: Array
    gpus: Array
    group: Ints
    room: Array  # GPUs of each group

    @property
    def alone(self) -> Array:
        """Least us of each job."""
        quickest: Array = self.rate.max(axis=1)
        return 1 / quickest


@dataclass(frozen=True)
class _Grid:
    """Intervals of time, as each job sees them: nothing is before its release."""

    edges: Array
    start: Array
    end: Array

    @property
    def lengths(self) -> Array:
        """Us of each interval."""
        return np.diff(self.edges)


def bound_by_prices(
    data: Data, deadline: float | None = None
) -> tuple[Bound, QueueCertificate] | None:
    """Return the least average completion time by prices, and these prices.

    None for more jobs than `MOST_JOBS`. At least one job fits. After the `deadline`,
    a `time.monotonic()` instant, the prices found by then count.
    """
    among = groups(data)
    jobs = work(data, among)
    if len(jobs) > MOST_JOBS:
        return None
    certificate = _best(_queue(jobs, among), inf if deadline is None else deadline)
    return Bound(Fraction(floor(average_us(data, certificate))), PRICES), certificate


# --- the queue as numbers ---------------------------------------------------------


def _queue(jobs: Sequence[Work], among: Sequence[Group]) -> _Queue:
    rows = [[(1 / x.us, x.gpus, x.group) for x in job.leases] for job in jobs]
    width = max(map(len, rows))
    padded = [row + [(0.0, 0, 0)] * (width - len(row)) for row in rows]
    table = np.array(padded, float)
    release = np.array([job.submit_us for job in jobs])
    return _Queue(
        (release - release.min()).astype(float),
        table[:, :, 0],
        table[:, :, 1],
        table[:, :, 2].astype(np.int64),
        np.array([group.gpus for group in among], float),
    )


def _grid(queue: _Queue, edges: Array) -> _Grid:
    release = queue.release[:, None]
    return _Grid(
        edges,
        np.maximum(edges[None, :-1], release),
        np.maximum(edges[None, 1:], release),
    )


# --- what prices prove ------------------------------------------------------------


@dataclass(frozen=True)
class _Answers:
    """Answers hold what each job pays and does at least, at the prices of one round."""

    total: float  # of the bound, as floats have it
    worth: Array  # of each job, the best of those that were tried
    used: Array  # GPU us of each group in each interval


def _answers(queue: _Queue, grid: _Grid, prices: Array, worths: Array) -> _Answers:
    """Answer for jobs in rows and worths in columns, by intervals."""
    length = grid.end - grid.start
    least, _ = _least(queue, prices, worths)
    gained = length[:, :, None] * least
    before = np.cumsum(gained, axis=1) - gained
    ends = np.minimum(grid.start[:, :, None], grid.end[:, :, None] + gained)
    value = worths[:, None, :] + before + ends
    value[length <= 0] = np.inf
    rows = np.arange(len(value))
    last = value.max(axis=2).argmin(axis=1)
    best = value[rows, last].argmax(axis=1)
    found = np.minimum(value[rows, last, best], grid.edges[-1])
    paid = float((prices * queue.room[:, None] * grid.lengths).sum())
    near = np.clip(best, 1, worths.shape[1] - 2)[:, None] + np.arange(-1, 2)
    used = _use(queue, grid, prices, worths[rows[:, None], near], last)
    return _Answers(float(found.sum()) - paid, worths[rows, best], used)


def _least(queue: _Queue, prices: Array, worths: Array) -> tuple[Array, Ints]:
    """m by job, interval and worth, and the offer that it is of; -1 for none."""
    shape = len(worths), prices.shape[1], worths.shape[1]
    least, chosen = np.zeros(shape), np.full(shape, -1)
    for c in range(queue.rate.shape[1]):
        cost = prices[queue.group[:, c]] * queue.gpus[:, c, None]
        offered = cost[:, :, None] - (queue.rate[:, c, None] * worths)[:, None, :]
        np.copyto(chosen, c, where=offered < least)
        np.minimum(least, offered, out=least)
    return least, chosen


def _use(queue: _Queue, grid: _Grid, prices: Array, worths: Array, last: Ints) -> Array:
    """GPU us by group and interval, of a mix of answers that does each job once.

    Of neighbouring worths, in columns, at one of which less than the job is done.
    """
    least, chosen = _least(queue, prices, worths)
    length = grid.end - grid.start
    rows, interval = np.arange(len(last)), np.arange(length.shape[1])
    gained = (length[:, :, None] * least)[rows, last]
    to_the_end = grid.end[rows, last, None] + gained < grid.start[rows, last, None]
    works = interval[:, None] < (last[:, None] + to_the_end)[:, None, :]
    works &= chosen >= 0
    rate = np.where(works, queue.rate[rows[:, None, None], chosen], 0.0)
    done = (rate * length[:, :, None]).sum(axis=1)
    above = np.clip((done < 1).sum(axis=1), 1, worths.shape[1] - 1)
    low, high = done[rows, above - 1], done[rows, above]
    share = np.clip((1 - low) / np.maximum(high - low, 1e-12), 0.0, 1.0)
    used = np.zeros((len(queue.room), length.shape[1]))
    where = np.broadcast_to(interval, length.shape)
    for worth, part in ((above - 1, 1 - share), (above, share)):
        offer = chosen[rows, :, worth]
        gpus = np.where(works[rows, :, worth], queue.gpus[rows[:, None], offer], 0.0)
        group = queue.group[rows[:, None], offer]
        np.add.at(used, (group, where), part[:, None] * gpus * length)
    return used


# --- looking for prices -----------------------------------------------------------


def _best(queue: _Queue, deadline: float) -> QueueCertificate:
    end = queue.release.max() + 2 * queue.alone.sum()
    edges = np.concatenate([[0.0], end * 0.5 ** np.arange(HALVINGS, -1, -1)])
    prices = np.zeros((len(queue.room), len(edges) - 1))
    worth, step = 2 * queue.alone, STEP * len(queue.release) / queue.room.sum()
    while True:
        grid = _grid(queue, edges)
        prices, worth = _climb(queue, grid, prices, worth, step, deadline)
        if len(edges) > MOST_INTERVALS or not prices.any() or monotonic() >= deadline:
            break
        step *= CALMER
        edges, prices = _divide(queue, edges, prices)
    return QueueCertificate(
        edges=tuple(edges.tolist()), prices=tuple(map(tuple, prices.tolist()))
    )


def _worths(worth: Array, count: int, ratio: float) -> Array:
    steps = np.arange(count) - count // 2
    return worth[:, None] * ratio**steps


def _climb(
    queue: _Queue,
    grid: _Grid,
    prices: Array,
    worth: Array,
    step: float,
    deadline: float,
) -> tuple[Array, Array]:
    """Better prices on a grid, and what jobs are worth at them.

    Adam (Kingma and Ba 2015) along subgradients: what is used beyond the room, in
    parts of the room; steps shrink to 3 % of the first.
    """
    room = queue.room[:, None] * grid.lengths
    best, kept = -np.inf, (prices, worth)
    mean, square = np.zeros_like(prices), np.zeros_like(prices)
    for number in range(1, ROUNDS + 1):
        if monotonic() >= deadline:
            break
        found = _answers(queue, grid, prices, _worths(worth, 48, 1.15))
        worth = found.worth
        if found.total > best:
            best, kept = found.total, (prices, worth)
        excess = np.clip(found.used / room - 1, -1, 3)
        mean = 0.9 * mean + 0.1 * excess
        square = 0.99 * square + 0.01 * excess**2
        ahead = mean / (1 - 0.9**number)
        ahead /= np.sqrt(square / (1 - 0.99**number)) + 1e-3
        prices = np.maximum(0.0, prices + step * 0.03 ** (number / ROUNDS) * ahead)
    return kept


def _divide(queue: _Queue, edges: Array, prices: Array) -> tuple[Array, Array]:
    """Return a grid of up to twice as many intervals, and the same prices on it.

    Those are halved in which most is paid, or which are longest among those up to the
    last in which anything is.
    """
    lengths = np.diff(edges)
    paid = (prices * queue.room[:, None] * lengths).sum(axis=0)
    busy = np.arange(len(paid)) <= np.flatnonzero(paid).max()
    weight = paid / paid.sum() + busy * lengths / lengths[busy].sum()
    heap = [
        (-weight[i], edges[i], edges[i + 1], i) for i in np.flatnonzero(busy).tolist()
    ]
    rest = [(0.0, edges[i], edges[i + 1], i) for i in np.flatnonzero(~busy).tolist()]
    heapq.heapify(heap)
    while len(heap) + len(rest) < min(2 * len(paid), MOST_INTERVALS):
        heavy, start, end, i = heapq.heappop(heap)
        middle = (start + end) / 2
        heapq.heappush(heap, (heavy / 2, start, middle, i))
        heapq.heappush(heap, (heavy / 2, middle, end, i))
    rows = sorted([*heap, *rest], key=lambda row: row[1])
    finer = np.array([*(row[1] for row in rows), edges[-1]])
    return finer, prices[:, [row[3] for row in rows]]
