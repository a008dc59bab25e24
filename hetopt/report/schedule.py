"""Schedules: metrics, completion times, who held which GPU when."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from ..api.scheduling import Outcome
from ..plans import Schedule
from ..problems.job_scheduling import MICRO, Data
from ..scheduling.metrics import times
from . import figures, words, writers
from .sheet import Figure, Section, Sheet, Table

COLUMNS = (
    *("policy", "average completion", "p99", "queueing", "makespan", "gap to bound"),
    *("samples/s", "trials", "restarts", "decision, median", "p99"),
)


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """A row of texts a policy, under COLUMNS."""
    listed = []
    for outcome in outcomes:
        m = outcome.metrics
        if m is None:
            listed.append([outcome.policy, *[words.NONE] * (len(COLUMNS) - 1)])
            continue
        listed.append(
            [
                outcome.policy,
                words.duration(m.average_completion_s),
                words.duration(m.p99_completion_s),
                words.duration(m.average_queueing_s),
                words.duration(m.makespan_s),
                words.share(outcome.result.gap),
                words.number(m.samples_per_second),
                str(m.trials),
                str(m.restarts),
                words.duration(m.decision_median_s),
                words.duration(m.decision_p99_s),
            ]
        )
    return listed


def used(outcomes: Sequence[Outcome]) -> list[tuple[str, str]]:
    """Policy, and the share of each GPU type's time that was held."""
    return [
        (
            outcome.policy,
            ", ".join(
                f"{words.plain(gpu)} {share:.0%}"
                for gpu, share in outcome.metrics.utilisation.items()
            ),
        )
        for outcome in outcomes
        if outcome.metrics is not None
    ]


def terminal(outcomes: Sequence[Outcome]) -> Iterator[RenderableType]:
    """The metrics, and what is to be said beside them."""
    yield writers.terminal(Table.of(COLUMNS, rows(outcomes)), narrow=False)
    for name, text in used(outcomes):
        yield Text(f"{name}: held {text}", style="dim")
    for reason in dict.fromkeys(r for one in outcomes for r in one.result.reasons):
        yield Text(words.plain(f"refused {reason}"))


ASSUMED = ("assumed", "what", "jobs", "to change it")


def assumed(data: Data) -> Iterator[RenderableType]:
    """What the maker of the queue filled in, for a terminal."""
    yield writers.terminal(_assumed(data), narrow=False)


def _assumed(data: Data) -> Table:
    rows = [(one.what, one.value, str(one.jobs), one.change) for one in data.assumed]
    return Table.of(ASSUMED, rows, texts=("assumed", "what", "to change it"))


def page(data: Data, outcomes: Sequence[Outcome]) -> str:
    """The table, the CDF of all policies, a Gantt chart of each."""
    plans = [(o.policy, o.result.plan) for o in outcomes if o.result.plan is not None]
    held = (f"{policy} held {text} of the time." for policy, text in used(outcomes))
    title, charts = "Completion times", []
    for policy, plan in plans:
        name = f"{policy}: who held which GPU"
        figure = Figure(name, _GANTT, partial(gantt, data, plan))
        charts.append(Section(name, figures=(figure,)))
    sections = (
        Section(notes=(_introduction(data), data.source)),
        Section(table=Table.of(COLUMNS, rows(outcomes)), points=tuple(held)),
        Section(title, figures=(Figure(title, "", lambda: cdf(data, plans)),)),
        *charts,
    )
    return writers.page(Sheet(f"Schedules of {data.name}", sections))


_GANTT = (
    "A line for each GPU, a colour for each job, black where an attempt ran out of "
    "memory."
)


def _introduction(data: Data) -> str:
    return (
        f"{len(data.jobs)} jobs on {data.cluster.gpu_count} GPUs. Every schedule was "
        "accepted by the judge. The gap says how much shorter the average completion "
        "could be at most, and is proved."
    )


def cdf(data: Data, plans: Sequence[tuple[str, Schedule]]) -> Any:
    """Share of jobs that are complete within a time, a step line for each policy."""
    figure = figures.canvas(9, 4)
    axes = figure.subplots()
    for policy, plan in plans:
        found = times(data, plan).values()
        hours = sorted(one.completion_us / MICRO / 3600 for one in found)
        if hours:
            shares = [(i + 1) / len(hours) for i in range(len(hours))]
            line = [0.0, *hours], [0.0, *shares]
            axes.step(*line, where="post", label=policy)
    axes.set_xlabel("completion time in hours, from submission")
    axes.set_ylabel("share of jobs")
    axes.set_ylim(0, 1.02)
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    if axes.lines:
        axes.legend(frameon=False)
    return figure


def gantt(data: Data, plan: Schedule) -> Any:
    """A line for each GPU, in bands by node; a box a lease, a colour a job."""
    from matplotlib import colormaps
    from matplotlib.collections import PolyCollection

    line = {gpu: number for number, gpu in enumerate(data.cluster.gpu_ids())}
    palette = colormaps["tab20"]
    boxes, colours = [], []
    for number, entry in enumerate(plan.jobs):
        for lease in entry.leases:
            start, end = lease.start_us / MICRO / 3600, lease.end_us / MICRO / 3600
            for gpu in lease.gpus:
                low, high = line[gpu] + 0.08, line[gpu] + 0.92
                boxes.append([(start, low), (start, high), (end, high), (end, low)])
                colours.append("black" if lease.trial else palette(number % 20))
    figure = figures.canvas(9, min(14.0, 1.5 + 0.12 * len(line)))
    axes = figure.subplots()
    axes.add_collection(PolyCollection(boxes, facecolors=colours))
    edge, middles, names = 0, [], []
    for node in data.cluster.nodes:
        middles.append(edge + node.count / 2)
        names.append(words.plain(f"{node.name} {node.gpu}"))
        edge += node.count
        axes.axhline(edge, color="grey", linewidth=0.6)
    if len(names) <= 60:
        axes.set_yticks(middles, names, fontsize=8)
    axes.set_xlabel("hours")
    axes.set_ylim(edge, 0)
    axes.set_xlim(0, max((box[2][0] for box in boxes), default=1.0))
    return figure
