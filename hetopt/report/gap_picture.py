"""A gap report as one picture: planners beside what is proved, and the best plan."""

from itertools import groupby

from ..gaps import GapReport, GapRow
from ..plans import TrainingPlan
from ..problems import get
from ..result import Result
from . import plans, words
from .figures import WIDTH, Axes, Drawing, SubFigure, bars, canvas
from .sheet import Figure

_WIDTH, _BAR, _HEAD, _FOOT = 10.0, 0.32, 1.5, 1.4  # inches
_PROVED = "#d55e00"


def picture(report: GapReport) -> Drawing:
    """The Matplotlib figure: for each instance bars, a line at its bound, a plan.

    Planners without a plan are left out; an instance without any says so.
    """
    groups = [list(rows) for _, rows in groupby(report.rows, lambda row: row.instance)]
    shown = [(rows, _one_a_method(rows)) for rows in groups]
    heights = [_height(planned) for _, planned in shown]
    figure = canvas(_WIDTH, sum(heights))
    parts = figure.subfigures(len(shown), 1, height_ratios=heights, squeeze=False)
    for part, (rows, planned) in zip(parts[:, 0], shown, strict=True):
        _instance(part, rows, planned)
    return figure


def beside(rows: list[GapRow]) -> Figure:
    """The bars of one instance's planners alone."""
    planned = _one_a_method(rows)

    def drawn() -> Drawing:
        figure = canvas(WIDTH, 1.0 + _BAR * len(planned))
        _bars(figure.subplots(), rows, planned)
        return figure

    return Figure(
        "Planners and the proved bound",
        "",
        drawn,
        "One bar per method, as long as its plan's objective, and a line at the "
        "proved bound; the table has the numbers.",
    )


def _one_a_method(rows: list[GapRow]) -> list[GapRow]:
    """Return the best row of each method, whatever its seed, the best first."""
    kept: dict[str, GapRow] = {}
    for row in best_first(rows):
        kept.setdefault(_name(row), row)
    return list(kept.values())


def best_first(rows: list[GapRow]) -> list[GapRow]:
    """Return the runs that have a plan, the best plan first."""
    planned = [r for r in rows if r.result.plan is not None and not r.is_quoted]
    most = bool(planned) and planned[0].result.sense == "maximise"
    return sorted(planned, key=lambda r: r.result.objective or 0, reverse=most)


def _height(planned: list[GapRow]) -> float:
    best = _best(planned)
    drawn = _FOOT + plans.ROW * len(best.plan.pipelines) if best and best.plan else 0.0
    return _HEAD + _BAR * max(1, len(planned)) + drawn


def _best(planned: list[GapRow]) -> Result | None:
    results = [row.result for row in best_first(planned)]
    return next((r for r in results if isinstance(r.plan, TrainingPlan)), None)


def _instance(part: SubFigure, rows: list[GapRow], planned: list[GapRow]) -> None:
    part.suptitle(words.plain(rows[0].instance), x=0.01, ha="left", weight="bold")
    if not planned:
        part.text(0.01, 0.4, "no planner found a plan")
        return
    best = _best(planned)
    if best is None:
        _bars(part.subplots(), rows, planned)
        return
    assert best.plan is not None
    low = plans.ROW * len(best.plan.pipelines) + _FOOT
    heights = [_height(planned) - low, low]
    upper, lower = part.subfigures(2, 1, height_ratios=heights, squeeze=False)[:, 0]
    _bars(upper.subplots(), rows, planned)
    axes = lower.subplots()
    palette = plans.colours(best.data.planned_cluster.gpus)
    plans.drawn(lower, axes, best, palette)
    title = (
        "the fastest plan: one row per pipeline (micro-batches × size), one box per "
        "stage"
    )
    axes.set_title(title, loc="left", size="medium")


def _bars(axes: Axes, rows: list[GapRow], planned: list[GapRow]) -> None:
    """Draw a bar for each method, the best first, and a line at the proved bound."""
    ordered, unit = planned, unit_of(rows[0].result)
    longest = max(row.result.objective or 0 for row in ordered)
    size, name = plans.unit_of(longest) if unit == "us" else (1.0, unit)
    values = [float(row.result.objective or 0) / size for row in ordered]
    side = "below" if ordered[0].result.sense == "maximise" else "above"
    suffix = f" {side} the bound"
    told = [
        words.amount(row.result.objective, unit)
        + ("" if row.gap_to_bound is None else f", {words.share(row.gap_to_bound)}")
        + suffix * (row.gap_to_bound is not None)
        for row in ordered
    ]
    bars(axes, [_name(row) for row in ordered], values, told)
    if (bound := rows[0].reference.bound) is not None:
        axes.axvline(float(bound.value) / size, color=_PROVED, linewidth=1.6)
        axes.set_title(
            f"{words.limit(unit)} {words.amount(bound.value, unit)}: proved",
            loc="left",
            size="medium",
        )
    trained = isinstance(ordered[0].result.plan, TrainingPlan)
    what = "iteration time" if trained else "time" if unit == "us" else "objective"
    axes.set_xlabel(f"{what}, {name}", loc="left")


def unit_of(result: Result) -> str:
    """Return the unit of a result's objective."""
    return get(result.problem).unit(result.data)


def _name(row: GapRow) -> str:
    if row.label == row.method:
        return words.plain(row.method)
    return row.label.replace("exact", "exact method")
