"""Sailor: a plan as its planner gives it, and the nodes that serve it.

`sailor_plan.json` has one pipeline: the layers of each stage by number, and for each
replica the GPU types of its machines and its degree (`tmp_per_stage`), as in
sailor/Planner/simulations/validation. Sailor counts the embedding as its first layer
and the head as its last, so layer l of ours is its l + 1. All stages have as many
replicas, each of its own degree and type, and one size of micro-batch. `nodes.json`
lists the endpoint of every replica in the order of stages, as the controller's
`--initial_config_file`: a node serves one replica, with GPUs that Sailor picks, here
taken for the first ones.
"""

import json
from itertools import pairwise
from typing import Any

from ...errors import InstanceError
from ...plans import Pipeline, Replica, Stage, TrainingPlan
from ...schema import Instance
from ...text.parsing import parse_tree
from ..exporting.launching import bad_degrees, bad_hosts
from ..exporting.shapes import Feature, normal, place

SUPPORTS = frozenset(
    {
        Feature.UNEVEN_LAYERS,
        Feature.MIXED_DEGREES,
        Feature.MIXED_DEGREES_IN_STAGE,
        Feature.MIXED_TYPES,
        Feature.MIXED_TYPES_IN_STAGE,
        Feature.LISTED_PARAMETERS,
    }
)
PLAN, NODES = "sailor_plan.json", "nodes.json"
ZONE, PORT = "zone-0", 50051


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Nodes that serve several replicas, or not with their first GPUs."""
    held: dict[str, list[Replica]] = {}
    for replica in normal(plan).replicas():
        held.setdefault(replica.node, []).append(replica)
    found = bad_hosts(plan) + bad_degrees(data, plan)
    for host, replicas in held.items():
        indices = [place(gpu)[1] for gpu in replicas[0].gpus]
        if len(replicas) > 1:
            found.append(f"host {host!r} serves {len(replicas)} replicas, not one")
        elif indices != list(range(len(indices))):
            found.append(
                f"host {host!r} serves with GPUs {indices}, not with the first ones"
            )
    return found


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`sailor_plan.json` and `nodes.json`."""
    stages = normal(plan).pipelines[0].stages
    node = data.planned_cluster.node
    last = data.model.layers
    pipeline = {
        "num_stages": len(stages),
        "layers_per_stage": [
            [
                *([0] if stage.layers[0] == 0 else []),
                *(layer + 1 for layer in stage.span),
                *([last + 1] if stage.layers[1] == last else []),
            ]
            for stage in stages
        ],
        "tmp_per_stage": [
            [
                [[[node[one.node].gpu, node[one.node].count, ZONE]], one.degree]
                for one in stage.replicas
            ]
            for stage in stages
        ],
        "dp": [len(stage.replicas) for stage in stages],
    }
    made = {
        "pipeline_list": [pipeline],
        "mbs": stages[0].replicas[0].samples,
        "gbs": data.workload.global_batch,
    }
    nodes = [
        [f"{one.node}:{PORT}", ZONE, node[one.node].gpu, node[one.node].count]
        for stage in stages
        for one in stage.replicas
    ]
    return {
        PLAN: json.dumps(made) + "\n",
        NODES: json.dumps([{"duration_sec": 0, "nodes": nodes}], indent=1) + "\n",
    }


# --- Sailor's own rules ----------------------------------------------------------


def validate(files: dict[str, str]) -> list[str]:
    """What `update_nodes` and the simulator take for granted and the files break."""
    made, pipeline, nodes = _parsed(files)
    layers, stages = pipeline["layers_per_stage"], pipeline["tmp_per_stage"]
    count, replicas = pipeline["num_stages"], pipeline["dp"]
    broken = []
    if {len(layers), len(stages), len(replicas)} != {count}:
        broken.append(f"the lists are not of {count} stages")
    flat = [layer for stage in layers for layer in stage]
    if flat != list(range(len(flat))) or not all(layers):
        broken.append("the layers are not each in one stage, in order")
    if len(set(replicas)) > 1 or replicas != list(map(len, stages)):
        broken.append("dp is not the number of replicas of every stage")
    if made["gbs"] % (made["mbs"] * replicas[0]):
        broken.append("the global batch is not divisible by micro-batch x dp")
    machines = [one for stage in stages for one in stage]
    if len(nodes) != len(machines) or len({node[0] for node in nodes}) < len(nodes):
        broken.append("there is not one node for each replica")
    for (endpoint, _, gpu, room), (asked, degree) in zip(nodes, machines, strict=False):
        if asked[0][0] != gpu or degree > room:
            broken.append(f"node {endpoint} has not {degree} GPUs of {asked[0][0]}")
    return broken


def read_back(files: dict[str, str]) -> TrainingPlan:
    """The plan that Sailor would run: one pipeline, on the nodes in their order."""
    made, pipeline, nodes = _parsed(files)
    counts = [len(stage) for stage in pipeline["layers_per_stage"]]
    cuts = [sum(counts[:stage]) for stage in range(len(counts) + 1)]
    last = cuts[-1] - 2
    hosts = iter(node[0].rpartition(":")[0] for node in nodes)
    samples = made["mbs"]
    stages = []
    for (a, b), row in zip(pairwise(cuts), pipeline["tmp_per_stage"], strict=True):
        replicas = []
        for _, degree in row:
            host = next(hosts)
            gpus = tuple(f"{host}:{index}" for index in range(degree))
            replicas.append(Replica(gpus=gpus, samples=samples))
        layers = (max(0, a - 1), min(last, b - 1))
        stages.append(Stage(layers=layers, replicas=tuple(replicas)))
    size = samples * len(stages[0].replicas)
    return TrainingPlan(
        pipelines=(
            Pipeline(
                micro_batches=made["gbs"] // size,
                micro_batch_size=size,
                stages=tuple(stages),
            ),
        )
    )


def _parsed(files: dict[str, str]) -> tuple[dict[str, Any], dict[str, Any], list[Any]]:
    made = parse_tree(files[PLAN], PLAN, is_json=True)
    if len(made["pipeline_list"]) != 1:
        raise InstanceError(
            f"{PLAN}: pipeline_list: found {len(made['pipeline_list'])} pipelines, "
            "expected the one that Sailor runs"
        )
    nodes = json.loads(files[NODES])[0]["nodes"]
    return made, made["pipeline_list"][0], nodes
