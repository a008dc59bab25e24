"""Bounds of result documents derived again, by someone else than who found them.

In this order: by an argument that needs no search (`bounds.again`), by the certificate
that the method left, and where there is neither, if asked for, by solving again: a
statement of the problem on CP-SAT, or the exact method, which then is its own witness.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import files, portfolio, problems, registry
from ..bounds import again as arguments
from ..bounds.training_plan import training_plan_bound
from ..errors import Unsupported
from ..modelling import Limits
from ..problems import Objective
from ..result import Result, Status
from ..schema import Record
from ..solving import statements
from ..text.parsing import read_tree
from .calling import AnyLimits, Place, limits_of
from .judging import bound_of, by_certificate, contradicted
from .solving import carriers

_WITNESS = "cpsat"  # exact in whole numbers
_SHARE = 0.5  # of the time, for a statement before the exact method
_NO_STATEMENT = ("training_plan",)  # theirs are of fewer plans than the problem has


@dataclass(frozen=True)
class BoundCheck:
    """The check says what a bound lacks to be proved, and what it was derived by."""

    bound: Objective
    missing: tuple[str, ...]
    by: str


def check_bound(
    result: Place, instance: Place | Record | None = None, *, again: AnyLimits = 0
) -> list[str]:
    """Derive the bound of a result document again: what is missing, empty if proved.

    `again` are limits for solving again where a bound leaves nothing to check it by.
    Raises `InstanceError` for a document without a bound or with a certificate that
    no method of ours left, `Unsupported` where a bound cannot be derived so.
    """
    return list(bound_checked(result, instance, again=again).missing)


def bound_checked(
    result: Place, instance: Place | Record | None = None, *, again: AnyLimits = 0
) -> BoundCheck:
    """Return what the bound lacks, and what it was derived by."""
    limits = limits_of(again)
    name, data, plan = files.load_plan(result, instance)
    document = read_tree(Path(result))
    bound = bound_of(document, result)
    objective = problems.get(name).evaluate(data, plan).objective
    if objective is not None and contradicted(name, bound, objective):
        told = f"the bound {bound} contradicts the document's own plan: {objective}"
        return BoundCheck(bound, (told,), "the judge")
    if (by := _by_argument(name, data, bound)) is not None:
        return BoundCheck(bound, (), by)
    try:
        missing = by_certificate(name, data, document, bound, result)
    except Unsupported:
        if limits.time_s == 0:
            raise
        return _solved_again(name, data, plan, bound, limits)
    return BoundCheck(bound, tuple(missing), "its certificate, by code of its own")


def _by_argument(name: str, data: Any, bound: Objective) -> str | None:
    """Return what proves a bound without a search."""
    if (found := arguments.reaching(name, data, bound)) is not None:
        return found.source
    if name != "training_plan":
        return None
    cheap = training_plan_bound(data)  # larger clusters than `again` looks at
    return f"{cheap.source}, by the same code" if cheap.value >= bound else None


# --- solving again ---------------------------------------------------------------


def _solved_again(
    name: str, data: object, plan: object, bound: Objective, limits: Limits
) -> BoundCheck:
    """A proof by a statement, or by the exact method within what is left."""
    said = []
    if (statement := _statement(name)) is not None:
        share = None if limits.time_s is None else limits.time_s * _SHARE
        mine = replace(limits, time_s=share)
        result = statements.solve(name, data, statement, _WITNESS, limits=mine)
        by = f"statement {statement} on {_WITNESS}"
        if _proof_by(result, bound):
            return BoundCheck(bound, (), by)
        said.append(_short(by, result))
        limits = limits.after(sum(result.seconds.values()))
    if name in registry.names("exact"):
        result = portfolio.exactly(name, data, limits, plan, None)
        by = "the exact method, run again"
        if _proof_by(result, bound):
            return BoundCheck(bound, (), by)
        said.append(_short(by, result))
    if not said:
        raise Unsupported(f"a bound of {name}: nothing solves it again")
    return BoundCheck(bound, tuple(said), "solving again")


def _statement(name: str) -> str | None:
    """The first statement of all plans of a problem that the witness carries."""
    if name in _NO_STATEMENT:
        return None
    known = registry.entries_for("formulations", name)
    return next((each for each in known if _WITNESS in carriers(each)), None)


def _proof_by(result: Result, bound: Objective) -> bool:
    if result.status is Status.INFEASIBLE:
        return True
    if result.bound is None:
        return False
    value = result.bound.value
    return value >= bound if result.sense == "minimise" else value <= bound


def _short(by: str, result: Result) -> str:
    reached = "no bound" if result.bound is None else f"{result.bound.value}"
    return f"{by}, came to {reached} ({result.stop.value})"
