"""What the exact method says of an instance, held against complete search."""

from contextlib import nullcontext
from unittest.mock import patch

from brute_force_training import best_training_plan
from soaking import Contradiction

from hetopt.exact import _small_clusters, training_plan
from hetopt.modelling import Limits
from hetopt.problems import training_plan as judge
from hetopt.result import Result, Status
from hetopt.schema import Instance


def solved(instance: Instance, *, warm: bool, time_s: float) -> Result:
    """The exact method's result; without heuristics first, unless `warm`."""
    cold = patch.object(_small_clusters, "_warm_up", lambda *_: None)
    with nullcontext() if warm else cold:
        return training_plan.solve(instance, limits=Limits(time_s=time_s))


def refuted(instance: Instance, result: Result) -> str:
    """The outcome as a word; `Contradiction` where some plan shows that it is wrong."""
    if result.plan is not None:
        judged = judge.evaluate(instance, result.plan)
        if not judged.valid or judged.objective != result.objective:
            raise Contradiction(
                f"said {result.objective}, the plan is {judged.objective}, "
                f"{list(map(str, judged.violations))}"
            )
    bound = result.bound.value if result.bound else 0
    if result.status is Status.INFEASIBLE:
        limit, word = None, "infeasible"
    else:
        limit, word = int(bound), "optimal"
        if result.status is not Status.OPTIMAL:
            word = "bound" if result.plan is not None else "bound alone"
    several = max(instance.workload.micro_batch_sizes) > 1
    best = best_training_plan(instance, several_replicas=several, below=limit)
    if best is not None:
        raise Contradiction(
            f"said {result.status} with bound {result.bound}, a plan of {best[0]} us "
            f"is valid: {best[1].model_dump_json()}"
        )
    return word
