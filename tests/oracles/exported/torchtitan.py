"""torchtitan's files: its rules, and the plan that it would run."""

import tomllib
from typing import Any

from hetopt.errors import InstanceError
from hetopt.plans import TrainingPlan

from .grid import gpus_of, staged, torchrun_parts, twice_held
from .literals import assigned

MODULE, TOML, LAUNCH = "hetopt_plan.py", "plan.toml", "launch.sh"


def validate(files: dict[str, str]) -> list[str]:
    """Rules of the mesh, the schedule and the batch that the files break."""
    told, parts = _plan(files), torchrun_parts(files[LAUNCH], LAUNCH)
    stages, replicas = told["pipeline_parallel_degree"], told["replicas"]
    fqns = told["module_fqns_per_model_part"]
    world = sum(len(indices) for _, indices in parts)
    broken = []
    if world != stages * replicas * told["tensor_parallel_degree"]:
        broken.append(f"{world} ranks are not pp x dp x tp")
    if len(fqns) != stages or not all(fqns):
        broken.append(f"the parts of the model are not {stages} with layers each")
    flat = [name for part in fqns for name in part]
    if flat != [f"layers.{layer}" for layer in range(len(flat))]:
        broken.append("the layers are not each in one part, in order")
    batch = told["micro_batch_size"] * replicas * told["micro_batches"]
    if told["global_batch"] != batch:
        broken.append(f"the global batch is not micro-batches x size x dp = {batch}")
    if told["micro_batches"] < stages:
        broken.append("the schedule has fewer micro-batches than stages")
    return broken + twice_held(parts) + _disagreements(told, files)


def _disagreements(told: dict[str, Any], files: dict[str, str]) -> list[str]:
    """The Python and the TOML file must tell one plan."""
    try:
        tree = tomllib.loads(files[TOML])
    except tomllib.TOMLDecodeError as error:
        return [f"{TOML}: {error}"]
    parallel, training = tree["parallelism"], tree["training"]
    stages, parts = told["pipeline_parallel_degree"], told["module_fqns_per_model_part"]
    around = [["tok_embeddings", *parts[0]], *parts[1:]]
    around[-1] = [*around[-1], "norm", "output"]
    pairs = {
        "data_parallel_replicate_degree": told.get("groups", 1),
        "data_parallel_shard_degree": told["replicas"] // told.get("groups", 1),
        "fsdp_reshard_after_forward": told["reshard"],
        "tensor_parallel_degree": told["tensor_parallel_degree"],
        "pipeline_parallel_degree": stages,
    }
    if stages > 1:
        pairs["pipeline_parallel_schedule"] = told["schedule"]
        pairs["pipeline_parallel_microbatch_size"] = told["micro_batch_size"]
        pairs["module_fqns_per_model_part"] = around
    local = told["micro_batch_size"] * (told["micro_batches"] if stages > 1 else 1)
    batch = {"local_batch_size": local, "global_batch_size": told["global_batch"]}
    same = (
        parallel == pairs
        and training == {**batch, "seq_len": told["sequence_length"]}
        and tree["activation_checkpoint"] == {"mode": told["activation_checkpoint"]}
    )
    return [] if same else [f"{TOML} and {MODULE} tell different plans"]


def read(files: dict[str, str]) -> TrainingPlan:
    """The plan that torchtitan would run: one pipeline, replicas side by side."""
    told = _plan(files)
    gpus = gpus_of(torchrun_parts(files[LAUNCH], LAUNCH))
    layers = [len(part) for part in told["module_fqns_per_model_part"]]
    shape = (told["tensor_parallel_degree"], told["replicas"], told["micro_batch_size"])
    return staged(gpus, layers, [shape] * len(layers), told["micro_batches"])


def _plan(files: dict[str, str]) -> dict[str, Any]:
    told = assigned(files[MODULE], MODULE).get("PLAN")
    if not isinstance(told, dict):
        raise InstanceError(f"{MODULE}: found no PLAN, expected one; export again")
    return told
