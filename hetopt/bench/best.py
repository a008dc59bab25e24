"""The best that is known of the library's instances, kept up with the rows of a run.

Only what is better replaces what is there (a bound as strong, where it alone has a
certificate), and only a plan that the judge accepts, at the objective that the judge
finds. `files.best` reads what is kept.
"""

import json
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from .. import files, problems, registry
from ..errors import BoundContradicted, InstanceError
from ..files.best import Best, Finder, known, number, place
from ..text import writing
from ..text.documents import Document
from ..text.parsing import read_tree
from . import journal
from .journal import Row
from .statistics import method_of

MOST_CERTIFICATE = 100_000  # characters: a larger one is left out


def update(folder: Path) -> Iterator[str]:
    """Keep what the rows of a run have better; a line for each file that changed.

    Raises `BoundContradicted` where a bound of one contradicts a plan of the other.
    """
    header, rows = journal.read(folder)
    found: dict[str, list[Row]] = {}
    for row in rows:
        if files.in_library(row["instance"]):
            found.setdefault(row["instance"], []).append(row)
    for instance, mine in found.items():
        before = after = known(instance)
        for row in mine:
            after = _better(after, row, folder, header)
        if after is not None and after != before:
            _write(place(instance), after)
            yield f"{instance}: {_told(before, after)}"
    known.cache_clear()


def _better(best: Best | None, row: Row, folder: Path, header: Row) -> Best | None:
    finder = Finder(
        method=method_of(row),
        versions={"hetopt": registry.version(), **_solver(row, header)},
        date=str(header.get("started", time.strftime("%Y-%m-%d")))[:10],
    )
    if row.get("plan_file") and _is_better(best, row):
        best = _with_plan(best, row, folder / row["plan_file"], finder)
    if best is not None and row.get("digest") == best.digest:
        best = _with_bound(best, row, folder, finder)
    return best


def _solver(row: Row, header: Row) -> dict[str, str]:
    by = row.get("by", {})
    if by.get("version") and by.get("backend"):
        return {str(by["backend"]): str(by["version"])}
    known_versions: dict[str, str] = header.get("versions", {})
    return {name: v for name, v in known_versions.items() if name == "ortools"}


def _is_better(best: Best | None, row: Row) -> bool:
    value = number(row, "objective")
    if value is None:
        return False
    if best is None:
        return True
    old = best.value("objective")
    assert old is not None
    return value < old if best.sense == "minimise" else value > old


def _with_plan(best: Best | None, row: Row, file: Path, finder: Finder) -> Best:
    name, data, plan = files.load_plan(file, row["instance"])
    problem = problems.get(name)
    judged = problem.evaluate(data, plan)
    if not judged.valid or judged.objective != number(row, "objective"):
        raise InstanceError(
            f"{file}: found a plan of objective {judged.objective} that breaks "
            f"{len(judged.violations)} rules, expected {row['objective']} and none; "
            "run the solve again"
        )
    before: dict[str, Any] = {}
    if best is not None:
        kept = ("bound", "bound_exact", "bound_source", "bound_by", "certificate")
        before = {key: getattr(best, key) for key in kept}
    made = Best(
        problem=name,
        instance=row["instance"],
        digest=data.digest,
        sense=problem.sense,
        unit=problem.unit(data),
        **_number("objective", judged.objective),
        found_by=finder,
        plan=plan.model_dump(mode="json"),
        **before,
    )
    return _consistent(made)


def _with_bound(best: Best, row: Row, folder: Path, finder: Finder) -> Best:
    value, old = number(row, "bound"), best.value("bound")
    if value is None:
        return best
    if old is not None and (value < old if best.sense == "minimise" else value > old):
        return best
    certificate = None
    if row.get("plan_file"):
        certificate = read_tree(folder / row["plan_file"]).get("certificate")
        if len(json.dumps(certificate)) > MOST_CERTIFICATE:
            certificate = None
    if value == old and (certificate is None or best.certificate is not None):
        return best
    changes: dict[str, object] = {
        "bound_exact": None,
        **_number("bound", value),
        "bound_source": row.get("bound_source"),
        "bound_by": finder,
        "certificate": certificate,
    }
    return _consistent(best.model_copy(update=changes))


def _consistent(best: Best) -> Best:
    objective, bound = best.value("objective"), best.value("bound")
    if bound is None or objective is None:
        return best
    if bound > objective if best.sense == "minimise" else bound < objective:
        raise BoundContradicted(
            f"{best.instance}: bound {bound} ({best.bound_source}, {best.bound_by}) "
            f"contradicts the plan at {objective} ({best.found_by})"
        )
    return best


def _number(name: str, value: Any) -> Document:
    """A whole number as it is; a fraction as a float, and exactly."""
    if Fraction(value).denominator == 1:
        return {name: int(value)}
    exactly = Fraction(value)
    pair = (exactly.numerator, exactly.denominator)
    return {name: float(value), f"{name}_exact": pair}


def _write(file: Path, best: Best) -> None:
    """A field a line: a plan of hundreds of GPUs is one line, not thousands."""
    fields = best.model_dump(mode="json", exclude_none=True)
    lines = [f" {json.dumps(key)}: {json.dumps(fields[key])}" for key in fields]
    writing.write_text(file, "{\n" + ",\n".join(lines) + "\n}\n")


def _told(before: Best | None, after: Best) -> str:
    if before is None:
        return f"objective {after.objective}, bound {after.bound}: the first known"
    parts = [
        f"{name} {getattr(before, name)} -> {getattr(after, name)}"
        for name in ("objective", "bound")
        if getattr(before, name) != getattr(after, name)
    ]
    if before.certificate is None and after.certificate is not None:
        parts.append("now with a certificate")
    return ", ".join(parts) or "found again"
