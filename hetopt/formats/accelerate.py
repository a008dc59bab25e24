"""Accelerate: its configuration and TrainingArguments, for a script of one's own.

`accelerate launch` starts TRAIN, such as TRL's `sft.py`, on every host.
`accelerate.yaml` has the ranks and FSDP, `arguments.yaml` what transformers' Trainer
and TRL are told, the same for every rank. It starts as many ranks on each host, and all
take equal shares of the batch: what is uneven goes to `transformers`, whose plans these
are.
"""

from collections import Counter

from ..plans import TrainingPlan
from ..problems.training_plan.shapes import place
from ..schema import Instance
from ..schema.targets import Feature
from ..text.documents import Document
from ..text.parsing import yaml_text
from .contract import Held
from .exporting import sharding
from .exporting.launching import torchruns
from .transformers.launch import ARGUMENTS, arguments, fsdp_fields, ranks

HELD = Held("Accelerate", "1.10", ("1.15.0",), "accelerate")

RULES = "transformers"
WITHOUT = frozenset(
    {Feature.DIFFERENT_BATCHES, Feature.UNEQUAL_SAMPLES, Feature.MIXED_RECOMPUTE}
)
CONFIG, LAUNCH = "accelerate.yaml", "launch.sh"
_ABOUT = """\
# TRAIN is your script, such as TRL's sft.py; further arguments are passed on to it.
"""
_SETUP = """\
run="$(printf %q "${TRAIN:?name your script}") --config arguments.yaml ${*@Q}"
"""
_STARTER = (
    "accelerate launch --config_file accelerate.yaml --machine_rank {number} "
    "--main_process_port $port"
)
_HEADS = {
    CONFIG: "# A plan of hetopt for accelerate launch: ranks, and what they divide\n",
    ARGUMENTS: "# A plan of hetopt for transformers' Trainer and TRL\n",
}


def refusals(data: Instance, plan: TrainingPlan) -> list[str]:
    """Hosts with different numbers of GPUs, and what FSDP has not."""
    found = sharding.refusals(data, plan)
    counts = Counter(place(rank.gpu)[0] for rank in ranks(data, plan))
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{count} of {host!r}" for host, count in counts.items())
        found.append(
            f"accelerate launch starts as many ranks on each host, and the plan has "
            f"{told} (export to transformers)"
        )
    return found


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`accelerate.yaml`, `arguments.yaml` and `launch.sh`."""
    found = ranks(data, plan)
    told = arguments(data, found)
    hosts = [place(rank.gpu)[0] for rank in found]
    fsdp = fsdp_fields(data, plan, found)
    config: Document = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "FSDP" if fsdp else "MULTI_GPU",
        "num_machines": len(set(hosts)),
        "num_processes": len(found),
        "machine_rank": 0,
        "main_process_ip": hosts[0],
        "main_process_port": 29500,
        "same_network": True,
        "rdzv_backend": "static",
        "mixed_precision": "bf16" if told["bf16"] else "no",
    }
    if len(found) == 1:
        config["distributed_type"] = "NO"
    if fsdp:
        own = {f"fsdp_{name}": value for name, value in fsdp["fsdp_config"].items()}
        config["fsdp_config"] = {
            **own,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": "FULL_STATE_DICT",
        }
        told |= {name: x for name, x in fsdp.items() if not name.startswith("fsdp")}
    files = {
        name: _HEADS[name] + yaml_text(tree)
        for name, tree in ((CONFIG, config), (ARGUMENTS, told))
    }
    gpus = [rank.gpu for rank in found]
    return files | {LAUNCH: torchruns(_ABOUT, _SETUP, gpus, _STARTER)}
