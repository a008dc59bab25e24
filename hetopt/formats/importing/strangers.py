"""Runs of trainers that no module reads, though they share names with others.

GPT-NeoX, nanotron and litgpt call a micro-batch as Megatron-LM does and degrees
otherwise: read as Megatron-LM's, such a run would have degrees of 1. A run is refused
by the name of its trainer.

Training with pairs or rewards has further models, answers that it generates, or two
sequences a sample, none of which plans weigh. It is refused whoever trains: `METHODS`
and what is made of them are its words in commands, keys, values and classes.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import Unsupported
from ...text.documents import own_data
from . import constants
from .forms import Form


class Stranger(NamedTuple):
    """A trainer is known by names that no other has, or by the words of its command."""

    name: str
    names: re.Pattern[str]
    program: str = ""
    of_rollouts: bool = False


_TREE = own_data(__file__)
_STRANGERS = [
    Stranger(**{**row, "names": re.compile(row["names"])}) for row in _TREE["trainers"]
]
_WORDS: dict[str, frozenset[str]] = {k: frozenset(x) for k, x in _TREE["words"].items()}
METHODS = _WORDS["methods"]
_CLASS = re.compile(
    r"\w{0,40}?(?:DPO|IPO|KTO|ORPO|CPO|BCO|SimPO|GKD|XPO|Nash|GRPO|GSPO|DAPO|PPO|RLOO|"
    r"Reinforce|RLHF|Reward|PRM)\w{0,40}?(?:Trainer|Config|Arguments|Args|Loss)"
)
#: Words of keys that only such training has, and such keys.
_OF_REWARDS = METHODS - {"rm"} | {"rollout", "critic", "teacher", "pref"}
_KEY = re.compile(
    r"max_(?:prompt|completion)_length|response_length|num_(?:sample_)?generations|"
    r"(?:\w+_)?ref_(?:model|adapter|log)\w*|\w*desirable_weight|(?:rpo|ld)_alpha|"
    r"perform_rl_step|reference_free|kl_coef|token_level_kl"
)
#: With transformers' arguments, whose own have none of this name.
_BESIDE_TRANSFORMERS = ("beta", "per_device_train_batch_size")
_IS_MODULE = re.compile(r"[\w./-]{1,200}\.py|[A-Za-z_]\w{0,80}(?:\.\w{1,80}){1,9}")
_OF_MODULES = ("m", "module")  # flags of launchers that a program follows
_SUPERVISED = ("sft", "pt")


def _methods(text: object) -> frozenset[str]:
    return METHODS.intersection(re.split(r"[^a-z0-9]+", str(text).lower()))


def _programs(form: Form) -> Iterator[str]:
    """Yield what a command may start: programs and modules, no files of settings."""
    words = form.program.split()
    for key, value in form.values.items() if form.is_command else ():
        told = str(value).split()
        # The program stands behind the value of the launcher's last flag.
        named = told[:1] if key.strip("-") in _OF_MODULES else []
        words += named + [word for word in told[1:] if _IS_MODULE.fullmatch(word)]
    for word in words:
        if _IS_MODULE.fullmatch(word) or word.isidentifier():
            yield word.rpartition("/")[2]


def rewards_of(form: Form, place: str, text: str) -> str | None:
    """Return what says that a run learns from pairs or rewards, if anything does."""
    values = {
        key.removeprefix("--").replace("-", "_"): value
        for key, value in form.values.items()
    }
    last = {key: key.rpartition(".")[2] for key in values}
    for key, value in values.items():
        words = re.findall(r"\w+", str(value)) if last[key] == "loss_type" else ()
        if not _WORDS["losses"].isdisjoint(words) or (
            last[key] in _WORDS["choosing"] and _methods(value)
        ):
            return f"{key} {value}"
    for name in _programs(form):
        if (found := _methods(name)) and (found != {"rm"} or name != "rm"):
            return name
    if form.kind == "Python":
        used = {
            node.id if isinstance(node, ast.Name) else node.attr
            for node in ast.walk(constants.parsed(text, place))
            if isinstance(node, ast.Name | ast.Attribute)
        }
        return next(filter(_CLASS.fullmatch, sorted(used)), None)
    if "log" in form.kind:
        called = (one[1] for one in re.finditer(r"\b(\w{1,80})\(", text))
        if found_in := next(filter(_CLASS.fullmatch, called), None):
            return found_in
    if values.get("stage") in _SUPERVISED:
        return None
    for key in values:
        first, *rest = key.split(".")
        if values[key] in (None, False) or str(values[key]).lower() in (
            "false",
            "null",
        ):
            continue
        parts = {*key.split("."), *last[key].split("_")}
        if _KEY.fullmatch(last[key]) or not _OF_REWARDS.isdisjoint(parts):
            return key
        if rest and first in _WORDS["roles"]:
            return key
    return _BESIDE_TRANSFORMERS[0] if {*_BESIDE_TRANSFORMERS} <= {*values} else None


def refuse(form: Form, place: str, text: str) -> None:
    """Raise `Unsupported` for a run of a trainer that no module reads, `text` its file.

    The same is raised for one that learns from pairs or rewards.
    """
    names = [name.removeprefix("--").replace("-", "_") for name in form.values]
    words = {word.rpartition("/")[2] for word in form.program.split()}
    for one in _STRANGERS:
        name = next(filter(one.names.fullmatch, names), None)
        if name is None and not (one.program and one.program in words):
            continue
        if one.of_rollouts:
            raise Unsupported(
                f"{place}: found {name}, a run of {one.name}: rollouts (reinforcement "
                "learning) are not supported by hetopt, which plans training by the "
                "model's own loss"
            )
        raise Unsupported(
            f"{place}: found {name or one.program}, a run of {one.name}, whose files "
            "are not supported by hetopt; write its degrees and batch as flags "
            "of Megatron-LM (--tensor-model-parallel-size 2 --micro-batch-size 1 ...) "
            "into a file, and give that"
        )
    if {"model", "cutoff_len", "micro_batch_size"} <= {*names}:
        raise Unsupported(
            f"{place}: found micro_batch_size, a run of LLaMA-Factory's v1, whose "
            "files are not supported by hetopt; write them as LLaMA-Factory 0.9 has "
            "them (per_device_train_batch_size, finetuning_type)"
        )
    if learns := rewards_of(form, place, text):
        raise Unsupported(
            f"{place}: found {learns}: training with pairs or rewards is not "
            "supported by hetopt, which plans training by the model's own loss, "
            "without a second model"
        )
