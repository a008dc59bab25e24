"""FlagScale: an experiment of heterogeneous Megatron, its hostfile with GPU types.

Neighbouring stages of one degree, number of replicas and GPU type are a process mesh
[tp, cp, ep, dp, pp] (flagscale/train/arguments.py). FlagScale orders ranks by the
place of their type in `hetero_device_types`, then by host and GPU: so a host serves
neighbouring stages, and where a type returns after another its hosts get a type of
their own, `A800.2`. Which GPUs of a host serve is not told: they are alike, and taken
from the first one on in the order of ranks. Its runner counts those that each host's
variables make visible, and ends without them. The run is started by static rendezvous,
which keeps the order of the hostfile.
"""

import re
from itertools import groupby
from typing import Any

from ..plans import Pipeline, TrainingPlan
from ..problems.training_plan import targets
from ..problems.training_plan.shapes import normal
from ..problems.training_plan.targets import together
from ..schema import Instance
from ..schema.fields import fields_of
from ..text.documents import Document
from ..text.parsing import yaml_text
from ..trainers.megatron import TABLE
from ..trainers.megatron.relatives import FLAGSCALE
from .contract import Held
from .exporting.allocation import LABEL
from .exporting.launching import ranks, runs
from .megatron.launch import untold

HELD = Held("FlagScale", "0.8.0", ("0.8.0 (16a2dd5)", "main (da4935e)"))

EXPERIMENT, TRAIN, HOSTS = "config.yaml", "train/plan.yaml", "hostfile"


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """GPU types whose names are no labels: FlagScale puts them into commands."""
    pipeline = normal(plan).pipelines[0]
    node = data.planned_cluster.node
    types = {node[r.node].gpu for stage in pipeline.stages for r in stage.replicas}
    found = [
        f"the name of GPU type {name!r} is not a valid label: rename it in cluster.gpus"
        for name in sorted(types)
        if not re.fullmatch(LABEL, _kind(name))
    ]
    if len({_kind(name) for name in types}) < len(types):
        found.append(f"GPU types {', '.join(sorted(types))} differ only in blanks")
    return found


def _kind(gpu: str) -> str:
    return re.sub(r"\s+", "-", gpu)


Mesh = tuple[int, int, str]


def _label(data: Instance, pipeline: Pipeline) -> list[tuple[Mesh, object]]:
    """Stages with their (degree, replicas, type), the type numbered as it returns."""
    found: list[tuple[Mesh, object]] = []
    times: dict[str, int] = {}
    last = None
    for stage in pipeline.stages:
        replica = stage.replicas[0]
        kind = _kind(data.planned_cluster.node[replica.node].gpu)
        if kind != last:
            times[kind] = times.get(kind, 0) + 1
        last = kind
        label = kind if times[kind] == 1 else f"{kind}.{times[kind]}"
        found.append(((replica.degree, len(stage.replicas), label), stage))
    return found


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`config.yaml`, `train/plan.yaml` and `hostfile`."""
    pipeline = together(normal(plan).pipelines[0])
    labelled = _label(data, pipeline)
    meshes: list[int] = []
    types: list[str] = []
    for (t, d, label), run in groupby(labelled, key=lambda pair: pair[0]):
        meshes += [t, 1, 1, d, len(list(run))]
        types.append(label)
    largest = max(mesh[0] for mesh, _ in labelled)
    samples = pipeline.micro_batch_size // len(pipeline.stages[0].replicas)
    made = FLAGSCALE.translate(TABLE.write(fields_of(data, largest) | {"mbs": samples}))
    degrees = {
        "tensor_model_parallel_size": meshes[0],
        "pipeline_model_parallel_size": len(pipeline.stages),
        "hetero": {
            "enable_hetero": True,
            "hetero_device_types": types,
            "hetero_current_device_type": types[0],
            "hetero_pipeline_layer_split": [len(s.span) for s in pipeline.stages],
            "hetero_process_meshes": meshes,
        },
    }
    model, system = made["model"], degrees | made.get("system", {})
    model.pop("tensor_model_parallel_size")
    if "precision" in made:
        system["precision"] = made["precision"]
    if len(targets.used_makers(data, plan)) > 1:
        system["distributed_backend"] = "flagcx"
    return {
        EXPERIMENT: _yaml(_experiment(data, pipeline)),
        TRAIN: "".join(f"# not set: {word}\n" for word in untold(data))
        + _yaml({"system": system, "model": model, "data": {}}),
        HOSTS: _hostfile(labelled, pipeline),
    }


def _experiment(data: Instance, pipeline: Pipeline) -> Document:
    # The name of a folder: no path, nothing that a shell reads.
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", data.model.name).strip(".-")
    visible = {
        host: {"CUDA_VISIBLE_DEVICES": ",".join(map(str, range(len(indices))))}
        for host, indices in runs(ranks(pipeline))
    }
    return {
        "defaults": ["_self_", {"train": "plan"}],
        "experiment": {
            "exp_name": name or "hetopt",
            "exp_dir": "outputs",
            "task": {
                "type": "train",
                "backend": "megatron",
                "entrypoint": "flagscale/train/train_gpt.py",
            },
            "runner": {
                "backend": "torchrun",
                "rdzv_backend": "static",
                "hostfile": HOSTS,
            },
            "envs": {"CUDA_DEVICE_MAX_CONNECTIONS": 1, "node_specific": visible},
        },
        "action": "run",
    }


def _hostfile(labelled: list[tuple[Mesh, Any]], pipeline: Pipeline) -> str:
    label = {
        replica.node: kind
        for (_, _, kind), stage in labelled
        for replica in stage.replicas
    }
    return "".join(
        f"{host} slots={len(indices)} type={label[host]}\n"
        for host, indices in runs(ranks(pipeline))
    )


def _yaml(tree: Document) -> str:
    return yaml_text(tree, default_flow_style=None, width=88)
