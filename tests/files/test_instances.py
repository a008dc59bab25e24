"""The instance library: every file loads, and holds the papers' figures."""

import re
from pathlib import Path

import pytest
from places import INSTANCES

from hetopt import problems
from hetopt.costs import CostTable
from hetopt.files import instance_names, load_instance, load_plan, load_problem
from hetopt.files.clusters import FAMILIES, generate


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


@pytest.mark.parametrize(
    ("name", "gpus", "peak_tflops", "parameters", "batch"),
    [
        ("setting-1-llama2-7b", 40, 8 * (56.9 + 80 + 3 * 165.2), 6.44e9, 512),
        ("setting-1-llama2-13b", 40, 8 * (56.9 + 80 + 3 * 165.2), 12.58e9, 512),
        ("setting-2-llama2-7b", 32, 8 * (56.9 + 80 + 165.2 + 312), 6.44e9, 512),
        ("setting-3-llama-30b", 56, 16 * 80 + 32 * 165.2 + 8 * 312, 31.9e9, 1024),
        ("large-240-llama-30b", 240, 64 * 80 + 160 * 165.2 + 16 * 312, 31.9e9, 4096),
        ("large-240-llama2-70b", 240, 64 * 80 + 160 * 165.2 + 16 * 312, 64.4e9, 4096),
        ("homogeneous-rdma-llama2-7b", 16, 16 * 312, 6.44e9, 512),
        ("homogeneous-ethernet-llama-30b", 32, 32 * 312, 31.9e9, 1024),
        ("case-study", 8, 3 * 312 + 3 * 165.2 + 2 * 80, 12.58e9, 24),
    ],
)
def test_hexiscale_settings_have_the_papers_gpus_flops_and_models(
    name: str, gpus: int, peak_tflops: float, parameters: float, batch: int
) -> None:
    instance = load_instance(f"hexiscale/{name}")
    assert instance.planned_cluster.gpu_count == gpus
    peak = float(CostTable(instance).peak_flops_per_s)
    assert peak == pytest.approx(peak_tflops * 1e12)
    assert sum(instance.model.parameters) == pytest.approx(parameters, rel=0.002)
    assert instance.workload.global_batch == batch


def test_espresso_quotas_are_56_gpus_and_its_layers_those_of_table_4() -> None:
    # Table IV counts the embedding, the norm and the head (ViT: one more) as layers.
    layers = {"llama-1.3b": 26 - 3, "llama-3b": 45 - 3, "llama-7b": 61 - 3}
    for name, count in (layers | {"vit": 70 - 4}).items():
        for network in ("", "-fast-network"):
            instance = load_instance(f"espresso/{name}{network}")
            assert sum(offer.quota for offer in instance.offers) == 56
            assert instance.model.layers == count


def test_the_library_has_instances_without_a_plan_too() -> None:
    instance = load_instance("tiny/infeasible")
    need = 16 * sum(instance.model.parameters)
    cluster = instance.planned_cluster
    room = sum(cluster.gpus[n.gpu].memory_gib * n.count for n in cluster.nodes)
    assert need > room * 2**30


# --- generated instances ---------------------------------------------------------


@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_instances_are_small_enough_to_enumerate(family: str) -> None:
    for seed in range(40):
        instance = generate(family, seed=seed)
        assert 3 <= instance.model.layers <= 8
        if instance.cluster is not None:
            assert 2 <= len(instance.cluster.nodes) <= 3
            assert instance.cluster.gpu_count <= 8


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
