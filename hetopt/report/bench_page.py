"""A suite's report as one HTML page that needs nothing else."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..bench import statistics
from ..bench.journal import Row
from ..bench.statistics import Entry
from ..errors import HetoptError
from ..files import load_plan
from ..result import Method, Result, Status, Stop
from . import bench_tables, charts, drawing, words
from .bench_summary import Report
from .bench_tables import Table
from .page import Picture
from .templates import template

if TYPE_CHECKING:
    from pathlib import Path


MOST_GPUS = 320  # of a plan that is drawn: boxes get too narrow to read
MOST_PLANS = 40  # drawn on a page: it would take too long to load


@dataclass(frozen=True)
class Part:
    """One problem: its tables and pictures."""

    problem: str
    summary: Table
    solves: Table
    growth: Table | None
    charts: tuple[charts.Chart, ...]


def html(made: Report) -> str:
    """The page: counts, tables that sort, charts, and plans side by side."""
    groups = statistics.by_problem(made.entries)
    results, left_out = _results(made)
    palette = drawing.colours(
        gpu for _, _, result in results for gpu in result.data.planned_cluster.gpus
    )
    listed = list(statistics.figures(made.rows))
    return template("bench.html.j2").render(
        title=words.plain(f"Suite {made.header['suite']}"),
        counts=made.counts,
        machine=machine(made.header),
        parts=[_part(made, problem, found) for problem, found in groups.items()],
        wrong=bench_tables.contradictions(made.contradicted)
        if made.contradicted
        else None,
        figures=bench_tables.figures(listed) if listed else None,
        plans=_plans(results, palette),
        left_out=left_out,
        palette=palette,
        plain=words.plain,
        drawing=drawing,
    )


def machine(header: Row) -> str:
    """On what the rows were measured, in one sentence."""
    there, versions = header.get("machine", {}), header.get("versions", {})
    listed = ", ".join(f"{name} {number}" for name, number in versions.items())
    changed = " with changes" if header.get("modified") else ""
    commit = header.get("commit")
    built = f", commit {str(commit)[:12]}{changed}" if commit else ""
    return words.plain(
        f"{there.get('processor')}, {there.get('cores')} cores, "
        f"{there.get('memory_gib')} GiB, {there.get('system')}, Python "
        f"{there.get('python')}; hetopt {header.get('hetopt')}{built}; {listed}; "
        f"threads {header.get('threads')}, started {header.get('started')}."
    )


def _part(made: Report, problem: str, found: list[Entry]) -> Part:
    laws = statistics.growths(found)
    return Part(
        problem=problem,
        summary=bench_tables.summary(
            [s for s in made.summaries if s.problem == problem]
        ),
        solves=bench_tables.solves(found),
        growth=bench_tables.growth(laws, statistics.sizes(found)) if laws else None,
        charts=tuple(c for c in _charts(found) if c is not None),
    )


def _charts(found: list[Entry]) -> Iterator[charts.Chart | None]:
    yield charts.profile_chart(
        "Performance profile: quality",
        "The share of instances on which a method's plan is within a factor of the "
        "best plan of this page (Dolan and Moré). Where a method found none, its curve "
        "stays below the top; methods without any plan are not drawn.",
        statistics.quality_profiles(found),
    )
    yield charts.profile_chart(
        "Performance profile: time to a proof",
        "The share of instances that a method proved within a factor of the fastest "
        "proof of this page. An instance that nobody proved is left out for all, and "
        "methods that proved none are not drawn.",
        statistics.proof_profiles(found),
    )
    yield charts.trace_chart(
        "Gap against time",
        "How far the best plan so far was from the bound that was proved by then.",
        statistics.traces(found),
    )
    size = next((e.row["size_unit"] for e in found if e.row.get("size_unit")), "size")
    yield charts.growth_chart(
        "Time against size",
        "Seconds of the method on logarithmic axes; lines are the fitted power laws.",
        size,
        statistics.sizes(found),
        statistics.growths(found),
    )


# --- plans -----------------------------------------------------------------------

Drawable = tuple[str, str, Result]  # instance, method, the plan judged anew


def _results(made: Report) -> tuple[list[Drawable], str]:
    """Training plans of instances that have several, and what is not drawn."""
    rows = [
        entry
        for entry in made.entries
        if entry.row.get("problem") == "training_plan" and entry.row.get("plan_file")
    ]
    by_instance: dict[str, list[Entry]] = {}
    for entry in rows:
        by_instance.setdefault(entry.row["instance"], []).append(entry)
    found: list[Drawable] = []
    missing = 0
    for instance, mine in by_instance.items():
        if len(mine) < 2:
            continue
        for entry in mine:
            small = (entry.row.get("size") or 0) <= MOST_GPUS
            result = None
            if small and len(found) < MOST_PLANS:
                result = _judged(made.folder / entry.row["plan_file"], entry)
            if result is None:
                missing += 1
            else:
                found.append((instance, entry.method, result))
    return found, f"{missing} plans are not drawn." if missing else ""


def _judged(file: "Path", entry: Entry) -> Result | None:
    """The plan of a document, judged anew; None where it cannot be read any more."""
    try:
        problem, data, plan = load_plan(file)
    except HetoptError:
        return None
    return Result(
        problem,
        data,
        Method(entry.method, "given"),
        Status.FEASIBLE,
        Stop.FINISHED,
        plan=plan,
    )


def _plans(
    results: list[Drawable], palette: dict[str, str]
) -> list[tuple[str, list[Picture]]]:
    plans: dict[str, list[Picture]] = {}
    for instance, method, result in results:
        picture = drawing.drawing(result, palette)
        if picture is not None:
            note = f"{words.amount(result.objective, 'us')} an iteration"
            plans.setdefault(instance, []).append(Picture(method, note, picture))
    return list(plans.items())
