"""DeepSpeed: a PipelineModule cut as planned, its configuration and its hostfile.

`pipeline_plan.py` is Python: a subclass of `PipelineModule` that sets `self.parts`,
for DeepSpeed's own ways to cut know only numbers of layers or of parameters
(deepspeed/runtime/pipe/module.py). The layers themselves are the user's, whatever
their shape, and so are their tensor-parallel groups (`mpu`). Ranks are in the order of
`PipeModelDataParallelTopology`: stages, replicas, tensor-parallel ranks. The launcher
gives a host neighbouring ranks, on those of its GPUs that `--include` names, by
number: it sorts them (deepspeed/launcher/runner.py). Cards of a host are alike, so
which of them serves a stage is the launcher's.

AdamW on GPUs is the user's to give. SGD, by its name of torch.optim, and AdamW whose
states are on hosts (`offload_optimizer`) are made by DeepSpeed; add their rates to
`optimizer.params`.
"""

import json

from ..plans import TrainingPlan
from ..problems.training_plan.shapes import normal
from ..problems.training_plan.targets import together
from ..schema import CostSettings, Instance
from ..schema.widths import words
from ..text.documents import Document
from .contract import Held
from .exporting.launching import ranks, runs

HELD = Held("DeepSpeed", "0.15", ("0.19.8",), "deepspeed")

MODULE, CONFIG = "pipeline_plan.py", "ds_config.json"
HOSTS, LAUNCH = "hostfile", "launch.sh"
_MODULE = '''\
"""The pipeline of a plan of hetopt, for DeepSpeed.

Give `PlannedPipeline` the layers in order, as to PipelineModule: `before` entries that
go to the first stage (the embedding), the {layers} transformer layers, and what goes to
the last stage (norm, head).
"""

from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

CUTS = {cuts}
TENSOR_PARALLEL = {degree}
REPLICAS = {replicas}
CHECKPOINT_INTERVAL = {interval}


class PlannedPipeline(PipelineModule):
    """The model's layers on the stages of the plan."""

    def __init__(self, layers, before=1, **options):
        layers = list(layers)
        if len(layers) < before + CUTS[-1]:
            raise ValueError(
                f"found {{len(layers)}} entries, expected {{before}} before the "
                f"{{CUTS[-1]}} transformer layers, and these"
            )
        self.cuts = [0, *(before + cut for cut in CUTS[1:-1]), len(layers)]
        options.setdefault("activation_checkpoint_interval", CHECKPOINT_INTERVAL)
        topology = PipeModelDataParallelTopology(
            num_pp=len(CUTS) - 1, num_mp=TENSOR_PARALLEL, num_dp=REPLICAS
        )
        super().__init__(layers=layers, topology=topology, **options)

    def _partition_layers(self, method="uniform"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = self.cuts
        self._set_bounds(start=self.parts[stage], stop=self.parts[stage + 1])
'''
_LAUNCH = """\
#!/usr/bin/env bash
# Start TRAIN, which builds a PlannedPipeline and calls deepspeed.initialize, on every
# GPU of the plan; further arguments are passed on.
set -euo pipefail
cd "$(dirname "$0")"
deepspeed --force_multi --hostfile hostfile --include "{include}" \\
  "${{TRAIN:-train.py}}" --deepspeed --deepspeed_config ds_config.json "$@"
"""


def _optimiser(costs: CostSettings) -> Document:
    """Return the optimiser; users install AdamW on GPUs.

    On hosts it must be DeepSpeed's own, which it makes itself. SGD has a momentum, as
    the instance weighs it.
    """
    if costs.memory.optimiser == "sgd":
        return {"optimizer": {"type": "SGD", "params": {"momentum": 0.9}}}
    hosted = {"optimizer": {"type": "AdamW", "params": {}}}
    return hosted if costs.memory.hosts_update else {}


def zero(costs: CostSettings) -> Document:
    """Return what DeepSpeed is told of ZeRO, and of states that are on hosts."""
    told: Document = {"stage": costs.updates.zero}
    if costs.memory.hosts_update:
        told["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    return told


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`pipeline_plan.py`, `ds_config.json`, `hostfile` and `launch.sh`."""
    pipeline = together(normal(plan).pipelines[0])
    replicas = pipeline.stages[0].replicas
    cluster, parts = data.planned_cluster, runs(ranks(pipeline))
    module = _MODULE.format(
        layers=data.model.layers,
        cuts=[0, *(stage.layers[1] for stage in pipeline.stages)],
        degree=replicas[0].degree,
        replicas=len(replicas),
        interval=1 if data.workload.costs.compute.recompute == "full" else 0,
    )
    costs = data.workload.costs
    config = {
        "train_batch_size": data.workload.global_batch,
        "train_micro_batch_size_per_gpu": replicas[0].samples,
        "gradient_accumulation_steps": pipeline.micro_batches,
        **words("deepspeed", costs.memory.precision),
        "zero_optimization": zero(costs),
        **_optimiser(costs),
    }
    include = "@".join(
        f"{host}:{','.join(map(str, sorted(held)))}" for host, held in parts
    )
    hosts = (f"{host} slots={cluster.node[host].count}\n" for host, _ in parts)
    return {
        MODULE: module,
        CONFIG: json.dumps(config, indent=1) + "\n",
        HOSTS: "".join(hosts),
        LAUNCH: _LAUNCH.format(include=include),
    }
