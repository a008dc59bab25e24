"""The module finds the weights of a released model: folders of safetensors files.

Llama and its kin (Mistral, Qwen2, Qwen3) have a tensor for each parameter, and Mixtral
and the Qwens with experts one for each matrix of an expert; GPT-2 keeps matrices
transposed, and query, key and value in one.
"""

import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import InstanceError
from ..text.complaints import shown
from ..text.documents import own_data
from ..text.parsing import read_tree, readable
from .parameters import Parameter

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
_HEAD = "lm_head.weight"
_NAMES: dict[str, dict[str, str]] = own_data(__file__)
_EXPERT = re.compile(r"experts\.(\d+)\.(gate|up|down)")
_LAYER = re.compile(r"layers\.(\d+)\.(.+)\.(weight|bias)")


class Role(NamedTuple):
    """A parameter's part of a tensor: the third `third` of it, if not all."""

    tensor: str
    third: int | None
    transposed: bool


class Stored(NamedTuple):
    """A parameter in a file."""

    path: Path
    role: Role


def opened(path: Path, framework: str = "pt") -> Any:
    """Return a file of tensors, whose header the library has checked."""
    from safetensors import SafetensorError, safe_open

    with readable(path, "a file of tensors; check where it lies"):
        try:
            return safe_open(path, framework=framework)
        except SafetensorError as error:
            raise InstanceError(
                f"{path}: found no whole safetensors file ({error}); take another copy"
            ) from None


def role(parameter: Parameter, family: str, prefix: str = "transformer.") -> Role:
    """Return where a family keeps a parameter; `prefix` begins GPT-2's names."""
    if family != "gpt2":
        return Role(
            _llama(parameter.name, mixtral=family == "mixtral"), None, transposed=False
        )
    third = None
    if matched := re.search(r"\.attention\.([qkv])\.", parameter.name):
        third = "qkv".index(matched[1])
    matrix = len(parameter.shape) == 2 and _LAYER.fullmatch(parameter.name)
    name = _gpt2(parameter.name)
    return Role(name if name == _HEAD else prefix + name, third, bool(matrix))


def stored(folder: Path, parameters: Iterable[Parameter]) -> dict[str, Stored]:
    """Return where each parameter lies, by its name.

    Raises `InstanceError` for a parameter that is not there, or of another shape.
    """
    held = weight_files(folder)
    prefix = "transformer." if "transformer.wte.weight" in held else ""
    family = "gpt2" if f"{prefix}wte.weight" in held else "llama"
    if any("block_sparse_moe" in name for name in held):
        family = "mixtral"
    found = {}
    for parameter in parameters:
        its = role(parameter, family, prefix)
        if its.tensor not in held:
            raise InstanceError(
                f"{folder}: found no tensor {its.tensor!r}, which the model's "
                f"{parameter.name} begins with; is it of this model?"
            )
        path, shape = held[its.tensor]
        found[parameter.name] = one = Stored(path, its)
        _check(one, shape, parameter)
    return found


def weight_files(source: Path) -> dict[str, tuple[Path, tuple[int, ...]]]:
    """Return each tensor's file and shape: by the index, or of the only file."""
    index = source / INDEX
    if not os.path.isfile(index):
        return _tensors(source / SINGLE)
    listed = read_tree(index).get("weight_map")
    found: dict[str, dict[str, tuple[Path, tuple[int, ...]]]] = {}
    for tensor, name in (listed if isinstance(listed, dict) else {"": listed}).items():
        if not isinstance(name, str) or Path(name).name != name:
            raise InstanceError.at(
                index,
                "weight_map",
                f"found {shown(name)}, expected names of files beside it; correct the "
                "index",
            )
        if name not in found:
            found[name] = _tensors(source / name)
        if tensor not in found[name]:
            raise InstanceError(
                f"{source / name}: found no tensor {tensor!r}, expected it by "
                f"{INDEX}; take another copy of the file"
            )
    return {
        tensor: one for name in sorted(found) for tensor, one in found[name].items()
    }


def _tensors(path: Path) -> dict[str, tuple[Path, tuple[int, ...]]]:
    file = opened(path, "np")
    names = file.keys()
    return {name: (path, tuple(file.get_slice(name).get_shape())) for name in names}


def _check(one: Stored, shape: tuple[int, ...], parameter: Parameter) -> None:
    want = parameter.shape
    if one.role.third is not None:
        want = (3 * want[0], *want[1:])
    if one.role.transposed:
        want = want[::-1]
    if shape != want:
        raise InstanceError(
            f"{one.path}: tensor {one.role.tensor!r} has shape {list(shape)}, expected "
            f"{list(want)}; is it of this model?"
        )


def _llama(name: str, *, mixtral: bool) -> str:
    matched = _LAYER.fullmatch(name)
    if matched is None:
        return _NAMES["llama_ends"].get(name, name)
    layer, part, kind = matched.groups()
    if expert := _EXPERT.fullmatch(part):
        number, matrix = expert.groups()
        part = f"mlp.experts.{number}.{matrix}_proj"
        if mixtral:
            word = _NAMES["mixtral_experts"][matrix]
            part = f"block_sparse_moe.experts.{number}.{word}"
    else:
        own = _NAMES["mixtral" if mixtral else "qwen"]
        part = (_NAMES["llama"] | own).get(part, part)
    return f"model.layers.{layer}.{part}.{kind}"


def _gpt2(name: str) -> str:
    matched = _LAYER.fullmatch(name)
    if matched is None:
        return _NAMES["gpt2_ends"].get(name, name)
    return f"h.{matched[1]}.{_NAMES['gpt2'].get(matched[2], matched[2])}.{matched[3]}"
