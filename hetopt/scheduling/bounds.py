"""Average completion times that no schedule beats, whoever makes it.

Alone: every job starts at once, on the best GPUs, with nobody else.

One machine: a GPU of a group of alike nodes has the price y, its effective GFLOP/s.
Job j occupies at least  p[j] = launch min y N + steps min (y N step)  of it, each
minimum over the leases that fit (`certificate`): its steps may be done in several. So
any schedule, looked at as work on one machine of speed Y = sum of all prices that is
shared and interrupted at will, completes no job before the machine can; there, shortest
remaining work first has the least sum of completion times (Schrage 1968).

Prices: every job for itself, on GPUs of each group at prices that change over time
(`certificate`, `prices`); mostly the best, and the one that takes seconds: for up to
200 jobs.
"""

import heapq
from fractions import Fraction

from ..costs.compute import flops_per_s
from ..problems.job_scheduling import Data
from ..result import Bound
from ..solving.certificates import QueueCertificate
from .certificate import groups, work
from .prices import bound_by_prices


def bound(
    data: Data, deadline: float | None = None
) -> tuple[Bound, QueueCertificate | None]:
    """Return the best of all bounds, in us, over the jobs that are not refused.

    With the certificate of prices, which are sought until the `deadline`, a
    `time.monotonic()` instant.
    """
    found: list[tuple[Bound, QueueCertificate | None]]
    found = [(alone(data), None), (one_machine(data), None)]
    if (by_prices := bound_by_prices(data, deadline)) is not None:
        found.append(by_prices)
    return max(found, key=lambda each: each[0].value)


def alone(data: Data) -> Bound:
    """Return the average when no job waits for another."""
    times = [min(x.us for x in job.leases) for job in work(data, groups(data))]
    return Bound(Fraction(sum(times), len(times)), "each job alone on the best GPUs")


def one_machine(data: Data) -> Bound:
    """Return the least average on one machine as fast as all GPUs together."""
    among, cluster = groups(data), data.cluster
    types = [cluster.gpus[cluster.node[group.node].gpu] for group in among]
    price = [int(flops_per_s(gpu) / 10**9) for gpu in types]
    speed = sum(y * group.gpus for y, group in zip(price, among, strict=True))
    jobs = [
        (job.submit_us * speed, min(price[x.group] * x.gpus * x.us for x in job.leases))
        for job in work(data, among)
    ]
    waited = _least_sum(jobs) - sum(release for release, _ in jobs)
    source = "one shared machine, shortest remaining work first"
    return Bound(Fraction(waited, speed * len(jobs)), source)


def _least_sum(jobs: list[tuple[int, int]]) -> int:
    """Sum of completion times of (release, work), shortest remaining work first."""
    coming = sorted(jobs, reverse=True)
    left: list[int] = []
    now = total = 0
    while coming or left:
        if not left:
            now = max(now, coming[-1][0])
        while coming and coming[-1][0] <= now:
            heapq.heappush(left, coming.pop()[1])
        work = heapq.heappop(left)
        until = coming[-1][0] if coming else now + work
        if now + work <= until:
            now += work
            total += now
        else:
            heapq.heappush(left, now + work - until)
            now = until
    return total
