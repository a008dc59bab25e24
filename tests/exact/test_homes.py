"""How many nodes hold all replicas of a layer, in the bound by counts of GPUs."""

from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from brute_force_training import random_tiny_instance
from random_plans import random_plan

from hetopt.exact.training_plan import certificate as checking
from hetopt.exact.training_plan.again.stages import Case as AskedAgain
from hetopt.exact.training_plan.counts import bound, homes
from hetopt.exact.training_plan.counts.bound import CountBound, Range, Synchronising
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.problems.training_plan.settings import variants
from hetopt.schema import Cluster, Instance
from hetopt.solving.certificates import Case, TrainingCertificate
from hetopt.stages import StageTable


def of_equal_nodes(seed: int) -> Instance:
    """An instance on two or three equal nodes, and perhaps one more, far apart."""
    rng = Random(f"homes/{seed}")
    instance = variants(random_tiny_instance(rng, most_gpus=6))[0]
    tree = instance.cluster.model_dump(mode="json", exclude_none=True)
    first, last = tree["nodes"][0], tree["nodes"][-1]
    count = rng.choice([2, 3])
    names = [f"n{i}" for i in range(rng.choice([2, 3]))]
    nodes = [first | {"name": name, "count": count} for name in names]
    nodes += [last | {"name": "x", "count": 2}] * rng.choice([0, 1])
    tree["nodes"] = [node | {"intra_gbytes_per_s": 50} for node in nodes]
    tree["gpus"] = {node["gpu"]: tree["gpus"][node["gpu"]] for node in nodes}
    tree["inter"] = {"gbytes_per_s": rng.choice([0.2, 1.0, 5.0]), "latency_us": 5}
    cluster = Cluster.model_validate(tree, strict=False)
    return instance.model_copy(update={"cluster": cluster})


def counted(instance: Instance) -> CountBound | None:
    return bound.prepared(StageTable(instance))


def plans_of(instance: Instance) -> Iterator[tuple[TrainingPlan, float, float]]:
    """Valid plans of several pipelines; what those take and what they synchronise."""
    for number in range(12):
        plan = random_plan(instance, number)
        found = judge.evaluate(instance, plan)
        if found.valid and len(plan.pipelines) > 1:
            us = max(found.parts["pipeline_us"])
            yield plan, 1.0 + us, 1.0 + found.parts["sync_us"]


def again(instance: Instance, method: CountBound) -> checking.Counts:
    record = TrainingCertificate(
        time_us=1e12,
        most_sync_us=1.0,
        cases=(Case(counts=1.1),),
        together=tuple(kind.speakers for kind in method.kinds),
    )
    return checking._Check(instance, record)._counts


def fewest_replicas(instance: Instance, plan: TrainingPlan) -> int:
    held = np.zeros(instance.model.layers, int)
    for stage in (stage for pipeline in plan.pipelines for stage in pipeline.stages):
        held[slice(*stage.layers)] += len(stage.replicas)
    return int(held.min())


@pytest.mark.parametrize("seed", range(25))
def test_no_plan_is_refuted_and_what_the_method_refutes_the_check_does(
    seed: int,
) -> None:
    instance = of_equal_nodes(seed)
    method = counted(instance)
    if method is None or instance.workload.costs.sync_overlap != "none":
        return
    check, sizes = again(instance, method), method.sizes
    for plan, left, sync_us in plans_of(instance):
        there_are, replicas = len(plan.pipelines), fewest_replicas(instance, plan)
        by, each = (Synchronising(sync_us),), range(len(sizes))
        some = Range(there_are, there_are, replicas, each, by)
        asked = [AskedAgain((there_are,) * 2, replicas, sizes, sync_us)]
        within = method.within(2 * left, lambda: None)
        assert within.refuted(some, left).ratio is None
        assert not check.refute(asked, left)
        for part in (0.6, 0.8, 0.9):
            if within.refuted(some, part * left).ratio is not None:
                assert check.refute(asked, part * left)


def two_nodes() -> Instance:
    """Three layers on two nodes of two GPUs, which synchronise slowly."""
    tree = {
        "name": "homes",
        "model": {"name": "m", "layers": 3, "hidden": 1024, "heads": 8}
        | {"vocabulary": 0, "parameters_per_layer": 10_000_000},
        "cluster": {
            "gpus": {"A": {"peak_tflops": 50, "memory_gib": 80}},
            "nodes": [
                {"name": name, "gpu": "A", "count": 2, "intra_gbytes_per_s": 500}
                for name in ("n0", "n1")
            ],
            "inter": {"gbytes_per_s": 20},
        },
        "workload": {"sequence_length": 1024, "global_batch": 6}
        | {"micro_batch_sizes": [1]},
    }
    return Instance.model_validate(tree, strict=False)


def in_both_nodes(gpu: int) -> Pipeline:
    """A layer on a GPU of one node, and two on that of the other."""
    stages = [
        Stage(layers=layers, replicas=(Replica(gpus=(f"{node}:{gpu}",), samples=1),))
        for layers, node in (((0, 1), "n0"), ((1, 3), "n1"))
    ]
    return Pipeline(micro_batches=3, micro_batch_size=1, stages=tuple(stages))


def test_pipelines_have_gpus_of_every_home() -> None:
    """Equal ones are the best, as each is in both nodes.

    If it did not matter in which, one with three GPUs would be quicker beside another.
    """
    instance = two_nodes()
    plan = TrainingPlan(pipelines=tuple(map(in_both_nodes, range(2))))
    found = judge.evaluate(instance, plan)
    assert found.valid
    method = counted(instance)
    assert method is not None
    us = max(found.parts["pipeline_us"])
    left = 0.99 * us  # for ranges of the slowest stage
    within = method.within(2 * left, lambda: None)
    some = Range(2, 2, 2, range(1), (Synchronising(200.0),))
    assert within.refuted(some, us + 1).ratio is None
    assert within.refuted(some, left).ratio is not None
    assert again(instance, method).refute([AskedAgain((2, 2), 2, (1,), 200.0)], left)
    with patch.object(bound, "numbered", lambda *_: iter(())):
        assert within.refuted(some, left).ratio is None


def test_tables_by_kinds_are_lifted_to_those_of_their_parts() -> None:
    method = counted(two_nodes())
    assert method is not None
    some = homes.Homes(frozenset({0}), (1,), True)
    each = homes.in_parts(method.kinds, some)
    assert each.used == (1, 0)
    assert each.lifted(np.arange(5)).tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
