"""A recovery: what was lost, which plans were weighed, busy links, the new plan."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from ..result import Method, Result, Status, Stop
from ..text.documents import Document
from . import figures, pipelines, results, words, writers
from .sheet import Figure, Section, Sheet, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

    from ..api.recovering import Recovered


def terminal(found: "Recovered") -> Iterator[RenderableType]:
    """The change, the candidates, the new training plan, and the recovery."""
    change = found.change
    yield writers.facts(_changes(found))
    if found.candidates:
        yield writers.grid(_candidates(found))
        yield ""
    if found.new_plan is not None:
        from ..problems import training_plan

        judged = training_plan.evaluate(change.new, found.new_plan)
        yield Text("new training plan", style="bold")
        yield from results.judged(change.new, found.new_plan, judged)
        yield ""
        yield Text("recovery", style="bold")
    yield from results.solved(found.result)


def _changes(found: "Recovered") -> list[tuple[str, str]]:
    """Return what is gone, and what is new."""
    change = found.change
    told = (
        ("lost", ", ".join(change.lost_nodes)),
        ("lost GPUs", ", ".join(sorted(change.wounded))),
        ("new", ", ".join(change.new_nodes)),
    )
    return [(heading, text) for heading, text in told if text]


def _candidates(found: "Recovered") -> Table:
    rows = (
        [
            candidate.name,
            words.amount(candidate.iteration_us, "us"),
            words.amount(candidate.recovery_us, "us"),
            "yes" if candidate is found.chosen else "",
        ]
        for candidate in found.candidates
    )
    columns = ("plan", "iteration", "recovery", "chosen")
    return Table.of(columns, rows, texts=("plan", "chosen"))


# --- files -----------------------------------------------------------------------

_MOST_LINKS = 24  # that a picture has room for
_ITERATIONS = 3  # that the slowest plan makes in the picture of progress, at the least
_LONGER = 4  # times the longest move: how long that picture is
_BAR, _FOOT = 0.28, 0.9  # inches


def page(found: "Recovered") -> str:
    """Plans considered, what is moved over which link, and the new plan."""
    sections = [Section(points=tuple(f"{a}: {b}" for a, b in _changes(found)))]
    if found.candidates:
        sections.append(_candidate_section(found))
    if carried := _link_loads(found.result):
        note = "How long each link is busy; the busiest says when all states arrive."
        moved = results.table(
            found.result.data, _plan_of(found.result), _parts_of(found.result)
        )
        drawn = Figure(
            "Links",
            "",
            lambda: _links(carried, figures.WIDTH),
            lambda: _links(carried, figures.NARROW),
            "One bar per link, as long as it is busy; the table has the numbers.",
        )
        sections.append(Section("What is moved", (note,), (), moved, (drawn,)))
    if (new := _new_plan_result(found)) is not None:
        palette = pipelines.colours(new.data.planned_cluster.gpus)
        name = found.chosen.name if found.chosen else ""
        told = f"Made by {name}. {pipelines.NOTE}"
        title = "The new training plan"
        sections.append(pipelines.section(new, palette, title, told, folded=False))
    if found.result.reasons:
        sections.append(Section("Why there is no plan", points=found.result.reasons))
    title = f"{found.change.new.name}: recovery"
    return writers.page(Sheet(title, tuple(sections), "recovery", tuple(_facts(found))))


def _facts(found: "Recovered") -> Iterator[tuple[str, str]]:
    if found.chosen is None:
        yield "new plan", f"none: {found.result.status.value}"
        return
    proved = found.result.stop is Stop.PROVED and found.result.status is Status.OPTIMAL
    moved = words.amount(found.result.objective, "us")
    yield "states arrive within", moved + ", proved minimal" * proved
    yield "time per iteration afterwards", words.amount(found.chosen.iteration_us, "us")
    if busiest := _parts_of(found.result).get("busiest"):
        yield "busiest link", str(busiest)


def _candidate_section(found: "Recovered") -> Section:
    """The candidates, and what each has done by when."""
    known = {one.name: one for one in found.candidates if one.recovery_us is not None}
    each = [(one.recovery_us or 0, one.iteration_us) for one in known.values()]
    end = max((us for us, _ in each), default=0) * _LONGER
    end = max([end, *(us + _ITERATIONS * long for us, long in each)])
    lines = {}
    for name, (ready, long) in zip(known, each, strict=True):
        lines[name] = [
            (0.0, 0.0),
            (ready / 1e6, 0.0),
            (end / 1e6, (end - ready) / long),
        ]
    dots = {name: points[1:] for name, points in lines.items()}
    axes = figures.Axis("since the loss", kind="seconds"), figures.Axis("iterations")
    note = (
        "Iterations of each plan over time: a plan that is ready later may be faster, "
        "and pays off where its line crosses the others."
    )
    chart = figures.chart("Progress", note, axes, dots, style="dots", lines=lines)
    drawn = () if chart is None else (chart,)
    return Section("Plans considered", (), (), _candidates(found), drawn)


def _parts_of(result: Result) -> Document:
    return dict(result.evaluation.parts) if result.evaluation else {}


def _plan_of(result: Result) -> Any:
    assert result.plan is not None
    return result.plan


def _link_loads(result: Result) -> list[tuple[str, dict[str, int]]]:
    """Links and what they carry, the busiest first; none without a recovery."""
    if result.plan is None:
        return []
    carried = _parts_of(result).get("carried", {})
    return sorted(carried.items(), key=lambda row: -row[1]["us"])


def _new_plan_result(found: "Recovered") -> Result | None:
    """The new training plan, judged."""
    if found.chosen is None:
        return None
    return Result(
        "training_plan",
        found.change.new,
        Method(found.chosen.name, "given"),
        Status.FEASIBLE,
        Stop.FINISHED,
        plan=found.chosen.plan,
    )


def picture(found: "Recovered") -> "Drawing":
    """Return how long each link is busy, and the new plan below."""
    carried, new = _link_loads(found.result), _new_plan_result(found)
    low = 0.8 + pipelines.ROW * len(new.plan.pipelines) if new and new.plan else 0.5
    high = _FOOT + _BAR * min(_MOST_LINKS, len(carried))
    figure = figures.canvas(figures.WIDTH, high + low)
    parts = figure.subfigures(2, 1, height_ratios=(high, low), squeeze=False)
    above, below = parts[:, 0]
    if not carried or new is None:
        above.text(0.02, 0.5, f"no recovery: {found.result.status.value}")
        return figure
    _bars(above.subplots(), carried)
    palette = pipelines.colours(new.data.planned_cluster.gpus)
    pipelines.drawn(below, below.subplots(), new, palette)
    return figure


def _links(carried: list[tuple[str, dict[str, int]]], width: float) -> "Drawing":
    figure = figures.canvas(width, _FOOT + _BAR * min(_MOST_LINKS, len(carried)))
    _bars(figure.subplots(), carried)
    return figure


def _bars(axes: "Axes", carried: list[tuple[str, dict[str, int]]]) -> None:
    """A bar a link, with the bytes that it carries."""
    shown = carried[:_MOST_LINKS]
    times = [row["us"] / 1e6 for _, row in shown]
    told = [words.size(row["bytes"]) for _, row in shown]
    figures.bars(axes, [name for name, _ in shown], times, told)
    axes.set_xlabel("time that a link is busy, s", loc="left")


FILES: "writers.Files[Recovered]" = writers.Files(
    {".html": page, **dict.fromkeys(writers.PICTURES, picture)}
)
