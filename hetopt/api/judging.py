"""Plans judged: by the rules, by the bound, and part by part."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import files, problems
from ..errors import InstanceError, MixedData, Unsupported
from ..plans import Plan, TrainingPlan
from ..problems import Evaluation
from ..schema import Instance, Record
from . import rechecking
from .calling import AnyLimits, AnyProgress, Place, limits_of, progress_of, public

if TYPE_CHECKING:
    from ..explaining import Explanation


def load(instance: Place | Instance) -> Instance:
    """The instance of that name or path.

    Raises `UnknownName` for a name that the library lacks, `InstanceError` for a file
    that cannot be used.
    """
    return instance if isinstance(instance, Instance) else files.load_instance(instance)


def check(plan: Place | Plan, instance: Place | Record | None = None) -> Evaluation:
    """Judge a plan, whoever made it: objective, parts, and every rule that it breaks.

    `plan` is a plan file or a result file, or a plan with its instance (or problem).
    """
    name, data, made = posed_plan(plan, instance)
    return problems.get(name).evaluate(data, made)


def check_bound(result: Place, instance: Place | Record | None = None) -> list[str]:
    """Derive the bound of a result document again: what is missing, empty if proved.

    Raises `InstanceError` for a document without a bound, and `Unsupported` where the
    bound cannot be derived again cheaply.
    """
    return rechecking.missing(result, instance)


@public
def explain(
    plan: Place | TrainingPlan,
    instance: Place | Record | None = None,
    *,
    limits: AnyLimits = None,
    progress: AnyProgress = None,
) -> "Explanation":
    """Take a training plan apart: its iteration, its memory, its bottlenecks.

    Changes of hardware, settings and plan are judged and planned again within
    `limits`, 0 to leave them out; without a limit the same seed gives the same answer.
    `plan` is a plan file or a result document, or a plan with its instance. Raises
    `InstanceError` for a plan that cannot be timed and `Unsupported` for a plan of
    another problem.
    """
    from ..explaining import explained

    name, data, made = posed_plan(plan, instance)
    if not isinstance(made, TrainingPlan) or not isinstance(data, Instance):
        raise Unsupported(f"found a plan of {name}, expected a training plan")
    return explained(data, made, limits_of(limits), progress_of(progress).started)


def posed(problem: Place | Record) -> tuple[str, Any]:
    """The problem's name and data; an instance poses the one that it is made for.

    Raises what `load` raises, and `MixedData` for a record that poses none.
    """
    if isinstance(problem, str | Path):
        return files.load_problem(problem)
    if isinstance(problem, Instance):
        name = "training_plan" if problem.cluster else "provisioning"
        return name, problems.get(name).data(problem)
    stated = getattr(problem, "problem", None)
    if stated is None:
        raise MixedData(f"a {type(problem).__name__} poses no problem")
    return stated, problem


def posed_plan(
    plan: Place | Plan, instance: Place | Record | None = None
) -> tuple[str, Any, Plan]:
    """Problem, data and plan of a plan file, or of a plan and its instance."""
    if isinstance(plan, str | Path):
        return files.load_plan(plan, instance)
    if instance is None:
        raise InstanceError("a plan by itself cannot be judged: give its instance")
    name, data = posed(instance)
    if not isinstance(plan, problems.get(name).Plan):
        raise MixedData(f"a {type(plan).__name__} is no plan of problem {name!r}")
    return name, data, plan
