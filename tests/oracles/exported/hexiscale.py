"""HexiScale's files: its rules, and the plan that it would run."""

import re
from typing import Any

from hetopt.errors import InstanceError
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.text.parsing import parse_tree

from .grid import HOST

CONFIG, MACHINES, LAUNCH = "hetero_configs.json", "machines", "launch.sh"


def validate(files: dict[str, str]) -> list[str]:
    """Rules of `validate_args` that the files break."""
    config, hosts = _config(files), _hosts(files)
    layers = _numbers(files, "layer-num")[0]
    counts, batches = (
        _numbers(files, "micro_batch_num"),
        _numbers(files, "global_batch_size"),
    )
    degrees, devices = config["hetero_configs"], config["devices_id"]
    cuts = config["layer_partitions"]
    broken = []
    for i, cut in enumerate(cuts):
        if sum(cut) != layers:
            broken.append(f"pipeline {i} has {sum(cut)} layers, not {layers}")
    lengths = {len(part) for part in (degrees, cuts, devices, counts, batches)}
    if len(lengths) > 1:
        return [*broken, f"the lists are of {sorted(lengths)} pipelines"]
    for i, (row, cut, held) in enumerate(zip(degrees, cuts, devices, strict=True)):
        if len(row) != len(cut) or row != list(map(len, held)):
            broken.append(f"pipeline {i} has other stages in its lists")
        if any(len(set(stage)) > 1 for stage in held):
            broken.append(f"pipeline {i} has a stage on several machines")
    for i, (count, batch) in enumerate(zip(counts, batches, strict=True)):
        if batch % count:
            broken.append(f"pipeline {i} cuts a batch of {batch} into {count}")
    used = {number for held in devices for stage in held for number in stage}
    if used != set(range(len(hosts))):
        broken.append(f"machines {sorted(used)} are used, {len(hosts)} are listed")
    return broken


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that HexiScale would run: pipelines of one replica a stage."""
    config, hosts = _config(files), _hosts(files)
    counts, batches = (
        _numbers(files, "micro_batch_num"),
        _numbers(files, "global_batch_size"),
    )
    used = [0] * len(hosts)
    pipelines = []
    for cut, held, count, batch in zip(
        config["layer_partitions"], config["devices_id"], counts, batches, strict=True
    ):
        stages, first = [], 0
        for layers, machines in zip(cut, held, strict=True):
            gpus = []
            for number in machines:
                gpus.append(f"{hosts[number]}:{used[number]}")
                used[number] += 1
            replica = Replica(gpus=tuple(gpus), samples=batch // count)
            stages.append(Stage(layers=(first, first + layers), replicas=(replica,)))
            first += layers
        pipelines.append(
            Pipeline(
                micro_batches=count,
                micro_batch_size=batch // count,
                stages=tuple(stages),
            )
        )
    return TrainingPlan(pipelines=tuple(pipelines))


def _config(files: dict[str, str]) -> dict[str, Any]:
    return parse_tree(files[CONFIG], CONFIG, is_json=True)


def _hosts(files: dict[str, str]) -> list[str]:
    found = []
    for number, line in enumerate(files[MACHINES].splitlines()):
        match = re.fullmatch(rf"{number} (?P<host>{HOST})", line)
        if match is None:
            raise InstanceError(f"{MACHINES}: found {line!r}, expected `{number} HOST`")
        found.append(match["host"])
    return found


def _numbers(files: dict[str, str], name: str) -> list[int]:
    match = re.search(rf"--{name}((?: [1-9][0-9]*)+) ", files[LAUNCH])
    if match is None:
        raise InstanceError(f"{LAUNCH}: found no --{name} with numbers, expected some")
    return [int(word) for word in match[1].split()]
