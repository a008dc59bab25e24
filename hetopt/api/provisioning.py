"""The module chooses GPUs to rent: cheapest, fastest, every trade of cost and time."""

from dataclasses import replace
from typing import TYPE_CHECKING

from .. import portfolio
from ..errors import InstanceError, naming
from ..problems import provisioning as judge
from ..problems.provisioning import Data
from ..result import Result
from ..schema import Instance, Requirements
from ..text.complaints import validated
from .calling import (
    AnyInstance,
    AnyLimits,
    AnyProgress,
    limits_of,
    progress_of,
    refuse_unknown,
)
from .judging import load
from .solving import planners_for

if TYPE_CHECKING:
    from ..exact.provisioning import Frontier


def provision(
    instance: AnyInstance,
    planner: str | None = None,
    *,
    deadline_s: float | str | None = None,
    budget_usd: float | str | None = None,
    limits: AnyLimits = 60,
    progress: AnyProgress = None,
) -> Result:
    """Rent the cheapest GPUs that meet a deadline, or the fastest within a budget.

    Without either, the instance's own requirements hold; both may be texts with units,
    `3d`, `$5500`. By the exact method, or by
    one `planner`, without a proof. Raises `InstanceError` for an instance without
    offers, or when both are given, and `UnknownName` for an unknown planner.
    """
    asked, report = limits_of(limits), progress_of(progress).report
    loaded, data = _problem_of(instance, deadline_s, budget_usd)
    if planner is not None:
        refuse_unknown("planner", [planner], planners_for("provisioning"))
        found = portfolio.ask(planner, data, asked)
    else:
        found = portfolio.exactly("provisioning", data, asked, None, report)
    return replace(found, posed_by=loaded)


def frontier(
    instance: AnyInstance, *, limits: AnyLimits = 60, progress: AnyProgress = None
) -> "Frontier":
    """Return all plans that none beats in both cost and time, on an instance's offers.

    Plans beyond the instance's own deadline or budget are left out. `progress` gets the
    number of plans so far, and no bound.
    """
    from ..exact import provisioning as exact

    asked, report = limits_of(limits), progress_of(progress).report
    loaded, data = _problem_of(instance, None, None)
    found = exact.frontier(data, limits=asked, report=report)
    return replace(found, instance=loaded.name)


# --- how it is done --------------------------------------------------------------


def _problem_of(
    instance: AnyInstance,
    deadline_s: float | str | None,
    budget_usd: float | str | None,
) -> tuple[Instance, Data]:
    loaded = load(instance)
    if deadline_s is not None and budget_usd is not None:
        raise InstanceError("deadline and budget exclude each other: give one")
    if deadline_s is not None or budget_usd is not None:
        asked = {"deadline_s": deadline_s, "budget_usd": budget_usd}
        requirements = validated(Requirements, asked, "asked for", file="")
        loaded = loaded.model_copy(update={"requirements": requirements})
    with naming(instance):
        if loaded.cluster is not None:
            raise InstanceError(
                f"instance {loaded.name!r}: found a cluster, expected offers to rent; "
                "`hetopt solve INSTANCE --problem provisioning` treats the GPUs of a "
                "cluster as offers"
            )
        return loaded, judge.data(loaded)
