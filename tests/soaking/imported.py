"""Instances that importers make of drawn files, as `training_plan` checks them.

Metis's profiles, and `hetopt plan --config --from hostfile`,
whose workload has all cost settings drawn.
"""

import json
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import drawing
from claims import refuted, solved

from hetopt import formats
from hetopt.errors import InstanceError
from hetopt.formats.assembling import Listed, assembly
from hetopt.schema import Instance
from hetopt.text.complaints import validated

Tree = dict[str, Any]

WEIGHT = 20

_HOSTS = [[1, 1], [1, 1], [2], [1, 2], [1, 1, 1]]
_PATHS = ("hostfile", "clusterfile", "memory_info")  # options that name a file


def draw(rng: Random) -> Tree:
    """Files by name, those that are read first, options; and the format."""
    format = rng.choice(sorted(_FORMATS))
    return {"format": format, **_FORMATS[format](rng)}


def check(data: Tree) -> str:
    """Write the files, read them, and hold the proof against every plan."""
    with TemporaryDirectory() as name:
        try:
            read = _read(Path(name), data)
        except InstanceError:  # a speed of 0 is refused, and sizes beyond the batch
            return f"{data['format']}: refused"
    instance = validated(Instance, read, "imported")
    word = refuted(instance, solved(instance, warm=False, time_s=0.2))
    return f"{data['format']}: {word}"


def _read(folder: Path, data: Tree) -> Tree:
    for file, held in data["files"].items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(held if isinstance(held, str) else json.dumps(held))
    paths = [folder / path for path in data["paths"]]
    options = {k: v for k, v in data["options"].items() if v is not None}
    if data["format"] == "assembled":
        told = [f"{name}={value}" for name, value in options.items()]
        return assembly(
            paths[0], Listed("hostfile", paths[1:]), told, data["workload"]
        ).document
    options |= {k: folder / v for k, v in options.items() if k in _PATHS}
    made: Tree = formats.importer(data["format"]).read(paths, **options)
    return made


# --- what the formats share ---------------------------------------------------------


def _cluster(rng: Random) -> tuple[list[int], list[str]]:
    slots = rng.choice(_HOSTS)
    return slots, [rng.choice(["X90", "Y10"]) for _ in slots]


def _hostfile(slots: list[int], kinds: list[str] | None = None) -> str:
    types = [""] * len(slots) if kinds is None else [f" type={kind}" for kind in kinds]
    return "".join(
        f"10.0.0.{i} slots={n}{kind}\n"
        for i, (n, kind) in enumerate(zip(slots, types, strict=True))
    )


def _asked(rng: Random) -> Tree:
    return {
        "hidden": 512,
        "heads": 8,
        "sequence_length": 256,
        "global_batch": rng.choice([1, 2, 3, 4]),
        "micro_batches": rng.choice([None, "1", "1", "2", "1,2", "3"]),
        "in_flight": rng.choice([None, "one"]),
    }


def _links(rng: Random, kinds: list[str]) -> Tree:
    figures = rng.choice(["100/0.05", "100/0.2", "20/0.6", "37.5/8"])
    return {
        "types": ",".join(f"{kind}:{figures}" for kind in sorted(set(kinds))),
        "inter_gbytes_per_s": rng.choice([0.1, 5.0]),
        "intra_gbytes_per_s": rng.choice([5.0, 50.0]),
    }


def _times(rng: Random, layers: int, unit: float) -> list[float]:
    times = [rng.choice([0.001, 0.25, 1.58, 7.0]) * unit for _ in range(layers)]
    if rng.random() < 0.2:
        times[rng.choice([0, -1, 1])] = 0
    return times


def _measured(rng: Random, slots: list[int]) -> list[tuple[int, int]]:
    """Degrees and sizes; some are missing."""
    sizes = rng.choice([[1], [1, 2], [2], [1, 2, 4]])
    return [
        (t, b)
        for t in range(1, max(slots) + 1)
        for b in sizes
        if (t, b) == (1, sizes[0]) or rng.random() < 0.85
    ]


# --- formats ------------------------------------------------------------------------


def _metis(rng: Random) -> Tree:
    slots, kinds = _cluster(rng)
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
    weighed = rng.random() < 0.7
    profiles = {
        f"profiles/DeviceType.{kind}_tp{t}_bs{b}.json": _profile(
            rng, parameters, weighed
        )
        for kind in sorted(set(kinds))
        for t, b in _measured(rng, slots)
    }
    options = {
        "hostfile": "hostfile",
        "clusterfile": "cluster.json",
        "bandwidth_unit": "bytes/s",
        "parameter_unit": "elements",
        **_asked(rng),
        "memory": rng.choice([None, "formula"]),
    }
    files = {"hostfile": _hostfile(slots), "cluster.json": cluster, **profiles}
    return {"files": files, "paths": ["profiles"], "options": options}


def _profile(rng: Random, parameters: list[int], weighed: bool) -> Tree:
    memory = [rng.choice([0.0, 23.5, 79.0]) for _ in parameters]
    times = _times(rng, len(parameters), 1)
    return {
        "model": {
            "model_name": "drawn",
            "parameters": {"parameters_per_layer_bytes": parameters},
        },
        "execution_time": {"layer_compute_total_ms": times},
        "execution_memory": {"layer_memory_total_mb": memory} if weighed else {},
    }


def _assembled(rng: Random) -> Tree:
    slots, kinds = _cluster(rng)
    layers, batch = rng.choice([1, 1, 2, 3]), rng.choice([1, 2, 3, 4])
    config = {
        "model_type": "llama",
        "hidden_size": 512,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": rng.choice([1, 4, 8]),
        "intermediate_size": rng.choice([1, 700, 2048]),
        "vocab_size": rng.choice([1, 2000, 20_000]),
        "hidden_act": "silu",
        "tie_word_embeddings": rng.random() < 0.5,
    }
    files = {"config.json": config, "hostfile": _hostfile(slots, kinds)}
    sizes = rng.choice([(1,), (1,), (1, 2), (2,)])
    return {
        "files": files,
        "paths": ["config.json", "hostfile"],
        # The smallest of these GPUs have less than is reserved of a real one.
        "options": {**_links(rng, kinds), "reserve_mib": 0},
        "workload": drawing.workload(rng, layers=layers, batch=batch, sizes=sizes),
    }


_FORMATS = {
    "assembled": _assembled,
    "metis": _metis,
}
