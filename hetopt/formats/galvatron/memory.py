"""Galvatron's `memory_profiling_*.json`: what layers, embedding and head take."""

from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from ...errors import InstanceError
from ..documents import Document, Values
from ..importing.measured import field, number

ByDegree = dict[int, Fraction]


class Weight(NamedTuple):
    """Memory of a layer in MB: states, and activations of a sequence."""

    states: Fraction | ByDegree
    activation: Fraction | ByDegree
    place: str

    def mb(self, t: int, b: int) -> tuple[Fraction, Fraction]:
        """States and activations on each of `t` GPUs for `b` sequences."""
        states = _at(self.states, t, self.place)
        return states, b * _at(self.activation, t, self.place)


def _at(value: Fraction | ByDegree, t: int, place: str) -> Fraction:
    """Return the value measured at degree `t`, or its part of the value of one GPU."""
    if isinstance(value, Fraction):
        return value / t
    if t not in value:
        raise InstanceError(
            f"{place}: found degrees {sorted(value)}, expected {t} as well, which "
            "allreduce_bandwidth has; measure it"
        )
    return value[t]


def weights(path: Path, tree: Document, options: Values) -> list[Weight]:
    """Return the weights of embedding, layer and head at that sequence length."""
    suffix = "" if "layertype_0" in tree else "_sp"
    place = str(path)
    layer = _of_length(field(tree, f"layertype_0{suffix}", place), options)
    at = f"{place}: layertype_0{suffix}"
    states = 4 * number(field(layer, "parameter_size", at), f"{at}.parameter_size")
    activation = field(layer, "tp_activation_per_bsz_dict", at)
    at += ".tp_activation_per_bsz_dict"
    found = [Weight(states, _by_degree(activation, at), at)]
    for stage in ("first", "last"):
        name = f"other_memory_pp_on_{stage}{suffix}"
        at = f"{place}: {name}"
        held = _of_length(field(tree, name, place), options)
        kept, moved = (
            _by_degree(field(held, part, at), f"{at}.{part}")
            for part in ("model_states", "activation")
        )
        found.append(Weight(kept, moved, at))
    return [found[1], found[0], found[2]]


def _of_length(held: object, options: Values) -> object:
    """Return the part for a sequence length, in files that tell several apart."""
    length = str(options["sequence_length"])
    return held[length] if isinstance(held, dict) and length in held else held


def _by_degree(value: object, place: str) -> Fraction | ByDegree:
    if not isinstance(value, dict):
        return number(value, place)
    return {
        int(key): number(mb, f"{place}.{key}")
        for key, mb in value.items()
        if key.isdecimal() and len(key) < 6
    }
