"""Claims of result documents derived again, by someone else than who found them.

In this order: a bound by arithmetic is computed again; one with a certificate is
derived from that, by code that shares nothing with the search; all else is solved
again, by a statement of the problem on CP-SAT, which shares nothing with the method but
the judge, or by the method itself, which then is its own witness.
"""

from dataclasses import dataclass, replace
from typing import Any

from .. import files, portfolio, problems, registry
from ..bounds.training_plan import training_plan_bound
from ..errors import Unsupported
from ..modelling import Limits, looking
from ..problems import Objective
from ..result import Bound, Proof, Result, Status, Stop
from ..scheduling import bounds as queues
from ..schema import Record
from ..solving import statements
from ..solving.run import Run
from ..text.documents import Document
from ..text.numbers import memory
from .calling import AnyLimits, Place, limits_of, not_one
from .judging import bound_of, by_certificate, contradicted

_WITNESS = "cpsat"  # exact in whole numbers
_SHARE = 0.5  # of the time, for a statement before the exact method
#: Statements of all plans that the witness carries. Of training plans there is none.
_STATEMENTS = {
    "device_grouping": "device_grouping_patterns",
    "job_round": "job_round",
    "layer_partition": "layer_partition",
    "provisioning": "provisioning",
    "recovery": "recovery",
}


@dataclass(frozen=True)
class BoundCheck:
    """The check says what a claim lacks to be proved, and what it was derived by.

    The claim is a bound, or, where that is None, that there is no plan. It is `open`
    where it was neither derived nor refuted.
    """

    bound: Objective | None
    missing: tuple[str, ...]
    by: str
    proof: Proof = Proof.METHOD
    open: bool = False


def check_bound(
    result: Place, instance: Place | Record | None = None, *, limits: AnyLimits = 60
) -> BoundCheck:
    """Derive the bound of a result document again: what it lacks, and who derived it.

    Nothing is `missing` if the bound, or the claim that there is no plan, is proved.
    Raises `InstanceError` for a document without a bound or with an unreadable
    certificate, `Unsupported` for a bound that nothing derives again.
    """
    if not isinstance(result, Place):
        raise not_one("result", result, "the path of a result document")
    asked = limits_of(limits)
    name, data, plan, document = files.load_claim(result, instance)
    status, bound = document.get("status"), None
    if status == Status.UNDECIDED.value and document.get("bound") is None:
        return BoundCheck(None, ("the document claims no bound",), "", open=True)
    if status != Status.INFEASIBLE.value:
        bound = bound_of(document, result)
    run, found = Run(name, data, asked), None
    with run, looking(run.check):
        run.check()
        found = _derived(name, data, plan, document, bound, result)
    if run.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    if run.stop is not None:
        return BoundCheck(bound, (_unfinished(run, bound),), "", open=True)
    left = asked.after(run.seconds())
    return found or _solved_again(name, data, plan, bound, left)


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
) -> BoundCheck | None:
    """Return what is found without solving again; None where nothing is."""
    judged = None if plan is None else problems.get(name).evaluate(data, plan)
    if bound is None:
        if judged is not None and judged.valid:
            return BoundCheck(None, ("the document itself has a plan",), "the judge")
        return None
    objective = None if judged is None else judged.objective
    if objective is not None and contradicted(name, bound, objective):
        told = f"the bound {bound} contradicts the document's own plan: {objective}"
        return BoundCheck(bound, (told,), "the judge")
    quick: list[Bound] = []  # which need no search, of problems that minimise
    if name == "job_scheduling":
        quick = [queues.alone(data), queues.one_machine(data)]
    elif name == "training_plan":
        quick = [training_plan_bound(data)]
    for each in quick:
        if each.value >= bound:
            return BoundCheck(bound, (), f"{each.source}, computed again")
    try:
        missing = by_certificate(name, data, document, bound, file)
    except Unsupported:  # there is none, or too large a one
        return None
    by = "its certificate, by code of its own"
    return BoundCheck(bound, tuple(missing), by, Proof.CERTIFICATE)


# --- solving again ---------------------------------------------------------------


def _solved_again(
    name: str, data: object, plan: object, bound: Objective | None, limits: Limits
) -> BoundCheck:
    """A proof by a statement, or by the exact method within what is left."""
    said, ended = [], list[Result]()
    if plan is not None and not problems.get(name).evaluate(data, plan).valid:
        plan = None
    if (statement := _STATEMENTS.get(name)) is not None:
        share = None if limits.time_s is None else limits.time_s * _SHARE
        by = f"statement {statement} on {_WITNESS}"
        try:
            result = statements.solve(
                *(name, data, statement, _WITNESS),
                limits=replace(limits, time_s=share),
                warm_start=plan,
            )
        except Unsupported as error:
            said.append(str(error))
        else:
            if _proof_by(result, bound):
                return BoundCheck(bound, (), by, Proof.STATEMENT)
            said.append(_short(by, result))
            ended.append(result)
            limits = limits.after(sum(result.seconds.values()))
    if name in registry.names("exact"):
        result = portfolio.exactly(name, data, limits, plan, None)
        by = "the exact method, run again"
        if _proof_by(result, bound):
            return BoundCheck(bound, (), by)
        said.append(_short(by, result))
        ended.append(result)
    if not said:
        raise Unsupported(f"a bound of {name} without a certificate: nothing solves it")
    refuted = any(x.stop is Stop.PROVED or (bound is None and x.plan) for x in ended)
    return BoundCheck(bound, tuple(said), "solving again", open=not refuted)


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
