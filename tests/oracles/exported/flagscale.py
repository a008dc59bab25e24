"""FlagScale's files: its rules, and the plan that it would run."""

import re
from typing import Any

from hetopt.errors import InstanceError
from hetopt.plans import TrainingPlan
from hetopt.text.parsing import parse_tree

from .grid import HOST, staged

TRAIN, HOSTS = "train/plan.yaml", "hostfile"


def validate(files: dict[str, str]) -> list[str]:
    """Rules of `pre_validate_args` and of the rank mapper that the files break."""
    system, model = _parsed(files)
    hetero = system["hetero"]
    flat, split = hetero["hetero_process_meshes"], hetero["hetero_pipeline_layer_split"]
    types = hetero["hetero_device_types"]
    if len(flat) % 5:
        return [f"hetero_process_meshes has {len(flat)} numbers, no multiple of 5"]
    meshes = [flat[i : i + 5] for i in range(0, len(flat), 5)]
    broken = []
    stages = system["pipeline_model_parallel_size"]
    if sum(mesh[4] for mesh in meshes) != stages or len(split) != stages:
        broken.append(f"meshes and split do not have {stages} stages")
    if sum(split) != model["num_layers"]:
        broken.append(f"the split has {sum(split)} layers, not {model['num_layers']}")
    if len({mesh[1] for mesh in meshes}) > 1:
        broken.append("the context-parallel sizes differ")
    batch = meshes[0][3] * model["micro_batch_size"]
    if any(batch % mesh[3] for mesh in meshes):
        broken.append(f"dp0 x micro-batch = {batch} is not divisible by every dp")
    if model["global_batch_size"] % batch:
        broken.append(f"the global batch is not divisible by {batch}")
    if len(types) != len(meshes):
        broken.append(f"{len(types)} device types for {len(meshes)} meshes")
    if hetero["hetero_current_device_type"] not in types:
        broken.append("hetero_current_device_type is not among the types")
    if (
        "untie_embeddings_and_output_weights" not in model
        and meshes[0][0] != meshes[-1][0]
    ):
        broken.append("tied embeddings on first and last stages of different degrees")
    heads = model["num_attention_heads"]
    groups = model.get("num_query_groups", heads)
    if any(heads % mesh[0] or groups % mesh[0] for mesh in meshes):
        broken.append("a degree does not divide the heads")
    return broken or _bad_types(files[HOSTS], meshes, types)


def _bad_types(hostfile: str, meshes: list[list[int]], types: list[str]) -> list[str]:
    """Every mesh must get GPUs of its own type, all of them used."""
    if unknown := sorted({kind for _, _, kind in _hosts(hostfile)} - set(types)):
        return [f"the hostfile has unknown types: {', '.join(unknown)}"]
    got = [kind for _, kind in _logical(hostfile, types)]
    want = [
        kind
        for (t, c, _, d, p), kind in zip(meshes, types, strict=True)
        for _ in range(t * c * d * p)
    ]
    return [] if got == want else ["the ranks of a mesh are not of its device type"]


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that FlagScale would run: one pipeline of all meshes."""
    system, model = _parsed(files)
    hetero = system["hetero"]
    flat = hetero["hetero_process_meshes"]
    batch = flat[3] * model["micro_batch_size"]
    shapes = [
        (flat[i], flat[i + 3], batch // flat[i + 3])
        for i in range(0, len(flat), 5)
        for _ in range(flat[i + 4])
    ]
    gpus = [gpu for gpu, _ in _logical(files[HOSTS], hetero["hetero_device_types"])]
    layers = hetero["hetero_pipeline_layer_split"]
    return staged(gpus, layers, shapes, model["global_batch_size"] // batch)


def _logical(hostfile: str, types: list[str]) -> list[tuple[str, str]]:
    """GPUs and their types in the order of FlagScale's logical ranks."""
    physical = [
        (f"{host}:{index}", kind)
        for host, slots, kind in _hosts(hostfile)
        for index in range(slots)
    ]
    return sorted(physical, key=lambda pair: types.index(pair[1]))


def _hosts(text: str) -> list[tuple[str, int, str]]:
    found = []
    for line in text.splitlines():
        match = re.fullmatch(rf"({HOST}) slots=(\d+) type=(\S+)", line)
        if match is None:
            raise InstanceError(f"{HOSTS}: found {line!r}, expected host slots= type=")
        found.append((match[1], int(match[3]), match[4]))
    return found


def _parsed(files: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    tree = parse_tree(files[TRAIN], TRAIN, is_json=False)
    return tree["system"], tree["model"]
