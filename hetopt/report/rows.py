"""A gap report as rows of raw values, and as rows of words."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from itertools import groupby
from typing import Any

from ..gaps import GapReport, GapRow
from ..problems import Objective
from ..result import Bound, Result
from . import words


@dataclass(frozen=True)
class Row:
    """One method on one instance; what is not known is None."""

    instance: str
    method: str
    kind: str
    status: str
    stop: str
    iteration_us: Objective | None
    mfu: float | None
    gap_to_bound: float | None
    gap_to_best: float | None
    planning_s: float
    pipelines: int | None
    stages: int | None
    headroom_mib: int | None
    bound_us: Objective | None
    bound_source: str | None
    reasons: str

    @classmethod
    def of(cls, row: GapRow) -> "Row":
        """Row of a training plan's result."""
        result = row.result
        parts = result.evaluation.parts if result.evaluation else {}
        pipelines = result.plan.pipelines if result.plan else None
        return cls(
            instance=row.instance,
            method=row.method,
            kind=result.method.kind,
            status=result.status.value,
            stop=result.stop.value,
            iteration_us=result.objective,
            mfu=parts.get("mfu"),
            gap_to_bound=row.gap_to_bound,
            gap_to_best=row.gap_to_best,
            planning_s=sum(result.seconds.values()),
            pipelines=None if pipelines is None else len(pipelines),
            stages=None if pipelines is None else sum(len(p.stages) for p in pipelines),
            headroom_mib=parts.get("least_headroom_mib"),
            bound_us=result.bound.value if result.bound else None,
            bound_source=result.bound.source if result.bound else None,
            reasons="; ".join(result.reasons),
        )

    @classmethod
    def names(cls) -> list[str]:
        """Names of the fields, in order."""
        return [field.name for field in fields(cls)]

    @property
    def label(self) -> str:
        """The method as tables show it: an exact method is not a planner's name."""
        return "exact" if self.kind == "exact" else self.method

    @property
    def outcome(self) -> str:
        """Status, and why there is no plan where there is none."""
        return f"{self.status}: {self.reasons}" if self.reasons else self.status


@dataclass(frozen=True)
class Column:
    """A column for people: heading, words of a row, and the value to sort by."""

    heading: str
    field: str
    numeric: bool = True

    def value(self, row: Row) -> Any:
        """What the column sorts by."""
        return getattr(row, self.field)

    def text(self, row: Row) -> str:
        """What the column shows."""
        return _words(self.field, self.value(row))


COLUMNS = (
    Column("planner", "label", numeric=False),
    Column("iteration", "iteration_us"),
    Column("MFU", "mfu"),
    Column("gap to bound", "gap_to_bound"),
    Column("gap to best plan", "gap_to_best"),
    Column("planning", "planning_s"),
    Column("stages", "stages"),
    Column("memory headroom", "headroom_mib"),
    Column("status", "outcome", numeric=False),
)


@dataclass(frozen=True)
class Section:
    """All rows of one instance, with the strongest bound that any of them proved."""

    instance: str
    results: tuple[Result, ...]
    rows: tuple[Row, ...]

    @property
    def bound(self) -> Bound | None:
        """The largest lower bound."""
        bounds = [result.bound for result in self.results if result.bound]
        return max(bounds, key=lambda bound: bound.value, default=None)

    @property
    def headline(self) -> str:
        """What is proved about the instance."""
        if self.bound is None:
            return "no bound is known"
        value = words.amount(self.bound.value, "us")
        return f"no plan is faster than {value} (proof: {self.bound.source})"


def sections(report: GapReport) -> list[Section]:
    """The report, instance by instance."""

    def name(row: GapRow) -> str:
        return row.instance

    return [
        _section(instance, list(rows)) for instance, rows in groupby(report.rows, name)
    ]


def _section(instance: str, rows: Iterable[GapRow]) -> Section:
    rows = tuple(rows)
    return Section(
        instance, tuple(row.result for row in rows), tuple(map(Row.of, rows))
    )


def _words(field: str, value: Any) -> str:
    if value is None:
        return words.NONE
    if field == "iteration_us":
        return words.amount(value, "us")
    if field == "planning_s":
        return words.duration(value)
    if field == "headroom_mib":
        return words.memory(value)
    if field == "mfu":
        return f"{value:.1%}"
    if field in ("gap_to_bound", "gap_to_best"):
        return words.share(value)
    return words.plain(str(value))


SUMMARY_HEADINGS = {
    "instances": "instances",
    "with_plan": "with a plan",
    "proved_optimal": "proved optimal",
    "proved_infeasible": "proved infeasible",
    "without_plan_or_proof": "neither",
    "median_gap_to_bound": "median gap to bound",
    "p90_gap_to_bound": "90 % within",
    "worst_gap_to_bound": "worst gap to bound",
}


def summary_rows(report: GapReport) -> list[list[str]]:
    """The summary by method, as words under `SUMMARY_HEADINGS`."""
    labels = {row.method: Row.of(row).label for row in report.rows}
    return [
        [
            words.plain(labels[method]),
            *(_summary_words(key, found[key]) for key in SUMMARY_HEADINGS),
        ]
        for method, found in report.summary().items()
    ]


def _summary_words(key: str, value: Any) -> str:
    return words.share(value) if key.endswith("_gap_to_bound") else str(value)
