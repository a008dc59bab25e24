"""LLaMA-Factory: the YAML of a training run, and a torchrun for each host.

`plan.yaml` has sizes and numbers of micro-batches, recomputation, adapters and
precision by LLaMA-Factory's names; ZeRO is DeepSpeed's, by `ds_config.json`. Ranks are
replicas of a whole model, all alike. The model, its template, data and schedule are the
user's: `launch.sh model_name_or_path=DIR dataset=NAME template=llama3`.
"""

import json

from ..plans import TrainingPlan
from ..schema import CostSettings, Instance
from ..schema.widths import words
from ..text.documents import Document
from ..text.parsing import yaml_text
from .contract import Held
from .deepspeed import zero
from .exporting.launching import torchruns
from .transformers.launch import OPTIMISERS, ranks

HELD = Held("LLaMA-Factory", "0.9.3", ("0.9.5, by its source",), "llamafactory")

ARGUMENTS, CONFIG, LAUNCH = "plan.yaml", "ds_config.json", "launch.sh"
_HEAD = "# A plan of hetopt for LLaMA-Factory\n"
_ABOUT = """\
# Words are put into plan.yaml: launch.sh model_name_or_path=DIR dataset=NAME
# template=NAME max_steps=1000
"""
_SETUP = """\
run="-m llamafactory.launcher plan.yaml ${*@Q}"
"""
_BESIDE = {"all": "all", "attention": "q_proj,k_proj,v_proj,o_proj"}


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`plan.yaml`, `launch.sh`, and with ZeRO `ds_config.json`."""
    found, costs = ranks(data, plan), data.workload.costs
    rank = found[0]
    told: Document = {
        "stage": "sft",
        "do_train": True,
        "output_dir": "states",
        "cutoff_len": data.workload.sequence_length,
        "per_device_train_batch_size": rank.samples,
        "gradient_accumulation_steps": rank.micro_batches,
        "disable_gradient_checkpointing": rank.recompute != "full",
        "optim": OPTIMISERS[costs.memory.optimiser],
        **words("llamafactory", costs.memory.precision),
        **_adapters(costs),
    }
    files = {}
    if costs.updates.zero:
        told["deepspeed"] = CONFIG
        files[CONFIG] = json.dumps(_deepspeed(costs), indent=1) + "\n"
    gpus = [rank.gpu for rank in found]
    return {
        ARGUMENTS: _HEAD + yaml_text(told),
        LAUNCH: torchruns(_ABOUT, _SETUP, gpus),
        **files,
    }


def _adapters(costs: CostSettings) -> Document:
    if (lora := costs.updates.lora) is None:
        return {"finetuning_type": "full"}
    told = {
        "finetuning_type": "lora",
        "lora_rank": lora.rank,
        "lora_alpha": lora.rank,
        "lora_target": _BESIDE[lora.beside],
    }
    if lora.weight_bits is not None:
        told["quantization_bit"] = lora.weight_bits
        told["double_quantization"] = lora.weight_bits == 4
    return told


def _deepspeed(costs: CostSettings) -> Document:
    """Return DeepSpeed's settings; `auto` stands for what the trainer has."""
    return {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "zero_allow_untested_optimizer": True,
        **words("deepspeed", costs.memory.precision),
        "zero_optimization": zero(costs),
    }
