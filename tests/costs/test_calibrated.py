"""Calibrated times: tables, judge, searches, bounds and exact methods agree."""

from random import Random
from typing import Any

import pytest
from calibrated_floats import FloatTimes
from flat import flat
from hypothesis import given
from inputs import drawn, examples
from random_calibrations import calibrated
from random_pipelines import random_instance

from hetopt.costs import CostTable
from hetopt.errors import InstanceError
from hetopt.schema import Instance


def usual(random: Random) -> Instance:
    """Of some nodes and layers, with calibrated times."""
    return calibrated(random, random_instance(random))


@examples(15)
@given(drawn(usual))
def test_tables_are_the_physics_of_each_layer_rounded_up(instance: Instance) -> None:
    for rule in ("full", "selective", "none"):
        table, floats = CostTable(instance).under(rule), FloatTimes(instance, rule)
        for node in instance.planned_cluster.nodes:
            for t, b in ((1, 1), (node.count, 3)):
                at = (node.name, t, b)
                for layer, us in enumerate(table.layer_us(*at)):
                    near(us, floats.layer(layer, *at))
                for layer, us in enumerate(table.backward_us(*at)):
                    near(us, floats.layer(layer, *at, behind=True))
                if instance.workload.costs.head == "include":
                    near(table.head_us(*at), floats.head(*at))


def near(us: int, seconds: float) -> None:
    exactly = 1e6 * seconds
    assert exactly - 1e-6 * exactly - 1e-6 <= us <= 1 + exactly + 1e-6 * exactly


@examples(15)
@given(drawn(usual))
def test_more_samples_take_longer_and_each_of_them_less(instance: Instance) -> None:
    table = CostTable(instance)
    for node in instance.planned_cluster.nodes:
        for t in range(1, node.count + 1):
            for b in range(1, 5):
                some, more = (
                    [
                        *table.layer_us(node.name, t, size),
                        table.head_us(node.name, t, b),
                    ]
                    for size in (b, b + 1)
                )
                for one, other in zip(some, more, strict=True):
                    assert one <= other
                    # Rounded up, times are up to 1 us longer.
                    assert (other - 1) / (b + 1) <= one / b


def two_links() -> Instance:
    """Two nodes of one type of GPU; the links within them differ."""
    tree = usual(Random(1)).model_dump(mode="json")
    node = tree["cluster"]["nodes"][0] | {"count": 4, "intra_gbytes_per_s": 5}
    other = node | {"name": "fast", "intra_gbytes_per_s": 500}
    tree["cluster"]["nodes"] = [node, other]
    tree["cluster"]["inter"] = {"gbytes_per_s": 5}
    return Instance.model_validate(tree, strict=False)


def test_links_within_nodes_tell_groups_apart() -> None:
    table = CostTable(two_links())
    slow, fast = (table.layer_us(node, 4, 1) for node in table.cluster.node)
    assert all(x > y for x, y in zip(slow, fast, strict=True))
    assert len(set(table.node_class.values())) == 2


def test_a_constant_that_is_missing_is_named() -> None:
    tree = flat(two_links())
    del tree["workload"]["costs"]["calibration"]["constants"]["product.rows"]
    broken = Instance.model_validate(tree, strict=False)
    with pytest.raises(InstanceError, match=r"found no 'product\.rows'"):
        CostTable(broken).layer_us("fast", 1, 1)


NEEDED = ("card", "generation", "peaks", "memory_gbytes_per_s")


@pytest.mark.parametrize(
    ("card", "costs", "message"),
    [
        *(({field: None}, {}, f"has no {field}: add it") for field in NEEDED),
        ({"peaks": {"fp8": 100.0}}, {}, r"peaks for fp8.* multiplies in bf16"),
        ({}, {"layer_times": "analytic"}, "costs has a calibration: give both"),
    ],
)
def test_calibrated_times_need_all_of_their_parts(
    card: dict[str, Any], costs: dict[str, Any], message: str
) -> None:
    tree = flat(two_links())
    for gpu in tree["cluster"]["gpus"].values():
        gpu |= card
    tree["workload"]["costs"]["calibration"]["precision"] = "bf16"
    tree["workload"]["costs"] |= costs
    with pytest.raises(ValueError, match=message):
        Instance.model_validate(tree, strict=False)
