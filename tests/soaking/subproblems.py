"""Small subproblems: exact methods and statements beside the best of all plans."""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

import brute_force
import random_data

from hetopt import problems, registry
from hetopt.errors import SolverFailed, Unsupported
from hetopt.modelling import Limits
from hetopt.problems import Objective
from hetopt.result import Result, Status
from hetopt.solving import statements
from soaking import Contradiction

WEIGHT = 400
LIMIT_S = 3.0  # for a statement; what is not decided then is no contradiction
LARGEST = 10**9 - 1
#: The most that free fields may have: half of the draws have some of 0, 1 or this.
_MOST = {
    **dict.fromkeys(
        ("gflops", "memory_mib", "minimum_memory_mib", "layer_mib"), LARGEST
    ),
    **dict.fromkeys(("in_flight_mib", "layer_us", "hop_us", "forward_us"), LARGEST),
    **dict.fromkeys(("backward_us", "sync_us", "cost", "unserved"), LARGEST),
    **{"parameters": LARGEST, "micro_batches": 10**6},
}


def draw(rng: Random) -> dict[str, Any]:
    """A problem that brute force can list; seldom a statement and a back end of it."""
    problem = rng.choice(sorted(random_data.MAKERS))
    data = random_data.MAKERS[problem](rng).model_dump(mode="json")
    if rng.random() < 0.5:
        data = _with_extremes(rng, data)
    statement = rng.choice(stated(problem)) if rng.random() < 0.05 else None
    return {"problem": problem, "data": data, "statement": statement}


def _with_extremes(rng: Random, tree: Any, most: int = 0) -> Any:
    if isinstance(tree, dict):
        return {
            key: _with_extremes(rng, value, _MOST.get(key, 0))
            for key, value in tree.items()
        }
    if isinstance(tree, list):
        return [_with_extremes(rng, value, most) for value in tree]
    if most and type(tree) is int and tree and rng.random() < 0.2:
        return rng.choice([1, most, most - 1])
    return tree


def check(data: dict[str, Any]) -> str:
    """The method's optimum, or a statement's, is the best of all."""
    problem, asked = data["problem"], data.get("statement")
    given = posed(problem, data["data"])
    best = brute_force.best(problem, given)
    if asked:
        return f"{problem}: {agrees(problem, given, asked, best)}"
    method: Any = registry.entry("exact", problem)
    return f"{problem}: {agree(method.solve(given, limits=Limits()), best, given)}"


def posed(problem: str, tree: Any) -> Any:
    """The problem's data as a file would hold them."""
    return problems.get(problem).Data.model_validate_json(json.dumps(tree))


def stated(problem: str) -> list[list[str]]:
    """Every statement of a problem, on every back end that carries it."""
    return [
        [name, backend]
        for name in registry.entries_for("formulations", problem)
        for backend in sorted(_backends(name))
    ]


def _backends(statement: str) -> Iterable[str]:
    module: Any = registry.entry("formulations", statement)
    return getattr(module, "backends", registry.names("backends"))


def agree(result: Result, best: Objective | None, data: Any) -> str:
    """The status of an exact method's result, which must be the best of all plans."""
    wanted = Status.INFEASIBLE if best is None else Status.OPTIMAL
    if result.status is not wanted or result.objective != best:
        raise Contradiction(
            f"{result.method.name}: {result.status} at {result.objective}, bound "
            f"{result.bound}; the best of all plans is {best}: {data!r}"
        )
    return result.status.value


def no_lie(result: Result, best: Objective | None, data: Any) -> str:
    """The status of a result that may stop short of a proof, but not say what is not.

    Floats may leave an optimum unconfirmed; whatever is claimed must be so.
    """
    if result.status in (Status.OPTIMAL, Status.INFEASIBLE):
        return agree(result, best, data)
    minimise = problems.get(result.problem).sense == "minimise"
    value, bound = result.objective, result.bound and result.bound.value
    wrong = best is None and value is not None
    if best is not None:
        wrong |= value is not None and (value < best if minimise else value > best)
        wrong |= bound is not None and (bound > best if minimise else bound < best)
    if wrong:
        raise Contradiction(
            f"{result.method.name}: {result.status} at {value}, bound {bound}; the "
            f"best of all plans is {best}: {data!r}"
        )
    return result.status.value


def agrees(
    problem: str, data: Any, statement: list[str], best: Objective | None
) -> str:
    """What a statement on a back end says, beside the best of all plans."""
    limits = Limits(time_s=LIMIT_S)
    try:
        result = statements.solve(problem, data, *statement, limits=limits)
    except Unsupported:
        return f"{statement[1]}: unsupported"
    except SolverFailed:  # floats may, and it is said
        if statement[1] == statements.EXACT:
            raise
        return f"{statement[1]}: failed"
    return f"{statement[1]}: {no_lie(result, best, data)}"
