"""Files for transformers' Trainer: what each rank is told, and the plan that makes."""

import json
from typing import Any

import yaml

from hetopt.plans import TrainingPlan

from .grid import gpus_of, torchrun_parts, twice_held
from .replicas import plan_of

ARGUMENTS, RANKS, LAUNCH = "arguments.yaml", "ranks.json", "launch.sh"
SHARE = ("per_device_train_batch_size", "gradient_accumulation_steps")


def told(files: dict[str, str]) -> list[dict[str, Any]]:
    """What every rank is told: its own before what all are."""
    given = yaml.safe_load(files[ARGUMENTS])
    return [{**given, **rank} for rank in json.loads(files[RANKS])["ranks"]]


def validate(files: dict[str, str]) -> list[str]:
    """Rules of FSDP, of ranks and of what all are told that the files break."""
    ranks, parts = told(files), torchrun_parts(files[LAUNCH], LAUNCH)
    broken = twice_held(parts)
    if [rank["gpu"] for rank in ranks] != gpus_of(parts):
        broken.append("torchrun starts other GPUs than those of the ranks")
    if ranks[0].get("fsdp"):
        if len({rank[SHARE[1]] for rank in ranks}) > 1:
            broken.append("ranks of FSDP do different numbers of micro-batches")
        if any(rank["gradient_checkpointing"] for rank in ranks):
            broken.append("both FSDP and the trainer recompute")
    given = yaml.safe_load(files[ARGUMENTS])
    for name in SHARE:
        if name in given and any(rank[name] != given[name] for rank in ranks):
            broken.append(f"{name} differs")
    return broken


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that Trainer would run."""
    return plan_of(
        (rank["gpu"], *(rank[x] for x in SHARE), None) for rank in told(files)
    )
