"""Plans judged: by the rules, by the bound, and part by part.

Modules that check certificates offer `Certificate`, the record, and `recheck(data,
certificate, bound) -> list[str]`: what is missing for the bound to be proved.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any

from .. import files, problems, registry
from ..bounds.training_plan import training_plan_bound
from ..errors import InstanceError, MixedData, NoPlan, Unsupported
from ..plans import Plan, Provisioning, TrainingPlan
from ..problems import Objective
from ..result import Bound, Result
from ..schema import Instance, Record
from ..text.complaints import shown, validated
from ..text.documents import Document
from ..text.parsing import read_tree
from . import rented
from .calling import AnyInstance, AnyPlan, AnyProblem, not_one

_AN_INSTANCE = "a name of the library, a path, an Instance, or a dict of one"
_A_PLAN = "a Result, a plan file, a plan, or a dict of one"
_CHECKERS = {
    "training_plan": ("exact", "training_plan"),
    "job_scheduling": ("scheduling", "certificate"),
    "post_training": ("exact", "post_training"),
}


def load(instance: AnyInstance) -> Instance:
    """Return the instance of a name or path, or of a dict with a file's content.

    Raises `UnknownName` for a name that the library lacks, `InstanceError` for a file
    that cannot be used.
    """
    if isinstance(instance, Instance):
        return instance
    if isinstance(instance, Mapping):
        return files.instance_of(instance)
    if isinstance(instance, str | Path):
        return files.load_instance(instance)
    raise not_one("instance", instance, _AN_INSTANCE)


def posed(problem: AnyProblem) -> tuple[str, Any]:
    """The problem's name and data; an instance poses the one that it is made for.

    Raises what `load` raises, and `MixedData` for a record that poses none.
    """
    if isinstance(problem, str | Path):
        return files.load_problem(problem)
    if isinstance(problem, Mapping):
        return files.problem_of(problem)
    if isinstance(problem, Instance):
        name = "training_plan" if problem.cluster else "provisioning"
        return name, problems.get(name).data(problem)
    if not isinstance(problem, Record):
        raise not_one("problem", problem, _AN_INSTANCE)
    stated = getattr(problem, "problem", None)
    if stated is None:
        raise MixedData(
            f"found a {type(problem).__name__}, expected an instance or a problem"
        )
    return stated, problem


def posed_plan(
    plan: AnyPlan, instance: AnyProblem | None = None
) -> tuple[str, Any, Plan]:
    """Problem, data and plan of a result or plan file, or of a plan and its instance.

    `instance` stands in for the one that a result or a file has.
    """
    if isinstance(plan, Result):
        if plan.plan is None:
            raise NoPlan(f"the result has no plan: it is {plan.status.value}")
        if instance is None:
            return plan.problem, plan.data, plan.plan
        plan = plan.plan
    given = posed(instance)[1] if isinstance(instance, Mapping) else instance
    if isinstance(plan, str | Path):
        return files.load_plan(plan, given)
    if isinstance(plan, Mapping):
        return files.plan_of(plan, given)
    if not isinstance(plan, Record):
        raise not_one("plan", plan, _A_PLAN)
    if instance is None:
        raise InstanceError("a plan by itself cannot be judged: give its instance")
    name, data = posed(instance)
    if not isinstance(plan, problems.get(name).Plan):
        raise MixedData(f"found a {type(plan).__name__}, expected a plan of {name}")
    return name, data, plan


def posed_training(
    plan: AnyPlan, instance: AnyProblem | None = None
) -> tuple[Instance, TrainingPlan]:
    """Instance and training plan, as `posed_plan`; `Unsupported` for another plan.

    A plan of offers is a training plan on the machines that it rents (`rented`).
    """
    name, data, made = posed_plan(plan, instance)
    if isinstance(made, TrainingPlan) and isinstance(data, Instance):
        return data, made
    if isinstance(made, Provisioning):
        return rented.training(_offering(plan, instance), made)
    place = f"{plan}: " if isinstance(plan, str | Path) else ""
    raise Unsupported(f"{place}found a plan of {name}, expected a training plan")


def _offering(plan: AnyPlan, instance: AnyProblem | None) -> Instance:
    """Return the instance whose offers a plan rents, or `Unsupported` without one.

    That is `instance`, or else the one that the result or its file has.
    """
    found: Instance | None = None
    if isinstance(instance, Instance | str | Path | Mapping):
        found = load(instance)
    elif isinstance(plan, Result):
        found = plan.posed_by
    elif isinstance(plan, str | Path | Mapping):
        found = files.poser_of(plan)
    if found is None or found.cluster is not None:
        raise Unsupported(
            "found a plan of provisioning without its instance with offers, expected a "
            "result of `hetopt provision --out`, or the instance next to the plan; "
            "give --instance"
        )
    return found


# --- bounds ----------------------------------------------------------------------


def no_plan_is_shorter(data: Instance) -> Bound:
    """A cheap proved bound of the iteration of any plan of an instance, in us."""
    return training_plan_bound(data)


def by_certificate(
    name: str, data: object, document: Document, bound: Objective, file: str | Path
) -> list[str]:
    """Return what is missing for the document's certificate to prove the bound.

    Raises `InstanceError` for a certificate that no method of ours left, `Unsupported`
    where there is none.
    """
    certificate = document.get("certificate")
    if name not in _CHECKERS or certificate is None:
        raise Unsupported(
            f"{file}: a bound of {name} by {document.get('bound_source')!r} has no "
            "certificate to check: solve again to prove it"
        )
    module = registry.entry(*_CHECKERS[name])
    record = validated(module.Certificate, certificate, str(file), ("certificate",))
    found: list[str] = module.recheck(data, record, bound)
    return found


def bound_of(document: dict[str, object], file: str | Path) -> Objective:
    """The bound of a document, exactly where it has it so; `InstanceError` without."""
    pair, value = document.get("bound_exact"), document.get("bound")
    if pair is None:
        if type(value) is int:
            return value
        raise InstanceError(
            f"{file}: bound: found {shown(value)}, expected a whole number or "
            "bound_exact [numerator, denominator]; give a result document that has a "
            "bound"
        )
    if not isinstance(pair, list) or [*map(type, pair)] != [int, int] or pair[1] < 1:
        raise InstanceError(
            f"{file}: bound_exact: found {shown(pair)}, expected [numerator, "
            "denominator], whole numbers, the second above 0; correct it"
        )
    exactly = Fraction(*pair)
    if not _is_near(value, exactly):
        raise InstanceError(
            f"{file}: bound: found {shown(value)}, expected what bound_exact says, "
            f"{shown(pair[0])} / {shown(pair[1])}; make them agree"
        )
    return exactly


def claimed(plan: AnyPlan, data: Instance) -> Bound | None:
    """Return the bound that a result or its file has of an instance, not derived."""
    if isinstance(plan, Result):
        return plan.bound if plan.data.digest == data.digest else None
    if not isinstance(plan, str | Path):
        return None
    document = read_tree(Path(plan))
    origin = files.origin_of(document, plan)
    if document.get("bound") is None or origin is None or origin.digest != data.digest:
        return None
    return Bound(bound_of(document, plan), "the plan file", claimed=True)


def _is_near(value: Any, exactly: Fraction) -> bool:
    """Return whether a number is the fraction, as far as a float can be."""
    if type(value) is float and not math.isfinite(value):
        return False
    if type(value) not in (int, float):
        return False
    return abs(Fraction(value) - exactly) <= abs(exactly) * Fraction(1, 10**12)


def contradicted(name: str, bound: Objective, objective: Objective) -> bool:
    """Return whether no plan can have that objective under that bound."""
    minimise = problems.get(name).sense == "minimise"
    return bound > objective if minimise else bound < objective
