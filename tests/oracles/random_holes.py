"""Random instances of every cost setting, and profiles that lack measurements."""

from random import Random

from random_pipelines import random_instance
from random_profiles import profiled

from hetopt.schema import Instance, ungroup_fields


def random_setting(random: Random) -> Instance:
    """An analytic instance under random settings, its micro-batches of any sizes."""
    sizes = random.choice([(1,), (2,), (1, 2), (2, 4), (3,), (1, 2, 3)])
    return _with(random_instance(random, later=True), micro_batch_sizes=sizes)


def with_holes(random: Random) -> Instance:
    """The same with a profile of which any part was measured, but at least one row."""
    memory = random.choice(["none", "none", "layers", "parts", "windows"])
    instance = profiled(random, random_setting(random), memory=memory)
    rows = instance.workload.costs.profile
    share = random.choice([0.1, 0.5, 0.9])
    kept = [row for row in rows if random.random() < share] or [random.choice(rows)]
    costs = ungroup_fields(instance.workload.costs.model_dump()) | {
        "profile": tuple(kept)
    }
    return _with(instance, costs=costs)


def _with(instance: Instance, **fields: object) -> Instance:
    workload = instance.workload.model_dump() | fields
    document = instance.model_dump() | {"workload": workload}
    return Instance.model_validate(document, strict=False)


def with_idle_layers(random: Random) -> Instance:
    """The same, and some or all layers of some rows take no time at all."""
    instance = with_holes(random)
    rows = []
    for row in instance.workload.costs.profile:
        spared = random.choice([0.0, 0.3, 1.0])
        at = [random.random() >= spared for _ in row.layer_us]
        each = tuple(us * busy for us, busy in zip(row.layer_us, at, strict=True))
        bare = {"forward_us": None, "backward_us": None}
        rows.append(row.model_dump() | bare | {"layer_us": each})
    costs = ungroup_fields(instance.workload.costs.model_dump()) | {
        "profile": tuple(rows)
    }
    return _with(instance, costs=costs)
