"""The shipped constants, `constants.yaml`: priors, and what public runs made of them.

An entry has a `value`, how sure it is (`spread`, a log-deviation), what was thought of
it before any run (`prior`, middle and spread), and `why`. `name@quality` is a factor of
`name`; `memory.` are those of memory, `noise.` log-deviations of runs from the model.
"""

import math
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ...text.documents import Fields
from ...text.parsing import read_tree
from . import MADE_OF, Constant

Constants = MappingProxyType[str, Constant]
_NOISE, _MEMORY = "noise.", "memory."
#: Frameworks whose runs deviate as those of adapters do.
BOUND_BY_HOSTS = frozenset({"trainer"})
_V100, _A100 = ("V100-16GB-SXM2", "V100-32GB-SXM2"), "A100-80GB-SXM4"
_H100, _H200 = "H100-80GB-SXM5", "H200-141GB-SXM5"
_BLACKWELL = ("B200-180GB-SXM", "GB200-186GB", "GB300-279GB")
#: Cards of the runs that the constants were fitted to, by framework.
SEEN = {
    "megatron": ("L40S", _H100, _H200, *_BLACKWELL),
    "megatron-2021": (*_V100, _A100),
    "deepspeed-2021": _V100[1:],
    "trainer-2021": _V100[1:],
    "deepspeed": (_A100,),
    "trainer": (_A100,),
    "torchtitan": (_A100, "H100-96GB-SXM5", _H200),
    "nanotron": (_H100,),
    "llm-foundry": (_A100, _H100),
    "fms": (_A100, _H100),
    "internevo": (_A100,),
    "torch": ("A100-40GB-SXM4", "RTX3090", "RTX4090", "RTXA5000", _H100),
}


class Noise(NamedTuple):
    """Log-deviations of what no constant explains, by kind of run."""

    dense: float
    nvfp4: float
    moe: float
    moe_16bit: float
    lora: float
    volta: float
    card: float  # more, of a card that no run is known of
    framework: float  # the same, of a framework
    system: float  # the same, of a known framework on a known card
    program: float  # the same, of a program that is made of a known one
    link: float  # of a bus that joins GPUs, below its sheet, where it is not told


@cache
def entries() -> Mapping[str, Fields]:
    """Return every entry of the file by its name."""
    return MappingProxyType(read_tree(Path(__file__).with_name("constants.yaml")))


@cache
def priors(*, memory: bool = False) -> Constants:
    """Return what is thought of the constants of time, or of memory, before any run."""
    made = {}
    for name, entry in entries().items():
        if "prior" in entry and name.startswith(_MEMORY) is memory:
            middle, spread = entry["prior"]
            made[name] = Constant(float(middle), float(spread))
    return MappingProxyType(made)


@cache
def constants() -> Constants:
    """Every constant as it was fitted to runs, or set by hand: those spread 0."""
    return MappingProxyType(
        {
            name: Constant(float(entry["value"]), float(entry.get("spread", 0.0)))
            for name, entry in entries().items()
            if not name.startswith(_NOISE)
        }
    )


@cache
def values() -> Mapping[str, float]:
    """Return the values that times and memory are computed with, by name."""
    return MappingProxyType({name: one.value for name, one in constants().items()})


@cache
def noise() -> Noise:
    """Return what is left, by kind of run."""
    found = {
        name.removeprefix(_NOISE): float(entry["value"])
        for name, entry in entries().items()
        if name.startswith(_NOISE)
    }
    return Noise(**found)


def is_seen(card: str) -> bool:
    """Return whether any run that the constants were fitted to is of a card."""
    return any(card in cards for cards in SEEN.values())


def unseen(card: str, framework: str, *, own: bool = True) -> float:
    """Return the further spread of what no run is known of.

    That is a card, a framework, both together though each is known, or a program that
    is made of a framework, which is not its `own`.
    """
    known, parts = MADE_OF.get(framework, framework), []
    if not is_seen(card):
        parts.append(noise().card)
    elif known in SEEN and card not in SEEN[known]:
        parts.append(noise().system)
    if known not in SEEN:
        parts.append(noise().framework)
    elif framework in MADE_OF or not own:
        parts.append(noise().program)
    return math.hypot(*parts)


def spread(
    *, experts: bool, scores: bool, lora: bool, precision: str, unknown: float = 0.0
) -> float:
    """Return the standard deviation of the logarithm of an iteration's time.

    Runs whose attention passes scores through memory, those of adapters or bound by
    their hosts (`lora`) and those with experts deviate further from what is predicted,
    and so do those of systems of which no run is known, by their `unknown` spread.
    """
    kinds = {
        "volta": scores,
        "lora": lora,
        "moe_16bit": experts and precision in ("bf16", "fp16"),
        "moe": experts,
        "nvfp4": precision == "nvfp4",
        "dense": True,
    }
    kind = next(kind for kind, is_ in kinds.items() if is_)
    return math.hypot(getattr(noise(), kind), unknown)
