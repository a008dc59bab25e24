"""The shipped constants, `constants.yaml`: priors, and what public runs made of them.

An entry has a `value`, how sure it is (`spread`, a log-deviation), what was thought of
it before any run (`prior`, middle and spread), and `why`. `name@quality` is a factor of
`name`; `memory.` are those of memory, `noise.` log-deviations of runs from the model.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from ...text.documents import Fields
from ...text.parsing import read_tree
from . import Constant

Constants = MappingProxyType[str, Constant]
_NOISE, _MEMORY = "noise.", "memory."


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
    program: float  # the same, of a program that is made of a known one


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


def spread(*, experts: bool, scores: bool, lora: bool = False) -> float:
    """Return the standard deviation of the logarithm of an iteration's time.

    Runs with experts, those whose attention passes scores through memory, and those of
    adapters deviate further from what is predicted.
    """
    kinds = {"volta": scores, "moe": experts, "lora": lora, "dense": True}
    kind = next(kind for kind, is_ in kinds.items() if is_)
    return float(getattr(noise(), kind))
