"""States of a run for other programs: weights as a Hugging Face folder.

The folder has `config.json`, safetensors files and their index; it appears whole or not
at all. Tied embeddings are one tensor.
"""

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import BackendMissing, InstanceError
from ..findings import Finding
from ..text.documents import Document
from ..text.writing import writable, write_json
from .configs import config, family
from .decoder import CONFIG, Decoder
from .parameters import parameters
from .released import INDEX, role
from .saved import KINDS, LATEST, Saved

if TYPE_CHECKING:
    from .pytorch import Tensor
    from .states import Folder


@dataclass(frozen=True)
class SavedStates(Finding, layout="listing.states"):
    """The latest states of a run: their step and size, and the parts that are missing.

    `written` has, of weights written as a released model, the folder, the number of
    tensors and the type of the model.
    """

    step: int
    parameters: int
    files: int
    bytes: int
    incomplete: tuple[str, ...]


def checkpoint(folder: str | Path) -> SavedStates:
    """Return what the latest states of a run's folder are, and what they lack.

    Raises `InstanceError` where there are none, `BackendMissing` without PyTorch.
    """
    state, there = _open_states(folder)
    sizes = [file.stat().st_size for file in there.folder.glob("*.safetensors")]
    whole = list(parameters(state.decoder))
    parameters_ = sum(prod(one.shape) for one in whole)
    missing = (
        f"{kind}/{one.name}"
        for kind in KINDS
        for one in whole
        if not there.has(f"{kind}/{one.name}", one.shape[one.axis or 0])
    )
    told = state.step, parameters_, len(sizes), sum(sizes)
    return SavedStates(*told, tuple(missing))


def to_huggingface(folder: str | Path, out: str | Path) -> Document:
    """Write the weights of a run's latest states as a released model, in 32 bits.

    Returns the step and the number of tensors. Raises `InstanceError` where there are
    no states or `out` is in use, `Unsupported` for a model of no family.
    """
    state, there = _open_states(folder)
    from safetensors.torch import save_file

    from .groups import batches

    shape = state.decoder
    told = config(shape, "float32")
    places: dict[str, str] = {}
    size = 0
    with _draft(out) as draft:
        runs = batches(_tensors(shape, there), lambda one: int(one[1].numel()))
        for number, run in enumerate(runs, 1):
            file = f"model-{number:05}.safetensors"
            save_file(dict(run), draft / file, metadata={"format": "pt"})
            places |= dict.fromkeys((name for name, _ in run), file)
            size += (draft / file).stat().st_size
        index = {"metadata": {"total_size": size}, "weight_map": places}
        write_json(draft / INDEX, index)
        write_json(draft / CONFIG, told)
    return {"step": state.step, "tensors": len(places), "model_type": family(shape)}


def _tensors(shape: Decoder, there: "Folder") -> Iterator[tuple[str, "Tensor"]]:
    """Yield weights as a family keeps them, one after another, with their names."""
    from .pytorch import torch

    told = family(shape)
    thirds: dict[str, list[Tensor]] = {}  # weights and biases take turns
    for one in parameters(shape):
        whole = there.read(f"weight/{one.name}", one.axis or 0, 0, one.shape)
        its = role(one, told)
        if its.third is not None:
            thirds.setdefault(its.tensor, []).append(whole)
            if its.third < 2:
                continue
            whole = torch.cat(thirds.pop(its.tensor))
        yield its.tensor, (whole.T if its.transposed else whole).float().contiguous()


def _open_states(folder: str | Path) -> tuple[Saved, "Folder"]:
    """Return what a run's folder says of its latest states, and their pieces."""
    state = Saved.of(str(folder))
    if state is None:
        raise InstanceError(
            f"{folder}: found no {LATEST}, expected states of `hetopt run --checkpoint`"
        )
    if find_spec("torch") is None:
        raise BackendMissing("PyTorch", "torch safetensors")
    from .states import Folder

    return state, Folder(Path(folder, state.folder))


@contextmanager
def _draft(out: str | Path) -> Iterator[Path]:
    """Yield a new folder beside `out`, which takes its name at the end."""
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
