"""What the kinds of the subproblems share: results beside the best of all plans."""

import json
from collections.abc import Iterable
from random import Random
from typing import Any

from hetopt import problems, registry
from hetopt.errors import SolverFailed, Unsupported
from hetopt.modelling import Limits
from hetopt.problems import Objective
from hetopt.result import Result, Status
from hetopt.solving import statements
from soaking import Contradiction

LIMIT_S = 3.0  # for a statement; what is not decided then is no contradiction


def posed(problem: str, tree: Any) -> Any:
    """The problem's data as a file would hold them."""
    return problems.get(problem).Data.model_validate_json(json.dumps(tree))


def some_statement(rng: Random, problem: str, share: float) -> Any:
    """Now and then [a statement of the problem, a back end that carries it], or None.

    Back ends that compute in floats are asked about numbers of every size as well.
    """
    if rng.random() > share:
        return None
    pairs = [
        [name, backend]
        for name in registry.entries_for("formulations", problem)
        for backend in sorted(_backends(name))
    ]
    return rng.choice(pairs) if pairs else None


def _backends(statement: str) -> Iterable[str]:
    module: Any = registry.entry("formulations", statement)
    found: Iterable[str] = getattr(module, "backends", registry.names("backends"))
    return found


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


def stated(
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
