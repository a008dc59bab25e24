"""What torchtitan makes of an export: its configuration, its model, its stages."""

import json
import sys

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchtitan.config import ConfigManager
from torchtitan.distributed import pipeline_parallel

config = ConfigManager().parse_args(sys.argv[1:])
parallel, model = config.parallelism, config.model_spec.model
degrees = (
    parallel.pipeline_parallel_degree,
    parallel.data_parallel_shard_degree,
    parallel.tensor_parallel_degree,
)
with torch.device("meta"):
    whole = model.build()
parameters = sum(one.numel() for one in whole.parameters())
world, stages = degrees[0] * degrees[1] * degrees[2], []
for stage in range(degrees[0] if degrees[0] > 1 else 0):
    rank = stage * degrees[1] * degrees[2]
    store = FakeStore()
    torch.distributed.init_process_group(
        "fake", rank=rank, world_size=world, store=store
    )
    mesh = init_device_mesh("cpu", degrees, mesh_dim_names=("pp", "dp", "tp"))
    made, parts = pipeline_parallel._pipeline_module_split(
        whole,
        mesh["pp"],
        parallel.pipeline_parallel_schedule,
        torch.device("meta"),
        parallel.module_fqns_per_model_part,
        get_mesh=lambda *names: None,
    )
    names = {name.split("._")[0] for name, _ in parts[0].named_parameters()}
    layers = {name.split(".")[1] for name in names if name.startswith("layers.")}
    ends = sorted({name.split(".")[0] for name in names} - {"layers"})
    stages.append([sorted(map(int, layers)), ends])
    torch.distributed.destroy_process_group()
sys.stdout.write(
    json.dumps(
        {
            "degrees": degrees,
            "parameters": parameters,
            "stages": stages,
            "policy": type(config.activation_checkpoint).__qualname__,
            "batch": [
                config.training.local_batch_size,
                config.training.global_batch_size,
                parallel.pipeline_parallel_microbatch_size,
            ],
            "layers": len(model.layers),
            "rope": [
                model.layers[0].attention.rope.theta,
                model.layers[0].attention.rope.scaling,
            ],
        }
    )
)
