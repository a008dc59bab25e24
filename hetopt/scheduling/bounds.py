"""Average completion times that no schedule beats, whoever makes it.

Alone: every job starts at once, on the best GPUs, with nobody else: launch and its
steps at `fastest_us`. A first lease of no step at all makes the next one a restart, so
launch is the shorter of launch_s and restart_s.

One machine: a GPU of type g has the price y[g], its effective GFLOP/s. Job j occupies
at least  p[j] = launch min y[g] d t + steps min (y[g] d t step)  of it, each minimum
over the (g, d, t) that fit, with the best link for every step: its steps may be done in
several leases. A lease on several types takes no less than on that of the lowest price
alone, and costs no less. So any schedule,
looked at as work on one machine of speed Y = sum of all prices that is shared and
interrupted at will, completes no job before the machine can; there, shortest remaining
work first has the least sum of completion times (Schrage 1968).

Prices: every job for itself, on GPUs of each type at prices that change over time
(`prices`); mostly the best, and the one that takes seconds: for up to 200 jobs.
"""

import heapq
from fractions import Fraction

from ..costs.compute import flops_per_s
from ..costs.job_rates import DEGREES, Trained
from ..problems.job_scheduling import Data, micro
from ..result import Bound
from ..solving.certificates import QueueCertificate
from .offers import launch_us
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
    launch = launch_us(data)
    fastest: dict[Trained, int] = {}
    times = []
    for job in data.jobs:
        trained = data.trained(job)
        if data.rates.options(trained):
            if trained not in fastest:
                fastest[trained] = data.rates.fastest_us(trained)
            times.append(launch + job.steps * fastest[trained])
    return Bound(Fraction(sum(times), len(times)), "each job alone on the best GPUs")


def one_machine(data: Data) -> Bound:
    """Return the least average on one machine as fast as all GPUs together."""
    gpus, count = data.cluster.gpus, data.rates.count
    price = {name: int(flops_per_s(gpu) / 10**9) for name, gpu in gpus.items()}
    speed, launch = sum(price[x] * count[x] for x in gpus), launch_us(data)
    least: dict[Trained, tuple[int, int]] = {}
    jobs = []
    for job in data.jobs:
        trained = data.trained(job)
        if not data.rates.options(trained):
            continue
        if trained not in least:
            rows = _rows(data, trained, price)
            least[trained] = min(paid for paid, _ in rows), min(p * s for p, s in rows)
        held, step = least[trained]
        work = launch * held + job.steps * step
        jobs.append((micro(job.submit_s) * speed, work))
    waited = _least_sum(jobs) - sum(release for release, _ in jobs)
    source = "one shared machine, shortest remaining work first"
    return Bound(Fraction(waited, speed * len(jobs)), source)


def _rows(data: Data, trained: Trained, price: dict[str, int]) -> list[tuple[int, int]]:
    """(price of the GPUs held, step in us) of all that fits; spans any nodes."""
    rates = data.rates
    total = data.cluster.gpu_count
    return [
        (price[gpu] * d * t, rates.least_step_us(trained, gpu, d, t))
        for gpu in data.cluster.gpus
        for d in trained.divisors
        for t in DEGREES
        if d * t <= total and rates.fits(trained, gpu, d, t)
    ]


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
