"""Training plans proved optimal on small clusters, against all plans and each other."""

from collections import deque
from itertools import count
from random import Random
from typing import Any

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from flat import flat
from hypothesis import given
from inputs import drawn, examples
from settings import COSTS
from small_instances import small
from tiny_choices import random_tiny

import hetopt
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact import enumeration
from hetopt.exact import training_plan as method
from hetopt.exact.enumeration import is_rather_small, is_small, solve
from hetopt.exact.enumeration.stages import StageTables
from hetopt.modelling import Limits
from hetopt.problems import training_plan
from hetopt.result import Status, Stop
from hetopt.schema import Instance
from hetopt.search import islands
from hetopt.solving.run import Halt, Run

CARDS = {"A": (312.0, 80, 200), "B": (165.2, 24, 32), "C": (80.0, 24, 24)}


def tiny(random: Random, sizes: tuple[int, ...] = (1,), most: int = 4) -> Instance:
    """Up to `most` GPUs and 4 layers, micro-batches of these sizes, any cost setting.

    Nobody listed plans under a profile that lacks such a size.
    """
    tree = flat(random_tiny_instance(random, most))
    batch = random.randint(max(2, *sizes), 4)
    tree["workload"] |= {"micro_batch_sizes": sizes, "global_batch": batch}
    return Instance.model_validate(tree, strict=False)


def cluster_of(nodes: str, **changes: Any) -> Instance:
    """Nodes as 'A3 B3 C2'; `changes` of model, workload, costs and links."""
    model = {"layers": 32, "hidden": 2048, "heads": 16, "vocabulary": 32000}
    asked = {"sequence_length": 4096, "global_batch": 64, "costs": COSTS}
    inter = changes.pop("inter", 0.7)
    fields = {"global_batch", "micro_batch_sizes", "sequence_length", "costs"}
    for key, value in changes.items():
        (asked if key in fields else model)[key] = value
    hosts = [
        {"name": f"n{i}", "gpu": node[0], "count": int(node[1:])}
        | {"intra_gbytes_per_s": CARDS[node[0]][2]}
        for i, node in enumerate(nodes.split())
    ]
    gpus = {name: CARDS[name][:2] for name in sorted({h["gpu"] for h in hosts})}
    return small(hosts, gpus, model=model, inter=inter, name=nodes, **asked)


def solved(instance: Instance, **limits: Any):
    run = Run("training_plan", instance, Limits(**limits))
    with run:
        found = solve(instance, run)
    return found, run.result()


def holds(instance: Instance, several: bool) -> None:
    """The proof agrees with trying all, on the optimum or on there being no plan."""
    found, result = solved(instance)
    best = best_training_plan(instance, several_replicas=several)
    assert found.proved
    if best is None:
        assert found.plan is None
    else:
        assert found.bound_us == result.objective == best[0]


@examples(8)
@given(drawn(random_tiny, 3))
def test_the_optimum_over_all_choices_equals_that_of_trying_all(instance):
    """Heuristics hardly search, so that the exact search finds what it proves."""
    several = max(instance.workload.micro_batch_sizes) > 1
    best = best_training_plan(instance, several_replicas=several)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enumeration, "_ROUNDS", 40)
        found = method.solve(instance, limits=Limits(time_s=None))
    assert found.status is (Status.OPTIMAL if best else Status.INFEASIBLE)
    if best is not None:
        assert training_plan_bound(instance).value <= best[0] == found.objective


def several(random: Random) -> Instance:
    """Micro-batches of several samples, which several replicas may share."""
    return tiny(random, random.choice([(1, 2), (2,), (2, 3), (1, 3)]), most=4)


@examples(5)
@given(drawn(several))
def test_stages_of_several_replicas_and_mixed_micro_batches_are_covered(instance):
    holds(instance, several=True)


def with_ports(random: Random) -> Instance:
    """Few ports on most nodes, and slow links."""
    told = tiny(random, random.choice([(1,), (1, 2)]), most=4).model_dump(mode="json")
    for node in told["cluster"]["nodes"]:
        node["adapters"] = random.choice([None, 1, 1, 2])
    told["cluster"]["nodes"][0]["adapters"] = 1
    told["cluster"]["inter"]["gbytes_per_s"] = random.choice([0.7, 0.1])
    return Instance.model_validate(told, strict=False)


@examples(10)
@given(drawn(with_ports))
def test_of_nodes_with_ports_the_listing_is_a_bound_and_claims_no_more(instance):
    """What is optimal is what trying all plans says, whatever shares a port."""
    assert not is_small(instance)
    assert is_rather_small(instance)
    found, result = solved(instance)
    best = best_training_plan(instance, several_replicas=True)
    if best is None:
        assert found.proved
        assert found.plan is None
        return
    assert found.bound_us <= best[0] <= result.objective
    assert not found.proved or best[0] == result.objective
    whole = method.solve(instance, limits=Limits(time_s=0.2))
    assert whole.bound is None or whole.bound.value <= best[0]
    assert whole.objective is None or best[0] <= whole.objective


@pytest.mark.parametrize(
    "instance",
    [
        cluster_of("A4 B4", layers=8, global_batch=512),
        cluster_of("A3 B3 C2", global_batch=4, layers=4),
        *(
            pytest.param(instance, marks=pytest.mark.slow)
            for instance in (
                cluster_of("A8", global_batch=512),
                cluster_of("A4 B4", global_batch=512),
                cluster_of("A3 B3 C2", costs={}),
                cluster_of("A3 B3 C2", global_batch=4, layers=6),
                cluster_of("B4 C4", hidden=4096, layers=40, global_batch=24),
                cluster_of("B2 B2 B2 B2", hidden=4096, global_batch=128),
            )
        ),
    ],
    ids=lambda instance: instance.name,
)
def test_eight_gpus_are_proved_with_as_many_layers_as_real_models_have(instance):
    found, result = solved(instance, time_s=60)
    assert found.proved
    assert found.bound_us == result.objective
    assert result.objective >= training_plan_bound(instance).value
    planned = islands.plan(instance)
    assert result.objective <= training_plan.evaluate(instance, planned).objective


def test_listing_millions_of_stages_can_be_ended():
    tables = StageTables(hetopt.load("metis/t4-v100-8-wide-resnet-2b"))
    checks = count()

    def check() -> None:
        if next(checks) == 100:
            raise Halt(Stop.TIME)

    with pytest.raises(Halt):
        deque(tables.stages(32, 32, check), maxlen=0)


@pytest.mark.parametrize("overhead", [0, 5_000])
def test_of_a_rather_small_cluster_all_rows_prove_what_a_small_one_says(overhead):
    # The last node can do nothing: its GPUs have too little memory for any layer.
    whole = cluster_of(
        "A4 B4 C2", layers=8, costs={**COSTS, "iteration_overhead_us": overhead}
    )
    gpus = dict(whole.cluster.gpus)
    gpus["C"] = gpus["C"].model_copy(update={"memory_gib": 0.01})
    cluster = whole.cluster.model_copy(update={"gpus": gpus})
    large = whole.model_copy(update={"cluster": cluster})
    few = cluster.model_copy(update={"nodes": cluster.nodes[:2]})
    small, _ = solved(whole.model_copy(update={"cluster": few}))
    assert is_rather_small(large)
    again, _ = solved(large)
    assert small.proved
    assert again.proved
    assert again.bound_us == small.bound_us


@examples(6)
@given(drawn(several))
def test_a_listing_of_too_many_columns_proves_nothing(instance):
    """The bound is one all the same."""
    best = best_training_plan(instance, several_replicas=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(enumeration, "_MOST_STAGES", 1)
        found, result = solved(instance)
    if best is None:
        assert found.plan is None
    elif found.proved:
        assert found.bound_us == best[0]
    else:
        assert found.bound_us <= best[0]
    if found.plan is not None:
        assert not training_plan.evaluate(instance, found.plan).violations
        assert result.objective >= best[0]
