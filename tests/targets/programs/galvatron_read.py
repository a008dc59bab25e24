"""What Galvatron makes of an export, by its configuration and its strategy's reader.

Arguments: the number of ranks, and the words that its training script is started with.
The strategy is read as `train_dist.py` does, before it asks for GPUs.
"""

import contextlib
import json
import sys

import torch
import yaml
from absent import stand_in
from torch.testing._internal.distributed.fake_pg import FakeStore

stand_in("flash_attn", "apex", "transformer_engine", "scipy", "sklearn", "megatron")

from galvatron.core.arguments import load_with_hydra  # noqa: E402
from galvatron.core.runtime.comm_groups import (  # noqa: E402
    build_rank_to_parallel_coords,
)
from galvatron.core.runtime.hybrid_parallel_config import (  # noqa: E402
    check_hp_config,
    get_hybrid_parallel_configs_api,
)


def unknown(path, args):
    """Fields that are written and that its records, which ignore others, lack."""
    with open(path) as file:
        written = yaml.safe_load(file)["runtime"]
    return [
        f"{section}.{name}"
        for section, fields in written.items()
        for name in fields
        if name not in type(getattr(args, section)).model_fields
    ]


def main():
    world, (path, *words) = int(sys.argv[1]), sys.argv[2:]
    with contextlib.redirect_stdout(sys.stderr):
        args = load_with_hydra(path, overrides=words, mode="train_dist")
        store = FakeStore()
        torch.distributed.init_process_group(
            "fake", rank=0, world_size=world, store=store
        )
        read = get_hybrid_parallel_configs_api(args)
        check_hp_config(read, [args.model.num_layers])
    degree, stages = read["tp_sizes_enc"][0], read["pp_deg"]
    sizes = {"pp": stages, "dp": world // stages // degree, "tp": degree}
    places = build_rank_to_parallel_coords(world, {**sizes, "cp": 1, "sp": 1})
    told = {
        "division": read["pp_division"],
        "degrees": read["tp_sizes_enc"],
        "checkpoint": read["checkpoint_flags_enc"],
        "data": read["default_dp_type"],
        "chunks": args.train.chunks,
        "batch": args.train.global_batch_size,
        "schedule": args.parallel.pipeline_type,
        "precision": args.parallel.mixed_precision,
        "model": {name: str(value) for name, value in args.model if value is not None},
        "ranks": [[places[rank][name] for name in sizes] for rank in range(world)],
        "unknown": unknown(path, args),
    }
    sys.stdout.write(json.dumps(told) + "\n")


main()
