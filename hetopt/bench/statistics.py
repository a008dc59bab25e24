"""Statistics of a run's rows: gaps to what is proved, and counts.

A gap is to the strongest bound that is proved for the same data, by any row or in the
library's best known. Rows without a plan are counted by how they ended, never left out.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from statistics import median
from typing import Any

from ..files.best import number
from ..result import known_gap
from ..run_statistics import quantile
from ..text.documents import Document
from ..text.units import whole

Row = Document
SOLVED = ("optimal", "feasible")
UNSOLVED = ("undecided", "timeout", "out of memory", "crashed", "refused")


@dataclass(frozen=True)
class Entry:
    """A row of a solve beside the references of its data."""

    row: Row
    reference: Fraction | None  # the strongest bound of the data, proved
    best: Fraction | None  # the best plan of the data, of any row
    reference_by: str | None = None  # the method whose bound it is, or the library

    @property
    def method(self) -> str:
        """The method, and the back end of a statement."""
        return method_of(self.row)

    @property
    def case(self) -> str:
        """The instance, and the seed where it is not the first: what is compared."""
        seed = self.row["seed"]
        return f"{self.row['instance']}, seed {seed}" if seed else self.row["instance"]

    @property
    def status(self) -> str:
        return str(self.row["status"])

    @property
    def solved(self) -> bool:
        """Return whether there is a plan."""
        return self.status in SOLVED

    @property
    def proved(self) -> bool:
        """Return whether the row proves its plan optimal, or that there is none."""
        return self.status in ("optimal", "infeasible")

    @property
    def objective(self) -> Fraction | None:
        return number(self.row, "objective")

    @property
    def gap_to_bound(self) -> float | None:
        """To the strongest bound that is proved, by whatever row."""
        if self.contradicted:
            return None
        return known_gap(self.objective, self.reference)

    @property
    def gap_to_best(self) -> float | None:
        """To the best plan, by whatever row; nothing is proved of it."""
        return known_gap(self.objective, self.best)

    @property
    def references(self) -> Document:
        """Fields from which the gaps of a row follow; absent is None."""
        return {
            "reference_bound": None
            if self.reference is None
            else whole(self.reference),
            "reference_by": self.reference_by,
            "best_known": None if self.best is None else whole(self.best),
        }

    @property
    def contradicted(self) -> bool:
        """Return whether some row's bound says that this plan cannot be."""
        if self.objective is None or self.reference is None:
            return False
        if self.row.get("sense") == "maximise":
            return self.objective > self.reference
        return self.objective < self.reference

    @property
    def seconds(self) -> float | None:
        """Return the seconds of the method itself; the process also loads libraries."""
        parts = self.row.get("seconds", {})
        named = ("planners", "build", "solve", "improve")
        own = [parts[name] for name in named if name in parts]
        return sum(own) if own else None


@dataclass(frozen=True)
class Summary:
    """A method on all of its rows of one problem."""

    problem: str
    method: str
    rows: int
    solved: int
    proved: int
    infeasible: int
    unsolved: dict[str, int]  # by how they ended, only what there is
    referenced: int  # rows that have a plan and a proved reference
    median_gap: float | None
    p90_gap: float | None
    worst_gap: float | None
    median_seconds: float | None


def method_of(row: Row) -> str:
    """The method of a row, and the back end of a statement."""
    backend = row.get("backend")
    return f"{row['method']} on {backend}" if backend else str(row["method"])


# Of data, by digest: the strongest bound and the best plan known from elsewhere.
Known = Mapping[str, tuple[Fraction | None, Fraction | None]]


def entries(rows: Iterable[Row], known: Known | None = None) -> list[Entry]:
    """The rows, each with the references of its data."""
    solves = list(rows)
    groups: dict[Any, list[Row]] = {}
    for row in solves:
        groups.setdefault(_data(row), []).append(row)
    references = {
        key: _references(group, (known or {}).get(key[0], (None, None)))
        for key, group in groups.items()
    }
    return [Entry(row, *references[_data(row)]) for row in solves]


def _data(row: Row) -> Any:
    """Return what two rows share that are about the same data; failed ones, None."""
    return row.get("digest", ("failed", row["key"])), row.get("problem")


def _references(
    group: list[Row], known: tuple[Fraction | None, Fraction | None]
) -> tuple[Fraction | None, Fraction | None, str | None]:
    """Strongest bound and best plan, from opposite sides, and whose bound it is."""
    proved = [(number(row, "bound"), method_of(row)) for row in group]
    proved.append((known[0], "the library"))
    bounds = [(bound, by) for bound, by in proved if bound is not None]
    found = [number(row, "objective") for row in group]
    plans = [plan for plan in (*found, known[1]) if plan is not None]
    minimise = group[0].get("sense") != "maximise"
    strongest, best = (max, min) if minimise else (min, max)
    bound, by = strongest(bounds, key=lambda one: one[0], default=(None, None))
    return bound, best(plans, default=None), by


def by_problem(found: Iterable[Entry]) -> dict[str, list[Entry]]:
    """Entries by problem; what failed before it told its problem is `unknown`."""
    problem_of = {
        e.row["instance"]: e.row["problem"] for e in found if "problem" in e.row
    }
    groups: dict[str, list[Entry]] = {}
    for entry in found:
        problem = problem_of.get(entry.row["instance"], "unknown")
        groups.setdefault(problem, []).append(entry)
    return groups


def summaries(found: Iterable[Entry]) -> list[Summary]:
    """A summary for each method of each problem."""
    out = []
    for problem, mine in by_problem(list(found)).items():
        for method in dict.fromkeys(entry.method for entry in mine):
            rows = [entry for entry in mine if entry.method == method]
            out.append(_summary(problem, method, rows))
    return out


def _summary(problem: str, method: str, rows: list[Entry]) -> Summary:
    gaps = [gap for entry in rows if (gap := entry.gap_to_bound) is not None]
    seconds = [s for entry in rows if (s := entry.seconds) is not None]
    statuses = [entry.status for entry in rows]
    return Summary(
        problem=problem,
        method=method,
        rows=len(rows),
        solved=sum(entry.solved for entry in rows),
        proved=sum(entry.proved for entry in rows),
        infeasible=statuses.count("infeasible"),
        unsolved={s: n for s in UNSOLVED if (n := statuses.count(s))},
        referenced=len(gaps),
        median_gap=median(gaps) if gaps else None,
        p90_gap=quantile(gaps, 0.9),
        worst_gap=max(gaps, default=None),
        median_seconds=median(seconds) if seconds else None,
    )
