"""Files for Accelerate: ranks of its configuration, and the plan that makes."""

import re
from typing import Any

import yaml

from hetopt.errors import InstanceError
from hetopt.plans import TrainingPlan

from .grid import HOST, Parts, gpus_of, twice_held
from .replicas import plan_of
from .transformers import ARGUMENTS, LAUNCH, SHARE

CONFIG = "accelerate.yaml"


def _parts(files: dict[str, str]) -> Parts:
    pattern = (
        rf'ssh -ntt (?P<host>{HOST}) "\$here CUDA_VISIBLE_DEVICES=(?P<gpus>[0-9,]+) '
        r"accelerate launch --config_file accelerate\.yaml "
        r"--machine_rank (?P<rank>\d+) "
    )
    found = list(re.finditer(pattern, files[LAUNCH]))
    if [int(match["rank"]) for match in found] != [*range(len(found))]:
        raise InstanceError(f"{LAUNCH}: found machines out of order")
    return [(one["host"], [int(x) for x in one["gpus"].split(",")]) for one in found]


def validate(files: dict[str, str]) -> list[str]:
    """Rules of `accelerate launch` that the files break."""
    config: dict[str, Any] = yaml.safe_load(files[CONFIG])
    parts = _parts(files)
    broken = twice_held(parts)
    machines, ranks = config["num_machines"], config["num_processes"]
    if machines != len(parts) or len({host for host, _ in parts}) != machines:
        broken.append("hosts are not the machines of the configuration")
    # `nproc_per_node` is ranks // machines (accelerate/utils/launch.py).
    if any(len(gpus) != ranks // machines for _, gpus in parts) or ranks % machines:
        broken.append("a host has another number of GPUs than accelerate starts")
    if config["main_process_ip"] != parts[0][0]:
        broken.append("the first rank is elsewhere")
    if (config["distributed_type"] == "FSDP") != ("fsdp_config" in config):
        broken.append("FSDP without its settings, or the reverse")
    return broken


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that Accelerate would run."""
    told = yaml.safe_load(files[ARGUMENTS])
    share = [told[name] for name in SHARE]
    return plan_of((gpu, *share, None) for gpu in gpus_of(_parts(files)))
