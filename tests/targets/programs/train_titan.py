"""Two steps of a planned model by torchtitan's parts on processors; all ranks' losses.

Started in the place of `python3 -m torchtitan.train`. Configuration, model, mesh,
pipeline, schedule, FSDP, loss and optimiser are torchtitan's; its `Trainer`, which
starts with a CUDA device, is not.
"""

import json
import os
import sys
from pathlib import Path

import torch
from torch.distributed.fsdp import FSDPModule
from torchtitan.tools import utils

utils.device_type, utils.device_module = "cpu", torch.cpu

from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.config import ConfigManager  # noqa: E402
from torchtitan.distributed import ParallelDims  # noqa: E402
from torchtitan.distributed import utils as distributed  # noqa: E402


def parts_of(config, dims, loss):
    """The schedule and this rank's part of the model, as its `Trainer` makes them."""
    spec = config.model_spec
    spec.model.update_from_config(config=config)
    with torch.device("meta"):
        model = spec.model.build()
    schedule, parts, first, last = spec.pipelining_fn(
        model,
        parallel_dims=dims,
        training=config.training,
        parallelism=config.parallelism,
        compile_config=config.compile,
        ac_config=config.activation_checkpoint,
        dump_folder=config.dump_folder,
        device=torch.device("cpu"),
        model_config=spec.model,
        parallelize_fn=spec.parallelize_fn,
        loss_fn=loss,
    )
    for part in parts:
        part.to_empty(device="cpu")
        with torch.no_grad():
            part.init_weights(buffer_device=None)
        part.train()
        for one in part.modules():
            if isinstance(one, FSDPModule):  # gloo has no scaled sums
                one.set_force_sum_reduction_for_comms(True)
    return schedule, parts, first, last


def step(schedule, words, ends, tokens):
    """The sum of the losses of this rank's micro-batches, or nothing."""
    first, last = ends
    losses, batch = ([] if last else None), torch.cat(words)
    schedule.step(
        *([batch] if first else []),
        target=batch if last else None,
        losses=losses,
        loss_kwargs={"global_valid_tokens": tokens},
        return_outputs=False,
    )
    return sum(float(one) for one in losses or ())


def main():
    config = ConfigManager().parse_args(sys.argv[1:])
    torch.distributed.init_process_group("gloo")
    dims = ParallelDims.from_config(
        config.parallelism, torch.distributed.get_world_size()
    )
    dims.build_mesh()
    distributed.set_spmd_backend(config.parallelism.spmd_backend)
    torch.manual_seed(0)
    loss = CrossEntropyLoss.Config().build(compile_config=config.compile)
    schedule, parts, *ends = parts_of(config, dims, loss)
    optimisers = config.optimizer.build(model_parts=parts)
    size = config.parallelism.pipeline_parallel_microbatch_size
    micro = config.training.local_batch_size // size
    replica = dims.get_mesh("batch").get_local_rank() if dims.dp_enabled else 0
    source, length = torch.Generator().manual_seed(replica), config.training.seq_len
    top = config.model_spec.model.vocab_size
    words = [torch.randint(top, (size, length), generator=source) for _ in range(micro)]
    tokens = torch.tensor(config.training.global_batch_size * length)
    losses = []
    for _ in range(2):
        optimisers.zero_grad()
        mine = torch.tensor(float(step(schedule, words, ends, tokens)))
        torch.distributed.all_reduce(mine)
        losses.append(float(mine) / config.parallelism.tensor_parallel_degree)
        optimisers.step()
    names = {name for part in parts for name, _ in part.named_parameters()}
    layers = {int(name.split(".")[1]) for name in names if name.startswith("layers.")}
    told = {"losses": losses, "layers": sorted(layers), "steps": micro}
    Path(f"told.{os.environ['RANK']}").write_text(json.dumps(told))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
