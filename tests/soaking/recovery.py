"""Recovery: exact method, planners and statements, beside all choices."""

from random import Random
from typing import Any

import tiny_recoveries

from hetopt import problems, registry
from hetopt.errors import NoPlan
from hetopt.exact import recovery as exact
from hetopt.problems.recovery import Data
from soaking import Contradiction
from soaking._subproblems import agree, posed, some_statement, stated

WEIGHT = 25


def draw(rng: Random) -> dict[str, Any]:
    """Up to 3 nodes, 3 units and 7 pieces; rates and sizes of 1, equal, or extreme."""
    tree = tiny_recoveries.drawn(rng).model_dump(mode="json")
    statement = some_statement(rng, "recovery", 0.05)
    return {"data": tree, "statement": statement}


def check(data: dict[str, Any]) -> str:
    """The method's optimum is the best of all; no prices prove more."""
    problem = posed("recovery", data["data"])
    best = tiny_recoveries.best(problem)
    if data["statement"]:
        return stated("recovery", problem, data["statement"], best)
    found = agree(exact.solve(problem), best, problem)
    if best is None:
        return found
    if (bound := exact.bound(problem).value) > best:
        raise Contradiction(f"prices prove {bound}, the best is {best}: {problem}")
    _no_planner_is_better(problem, best)
    return found


def _no_planner_is_better(problem: Data, best: int) -> None:
    for name in registry.entries_for("planners", "recovery"):
        try:
            plan = registry.entry("planners", name).plan(problem)
        except NoPlan:
            continue
        judged = problems.get("recovery").evaluate(problem, plan)
        if not judged.valid or judged.objective < best:
            raise Contradiction(f"{name}: {judged}, the best is {best}: {problem}")
