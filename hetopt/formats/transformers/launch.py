"""transformers: Trainer, a whole model on every GPU, each with its share of a batch.

`arguments.yaml` has what all ranks are told, by the names of `TrainingArguments` and of
TRL's `ModelConfig`; `ranks.json` what each rank is told besides: the size and number of
its micro-batches, and whether it recomputes. `train.py` reads both, and gives every
rank its share of each global batch: DDP waits for the slowest rank once an iteration,
and Trainer weighs tokens and not ranks (`average_tokens_across_devices`), so shares
need not be equal. FSDP (ZeRO 2 and 3) exchanges at every micro-batch: there all ranks
do as many. Scripts of TRL read `arguments.yaml` where shares are equal.

The model is a released one, by `--model_name_or_path`; its data, optimiser and schedule
are the user's words of `TrainingArguments`. Adapters are PEFT's, four or eight bits of
frozen weights those of bitsandbytes.
"""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ...plans import TrainingPlan
from ...problems.training_plan.shapes import place
from ...schema import CostSettings, Instance, Recompute
from ...schema.widths import words
from ...text.documents import Document
from ...text.parsing import yaml_text
from ..contract import Held
from ..exporting.launching import torchruns
from ..exporting.sharding import refusals, reshards
from .program import TRAIN

HELD = Held("transformers", "5.0", ("5.24.0",), "transformers")

__all__ = ["export", "refusals"]

ARGUMENTS, RANKS, PROGRAM = "arguments.yaml", "ranks.json", "train.py"
LAUNCH = "launch.sh"
OPTIMISERS = {
    "adamw": "adamw_torch",
    "adafactor": "adafactor",
    "adamw_8bit": "adamw_bnb_8bit",
}
#: Matrices beside which adapters lie, by `workload.costs.lora.beside`.
BESIDE = {"all": ["all-linear"], "attention": ["q_proj", "k_proj", "v_proj", "o_proj"]}
_ABOUT = """\
# launch.sh --model_name_or_path DIR --data FILE WORDS...: FILE is a .npy of token ids,
# or JSON lines with text or messages; WORDS are of TrainingArguments, such as
# --max_steps 1000.
"""
_SETUP = """\
run="./train.py ${*@Q}"
"""
_HEAD = "# A plan of hetopt for transformers' Trainer: what all ranks are told\n"


class Rank(NamedTuple):
    """A GPU, its share of every global batch, and how it recomputes."""

    gpu: str
    samples: int
    micro_batches: int
    recompute: Recompute

    @property
    def told(self) -> Document:
        """Return its share by the names of `TrainingArguments`."""
        return {
            "per_device_train_batch_size": self.samples,
            "gradient_accumulation_steps": self.micro_batches,
            "gradient_checkpointing": self.recompute == "full",
        }


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`arguments.yaml`, `ranks.json`, `train.py` and `launch.sh`."""
    found = ranks(data, plan)
    told = arguments(data, found) | fsdp_fields(data, plan, found)
    by_fsdp = {"gradient_checkpointing": False} if "fsdp" in told else {}
    rows = [{"gpu": rank.gpu, **rank.told, **by_fsdp} for rank in found]
    return {
        ARGUMENTS: _HEAD + yaml_text(told),
        RANKS: json.dumps({"ranks": rows}, indent=1) + "\n",
        PROGRAM: TRAIN,
        LAUNCH: torchruns(_ABOUT, _SETUP, [rank.gpu for rank in found]),
    }


def ranks(data: Instance, plan: TrainingPlan) -> list[Rank]:
    """Return the ranks of a plan whose replicas have one GPU, host by host."""
    rule = data.workload.costs.compute.recompute
    found = [
        Rank(gpu, replica.samples, one.micro_batches, stage.recompute or rule)
        for one in plan.pipelines
        for stage in one.stages
        for replica in stage.replicas
        for gpu in replica.gpus
    ]
    order = {node.name: i for i, node in enumerate(data.planned_cluster.nodes)}

    def key(rank: Rank) -> tuple[int, int]:
        node, index = place(rank.gpu)
        return order[node], index

    return sorted(found, key=key)


def arguments(data: Instance, found: Sequence[Rank]) -> Document:
    """Return what all ranks are told, by the names of transformers and of TRL."""
    costs = data.workload.costs
    shares = [rank.told for rank in found]
    alike = shares[0] if all(share == shares[0] for share in shares) else {}
    return {
        **words("transformers", costs.memory.precision),
        "output_dir": "states",
        "optim": OPTIMISERS[costs.memory.optimiser],
        "max_length": data.workload.sequence_length,
        **alike,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "average_tokens_across_devices": True,
        "ddp_broadcast_buffers": False,
        "ddp_find_unused_parameters": False,
        **dict(_adapters(costs)),
    }


def fsdp_fields(data: Instance, plan: TrainingPlan, found: Sequence[Rank]) -> Document:
    """Return what FSDP is told; nothing where each GPU has all states.

    Without `sync_each_batch` it keeps whole gradients from one micro-batch to the next.
    It recomputes by itself, in place of the trainer.
    """
    if data.workload.costs.updates.zero == 0:
        return {}
    recomputes = found[0].recompute == "full"
    told: Document = {
        "fsdp": True,
        "fsdp_config": {
            "version": 2,
            "reshard_after_forward": reshards(data, plan),
            "activation_checkpointing": recomputes,
        },
        "gradient_checkpointing": False,
    }
    if found[0].micro_batches > 1:
        often = {"gradient_accumulation_kwargs": {"sync_each_batch": True}}
        told["accelerator_config"] = often
    return told


def _adapters(costs: CostSettings) -> Iterator[tuple[str, object]]:
    """Yield what TRL's `ModelConfig` is told of adapters and frozen weights."""
    if (lora := costs.updates.lora) is None:
        return
    # Adapters are trained in fp32 (`autocast_adapter_dtype`), frozen weights are not.
    if costs.memory.precision != "fp32":
        yield "dtype", "bfloat16"
    yield "use_peft", True
    yield "lora_r", lora.rank
    yield "lora_alpha", lora.rank
    yield "lora_target_modules", BESIDE[lora.beside]
    if lora.weight_bits is not None:
        yield f"load_in_{lora.weight_bits}bit", True
    if lora.weight_bits == 4:
        yield "bnb_4bit_quant_type", "nf4"
        yield "use_bnb_nested_quant", True
