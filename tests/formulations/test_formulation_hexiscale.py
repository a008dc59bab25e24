"""The joint statement against the judge, plan by plan, and against trying all."""

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from brute_force_training import best_training_plan
from hetopt.formulations import hexiscale_milp
from hypothesis import given
from inputs import examples, seeds
from random_plans import plan_by
from small_instances import small

from hetopt.costs import CostTable
from hetopt.errors import Unsupported
from hetopt.files import load_instance
from hetopt.modelling import Limits, Model, label
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.registry import entry
from hetopt.result import Status
from hetopt.schema import Instance
from hetopt.solving import statements

CARRIED = ("cpsat", "scip", "pulp")


def tiny(random: Random, *, batch: int, roomy: bool = False) -> Instance:
    """Two or three nodes of up to three GPUs in all, three or four layers."""
    memory = [0.5] if roomy else [0.028, 0.05, 0.5]
    types = {
        name: (random.choice([10.0, 37.5, 165.2]), random.choice(memory))
        for name in ("A", "B")
    }
    counts = random.choice([(2, 1), (1, 2), (2, 2), (3, 1), (1, 1, 1), (1, 1, 2)])
    nodes = [
        {
            "name": f"n{i}",
            "gpu": "AAB"[i] if random.random() < 0.5 else "ABB"[i],
            "count": count,
            "intra_gbytes_per_s": 24.0,
            "intra_latency_us": random.choice([0, 5.5]),
        }
        for i, count in enumerate(counts)
    ]
    used = {str(node["gpu"]) for node in nodes}
    layers = random.choice([3, 4]) if sum(counts) < 4 else 3
    costs: dict[str, Any] = {
        "bytes_per_parameter": random.choice([8, 16]),
        "head": random.choice(["include", "omit"]),
        "recompute": random.choice(["full", "none"]),
        "activations": random.choice(["standard", "checkpoint"]),
        "in_flight": random.choice(["1f1b", "gpipe", "one"]),
        "pipeline_factor": random.choice([1, 1.8]),
        "sync_factor": random.choice([0, 1, 1.65]),
    }
    if random.random() < 0.2:
        costs |= {"layer_times": "profile", "profile": profile(random, used, layers)}
    inter: dict[str, Any] = {"gbytes_per_s": random.choice([0.7, 3, 50])}
    if len(nodes) > 2 and random.random() < 0.5:
        inter["pairs"] = [{"first": "n0", "second": "n1", "gbytes_per_s": 0.3}]
    shape = {"layers": layers, "hidden": 256, "heads": 4}
    gpus = {name: types[name] for name in used}
    return small(nodes, gpus, model=shape, inter=inter, global_batch=batch, costs=costs)


def profile(random: Random, types: set[str], layers: int) -> tuple[Any, ...]:
    """Equal layers, measured at all degrees but one that is missing."""
    missing = random.choice([1, 2, 3])
    return tuple(
        {
            "gpu": name,
            "tensor_parallel": t,
            "micro_batch": 1,
            "layer_us": (random.randint(20, 900),) * layers,
        }
        for name in sorted(types)
        for t in (1, 2, 3)
        if t != missing
    )


def groups(plan: TrainingPlan) -> set[tuple[str, int]]:
    """Node and degree of the tensor-parallel groups."""
    return {
        (stage.replicas[0].node, stage.replicas[0].degree)
        for pipeline in plan.pipelines
        for stage in pipeline.stages
    }


def measured(instance: Instance, plan: TrainingPlan) -> bool:
    """Whether the judge can know the times of all groups."""
    table = CostTable(instance)
    return all(table.usable(node, t, 1) for node, t in groups(plan))


class Checker(Model):
    """A model whose variables are numbers: every constraint is true or broken."""

    def __init__(self, known: dict[str, int]) -> None:
        self.known, self.broken, self.objective = known, [], None

    def binary(self, name: str) -> int:
        return self.integer(name, 0, 1)

    def integer(self, name: str, low: int, high: int) -> int:
        if not low <= self.known[name] <= high:
            self.broken.append((name, self.known[name], low, high))
        return self.known[name]

    def total(self, terms: Any) -> int:
        return sum(terms)

    def add(self, family: str, index: Any, constraint: bool) -> None:
        if not constraint:
            self.broken.append((family, index))

    def minimise(self, expression: int) -> None:
        self.objective = expression


def checked(instance: Instance, plan: TrainingPlan) -> tuple[Checker, TrainingPlan]:
    """The statement at the values that it has for `plan`, and the plan read back."""
    tables = hexiscale_milp.Tables(instance)
    known = {
        label(family, index): value
        for family, table in hexiscale_milp.values(tables, plan).items()
        for index, value in table.items()
    }
    checker = Checker(known)
    reader = hexiscale_milp.build(instance, checker)
    return checker, reader(lambda variable: variable)


@examples(15)
@given(seed=seeds())
def test_a_plan_meets_the_statement_at_the_judges_time_or_is_invalid(seed: int) -> None:
    random = Random(seed)
    instance = tiny(random, batch=random.randint(2, 6), roomy=seed % 2 == 0)
    tables = hexiscale_milp.Tables(instance)
    kinds = {(tables.nodes[kind.node].name, kind.degree) for kind in tables.kinds}
    for _ in range(6):
        plan = plan_by(instance, random)
        if not measured(instance, plan):
            continue
        judged = training_plan.evaluate(instance, plan)
        if not groups(plan) <= kinds or len(plan.pipelines) > len(tables.lengths):
            assert not judged.valid  # no variable for a group that holds no layer
            continue
        checker, again = checked(instance, plan)
        late = judged.objective > tables.horizon
        assert bool(checker.broken) == (late or not judged.valid), checker.broken
        if not checker.broken:
            assert checker.objective == judged.objective
        assert training_plan.evaluate(instance, again).objective == judged.objective


def proofs() -> Iterator[Any]:
    """Back ends and seeds: most of them where proofs are quickest, all in `slow`."""
    for backend in CARRIED:
        for seed in range(12):
            quick = seed < (6 if backend == "cpsat" else 2)
            marks = () if quick else pytest.mark.slow
            yield pytest.param(backend, seed, marks=marks)


@pytest.mark.parametrize(("backend", "seed"), [*proofs()])
def test_the_optimum_is_the_best_of_all_plans(backend: str, seed: int) -> None:
    random = Random(1000 + seed)
    instance = tiny(random, batch=random.randint(2, 4))
    best = best_training_plan(instance)
    model = entry("backends", backend).backend()
    reader = hexiscale_milp.build(instance, model)
    answer = model.solve(Limits(), lambda *_: None)
    if best is None:
        assert answer.status is Status.INFEASIBLE
        return
    assert answer.status is Status.OPTIMAL
    assert round(answer.objective) == best[0]
    judged = training_plan.evaluate(instance, reader(answer.value))
    assert judged.valid
    assert judged.objective == best[0]


def test_a_warm_start_has_a_value_for_every_variable_and_is_kept() -> None:
    instance = load_instance("tiny/two-nodes")
    tables = hexiscale_milp.Tables(instance)
    start = tables.obvious[1]
    model = entry("backends", "cpsat").backend()
    hexiscale_milp.build(instance, model)
    assert set(hexiscale_milp.hint(instance, start)) == set(model.variables)
    result = statements.solve(
        "training_plan",
        instance,
        "hexiscale_milp",
        "cpsat",
        limits=Limits(time_s=0),
        warm_start=start,
    )
    assert result.objective <= tables.obvious[0]


def test_a_plan_past_the_horizon_is_hinted_as_the_obvious_one() -> None:
    instance = load_instance("tiny/two-nodes")
    tables = hexiscale_milp.Tables(instance)
    first, *_ = instance.planned_cluster.gpu_ids()
    stage = Stage(layers=(0, instance.model.layers), replicas=(Replica(gpus=(first,)),))
    batch = instance.workload.global_batch
    slow = TrainingPlan(pipelines=(Pipeline(micro_batches=batch, stages=(stage,)),))
    assert training_plan.evaluate(instance, slow).objective > tables.horizon
    best = hexiscale_milp.hint(instance, tables.obvious[1])
    assert hexiscale_milp.hint(instance, slow) == best


@pytest.mark.parametrize(
    ("name", "field"),
    [
        ("tiny/several-samples", "workload.micro_batch_sizes"),
        ("tiny/two-nodes-lockstep", "workload.costs.pipeline"),
        ("tiny/two-nodes-overlap", "workload.costs.sync_overlap"),
        ("tiny/two-nodes-overlap", "workload.costs.sync: "),
        ("tiny/uneven-layers", "model.layers: parameters"),
        ("tiny/infeasible-layer", "model.layers: parameters"),
    ],
)
def test_what_is_not_carried_is_refused_by_the_field(name: str, field: str) -> None:
    with pytest.raises(Unsupported, match=field.replace(".", r"\.")):
        hexiscale_milp.Tables(load_instance(name))
