"""Constants of the model: a value, how sure it is, and what it may deviate by.

A constant is asked for by its name and by what qualifies it: `c("traffic", "fms")` is
the common value of `traffic` times the deviation `traffic@fms`; either is one where
nothing is known of it. Constants that are older than a term have none of it.
"""

from collections.abc import Mapping
from typing import NamedTuple

from ...errors import InstanceError

#: Names that have deviations alone, or none where constants are older than their term:
#: a card beside the others of its generation, reading frozen weights.
DEVIATIONS = frozenset({"chip", "experts.fused", "frozen.read", "head.unaligned"})
#: Terms that constants of older instances lack; they have no such term.
ADDED = frozenset(
    {
        *("tp.start", "tp.start.gpu", "tp.copy", "lora.launch", "lora.traffic"),
        *("launch.again", "launch.kernel", "memory.stand_ins", "experts.uneven"),
        *("broadcast", "broadcast.hop", "mamba.scan"),
    }
)
#: Programs made of a framework: its deviations are theirs, beside their own.
MADE_OF = dict.fromkeys(("executor", "internevo", "litgpt", "torchtune"), "torch")


class Constant(NamedTuple):
    """A positive number, and the standard deviation of its logarithm."""

    value: float
    spread: float


class Table:
    """Values by name, and which of them were asked for; a name that it lacks is 1."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = values
        self.read: set[str] = set()

    def __call__(self, name: str, *qualities: str) -> float:
        """The value of a name, deviations of its qualities included."""
        if name in self.values:
            self.read.add(name)
            found = self.values[name]
        else:
            found = 0.0 if name in ADDED else self.missing(name)
        for quality in qualities:
            for one in (quality, MADE_OF.get(quality)):
                key = f"{name}@{one}"
                if key in self.values:
                    self.read.add(key)
                    found *= self.values[key]
        return found

    def missing(self, name: str) -> float:
        """Return the value of a name that nothing is known of."""
        return 1.0


class Stated(Table):
    """Values that an instance states: `InstanceError` for one that it lacks."""

    def missing(self, name: str) -> float:
        """Return 1 for a name that has deviations alone; others are an error."""
        if name in DEVIATIONS:
            return 1.0
        raise InstanceError(
            f"workload.costs.calibration.constants: found no {name!r}, which times "
            "depend on; add it, or assemble the instance anew"
        )


def plain(constants: Mapping[str, Constant]) -> dict[str, float]:
    """The values alone."""
    return {name: constant.value for name, constant in constants.items()}
