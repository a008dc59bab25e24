"""Which GPUs to rent: the cheapest, the fastest, and every trade of cost and time."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from .. import problems
from ..errors import InstanceError, naming
from ..result import Result
from ..schema import Instance
from .calling import (
    AnyLimits,
    AnyProgress,
    Place,
    limits_of,
    progress_of,
    public,
    refuse_unknown,
)
from .judging import load
from .solving import exact_result, heuristic, planners_for

if TYPE_CHECKING:
    from ..exact.provisioning import Frontier
    from .fronts import Tradeoffs


@public
def provision(
    instance: Place | Instance,
    planner: str | None = None,
    *,
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Result:
    """Rent the cheapest GPUs that meet a deadline, or the fastest within a budget.

    Without either, the instance's own requirements hold. By the exact method, or by
    one `planner`, without a proof. Raises `InstanceError` for an instance without
    offers, or when both are given, and `UnknownName` for an unknown planner.
    """
    asked, report = limits_of(limits), progress_of(progress).report
    data = provisioning_data(instance, deadline_s, budget_usd)
    if planner is not None:
        refuse_unknown("planner", [planner], planners_for("provisioning"))
        return heuristic(planner, data, asked)
    return exact_result("provisioning", data, asked, None, report)


@public
def frontier(
    instance: Place | Instance,
    *,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> "Frontier":
    """All plans of an instance with offers that none beats in both cost and time.

    The instance's own deadline or budget leaves out what exceeds it. `progress`
    hears the number of plans so far, and no bound.
    """
    from ..exact import provisioning

    asked, report = limits_of(limits), progress_of(progress).report
    data = provisioning_data(instance, None, None)
    return provisioning.frontier(data, limits=asked, report=report)


@public
def tradeoffs(
    instance: Place | Instance,
    planners: Sequence[str] = (),
    *,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> "Tradeoffs":
    """The front of an instance with offers, with planners' and homogeneous plans.

    Raises as `frontier` does, and `UnknownName` for an unknown planner.
    """
    from .fronts import compared

    asked, heard = limits_of(limits), progress_of(progress)
    refuse_unknown("planner", planners, planners_for("provisioning"))
    data = provisioning_data(instance, None, None)
    return compared(load(instance).name, data, planners, asked, heard)


def provisioning_data(
    instance: Place | Instance, deadline_s: float | None, budget_usd: float | None
) -> Any:
    """The provisioning problem of an instance under other requirements."""
    loaded = load(instance)
    if deadline_s is not None and budget_usd is not None:
        raise InstanceError("found both of a deadline and a budget: give one of them")
    if deadline_s is not None or budget_usd is not None:
        asked = {"deadline_s": deadline_s, "budget_usd": budget_usd}
        requirements = type(loaded.requirements).model_validate(asked)
        loaded = loaded.model_copy(update={"requirements": requirements})
    with nullcontext() if isinstance(instance, Instance) else naming(instance):
        return problems.get("provisioning").data(loaded)
