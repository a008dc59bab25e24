"""HexiScale's Table 6: what its joint MILP finds and proves of its own.

As printed and strengthened, with a hint and without, from 4 GPUs up. Every run is a
line of results/hexiscale_milp.jsonl as soon as it is known; one that is there under the
same limits is not made again, so that a run may be broken off.

Without a hint the solver is given the statement alone. The strengthened one says in
it that no plan has to be slower than an obvious one (`horizon`), and how little span
can be (`least`): both are told in the row, and neither counts as found. With a hint it
is given the plan of the HexiScale planner besides. Statements of more than 100,000
variables are counted, not solved.
"""

import resource
from typing import Any

from _measuring import keep, kept
from hetopt.formulations import hexiscale_milp

from hetopt import api, load, registry
from hetopt.errors import NoPlan
from hetopt.modelling import Limits, Model
from hetopt.planners import hexiscale as planner
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.result import Result
from hetopt.schema import Instance
from hetopt.solving import statements

Row = dict[str, Any]
LINES = "hexiscale_milp.jsonl"  # runs; the page's own lines are hexiscale.jsonl
BACKENDS = {"hexiscale_literal": "scip", "hexiscale_milp": "cpsat"}
SMALL = (4, 6, 8)  # GPUs
LARGEST = 100_000  # variables of a statement that is handed to a solver
SETTINGS = (
    "setting-1-llama2-7b",
    "setting-1-llama2-13b",
    "setting-2-llama2-7b",
    "setting-2-llama2-13b",
    "setting-3-llama-30b",
)
KEY = ("instance", "statement", "hint", "time_limit_s", "threads", "seed")


def named(name: str) -> Instance:
    """`small-6`, or an instance of the HexiScale family."""
    family, _, size = name.partition("-")
    return small(int(size)) if family == "small" else load(f"hexiscale/{name}")


def small(gpus: int) -> Instance:
    """Setting 1 in small: two nodes of half the GPUs, a layer and 2 samples for each.

    RTX3090 and RTX4090, with the layers of Llama-2 7B and 0.7 GB/s between the nodes.
    """
    document = load("hexiscale/setting-1-llama2-7b").model_dump(mode="json")
    document["name"] = f"small-{gpus}"
    document["model"] |= {"name": f"llama-2-7b, {gpus} layers", "layers": gpus}
    document["model"]["parameters_per_layer"] = None
    for field in ("parameters", "active_parameters", "kinds"):
        if isinstance(document["model"].get(field), list):
            document["model"][field] = document["model"][field][:gpus]
    document["cluster"]["nodes"] = [
        node | {"count": gpus // 2} for node in document["cluster"]["nodes"][1:3]
    ]
    document["cluster"]["gpus"].pop("RTX3080Ti")
    document["workload"]["global_batch"] = 2 * gpus
    return Instance.model_validate(document, strict=False)


class Tally(Model):
    """A model that counts: its variables are zeros."""

    def __init__(self) -> None:
        self.variables = self.rows = 0

    def binary(self, name: str) -> int:
        return self.integer(name, 0, 1)

    def integer(self, name: str, low: int, high: int) -> int:
        self.variables += 1
        return 0

    def total(self, terms: Any) -> int:
        return sum(terms)

    def add(self, family: str, index: Any, constraint: Any) -> None:
        self.rows += 1

    def minimise(self, expression: Any) -> None:
        """Nothing to count."""


def measure(instance: Instance, statement: str, hint: bool, limits: Limits) -> Row:
    """One run: what the solver found of its own, what it proved of its own."""
    size = Tally()
    registry.entry("formulations", statement).build(instance, size)
    found = {
        "instance": instance.name,
        "gpus": instance.planned_cluster.gpu_count,
        "layers": instance.model.layers,
        "batch": instance.workload.global_batch,
        "statement": statement,
        "backend": BACKENDS[statement],
        "hint": hint,
        "time_limit_s": limits.time_s,
        "threads": limits.threads,
        "seed": limits.seed,
        "variables": size.variables,
        "rows": size.rows,
    }
    if size.variables > LARGEST:
        return found | {"status": "not stated"}
    start = planned(instance) if hint else None
    begun = cpu_s()
    result = statements.solve(
        *("training_plan", instance, statement, BACKENDS[statement]),
        limits=limits,
        warm_start=start,
    )
    spent = {"cpu_s": round(cpu_s() - begun, 2)}
    return found | spent | own(instance, statement, start, result)


def cpu_s() -> float:
    """CPU seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def planned(instance: Instance) -> TrainingPlan | None:
    """The HexiScale planner's plan, None where it has none."""
    try:
        return planner.plan(instance)
    except NoPlan:
        return None


def own(
    instance: Instance, statement: str, start: TrainingPlan | None, result: Result
) -> Row:
    """What is the solver's own of a result: better than fed, above what is declared."""
    tables = hexiscale_milp.Tables(instance)
    ours = statement == "hexiscale_milp"
    declared = tables.least["span_scaled"] if ours else 0
    fed = [tables.horizon] if ours and start is not None else []
    if start is not None:
        fed.append(int(training_plan.evaluate(instance, start).objective or 0))
    value, bound = result.objective, result.bound.value if result.bound else None
    found = value is not None and (not fed or value < min(fed))
    return {
        "declared_bound_us": declared,
        "declared_horizon_us": tables.horizon if ours else None,
        "fed_us": min(fed, default=None),
        "version": result.method.version,
        "status": result.status.value,
        "stop": result.stop.value,
        "build_s": round(result.seconds["build"], 2),
        "solve_s": round(result.seconds["solve"], 2),
        "objective_us": value,
        "bound_us": bound,
        "own_us": value if found else None,
        "own_bound_us": bound if bound is not None and bound > declared else None,
        "trace": [[round(p.seconds, 2), p.incumbent, p.bound] for p in result.trace],
    }


def reference(instance: Instance, limit_s: float) -> Row:
    """What the exact method says, from the planner's plan, for comparison."""
    start, begun = planned(instance), cpu_s()
    result = api.solve(instance, "training_plan", warm_start=start, limits=limit_s)
    return {
        "instance": instance.name,
        "statement": "exact",
        "hint": True,
        "time_limit_s": limit_s,
        "threads": 1,
        "seed": 0,
        "gpus": instance.planned_cluster.gpu_count,
        "layers": instance.model.layers,
        "batch": instance.workload.global_batch,
        "status": result.status.value,
        "cpu_s": round(cpu_s() - begun, 2),
        "planner_us": None
        if start is None
        else training_plan.evaluate(instance, start).objective,
        "objective_us": result.objective,
        "bound_us": result.bound.value if result.bound else None,
    }


def runs(limit_s: float) -> list[Row]:
    """Return a row for each run within the limit; those that are not there are made."""
    known = {tuple(row[k] for k in KEY): row for row in kept(LINES)}
    limits = Limits(time_s=limit_s, threads=1, seed=0)
    found = []
    for name in (*(f"small-{n}" for n in SMALL), *SETTINGS):
        instance = named(name)
        for statement in (*BACKENDS, "exact"):
            for hint in (True,) if statement == "exact" else (False, True):
                key = (instance.name, statement, hint, limit_s, 1, 0)
                if key not in known:
                    known[key] = _run(instance, statement, hint, limits)
                    keep(LINES, known[key], "ortools", "pyscipopt")
                found.append(known[key])
    return found


def _run(instance: Instance, statement: str, hint: bool, limits: Limits) -> Row:
    if statement == "exact":
        return reference(instance, float(limits.time_s or 0))
    return measure(instance, statement, hint, limits)
