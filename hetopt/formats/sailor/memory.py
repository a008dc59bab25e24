"""Sailor's description of a model: parameters and activations by degree and layer.

    {degree: {layer: {"params_floats": n, "act_mem_floats": n, ...}}}

also inside of `{model: ...}`, as `llm_info.json` has it. Degrees are tensor-parallel
ones: what a GPU holds of a layer, for one sequence. The numbers of degree 1 are the
model's. Memory of a profile's row is measured where its degree is described with
activations: states by the bytes of a parameter, activations by those of an element.
"""

from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, RootModel

from ...costs.memory import mib
from ...errors import InstanceError
from ...schema import CostSettings
from ...text.complaints import validated
from ...text.parsing import read_tree
from ..documents import Document, Values
from ..foreign import Foreign, Quantity

_SHAPE = '{degree: {layer: {"params_floats": n, "act_mem_floats": n}}}'


def key(text: str, shape: str, least: int = 0) -> int:
    """A number that is the key of an object; else `ValueError` with the shape."""
    if not text.isdecimal() or not least <= int(text[:9]) == int(text) <= 10**6:
        expected = f"expected a number as in {shape}; correct it"
        raise ValueError(f"found the field {text[:20]!r}, {expected}")
    return int(text)


class _Layer(Foreign):
    params_floats: Quantity
    act_mem_floats: Quantity | None = None


_Degree = Annotated[int, BeforeValidator(partial(key, shape=_SHAPE, least=1))]
_Index = Annotated[int, BeforeValidator(partial(key, shape=_SHAPE))]
_Layers = dict[_Index, _Layer]
_Described = RootModel[Annotated[dict[_Degree, _Layers], Field(min_length=1)]]


class Description:
    """A description gives the memory of a model of so many layers."""

    def __init__(self, path: Path, told: str | None, folder: str, layers: int) -> None:
        """Read the file; `InstanceError` where it is of another model.

        Of several models it is the one that was `told`, else that of the `folder`.
        """
        tree = read_tree(path)
        named = [name for name in tree if not str(name).isdecimal()]
        place = str(path)
        if named:
            name = _model(named, told, folder, place)
            tree, place = tree[name], f"{path}: {name}"
        self._place, self._layers = place, layers
        self._degrees = validated(_Described, tree, place).root
        for degree, found in self._degrees.items():
            if sorted(found) != list(range(layers)):
                raise InstanceError(
                    f"{place}: {degree}: found {len(found)} layers, expected {layers} "
                    "as in the profiles; name the description of this model"
                )

    def parameters(self) -> list[int]:
        """Return the parameters of each layer, those of degree 1."""
        whole = self._degrees.get(1)
        if whole is None:
            degrees = ", ".join(map(str, sorted(self._degrees)))
            raise InstanceError(
                f"{self._place}: found tensor-parallel degrees {degrees}, expected 1 "
                "among them, at which a layer has all of its parameters; add it"
            )
        return [int(-(-whole[x].params_floats // 1)) for x in range(self._layers)]

    def weighs(self, degrees: set[int]) -> bool:
        """Return whether the file gives activations of all these degrees."""
        return all(
            t in self._degrees
            and all(x.act_mem_floats is not None for x in self._degrees[t].values())
            for t in degrees
        )

    def memory(self, t: int, b: int, costs: CostSettings) -> dict[str, list[int]]:
        """`layer_mib` and `activation_mib` of a row, where its degree is weighed."""
        rows = [self._degrees[t][x] for x in range(self._layers)]
        each = costs.memory.element_bytes
        kept = [mib(each * b * (row.act_mem_floats or Fraction(0))) for row in rows]
        states = [
            mib(costs.memory.bytes_per_parameter * row.params_floats) for row in rows
        ]
        whole = [state + act for state, act in zip(states, kept, strict=True)]
        return {"layer_mib": whole, "activation_mib": kept}


def _model(named: list[str], told: str | None, folder: str, place: str) -> str:
    if len(named) == 1 and told is None:
        return named[0]
    wanted = told or folder
    alike = [name for name in named if name.casefold() == wanted.casefold()]
    if not alike:
        raise InstanceError(
            f"{place}: found models {', '.join(map(str, named[:8]))}, expected "
            f"{wanted!r}; give --name as one of them"
        )
    return alike[0]


def costs_of(options: Values) -> Document:
    """Return the `costs` that options say: `precision`, where it is told."""
    told = options.get("precision")
    return {} if told is None else {"precision": told}
