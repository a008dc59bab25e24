"""Two steps of a planned GPT by Megatron-core on processors; every rank's losses.

Started as `pretrain_gpt.py` is, with the arguments of an export. Model, schedule,
communication and gradients are Megatron-core's; its calls of CUDA are answered by the
processor, and of its optimisers, which want CUDA, there is plain SGD.
"""

import contextlib
import json
import os
import shlex
import sys
from pathlib import Path
from unittest.mock import MagicMock

import torch
from torch.overrides import TorchFunctionMode

for name in ("synchronize", "set_device", "nvtx"):
    setattr(torch.cuda, name, lambda *words: None)
torch.cuda.current_device = lambda: "cpu"
for name in ("Stream", "current_stream", "Event"):
    setattr(torch.cuda, name, lambda *words, **options: MagicMock())

import megatron_core  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.distributed import (  # noqa: E402
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import (  # noqa: E402
    get_gpt_decoder_block_spec,
)
from megatron.core.models.gpt.gpt_model import GPTModel  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.tensor_parallel import random  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402

if not hasattr(moe_utils, "te_general_gemm"):  # not set without Transformer Engine
    moe_utils.te_general_gemm = None


class OnProcessors(TorchFunctionMode):
    """What is asked to be made on CUDA is made here."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if str(kwargs.get("device", "")).startswith("cuda"):
            kwargs["device"] = "cpu"
        return func(*args, **kwargs)


def model_of(given, config):
    first = parallel_state.is_pipeline_first_stage()
    last = parallel_state.is_pipeline_last_stage()
    return GPTModel(
        config,
        get_gpt_decoder_block_spec(config, use_transformer_engine=False),
        vocab_size=int(given["vocab_size"]),
        max_sequence_length=int(given["max_position_embeddings"]),
        pre_process=first,
        post_process=last,
        share_embeddings_and_output_weights=(
            "untie_embeddings_and_output_weights" not in given
        ),
        position_embedding_type=given["position_embedding_type"],
        rotary_base=int(given.get("rotary_base", 10000)),
    )


def step(batch, model):
    words, length = batch, batch.shape[1]
    places = torch.arange(length).expand_as(words)
    mask = torch.ones(1, 1, length, length, dtype=torch.bool).triu(1)
    losses = model(words, places, mask, labels=words)

    def loss(output):
        mean = output.float().mean()
        return mean, {"loss": mean.detach().clone()}

    return losses, loss


def batches(given, micro):
    """Other samples for every replica, the same in both steps."""
    replica = parallel_state.get_data_parallel_rank()
    size, length = int(given["micro_batch_size"]), int(given["seq_length"])
    source = torch.Generator().manual_seed(replica)
    top = int(given["vocab_size"])
    return [torch.randint(top, (size, length), generator=source) for _ in range(micro)]


def everywhere(mean):
    """The loss of the last stage, a mean over replicas, on every rank."""
    last = parallel_state.is_pipeline_last_stage(ignore_virtual=True)
    pair = torch.tensor([mean, 1.0] if last else [0.0, 0.0])
    torch.distributed.all_reduce(pair)
    return float(pair[0] / pair[1])


def trained(given):
    torch.distributed.init_process_group("gloo")
    config = megatron_core.configuration(given)
    parallel_state.initialize_model_parallel(
        config.tensor_model_parallel_size, config.pipeline_model_parallel_size
    )
    config.perform_initialization = True
    config.finalize_model_grads_func = finalize_model_grads
    torch.manual_seed(parallel_state.get_pipeline_model_parallel_rank())
    plain = model_of(given, config)
    told = DistributedDataParallelConfig(overlap_grad_reduce=False)
    model = DistributedDataParallel(config, told, plain)
    held = list(model.parameters())
    replicas = parallel_state.get_data_parallel_world_size()
    size = int(given["micro_batch_size"])
    micro = int(given["global_batch_size"]) // (size * replicas)
    data, schedule, losses = batches(given, micro), get_forward_backward_func(), []
    for _ in range(2):
        model.zero_grad_buffer()
        found = schedule(
            forward_step_func=lambda batch, part: step(next(batch), part),
            data_iterator=iter(data),
            model=model,
            num_microbatches=micro,
            seq_length=int(given["seq_length"]),
            micro_batch_size=size,
            forward_only=False,
        )
        mean = sum(float(one["loss"]) for one in found) / max(1, len(found))
        losses.append(everywhere(mean))
        with torch.no_grad():
            for one in held:
                one -= 0.5 * one.main_grad
    return {
        "losses": losses,
        "layers": [one.layer_number - 1 for one in plain.decoder.layers],
        "parameters": sum(one.numel() for one in plain.parameters()),
        "steps": micro,
        "replica": parallel_state.get_data_parallel_rank(),
    }


def main():
    quiet = lambda self, *name: contextlib.nullcontext()  # noqa: E731
    random.CudaRNGStatesTracker.fork = quiet
    given = megatron_core.arguments(shlex.join(sys.argv[1:]))
    with OnProcessors(), contextlib.redirect_stdout(sys.stderr):
        told = trained(given)
    Path(f"told.{os.environ['RANK']}").write_text(json.dumps(told))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


main()
