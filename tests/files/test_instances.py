"""The instance library: every file loads, and its families are what they say."""

import re
from pathlib import Path

import pytest
from places import INSTANCES

from hetopt import problems
from hetopt.costs import CostTable
from hetopt.files import instance_names, load_instance, load_plan, load_problem
from hetopt.files.clusters import generate


@pytest.mark.parametrize("name", instance_names())
def test_every_instance_carries_its_name_its_source_and_its_costs(name: str) -> None:
    instance = load_instance(name)
    assert instance.name == name
    assert instance.source
    if instance.cluster is None:
        assert load_problem(name)[0] == "provisioning"
        return
    table = CostTable(instance)
    node = instance.cluster.nodes[0].name
    times = table.layer_us(node, 1, instance.workload.micro_batch_sizes[0])
    assert len(times) == instance.model.layers
    assert all(0 < us < 10**9 for us in times)


@pytest.mark.parametrize("path", sorted(INSTANCES.glob("*/*.plan.json")), ids=str)
def test_every_plan_of_the_library_is_accepted_by_the_judge(path: Path) -> None:
    problem, data, plan = load_plan(path)
    assert problems.get(problem).evaluate(data, plan).valid


def test_every_family_is_described_in_the_readme() -> None:
    readme = (INSTANCES / "README.md").read_text()
    for family in sorted({name.partition("/")[0] for name in instance_names()}):
        assert re.search(rf"^## .*`{family}/", readme, re.MULTILINE)


# --- generated instances ---------------------------------------------------------


def test_families_are_what_they_say() -> None:
    for seed in range(20):
        equal = generate("equal", size="small", seed=seed).planned_cluster
        assert len({(n.gpu, n.count) for n in equal.nodes}) == 1
        assert (
            len(generate("unequal", size="small", seed=seed).planned_cluster.gpus) > 1
        )
        inter = generate("islands", size="medium", seed=seed).planned_cluster.inter
        assert inter.pairs
        assert all(p.gbytes_per_s > (inter.gbytes_per_s or 0) for p in inter.pairs)
        steep = generate("steep", seed=seed).model.parameters
        assert steep == tuple(sorted(steep))
        assert steep[-1] > 1.5 * steep[0]
        assert generate("offers", seed=seed).offers


def test_tight_memory_holds_the_states_once_and_hardly_more() -> None:
    for seed in range(20):
        instance = generate("tight_memory", seed=seed)
        costs, model = instance.workload.costs, instance.model
        ends = 2 * model.embedding_parameters if costs.head == "include" else 0
        states = costs.bytes_per_parameter * (sum(model.parameters) + ends)
        cluster = instance.planned_cluster
        room = sum(cluster.gpus[n.gpu].memory_gib * n.count for n in cluster.nodes)
        assert 1.05 < room * 2**30 / states < 1.65
