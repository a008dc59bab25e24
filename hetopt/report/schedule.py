"""Schedules: metrics, and who held which GPU when."""

from collections.abc import Iterator

from .. import registry
from ..api.scheduling import Scheduled
from . import words
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
ASSUMED = ("assumed", "what", "jobs", "changed by")


# --- tables ----------------------------------------------------------------------


def times_of(queue: Scheduled) -> Table:
    """Completion and queueing of all jobs, a row a policy."""
    names = (
        *("average_completion_s", "p50_completion_s", "p90_completion_s"),
        *("p99_completion_s", "average_queueing_s", "p50_queueing_s"),
        *("p90_queueing_s", "p99_queueing_s"),
    )
    rows: list[list[Cell | str]] = []
    for outcome in queue.outcomes:
        seconds = [getattr(outcome.metrics, name, None) for name in names]
        gap = outcome.result.gap
        cells = [Cell.of(value, words.duration(value)) for value in seconds]
        rows.append([outcome.policy, *cells, Cell.of(gap, words.share(gap))])
    return Table.of(TIMES, rows)


def use_of(queue: Scheduled) -> Table:
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


# --- terminal and page -----------------------------------------------------------


def choosers(queue: Scheduled) -> str:
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


def sheet(queue: Scheduled) -> Sheet:
    """Return metrics of all policies, and who held which GPU when."""
    data = queue.data
    reasons = (why for one in queue.outcomes for why in one.result.reasons)
    refused = tuple(f"refused {why}" for why in dict.fromkeys(reasons))
    notes = tuple(filter(None, (choosers(queue),)))
    rows = [(one.what, one.value, str(one.jobs), one.change) for one in data.assumed]
    texts = ("assumed", "what", "changed by")
    assumed = Table.of(ASSUMED, rows, texts=texts) if rows else None
    source = (f"Source: {data.source}.",) if data.source else ()
    drawn = Figure("Who held which GPU", "", lambda: gantt(data, queue.plans))
    sections = (
        Section(notes=(_NOTE, *source), in_files_only=True),
        Section("What was assumed" * bool(assumed), table=assumed),
        Section("Completion and queueing times", table=times_of(queue)),
        Section("Use of the cluster", notes, refused, use_of(queue)),
        Section("Who held which GPU", (_GANTT,), figures=(drawn,), on_page_only=True),
    )
    name, facts = f"Schedules of {data.name}", tuple(_facts(queue))
    return Sheet(name, sections, "a queue of jobs", facts, picture=drawn.draw)


def _facts(queue: Scheduled) -> Iterator[tuple[str, str]]:
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
    "Black: an attempt that ran out of memory."
)
_NOTE = (
    "Every schedule was checked. The gap says how much shorter the average completion "
    "could be at most, and is proved."
)
