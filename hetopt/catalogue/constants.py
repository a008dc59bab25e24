"""The constants of the model of time and memory, `constants.yaml`.

An entry has a `value`, how sure it is (`spread`, a log-deviation), what was thought of
it before any run (`prior`, middle and spread), and `why`. `name@quality` is a factor of
`name`; `memory.` are those of memory, `noise.` log-deviations of runs from the model.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..text.parsing import read_tree


@cache
def entries() -> Mapping[str, Mapping[str, Any]]:
    """Every entry by its name."""
    return MappingProxyType(read_tree(Path(__file__).with_name("constants.yaml")))


@cache
def constants() -> Mapping[str, float]:
    """The values that times and memory are computed with, by name."""
    return MappingProxyType(
        {
            name: float(entry["value"])
            for name, entry in entries().items()
            if not name.startswith("noise.")
        }
    )


def spread(*, experts: bool, scores: bool, lora: bool = False) -> float:
    """The standard deviation of the logarithm of an iteration's time.

    Runs with experts, those whose attention passes scores through memory, and those of
    adapters deviate further from what is predicted.
    """
    kinds = {"volta": scores, "moe": experts, "lora": lora, "dense": True}
    kind = next(kind for kind, is_ in kinds.items() if is_)
    return float(entries()[f"noise.{kind}"]["value"])
