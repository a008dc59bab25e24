"""DeepSpeed's files: its rules, and the plan that it would run."""

import re
from itertools import pairwise
from typing import Any

from hetopt.errors import InstanceError
from hetopt.plans import TrainingPlan
from hetopt.text.parsing import parse_tree

from .grid import HOST, gpus_of, staged
from .literals import assigned

MODULE, CONFIG = "pipeline_plan.py", "ds_config.json"
HOSTS, LAUNCH = "hostfile", "launch.sh"


def validate(files: dict[str, str]) -> list[str]:
    """Rules of the batch, of the topology, of the launcher that the files break."""
    told, config = assigned(files[MODULE], MODULE), _config(files)
    cuts, degree, replicas = told["CUTS"], told["TENSOR_PARALLEL"], told["REPLICAS"]
    parts = _parts(files)
    world = len(gpus_of(parts))
    broken = []
    if world != degree * replicas * (len(cuts) - 1):
        broken.append(
            f"{world} ranks for {len(cuts) - 1} stages of {replicas} replicas of "
            f"{degree} GPUs"
        )
    if cuts[0] != 0 or any(a >= b for a, b in pairwise(cuts)):
        broken.append(f"the cuts {cuts} do not begin at 0 and increase")
    batch = config["train_micro_batch_size_per_gpu"] * replicas
    if config["train_batch_size"] != batch * config["gradient_accumulation_steps"]:
        broken.append(
            f"train_batch_size is {config['train_batch_size']}, not micro-batch x "
            "accumulation steps x replicas"
        )
    hosts = [host for host, _ in parts]
    if len(set(hosts)) < len(hosts):
        broken.append("a host is named twice")
    return broken


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that DeepSpeed would run: one pipeline, replicas side by side."""
    told, config = assigned(files[MODULE], MODULE), _config(files)
    cuts = told["CUTS"]
    layers = [b - a for a, b in pairwise(cuts)]
    samples = config["train_micro_batch_size_per_gpu"]
    shape = (told["TENSOR_PARALLEL"], told["REPLICAS"], samples)
    steps = config["gradient_accumulation_steps"]
    return staged(gpus_of(_parts(files)), layers, [shape] * len(layers), steps)


def _config(files: dict[str, str]) -> dict[str, Any]:
    return parse_tree(files[CONFIG], CONFIG, is_json=True)


def _parts(files: dict[str, str]) -> list[tuple[str, list[int]]]:
    """Hosts in the order of the hostfile with the GPUs that `--include` names."""
    match = re.search(r'--include "([^"]+)"', files[LAUNCH])
    if match is None:
        raise InstanceError(f"{LAUNCH}: found no --include, expected one")
    held = {}
    for word in match[1].split("@"):
        one = re.fullmatch(rf"(?P<host>{HOST}):(?P<gpus>[0-9]+(,[0-9]+)*)", word)
        if one is None:
            raise InstanceError(f"{LAUNCH}: found {word!r}, expected HOST:GPU,GPU")
        # `parse_inclusion_exclusion` sorts them (0.19.8).
        held[one["host"]] = sorted(int(index) for index in one["gpus"].split(","))
    parts = []
    for line in files[HOSTS].splitlines():
        one = re.fullmatch(rf"(?P<host>{HOST}) slots=(?P<slots>[0-9]+)", line)
        if one is None or one["host"] not in held:
            raise InstanceError(f"{HOSTS}: found {line!r}, expected an included host")
        if any(index >= int(one["slots"]) for index in held[one["host"]]):
            raise InstanceError(f"{HOSTS}: {one['host']} has no GPU that is included")
        parts.append((one["host"], held[one["host"]]))
    return parts
