"""The store of a run's states: safetensors files with pieces of whole tensors.

    DIR/latest.json                     `Saved`: the newest states
    DIR/step-00000200/3-0.safetensors   the first pieces that rank 3 wrote

A piece is a run of a tensor's indices along the axis that degrees cut, and its key is
`KIND/PARAMETER@FIRST:STOP`; kinds are the weight and the optimiser's two moments. So a
run resumes under any plan: a rank reads what it holds from the pieces that have it.
"""

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import save_file

from ..errors import InstanceError
from ..text.writing import write_json
from .groups import batches
from .optimiser import Update
from .pytorch import Tensor, dist, torch
from .released import opened
from .saved import KINDS, LATEST, MOMENTS, Saved

_KEY = re.compile(r"(.+)@(\d{1,12}):(\d{1,12})")


class Piece(NamedTuple):
    """A run of a whole tensor's indices along an axis, and the numbers there."""

    name: str
    axis: int
    first: int
    tensor: Tensor
    owned: bool = True

    @property
    def stop(self) -> int:
        """One past the last index."""
        return self.first + int(self.tensor.shape[self.axis])


class _File(NamedTuple):
    """Where a run of indices lies."""

    first: int
    stop: int
    path: Path
    key: str


class Folder:
    """The pieces that the files of a folder have, by the names of whole tensors."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._open = {path: opened(path) for path in folder.glob("*.safetensors")}
        self.files: dict[str, list[_File]] = {}
        for path, file in sorted(self._open.items()):
            for key in file.keys():  # noqa: SIM118
                found = _KEY.fullmatch(key)
                if found is None:
                    raise InstanceError(
                        f"{path}: tensor {key!r}: expected a name with its indices, "
                        "NAME@FIRST:STOP; are these states of `hetopt run`?"
                    )
                one = _File(int(found[2]), int(found[3]), path, key)
                self.files.setdefault(found[1], []).append(one)
        for runs in self.files.values():
            runs.sort()

    def has(self, name: str, length: int) -> bool:
        """Return whether the pieces make a tensor of this length whole."""
        at = 0
        for first, stop, *_ in self.files.get(name, ()):
            at = max(at, stop) if first <= at else at
        return at == length

    def read(self, name: str, axis: int, first: int, shape: Sequence[int]) -> Tensor:
        """Return a part of a tensor that begins at an index, in the saved precision.

        Raises `InstanceError` where no pieces have it, or pieces of other shapes.
        """
        found, at, stop = [], first, first + shape[axis]
        for run in self.files.get(name, ()):
            if run.first <= at < (to := min(run.stop, stop)):
                cut = slice(at - run.first, to - run.first)
                part = self._open[run.path].get_slice(run.key)
                found.append(part[(slice(None),) * axis + (cut,)])
                if found[-1].shape != (*shape[:axis], to - at, *shape[axis + 1 :]):
                    break
                at = to
        if at < stop:
            raise InstanceError(
                f"{self.folder}: found no {name} of shape {list(shape)} from index "
                f"{first} on; is it of another model, or are files missing?"
            )
        return torch.cat(found, axis)

    def fill(self, piece: Piece) -> None:
        """Give a piece its saved numbers."""
        shape = piece.tensor.shape
        piece.tensor.copy_(self.read(piece.name, piece.axis, piece.first, shape))


def write(folder: Path, name: str, pieces: Iterable[Piece]) -> None:
    """Write pieces to files of a bounded size, each of which appears whole."""
    for number, run in enumerate(batches(pieces, lambda one: int(one.tensor.numel()))):
        held = {
            f"{p.name}@{p.first}:{p.stop}": p.tensor.to(
                "cpu", copy=True, memory_format=torch.contiguous_format
            )
            for p in run
        }
        draft = folder / f".{name}-{number}.tmp"
        save_file(held, draft, {"format": "pt"})
        draft.replace(folder / f"{name}-{number}.safetensors")


def pieces(update: Update) -> Iterator[Piece]:
    """The master weights and moments of a rank; moments are 0 before the first step."""
    for updated in update.pieces:
        piece, _, master = updated
        if master.numel() == 0:
            continue
        state = update.state(updated)
        if not state:
            state["step"] = torch.zeros(())
            for moment in MOMENTS:
                state[moment] = torch.zeros_like(master)
        tensors, one = (master, *(state[moment] for moment in MOMENTS)), piece.parameter
        for kind, tensor in zip(KINDS, tensors, strict=True):
            place = f"{kind}/{one.name}", one.axis or 0, piece.start
            yield Piece(*place, tensor.detach(), piece.owned)


class States:
    """The states of a run in a folder, as a rank writes and reads them.

    All ranks call the same methods in the same order.
    """

    def __init__(self, folder: str, rank: int, update: Update) -> None:
        self._update, self._root, self._rank = update, Path(folder), rank

    def save(self, state: Saved) -> None:
        """Write states, and then that they are the latest; older ones but one go.

        A run that is killed meanwhile leaves the ones before as they were.
        """
        root, draft = self._root, self._root / f".{state.folder}.tmp"
        if self._rank == 0:
            for old in root.glob(".step-*.tmp"):  # of saves that were killed
                shutil.rmtree(old)
            draft.mkdir(parents=True)
        dist.barrier()
        own = (piece for piece in pieces(self._update) if piece.owned)
        write(draft, str(self._rank), own)
        dist.barrier()
        if self._rank == 0:
            before = Saved.of(str(root))
            place = root / state.folder
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
            write_json(root / LATEST, state.model_dump(mode="json"))
            keep = {state.folder, before.folder if before else ""}
            for old in root.glob("step-*"):
                if old.name not in keep:
                    shutil.rmtree(old, ignore_errors=True)
        dist.barrier()

    def restore(self) -> Saved | None:
        """Read the latest states, if there are any."""
        state = Saved.of(str(self._root))
        if state is None:
            return None
        there = Folder(self._root / state.folder)
        for piece in pieces(self._update):
            there.fill(piece)
        for updated in self._update.pieces:
            if updated.master.numel():
                self._update.state(updated)["step"].fill_(float(state.updates))
        self._update.spread()  # passes use what the pieces were given
        return state
