"""Random profiles for random instances: uneven layers, memory in several ways."""

from random import Random
from typing import Any

from hetopt.schema import Instance, ungroup_fields


def profiled(random: Random, instance: Instance, *, memory: str) -> Instance:
    """The instance with measured layers; `memory` is none, layers or parts.

    Measured memory is free of any order: it may well grow with the degree. Sizes 1 and
    2 are measured at every degree of a node; 3 is left to the binary digits. Layers
    take up to a share of a GPU, the same share everywhere, which may be too much.
    """
    cluster = instance.planned_cluster
    most = {
        gpu: max(node.count for node in cluster.nodes if node.gpu == gpu)
        for gpu in cluster.gpus
    }
    full = random.choice([0.3, 0.8, 1.6])
    rows = tuple(
        _row(
            random,
            gpu,
            t,
            b,
            instance.model.layers,
            int(cluster.gpus[gpu].memory_gib * 1024 * full),
            memory,
        )
        for gpu, degrees in most.items()
        for t in range(1, degrees + 1)
        for b in (1, 2)
    )
    costs = ungroup_fields(instance.workload.costs.model_dump()) | {
        "layer_times": "profile",
        "profile": rows,
        "calibration": None,
    }
    if memory != "none":
        costs["zero"] = 0  # measured states are not divided
    workload = instance.workload.model_dump() | {"costs": costs}
    return Instance.model_validate(
        instance.model_dump() | {"workload": workload}, strict=False
    )


def _row(
    random: Random, gpu: str, t: int, b: int, layers: int, share: int, memory: str
) -> dict[str, Any]:
    forward = [int(random.randint(200, 900) * b / t) for _ in range(layers)]
    backward = [int(us * random.uniform(1.5, 2.5)) for us in forward]
    row: dict[str, Any] = {"gpu": gpu, "tensor_parallel": t, "micro_batch": b}
    row["layer_us"] = [f + w for f, w in zip(forward, backward, strict=True)]
    if random.random() < 0.5:
        row["backward_us"] = backward
    if memory == "none":
        return row
    row["layer_mib"] = [random.randint(share // 2, share + 4) for _ in range(layers)]
    if memory == "parts":
        row["activation_mib"] = [
            random.randint(0, mib // 2) for mib in row["layer_mib"]
        ]
    return row
