"""Galvatron's files: its rules, and the plan that it would run."""

from itertools import pairwise
from typing import Any

from hetopt.errors import InstanceError
from hetopt.plans import TrainingPlan
from hetopt.text.parsing import parse_tree

from .grid import gpus_of, staged, torchrun_parts, twice_held

CONFIG, LAUNCH = "galvatron_config.json", "launch.sh"
_LISTS = (
    "tp_sizes_enc",
    "tp_consecutive_flags",
    "dp_types_enc",
    "use_sp",
    "cp_sizes_enc",
    "checkpoint",
)


def validate(files: dict[str, str]) -> list[str]:
    """Rules of `check_hp_config` and of the batch that the files break."""
    config, parts = _config(files), torchrun_parts(files[LAUNCH], LAUNCH)
    division, world = config["pp_division"], len(gpus_of(parts))
    stages, batch = config["pp_deg"], config["global_bsz"]
    broken = []
    if len(division) != stages or min(division) < 1:
        broken.append(f"pp_division {division} is not of {stages} stages with layers")
    for name in _LISTS:
        if len(config[name]) != sum(division):
            broken.append(f"{name} has {len(config[name])} layers, not {sum(division)}")
    if world % stages:
        return [*broken, f"{world} ranks are not divisible by pp_deg {stages}"]
    for degree in sorted(set(config["tp_sizes_enc"])):
        if (world // stages) % degree:
            broken.append(f"{world // stages} GPUs of a stage are not divisible by tp")
        elif batch % (config["chunks"] * (world // stages // degree)):
            broken.append(
                f"the global batch {batch} is not divisible by chunks x replicas of "
                f"tensor-parallel degree {degree}"
            )
    return broken + twice_held(parts)


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that Galvatron would run: one pipeline of equally large stages.

    `InstanceError` where layers of one stage have different degrees: no plan of ours
    says that.
    """
    config = _config(files)
    gpus = gpus_of(torchrun_parts(files[LAUNCH], LAUNCH))
    division, chunks = config["pp_division"], config["chunks"]
    size, batch = len(gpus) // config["pp_deg"], config["global_bsz"] // chunks
    cuts = [sum(division[:stage]) for stage in range(len(division) + 1)]
    shapes = []
    for first, last in pairwise(cuts):
        degrees = set(config["tp_sizes_enc"][first:last])
        if len(degrees) > 1:
            raise InstanceError(
                f"{CONFIG}: layers {first} to {last - 1} of one stage have the "
                f"tensor-parallel degrees {sorted(degrees)}, expected one"
            )
        degree = degrees.pop()
        shapes.append((degree, size // degree, batch * degree // size))
    return staged(gpus, division, shapes, chunks)


def _config(files: dict[str, str]) -> dict[str, Any]:
    """The configuration with its lists as lists."""
    config = parse_tree(files[CONFIG], CONFIG, is_json=True)
    for name in (*_LISTS, "pp_division"):
        try:
            config[name] = [int(word) for word in str(config[name]).split(",")]
        except (KeyError, ValueError):
            raise InstanceError(
                f"{CONFIG}: {name}: expected whole numbers separated by commas"
            ) from None
    return config
