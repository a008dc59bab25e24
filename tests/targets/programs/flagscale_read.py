"""What FlagScale makes of an export: every rank's mesh, its hosts, its arguments.

The arguments are composed, flattened and checked before Megatron's own rules by its own
functions; ranks are mapped by its `RankMapper` with the types of the hostfile, as its
runner tells each host's.
"""

import argparse
import json
import sys
from copy import deepcopy

import torch
from absent import stand_in
from hydra import compose, initialize_config_dir
from torch.testing._internal.distributed.fake_pg import FakeStore

stand_in("flagcx", "megatron", "transformer_engine")

from flagscale.runner.runner_train import _get_args_megatron  # noqa: E402
from flagscale.runner.utils import parse_hostfile  # noqa: E402
from flagscale.train.arguments import FSTrainArguments  # noqa: E402
from flagscale.train.hetero.parallel_context import RankMapper  # noqa: E402


def composed():
    """The words that its runner starts the training script with."""
    import os

    with initialize_config_dir(config_dir=os.getcwd(), version_base=None):
        config = compose(config_name="config")
    return config, _get_args_megatron(config)


def numbers(words):
    """Arguments by name: lists, numbers and words, as Megatron's parser has them."""
    found = {}
    for word in words:
        if word.startswith("--"):
            name = word[2:].replace("-", "_")
            found[name] = []
        else:
            found[name].append(int(word) if word.isdigit() else word)
    lists = ("hetero_process_meshes", "hetero_device_types")
    lists += ("hetero_pipeline_layer_split",)
    return {
        name: held if name in lists else (held[0] if held else True)
        for name, held in found.items()
    }


def mapper(kinds, given):
    """Its rank mapper where every process has told the type of its host."""

    def gather(found, mine):
        found[:] = [{"rank": i, "device_type": kind} for i, kind in enumerate(kinds)]

    torch.distributed.all_gather_object = gather
    return RankMapper(given)


def main():
    _, words = composed()
    hosts = parse_hostfile("hostfile")
    kinds = [host["type"] for host in hosts.values() for _ in range(host["slots"])]
    defaults = {
        "expert_tensor_parallel_size_per_process_mesh": None,
        "standalone_embedding_stage": False,
        "num_layers_per_virtual_pipeline_stage": None,
        "untie_embeddings_and_output_weights": False,
        "use_partial_reduce_for_shared_embedding": True,
        "use_distributed_optimizer": False,
        "mtp_num_layers": None,
        "sequence_parallel": False,
    }
    given = argparse.Namespace(**defaults | numbers(words))
    ranks = []
    for rank, _ in enumerate(kinds):
        torch.distributed.init_process_group(
            "fake", rank=rank, world_size=len(kinds), store=FakeStore()
        )
        mapped = mapper(kinds, given)
        mine = FSTrainArguments(deepcopy(given), mapped)
        mine.pre_validate_args()
        torch.distributed.destroy_process_group()
        ranks.append(
            {
                "logical": mapped.to_logical_ranks([rank])[0],
                "tensor": mine.args.tensor_model_parallel_size,
                "replicas": mine.args.data_parallel_size,
                "samples": mine.args.micro_batch_size,
                "split": mine.args.hetero_pipeline_layer_split,
            }
        )
    sys.stdout.write(
        json.dumps({"words": words, "hosts": list(hosts.items()), "ranks": ranks})
        + "\n"
    )


main()
