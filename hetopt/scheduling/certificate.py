"""A bound on a queue's average completion time from prices of GPUs, in whole numbers.

What leases can do is read off the judge's rates; `prices` looks for prices, and the
bound holds whatever they are.

rent    Who holds GPUs of a group of alike nodes pays its price for each. No more are
        held than there are, so that jobs pay no more than  price GPUs us  of all groups
        and intervals together. The sum of completion times is at least the sum of the
        least of completion and rent of each job alone, less all that rent.
speed   A job with N = d t GPUs for some of its steps does at most 1 / T of its work in
        a us, T = launch + steps step. Within a node the step is the judge's. Across
        nodes it is no shorter than the least of each group that has a part in it, n of
        the N GPUs: as much is done, for the same rent, on N GPUs of each such group
        alone for n / N of the time.
worth   Let all the work be worth mu >= 0. A job that ends at C has
            C + rent  >=  mu + C + sum over the us before C of m,
        m the least of 0, for not working, and of  price N - mu / T  over its leases. In
        an interval this is linear in C, and least at one end. Of mu the best is looked
        for, interval by interval: the highest point of a concave function.
last    A job that ends after the last interval ends no earlier than that one.

No slack is in favour of the bound. Against it: mu / T is rounded up to 2^-64, and the
search of mu stops where it could gain 10^-12 of what it has.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from ..costs.job_rates import DEGREES, Trained
from ..problems import Objective
from ..problems.job_scheduling import Data, micro
from ..solving.certificates import QueueCertificate

Certificate = QueueCertificate

_FINE = 2**64  # parts of a us, beside those of the prices
_ENOUGH = 1e-12  # of a job's least, or of its work


def recheck(data: Data, certificate: QueueCertificate, bound: Objective) -> list[str]:
    """Return what the certificate lacks to prove the bound; empty where it proves it.

    In us, on average over the jobs that are not refused.
    """
    expected = len(groups(data))
    if len(certificate.prices) != expected:
        given = len(certificate.prices)
        return [f"prices of {given} groups of nodes, where the cluster has {expected}"]
    if all(data.refusal(job) for job in data.jobs):
        return ["no job can run: there is no average to bound"]
    proved = average_us(data, certificate)
    if proved >= bound:
        return []
    return [f"the prices prove {float(proved)} us, not {float(bound)}"]


def average_us(data: Data, certificate: QueueCertificate) -> Fraction:
    """Return a lower bound on the average completion time from each group's prices.

    At least one job fits.
    """
    found = groups(data)
    rent = _Rent(certificate, [group.gpus for group in found])
    jobs = work(data, found)
    first = min(job.submit_us for job in jobs)
    total = Fraction(-rent.income, rent.unit)
    for job in jobs:
        release = job.submit_us - first
        alone = _Alone(rent, job.leases, release)
        total += Fraction(alone.least(), rent.unit) - release
    return max(Fraction(0), total / len(jobs))


# --- what leases can do -----------------------------------------------------------


class Group(NamedTuple):
    """Nodes of one GPU type, size and inner link: one of them, and the GPUs of all."""

    node: str
    gpus: int


class Lease(NamedTuple):
    """GPUs of a group, and us: of a step, or of all steps with the launch."""

    group: int
    gpus: int
    us: int


class Work(NamedTuple):
    """A job that fits: when it is submitted, and leases that do the whole of it.

    They take the shorter of launch and restart, as a first lease that ends before a
    step has the next one restart.
    """

    submit_us: int
    leases: list[Lease]


def groups(data: Data) -> list[Group]:
    """Return the cluster's nodes, in groups of alike ones."""
    found: dict[object, Group] = {}
    for node in data.cluster.nodes:
        inside = data.cluster.link(node.name, node.name) if node.count > 1 else None
        kind = node.gpu, node.count, inside
        first, gpus = found.get(kind, (node.name, 0))
        found[kind] = Group(first, gpus + node.count)
    return list(found.values())


def work(data: Data, among: Sequence[Group]) -> list[Work]:
    """Return the jobs that fit, each with the leases by which it can be done."""
    given, known = data.assumptions, dict[Trained, list[Lease]]()
    launch = micro(min(given.launch_s, given.restart_s))
    found = []
    for job in data.jobs:
        trained = data.trained(job)
        if not data.rates.options(trained):
            continue
        if trained not in known:
            known[trained] = [*_leases(data, trained, among)]
        leases = [x._replace(us=launch + job.steps * x.us) for x in known[trained]]
        found.append(Work(micro(job.submit_s), leases))
    return found


def _leases(data: Data, trained: Trained, among: Sequence[Group]) -> Iterator[Lease]:
    """Yield steps in each group that fit and that no fewer GPUs of it do as soon."""
    for group, (name, _) in enumerate(among):
        soonest: int | None = None
        for gpus, us in sorted(_steps(data, trained, name)):
            if soonest is None or us < soonest:
                soonest = us
                yield Lease(group, gpus, us)


def _steps(data: Data, trained: Trained, name: str) -> Iterator[tuple[int, int]]:
    """Yield GPUs and us of a step within a node and beyond it."""
    rates, cluster = data.rates, data.cluster
    node = cluster.node[name]
    for d in trained.divisors:
        for t in DEGREES:
            gpus = d * t
            if gpus > cluster.gpu_count:
                break
            if not rates.fits(trained, node.gpu, d, t):
                continue
            if gpus <= node.count:
                yield gpus, rates.step_us(trained, d, t, {name: gpus})
            if gpus > 1 and len(cluster.nodes) > 1:
                yield gpus, rates.least_across_us(trained, name, d, t)


# --- what they pay ----------------------------------------------------------------


class _Rent:
    """Prices and times of a certificate as whole numbers.

    Prices are in 1 / `fine` of a us, times in 1 / `grain`, sums of both in 1 / `unit`.
    """

    def __init__(self, certificate: QueueCertificate, gpus: list[int]) -> None:
        edges = [Fraction(edge) for edge in certificate.edges]
        prices = [[Fraction(y) for y in row] for row in certificate.prices]
        # Floats are parts of powers of 2, the largest of which all others divide.
        self.grain = max(edge.denominator for edge in edges)
        self.fine = _FINE * max(y.denominator for row in prices for y in row)
        self.unit = self.grain * self.fine
        self.edges = [int(edge * self.grain) for edge in edges]
        self.prices = [[int(y * self.fine) for y in row] for row in prices]
        self.income = sum(
            y * held * (end - start)
            for row, held in zip(self.prices, gpus, strict=True)
            for y, start, end in zip(row, self.edges, self.edges[1:], strict=False)
        )


@dataclass
class _Ending:
    """An interval in which a job may end, and what is known of completion and rent.

    `low` and `high` are a worth in us, the least at it and how this grows with the
    worth: the greatest worth that was tried at which it grows, the least at which it
    shrinks.
    """

    least: int
    low: tuple[float, float, float]
    high: tuple[float, float, float] | None = None

    def better(self, quickest: float) -> float | None:
        """A worth that may show more; None where there is none, or little to gain."""
        at, value, growth = self.low
        if growth < _ENOUGH:
            return None
        if self.high is None:
            return 2 * max(at, quickest)
        beyond, other, shrinking = self.high
        worth = other - value + growth * at - shrinking * beyond
        worth /= growth - shrinking
        most = value + growth * (worth - at)
        if not at < worth < beyond or most - max(value, other) <= _ENOUGH * most:
            return None
        return worth


class _Alone:
    """A job by itself: what of completion and rent together it cannot do without."""

    def __init__(self, rent: _Rent, leases: list[Lease], release: int) -> None:
        self._rent = rent
        self._quickest = min(lease.us for lease in leases)
        start = release * rent.grain
        self._after = max(start, rent.edges[-1]) * rent.fine
        self._intervals = [
            (max(start, low), high, _worthwhile(rent, leases, number))
            for number, (low, high) in enumerate(
                zip(rent.edges, rent.edges[1:], strict=False)
            )
            if high > start
        ]

    def least(self) -> int:
        """Return the least rent, in its units; it never falls as the worth grows."""
        endings = [
            _Ending(least, (0.0, least / self._rent.unit, growth))
            for least, growth in self._at(0)
        ]
        while endings:
            first = min(endings, key=lambda ending: ending.least)
            if first.least >= self._after:
                break
            worth = first.better(float(self._quickest))
            if worth is None:
                return first.least
            self._learn(endings, worth)
        return self._after

    def _learn(self, endings: list[_Ending], worth: float) -> None:
        found = self._at(int(Fraction(worth) * self._rent.fine))
        for ending, (least, growth) in zip(endings, found, strict=True):
            ending.least = max(ending.least, least)
            line = worth, least / self._rent.unit, growth
            if growth >= 0:
                ending.low = max(ending.low, line)
            else:
                ending.high = line if ending.high is None else min(ending.high, line)

    def _at(self, worth: int) -> Iterator[tuple[int, float]]:
        """Yield each interval's least completion and rent, and growth with worth."""
        rent, left = self._rent, 1.0
        paid = worth * rent.grain
        for start, end, leases in self._intervals:
            gain, us = min((cost + -worth // us, us) for cost, us in leases)
            spent, done = 0, 0.0
            if gain < 0:
                spent, done = (end - start) * gain, (end - start) / (us * rent.grain)
            here, there = paid + start * rent.fine, paid + spent + end * rent.fine
            yield (here, left) if here < there else (there, left - done)
            paid, left = paid + spent, left - done


def _worthwhile(
    rent: _Rent, leases: list[Lease], interval: int
) -> list[tuple[int, int]]:
    """Rent and us of the whole work, without leases that cost more and are slower."""
    kept: list[tuple[int, int]] = []
    rows = [(rent.prices[x.group][interval] * x.gpus, x.us) for x in leases]
    for cost, us in sorted(rows):
        if not kept or us < kept[-1][1]:
            kept.append((cost, us))
    return kept
