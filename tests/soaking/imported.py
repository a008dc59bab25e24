"""Instances that an importer makes of drawn files, as `training_plan` checks them."""

import json
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from claims import refuted, solved

from hetopt.complaints import validated
from hetopt.errors import InstanceError
from hetopt.importers import metis
from hetopt.schema import Instance

_HOSTS = [[1, 1], [2], [1, 2], [1, 1, 1]]


def draw(rng: Random) -> dict[str, Any]:
    """The files of Metis: a hostfile, a clusterfile, profiles; and the options."""
    slots = rng.choice(_HOSTS)
    kinds = [rng.choice(["X90", "Y10"]) for _ in slots]
    room = {kind: rng.choice([0.05, 0.1, 0.5, 2]) for kind in kinds}
    cluster = {
        f"10.0.0.{i}": {
            "instance_type": kind,
            "inter_bandwidth": rng.choice([1e8, 1.25e9]),
            "intra_bandwidth": rng.choice([5e9, 5e10]),
            "memory": room[kind],
        }
        for i, kind in enumerate(kinds)
    }
    layers = rng.choice([3, 3, 4])
    parameters = [rng.choice([0, 1024, 3_150_000]) for _ in range(layers)]
    degrees = range(1, max(slots) + 1)
    sizes = rng.choice([[1], [1, 2], [2], [1, 2, 4]])
    weighed = rng.random() < 0.7
    profiles = {
        f"DeviceType.{kind}_tp{t}_bs{b}.json": _profile(rng, parameters, weighed)
        for kind in sorted(set(kinds))
        for t in degrees
        for b in sizes
        if (t, b) == (1, sizes[0]) or rng.random() < 0.85
    }
    options = {
        "bandwidth_unit": "bytes/s",
        "parameter_unit": "elements",
        "hidden": 512,
        "heads": 8,
        "sequence_length": 256,
        "global_batch": rng.choice([1, 2, 3, 4]),
        "micro_batches": rng.choice([None, "1", "2", "1,2", "3"]),
        "in_flight": rng.choice([None, "one"]),
        "memory": rng.choice([None, "formula"]),
    }
    hosts = [f"10.0.0.{i} slots={n}" for i, n in enumerate(slots)]
    files = {"hostfile": hosts, "clusterfile": cluster, "profiles": profiles}
    return {**files, "options": options}


def _profile(rng: Random, parameters: list[int], weighed: bool) -> dict[str, Any]:
    times = [rng.choice([0.001, 0.25, 1.58, 7.0]) for _ in parameters]
    if rng.random() < 0.2:
        times[rng.choice([0, -1, 1])] = 0
    memory = [rng.choice([0.0, 23.5, 79.0]) for _ in parameters]
    return {
        "model": {
            "model_name": "drawn",
            "parameters": {"parameters_per_layer_bytes": parameters},
        },
        "execution_time": {"layer_compute_total_ms": times},
        "execution_memory": {"layer_memory_total_mb": memory} if weighed else {},
    }


def check(data: dict[str, Any]) -> str:
    """Write the files, read them, and hold the proof against every plan."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "profiles").mkdir()
        (folder / "hostfile").write_text("\n".join(data["hostfile"]) + "\n")
        (folder / "cluster.json").write_text(json.dumps(data["clusterfile"]))
        for file, tree in data["profiles"].items():
            (folder / "profiles" / file).write_text(json.dumps(tree))
        options = {k: v for k, v in data["options"].items() if v is not None}
        options["hostfile"] = folder / "hostfile"
        options["clusterfile"] = folder / "cluster.json"
        try:
            read = metis.read([folder / "profiles"], **options)
        except InstanceError:  # a speed of 0 is refused, and sizes beyond the batch
            return "refused"
    instance = validated(Instance, read, "imported")
    return refuted(instance, solved(instance, warm=False, time_s=0.3))
