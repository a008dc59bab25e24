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
cf2c8e3) with a planner that gives this one. That controller tells one replica of each
stage, and all of them on the first host: here every host is told its own.

Weights and gradients have the precision of DeepSpeed's configuration, which the agents
are started with: `--ds_config_file ds_config.json`, in place of Sailor's own (fp32).
"""

import json

from ...plans import TrainingPlan
from ...problems.training_plan.shapes import normal
from ...schema import Instance
from ...schema.widths import words
from ..contract import Held

HELD = Held("Sailor", "cf2c8e3", ("cf2c8e3",))

PLAN, NODES, LAUNCH = "sailor_plan.json", "nodes", "launch.py"
SETTINGS = "ds_config.json"
ZONE = "zone-0"
_LAUNCH = '''\
"""Start Sailor's controller with the plan of hetopt: `python launch.py TRAINING`.

TRAINING is the JSON file that tells Sailor the model and the batch. Run it where
`sailor` can be imported; the agents of the hosts in `nodes` are started by the user,
with `--ds_config_file ds_config.json`.
"""

import json
import sys
from argparse import Namespace
from concurrent.futures import ThreadPoolExecutor
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


def update_nodes(controller, cluster, training):
    """Tell every host the ranks of its replica; hosts are in the order of stages."""
    protocol, stages = local_controller.orchestration_pb2, cluster["tp_degrees"]
    groups = [ranks for stage in stages for ranks in stage]
    size, replicas = cluster["microbatch_size"], cluster["data_parallelism"]
    settings = protocol.HyperParams()
    settings.global_batch_size = training["global_batch_size"]
    settings.micro_batch_size = size
    settings.num_stages = len(stages)
    settings.ga_steps = training["global_batch_size"] // (replicas * size)
    whole = [
        protocol.StageConfig(
            stage_replicas=[protocol.ReplicaConfig(replica_ranks=one) for one in stage]
        )
        for stage in stages
    ]

    def tell(host, ranks):
        told = protocol.WorkerConfiguration(
            ranks=ranks,
            world_size=sum(map(len, groups)),
            master_ip=controller.node_list[0],
            master_port=local_controller.TRAINING_START_PORT,
            pipeline_parallelism=len(stages),
            tensor_parallelism=len(ranks),
            data_parallelism=replicas,
            max_tensor_parallelism=max(map(len, groups)),
            all_stages=whole,
            layers_per_stage=cluster["num_layers_per_stage"],
        )
        port = local_controller.WORKER_AGENT_PORT
        controller.notify_topology_change(host, told, settings, host, port)

    with ThreadPoolExecutor(len(groups)) as pool:
        list(pool.map(tell, controller.node_list, groups))


local_controller.SailorPlanner = Planned
local_controller.LocalController.update_nodes = update_nodes
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
    """`sailor_plan.json`, `nodes`, `ds_config.json` and `launch.py`."""
    whole = normal(plan).pipelines[0]
    stages = whole.stages
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
    settings = {
        "train_batch_size": data.workload.global_batch,
        "train_micro_batch_size_per_gpu": stages[0].replicas[0].samples,
        "gradient_accumulation_steps": whole.micro_batches,
        "zero_optimization": {},
        "optimizer": {"type": "AdamW", "params": {}},
        **words("sailor", data.workload.costs.memory.precision),
    }
    hosts = (one.node for stage in stages for one in stage.replicas)
    return {
        PLAN: json.dumps(made) + "\n",
        NODES: "".join(f"{host}\n" for host in hosts),
        SETTINGS: json.dumps(settings, indent=1) + "\n",
        LAUNCH: _LAUNCH,
    }
