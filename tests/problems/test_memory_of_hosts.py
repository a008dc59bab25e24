"""Memory of hosts is a limit of plans: what they pin, counted by hand, and searches."""

from random import Random
from typing import Any

import pytest
from brute_force_training import best_training_plan, random_tiny_instance
from exporter_plans import pipeline
from flat import flat
from hypothesis import given
from inputs import drawn, examples

from hetopt.bounds import impossible
from hetopt.bounds.training_plan import training_plan_bound
from hetopt.exact import training_plan as exact
from hetopt.files import load_instance
from hetopt.modelling import Limits
from hetopt.plans import TrainingPlan
from hetopt.problems import training_plan
from hetopt.report import results
from hetopt.result import Status
from hetopt.schema import Instance

MIB = 2**20
ON_HOSTS: dict[str, float] = {}


def instance(host_gib: float | None = None, nodes: int = 2, **costs: Any) -> Instance:
    tree = load_instance("tiny/two-nodes").model_dump(mode="json", exclude_unset=True)
    tree["workload"]["costs"] = {"precision": "bf16_mixed", "offload": ON_HOSTS} | costs
    for gpu in tree["cluster"]["gpus"].values():
        gpu |= {"memory_gbytes_per_s": 1000, "host_gbytes_per_s": 10}
    for node in tree["cluster"]["nodes"][:nodes]:
        node["host_gib"] = host_gib
    return Instance.model_validate(tree, strict=False)


def plans(data: Instance) -> list[TrainingPlan]:
    """Return a pipeline over both nodes, and one on each."""
    layers, batch = data.model.layers, data.workload.global_batch
    nodes = data.planned_cluster.nodes
    first, second = ([f"{x.name}:{i}" for i in range(x.count)] for x in nodes)
    shapes = [(1, len(first), 1), (layers - 1, len(second), 1)]
    across = pipeline([*first, *second], shapes, batch, 1)
    apart = [
        pipeline([*gpus], [(layers, len(gpus), 1)], n, 1)
        for gpus, n in ((first, batch - 1), (second, 1))
    ]
    return [TrainingPlan(pipelines=x) for x in ((across,), tuple(apart))]


def by_hand(data: Instance, plan: TrainingPlan) -> dict[str, float]:
    """Return the MiB of masters, moments and gradients of 32 bits: 16 a parameter."""
    model, zero = data.model, data.workload.costs.updates.zero
    held: dict[str, float] = {}
    alike = len(plan.pipelines) if zero else 1
    ends = data.workload.costs.compute.head == "include"
    for flow in plan.pipelines:
        last = len(flow.stages) - 1
        for j, stage in enumerate(flow.stages):
            own = sum(model.parameters[x] for x in stage.span)
            copies = (j == 0) + (j == last)
            if model.tied_embeddings:
                copies = min(copies, 1)
            own += ends * copies * model.embedding_parameters
            (replica,) = stage.replicas
            held[replica.node] = held.get(replica.node, 0) + 16 * own / alike / MIB
    return held


@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize("number", [0, 1])
def test_hosts_pin_sixteen_bytes_of_every_parameter(zero: int, number: int) -> None:
    data = instance(zero=zero)
    plan = plans(data)[number]
    judged = training_plan.evaluate(data, plan)
    want = by_hand(data, plan)
    assert judged.parts["host_memory_mib"].keys() == want.keys()
    for node, mib in judged.parts["host_memory_mib"].items():
        assert mib == pytest.approx(want[node], abs=1)


@pytest.mark.parametrize("number", [0, 1])
def test_a_host_holds_what_it_has_and_no_more(number: int) -> None:
    plan = plans(instance())[number]
    pinned = training_plan.evaluate(instance(), plan).parts["host_memory_mib"]
    most = max(pinned.values())
    enough, less = (instance(mib / 1024) for mib in (most, most - 1))
    before = training_plan.evaluate(instance(), plan)
    assert training_plan.evaluate(enough, plan).violations == before.violations
    more = {*training_plan.evaluate(less, plan).violations} - {*before.violations}
    assert {one.rule for one in more} == {"host_memory"}
    assert {one.where for one in more} == {n for n, m in pinned.items() if m == most}


@pytest.mark.parametrize(
    ("runs_on", "zero", "copies"),
    [
        *(("llamafactory", zero, (0, 4, 4, 0)[zero]) for zero in range(4)),
        *(("transformers", zero, 1 if zero else 2) for zero in (0, 2, 3)),
        ("torchtitan", 0, 0),
    ],
)
@pytest.mark.parametrize("gib", [0.01, 1])  # less than two copies, or more
def test_two_processes_load_weights_before_they_divide_them(
    runs_on: str, zero: int, copies: int, gib: float
) -> None:
    """DeepSpeed flattens a copy, on a host by need; FSDP reads in one process of it."""
    tree = flat(instance(1e-3, zero=zero, offload=None).on(runs_on))
    tree["cluster"]["gpus"]["big"]["memory_gib"] = gib
    data = Instance.model_validate(tree, strict=False)
    layers, model = [(data.model.layers, 1, 1)], data.model
    two = tuple(pipeline([f"node0:{i}"], layers, 2, 1) for i in range(2))
    found = training_plan.evaluate(data, TrainingPlan(pipelines=two)).parts
    copies *= runs_on == "transformers" or gib < 1
    need = copies * 2 * (sum(model.parameters) + 2 * model.embedding_parameters) / MIB
    told = found.get("loading_mib", [["", 0]])
    assert told[0][1] == pytest.approx(need, abs=1)
    assert ("loads" in str([*results.totals(found)])) == bool(copies)


def limited(random: Random) -> Instance:
    """Draw an instance whose hosts are to hold about what its states need, or less."""
    tree = flat(random_tiny_instance(random, most_gpus=3))
    tree["workload"]["costs"] |= {"precision": "bf16_mixed", "offload": ON_HOSTS}
    for gpu in tree["cluster"]["gpus"].values():
        gpu |= {"memory_gbytes_per_s": 1000, "host_gbytes_per_s": 10}
    data = Instance.model_validate(tree, strict=False)
    model = data.model
    whole = 16 * (sum(model.parameters) + 2 * model.embedding_parameters) / 2**30
    for node in tree["cluster"]["nodes"]:
        node["host_gib"] = random.choice([None, 0.2, 0.4, 0.6, 1.1])
        if node["host_gib"] is not None:
            node["host_gib"] *= whole
    return Instance.model_validate(tree, strict=False)


@examples(6)
@given(drawn(limited))
def test_proofs_hold_where_hosts_are_full(data: Instance) -> None:
    """Beside all plans: no bound above the best, no refusal of what there is."""
    several = max(data.workload.micro_batch_sizes) > 1
    best = best_training_plan(data, several_replicas=several)
    found = exact.solve(data, limits=Limits(time_s=1))
    if found.plan is not None:
        assert not training_plan.evaluate(data, found.plan).violations
    if best is None:
        assert found.plan is None
        return
    assert impossible.reason(data) is None
    assert training_plan_bound(data).value <= best[0]
    assert found.status is not Status.INFEASIBLE
    assert found.bound is None or found.bound.value <= best[0]
    assert found.plan is None or found.objective >= best[0]
    if found.status is Status.OPTIMAL:
        assert found.objective == best[0]
