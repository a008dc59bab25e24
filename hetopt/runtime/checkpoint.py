"""Writes and reads a run's states by `torch.distributed.checkpoint`.

Every parameter, and each moment of the optimiser, is one tensor of the whole model's
shape, of which each owner of a piece writes that piece. So a run may go on under
another plan: a rank reads of each tensor what it holds. The folder must be one that
all hosts see.
"""

import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from ..errors import InstanceError
from ..text.writing import write_json
from .optimiser import Update
from .pytorch import Foreign, Group, Size, Tensor, dist, torch
from .saved import LATEST, Saved

_PARTS = "torch.distributed.checkpoint"
dcp: Foreign = import_module(_PARTS)
defaults: Foreign = import_module(f"{_PARTS}.default_planner")
metadata: Foreign = import_module(f"{_PARTS}.metadata")
planner: Foreign = import_module(f"{_PARTS}.planner")
helpers: Foreign = import_module(f"{_PARTS}.planner_helpers")

_MOMENTS = ("exp_avg", "exp_avg_sq")


class _Chunk(NamedTuple):
    """A part of a whole tensor: its place there, and the numbers."""

    name: str
    size: Size
    place: Foreign
    tensor: Tensor
    owned: bool

    def part(self, axis: int, start: int, length: int) -> "_Chunk":
        """Return what lies along an axis from `start` of the chunk on."""
        offsets, sizes = list(self.place.offsets), list(self.place.sizes)
        offsets[axis], sizes[axis] = offsets[axis] + start, length
        place = metadata.ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))
        tensor = self.tensor.detach().narrow(axis, start, length)
        return self._replace(place=place, tensor=tensor)

    @property
    def index(self) -> Foreign:
        """Return how a checkpoint calls it."""
        return metadata.MetadataIndex(self.name, self.place.offsets)


class _Save(defaults.DefaultSavePlanner):  # type: ignore[misc]
    """Writes the owned chunks."""

    def __init__(self, chunks: list[_Chunk]) -> None:
        super().__init__(flatten_state_dict=False)
        self._chunks = {chunk.index: chunk for chunk in chunks if chunk.owned}

    def create_local_plan(self) -> object:
        self.plan = planner.SavePlan(
            [
                planner.WriteItem(
                    index=index,
                    type=planner.WriteItemType.SHARD,
                    tensor_data=planner.TensorWriteData(
                        chunk=chunk.place,
                        properties=metadata.TensorProperties.create_from_tensor(
                            chunk.tensor
                        ),
                        size=chunk.size,
                    ),
                )
                for index, chunk in self._chunks.items()
            ]
        )
        return self.plan

    def lookup_object(self, index: Foreign) -> Tensor:
        return self._chunks[metadata.MetadataIndex(index.fqn, index.offset)].tensor


class _Load(defaults.DefaultLoadPlanner):  # type: ignore[misc]
    """Reads what the own chunks have, from whichever pieces were written."""

    def __init__(self, chunks: list[_Chunk]) -> None:
        super().__init__(flatten_state_dict=False)
        self._chunks = {chunk.index: chunk for chunk in chunks}

    def create_local_plan(self) -> object:
        there = self.metadata.state_dict_metadata
        found: list[Foreign] = []
        for chunk in self._chunks.values():
            if chunk.name not in there or there[chunk.name].size != chunk.size:
                raise InstanceError(
                    f"checkpoint: found no {chunk.name} of shape {list(chunk.size)}; "
                    "is it of another model?"
                )
            found += helpers.create_read_items_for_chunk_list(
                chunk.name, there[chunk.name], [chunk.place]
            )
        return planner.LoadPlan(found)

    def lookup_tensor(self, index: Foreign) -> Tensor:
        return self._chunks[metadata.MetadataIndex(index.fqn, index.offset)].tensor


class Saver:
    """Writes the states of a run, one save at a time.

    With `beside` training goes on from a copy in host memory while they are written; a
    save waits for the one before it. All ranks call the same methods in the same order.
    """

    def __init__(
        self, update: Update, folder: str, timeout_s: float, *, beside: bool
    ) -> None:
        self._update, self._root = update, Path(folder)
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        # Exchanges of the thread must not come between those of the passes.
        self._group = None
        if beside:
            timeout = timedelta(seconds=timeout_s)
            self._group = dist.new_group(backend="gloo", timeout=timeout)

    def save(self, state: Saved) -> None:
        """Write states, and then that they are the latest; older ones but one go.

        A run that is killed meanwhile leaves the ones before as they were.
        """
        self.wait()
        chunks = list(held(self._update))
        if self._group is None:
            _write(chunks, self._root, state, None)
            return
        copies = [
            chunk._replace(tensor=chunk.tensor.detach().to("cpu", copy=True))
            for chunk in chunks
            if chunk.owned
        ]
        self._thread = threading.Thread(
            target=self._write_shard, args=(copies, state), daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Return when all is written; raises what went wrong with it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def _write_shard(self, chunks: list[_Chunk], state: Saved) -> None:
        try:
            _write(chunks, self._root, state, self._group)
        except BaseException as error:  # for the thread that trains
            self._failure = error


def _write(chunks: list[_Chunk], root: Path, state: Saved, group: Group) -> None:
    first = dist.get_rank() == 0
    draft = root / f".{state.folder}.tmp"
    if first:
        for old in root.glob(".step-*.tmp"):  # of saves that were killed
            shutil.rmtree(old)
        draft.mkdir(parents=True)
    dist.barrier(group)
    writer = dcp.FileSystemWriter(draft)
    dcp.save({}, storage_writer=writer, planner=_Save(chunks), process_group=group)
    if first:
        before = Saved.of(str(root))
        place = root / state.folder
        shutil.rmtree(place, ignore_errors=True)
        draft.rename(place)
        write_json(root / LATEST, state.model_dump(mode="json"))
        keep = {state.folder, before.folder if before else ""}
        for old in root.glob("step-*"):
            if old.name not in keep:
                shutil.rmtree(old, ignore_errors=True)
    dist.barrier(group)


def load(update: Update, folder: str, state: Saved) -> None:
    """Read the states that `save` wrote, under this plan or another one."""
    chunks = list(held(update))
    reader = dcp.FileSystemReader(Path(folder, state.folder))
    dcp.load({}, storage_reader=reader, planner=_Load(chunks))
    settle(update, state)


def read(folder: Path, parts: list[_Chunk]) -> None:
    """Read parts of chunks, whatever other ranks read."""
    reader = dcp.FileSystemReader(folder)
    dcp.load({}, storage_reader=reader, planner=_Load(parts), no_dist=True)


def settle(update: Update, state: Saved) -> None:
    """Have a rank use the states that its pieces were given."""
    for updated in update.pieces:
        if updated.master.numel():
            update.state(updated)["step"].fill_(float(state.updates))
    update.spread()


def held(update: Update) -> Iterator[_Chunk]:
    """Master weights and moments of all pieces; moments are 0 before the first step."""
    for updated in update.pieces:
        piece, _, master = updated
        if master.numel() == 0:
            continue
        state = update.state(updated)
        if not state:
            state["step"] = torch.zeros(())
            for moment in _MOMENTS:
                state[moment] = torch.zeros_like(master)
        shape = piece.parameter.shape
        offsets = [0] * len(shape)
        if piece.parameter.axis is not None:
            offsets[piece.parameter.axis] = piece.start
        place = metadata.ChunkStorageMetadata(torch.Size(offsets), master.shape)
        for kind, tensor in (
            ("weight", master),
            *((moment, state[moment]) for moment in _MOMENTS),
        ):
            name = f"{kind}/{piece.parameter.name}"
            yield _Chunk(name, torch.Size(shape), place, tensor, piece.owned)
