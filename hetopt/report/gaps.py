"""A gap report: a table for each instance, and for all of them a summary."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import groupby

from ..api.starts import LIBRARY
from ..gaps import GapReport, GapRow, referred
from ..plans import PostTraining, TrainingPlan
from ..result import Status, plain
from ..solving.statements import EXACT
from ..text.documents import Document
from . import gap_picture, plans, results, words
from .gap_picture import unit_of
from .sheet import Cell, Section, Sheet, Table

#: Headings of training plans, and of plans of other problems.
HEADINGS = (
    *("planner", "iteration", "MFU", "gap to bound", "gap to best plan", "planning"),
    *("stages", "memory headroom", "status"),
)
OTHER_HEADINGS = (
    *("method", "objective", "gap to bound", "gap to best plan", "planning", "status"),
)
SUMMARY_HEADINGS = {
    "instances": "instances",
    "runs": "runs",
    "with_plan": "with a plan",
    "proved_optimal": "proved optimal",
    "proved_infeasible": "proved infeasible",
    "without_plan_or_proof": "neither",
    "median_gap_to_bound": "median gap to bound",
    "p90_gap_to_bound": "90% within",
    "worst_gap_to_bound": "worst gap to bound",
    "shifted_mean_s": "mean time (shifted geometric)",
}
#: Problems whose plans are training plans.
TRAINING = ("training_plan", "one_pipeline")
_OPEN = 8  # drawings that are open at first: with more a page gets too long
INTRODUCTION = (
    "The gap to the bound is proved: it says how much faster any plan could be at "
    "most. The gap to the best plan compares with the fastest plan known for the "
    "instance."
)


def record(row: GapRow) -> Document:
    """Return a row as CSV has it: raw values, None where nothing is known.

    Iteration time, pipelines and stages are of training plans only.
    """
    result, parts = row.result, row.result.parts
    trained = result.plan if isinstance(result.plan, TrainingPlan) else None
    bound, unit = result.bound, unit_of(result)
    return {
        "instance": row.instance,
        "method": row.method,
        "label": row.label,
        "kind": result.method.kind,
        "status": result.status.value,
        "stop": result.stop.value,
        "iteration_us": result.objective if trained else None,
        "mfu": parts.get("mfu"),
        "gap_to_bound": row.gap_to_bound,
        "gap_to_best": row.gap_to_best,
        "planning_s": None if row.is_quoted else row.seconds,
        "pipelines": len(trained.pipelines) if trained else None,
        "stages": _stages(row),
        "headroom_mib": parts.get("least_headroom_mib"),
        "bound_us": bound.value if bound and unit == "us" else None,
        "bound_source": bound.source if bound else None,
        "proof": bound.proof.value if bound else None,
        "reasons": "; ".join(result.reasons),
        "low_s": parts.get("low_s"),
        "high_s": parts.get("high_s"),
        "objective": plain(result.objective),
        **referred(row.reference),
        "started_from": result.started_from,
        "problem": result.problem,
        "unit": unit,
        "formulation": result.method.formulation,
        "seed": row.seed,
        **row.conditions,
        "quoted": _finder(row),
    }


def sheet(report: GapReport) -> Sheet:
    """For each instance its planners and plans drawn, and a table that sorts."""
    grouped = groupby(report.rows, lambda row: row.instance)
    parts = [(name, [*rows]) for name, rows in grouped]
    palette = plans.colours(
        gpu
        for row in report.rows
        if isinstance(row.result.plan, TrainingPlan)
        for gpu in row.result.data.planned_cluster.gpus
    )
    several = len(parts) > 1
    sections = [summary(report)] if several else []
    drawn, note = 0, (INTRODUCTION, *(plans.NOTE,) * bool(palette))
    for name, rows in parts:
        found, alike = section(name, rows), list(_plans(rows))
        if alike:
            found = replace(found, figures=(gap_picture.beside(rows),))
        sections.append(found)
        for one in alike:
            sections.append(_plan_section(one, palette, folded=drawn >= _OPEN))
            drawn += 1
    sections.append(Section("How to read this page", note, on_page_only=True))
    return Sheet(
        "Planners and bounds" if several else f"{parts[0][0]}: planners and bound",
        tuple(sections),
        "optimality gaps",
        answer="" if several else answer(parts[0][1]),
        picture=partial(gap_picture.picture, report),
        records=lambda: map(record, report.rows),
    )


def section(name: str, rows: list[GapRow]) -> Section:
    """An instance, what is proved of it, and a row a method."""
    trained = rows[0].result.problem in TRAINING
    headings = HEADINGS if trained else OTHER_HEADINGS
    cells = (_cells(row, trained=trained) for row in rows)
    table = Table.of(headings, cells, texts=(headings[0], "status"))
    return Section(name, (headline(rows),), table=table)


def answer(rows: list[GapRow]) -> str:
    """Say of plans of training how good the best one is, and whose it is."""
    planned, bound = gap_picture.best_first(rows), rows[0].reference.bound
    if not planned or planned[0].result.problem not in (*TRAINING, "post_training"):
        return ""
    best = planned[0].result
    names = (row.label for row in planned if row.result.objective == best.objective)
    told = results.answer(best if bound is None else best.with_bound(bound))
    return f"{told} Found by {', '.join(dict.fromkeys(names))}."


def headline(rows: list[GapRow]) -> str:
    """Return what is proved, and the best plan known where no row has it."""
    reference, unit = rows[0].reference, unit_of(rows[0].result)
    told = "no bound is known"
    if (bound := reference.bound) is not None:
        limit = f"{words.limit(unit)} {words.amount(bound.value, unit)}"
        told = f"{limit} (proof: {bound.source}; {results.proof(bound)})"
    found = (row.result.objective for row in rows if not row.is_quoted)
    if reference.best not in (None, *found):
        best = words.amount(reference.best, unit)
        told += f"; best known, from {reference.best_by}: {best}"
    return told


def summary(report: GapReport) -> Section:
    """The summary by method."""
    labels = {row.method: row.label for row in report.runs}
    cells = [
        [
            Cell.of(labels[method]),
            *(
                Cell.of(found[key], _summary_text(key, found[key]))
                for key in SUMMARY_HEADINGS
            ),
        ]
        for method, found in report.summary().items()
    ]
    trained = all(row.result.problem in TRAINING for row in report.rows)
    headings = ("planner" if trained else "method", *SUMMARY_HEADINGS.values())
    whose = {row.instance: row.reference.bound_by for row in report.runs}
    kept = [*whose.values()].count(LIBRARY)
    told = (
        f"Gaps are to the best bound of each instance: the library's for {kept} of "
        f"{words.counted(len(whose), 'instance')}, else of a method of this report."
    )
    return Section("Summary", (told,), table=Table.of(headings, cells))


def outcome(row: GapRow) -> str:
    """Return the status, why there is no plan, and which known plan was the start.

    A plan that meets a bound of the library or of another row says so: its own run
    has not proved it optimal. An exact method says its bound where a better one is
    known. What floats claim and cannot prove, CP-SAT has proved.
    """
    result = row.result
    parts = [": ".join(filter(None, (result.status.value, "; ".join(result.reasons))))]
    if result.status is Status.FEASIBLE and row.gap_to_bound == 0:
        parts.append("meets the bound")
    if (bound := result.bound) is not None:
        unit, strongest = unit_of(result), row.reference.bound
        if bound.source.startswith(f"{EXACT} dual of "):
            parts.append("by CP-SAT")
        weaker = strongest is None or bound.value != strongest.value
        if weaker and result.method.kind == "exact" and unit == "us":
            parts.append(f"own bound {words.amount(bound.value, unit)}")
    if (finder := _finder(row)) is not None:
        parts.append(finder)
    if result.started_from is not None:
        parts.append(f"started from {result.started_from}")
    return ", ".join(parts)


# --- cells -----------------------------------------------------------------------


def _cells(row: GapRow, *, trained: bool) -> list[Cell]:
    """The cells of a row, marked where the plan is the best that is known."""
    parts = row.result.parts
    mfu, mib = parts.get("mfu"), parts.get("least_headroom_mib")
    seconds = None if row.is_quoted else row.seconds
    run = f"{row.label}, seed {row.seed}" if row.seed else row.label
    own = [Cell.of(mfu, None if mfu is None else f"{mfu:.1%}")]
    more = [Cell.of(_stages(row)), Cell.of(mib, words.memory(mib))]
    cells = [
        Cell.of(run),
        Cell.of(plain(row.result.objective), _amount(row)),
        *(own if trained else ()),
        Cell.of(row.gap_to_bound, words.share(row.gap_to_bound)),
        Cell.of(row.gap_to_best, words.share(row.gap_to_best)),
        Cell.of(seconds, words.duration(seconds)),
        *(more if trained else ()),
        Cell.of(outcome(row)),
    ]
    best = row.gap_to_best is not None and row.gap_to_best <= 0
    return [replace(cell, mark="best") for cell in cells] if best else cells


def _amount(row: GapRow) -> str:
    """The objective, and where it is a calibrated time how sure it is."""
    expected = words.interval_of(row.result.parts)
    told = words.amount(plain(row.result.objective), unit_of(row.result))
    return f"{told} ({expected})" if expected else told


def _stages(row: GapRow) -> int | None:
    plan = row.result.plan
    if not isinstance(plan, TrainingPlan):
        return None
    return sum(len(one.stages) for one in plan.pipelines)


def _finder(row: GapRow) -> str | None:
    told = row.result.method.options
    if not row.is_quoted:
        return None
    return f"found by {told['by']}, {told['date']}" if told else "known before"


def _summary_text(key: str, value: float | None) -> str | None:
    """Return the words of a number of the summary; None for those of a count."""
    if key.endswith("_to_bound"):
        return words.share(value)
    return words.duration(value) if key.endswith("_s") else None


def _plans(rows: list[GapRow]) -> Iterator[list[GapRow]]:
    """The best first; those of several planners that are the same plan together."""
    planned = gap_picture.best_first(rows)
    while planned:
        plan = planned[0].result.plan
        yield [row for row in planned if row.result.plan == plan]
        planned = [row for row in planned if row.result.plan != plan]


def _plan_section(
    rows: list[GapRow], palette: dict[str, str], *, folded: bool
) -> Section:
    result, names = rows[0].result, dict.fromkeys(row.label for row in rows)
    title = f"{', '.join(names)}: {_amount(rows[0])}"
    trained = isinstance(result.plan, TrainingPlan)
    assert result.plan is not None
    return Section(
        title,
        (results.where(result),) if isinstance(result.plan, PostTraining) else (),
        table=results.table(result.data, result.plan, result.parts),
        figures=(plans.figure(result, title, palette),) if trained else (),
        folded=folded,
        on_page_only=True,
        table_folded="Stages in numbers" if trained else "",
    )
