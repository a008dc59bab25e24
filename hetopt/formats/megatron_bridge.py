"""Megatron-Bridge (NeMo): a recipe in Python, and a torchrun for each host.

`recipe.py` begins with the library's `vanilla_gpt_pretrain_config`, which leaves all to
Megatron's own defaults, and sets what `settings.json` beside it tells: the model, how
it is divided, the layout of the pipeline, batches and precision. Ranks are Megatron's,
and so are the rules. Data, tokenizer, optimiser and checkpoints are the
user's: change `config()`, or pass `section.name=value` words on to `launch.sh`. A name
that the installed release does not know ends the run before it trains.

Adapters (LoRA) are the library's `CanonicalLoRA`, one beside each of queries, keys,
values, output, gate, up and down, as the instance counts them.
"""

import json

from ..plans import TrainingPlan
from ..problems.training_plan.shapes import normal
from ..schema import Instance
from ..schema.fields import fields_of
from ..schema.states import Lora
from ..schema.widths import words
from ..text.documents import Document
from ..trainers.megatron.relatives import BRIDGE
from .contract import Held
from .exporting.launching import ranks, torchruns
from .megatron import launch

HELD = Held("Megatron-Bridge", "0.4.2", ("0.6.0, by its source",), "megatron-bridge")

SETTINGS, RECIPE, LAUNCH = "settings.json", "recipe.py", "launch.sh"
_ABOUT = """\
# Further arguments are passed on: words as train.train_iters=1000.
"""
_UNTOLD = """\
# Norms, positions, biases and dropout are GPT-2's, as nothing told the model's: add
# words as model.normalization=RMSNorm, or assemble the instance from a config.json.
"""
_WEIGHTS = """\
# Adapters lie beside weights: add checkpoint.pretrained_checkpoint=DIR.
"""
_SETUP = """\
run="./recipe.py ${*@Q}"
"""
_RECIPE = '''\
"""A recipe of Megatron-Bridge: what settings.json tells, on Megatron's defaults."""

import ast
import json
import sys
from dataclasses import fields
from pathlib import Path

import torch.nn.functional as F
from megatron.bridge.models.mla_provider import MLAModelProvider
from megatron.bridge.peft.canonical_lora import CanonicalLoRA
from megatron.bridge.recipes.gpt.vanilla_gpt import vanilla_gpt_pretrain_config
from megatron.bridge.training.finetune import finetune
from megatron.bridge.training.gpt_step import forward_step
from megatron.bridge.training.mixed_precision import get_mixed_precision_config
from megatron.bridge.training.pretrain import pretrain

SETTINGS = Path(__file__).with_name("settings.json")
ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}


def put(config, section, name, value):
    """Set one field, which must be there."""
    part = getattr(config, section) if section else config
    if not hasattr(part, name):
        sys.exit(f"this release of Megatron-Bridge has no {section}.{name}")
    if name == "window_size":
        value = tuple(value)
    elif name == "activation_func":
        value = ACTIVATIONS[value]
    elif name == "mixed_precision" and value is not None:
        value = get_mixed_precision_config(value)  # its fields are those of others, too
    setattr(part, name, value)


def config(words=()):
    """The whole configuration; `words` are section.name=value."""
    made = vanilla_gpt_pretrain_config()
    told = json.loads(SETTINGS.read_text(encoding="utf-8"))
    if told["model"].get("multi_latent_attention"):
        own = {f.name: getattr(made.model, f.name) for f in fields(made.model)}
        made.model = MLAModelProvider(**own)
    if "peft" in told:
        made.peft = CanonicalLoRA(**told.pop("peft"))
    for section, values in told.items():
        for name, value in values.items():
            put(made, section, name, value)
    for word in words:
        key, _, text = word.partition("=")
        section, _, name = key.rpartition(".")
        try:
            value = ast.literal_eval(text)
        except (SyntaxError, ValueError):
            value = text
        put(made, section, name, value)
    return made


if __name__ == "__main__":
    made = config(sys.argv[1:])
    (pretrain if made.peft is None else finetune)(made, forward_step)
'''

#: Matrices that adapters lie beside, by `workload.costs.lora.beside`.
_ATTENTION = ("linear_q", "linear_k", "linear_v", "linear_proj")
_BESIDE = {
    "attention": _ATTENTION,
    "all": (*_ATTENTION, "linear_fc1_up", "linear_fc1_gate", "linear_fc2"),
}


def export(data: Instance, plan: TrainingPlan) -> dict[str, str]:
    """`recipe.py`, `settings.json` and `launch.sh`."""
    pipeline = normal(plan).pipelines[0]
    text = json.dumps(_sections(data, launch.given(data, pipeline)), indent=1)
    untold = "" if data.model.architecture else _UNTOLD
    if data.model.latent and not data.model.architecture:
        untold += f"# {launch.LATENT_POSITIONS}\n"
    if data.workload.costs.updates.lora is not None:
        untold += _WEIGHTS
    return {
        RECIPE: _RECIPE,
        SETTINGS: text + "\n",
        LAUNCH: torchruns(_ABOUT + untold, _SETUP, ranks(pipeline)),
    }


def _sections(data: Instance, told: Document) -> dict[str, Document]:
    """Fields by the section of the configuration; those of the whole under ''."""
    made = BRIDGE.translate(told)
    made.pop("", None)
    shape, own = made["model"], fields_of(data, 1)
    if shape.pop("swiglu", None):
        shape |= {"gated_linear_unit": True, "activation_func": "silu"}
    # Patterns and pairs that are arguments' texts are lists here.
    for name, field in (
        ("moe_layer_freq", "expert_layers"),
        ("window_attn_skip_freq", "window_layers"),
    ):
        if name in shape:
            shape[name] = own[field]
    if "window_size" in shape:
        shape["window_size"] = list(map(int, shape["window_size"].split(",")))
    mixed = dict(words("megatron_bridge", data.workload.costs.memory.precision))
    whole = {"mixed_precision": mixed.pop("mixed_precision")}
    mixed |= made.get("mixed_precision", {})
    shape.setdefault("vocab_size", data.model.vocabulary)
    # Whatever the recipe itself has.
    shape = {"context_parallel_size": 1, "recompute_granularity": None, **shape}
    if "make_vocab_size_divisible_by" not in shape:
        shape["should_pad_vocab"] = True
    lora, adapters = data.workload.costs.updates.lora, {}
    if lora is not None:
        adapters = {"peft": _adapters(data, lora)}
    sharded = {"use_distributed_optimizer": bool(own["zero"])}
    return {
        "model": shape,
        "train": made["train"],
        "dataset": {"seq_length": data.workload.sequence_length},
        "tokenizer": {"vocab_size": data.model.vocabulary},
        "ddp": sharded | made.get("ddp", {}),
        "optimizer": sharded | made.get("optimizer", {}),
        "": whole,
        **({"mixed_precision": mixed} if mixed else {}),
        **adapters,
    }


def _adapters(data: Instance, lora: Lora) -> Document:
    """Return the arguments of `CanonicalLoRA`; each expert has its own adapters."""
    made: Document = {
        "target_modules": list(_BESIDE[lora.beside]),
        "dim": lora.rank,
        "alpha": lora.rank,
    }
    if data.model.experts:
        made["share_expert_adapters"] = False
    return made
