"""Random profiles for random instances: uneven layers, memory in several ways."""

from fractions import Fraction
from math import ceil
from random import Random
from typing import Any

from hetopt.schema import Instance, Profile, ungroup_fields


def profiled(random: Random, instance: Instance, *, memory: str) -> Instance:
    """The instance with measured layers; `memory` is none, layers, parts or windows.

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
    if random.random() < 0.5:
        row |= {"forward_us": forward, "backward_us": backward}
    else:
        row["layer_us"] = [f + w for f, w in zip(forward, backward, strict=True)]
    if memory == "none":
        return row
    row["layer_mib"] = [random.randint(share // 2, share + 4) for _ in range(layers)]
    if memory == "parts":
        row["activation_mib"] = [
            random.randint(0, mib // 2) for mib in row["layer_mib"]
        ]
    if memory == "windows":
        row["window_mib"] = windows(random, row["layer_mib"])
    return row


def windows(random: Random, layer_mib: list[int]) -> list[list[int]]:
    """Runs of up to a few layers: no less than what they hold, often no more."""
    layers, most = len(layer_mib), random.randint(0, 3)
    known = {(i, i): mib for i, mib in enumerate(layer_mib)}
    for more in range(1, most + 1):
        for i in range(layers - more):
            least = max(known[i, i + more - 1], known[i + 1, i + more])
            added = random.choice([0, random.randint(0, layer_mib[i + more])])
            known[i, i + more] = least + added
    return [
        [known[i, j] for j in range(i + 1, min(i + most, layers - 1) + 1)]
        for i in range(layers)
    ]


def run_mib(row: Profile, layers: range) -> int:
    """Memory of a run in a row of a profile, by Metis's two equations."""
    found, runs = 0, _runs(row)
    k = len(runs[0]) - 1
    for m in layers:
        if m - layers.start < len(runs[layers.start]):
            found = runs[layers.start][m - layers.start]
        elif k:
            added = [runs[n][m - n] - runs[n][m - n - 1] for n in range(m - k, m)]
            found += max(added[0], ceil(Fraction(sum(added), k)))
        else:
            found += runs[m][0]
    return found


def least_added_mib(row: Profile, layer: int) -> int:
    """The least by which a layer adds to a measured run that ends with it."""
    runs = _runs(row)
    added = [
        runs[n][layer - n] - runs[n][layer - n - 1]
        for n in range(layer)
        if layer - n < len(runs[n])
    ]
    return min([runs[layer][0], *added])


def _runs(row: Profile) -> list[tuple[int, ...]]:
    windows = row.window_mib or ((),) * len(row.layer_mib or ())
    return [(a, *more) for a, more in zip(row.layer_mib or (), windows, strict=True)]
