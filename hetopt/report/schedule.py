"""Schedules: metrics, times of every job, who held which GPU when."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import RenderableType

from .. import registry
from ..api.scheduling import Outcome
from ..plans import Schedule, ScheduledJob
from ..problems.job_scheduling import MICRO, Data, Job
from ..scheduling.metrics import times
from ..scheduling.traces import offered_load
from ..text.documents import Document
from . import words, writers
from .gantt import gantt
from .sheet import Cell, Figure, Section, Sheet, Table

TIMES = (
    *("policy", "mean completion", "p50", "p90", "p99"),
    *("mean queueing", "p50", "p90", "p99", "gap to bound"),
)
USE = (
    *("policy", "makespan", "GPU time in use", "samples/s", "trials", "restarts"),
    *("median decision", "p99 decision"),
)
MOST_JOBS = 2000
ASSUMED = ("assumed", "what", "jobs", "changed by")


@dataclass(frozen=True)
class Queue:
    """A queue, and what each policy made of it."""

    data: Data
    outcomes: tuple[Outcome, ...]

    @property
    def plans(self) -> list[tuple[str, Schedule]]:
        """The schedules by policy, where there is one."""
        kept = [(one.policy, one.result.plan) for one in self.outcomes]
        return [(policy, plan) for policy, plan in kept if plan is not None]


def document(queue: Queue) -> Document:
    """One policy: its result document, with the queue, which `hetopt check` takes."""
    load = offered_load(queue.data)
    shared = {
        "instance": queue.data.model_dump(mode="json"),
        "offered_load": load if load < float("inf") else None,
    }
    documents = [outcome.to_json() for outcome in queue.outcomes]
    if len(documents) == 1:
        return documents[0] | shared
    return {"problem": "job_scheduling", **shared, "results": documents}


# --- tables ----------------------------------------------------------------------


def times_of(queue: Queue) -> Table:
    """Completion and queueing of all jobs, a row a policy."""
    rows: list[list[Cell | str]] = []
    for outcome in queue.outcomes:
        m = outcome.metrics
        seconds: tuple[float | None, ...] = (None,) * 8
        if m is not None:
            seconds = (
                *(m.average_completion_s, m.p50_completion_s, m.p90_completion_s),
                *(m.p99_completion_s, m.average_queueing_s, m.p50_queueing_s),
                *(m.p90_queueing_s, m.p99_queueing_s),
            )
        gap = outcome.result.gap
        cells = [Cell.of(value, words.duration(value)) for value in seconds]
        rows.append([outcome.policy, *cells, Cell.of(gap, words.share(gap))])
    return Table.of(TIMES, rows)


def use_of(queue: Queue) -> Table:
    """Return what the cluster did, and the policy, a row a policy."""
    rows = []
    for outcome in queue.outcomes:
        m = outcome.metrics
        if m is None:
            rows.append([outcome.policy, *[words.NONE] * (len(USE) - 1)])
            continue
        held = (f"{gpu} {share:.0%}" for gpu, share in m.utilisation.items())
        rows.append(
            [
                outcome.policy,
                words.duration(m.makespan_s),
                ", ".join(held),
                words.number(m.samples_per_second),
                str(m.trials),
                str(m.restarts),
                words.duration(m.decision_median_s),
                words.duration(m.decision_p99_s),
            ]
        )
    return Table.of(USE, rows, texts=("policy", "GPU time in use"))


def assumed_of(data: Data) -> Table:
    """Return what the maker of the queue filled in."""
    rows = [(one.what, one.value, str(one.jobs), one.change) for one in data.assumed]
    return Table.of(ASSUMED, rows, texts=("assumed", "what", "changed by"))


def jobs_of(queue: Queue) -> Table:
    """Every job: what it trains, and its times and GPUs under each policy."""
    headings = ["job", "model", "batch", "GPUs asked", "submitted"]
    by_policy = []
    for policy, plan in queue.plans:
        headings += [f"{policy}: queueing", "completion", "last on"]
        entries = {entry.job: entry for entry in plan.jobs}
        by_policy.append((entries, times(queue.data, plan)))
    rows = []
    for job in queue.data.jobs[:MOST_JOBS]:
        row = _asked(job)
        for entries, found in by_policy:
            at = found.get(job.name)
            spent = (at.queueing_us, at.completion_us) if at else (None, None)
            for us in spent:
                seconds = None if us is None else us / MICRO
                row.append(Cell.of(seconds, words.duration(seconds)))
            row.append(Cell.of(_last_on(queue.data, entries[job.name])))
        rows.append(row)
    return Table.of(headings, rows, texts=("job", "model", "last on"))


def _asked(job: Job) -> list[Cell]:
    return [
        *(Cell.of(job.name), Cell.of(job.model), Cell.of(job.batch)),
        Cell(str(job.gpus), job.asked),
        Cell.of(job.submit_s, words.duration(job.submit_s)),
    ]


def _last_on(data: Data, entry: ScheduledJob) -> str:
    """The GPUs on which a job ends."""
    if not entry.leases:
        return "refused"
    nodes = (gpu.rpartition(":")[0] for gpu in entry.leases[-1].gpus)
    kinds = Counter(data.cluster.node[node].gpu for node in nodes)
    return " + ".join(f"{count} × {gpu}" for gpu, count in kinds.items())


# --- terminal and page -----------------------------------------------------------


def assumed(data: Data) -> Iterator[RenderableType]:
    """Yield what the maker of the queue filled in, for a terminal."""
    yield writers.grid(assumed_of(data), narrow=False)


def choosers(queue: Queue) -> str:
    """Return which policies do not follow what jobs ask for; empty where all do."""
    if all(job.asked is None for job in queue.data.jobs):
        return ""
    names = [
        one.policy
        for one in queue.outcomes
        if not getattr(
            registry.entry("scheduling.policies", one.policy), "follows_requests", True
        )
    ]
    if not names:
        return ""
    told = f"{', '.join(names)}: the policy chooses the number of GPUs"
    return f"{told}, whatever jobs ask for."


def sheet(queue: Queue) -> Sheet:
    """Return metrics of all policies, who held which GPU when, and every job."""
    data = queue.data
    listed = _JOBS
    if len(data.jobs) > MOST_JOBS:
        listed += f" Shown: {MOST_JOBS} of {len(data.jobs)}."
    reasons = (why for one in queue.outcomes for why in one.result.reasons)
    refused = tuple(f"refused {why}" for why in dict.fromkeys(reasons))
    notes = tuple(filter(None, (choosers(queue),)))
    waiting = "Completion and queueing times"
    assumed = assumed_of(data) if data.assumed else None
    sections = (
        Section(notes=(_introduction(data), *_source(data)), in_files_only=True),
        Section("What was assumed" * bool(assumed), table=assumed, in_files_only=True),
        Section(waiting, table=times_of(queue)),
        Section("Use of the cluster", notes, refused, use_of(queue)),
        Section(
            "Who held which GPU", (_GANTT,), figures=(_gantt(queue),), on_page_only=True
        ),
        Section("Jobs", (listed,), table=jobs_of(queue), in_files_only=True),
    )
    name = f"Schedules of {data.name}"
    facts = tuple(_facts(queue))
    draw = _gantt(queue).draw
    return Sheet(name, sections, "a queue of jobs", facts, picture=draw)


def _gantt(queue: Queue) -> Figure:
    return Figure("Who held which GPU", "", lambda: gantt(queue.data, queue.plans))


def _facts(queue: Queue) -> Iterator[tuple[str, str]]:
    """The policy whose jobs are done soonest, and the one that is done first."""
    known = [(one.policy, m) for one in queue.outcomes if (m := one.metrics)]
    yield "jobs", f"{len(queue.data.jobs)} on {queue.data.cluster.gpu_count} GPUs"
    if known:
        name, best = min(known, key=lambda one: one[1].average_completion_s)
        told = words.duration(best.average_completion_s)
        yield f"shortest mean completion, by {name}", told
        name, best = min(known, key=lambda one: one[1].makespan_s)
        yield f"shortest makespan, by {name}", words.duration(best.makespan_s)


_GANTT = (
    "One line per GPU, with the same time axis in every panel; colours are models. "
    "Black: an attempt that ran out of "
    "memory."
)
_JOBS = "Times from submission; the GPUs are those on which a job ends."


def _source(data: Data) -> Iterator[str]:
    if data.source:
        yield f"Source: {data.source}."


def _introduction(data: Data) -> str:
    return (
        f"{words.counted(len(data.jobs), 'job')} on {data.cluster.gpu_count} GPUs. "
        "Every schedule was checked. The gap says how much shorter the average "
        "completion could be at most, and is proved."
    )
