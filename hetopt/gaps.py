"""Gaps: how far plans are from what is proved, and from the best that is known.

Each row names its reference; `bound` (proved) and `best known` are never mixed in
one column. The summary counts unsolved and unproven apart.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from statistics import median

from . import problems
from .errors import MixedData
from .findings import Finding
from .problems import Objective
from .result import Bound, Result, Status, gap, known_gap, plain
from .run_statistics import quantile, shifted_geometric_mean
from .text.documents import Document

__all__ = ["GapReport", "GapRow", "Reference", "gap"]

#: Behind the name of a method that was given a plan that was known before.
KNOWN = " (known)"


@dataclass(frozen=True)
class Reference:
    """The reference is what gaps are to: the strongest bound, and the best objective.

    `bound_by` and `best_by` say whose they are: a method's of the report, or where they
    were known from before.
    """

    bound: Bound | None = None
    bound_by: str | None = None
    best: Objective | None = None
    best_by: str | None = None


@dataclass(frozen=True)
class GapRow:
    """One method on one instance; gaps are None where there is no plan or reference."""

    instance: str
    method: str
    result: Result
    gap_to_bound: float | None
    gap_to_best: float | None
    reference: Reference = Reference()  # what the gaps are to
    conditions: Document = field(default_factory=dict)  # limits, version and machine

    def __repr__(self) -> str:
        result, told = self.result, [self.result.status.value]
        if result.objective is not None:
            unit = problems.get(result.problem).unit(result.data)
            told.append(f"{plain(result.objective)} {unit}")
        if self.gap_to_bound is not None:
            told.append(f"{self.gap_to_bound:.2%} from the bound")
        return f"<{self.instance}, {self.label}: {', '.join(told)}>"

    @property
    def is_quoted(self) -> bool:
        """Whether the row quotes what was known before: nobody ran for it."""
        return self.result.method.kind == "given"

    @property
    def label(self) -> str:
        """The method as tables show it: an exact method is not a planner's name."""
        method = self.result.method
        exact = method.kind == "exact" and method.name == self.result.problem
        if not exact or method.formulation is not None:
            return self.method
        return self.method.replace(method.label, "exact")

    @property
    def seconds(self) -> float:
        """The time that the method took."""
        return sum(self.result.seconds.values())

    @property
    def seed(self) -> int:
        """The seed that the method was given."""
        return self.result.method.seed


@dataclass(frozen=True)
class GapReport(Finding, layout="gaps"):
    """The report compares methods, instance by instance.

    A row may quote what was known before (`GapRow.is_quoted`); the summary is about
    the other rows, `runs`.
    """

    rows: tuple[GapRow, ...]

    @property
    def runs(self) -> tuple[GapRow, ...]:
        """The rows of methods that ran."""
        return tuple(row for row in self.rows if not row.is_quoted)

    def __repr__(self) -> str:
        lines = (f"  {row!r}" for row in self.rows)
        return "\n".join(["<GapReport", *lines, ">"])

    @classmethod
    def of(
        cls,
        results: Iterable[Result],
        known: Mapping[str, Reference] | None = None,
        names: Mapping[str, str] | None = None,
        conditions: Document | None = None,
    ) -> "GapReport":
        """Gaps of results, each to the best bound and best plan of its instance.

        `known` has, by the instance's digest, what was known before them; `names` what
        to call a problem that has no name of its own; `conditions` what each method had
        to work with: limits, version and machine. Plans that were given to a method
        are marked with its name.
        """
        by_digest: dict[str, list[Result]] = {}
        for result in results:
            by_digest.setdefault(result.digest, []).append(result)
        rows = []
        for group in by_digest.values():
            if len({result.problem for result in group}) > 1:
                raise MixedData("results of different problems in one gap report")
            digest = group[0].digest
            name = (names or {}).get(digest)
            before = (known or {}).get(digest, Reference())
            rows += _rows(group, before, name, conditions or {})
        return cls(tuple(rows))

    def summary(self) -> Document:
        """By method: solved, proved, unsolved; median, p90 and worst gap to a bound."""
        out: Document = {}
        for method in dict.fromkeys(row.method for row in self.runs):
            mine = [row for row in self.runs if row.method == method]
            gaps = sorted(r.gap_to_bound for r in mine if r.gap_to_bound is not None)
            statuses = [row.result.status for row in mine]
            out[method] = {
                "instances": len({row.result.digest for row in mine}),
                "runs": len(mine),
                "with_plan": sum(row.result.plan is not None for row in mine),
                "proved_optimal": statuses.count(Status.OPTIMAL),
                "proved_infeasible": statuses.count(Status.INFEASIBLE),
                "without_plan_or_proof": statuses.count(Status.UNDECIDED),
                "median_gap_to_bound": median(gaps) if gaps else None,
                "p90_gap_to_bound": quantile(gaps, 0.9),
                "worst_gap_to_bound": gaps[-1] if gaps else None,
                "shifted_mean_s": shifted_geometric_mean(row.seconds for row in mine),
            }
        return out

    def to_json(self) -> Document:
        """The report document: rows with their results, and the summary."""
        return {
            "rows": [
                {
                    "instance": row.instance,
                    "method": row.method,
                    "seed": row.seed,
                    **row.conditions,
                    "gap_to_bound": row.gap_to_bound,
                    "gap_to_best": row.gap_to_best,
                    "objective": plain(row.result.objective),
                    **referred(row.reference),
                    "result": row.result.to_json(),
                }
                for row in self.rows
            ],
            "summary": self.summary(),
        }


def referred(reference: Reference) -> Document:
    """Fields of a row from which its gaps follow; absent is None."""
    bound = reference.bound
    return {
        "reference_bound": None if bound is None else plain(bound.value),
        "reference_by": reference.bound_by,
        "best_known": plain(reference.best),
        "best_known_by": reference.best_by,
    }


def _rows(
    group: list[Result], known: Reference, name: str | None, conditions: Document
) -> list[GapRow]:
    reference = _reference([r for r in group if r.method.kind != "given"], known)
    bound = None if reference.bound is None else reference.bound.value
    return [
        GapRow(
            instance=name or str(getattr(result.data, "name", result.digest)),
            method=_called(result),
            result=result,
            gap_to_bound=known_gap(result.objective, bound),
            gap_to_best=known_gap(result.objective, reference.best),
            reference=reference,
            conditions=dict.fromkeys(conditions)
            if result.method.kind == "given"
            else conditions,
        )
        for result in group
    ]


def _called(result: Result) -> str:
    """Return the method's name, marked where it was given a plan that was known."""
    given = result.started_from is not None
    return result.method.label + (KNOWN if given else "")


def _reference(group: list[Result], known: Reference) -> Reference:
    """Strongest bound and best plan, from opposite sides; of equals the first."""
    minimise = all(result.sense == "minimise" for result in group)
    best, strongest = (min, max) if minimise else (max, min)
    bounds = [
        *((r.bound, r.method.label) for r in group),
        (known.bound, known.bound_by),
    ]
    proved = [(bound, by) for bound, by in bounds if bound is not None]
    plans = [
        *((r.objective, r.method.label) for r in group),
        (known.best, known.best_by),
    ]
    found = [(plan, by) for plan, by in plans if plan is not None]
    return Reference(
        *strongest(proved, key=lambda one: one[0].value, default=(None, None)),
        *best(found, key=lambda one: one[0], default=(None, None)),
    )
