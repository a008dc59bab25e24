"""What people ask of a schedule: completion, queueing, use of the cluster."""

import math
from dataclasses import asdict, dataclass
from statistics import fmean, median
from typing import Any

from ..plans import Lease, Schedule
from ..problems.job_scheduling import MICRO, Data, Job, micro


@dataclass(frozen=True)
class Metrics:
    """Seconds, shares and rates; the percentiles are the nearest ranks."""

    jobs: int
    refused: int
    trials: int
    restarts: int
    average_completion_s: float
    p99_completion_s: float
    average_queueing_s: float
    makespan_s: float
    samples_per_second: float
    samples_per_second_of_a_job: float
    utilisation: dict[str, float]
    decisions: int
    decision_median_s: float | None
    decision_p99_s: float | None

    def to_json(self) -> dict[str, Any]:
        """As a document."""
        return asdict(self)


def percentile(values: list[float], share: float) -> float:
    """The nearest-rank percentile of values, of which there is at least one."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def completion_s(data: Data, schedule: Schedule) -> dict[str, float]:
    """Completion time of each job that is not refused: end less submission."""
    jobs = {job.name: job for job in data.jobs}
    return {
        entry.job: (entry.leases[-1].end_us - micro(jobs[entry.job].submit_s)) / MICRO
        for entry in schedule.jobs
        if entry.leases
    }


def measure(
    data: Data, schedule: Schedule, decision_s: tuple[float, ...] = ()
) -> Metrics:
    """The metrics of a schedule that the judge accepts.

    Queueing is all time without GPUs from submission to the end. Utilisation is the
    share of a type's GPU time from the first submission to the last end that is held,
    starts and trials included. A job's rate is its samples over its completion time.
    """
    jobs = {job.name: job for job in data.jobs}
    times = completion_s(data, schedule)
    entries = [entry for entry in schedule.jobs if entry.leases]
    leases = [lease for entry in entries for lease in entry.leases]
    queueing = [
        times[entry.job] - sum(map(_seconds, entry.leases)) for entry in entries
    ]
    first = min((job.submit_s for job in data.jobs), default=0.0)
    makespan = max((x.end_us for x in leases), default=0) / MICRO - first
    trained = sum(jobs[name].samples for name in times)
    return Metrics(
        jobs=len(times),
        refused=sum(entry.refused is not None for entry in schedule.jobs),
        trials=sum(lease.trial for lease in leases),
        restarts=sum(max(0, _worked(entry.leases) - 1) for entry in entries),
        average_completion_s=fmean(times.values()) if times else 0.0,
        p99_completion_s=percentile([*times.values()], 0.99) if times else 0.0,
        average_queueing_s=fmean(queueing) if queueing else 0.0,
        makespan_s=max(0.0, makespan),
        samples_per_second=trained / makespan if times else 0.0,
        samples_per_second_of_a_job=_rate(jobs, times),
        utilisation=_utilisation(data, leases, makespan),
        decisions=len(decision_s),
        decision_median_s=median(decision_s) if decision_s else None,
        decision_p99_s=percentile([*decision_s], 0.99) if decision_s else None,
    )


def _seconds(lease: Lease) -> float:
    return (lease.end_us - lease.start_us) / MICRO


def _worked(leases: tuple[Lease, ...]) -> int:
    return sum(not lease.trial for lease in leases)


def _rate(jobs: dict[str, Job], times: dict[str, float]) -> float:
    rates = [jobs[name].samples / seconds for name, seconds in times.items()]
    return fmean(rates) if rates else 0.0


def _utilisation(data: Data, leases: list[Lease], makespan: float) -> dict[str, float]:
    held = dict.fromkeys(data.cluster.gpus, 0.0)
    for lease in leases:
        for gpu in lease.gpus:
            held[data.cluster.node[gpu.rpartition(":")[0]].gpu] += _seconds(lease)
    count = data.rates.count
    return {
        gpu: seconds / (count[gpu] * makespan) if leases else 0.0
        for gpu, seconds in held.items()
    }
