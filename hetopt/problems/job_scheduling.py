"""Job scheduling: many training jobs on one mixed cluster, each as soon as possible.

Job j arrives at submit_s and has steps = ceil(samples / batch) to do. A lease gives it
N = d t GPUs from start to end; of that time the first launch_s (restart_s when the job
has worked before) go into starting, and then a step ends every step_us (`job_rates`).
A lease that ends early loses the step that it is in. The leases of a job do exactly
`steps` steps, and the last one ends with the last step. A trial runs out of memory
after exactly trial_s and does none. No GPU is held twice at a time; predicted memory
fits every GPU of a lease that is no trial, and does not fit one of a trial.

A job is refused exactly where no GPU type of the cluster has a (d, t) that fits.
Minimise the average job completion time: end of the last lease less the submission,
over the jobs that are not refused.

Source: Frenzy, sections IV and V; the memory and step-time models are assumptions that
the data hold.
"""

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from math import ceil
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from .. import plans
from ..costs import marp
from ..costs.job_rates import JobRates, Trained
from ..errors import InstanceError
from ..schema import (
    Cluster,
    Compute,
    CostSettings,
    Count,
    ModelSpec,
    Name,
    Record,
    Updates,
    exact,
    lora_fault,
    once,
)
from ..schema.record import SIZED
from . import Evaluation, Violation

sense: Literal["minimise"] = "minimise"
Plan = plans.Schedule

MICRO = 10**6
Seconds = Annotated[float, Field(ge=0, le=1e9)]


class JobModel(Record):
    """A model that jobs train, the length of its sequences, and what is trained."""

    spec: ModelSpec
    sequence_length: Count
    lora_rank: Annotated[int, Field(ge=1, le=65_536)] | None = Field(
        default=None,
        description="Rank of LoRA's adapters; without it all weights are trained.",
    )

    @model_validator(mode="after")
    def _adapters_can_be_counted(self) -> Self:
        if self.lora_rank is not None and (fault := lora_fault(self.spec)):
            raise ValueError(fault)
        return self


class Job(Record):
    """A submission: what to train, and how many GPUs its user would ask for."""

    name: Name
    model: Name
    batch: Annotated[int, Field(ge=1, le=100_000)] = Field(
        description="Sequences per step, over all GPUs."
    )
    samples: Annotated[int, Field(ge=1, le=10**12)] = Field(
        description="Sequences to train in all."
    )
    submit_s: Seconds
    gpus: Annotated[int, Field(ge=1, le=100_000)] | Literal["choose"] = Field(
        default=1,
        description="The user's guess, which policies that predict ignore; or the "
        "policy is to choose.",
    )

    @property
    def asked(self) -> int | None:
        """Return GPUs that the user asks for; None where the policy is to choose."""
        return None if self.gpus == "choose" else self.gpus

    @property
    def steps(self) -> int:
        """Return the steps to do; the last one may be short of samples, not of time."""
        return -(-self.samples // self.batch)


class Assumptions(Record):
    """A schedule's times rest on assumptions beside the cluster's GPUs and links."""

    memory: marp.Formula = Field(
        default="marp",
        description="Frenzy's formula; the cost model; or that of one sequence at a "
        "time, whose gradients are accumulated.",
    )
    costs: CostSettings = CostSettings(
        compute=Compute(recompute="none"), updates=Updates(sync_overlap="backward")
    )
    launch_s: Seconds = 30
    restart_s: Seconds = 60
    trial_s: Seconds = 120
    round_s: Annotated[float, Field(gt=0, le=1e6), SIZED] = 60
    efficiency: Literal["per_gpu", "throughput"] = Field(
        default="per_gpu", description="What MARP ranks by: samples/s a GPU, or in all."
    )

    @model_validator(mode="after")
    def _timed_by_formula(self) -> Self:
        if self.costs.compute.calibration is not None:
            raise ValueError(
                "found costs.layer_times 'calibrated', and jobs are timed by formula: "
                "give layer_times 'analytic' and no calibration"
            )
        if self.costs.updates.lora is not None:
            raise ValueError(
                "costs.lora is not for queues: give each model its lora_rank, and "
                "remove costs.lora"
            )
        if self.costs.memory.offload is not None:
            raise ValueError(
                "found costs.offload, which jobs are not priced with: remove it"
            )
        return self


class Assumed(Record):
    """The maker of a queue fills in an assumption where its source says nothing."""

    what: str
    value: str
    jobs: Annotated[int, Field(ge=0)] = Field(description="That it was filled in for.")
    change: str = Field(description="Where to say something else.")


class Data(Record):
    """A queue of jobs for one cluster."""

    problem: Literal["job_scheduling"] = "job_scheduling"
    name: Name
    source: Annotated[str, Field(max_length=4000)] = ""
    cluster: Cluster
    models: dict[Name, JobModel]
    jobs: Annotated[tuple[Job, ...], Field(min_length=1, max_length=1_000_000)]
    assumptions: Assumptions = Assumptions()
    assumed: tuple[Assumed, ...] = ()

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        once("jobs of one name", (job.name for job in self.jobs))
        for job in self.jobs:
            if job.model not in self.models:
                raise ValueError(
                    f"job {job.name!r} trains unknown model {job.model!r}, expected "
                    f"one of {', '.join(sorted(self.models))}: correct it or add the "
                    "model to models"
                )
            if (job.asked or 1) > self.cluster.gpu_count:
                raise ValueError(
                    f"job {job.name!r} asks for {job.gpus} GPUs, the cluster has "
                    f"{self.cluster.gpu_count}: lower it"
                )
        return self

    @cached_property
    def rates(self) -> JobRates:
        """Memory and step times of these jobs on this cluster."""
        given = self.assumptions
        return JobRates(self.cluster, given.costs, given.memory)

    @cached_property
    def _classes(self) -> dict[tuple[str, int], Trained]:
        found: dict[tuple[str, int], Trained] = {}
        for job in self.jobs:
            if (job.model, job.batch) not in found:
                model = self.models[job.model]
                trained = Trained(
                    job.model,
                    model.spec,
                    model.sequence_length,
                    job.batch,
                    model.lora_rank,
                )
                found[job.model, job.batch] = trained
        return found

    def trained(self, job: Job) -> Trained:
        """Return what the job trains; jobs of one model and batch share the object."""
        return self._classes[job.model, job.batch]

    def refusal(self, job: Job) -> str | None:
        """Return why the job can never run here; None where it can."""
        trained = self.trained(job)
        if self.rates.options(trained):
            return None
        sizes = ", ".join(
            f"{count} × {gpu} of {self.cluster.gpus[gpu].memory_gib:g} GiB"
            for gpu, count in self.rates.count.items()
        )
        least = self._least_need(trained) / 2**30
        return (
            f"no degrees of parallelism fit {job.model} at batch {job.batch}: it needs "
            f"at least {least:.1f} GiB on each GPU of any split that the cluster has "
            f"room for ({sizes})"
        )

    def _least_need(self, trained: Trained) -> int:
        rates, needs = self.rates, []
        for gpu, count in rates.count.items():
            t = max(t for t in (1, 2, 4, 8, 16, 32, 64) if t <= rates.largest[gpu])
            d = max(d for d in trained.divisors if d * t <= count)
            needs.append(rates.memory(trained, d, t).total)
        return min(needs)


def data(instance: Any) -> Data:
    """Raise `InstanceError`: an instance poses no queue."""
    raise InstanceError(
        f"instance {instance.name!r} has one model and no jobs: expected a queue, such "
        "as `frenzy/simulator-30`; use `hetopt schedule QUEUE`"
    )


def unit(data: Data) -> str:
    """Microseconds, on average over the jobs."""
    return "us"


def micro(seconds: float) -> int:
    """Seconds of a file as whole microseconds, rounded up."""
    return ceil(exact(seconds) * MICRO)


def evaluate(data: Data, plan: plans.Schedule) -> Evaluation:
    """Judge a schedule: average completion time in us, exactly."""
    jobs = {job.name: job for job in data.jobs}
    broken: list[Violation] = []
    seen = Counter(entry.job for entry in plan.jobs)
    for name in [name for name in seen if name not in jobs]:
        broken.append(Violation("unknown_job", "plan", repr(name)))
    for name in jobs:
        if seen[name] != 1:
            broken.append(Violation("every_job_once", name, f"listed {seen[name]}x"))
    completion: list[int] = []
    held: list[tuple[str, plans.ScheduledJob]] = []
    for entry in plan.jobs:
        if entry.job not in jobs:
            continue
        job = jobs[entry.job]
        broken += list(_job_violations(data, job, entry))
        held.append((job.name, entry))
        if entry.leases:
            completion.append(entry.leases[-1].end_us - micro(job.submit_s))
    broken += _held_twice(held)
    refused = sum(entry.refused is not None for entry in plan.jobs)
    average = Fraction(sum(completion), len(completion)) if completion else Fraction(0)
    ends = [entry.leases[-1].end_us for entry in plan.jobs if entry.leases]
    first = min(micro(job.submit_s) for job in data.jobs)
    parts = {
        "average_completion_s": float(average / MICRO),
        "longest_completion_s": max(completion, default=0) / MICRO,
        "makespan_s": (max(ends, default=first) - first) / MICRO,
        "jobs": len(completion),
        "refused": refused,
        "trials": sum(lease.trial for entry in plan.jobs for lease in entry.leases),
    }
    return Evaluation(average, tuple(broken), parts)


def _job_violations(
    data: Data, job: Job, entry: plans.ScheduledJob
) -> Iterator[Violation]:
    """Yield rules of one job: refusal, order of leases, each lease, the work done."""
    refusal = data.refusal(job)
    if (entry.refused is not None) != (refusal is not None):
        said = "refused, although it fits" if refusal is None else refusal
        yield Violation("refused", job.name, said)
        return
    if entry.refused is not None:
        if entry.leases:
            yield Violation("refused", job.name, "refused, yet holds GPUs")
        return
    if not entry.leases:
        yield Violation("work", job.name, f"0 of {job.steps} steps done")
        return
    if (early := micro(job.submit_s) - entry.leases[0].start_us) > 0:
        yield Violation("submitted", job.name, f"starts {early} us early")
    for one, two in pairwise(entry.leases):
        if two.start_us < one.end_us:
            by = f"{one.end_us - two.start_us} us"
            yield Violation("one_lease_at_a_time", job.name, by)
    left, worked = job.steps, False
    for number, lease in enumerate(entry.leases):
        where = f"{job.name}, lease {number}"
        wrong = list(_lease_violations(data, job, lease, where))
        yield from wrong
        if wrong or lease.trial:
            continue
        start_s = data.assumptions.restart_s if worked else data.assumptions.launch_s
        ready = lease.start_us + micro(start_s)
        d, t = lease.data_parallel, lease.tensor_parallel
        step = data.rates.step_us(data.trained(job), d, t, _gpus_by_node(lease))
        done = max(0, lease.end_us - ready) // step
        last = number == len(entry.leases) - 1
        if last and lease.end_us != ready + left * step:
            yield Violation(
                "work",
                where,
                f"{left} steps of {step} us were left and the lease ends at "
                f"{lease.end_us}, not {ready + left * step}",
            )
        elif not last and done >= left:
            yield Violation("work", where, "goes on after the last step")
        left, worked = left - done, True
    if entry.leases[-1].trial:
        yield Violation("work", job.name, f"{left} steps are missing")


def _lease_violations(
    data: Data, job: Job, lease: plans.Lease, where: str
) -> Iterator[Violation]:
    """Rules of one lease: its GPUs exist, d t of them, memory fits or does not."""
    d, t = lease.data_parallel, lease.tensor_parallel
    if unknown := [gpu for gpu in lease.gpus if not _exists(data.cluster, gpu)]:
        yield Violation("unknown_gpu", where, ", ".join(unknown[:3]))
        return
    if len(set(lease.gpus)) != len(lease.gpus):
        yield Violation("no_gpu_twice", where, "a GPU is listed twice")
    if len(lease.gpus) != d * t:
        yield Violation("degrees", where, f"{len(lease.gpus)} GPUs for {d} x {t}")
    if job.batch % d:
        yield Violation("degrees", where, f"{d} does not divide batch {job.batch}")
        return
    if t & (t - 1) or t > 64:
        yield Violation("degrees", where, f"{t} is not a power of two up to 64")
        return
    if lease.end_us <= lease.start_us:
        yield Violation("time", where, "ends no later than it starts")
    trained = data.trained(job)
    types = {data.cluster.node[name].gpu for name in _gpus_by_node(lease)}
    fits = all(data.rates.fits(trained, gpu, d, t) for gpu in sorted(types))
    if not fits and not lease.trial:
        need = data.rates.memory(trained, d, t).total / 2**30
        yield Violation("memory", where, f"needs {need:.2f} GiB a GPU")
    if lease.trial and fits:
        yield Violation("memory", where, "a trial that fits")
    trial_us = micro(data.assumptions.trial_s)
    if lease.trial and lease.end_us - lease.start_us != trial_us:
        yield Violation("trial", where, f"does not last {trial_us} us")


def _exists(cluster: Cluster, gpu: str) -> bool:
    node, _, index = gpu.rpartition(":")
    return node in cluster.node and int(index) < cluster.node[node].count


def _gpus_by_node(lease: plans.Lease) -> Counter[str]:
    return Counter(gpu.rpartition(":")[0] for gpu in lease.gpus)


def _held_twice(entries: list[tuple[str, plans.ScheduledJob]]) -> Iterator[Violation]:
    """Leases of one GPU that overlap, each with the one before it."""
    by_gpu: dict[str, list[tuple[int, int, str]]] = {}
    for name, entry in entries:
        for lease in entry.leases:
            for gpu in lease.gpus:
                by_gpu.setdefault(gpu, []).append((lease.start_us, lease.end_us, name))
    for gpu, leases in by_gpu.items():
        leases.sort()
        for one, two in pairwise(leases):
            if two[0] < one[1]:
                by = f"{one[2]} and {two[2]}, {one[1] - two[0]} us"
                yield Violation("no_gpu_twice", gpu, by)
