"""The store of a run's states: safetensors files with pieces of whole tensors.

    DIR/latest.json                     `Saved`: the newest states
    DIR/step-00000200/3-0.safetensors   the first pieces that rank 3 wrote

A piece is a run of a tensor's indices along the axis that degrees cut, and its key is
`KIND/PARAMETER@FIRST:STOP`; kinds are the weight and the optimiser's two moments. So a
run resumes under any plan: a rank reads what it holds from the pieces that have it.

With `--local` every rank also writes all that it holds to its host's own disk. Who
resumes reads each part from the nearest place that has it (AutoHet, section IV): its
own disk, then another host's, then the shared folder.
"""

import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from safetensors.torch import save_file

from ..errors import InstanceError
from ..text.writing import write_json
from .groups import batches
from .jobs import Job
from .optimiser import Update
from .processes import Line
from .pytorch import Foreign, Group, Tensor, dist, torch
from .saved import KINDS, LATEST, MOMENTS, NEAR, Saved
from .tensor_files import opened

_KEY = re.compile(r"(.+)@(\d{1,12}):(\d{1,12})")
_KEPT = 2  # saved steps on local disks
_SOURCES = ("local", "peer", "storage")


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

    def part(self, first: int, stop: int) -> "Piece":
        """Return a part of the piece, which shares its numbers."""
        tensor = self.tensor.narrow(self.axis, first - self.first, stop - first)
        return self._replace(first=first, tensor=tensor)

    def copy(self) -> "Piece":
        """Return the piece in host memory of its own."""
        tensor = torch.empty_like(
            self.tensor, device="cpu", memory_format=torch.contiguous_format
        )
        return self._replace(tensor=tensor.copy_(self.tensor))


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

    def spans(self) -> dict[str, list[tuple[int, int]]]:
        """Runs of indices, by the names of their tensors."""
        return {name: [one[:2] for one in runs] for name, runs in self.files.items()}

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
        held = {f"{p.name}@{p.first}:{p.stop}": p.copy().tensor for p in run}
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
        for kind, tensor in zip(
            KINDS, (master, *(state[moment] for moment in MOMENTS)), strict=True
        ):
            parameter = piece.parameter
            yield Piece(
                f"{kind}/{parameter.name}",
                parameter.axis or 0,
                piece.start,
                tensor.detach(),
                piece.owned,
            )


class States:
    """The states of a run, as a rank writes and reads them.

    With `--async-save`, and with `--local`, training goes on from a copy in host memory
    while the shared folder is written; a save waits for the one before it. All ranks
    call the same methods in the same order.
    """

    def __init__(self, job: Job, rank: int, update: Update) -> None:
        settings = job.settings
        assert settings.checkpoint is not None
        self._update, self._root, self._rank = update, Path(settings.checkpoint), rank
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._near = None if settings.local is None else _Near(job, rank, update)
        # Exchanges of the thread must not come between those of the passes.
        self._group: Group = None
        if settings.async_save or self._near is not None:
            timeout = timedelta(seconds=settings.timeout_s)
            self._group = dist.new_group(backend="gloo", timeout=timeout)

    def save(self, state: Saved) -> None:
        """Write states, and then that they are the latest; older ones but one go.

        A run that is killed meanwhile leaves the ones before as they were.
        """
        self.wait()
        if self._near is not None:
            self._near.save(state)
            if self._rank == 0:
                write_json(self._root / NEAR, state.model_dump(mode="json"))
        own = (piece for piece in pieces(self._update) if piece.owned)
        if self._group is None:
            self._write(own, state)
            return
        words = ([piece.copy() for piece in own], state)
        self._thread = threading.Thread(target=self._write_beside, args=words)
        self._thread.daemon = True
        self._thread.start()

    def wait(self) -> None:
        """Return when all is written; raises what went wrong with it."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            raise self._failure

    def _write_beside(self, own: list[Piece], state: Saved) -> None:
        try:
            self._write(own, state)
        except BaseException as error:  # for the thread that trains
            self._failure = error

    def _write(self, own: Iterable[Piece], state: Saved) -> None:
        root, draft = self._root, self._root / f".{state.folder}.tmp"
        if self._rank == 0:
            for old in root.glob(".step-*.tmp"):  # of saves that were killed
                shutil.rmtree(old)
            draft.mkdir(parents=True)
        dist.barrier(self._group)
        write(draft, str(self._rank), own)
        dist.barrier(self._group)
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
        dist.barrier(self._group)

    def restore(self) -> tuple[Saved | None, Line | None]:
        """Read the newest states that can be had: which, and whence they came.

        The latter is None where all came from the shared folder.
        """
        folder = str(self._root)
        state, row = Saved.of(folder), None
        near = Saved.of(folder, NEAR) if self._near is not None else None
        if self._near is not None and near is not None:
            shared = -1 if state is None else state.step
            if near.step >= shared:
                place = self._root / near.folder if near.step == shared else None
                row = self._near.load(near, place)
        if row is not None:
            state = near
        elif state is not None:
            there = Folder(self._root / state.folder)
            for piece in pieces(self._update):
                there.fill(piece)
        if state is not None:
            self._settle(state)
        return state, row

    def _settle(self, state: Saved) -> None:
        """Have passes use what the pieces were given."""
        for updated in self._update.pieces:
            if updated.master.numel():
                self._update.state(updated)["step"].fill_(float(state.updates))
        self._update.spread()


# --- on hosts' own disks -------------------------------------------------------------


class _Move(NamedTuple):
    """A part that a rank needs of one of its pieces; no `host`: the shared folder."""

    rank: int
    piece: int
    first: int
    stop: int
    host: str | None


class _Near:
    """The states on the hosts' own disks."""

    def __init__(self, job: Job, rank: int, update: Update) -> None:
        assert job.settings.local is not None
        self._hosts = [gpu.rpartition(":")[0] for gpu in job.gpus]
        self._rank, self._host, self._update = rank, self._hosts[rank], update
        self._disk = Path(job.settings.local.replace("{host}", self._host))
        self._is_first = self._hosts.index(self._host) == rank

    def save(self, state: Saved) -> None:
        """Write all that the rank holds, and wait until all ranks have."""
        place = self._disk / state.folder
        if self._is_first:
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)
        dist.barrier()
        write(place, str(self._rank), pieces(self._update))
        dist.barrier()
        if self._is_first:
            for old in sorted(self._disk.glob("step-*"))[:-_KEPT]:
                shutil.rmtree(old, ignore_errors=True)

    def load(self, state: Saved, shared: Path | None) -> Line | None:
        """Read states from where they are nearest: how many bytes came from where.

        `shared` is the shared folder that has them, too. None where a part is nowhere.
        """
        began = time.perf_counter()
        disk, mine = Folder(self._disk / state.folder), [*pieces(self._update)]
        wanted = [(p.name, p.axis, p.first, tuple(p.tensor.shape)) for p in mine]
        told: list[Foreign] = [None] * len(self._hosts)
        dist.all_gather_object(told, (wanted, disk.spans() if self._is_first else {}))
        moves = [*self._moves(told)]
        if shared is None and any(move.host is None for move in moves):
            return None
        storage = Folder(shared) if shared is not None else None
        counts = dict.fromkeys(_SOURCES, 0)
        for move in moves:
            source = self._source(move)
            if self._rank not in (source, move.rank):
                continue
            name, axis, _, shape = told[move.rank][0][move.piece]
            shape = (*shape[:axis], move.stop - move.first, *shape[axis + 1 :])
            if self._rank != move.rank:
                part = disk.read(name, axis, move.first, shape)
                dist.send(part.to(mine[0].tensor.dtype).contiguous(), move.rank)
                continue
            part = mine[move.piece].part(move.first, move.stop)
            if move.host is None and storage is not None:
                kind = "storage"
                storage.fill(part)
            elif source == self._rank:
                kind = "local"
                disk.fill(part)
            else:
                kind = "peer"
                numbers = torch.empty(shape, dtype=part.tensor.dtype)
                dist.recv(numbers, source)
                part.tensor.copy_(numbers)
            counts[kind] += part.tensor.numel() * part.tensor.element_size()
        sums = torch.tensor([*counts.values()])
        dist.all_reduce(sums)
        return {
            "restored": state.step,
            "bytes": dict(zip(_SOURCES, sums.tolist(), strict=True)),
            "measured_s": time.perf_counter() - began,
        }

    def _moves(self, told: list[Foreign]) -> Iterator[_Move]:
        """What every rank needs, cut where places begin and end, from the nearest."""
        have = {
            h: spans for h, (_, spans) in zip(self._hosts, told, strict=True) if spans
        }
        for rank, (wanted, _) in enumerate(told):
            near = sorted(have, key=lambda host: host != self._hosts[rank])
            for number, (name, axis, first, shape) in enumerate(wanted):
                stop = first + shape[axis]
                places = [(host, have[host].get(name, ())) for host in near]
                ends = {end for _, spans in places for span in spans for end in span}
                edges = sorted({first, stop, *(e for e in ends if first < e < stop)})
                for start, end in pairwise(edges):
                    host = next((h for h, s in places if _holds(s, start, end)), None)
                    yield _Move(rank, number, start, end, host)

    def _source(self, move: _Move) -> int:
        """The rank that reads a part: the one that needs it, or one on its host."""
        if move.host in (None, self._hosts[move.rank]):
            return move.rank
        ranks = [r for r, host in enumerate(self._hosts) if host == move.host]
        return ranks[move.rank % len(ranks)]


def _holds(spans: Iterable[tuple[int, int]], start: int, end: int) -> bool:
    return any(first <= start and end <= stop for first, stop in spans)
