"""Claims of result documents derived again, by someone else than who found them.

In this order: by an argument that needs no search (`bounds.again`), by the certificate
that the method left, and where there is neither, if asked for, by solving again: a
statement of the problem on CP-SAT, or the exact method, which then is its own witness.
"""

from dataclasses import dataclass, replace
from typing import Any

from .. import files, portfolio, problems, registry
from ..bounds import again as arguments
from ..bounds.training_plan import training_plan_bound
from ..errors import Unsupported
from ..modelling import Limits, looking
from ..problems import Objective
from ..result import Proof, Result, Status, Stop
from ..schema import Record
from ..solving import statements
from ..solving.run import Run
from ..text.documents import Document
from ..text.numbers import memory
from .calling import AnyLimits, Place, limits_of
from .judging import bound_of, by_certificate, contradicted
from .solving import carriers

_WITNESS = "cpsat"  # exact in whole numbers
_SHARE = 0.5  # of the time, for a statement before the exact method
_NO_STATEMENT = ("training_plan",)  # theirs are of fewer plans than the problem has
_NOTHING = (
    "it has no certificate, and no other code derives it; --again 60 solves again"
)


@dataclass(frozen=True)
class BoundCheck:
    """The check says what a claim lacks to be proved, and what it was derived by.

    The claim is a bound, or, where that is None, that there is no plan. It is `open`
    where it was neither derived nor refuted: at a limit, or for lack of a derivation.
    """

    bound: Objective | None
    missing: tuple[str, ...]
    by: str
    proof: Proof = Proof.DERIVATION
    open: bool = False


def check_bound(
    result: Place,
    instance: Place | Record | None = None,
    *,
    again: AnyLimits = 0,
    limits: AnyLimits = None,
) -> list[str]:
    """Derive the bound of a result document again, and return what is missing.

    The answer is empty if the bound, or the claim that there is no plan, is proved.
    `limits` are those of time and memory for that, `again` those for solving again if
    nothing else derives the bound. Raises `InstanceError` for a document without a
    bound or with an unreadable certificate, `Unsupported` if a bound cannot be derived
    so.
    """
    found = bound_checked(result, instance, again=again, limits=limits)
    return list(found.missing)


def bound_checked(
    result: Place,
    instance: Place | Record | None = None,
    *,
    again: AnyLimits = 0,
    limits: AnyLimits = None,
) -> BoundCheck:
    """Return what the claim lacks, and what it was derived by."""
    solving, asked = limits_of(again), limits_of(limits)
    name, data, plan, document = files.load_claim(result, instance)
    status, bound = document.get("status"), None
    if status == Status.UNDECIDED.value and document.get("bound") is None:
        return BoundCheck(None, ("the document claims no bound",), "", open=True)
    if status != Status.INFEASIBLE.value:
        bound = bound_of(document, result)
    run = Run(name, data, asked)
    try:
        with run, looking(run.check):
            run.check()
            return _derived(name, data, plan, document, bound, result)
    except Unsupported as error:
        if solving.time_s != 0:
            return _solved_again(name, data, plan, bound, solving)
        if bound is not None:
            raise
        return BoundCheck(None, (str(error),), "", open=True)
    if run.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return BoundCheck(bound, (_unfinished(run, bound),), "", open=True)


def _unfinished(run: Run, bound: Objective | None) -> str:
    """Return what was done by a limit, and which it was."""
    what = "that there is no plan" if bound is None else "the bound"
    within = f"{run.limits.time_s} s"
    if run.stop is Stop.MEMORY and run.limits.memory_mib is not None:
        within = memory(run.limits.memory_mib)
    return f"{run.done}{'; ' * bool(run.done)}{what} is not confirmed within {within}"


def _derived(
    name: str,
    data: Any,
    plan: Any,
    document: Document,
    bound: Objective | None,
    file: Place,
) -> BoundCheck:
    """Return what is found without solving again; `Unsupported` where nothing is."""
    judged = None if plan is None else problems.get(name).evaluate(data, plan)
    if bound is None:
        if judged is not None and judged.valid:
            return BoundCheck(None, ("the document itself has a plan",), "the judge")
        if (shown := arguments.no_plan_by(name, data)) is None:
            raise Unsupported(_NOTHING)
        return BoundCheck(None, (), shown)
    objective = None if judged is None else judged.objective
    if objective is not None and contradicted(name, bound, objective):
        told = f"the bound {bound} contradicts the document's own plan: {objective}"
        return BoundCheck(bound, (told,), "the judge")
    if (again := arguments.reaching(name, data, bound)) is not None:
        return BoundCheck(bound, (), again.source)
    if name == "training_plan":
        cheap = training_plan_bound(data)  # larger clusters than `again` looks at
        if cheap.value >= bound:
            by = f"{cheap.source}, by the same code"
            return BoundCheck(bound, (), by, Proof.METHOD)
    missing = by_certificate(name, data, document, bound, file)
    by = "its certificate, by code of its own"
    return BoundCheck(bound, tuple(missing), by, Proof.CERTIFICATE)


# --- solving again ---------------------------------------------------------------


def _solved_again(
    name: str, data: object, plan: object, bound: Objective | None, limits: Limits
) -> BoundCheck:
    """A proof by a statement, or by the exact method within what is left."""
    said, ended = [], list[Result]()
    if (statement := _statement(name)) is not None:
        share = None if limits.time_s is None else limits.time_s * _SHARE
        mine = replace(limits, time_s=share)
        result = statements.solve(name, data, statement, _WITNESS, limits=mine)
        by = f"statement {statement} on {_WITNESS}"
        if _proof_by(result, bound):
            return BoundCheck(bound, (), by)
        said.append(_short(by, result))
        ended.append(result)
        limits = limits.after(sum(result.seconds.values()))
    if name in registry.names("exact"):
        result = portfolio.exactly(name, data, limits, plan, None)
        by = "the exact method, run again"
        if _proof_by(result, bound):
            return BoundCheck(bound, (), by, Proof.METHOD)
        said.append(_short(by, result))
        ended.append(result)
    if not said:
        raise Unsupported(f"a bound of {name}: nothing solves it again")
    refuted = any(x.stop is Stop.PROVED or (bound is None and x.plan) for x in ended)
    return BoundCheck(bound, tuple(said), "solving again", open=not refuted)


def _statement(name: str) -> str | None:
    """The first statement of all plans of a problem that the witness carries."""
    if name in _NO_STATEMENT:
        return None
    known = registry.entries_for("formulations", name)
    return next((each for each in known if _WITNESS in carriers(each)), None)


def _proof_by(result: Result, bound: Objective | None) -> bool:
    if result.status is Status.INFEASIBLE:
        return True
    if result.bound is None or bound is None:
        return False
    value = result.bound.value
    return value >= bound if result.sense == "minimise" else value <= bound


def _short(by: str, result: Result) -> str:
    reached = "no bound" if result.bound is None else f"{result.bound.value}"
    if result.bound is None and result.plan is not None:
        reached = f"a plan of {result.objective}"
    return f"{by}, came to {reached} ({result.stop.value})"
