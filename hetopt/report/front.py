"""Cost against time: for a terminal, as a picture, a table or a document."""

from collections.abc import Iterator
from itertools import cycle, groupby
from math import dist, log
from textwrap import fill
from typing import TYPE_CHECKING

from ..api.provisioning import FRONT, HOMOGENEOUS, Offered, Tradeoffs
from ..plans import Provisioning
from ..result import Result, Status, Stop
from . import figures, words
from .gantt import axis_of
from .sheet import Figure, Section, Sheet, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_COLUMNS = (
    *("method", "asked_s", "total_s", "usd", "GPUs", "data_parallel", "layers"),
    *("to rent", "settings"),
)

_FRONT = ("time", "USD", "to rent", "layers", "settings", "status")
_BESIDE = ("planner", "deadline", "time", "USD", "above front", "to rent")
_MOST_NAMED = 16  # that a picture has room for


def answer(result: Result) -> str:
    """Return what to rent, for how long and for how much, in one sentence."""
    if result.evaluation is None:
        proved = result.status is Status.INFEASIBLE
        none = "No plan on these offers is within the limits (proved)."
        return none if proved else "No plan was found in time."
    parts = result.evaluation.parts
    time, usd = words.duration(parts["total_s"]), words.number(parts["usd"])
    said = f"Rent {words.machines(parts['machines'])} for {time}: {usd} USD"
    if (slack := parts.get("deadline_slack_s")) is not None:
        said += f", {words.duration(slack)} before the deadline"
    if (left := parts.get("budget_slack_usd")) is not None:
        said += f", {words.number(left)} USD below the budget"
    if result.status is Status.OPTIMAL:
        return f"{said}; no plan on these offers is better (proved)."
    if result.gap is not None:
        return f"{said}; at most {words.share(result.gap)} above the best (proved)."
    return f"{said}; its distance from the best is unknown."


def sheet(found: Tradeoffs) -> Sheet:
    """Return the picture, the front with what to rent, and planners at deadlines."""
    front = found.front
    proved = front.stop is Stop.PROVED
    whole = "the whole front, proved" if proved else "the front may have more"
    note = (
        "No plan is both faster and cheaper than a point of the front; points are "
        "numbered, and the list says what each rents. Grey: fleets of one type of "
        "GPU."
    )
    drawn = Figure("Cost against time", note, lambda: picture(found))
    count = f"{words.counted(len(front.points), 'plan')}: {whole}."
    table = _table(_front(found))
    sections = [Section("The front", (count,), table=table, figures=(drawn,))]
    failed = tuple(
        f"{miss.method} within {words.duration(miss.asked_s)}: {miss.reason}"
        for miss in found.failed
    )
    if beside := list(_beside(found)):
        table = Table.of(_BESIDE, beside, texts=("planner", "to rent"))
        title = "Planners at deadlines along the front"
        sections.append(Section(title, points=failed, table=table))
    return Sheet(
        f"{found.name}: cost against time",
        tuple(sections),
        "cost against time",
        tuple(_ends(found.of(FRONT))),
        records=lambda: [dict(zip(_COLUMNS, row, strict=True)) for row in rows(found)],
    )


def _front(found: Tradeoffs) -> list[tuple[str, ...]]:
    """A row for each point of the front."""
    return [
        (
            words.duration(point.evaluation.parts["total_s"]),
            words.number(point.evaluation.parts["usd"]),
            words.machines(point.evaluation.parts["machines"]),
            _runs(point.plan),
            words.chosen(dict(point.plan)),
            point.status.value,
        )
        for point in found.front.points
    ]


def _table(rows: list[tuple[str, ...]]) -> Table:
    """The front; without settings where plans choose none."""
    at = _FRONT.index("settings")
    kept = [i for i in range(len(_FRONT)) if i != at or any(row[at] for row in rows)]
    headings = tuple(_FRONT[i] for i in kept)
    cells = [tuple(row[i] for i in kept) for row in rows]
    return Table.of(headings, cells, texts=headings[2:])


def _beside(found: Tradeoffs) -> Iterator[tuple[str, ...]]:
    """Yield what planners found at deadlines along the front, where any were asked."""
    front = found.of(FRONT)
    for point in found.points:
        if point.asked_s is None:
            continue
        best = min(p.usd for p in front if p.total_s <= point.asked_s)
        yield (
            point.method,
            words.duration(point.asked_s),
            words.duration(point.total_s),
            words.number(point.usd),
            words.share(point.usd / best - 1 if best else None),
            words.machines(point.machines),
        )
    for miss in found.failed:
        yield miss.method, words.duration(miss.asked_s), words.NONE, "", "", "no plan"


def _runs(plan: Provisioning) -> str:
    """Layers of the stages in order, once a run of one GPU type: `A30: 4 5, ...`."""
    runs = groupby(plan.stages, lambda stage: stage.gpu)
    return ", ".join(
        f"{gpu}: {' '.join(str(stage.layers) for stage in run)}" for gpu, run in runs
    )


# --- files -----------------------------------------------------------------------


def rows(found: Tradeoffs) -> Iterator[tuple[str, ...]]:
    """All points but the homogeneous ones that another homogeneous one beats."""
    for method in found.methods:
        points = found.of(method)
        for point in _unbeaten(points) if method == HOMOGENEOUS else points:
            yield (
                method,
                "" if point.asked_s is None else f"{point.asked_s:.3f}",
                f"{point.total_s:.3f}",
                f"{point.usd:.4f}",
                " + ".join(f"{n} x {gpu}" for gpu, n in point.rented.items()),
                str(point.plan.data_parallel),
                " ".join(str(stage.layers) for stage in point.plan.stages),
                words.machines(point.machines),
                words.chosen(dict(point.plan)),
            )


def _ends(points: list[Offered]) -> Iterator[tuple[str, str]]:
    """The cheapest and the fastest plan."""
    told = (
        ("cheapest", min(points, key=lambda point: point.usd, default=None)),
        ("fastest", min(points, key=lambda point: point.total_s, default=None)),
    )
    for name, point in told:
        if point is not None:
            time = words.duration(point.total_s)
            yield name, f"{words.number(point.usd)} USD in {time}"


def picture(found: Tradeoffs) -> "Drawing":
    """Cost against time: the front as steps, all others as marks.

    Points of the front are numbered, and a list beside it says what each rents.
    """
    figure = figures.canvas(10, 5)
    axes, beside = figure.subplots(1, 2, width_ratios=(3, 1))
    longest = max((point.total_s for point in found.points), default=0.0)
    size, unit = axis_of(longest)
    _name(axes, beside, found.of(FRONT), size)
    marks, shades = iter("osD^vP*X<>"), cycle(figures.COLOURS)
    for method in found.methods:
        points = found.of(method)
        times = [point.total_s / size for point in points]
        costs = [point.usd for point in points]
        if method == FRONT:
            axes.step(
                times, costs, where="post", color=figures.INK, label=method, zorder=3
            )
        elif method == HOMOGENEOUS:
            look = {"color": "0.6", "label": "one type of GPU"}
            axes.scatter(times, costs, s=12, zorder=1, **look)
        else:
            mark = next(marks, "o")
            look = {"marker": mark, "color": next(shades), "label": method}
            axes.scatter(times, costs, s=36, zorder=2, **look)
    figures.logarithmic(axes)
    axes.set_xlabel(f"time of all iterations, {unit}")
    axes.set_ylabel("cost, USD")
    axes.set_title(words.plain(found.name))
    axes.grid(visible=True, which="both", alpha=0.2)
    axes.legend()
    return figure


def _name(axes: "Axes", beside: "Axes", points: list[Offered], size: int) -> None:
    """Number the points by what they rent, and list that beside them."""
    for point in points:
        at = point.total_s / size, point.usd
        axes.plot(*at, marker="o", color=figures.INK, markersize=4, zorder=4)
    lines = ["To rent"]
    named = _apart(points, _MOST_NAMED)
    for number, point in enumerate(named, 1):
        at = point.total_s / size, point.usd
        axes.annotate(
            str(number), at, (3, 3), textcoords="offset points", fontsize="small"
        )
        lines.append(_wrap(f"{number}: {words.machines(point.machines)}"))
    if len(named) < len(points):
        lines.append(f"{len(named)} of {len(points)} points are named")
    beside.axis("off")
    beside.text(0, 1, "\n".join(lines), va="top", fontsize="small")


def _apart(points: list[Offered], most: int) -> list[Offered]:
    """At most so many of the points, in their order, as far from each other as may be.

    Both ends first, then always the point whose nearest chosen one is farthest, in
    factors of time and of cost, as the picture's axes are.
    """
    if len(points) <= most:
        return points
    at = [(_log(point.total_s), _log(point.usd)) for point in points]
    chosen = [0, len(points) - 1]
    while len(chosen) < most:
        nearest = [min(dist(one, at[k]) for k in chosen) for one in at]
        chosen.append(nearest.index(max(nearest)))
    return [points[k] for k in sorted(chosen)]


def _log(value: float) -> float:
    return log(value) if value > 0 else 0.0


def _wrap(text: str) -> str:
    """The text in lines as wide as the list of a picture."""
    return fill(text, 38, subsequent_indent="    ")


def _unbeaten(points: list[Offered]) -> list[Offered]:
    """Return those that no other reaches in time and cost; `points` are by time."""
    kept: list[Offered] = []
    for point in points:
        if not kept or point.usd < kept[-1].usd:
            kept.append(point)
    return kept
