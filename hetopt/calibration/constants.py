"""Constants of the model: a value, how sure it is, and what it may deviate by.

A constant is asked for by its name and by what qualifies it: `c("traffic", "torchtitan")`
is the common value of `traffic` times the deviation `traffic@torchtitan`, one where
nothing is known of that.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Prior(NamedTuple):
    """What is thought of a constant before any run: a middle and a log-deviation."""

    middle: float
    spread: float


class Table:
    """Values by name, and which of them were read."""

    def __init__(self, values: Mapping[str, float]) -> None:
        self.values = dict(values)
        self.read: set[str] = set()

    def __call__(self, name: str, *qualities: str) -> float:
        self.read.add(name)
        found = self.values[name]
        for quality in qualities:
            key = f"{name}@{quality}"
            if key in self.values:
                self.read.add(key)
                found *= self.values[key]
        return found

    def moved(self, name: str, step: float) -> "Table":
        """The table with one value times e^step."""
        return Table({**self.values, name: self.values[name] * math.exp(step)})

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)
