"""The integer tables against the same formulas in plain floats."""

import math
from itertools import product
from random import Random

import pytest
from float_judge import FloatJudge

from hetopt.costs import CostTable
from hetopt.costs.offers import provisioning_data
from hetopt.files import load_instance
from hetopt.files.clusters import generate
from hetopt.schema import CostSettings, Instance

MIB = 2**20
FAMILIES = ("equal", "unequal", "islands", "tight_memory", "steep")
SETTINGS = [
    CostSettings(),
    CostSettings(recompute="none"),
    CostSettings(recompute="none", flash=True),
    CostSettings(flash=True, sequence_parallel=True),
    CostSettings(head="omit", activations="checkpoint", in_flight="one"),
    CostSettings(in_flight="gpipe", bytes_per_parameter=20, reserve_mib=777),
    CostSettings(sync="bottleneck", sync_overlap="backward"),
    CostSettings(precision="fp32", recompute="none"),
    CostSettings(recompute="selective", sequence_parallel=True, zero=3),
    CostSettings(precision="bf16_fp32_gradients", interleave=3, fused_loss=True),
]


def instances() -> list[Instance]:
    return [
        generate(family, seed=seed, costs=costs)
        for seed, (family, costs) in enumerate(product(FAMILIES, SETTINGS))
    ]


def rounded_up(found: int, value: float, terms: int = 1) -> bool:
    """Whether `found` is `value` with each of its terms rounded up once."""
    slack = 1e-9 * abs(value) + 1e-6
    return value - slack <= found < value + terms + slack


def places(instance: Instance) -> list[tuple[str, int]]:
    nodes = instance.planned_cluster.nodes
    return [(n.name, t) for n in nodes for t in range(1, n.count + 1)]


@pytest.mark.parametrize("instance", instances(), ids=lambda i: i.name)
def test_times_of_layers_head_and_hops_are_the_formulas_rounded_up(
    instance: Instance,
) -> None:
    table, floats = CostTable(instance), FloatJudge(instance)
    share = 3 / 4 if instance.workload.costs.recompute == "full" else 2 / 3
    for (node, t), b in product(places(instance), (1, 2, 5)):
        for layer, found in enumerate(table.layer_us(node, t, b)):
            assert rounded_up(found, 1e6 * floats.layer(layer, node, t, b))
            assert rounded_up(table.backward_us(node, t, b)[layer], share * found)
        assert rounded_up(table.head_us(node, t, b), 1e6 * floats.head(node, t, b))
        for sender in instance.planned_cluster.nodes:
            if sender.name != node or sender.count > 1:
                for by in range(1, sender.count + 1):
                    value = 1e6 * floats.hop((sender.name, by), (node, t), b)
                    found = table.hop_us(sender.name, node, t, b, by)
                    assert rounded_up(found, value)


@pytest.mark.parametrize("instance", instances(), ids=lambda i: i.name)
def test_synchronisation_is_the_formula_rounded_up(instance: Instance) -> None:
    table, floats, rng = CostTable(instance), FloatJudge(instance), Random(1)
    for _ in range(30):
        free = {n.name: n.count for n in instance.planned_cluster.nodes}
        holders = []
        for node, t in rng.sample(places(instance), len(places(instance))):
            if t <= free[node]:
                free[node] -= t
                holders.append((node, t))
        del holders[rng.randint(1, len(holders)) :]
        parameters = rng.choice(instance.model.parameters)
        value = 1e6 * floats.sync(parameters, holders)
        assert rounded_up(table.sync_us(parameters, holders), value)


def test_memory_of_a_gpu_is_rounded_down() -> None:
    for instance in instances():
        table = CostTable(instance)
        for node in instance.planned_cluster.nodes:
            gib = instance.planned_cluster.gpus[node.gpu].memory_gib
            assert table.memory_mib(node.name) == math.floor(gib * 1024 + 1e-9)


def test_offers_price_a_layer_by_the_same_formulas() -> None:
    instance = load_instance("espresso/llama-7b")
    found = provisioning_data(instance)
    s, h, p = 4096, 3200, 12 * 3200**2
    for offer, row in zip(instance.offers, found["offers"], strict=True):
        speed = offer.peak_tflops * 1e12 * offer.efficiency
        for d in (1, 2, 4, 8):
            b = 32 / 4 / d
            both = 1e6 * 4 * (2 * p * b * s + 4 * b * s * s * h) / speed
            times = row["by_data_parallel"][str(d)]
            assert rounded_up(times["backward_us"], 0.75 * both)
            assert rounded_up(times["forward_us"], 0.25 * both)
            wire = 2 * (d - 1) * 2 * p / (d * offer.gbytes_per_s * 1e9)
            assert rounded_up(times["sync_us"], 1e6 * wire)
        assert rounded_up(row["layer_mib"], 16 * p / MIB)
        assert rounded_up(row["in_flight_mib"], 2 * 8 * s * h / MIB)
        recomputed_once = 8 * s * h * 34 / MIB
        room = offer.memory_gib * 1024 - recomputed_once
        assert row["memory_mib"] == math.floor(room)
