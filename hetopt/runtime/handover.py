"""States of a run for other programs, and those of other programs for a run.

    hf   a Hugging Face folder: `config.json` and safetensors files, weights alone
    dcp  a folder of `torch.distributed.checkpoint`: `model.NAME` and
         `optim.state.NAME.{exp_avg,exp_avg_sq,step}`, by Hugging Face's names

Tied embeddings are one tensor; `dcp` has it under both names, as a model's own
`state_dict` does. Folders appear whole or not at all.
"""

import secrets
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import BackendMissing, InstanceError
from ..text.documents import Document, Fields
from ..text.writing import writable, write_json
from .configs import config, family
from .decoder import CONFIG, Decoder, of_config
from .parameters import TABLE, Parameter, parameters
from .released import INDEX, SINGLE, Role, role
from .saved import KINDS, LATEST, MOMENTS, Saved

if TYPE_CHECKING:
    from .pytorch import Tensor
    from .states import Folder

_HEAD = "lm_head.weight"
_FILE_BYTES = 4 * 2**30
_OPTIMISERS = ("optim", "optimizer")
_FEWEST_NAMES = 5
Tensors = dict[str, "Tensor"]
Sizes = Mapping[str, tuple[int, ...]]


def summary(folder: str | Path) -> Document:
    """Return what the latest states of a run's folder are, and what they lack."""
    state, there = _open_states(folder)
    sizes = [file.stat().st_size for file in there.folder.glob("*.safetensors")]
    whole = list(parameters(state.decoder))
    return {
        "step": state.step,
        "parameters": sum(prod(one.shape) for one in whole),
        "files": len(sizes),
        "bytes": sum(sizes),
        "incomplete": [
            f"{kind}/{one.name}"
            for kind in KINDS
            for one in whole
            if not there.has(f"{kind}/{one.name}", one.shape[one.axis or 0])
        ],
    }


def to_huggingface(folder: str | Path, out: str | Path) -> dict[str, object]:
    """Write the weights of a run's latest states as a released model, in 32 bits.

    Returns the step and the number of tensors. Raises `InstanceError` where there are
    no states or `out` is in use, `Unsupported` for a model of no family.
    """
    state, there = _open_states(folder)
    shape = state.decoder
    told = config(shape, "float32")
    with _draft(out) as draft:
        places: dict[str, str] = {}
        run: Tensors = {}
        for name, whole in _names_by_parameter(shape, there, "weight"):
            run[name] = whole.float().contiguous()
            if sum(t.numel() * 4 for t in run.values()) >= _FILE_BYTES:
                _write_part(draft, run, places)
        _write_part(draft, run, places)
        _number(draft, places)
        write_json(draft / CONFIG, told)
    return {"step": state.step, "tensors": len(places), "model_type": family(shape)}


def to_dcp(folder: str | Path, out: str | Path) -> dict[str, object]:
    """Write a run's latest states, weights and moments, by Hugging Face's names.

    All of them are in host memory meanwhile. Raises what `to_huggingface` raises.
    """
    state, there = _open_states(folder)
    shape = state.decoder
    told = config(shape, "float32")
    with _draft(out) as draft:
        model = dict(_names_by_parameter(shape, there, "weight"))
        rows: dict[str, Document] = {name: {} for name in model}
        for moment in MOMENTS:
            for name, whole in _names_by_parameter(shape, there, moment):
                rows[name][moment] = whole
        for row in rows.values():
            row["step"] = _torch().tensor(float(state.updates))
        if shape.tied:
            model[_HEAD] = model[_tensor_of_table(shape)]
        _save({"model": model, "optim": {"state": rows}}, draft)
        write_json(draft / CONFIG, told)
    return {"step": state.step, "tensors": len(model), "model_type": family(shape)}


def from_dcp(
    folder: str | Path, out: str | Path, model: str | Path | None = None
) -> dict[str, object]:
    """States for `hetopt run --checkpoint`, of a folder as `to_dcp` writes it.

    `model` is the `config.json`, by default that of the folder. Without an optimiser's
    part the moments are 0. The step is that of the optimiser. Raises `InstanceError`
    for tensors that are not there, or of another shape.
    """
    source = Path(folder)
    sizes = _sizes(source)
    from .states import Piece, write

    shape = of_config(Path(model) if model is not None else source, 1)
    starts = (start for start in _OPTIMISERS if _begins(sizes, f"{start}.state."))
    optimiser = next(starts, None)
    with _draft(out) as draft:
        found = _own(source, sizes, shape, optimiser)
        step = f"{optimiser}.state.{_tensor_of_table(shape)}.step"
        updates = int(_load(source, {step: ()})[step]) if step in sizes else 0
        state = Saved(
            step=updates,
            folder=f"step-{updates:08}",
            updates=updates,
            loss_scale=1.0,
            seed=0,
            decoder=shape,
        )
        (draft / state.folder).mkdir()
        axes = {one.name: one.axis or 0 for one in parameters(shape)}
        whole = (
            Piece(name, axes[name.partition("/")[2]], 0, tensor)
            for name, tensor in found.items()
        )
        write(draft / state.folder, "0", whole)
        write_json(draft / LATEST, state.model_dump(mode="json"))
    return {"step": state.step, "tensors": len(found), "model_type": family(shape)}


def _own(source: Path, sizes: Sizes, shape: Decoder, optimiser: str | None) -> Tensors:
    """Weights and moments by our names; moments are 0 without an optimiser's."""
    kinds = {"weight": "model.{}"}
    if optimiser is not None:
        kinds |= {m: f"{optimiser}.state.{{}}.{m}" for m in MOMENTS}
    its = family(shape)
    asked: dict[str, str] = {}
    shapes: dict[str, tuple[int, ...]] = {}
    for kind, words in kinds.items():
        for parameter in parameters(shape):
            name, size = _its(source, sizes, parameter, its, words)
            asked[f"{kind}/{parameter.name}"] = name
            shapes[name] = size
    held = _load(source, shapes)
    roles = {one.name: role(one, its) for one in parameters(shape)}
    found = {
        own: _part(held[name], roles[own.partition("/")[2]])
        for own, name in asked.items()
    }
    for parameter in parameters(shape) if optimiser is None else ():
        for moment in MOMENTS:
            zeros = _torch().zeros(parameter.shape, dtype=_torch().float32)
            found[f"{moment}/{parameter.name}"] = zeros
    return found


# --- tensors -------------------------------------------------------------------------


def _names_by_parameter(
    shape: Decoder, there: "Folder", kind: str
) -> Iterator[tuple[str, "Tensor"]]:
    """Tensors of a kind as a family keeps them, one after another."""
    told = family(shape)
    thirds: dict[str, list[Tensor]] = {}  # weights and biases take turns
    for parameter, whole in _parts_held(shape, there, kind):
        its = role(parameter, told)
        if its.third is not None:
            parts = thirds.setdefault(its.tensor, [])
            parts.append(whole)
            if its.third < 2:
                continue
            whole = _torch().cat(thirds.pop(its.tensor))
        yield its.tensor, whole.T.contiguous() if its.transposed else whole


def _parts_held(
    shape: Decoder, there: "Folder", kind: str
) -> Iterator[tuple[Parameter, "Tensor"]]:
    """Tensors of a kind as states have them."""
    for one in parameters(shape):
        name = f"{kind}/{one.name}"
        yield one, there.read(name, one.axis or 0, 0, one.shape)


def _tensor_of_table(shape: Decoder) -> str:
    """Return what a family calls the embeddings."""
    table = next(p for p in parameters(shape) if p.name == TABLE)
    return role(table, family(shape)).tensor


def _its(
    source: Path,
    sizes: Sizes,
    parameter: Parameter,
    told: str,
    words: str,
) -> tuple[str, tuple[int, ...]]:
    """Another program's tensor that has a parameter or its moment, and the shape."""
    its = role(parameter, told)
    want = parameter.shape
    if its.third is not None:
        want = (3 * want[0], *want[1:])
    if its.transposed:
        want = want[::-1]
    name = words.format(its.tensor)
    if sizes.get(name) != want:
        there = f"shape {list(sizes[name])}" if name in sizes else "none of that name"
        known = ", ".join(sorted(sizes)[:_FEWEST_NAMES])
        raise InstanceError(
            f"{source}: tensor {name!r}: found {there}, expected shape {list(want)}; "
            f"the folder has {known} and so on; is it of this model?"
        )
    return name, want


def _part(whole: "Tensor", its: Role) -> "Tensor":
    whole = whole.T if its.transposed else whole
    part = whole if its.third is None else whole.chunk(3)[its.third]
    return part.contiguous()


def _begins(names: Mapping[str, object], start: str) -> bool:
    return any(name.startswith(start) for name in names)


# --- folders -------------------------------------------------------------------------


def _open_states(folder: str | Path) -> tuple[Saved, "Folder"]:
    """Return what a run's folder says of its latest states, and their pieces."""
    state = Saved.of(str(folder))
    if state is None:
        raise InstanceError(
            f"{folder}: found no {LATEST}, expected states of `hetopt run --checkpoint`"
        )
    _torch()
    from .states import Folder

    return state, Folder(Path(folder, state.folder))


@contextmanager
def _draft(out: str | Path) -> Iterator[Path]:
    """A new folder beside `out`, which takes its name at the end."""
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InstanceError(
            f"{target}: found it in use, expected an empty folder or none; name another"
        )
    draft = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    with writable(target):
        draft.mkdir(parents=True)
        try:
            yield draft
            if target.exists():
                target.rmdir()
            draft.rename(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)


def _write_part(draft: Path, run: Tensors, places: dict[str, str]) -> None:
    """Write a file of tensors, and forget them."""
    from safetensors.torch import save_file

    if not run:
        return
    name = f"{len(set(places.values()))}.safetensors"
    save_file(run, draft / name, metadata={"format": "pt"})
    places |= dict.fromkeys(run, name)
    run.clear()


def _number(draft: Path, places: dict[str, str]) -> None:
    """Give the files the names that other programs look for."""
    files = list(dict.fromkeys(places.values()))
    if len(files) == 1:
        (draft / files[0]).rename(draft / SINGLE)
        return
    names = {
        old: f"model-{n:05}-of-{len(files):05}.safetensors"
        for n, old in enumerate(files, 1)
    }
    for old, new in names.items():
        (draft / old).rename(draft / new)
    size = sum((draft / new).stat().st_size for new in names.values())
    index = {
        "metadata": {"total_size": size},
        "weight_map": {tensor: names[old] for tensor, old in places.items()},
    }
    write_json(draft / INDEX, index)


# --- torch.distributed.checkpoint, in one process ------------------------------------


def _torch() -> Any:
    if find_spec("torch") is None:
        raise BackendMissing("PyTorch", "torch safetensors")
    from .pytorch import torch

    return torch


def _dcp() -> Any:
    _torch()
    return import_module("torch.distributed.checkpoint")


def _load(source: Path, shapes: Mapping[str, tuple[int, ...]]) -> Tensors:
    """Tensors of a folder by their names, in the precision that they have."""
    dcp = _dcp()
    there = dcp.FileSystemReader(source).read_metadata().state_dict_metadata
    found = {}
    for name, shape in shapes.items():
        if name not in there or tuple(there[name].size) != shape:
            raise InstanceError(
                f"{source}: found no tensor {name!r} of shape {list(shape)}; is it of "
                "this model?"
            )
        found[name] = _torch().empty(shape, dtype=there[name].properties.dtype)
    with _quiet():
        dcp.load(found, checkpoint_id=str(source), no_dist=True)
    return found


def _sizes(source: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of all tensors of a folder, by their names."""
    reader = _dcp().FileSystemReader(source)
    if not (source / ".metadata").is_file():
        raise InstanceError(
            f"{source}: found no .metadata, expected a folder of "
            "torch.distributed.checkpoint"
        )
    there = reader.read_metadata().state_dict_metadata
    return {n: tuple(one.size) for n, one in there.items() if hasattr(one, "size")}


def _save(tensors: Fields, folder: Path) -> None:
    dcp = _dcp()
    with _quiet():
        dcp.save(dict(tensors), checkpoint_id=str(folder), no_dist=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a warning that one process is all there is."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled")
        yield
