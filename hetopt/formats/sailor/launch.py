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

from ...plans import TrainingPlan
from ...problems.training_plan.shapes import normal, place
from ...schema import Instance

PLAN, NODES = "sailor_plan.json", "nodes.json"
ZONE, PORT = "zone-0", 50051


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Nodes that do not serve with their first GPUs."""
    parts = (
        (one.node, sorted(place(gpu)[1] for gpu in one.gpus)) for one in plan.replicas()
    )
    return [
        f"host {host!r} serves with GPUs {indices}, not with the first ones in order"
        for host, indices in parts
        if indices != list(range(len(indices)))
    ]


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
