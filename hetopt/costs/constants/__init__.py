"""Constants of the model: a value, how sure it is, and what it may deviate by.

A constant is asked for by its name and by what qualifies it: `c("traffic", "fms")` is
the common value of `traffic` times the deviation `traffic@fms`; either is one where
nothing is known of it. Constants that are older than a term have none of it.
"""

from collections.abc import Mapping
from typing import NamedTuple

#: Names that have deviations alone, or none where constants are older than their term:
#: a card beside the others of its generation, reading frozen weights.
DEVIATIONS = frozenset({"chip", "frozen.read"})
#: Terms that constants of older instances lack; they have no such term.
ADDED = frozenset(
    {
        *("tp.start", "tp.start.gpu", "tp.copy", "lora.launch", "lora.traffic"),
        "memory.stand_ins",
    }
)


class Constant(NamedTuple):
    """A positive number, and the standard deviation of its logarithm."""

    value: float
    spread: float


class Table:
    """Values by name, and which of them were asked for."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = dict(values)
        self.read: set[str] = set()

    def __call__(self, name: str, *qualities: str) -> float:
        """The value of a name, deviations of its qualities included."""
        if name in ADDED and name not in self.values:
            return 0.0
        found = 1.0
        if name in self.values:
            self.read.add(name)
            found = self.values[name]
        for quality in qualities:
            key = f"{name}@{quality}"
            if key in self.values:
                self.read.add(key)
                found *= self.values[key]
        return found


def plain(constants: Mapping[str, Constant]) -> dict[str, float]:
    """The values alone."""
    return {name: constant.value for name, constant in constants.items()}
