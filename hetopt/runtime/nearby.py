"""States on each host's own disk, by layer and tensor-parallel shard (AutoHet, IV).

Every rank writes the shards that it holds, as a checkpoint of `hetopt.checkpoints`:

    LOCAL/step-N/manifest.json              units and tensors, written last
    LOCAL/step-N/HOST/UNIT.tpRofD.safetensors

Shared storage gets the same states behind the training, by `checkpoint`. Whoever goes
on asks all hosts which shards they have (the paper's bitmap), has the recovery planned
by the problem `recovery`, and gets each part from its own disk, another host's rank, or
shared storage.
"""

import shutil
import time
from collections.abc import Iterator
from fractions import Fraction
from math import prod
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from ..checkpoints import Manifest, Shard, Tensor, Unit, catalogue, needs
from ..checkpoints.layout import CLOUD, MANIFEST
from ..checkpoints.tensor_files import ITEM_BYTES
from ..errors import NoPlan
from ..exact import recovery as exact
from ..modelling import Limits
from ..planners import autohet_recovery
from ..plans import Recovery, Transfer
from ..problems import recovery
from ..problems.recovery import Saved as SavedShards
from ..problems.recovery.records import Data, Machine, Need
from ..problems.recovery.records import Unit as DataUnit
from ..problems.recovery.storage import Storage
from ..text.writing import write_json
from . import checkpoint
from .jobs import Job
from .layout import Layout
from .optimiser import Update
from .parameters import Parameter
from .processes import Line
from .pytorch import Foreign, dist, torch
from .pytorch import Tensor as Numbers
from .saved import NEAR, Saved

#: Seconds that the exact method has to improve the paper's recovery.
_PLANNING_S = 2.0
#: Seconds that a proved recovery must save, where it reads farther away than needed:
#: the paper's takes the nearest, and leaves shared storage to others.
_WORTH_S = 1.0
_KEPT = 2  # saved steps on local disks
_KINDS = ("weight", "exp_avg", "exp_avg_sq")
_DTYPES = {torch.float32: "F32", torch.float64: "F64"}
_SOURCES = ("local", "peer", "storage")


class Nearby:
    """The shards of a rank, and what all hosts together have."""

    def __init__(self, job: Job, layout: Layout, rank: int, update: Update) -> None:
        assert job.settings.local is not None
        assert job.settings.checkpoint is not None
        self._job, self._rank, self._update = job, rank, update
        self._hosts = [gpu.rpartition(":")[0] for gpu in job.gpus]
        self._host = self._hosts[rank]
        self._root = Path(job.settings.local.replace("{host}", self._host))
        self._shared = Path(job.settings.checkpoint)
        self._parameters = {one.name: one for one in layout.parameters}
        held = layout.team_of[rank]
        self._degree, self._place = held.degree, held.ranks.index(rank)
        self._manifest = self._list_shards()

    def _list_shards(self) -> Manifest:
        dtype = next(iter(self._chunks())).tensor.dtype
        units: dict[str, list[Tensor]] = {}
        for parameter in self._parameters.values():
            for kind in _KINDS:
                tensor = Tensor(
                    name=f"{kind}/{parameter.name}",
                    dtype=_DTYPES[dtype],  # type: ignore[arg-type]
                    shape=parameter.shape,
                    axis=parameter.axis,
                )
                units.setdefault(parameter.units[0], []).append(tensor)
        made = tuple(Unit(name=n, tensors=tuple(t)) for n, t in units.items())
        return Manifest(model="run", units=made)

    def _chunks(self) -> Iterator[Foreign]:
        return checkpoint.held(self._update)

    def _parameter(self, tensor: str) -> Parameter:
        return self._parameters[tensor.partition("/")[2]]

    # --- writing -------------------------------------------------------------------

    def save(self, state: Saved) -> None:
        """Write the own shards; once all hosts have, they are the newest states."""
        folder = self._root / state.folder
        place = folder / self._host
        place.mkdir(parents=True, exist_ok=True)
        for unit, tensors in self._units().items():
            shard = Shard(unit, self._place, self._degree, self._host)
            draft = place / f".{unit}.{self._rank}.tmp"
            save_file(tensors, draft, {"format": self._manifest.format})
            draft.replace(folder / shard.path)
        dist.barrier()
        if self._hosts.index(self._host) == self._rank:
            manifest = self._manifest.model_copy(update={"step": state.step})
            write_json(folder / MANIFEST, manifest.model_dump(mode="json"))
            for old in sorted(self._root.glob("step-*"))[:-_KEPT]:
                shutil.rmtree(old, ignore_errors=True)
        dist.barrier()
        if self._rank == 0:
            write_json(self._shared / NEAR, state.model_dump(mode="json"))

    def _units(self) -> dict[str, dict[str, Numbers]]:
        """The own part of every tensor, by unit: pieces of lanes joined."""
        parts: dict[str, list[Foreign]] = {}
        for chunk in self._chunks():
            parts.setdefault(chunk.name, []).append(chunk)
        found: dict[str, dict[str, Numbers]] = {}
        for name, pieces in parts.items():
            parameter = self._parameter(name)
            axis = parameter.axis
            whole = pieces[0].tensor.detach()
            if axis is not None:
                pieces.sort(key=lambda chunk: chunk.place.offsets[axis])
                whole = torch.cat([chunk.tensor.detach() for chunk in pieces], axis)
            numbers = whole.to("cpu").contiguous()
            found.setdefault(parameter.units[0], {})[name] = numbers
        return found

    # --- reading -------------------------------------------------------------------

    def load(self, state: Saved, *, is_shared: bool) -> Line | None:
        """Read states from where they are nearest; None where a part is nowhere.

        `is_shared` says whether shared storage has them, too. Returns how many bytes
        came from where, beside what was predicted, and the seconds that this took.
        """
        listed: list[Foreign] = [None] * len(self._hosts)
        dist.all_gather_object(listed, self._there(state.folder))
        data = self._data(
            {Shard(*shard) for one in listed for shard in one}, is_shared=is_shared
        )
        planned: list[Foreign] = [None]
        if self._rank == 0:
            planned[0] = _plan_recovery(data)
        dist.broadcast_object_list(planned)
        if planned[0] is None:
            return None
        began = time.perf_counter()
        counts = torch.tensor(self._move(planned[0], state))
        dist.all_reduce(counts)
        seconds = time.perf_counter() - began
        row = _prediction(data, planned[0]) if self._rank == 0 else {}
        measured = dict(zip(_SOURCES, counts.tolist(), strict=True))
        return {
            "restored": state.step,
            "bytes": measured,
            "measured_s": seconds,
            **row,
        }

    def _there(self, folder: str) -> list[tuple[object, ...]]:
        """The shards that this host has of a step."""
        place = self._root / folder
        if not (place / MANIFEST).is_file():
            return []
        return [tuple(one) for one in catalogue(place) if one.place == self._host]

    def _data(self, shards: set[Shard], *, is_shared: bool) -> Data:
        """The problem of getting every rank its shards."""
        storage = Storage()
        parts = {unit.name: unit for unit in self._manifest.units}
        item = ITEM_BYTES[self._manifest.units[0].tensors[0].dtype]
        found: dict[tuple[str, int, int], list[str]] = {}
        for shard in sorted(shards):
            key = shard.place, shard.rank, shard.degree
            found.setdefault(key, []).append(shard.unit)
        saved = [
            SavedShards(
                place=place, medium="disk", units=tuple(names), rank=r, degree=d
            )
            for (place, r, d), names in found.items()
        ]
        if is_shared:
            saved.append(
                SavedShards(
                    place=CLOUD, medium="cloud", units=tuple(parts), rank=0, degree=1
                )
            )
        wanted: dict[tuple[str, int, int], list[str]] = {}
        for gpu, unit, rank, degree in needs(self._job.plan, self._manifest):
            wanted.setdefault((gpu, rank, degree), []).append(unit)
        return Data(
            units=tuple(
                DataUnit(
                    name=name,
                    parameters=sum(map(_count, unit.tensors)) // len(_KINDS),
                )
                for name, unit in parts.items()
            ),
            bytes_per_parameter=item * len(_KINDS),
            nodes=tuple(
                Machine(
                    name=host,
                    memory_bytes_per_s=_rate(storage.memory_gbytes_per_s),
                    disk_bytes_per_s=_rate(storage.disk_gbytes_per_s),
                    network_bytes_per_s=_rate(storage.network_gbytes_per_s),
                )
                for host in dict.fromkeys(self._hosts)
            ),
            cloud_bytes_per_s=_rate(storage.cloud_gbytes_per_s or 1),
            saved=tuple(saved),
            needs=tuple(
                Need(gpu=gpu, units=tuple(names), rank=rank, degree=degree)
                for (gpu, rank, degree), names in wanted.items()
            ),
        )

    def _move(self, plan: Recovery, state: Saved) -> list[int]:
        """Carry a recovery out, all ranks in the same order: bytes by source."""
        counts = dict.fromkeys(_SOURCES, 0)
        chunks: dict[str, list[Foreign]] = {}
        for chunk in self._chunks():
            chunks.setdefault(chunk.name, []).append(chunk)
        stored: list[Foreign] = []
        begun = set[tuple[str, str]]()
        for transfer in plan.transfers:
            key = transfer.gpu, transfer.unit
            tensors = [
                (tensor, span)
                for tensor in self._manifest.unit(transfer.unit).tensors
                for span in tensor.spans(transfer.part)
                if len(span) and (tensor.axis is not None or key not in begun)
            ]
            begun.add(key)
            target = self._job.gpus.index(transfer.gpu)
            source = self._sender(transfer, target)
            if self._rank not in (source, target):
                continue
            for tensor, span in tensors:
                if transfer.source == CLOUD:
                    parts = _within(chunks[tensor.name], tensor, span)
                    stored += [part for part, _ in parts]
                    counts["storage"] += _bytes(tensor, span)
                    continue
                numbers = None
                if self._rank == source:
                    numbers = self._read(state.folder, transfer, tensor, span)
                if source != target:
                    numbers = self._pass_on(numbers, tensor, span, source, target)
                if self._rank == target and numbers is not None:
                    with torch.no_grad():
                        for part, place in _within(chunks[tensor.name], tensor, span):
                            part.tensor.copy_(_cut(numbers, tensor, place))
                    kind = "local" if source == target else "peer"
                    counts[kind] += _bytes(tensor, span)
        if stored:
            checkpoint.read(self._shared / state.folder, stored)
        checkpoint.settle(self._update, state)
        return [counts[kind] for kind in _SOURCES]

    def _sender(self, transfer: Transfer, target: int) -> int:
        """The rank that reads a part: the one that needs it, or one on its host."""
        if transfer.source in (CLOUD, self._hosts[target]):
            return target
        ranks = [r for r, host in enumerate(self._hosts) if host == transfer.source]
        return ranks[target % len(ranks)]

    def _read(
        self, folder: str, transfer: Transfer, tensor: Tensor, span: range
    ) -> Numbers:
        shard = Shard(transfer.unit, *transfer.shard, transfer.source)
        with safe_open(self._root / folder / shard.path, "pt") as file:
            if tensor.axis is None:
                return file.get_tensor(tensor.name)
            start = tensor.spans((shard.rank, shard.rank + 1, shard.degree))[0].start
            cut = slice(span.start - start, span.stop - start)
            held = file.get_slice(tensor.name)
            return held[(slice(None),) * tensor.axis + (cut,)].contiguous()

    def _pass_on(
        self,
        numbers: Numbers | None,
        tensor: Tensor,
        span: range,
        source: int,
        target: int,
    ) -> Numbers | None:
        """Send numbers from one rank to another."""
        if numbers is not None:
            dist.send(numbers, target)
            return None
        shape = list(tensor.shape)
        if tensor.axis is not None:
            shape[tensor.axis] = len(span)
        dtypes = {name: dtype for dtype, name in _DTYPES.items()}
        numbers = torch.empty(shape, dtype=dtypes[tensor.dtype])
        dist.recv(numbers, source)
        return numbers


def _plan_recovery(data: Data) -> Recovery | None:
    """The paper's recovery, or a proved one that is faster; None where a part is lost.

    The paper's takes every part from the nearest place.
    """
    try:
        nearest = autohet_recovery.plan(data)
    except NoPlan:
        return None
    found = exact.solve(data, limits=Limits(time_s=_PLANNING_S), warm_start=nearest)
    if not isinstance(found.plan, Recovery):
        return nearest
    gained = _seconds(data, nearest) - _seconds(data, found.plan)
    return found.plan if gained >= _WORTH_S else nearest


def _seconds(data: Data, plan: Recovery) -> float:
    """The judge's time of a recovery."""
    return float(recovery.evaluate(data, plan).objective or 0) / 10**6


def _prediction(data: Data, plan: Recovery) -> Line:
    """Return what the problem says of a recovery: bytes by source, seconds."""
    whole = {u.name: u.parameters * data.bytes_per_parameter for u in data.units}
    found = dict.fromkeys(_SOURCES, Fraction())
    for transfer in plan.transfers:
        first, last, of = transfer.part
        own = "local" if transfer.source == transfer.node else "peer"
        kind = "storage" if transfer.source == CLOUD else own
        found[kind] += Fraction(last - first, of) * whole[transfer.unit]
    return {
        "predicted_bytes": {kind: int(size) for kind, size in found.items()},
        "predicted_s": _seconds(data, plan),
        "all_from_storage_bytes": int(sum(found.values())),
    }


def _within(
    chunks: list[Foreign], tensor: Tensor, span: range
) -> Iterator[tuple[Foreign, range]]:
    """Parts of the own chunks that lie in a span, and where in the span they do."""
    for chunk in chunks:
        axis = tensor.axis
        if axis is None:
            yield chunk, range(1)
            continue
        first = chunk.place.offsets[axis]
        start = max(first, span.start)
        length = min(first + chunk.tensor.shape[axis], span.stop) - start
        if length > 0:
            part = chunk.part(axis, start - first, length)
            yield part, range(start - span.start, start - span.start + length)


def _cut(numbers: Numbers, tensor: Tensor, place: range) -> Numbers:
    if tensor.axis is None:
        return numbers
    return numbers.narrow(tensor.axis, place.start, len(place))


def _count(tensor: Tensor) -> int:
    return prod(tensor.shape)


def _bytes(tensor: Tensor, span: range) -> int:
    return tensor.outer * tensor.inner * len(span)


def _rate(gbytes_per_s: float) -> int:
    return int(gbytes_per_s * 10**9)
