"""The constants that hetopt ships: priors, and what public runs made of them."""

from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from ...catalogue.constants import entries
from . import Constant

Constants = MappingProxyType[str, Constant]


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
def priors(memory: bool = False) -> Constants:
    """What is thought of the constants of time, or of memory, before any run."""
    made = {}
    for name, entry in entries().items():
        if "prior" in entry and name.startswith("memory.") is memory:
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
            if not name.startswith("noise.")
        }
    )


@cache
def noise() -> Noise:
    """What is left, by kind of run."""
    found = {
        name.removeprefix("noise."): float(entry["value"])
        for name, entry in entries().items()
        if name.startswith("noise.")
    }
    return Noise(**found)
