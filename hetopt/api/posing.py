"""A named problem, posed of an instance: by `data` of its module, with its options.

What the options of `problems.NAME.data` say can be said in words, too: a plan by its
file, several names by commas.
"""

from contextlib import suppress
from typing import Any, get_args, get_origin

from pydantic import BaseModel

from .. import problems
from ..errors import InstanceError, MixedData, Unsupported
from ..plans import TrainingPlan
from ..problems import training_plan
from ..problems.recovery import Storage, changes
from ..recovery.replanning import Replanning
from ..schema import Instance, Record
from ..text.documents import Document, Fields
from ..text.options import checked, record
from .calling import AnyProblem, Options
from .judging import load, posed, posed_training

#: Planners whose plans a run goes on with where the new plan is not given: quick ones.
SUCCESSORS = ("megatron", "autohet")


def options_of_problem(problem: str) -> type[BaseModel]:
    """Return a record of the options with which an instance poses a problem."""
    return record(problem, problems.get(problem).data, ("instance",))


def pose(
    instance: AnyProblem, problem: str, options: Options | None = None
) -> tuple[Any, Document]:
    """Return the data of a problem that an instance poses, and the other options.

    Options that the problem does not know are left to its methods. What poses this
    very problem by itself, such as its own file, is taken as it is. Where a recovery
    has no `new_plan`, the run goes on with the pipelines that lost nothing, or with
    the plan of Megatron-LM or of AutoHet, whichever does the most in an hour. Raises
    `UnknownName` for an unknown problem, `InstanceError` and `MixedData` for what
    cannot pose it.
    """
    module, known = problems.get(problem), options_of_problem(problem)
    given = {k: v for k, v in (options or {}).items() if k in known.model_fields}
    rest = {k: v for k, v in (options or {}).items() if k not in given}
    name, data = _read(instance)
    if isinstance(data, Instance) or (name, problem) == ("job_scheduling", "job_round"):
        return module.data(data, **_options_of(problem, data, known, given)), rest
    if name != problem:
        raise MixedData(
            f"found a problem {name!r}, expected an instance that poses {problem}, or "
            "a problem file of that; give one"
        )
    if given:
        raise Unsupported(
            f"found {', '.join(given)} with a problem that is stated by itself: they "
            "are of instances; leave them out"
        )
    return data, rest


def _read(given: AnyProblem) -> tuple[str, Any]:
    """Return the instance, or the name and data of a problem stated by itself."""
    if isinstance(given, Instance):
        return "", given
    name, data = posed(given)
    if name == "provisioning" and not isinstance(given, Record):
        with suppress(InstanceError):  # else it is a problem file
            return "", load(given)
    return name, data


def _options_of(
    problem: str, data: Any, known: type[BaseModel], given: Fields
) -> Document:
    """Return the options as `data` takes them: plans read, and those that are made."""
    plans: dict[str, TrainingPlan] = {}
    for option, value in given.items():
        kind = known.model_fields[option].annotation
        if kind == TrainingPlan | None and value is not None:
            try:
                plans[option] = posed_training(value, data)[1]
            except TypeError as error:
                raise InstanceError(f"{option}: {error}") from None
    words = {
        option: _several(known.model_fields[option].annotation, value)
        for option, value in given.items()
        if option not in plans
    }
    told = (checked("problem", known, words) if words else {}) | plans
    if "plan" in plans:
        _require_valid("plan", data, plans["plan"])
    if problem == "recovery" and "plan" in plans:
        change = changes.between(data, data, told.get("lost", ()))
        if "new_plan" in plans:
            _require_valid("new_plan", change.new, plans["new_plan"])
        else:
            storage = told.get("storage") or Storage()
            told["new_plan"] = _successor(change, plans["plan"], storage)
    return told


def _require_valid(option: str, data: Instance, plan: TrainingPlan) -> None:
    if broken := training_plan.evaluate(data, plan).violations:
        raise InstanceError(
            f"{option}: found a plan that breaks a rule on {data.name!r} "
            f"({broken[0]}), expected one that `hetopt check` accepts; give that"
        )


def _successor(
    change: changes.Change, plan: TrainingPlan, storage: Storage
) -> TrainingPlan:
    """Return what the run goes on with, without a limit of time: always the same."""
    work = Replanning(change, plan, storage)
    work.work(SUCCESSORS, time_s=None)
    chosen = work.chosen()
    if chosen is None:
        why = "; ".join(work.reasons[:2]) or "states are lost"
        raise InstanceError(
            f"new_plan: found none for what is left of {change.new.name!r} ({why}); "
            "give one"
        )
    return chosen.plan


def _several(kind: object, value: object) -> Any:
    """Return a list where one is asked for and a word, or one value, was given."""
    tuples = [one for one in (kind, *get_args(kind)) if get_origin(one) is tuple]
    if not tuples or isinstance(value, list | tuple | None):
        return value
    if not isinstance(value, str):
        return [value]
    number = getattr(get_args(tuples[0])[0], "__origin__", None) is int
    words = [word.strip() for word in value.split(",")]
    return [int(x) if number and x.isdecimal() else x for x in words]
