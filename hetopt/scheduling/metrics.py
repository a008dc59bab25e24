"""Metrics of a schedule: completion, queueing, use of the cluster.

Times are added and subtracted as whole microseconds and become seconds at the end: a
job that never waits has waited 0.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import TypeVar

from ..plans import Lease, Schedule
from ..problems.job_scheduling import MICRO, Data, micro

T = TypeVar("T", int, float)
PERCENTS = (50, 90, 99)


@dataclass(frozen=True)
class Metrics:
    """Seconds, shares and rates; the percentiles are the nearest ranks."""

    jobs: int
    refused: int
    trials: int
    restarts: int
    average_completion_s: float
    p50_completion_s: float
    p90_completion_s: float
    p99_completion_s: float
    average_queueing_s: float
    p50_queueing_s: float
    p90_queueing_s: float
    p99_queueing_s: float
    makespan_s: float
    samples_per_second: float
    samples_per_second_of_a_job: float
    utilisation: dict[str, float]
    decisions: int
    decision_median_s: float | None
    decision_p99_s: float | None

    def to_json(self) -> dict[str, object]:
        """Return the metrics as a document."""
        return asdict(self)


@dataclass(frozen=True)
class Times:
    """A job's times in us: from submission to its end, and of that without GPUs."""

    completion_us: int
    queueing_us: int


def percentile(values: Sequence[T], percent: int) -> T:
    """Return the nearest-rank percentile of values, of which there is at least one."""
    rank = -(-percent * len(values) // 100)
    return sorted(values)[max(0, rank - 1)]


def times(data: Data, schedule: Schedule) -> dict[str, Times]:
    """The times of each job that is not refused, in the order of the schedule."""
    submitted = {job.name: micro(job.submit_s) for job in data.jobs}
    found = {}
    for entry in schedule.jobs:
        if entry.leases:
            completion = entry.leases[-1].end_us - submitted[entry.job]
            queueing = completion - sum(map(_held_us, entry.leases))
            found[entry.job] = Times(completion, queueing)
    return found


def measure(
    data: Data, schedule: Schedule, decision_s: tuple[float, ...] = ()
) -> Metrics:
    """Return the metrics of a schedule that the judge accepts.

    Queueing is all time without GPUs from submission to the end. Utilisation is the
    share of a type's GPU time from the first submission to the last end that is held,
    starts and trials included. A job's rate is its samples over its completion time.
    """
    jobs = {job.name: job for job in data.jobs}
    found = times(data, schedule)
    entries = [entry for entry in schedule.jobs if entry.leases]
    leases = [lease for entry in entries for lease in entry.leases]
    first = min(micro(job.submit_s) for job in data.jobs)
    makespan = max((lease.end_us for lease in leases), default=first) - first
    trained = sum(jobs[name].samples for name in found)
    rates = [jobs[name].samples * MICRO / x.completion_us for name, x in found.items()]
    return Metrics(
        jobs=len(found),
        refused=sum(entry.refused is not None for entry in schedule.jobs),
        trials=sum(lease.trial for lease in leases),
        restarts=sum(
            max(0, sum(not lease.trial for lease in entry.leases) - 1)
            for entry in entries
        ),
        **_summary("completion", [one.completion_us for one in found.values()]),
        **_summary("queueing", [one.queueing_us for one in found.values()]),
        makespan_s=makespan / MICRO,
        samples_per_second=trained * MICRO / makespan if found else 0.0,
        samples_per_second_of_a_job=fmean(rates) if rates else 0.0,
        utilisation=_utilisation(data, leases, makespan),
        decisions=len(decision_s),
        decision_median_s=median(decision_s) if decision_s else None,
        decision_p99_s=percentile(decision_s, 99) if decision_s else None,
    )


def _summary(name: str, times_us: list[int]) -> dict[str, float]:
    """Return the fields of `Metrics` about one time of all jobs; 0 without jobs."""
    some = times_us or [0]
    ranks = {f"p{n}_{name}_s": percentile(some, n) / MICRO for n in PERCENTS}
    return {f"average_{name}_s": sum(some) / (MICRO * len(some)), **ranks}


def _held_us(lease: Lease) -> int:
    return lease.end_us - lease.start_us


def _utilisation(data: Data, leases: list[Lease], makespan: int) -> dict[str, float]:
    held = dict.fromkeys(data.cluster.gpus, 0)
    for lease in leases:
        for gpu in lease.gpus:
            held[data.cluster.node[gpu.rpartition(":")[0]].gpu] += _held_us(lease)
    count = data.rates.count
    return {
        gpu: time / (count[gpu] * makespan) if leases else 0.0
        for gpu, time in held.items()
    }
