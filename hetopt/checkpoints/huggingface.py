"""A Hugging Face folder of safetensors files as a checkpoint of whole units.

Each unit becomes one shard in `cloud`, of degree 1; `split` or any recovery cuts it. A
tensor's name says what it is: Llama and its kin (Mistral, Qwen2, Gemma: separate query,
key and value), GPT-2 (fused, matrices transposed) and GPT-NeoX (fused by head). Folders
have weights only: no moments and no master weights.
"""

import os
import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from ..errors import InstanceError
from ..schema import name_fault
from ..text.complaints import shown, validated
from ..text.parsing import read_tree
from ..text.writing import write_json
from .copying import Saved
from .layout import CLOUD, MANIFEST, Manifest, Portion, Shard, Tensor, Unit
from .tensor_files import TensorFile, read_header
from .writing import sync, write_shard

INDEX, SINGLE = "model.safetensors.index.json", "model.safetensors"
_WHOLE: Portion = (0, 1, 1)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Names of tensors, the axis that degrees cut, and how many blocks it has.

    `(?P<layer>...)` is the number of the layer; without it the tensor is of `unit`.
    """

    names: str
    axis: int | None
    unit: str = ""
    blocks: int = 1


def _rules(prefix: str, rows: Iterable[tuple[str, int | None, int]]) -> list[_Rule]:
    """Return the rules of a layer's tensors, behind `prefix` and the number."""
    start = rf"{prefix}\.(?P<layer>\d{{1,5}})\."
    return [_Rule(start + names, axis, blocks=blocks) for names, axis, blocks in rows]


# A column-parallel matrix is [outputs, inputs]; GPT-2 keeps [inputs, outputs]. The bias
# of a row-parallel matrix is added after the sum over ranks: every rank holds it.
RULES = (
    _Rule(r"(?:model\.embed_tokens|gpt_neox\.embed_in)\.weight", 0, "embedding"),
    _Rule(r"(?:transformer\.)?wte\.weight", 0, "embedding"),
    _Rule(r"(?:transformer\.)?wpe\.weight", None, "embedding"),
    _Rule(r"(?:model\.norm|(?:transformer\.)?ln_f)\.(?:weight|bias)", None, "head"),
    _Rule(r"gpt_neox\.final_layer_norm\.(?:weight|bias)", None, "head"),
    _Rule(r"(?:lm_head|embed_out)\.weight", 0, "head"),
    *_rules(
        r"model\.layers",
        [
            (r"self_attn\.[qkv]_proj\.(?:weight|bias)", 0, 1),
            (r"self_attn\.o_proj\.weight", 1, 1),
            (r"mlp\.(?:gate|up)_proj\.(?:weight|bias)", 0, 1),
            (r"mlp\.down_proj\.weight", 1, 1),
            (r"(?:self_attn\.o_proj|mlp\.down_proj)\.bias", None, 1),
            (r"(?:\w+_layernorm|self_attn\.[qk]_norm)\.weight", None, 1),
            (r"self_attn\.rotary_emb\.inv_freq", None, 1),
        ],
    ),
    *_rules(
        r"(?:transformer\.)?h",
        [
            (r"attn\.c_attn\.weight", 1, 3),
            (r"attn\.c_attn\.bias", 0, 3),
            (r"mlp\.c_fc\.weight", 1, 1),
            (r"mlp\.c_fc\.bias", 0, 1),
            (r"(?:attn|mlp)\.c_proj\.weight", 0, 1),
            (r"(?:attn|mlp)\.c_proj\.bias", None, 1),
            (r"ln_[12]\.(?:weight|bias)", None, 1),
            (r"attn\.(?:masked_)?bias", None, 1),
        ],
    ),
    *_rules(
        r"gpt_neox\.layers",
        [
            (r"attention\.query_key_value\.(?:weight|bias)", 0, 1),
            (r"mlp\.dense_h_to_4h\.(?:weight|bias)", 0, 1),
            (r"(?:attention\.dense|mlp\.dense_4h_to_h)\.weight", 1, 1),
            (r"(?:attention\.dense|mlp\.dense_4h_to_h)\.bias", None, 1),
            (r"\w+_layernorm\.(?:weight|bias)", None, 1),
            (r"attention\.(?:masked_bias|bias|rotary_emb\.inv_freq)", None, 1),
        ],
    ),
)


@dataclass(frozen=True, slots=True)
class _Found:
    """A tensor of the checkpoint, and the file that has it."""

    tensor: Tensor
    file: TensorFile

    def saved(self, stack: ExitStack) -> Saved:
        """Return the tensor in its file, which stays open until the stack closes."""
        path = self.file.path
        number = os.open(path, os.O_RDONLY)
        stack.callback(os.close, number)
        offset = self.file.tensors[self.tensor.name].offset
        return Saved(number, str(path), offset, _WHOLE)


_Units = dict[str, dict[str, _Found]]


def from_huggingface(folder: str | Path, out: str | Path) -> Manifest:
    """Write the checkpoint of a folder with `model.safetensors`, whole or in parts.

    Raises `InstanceError` where a file is damaged or missing, where a tensor has a name
    that no rule knows, and where `out` is not empty: before anything is written.
    """
    source, target = Path(folder), Path(out)
    found = _units(source)
    units = tuple(
        Unit(name=unit, tensors=tuple(one.tensor for one in found[unit].values()))
        for unit in sorted(found, key=_order)
    )
    name = source.resolve().name
    manifest = Manifest(model="model" if name_fault(name) else name, units=units)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InstanceError(
            f"{target}: found it in use, expected an empty folder or none; name another"
        )
    try:
        for unit in manifest.units:
            _write(target / Shard(unit.name, 0, 1, CLOUD).path, unit, found[unit.name])
        sync(target / CLOUD)
        write_json(target / MANIFEST, manifest.model_dump(mode="json"))
    except OSError as error:
        raise InstanceError(
            f"{error.filename or target}: {error.strerror}; make room or name another "
            "folder"
        ) from None
    return manifest


def _write(path: Path, unit: Unit, found: dict[str, _Found]) -> None:
    with ExitStack() as stack:

        def pieces(name: str) -> list[tuple[Portion, Saved]]:
            return [(_WHOLE, found[name].saved(stack))]

        for _ in write_shard(path, unit, 1, {"format": "hetopt-checkpoint"}, pieces):
            pass


# --- what there is ---------------------------------------------------------------


def _units(source: Path) -> _Units:
    """Every tensor under its unit."""
    found: _Units = {}
    for file in weight_files(source):
        for name in sorted(file.tensors):
            unit, tensor = _place(name, file)
            if name in found.setdefault(unit, {}):
                raise InstanceError(
                    f"{file.path}: found tensor {name!r} again, expected it in one "
                    "file; remove the file that does not belong to the model"
                )
            found[unit][name] = _Found(tensor, file)
    layers = sorted(int(unit) for unit in found if unit.isdigit())
    if layers != list(range(len(layers))) or not layers or "embedding" not in found:
        raise InstanceError(
            f"{source}: found {len(layers)} layers and the units "
            f"{', '.join(sorted(found, key=_order)[:5])}, expected an embedding and "
            "layers from 0 on; take all files of the model"
        )
    return found


def weight_files(source: Path) -> list[TensorFile]:
    """Return the files that the index lists, or the only one."""
    index = source / INDEX
    if not os.path.isfile(index):
        return [read_header(source / SINGLE)]
    listed = read_tree(index).get("weight_map")
    found: dict[str, TensorFile] = {}
    for tensor, name in (listed if isinstance(listed, dict) else {"": listed}).items():
        if not isinstance(name, str) or Path(name).name != name:
            raise InstanceError.at(
                index,
                "weight_map",
                f"found {shown(name)}, expected names of files beside it; correct the "
                "index",
            )
        if name not in found:
            found[name] = read_header(source / name)
        if tensor not in found[name].tensors:
            raise InstanceError(
                f"{source / name}: found no tensor {tensor!r}, expected it by "
                f"{INDEX}; take another copy of the file"
            )
    return [found[name] for name in sorted(found)]


def _place(name: str, file: TensorFile) -> tuple[str, Tensor]:
    """Return the unit of a tensor, and how degrees cut it."""
    held = file.tensors[name]
    for rule in RULES:
        if matched := re.fullmatch(rule.names, name):
            break
    else:
        raise InstanceError(
            f"{file.path}: tensor {name!r}: found a name that no rule knows, expected "
            "a model of the Llama family, GPT-2 or GPT-NeoX; write the checkpoint with "
            "hetopt.checkpoints.create"
        )
    blocks = None
    if rule.blocks > 1 and rule.axis is not None and rule.axis < len(held.shape):
        blocks = [held.shape[rule.axis] // rule.blocks] * rule.blocks
    tree = {
        "name": name,
        "dtype": held.dtype,
        "shape": held.shape,
        "axis": rule.axis,
        "blocks": blocks,
    }
    unit = rule.unit or str(int(matched["layer"]))
    where = f"{file.path}: tensor {name!r}"
    return unit, validated(Tensor, tree, where, file=file.path)


def _order(unit: str) -> tuple[int, int]:
    """Return the embedding, the layers by number, the head."""
    if unit.isdigit():
        return 1, int(unit)
    return (0, 0) if unit == "embedding" else (2, 0)
