"""Schedules as one HTML page: metrics, completion times, who held which GPU when.

The pictures are SVG inside the page, which needs nothing else. Matplotlib is loaded
when one is drawn.
"""

import io
from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from ..api.scheduling import Outcome
from ..plans import Schedule
from ..problems.job_scheduling import MICRO, Data
from ..scheduling.metrics import completion_s
from . import words
from .templates import template

COLUMNS = (
    "policy",
    "average completion",
    "p99",
    "queueing",
    "makespan",
    "gap to bound",
    "samples/s",
    "trials",
    "restarts",
    "decision, median",
    "p99",
)


def rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """A row of texts a policy, under COLUMNS."""
    found = []
    for outcome in outcomes:
        m = outcome.metrics
        if m is None:
            found.append([outcome.policy, *[words.NONE] * (len(COLUMNS) - 1)])
            continue
        found.append(
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
    return found


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


def table(outcomes: Sequence[Outcome]) -> list[Any]:
    """The metrics for a terminal, and what is to be said beside them."""
    grid = Table(box=None, pad_edge=False, header_style="bold")
    for number, heading in enumerate(COLUMNS):
        grid.add_column(heading, justify="right" if number else "left")
    for row in rows(outcomes):
        grid.add_row(*map(Text, row))
    notes = [Text(f"{name}: held {text}", style="dim") for name, text in used(outcomes)]
    reasons = dict.fromkeys(r for outcome in outcomes for r in outcome.result.reasons)
    return [grid, *notes, *[Text(words.plain(f"refused {r}")) for r in reasons]]


def html(data: Data, outcomes: Sequence[Outcome]) -> str:
    """The page: the table, the CDF of all policies, a Gantt chart of each."""
    plans = [(o.policy, o.result.plan) for o in outcomes if o.result.plan is not None]
    return template("schedule.html.j2").render(
        name=words.plain(data.name),
        source=words.plain(data.source),
        jobs=len(data.jobs),
        gpus=data.cluster.gpu_count,
        columns=COLUMNS,
        rows=rows(outcomes),
        used=used(outcomes),
        cdf=cdf(data, plans),
        charts=[(policy, gantt(data, plan)) for policy, plan in plans],
    )


def cdf(data: Data, plans: Sequence[tuple[str, Schedule]]) -> str:
    """Share of jobs that are complete within a time, a step line for each policy."""
    figure, axes = _figure(9, 4)
    for policy, plan in plans:
        hours = sorted(seconds / 3600 for seconds in completion_s(data, plan).values())
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
    return _svg(figure)


def gantt(data: Data, plan: Schedule) -> str:
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
    figure, axes = _figure(9, min(14.0, 1.5 + 0.12 * len(line)))
    axes.add_collection(PolyCollection(boxes, facecolors=colours))
    edge, middles, names = 0, [], []
    for node in data.cluster.nodes:
        middles.append(edge + node.count / 2)
        names.append(words.plain(f"{node.name} {node.gpu}"))
        edge += node.count
        axes.axhline(edge, color="grey", linewidth=0.6)
    if len(names) <= 60:
        axes.set_yticks(middles, names, fontsize=8, parse_math=False)
    axes.set_xlabel("hours")
    axes.set_ylim(edge, 0)
    axes.set_xlim(0, max((box[2][0] for box in boxes), default=1.0))
    return _svg(figure)


def _figure(width: float, height: float) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _svg(figure: Any) -> str:
    """The figure as an SVG element; the same figure, the same text."""
    import matplotlib

    text = io.StringIO()
    settings: Any = {"svg.hashsalt": "hetopt", "svg.fonttype": "path"}
    with matplotlib.rc_context(settings):
        figure.savefig(text, format="svg", metadata={"Date": None})
    whole = text.getvalue()
    return whole[whole.index("<svg") :]
