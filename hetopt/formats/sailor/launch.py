"""Sailor: a plan as its planner gives it, and the nodes that serve it.

`sailor_plan.json` has one pipeline: the layers of each stage by number, and for each
replica the GPU types of its machines and its degree (`tmp_per_stage`), as in
sailor/Planner/simulations/validation. Sailor counts the embedding as its first layer
and the head as its last, so layer l of ours is its l + 1. All stages have as many
replicas, each of its own degree and type, and one size of micro-batch. `nodes` lists
the host of every replica in the order of stages, a line each, as the controller's
`--node_list_file`: a host serves one replica, with GPUs that Sailor picks.

No option of Sailor takes a plan: its controller runs what its planner gives. So
`launch.py` starts that controller (sailor/Controller/local/local_controller.py, commit
cf2c8e3) with a planner that gives this one.
"""

import json

from ...plans import TrainingPlan
from ...problems.training_plan.shapes import normal
from ...schema import Instance

PLAN, NODES, LAUNCH = "sailor_plan.json", "nodes", "launch.py"
ZONE = "zone-0"
_LAUNCH = '''\
"""Start Sailor's controller with the plan of hetopt: `python launch.py TRAINING`.

TRAINING is the JSON file that tells Sailor the model and the batch. Run it where
`sailor` can be imported; the agents of the hosts in `nodes` are started by the user.
"""

import json
import sys
from argparse import Namespace
from pathlib import Path

from sailor.Controller.local import local_controller

HERE = Path(__file__).resolve().parent


class Planned:
    """A planner that has planned already."""

    def __init__(self, *settings):
        self.plans = [json.loads((HERE / "sailor_plan.json").read_text())]

    def get_sorted_plans(self, cluster_config, training_config):
        batch = training_config["global_batch_size"]
        if batch != self.plans[0]["gbs"]:
            sys.exit(f"found global_batch_size {batch}, planned {self.plans[0]['gbs']}")
        return self.plans


local_controller.SailorPlanner = Planned
local_controller.main(
    Namespace(
        node_list_file=str(HERE / "nodes"),
        training_config_json=sys.argv[1],
        call_planner=True,
        sailor_path="",
        sailor_profile_file_dir="",
        quotas_dict="",
        objective="throughput",
        max_cost=0.0,
        min_throughput=0.0,
        fp16=False,
    )
)
'''


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`sailor_plan.json`, `nodes` and `launch.py`."""
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
    hosts = (one.node for stage in stages for one in stage.replicas)
    return {
        PLAN: json.dumps(made) + "\n",
        NODES: "".join(f"{host}\n" for host in hosts),
        LAUNCH: _LAUNCH,
    }
