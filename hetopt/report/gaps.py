"""A gap report: a table for each instance, and for all of them a summary."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby

from ..api.starts import LIBRARY
from ..gaps import GapReport, GapRow, plain, referred
from ..plans import TrainingPlan
from ..problems import Objective
from ..result import Bound, Result, Status
from ..schema.targets import TARGETS
from ..solving.statements import EXACT
from . import gap_picture, pipelines, results, words
from .gap_picture import unit_of
from .sheet import Cell, Section, Sheet, Table


@dataclass(frozen=True)
class Row:
    """One method on one instance; what is not known is None."""

    instance: str
    method: str
    label: str
    kind: str
    status: str
    stop: str
    iteration_us: Objective | None
    mfu: float | None
    gap_to_bound: float | None
    gap_to_best: float | None
    planning_s: float | None
    pipelines: int | None
    stages: int | None
    headroom_mib: int | None
    bound_us: Objective | None
    bound_source: str | None
    proof: str | None
    reasons: str
    low_s: float | None = None
    high_s: float | None = None
    objective: Objective | float | None = None
    reference_bound: Objective | float | None = None
    reference_by: str | None = None
    best_known: Objective | float | None = None
    best_known_by: str | None = None
    started_from: str | None = None
    problem: str = "training_plan"
    unit: str = "us"
    formulation: str | None = None
    seed: int = 0
    primal_integral_s: float | None = None
    time_limit_s: float | None = None
    work: int | None = None
    threads: int | None = None
    version: str | None = None
    machine: str | None = None
    quoted: str | None = None

    @classmethod
    def of(cls, row: GapRow) -> "Row":
        """Row of a result; what is of training plans alone is None elsewhere."""
        result = row.result
        parts = result.evaluation.parts if result.evaluation else {}
        trained = isinstance(result.plan, TrainingPlan)
        pipelines = result.plan.pipelines if trained and result.plan else None
        unit = unit_of(result)
        bound = result.bound.value if result.bound else None
        return cls(
            instance=row.instance,
            method=row.method,
            label=row.label,
            kind=result.method.kind,
            status=result.status.value,
            stop=result.stop.value,
            iteration_us=result.objective if trained else None,
            mfu=parts.get("mfu"),
            gap_to_bound=row.gap_to_bound,
            gap_to_best=row.gap_to_best,
            planning_s=None if row.is_quoted else row.seconds,
            pipelines=None if pipelines is None else len(pipelines),
            stages=None if pipelines is None else sum(len(p.stages) for p in pipelines),
            headroom_mib=parts.get("least_headroom_mib"),
            bound_us=bound if unit == "us" else None,
            bound_source=result.bound.source if result.bound else None,
            proof=result.bound.proof.value if result.bound else None,
            reasons="; ".join(result.reasons),
            low_s=parts.get("low_s"),
            high_s=parts.get("high_s"),
            objective=plain(result.objective),
            started_from=result.started_from,
            problem=result.problem,
            unit=unit,
            formulation=result.method.formulation,
            seed=row.seed,
            primal_integral_s=row.primal_integral_s,
            **referred(row.reference),
            **row.conditions,
            quoted=_finder(result) if row.is_quoted else None,
        )

    @property
    def run(self) -> str:
        """The method, and its seed where that is not the first."""
        return f"{self.label}, seed {self.seed}" if self.seed else self.label

    @property
    def amount(self) -> str:
        """The objective, and where it is a calibrated time how sure it is."""
        expected = words.interval_of({"low_s": self.low_s, "high_s": self.high_s})
        told = words.amount(self.objective, self.unit)
        return f"{told} ({expected})" if expected else told

    @property
    def outcome(self) -> str:
        """Status, why there is no plan, and which known plan was the start.

        A plan that meets a bound of the library or of another row says so: its own
        run has not proved it optimal. An exact method says its bound where a better one
        is known. What floats claim and cannot prove, CP-SAT has proved.
        """
        parts = [f"{self.status}: {self.reasons}" if self.reasons else self.status]
        if self.status == Status.FEASIBLE.value and self.gap_to_bound == 0:
            parts.append("meets the bound")
        if self.bound_source and self.bound_source.startswith(f"{EXACT} dual of "):
            parts.append("by CP-SAT")
        weaker = self.bound_us not in (None, self.reference_bound)
        if weaker and self.kind == "exact":
            parts.append(f"own bound {words.amount(self.bound_us, self.unit)}")
        if self.quoted is not None:
            parts.append(self.quoted)
        if self.started_from is not None:
            parts.append(f"started from {self.started_from}")
        return ", ".join(parts)


def _finder(result: Result) -> str:
    """Return who found what is quoted, and when."""
    told = result.method.options
    return f"found by {told['by']}, {told['date']}" if told else "known before"


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
    "mean_primal_integral_s": "mean primal integral",
}
#: Problems whose plans are training plans.
TRAINING = ("training_plan", "one_pipeline")
_OPEN = 8  # drawings that are open at first: with more a page gets too long
INTRODUCTION = (
    "An independent checker computed time and memory of every plan. The gap to the "
    "bound is proved: it says how much faster any plan could be at most. The gap to "
    "the best plan compares with the fastest plan known for the instance. "
    + pipelines.NOTE
)


def sections(report: GapReport) -> list[Section]:
    """Return a section for each instance: what is proved of it, and a row a method."""
    return [section(name, rows) for name, rows in _instances(report)]


def _namesakes(report: GapReport) -> Iterator[str]:
    """Yield that planners with the names of trainers are not what these can run."""
    methods = [row.result.method for row in report.rows]
    planners = {method.name for method in methods if method.kind == "heuristic"}
    if names := sorted(planners & set(TARGETS)):
        yield (
            f"Rows named after trainers ({', '.join(names)}) are planners; `plan --for "
            "TARGET` finds the best plan that a trainer can run."
        )


def sheet(report: GapReport) -> Sheet:
    """For each instance its planners and plans drawn, and a table that sorts."""
    parts = _instances(report)
    palette = pipelines.colours(
        gpu
        for row in report.rows
        if isinstance(row.result.plan, TrainingPlan)
        for gpu in row.result.data.planned_cluster.gpus
    )
    several = len(parts) > 1
    sections = [Section(notes=(INTRODUCTION,), on_page_only=True)]
    if several:
        sections.append(summary(report))
    drawn = 0
    for name, rows in parts:
        sections.append(_picture_section(name, rows))
        alike = list(_plans(rows))
        sections += [
            _plan_section(one, palette, folded=drawn >= _OPEN) for one in alike
        ]
        drawn += len(alike)
    if notes := tuple(_namesakes(report)):
        sections.append(Section(notes=notes))
    name = "Planners and bounds" if several else f"{parts[0][0]}: planners and bound"
    return Sheet(
        name,
        tuple(sections),
        "optimality gaps",
        () if several else tuple(_facts(parts[0][1])),
        facts_in_files_only=True,
        picture=partial(gap_picture.picture, report),
        records=lambda: (asdict(Row.of(row)) for row in report.rows),
    )


def _facts(rows: list[GapRow]) -> tuple[tuple[str, str], ...]:
    """The best plan, what is proved, and the gap between."""
    best = next(_plans(rows), [])
    if not best:
        return ()
    first, bound = best[0], best[0].reference.bound
    unit = unit_of(first.result)
    return (
        (
            f"{words.best_plan(unit)}, by {_names(best)}",
            words.amount(first.result.objective, unit),
        ),
        (words.limit(unit), _bound_text(bound, unit)),
        ("gap to the bound", words.share(first.gap_to_bound)),
        *_better(rows),
    )


def _bound_text(bound: Bound | None, unit: str) -> str:
    return words.amount(None if bound is None else bound.value, unit)


def _better(rows: list[GapRow]) -> Iterator[tuple[str, str]]:
    """A plan that is known, and better than those of the rows."""
    reference, unit = rows[0].reference, unit_of(rows[0].result)
    found = (row.result.objective for row in rows if not row.is_quoted)
    if reference.best in (None, *found):
        return
    told = words.amount(reference.best, unit)
    yield f"best known, from {reference.best_by}", told


def _picture_section(name: str, rows: list[GapRow]) -> Section:
    """An instance's table below a picture of it."""
    found = section(name, rows)
    if not gap_picture.best_first(rows):
        return found
    return replace(found, figures=(gap_picture.beside(rows),))


def _plans(rows: list[GapRow]) -> Iterator[list[GapRow]]:
    """The best first; those of several planners that are the same plan together."""
    planned = gap_picture.best_first(rows)
    while planned:
        plan = planned[0].result.plan
        yield [row for row in planned if row.result.plan == plan]
        planned = [row for row in planned if row.result.plan != plan]


def _names(rows: list[GapRow]) -> str:
    return ", ".join(dict.fromkeys(row.label for row in rows))


def _plan_section(
    rows: list[GapRow], palette: dict[str, str], *, folded: bool
) -> Section:
    first = rows[0]
    plan, judged = first.result.plan, first.result.evaluation
    assert plan is not None
    assert judged is not None
    if not isinstance(plan, TrainingPlan):
        told = results.table(first.result.data, plan, judged.parts)
        note = f"objective {Row.of(first).amount}"
        return Section(
            _names(rows), (note,), table=told, folded=folded, on_page_only=True
        )
    note = _note(Row.of(first), first)
    return pipelines.section(first.result, palette, _names(rows), note, folded=folded)


def section(name: str, rows: list[GapRow]) -> Section:
    """An instance, what is proved of it, and a row a method."""
    trained = rows[0].result.problem in TRAINING
    headings, cells = (HEADINGS, _cells) if trained else (OTHER_HEADINGS, _other_cells)
    texts = (headings[0], "status")
    table = Table.of(headings, (cells(Row.of(row)) for row in rows), texts=texts)
    return Section(name, (headline(rows),), table=table)


def headline(rows: list[GapRow]) -> str:
    """Return what is proved, and the best plan known where no row has it."""
    bound, unit = rows[0].reference.bound, unit_of(rows[0].result)
    told = "no bound is known"
    if bound is not None:
        limit = f"{words.limit(unit)} {_bound_text(bound, unit)}"
        told = f"{limit} (proof: {bound.source}; {words.proof(bound.proof)})"
    return "; ".join([told, *(f"{what}: {value}" for what, value in _better(rows))])


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


def _summary_text(key: str, value: float | None) -> str | None:
    """Return the words of a number of the summary; None for those of a count."""
    if key.endswith("_to_bound"):
        return words.share(value)
    return words.duration(value) if key.endswith("_s") else None


def _instances(report: GapReport) -> list[tuple[str, list[GapRow]]]:
    grouped = groupby(report.rows, lambda row: row.instance)
    return [(name, list(rows)) for name, rows in grouped]


def _other_cells(row: Row) -> list[Cell]:
    cells = [
        Cell.of(row.run),
        Cell.of(row.objective, row.amount),
        Cell.of(row.gap_to_bound, words.share(row.gap_to_bound)),
        Cell.of(row.gap_to_best, words.share(row.gap_to_best)),
        Cell.of(row.planning_s, words.duration(row.planning_s)),
        Cell.of(row.outcome),
    ]
    return _mark(row, cells)


def _cells(row: Row) -> list[Cell]:
    cells = [
        Cell.of(row.run),
        Cell.of(row.objective, row.amount),
        Cell.of(row.mfu, None if row.mfu is None else f"{row.mfu:.1%}"),
        Cell.of(row.gap_to_bound, words.share(row.gap_to_bound)),
        Cell.of(row.gap_to_best, words.share(row.gap_to_best)),
        Cell.of(row.planning_s, words.duration(row.planning_s)),
        Cell.of(row.stages),
        Cell.of(row.headroom_mib, words.memory(row.headroom_mib)),
        Cell.of(row.outcome),
    ]
    return _mark(row, cells)


def _mark(row: Row, cells: list[Cell]) -> list[Cell]:
    """The cells, marked where the plan is the best that is known."""
    best = row.gap_to_best is not None and row.gap_to_best <= 0
    return [replace(cell, mark="best") for cell in cells] if best else cells


def _note(row: Row, of: GapRow) -> str:
    parts = of.result.evaluation.parts if of.result.evaluation else {}
    return (
        f"{row.amount} per iteration, of which "
        f"{words.amount(parts.get('sync_us'), 'us')} synchronisation; "
        f"{words.counted(row.pipelines or 0, 'pipeline')}, "
        f"{words.counted(row.stages or 0, 'stage')}, {words.memory(row.headroom_mib)} "
        "headroom on the fullest GPU"
    )
