"""Runs of trainers that no module reads, though they share names with others.

GPT-NeoX, nanotron and litgpt call a micro-batch as Megatron-LM does and degrees
otherwise: read as Megatron-LM's, such a run would have degrees of 1. A run is refused
by the name of its trainer.
"""

import re
from typing import NamedTuple

from ...errors import Unsupported
from .forms import Form


class Stranger(NamedTuple):
    """A trainer is known by names that no other has, or by the words of its command."""

    name: str
    names: re.Pattern[str]
    program: str = ""


_STRANGERS = (
    Stranger("GPT-NeoX", re.compile(r"(?:\w+\.)?pipe_parallel_size"), "deepy.py"),
    Stranger("nanotron", re.compile(r"tokens\.micro_batch_size")),
    Stranger(
        "litgpt",
        re.compile(r"train\.(?:lr_warmup_steps|max_norm|tie_embeddings)"),
        "litgpt",
    ),
    Stranger("torchtune", re.compile(r"[\w.]+\._component_"), "tune"),
    Stranger(
        "MosaicML Composer",
        re.compile(r"(?:\w+\.)*device_train_microbatch_size"),
        "composer",
    ),
    Stranger("Colossal-AI", re.compile(r"colossalai\.\w+"), "colossalai"),
)
_OF_ROLLOUTS = (
    Stranger("verl", re.compile(r"actor_rollout_ref\..+|algorithm\.adv_estimator")),
    Stranger("OpenRLHF", re.compile(r"(?:\w+\.)*micro_rollout_batch_size")),
    Stranger("ROLL", re.compile(r"actor_(?:train|infer)\..+")),
)


def refuse(form: Form, place: str) -> None:
    """Raise `Unsupported` for a run of a trainer that no module reads."""
    names = [name.removeprefix("--").replace("-", "_") for name in form.values]
    words = {word.rpartition("/")[2] for word in form.program.split()}
    for one in (*_STRANGERS, *_OF_ROLLOUTS):
        name = next(filter(one.names.fullmatch, names), None)
        if name is None and not (one.program and one.program in words):
            continue
        if one in _OF_ROLLOUTS:
            raise Unsupported(
                f"{place}: found {name}, a run of {one.name}: rollouts (reinforcement "
                "learning) are not supported by hetopt, whose plans are of training by "
                "the model's own loss"
            )
        raise Unsupported(
            f"{place}: found {name or one.program}, a run of {one.name}, whose files "
            "are not supported by hetopt; write its degrees and batch as flags "
            "of Megatron-LM (--tensor-model-parallel-size 2 --micro-batch-size 1 ...) "
            "into a file, and give that"
        )
