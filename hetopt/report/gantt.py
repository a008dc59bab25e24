"""The module draws who held which GPU when: a panel a policy, above one time axis.

A colour is a model, and no two models share one but the grey of those for which none is
left, which says so.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from ..plans import Lease, Schedule
from ..problems.job_scheduling import MICRO, Data
from . import figures, words
from .figures import Axes, Drawing

Plans = Sequence[tuple[str, Schedule]]

COLOURS = (*figures.COLOURS, "#f0e442")
OTHER, TRIAL, EDGE = "#9a9a9a", "#000000", "#ffffff"
LINE, FONT = 0.11, 8.0  # inches a GPU, points
_UNITS = ((2 * 86400, 86400, "days"), (2 * 3600, 3600, "hours"), (120, 60, "minutes"))


class Bar(NamedTuple):
    """GPUs of a lease that lie side by side: lines from `low` to `high`."""

    start: float
    end: float
    low: int
    high: int


def axis_of(seconds: float) -> tuple[int, str]:
    """The seconds of a unit, and its name, in which a time reads well."""
    for least, size, name in _UNITS:
        if seconds >= least:
            return size, name
    return 1, "seconds"


def colours(data: Data) -> dict[str, str]:
    """A colour for each model, the ones that most jobs train first."""
    models = [job.model for job in data.jobs]
    ranked = sorted(set(models), key=lambda model: (-models.count(model), model))
    return {
        model: COLOURS[number] if number < len(COLOURS) else OTHER
        for number, model in enumerate(ranked)
    }


def bars(lease: Lease, line: dict[str, int], unit: float) -> Iterator[Bar]:
    """The bars of a lease, with times in a unit of so many seconds."""
    start, end = (us / MICRO / unit for us in (lease.start_us, lease.end_us))
    lines = enumerate(sorted(line[gpu] for gpu in lease.gpus))
    for _, run in groupby(lines, lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        yield Bar(start, end, numbers[0], numbers[-1] + 1)


def gantt(data: Data, plans: Plans) -> Drawing:
    """The Matplotlib figure; every panel has the same GPUs and the same time."""
    ends = [
        lease.end_us
        for _, plan in plans
        for entry in plan.jobs
        for lease in entry.leases
    ]
    last = max(ends, default=MICRO) / MICRO
    unit, name = axis_of(last)
    count = data.cluster.gpu_count
    each = max(1.2, min(LINE * count, 36 / max(1, len(plans))))
    figure = figures.canvas(figures.WIDTH, 1.1 + (each + 0.3) * max(1, len(plans)))
    panels = figure.subplots(max(1, len(plans)), sharex=True, squeeze=False)[:, 0]
    for panel, (policy, plan) in zip(panels, plans, strict=False):
        _panel(panel, data, plan, unit, each / count)
        panel.set_title(words.plain(policy), loc="left", fontsize=9)
    panels[-1].set_xlim(0, last / unit)
    panels[-1].set_xlabel(f"{name} since the first submission")
    _legend(figure, data, plans)
    return figure


def _panel(panel: Axes, data: Data, plan: Schedule, unit: float, inch: float) -> None:
    from matplotlib.collections import PolyCollection

    line = {gpu: number for number, gpu in enumerate(data.cluster.gpu_ids())}
    model = {job.name: job.model for job in data.jobs}
    colour = colours(data)
    boxes, faces = [], []
    for entry in plan.jobs:
        for lease in entry.leases:
            face = TRIAL if lease.trial else colour[model[entry.job]]
            for start, end, low, high in bars(lease, line, unit):
                boxes.append([(start, low), (start, high), (end, high), (end, low)])
                faces.append(face)
    width = 0.7 if inch > 0.05 else 0.0
    boxes_of = PolyCollection(
        boxes, facecolors=faces, edgecolors=EDGE if width else "face", linewidths=width
    )
    panel.add_collection(boxes_of)
    _nodes(panel, data, inch)


def _nodes(panel: Axes, data: Data, inch: float) -> None:
    edge, middles, names = 0, [], []
    for node in data.cluster.nodes:
        if node.count * inch >= FONT / 72:
            middles.append(edge + node.count / 2)
            names.append(words.plain(f"{node.name} {node.gpu}"))
        edge += node.count
        panel.axhline(edge, color="grey", linewidth=0.6, zorder=0.5)
    panel.set_yticks(middles, names, fontsize=FONT)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(edge, 0)


def _legend(figure: Drawing, data: Data, plans: Plans) -> None:
    from matplotlib.patches import Patch

    colour = colours(data)
    shown = [
        Patch(facecolor=own, label=figures.label(model))
        for model, own in colour.items()
        if own != OTHER
    ]
    if others := len(colour) - len(shown):
        shown.append(Patch(facecolor=OTHER, label=f"{others} other models"))
    every = (x for _, plan in plans for entry in plan.jobs for x in entry.leases)
    if any(lease.trial for lease in every):
        shown.append(Patch(facecolor=TRIAL, label="out of memory"))
    figure.legend(
        handles=shown,
        loc="outside upper left",
        ncols=figures.legend_columns(colour, figures.WIDTH),
        frameon=False,
        fontsize=FONT,
    )
