"""Bounds, and that there is no plan, derived again without a certificate.

What is derived here shares tables of costs with the code that found the bound, and the
argument that its docstring writes down, but no line: `hetopt check --bound` takes
a bound for proved where both come to it.
"""

from collections.abc import Callable
from math import ceil
from typing import Any

from ...problems import Objective
from ...result import Bound
from . import grids, job_scheduling, no_plan, training_plan

_DERIVED: dict[str, Callable[[Any], list[Bound]]] = {
    "training_plan": training_plan.derived,
    "job_scheduling": job_scheduling.derived,
}


def derived(problem: str, data: object) -> list[Bound]:
    """Return what is proved of every plan of a problem, by each argument for it.

    None for problems whose bounds need a search. `InstanceError` where the data have
    no cluster.
    """
    return _DERIVED[problem](data) if problem in _DERIVED else []


def reaching(problem: str, data: Any, bound: Objective) -> Bound | None:
    """Return what is derived that proves `bound`; None where nothing does.

    The problems with such bounds all minimise.
    """
    for each in derived(problem, data):
        if each.value >= bound:
            return each
    if problem == "training_plan" and grids.refuted(data, ceil(bound)):
        return Bound(bound, grids.SOURCE)
    return None


def no_plan_by(problem: str, data: Any) -> str | None:
    """Return what shows that a problem has no plan; None where nothing does."""
    return no_plan.shown(data) if problem == "training_plan" else None
