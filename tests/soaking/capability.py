"""Every method on one instance: it refuses where the matrix says so, else it answers.

An answer is held to plans that are known: a plan is one that the judge accepts, and no
bound is above the fastest of them.
"""

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import drawing
from brute_force_training import best_one_pipeline
from claims import claim, some_plans
from refuters import by_prices, proves

from hetopt import capability, portfolio, registry
from hetopt.bounds.crossing import Crossing
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.capability.methods import METHODS
from hetopt.costs import CostTable, fixed
from hetopt.costs.offers import as_offers, provisioning_data
from hetopt.errors import InstanceError, Unsupported
from hetopt.exact import enumeration, one_pipeline, training_plan
from hetopt.explaining.simulator import simulate
from hetopt.explaining.timeline import Schedule
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import one_pipeline as judge_of_one
from hetopt.problems import training_plan as judge
from hetopt.problems.layer_partition.posing import fields, line_of_plan
from hetopt.problems.training_plan.settings import variants
from hetopt.result import Result, Status
from hetopt.schema import Instance
from hetopt.solving import statements
from soaking import Contradiction

WEIGHT = 15

_TIME_S = 0.1  # of a method
_STEPS = 4  # of a refutation
_FEW_LAYERS = 4  # that a statement has variables for in no time


class Case(NamedTuple):
    """An instance, and the fastest plan that is known of it."""

    instance: Instance
    tree: dict[str, Any]
    plan: TrainingPlan | None
    us: int | None
    exact: Result | Unsupported  # what the exact method said at once


def draw(rng: Random) -> dict[str, Any]:
    """An instance of 1 to 6 GPUs, seldom with more layers than tables have."""
    many = rng.random() < 0.03
    tree = drawing.instance(
        rng,
        rng.choice([(1, 1), (2,), (1, 2), (2, 2), (1, 1, 1), (2, 4)]),
        layers=capability.MOST_TABLED + 1 if many else rng.choice([1, 2, 2, 3, 4]),
        batch=rng.choice([2, 3, 4]),
        sizes=rng.choice([(1,), (1,), (1, 2), (2,)]),
        divides=rng.random() < 0.3,
    )
    return {"instance": tree, "seed": rng.randrange(10**9)}


def check(data: dict[str, Any]) -> str:
    """Ask every method of the matrix, and planners that have no row of their own."""
    rng, instance = Random(data["seed"]), drawing.read(data["instance"])
    exact, plans = _said_at_once(instance), [*some_plans(instance, rng, 6)]
    plans += [exact.plan] if isinstance(exact, Result) else []
    judged = [(judge.evaluate(instance, x), x) for x in plans if x is not None]
    valid = [(found.objective, x) for found, x in judged if found.valid]
    us, plan = min(valid, key=lambda pair: pair[0], default=(None, None))
    case = Case(instance, data["instance"], plan, us, exact)
    planners = registry.entries_for("planners", "training_plan")
    others = [f"planner {x}" for x in planners if f"planner {x}" not in METHODS]
    methods = [name for name in METHODS if name != "planner"]
    words = [ask(method, case) for method in [*methods, rng.choice(others)]]
    return f"{words.count('refused') // 5 * 5} of {len(words)} refuse, or more"


def ask(method: str, case: Case) -> str:
    """The word for what a method said of an instance; it is what the matrix says."""
    kind, name = method.rsplit(" ", 1)
    why = capability.reason(method, case.instance)
    try:
        said = _ASKED[kind](name, case)
    except Unsupported as error:
        if why is None and str(error).startswith(f"not supported by the {method}"):
            raise Contradiction(f"{method} refuses on its own: {error}") from error
        tables = capability.reason("proof pipelines", case.instance)
        if why is not None and str(error) not in (why, tables):
            raise Contradiction(f"{method} says {error}, not {why}") from error
        return "refused"
    if why is not None and said != "refused":
        raise Contradiction(f"{method} answers ({said}), and should say: {why}")
    return said


def _said_at_once(instance: Instance) -> Result | Unsupported:
    try:
        return training_plan.solve(instance, limits=Limits(time_s=_TIME_S))
    except Unsupported as error:  # of the program that has to run it
        return error


# --- how each kind is asked, and what its answer is held to ---------------------------


def _exact(name: str, case: Case) -> str:
    if name == "one_pipeline":
        found = one_pipeline.solve(case.instance, limits=Limits(time_s=_TIME_S))
        if found.plan is not None:
            judged = judge_of_one.evaluate(case.instance, found.plan)
            if not judged.valid or judged.objective != found.objective:
                raise Contradiction(f"said {found.objective}: {judged}")
        if _is_tiny(case.instance):
            best = best_one_pipeline(case.instance)
            below = found.bound is not None and best is not None
            if below and found.bound.value > best:
                raise Contradiction(f"{found.bound}, the best is {best}")
            if found.status is Status.INFEASIBLE and best is not None:
                raise Contradiction(f"infeasible, the best is {best}")
            if found.status is Status.OPTIMAL and found.objective != best:
                raise Contradiction(f"optimal {found.objective}, the best is {best}")
        return found.status.value
    if isinstance(case.exact, Unsupported):
        raise case.exact
    return _held(case.exact, case)


def _is_tiny(instance: Instance) -> bool:
    """Whether all plans of one pipeline are few."""
    return instance.planned_cluster.gpu_count <= 3 >= instance.model.layers


def _held(found: Result, case: Case) -> str:
    """The outcome; the known plan is neither below the bound nor said not to be."""
    word, _ = claim(case.instance, found)
    if case.us is None:
        return word
    below = found.bound is not None and found.bound.value > case.us
    if below or found.status is Status.INFEASIBLE:
        raise Contradiction(f"{found.status}, {found.bound}; {case.us} us: {case.plan}")
    return word


def _planner(name: str, case: Case) -> str:
    found = portfolio.ask(name, case.instance, Limits(time_s=_TIME_S))
    if found.plan is None and not found.reasons and found.stop is None:
        raise Contradiction(f"{name} has no plan, and no reason")
    return claim(case.instance, found)[0]


def _statement(name: str, case: Case) -> str:
    refused = not capability.carries(f"statement {name}", case.instance)
    if not refused and case.instance.model.layers > _FEW_LAYERS:
        return "not asked"
    backend = "cpsat" if name == "hexiscale_milp" else "scip"
    asked = "training_plan", case.instance, name, backend
    try:
        return _held(statements.solve(*asked, limits=Limits(time_s=_TIME_S)), case)
    except InstanceError:  # coefficients beyond a solver's
        return "not stated"


def _proof(name: str, case: Case) -> str:
    """The outcome of a part of the exact method, which has no word but None."""
    instance = case.instance
    if name == "enumeration":
        asked = enumeration.is_small(instance) or enumeration.is_rather_small(instance)
        return "asked" if asked else "refused"
    bound = int(training_plan_bound(instance).value)
    if name == "crossing":
        return "refused" if Crossing.of(CostTable(instance)) is None else "asked"
    if case.us is not None and bound > case.us:
        raise Contradiction(f"bound {bound}, {case.us} us: {case.plan}")
    if name == "work":
        return "asked"
    least_us, most_us = max(1, bound), max(case.us or 0, 2 * bound, 2)
    asked = [by_prices(each, least_us, most_us) for each in variants(instance)]
    known = case.us is not None and case.us >= least_us
    if known and all(proves(each, case.us, _STEPS) for each in asked):
        raise Contradiction(f"{name} refute {case.us} us: {case.plan}")
    return "asked"


def _schedule(name: Schedule, case: Case) -> str:
    if case.plan is None:
        return "refused"
    try:
        simulate(case.instance, case.plan, name)
    except InstanceError:  # of a shape that it does not run
        return "no shape"
    return "simulated"


def _partition(case: Case) -> str:
    """The outcome for the first pipeline of the known plan, under its settings."""
    if case.plan is None:
        return "refused"
    line = line_of_plan(case.instance, case.plan, 0)
    why = capability.reason("problem layer_partition", fixed(line.table.instance))
    try:
        fields(line, "given")
    except Unsupported as error:
        if why is not None and str(error) != why:
            raise Contradiction(f"layer_partition says {error}, not {why}") from error
        return "refused"
    if why is not None:
        raise Contradiction(f"layer_partition answers, and should say: {why}")
    return "stated"


def _offers(name: str, case: Case) -> str:
    if name == "layer_partition":
        return _partition(case)
    offered = as_offers(case.instance, dict.fromkeys(case.instance.cluster.gpus, 1))
    method = f"problem {name}"
    why = capability.reason(method, offered)
    try:
        provisioning_data(offered)
    except InstanceError:  # whose batch no degree divides
        return "not stated"
    except Unsupported as error:
        if str(error) != why:
            raise Contradiction(f"{method} says {error}, not {why}") from error
        return "refused"
    if why is not None:
        raise Contradiction(f"{method} answers, and should say: {why}")
    return "stated"


_ASKED: dict[str, Callable[[Any, Case], str]] = {
    "exact method": _exact,
    "proof": _proof,
    "statement": _statement,
    "problem": _offers,
    "planner": _planner,
    "schedule": _schedule,
}
