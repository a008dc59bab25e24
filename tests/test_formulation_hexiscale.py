"""The joint statement against the judge, plan by plan, and against trying all."""

from itertools import pairwise
from random import Random
from typing import Any

import pytest
from brute_force_training import best_training_plan
from hetopt.formulations import hexiscale

from hetopt.modelling import Limits
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan
from hetopt.registry import entry
from hetopt.result import Status
from hetopt.schema import Instance

CARRIED = ("cpsat", "scip", "pulp")


def tiny(random: Random, *, batch: int, roomy: bool = False) -> Instance:
    """Two or three nodes of up to three GPUs in all, three or four layers."""
    memory = [0.5] if roomy else [0.028, 0.05, 0.5]
    types = {
        name: {
            "peak_tflops": random.choice([10.0, 37.5, 165.2]),
            "memory_gib": random.choice(memory),
        }
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
    inter: dict[str, Any] = {"gbytes_per_s": random.choice([0.7, 3, 50])}
    if len(nodes) > 2 and random.random() < 0.5:
        inter["pairs"] = [{"first": "n0", "second": "n1", "gbytes_per_s": 0.3}]
    return Instance.model_validate(
        {
            "name": "random",
            "model": {
                "name": "m",
                "layers": random.choice([3, 4]) if sum(counts) < 4 else 3,
                "hidden": 256,
                "heads": 4,
                "vocabulary": 1000,
            },
            "workload": {
                "sequence_length": 512,
                "global_batch": batch,
                "costs": {
                    "bytes_per_parameter": random.choice([8, 16]),
                    "head": random.choice(["include", "omit"]),
                    "recompute": random.choice(["full", "none"]),
                    "activations": random.choice(["standard", "checkpoint"]),
                    "in_flight": random.choice(["1f1b", "gpipe", "one"]),
                    "pipeline_factor": random.choice([1, 1.8]),
                    "sync_factor": random.choice([0, 1, 1.65]),
                },
            },
            "cluster": {
                "gpus": {name: types[name] for name in used},
                "nodes": tuple(nodes),
                "inter": inter,
            },
        },
        strict=False,
    )


def random_plan(random: Random, instance: Instance) -> TrainingPlan:
    """Pipelines on GPUs drawn at random; it may need too much memory."""
    cluster, layers = instance.planned_cluster, instance.model.layers
    groups = []
    for node in cluster.nodes:
        cuts = [x for x in range(1, node.count) if random.random() < 0.6]
        for a, z in pairwise((0, *cuts, node.count)):
            groups.append(tuple(f"{node.name}:{x}" for x in range(a, z)))
    random.shuffle(groups)
    batch = instance.workload.global_batch
    chains: list[list[tuple[str, ...]]] = [[groups.pop()]]
    for group in groups:
        if len(chains) < batch and random.random() < 0.4:
            chains.append([group])
        elif len(chain := random.choice(chains)) < layers:
            chain.append(group)
    shares = [1] * len(chains)
    for _ in range(batch - len(chains)):
        shares[random.randrange(len(shares))] += 1
    pipelines = []
    for chain, share in zip(chains, shares, strict=True):
        inner = sorted(random.sample(range(1, layers), len(chain) - 1))
        spans = pairwise((0, *inner, layers))
        stages = tuple(
            Stage(layers=span, replicas=(Replica(gpus=gpus),))
            for span, gpus in zip(spans, chain, strict=True)
        )
        pipelines.append(Pipeline(micro_batches=share, stages=stages))
    return TrainingPlan(pipelines=tuple(pipelines))


class Checker:
    """A model whose variables are numbers: every constraint is true or broken."""

    name, native = "checker", None

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
    tables = hexiscale.Tables(instance)
    known = {
        hexiscale.name(family, index): value
        for family, table in hexiscale.values(tables, plan).items()
        for index, value in table.items()
    }
    checker = Checker(known)
    reader = hexiscale.build(instance, checker)
    return checker, reader(lambda variable: variable)


@pytest.mark.parametrize("seed", range(60))
def test_every_valid_plan_meets_the_statement_at_the_judges_time(seed: int) -> None:
    random = Random(seed)
    instance = tiny(random, batch=random.randint(2, 6), roomy=True)
    horizon = hexiscale.Tables(instance).horizon
    for _ in range(6):
        plan = random_plan(random, instance)
        judged = training_plan.evaluate(instance, plan)
        checker, again = checked(instance, plan)
        if not judged.valid:
            assert checker.broken
            continue
        late = judged.objective > horizon
        assert bool(checker.broken) == late, checker.broken
        assert late or checker.objective == judged.objective
        assert training_plan.evaluate(instance, again).objective == judged.objective


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("backend", CARRIED)
def test_the_optimum_is_the_best_of_all_plans(seed: int, backend: str) -> None:
    random = Random(1000 + seed)
    instance = tiny(random, batch=random.randint(2, 4))
    best = best_training_plan(instance)
    model = entry("backends", backend).backend()
    reader = hexiscale.build(instance, model)
    answer = model.solve(Limits(), lambda *_: None)
    if best is None:
        assert answer.status is Status.INFEASIBLE
        return
    assert answer.status is Status.OPTIMAL
    assert round(answer.objective) == best[0]
    judged = training_plan.evaluate(instance, reader(answer.value))
    assert judged.valid
    assert judged.objective == best[0]
