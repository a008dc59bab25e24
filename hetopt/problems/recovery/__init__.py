"""Recovery: every GPU of a new training plan gets its states, as soon as possible.

After nodes left or arrived, a GPU needs a shard (rank, degree) of some units: layers,
the embedding, the head. Shards that were saved lie in the memory or on the disk of
nodes, or in the cloud; their degrees may differ from the new ones: a shard of half the
degree is read and sliced, those of twice the degree are read and joined.

A unit of p parameters has p * bytes_per_parameter bytes and is cut into `grid` equal
pieces: the least common multiple of all its degrees, saved and needed, times `slices`.
Every piece of a needed shard is transferred exactly once to the GPU, out of one saved
shard that covers it, from a node that is alive or from the cloud. A transfer loads

    disk or memory of the node that it is read from
    out and in: the network of the two nodes, and their own link where they have one,
                when it is read on another node
    the cloud   shared by all nodes, or for each node alone (`cloud_limit`)

and a link of s bytes is busy for ceil(1e6 s / bandwidth) us. All links work at once;
minimise the time of the busiest. Latencies, and the copy between host and GPU, count
for nothing. `loads` says what data-parallel GPUs of one node share: each reads for
itself (`each_gpu`), or what is alike is read once (`once_a_node`).

Source: AutoHet, section IV. 14 bytes a parameter are half-precision weights and the
full-precision optimiser state; the paper's cloud is a file system with 1200 MB/s for
all of its clients.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import ceil
from typing import Literal, NamedTuple

from ... import plans
from ...errors import InstanceError
from ...schema import Instance
from ...text.documents import Document
from .. import Evaluation, Violation
from .records import CLOUD as CLOUD
from .records import Data as Data
from .records import Storage as Storage

sense: Literal["minimise"] = "minimise"
Plan = plans.Recovery


def data(
    instance: Instance,
    *,
    plan: plans.TrainingPlan | None = None,
    new_plan: plans.TrainingPlan | None = None,
    lost: tuple[str, ...] = (),
    storage: Storage | None = None,
) -> Data:
    """Return the recovery of a run of an instance that lost nodes or GPUs.

    The run was by `plan`. `lost` names what left: nodes (`node1`) and GPUs
    (`node1:3`); GPUs of a node that lost some are numbered anew. `new_plan` is for what
    is left. `storage` says where states were saved, and how fast links are.
    """
    from . import changes, posing

    if plan is None or new_plan is None:
        missing = "plan" if plan is None else "new_plan"
        raise InstanceError(
            f"instance {instance.name!r}: found no {missing}, expected the plan before "
            "the change and the one after it: give both, or use `hetopt recover "
            "OLD_PLAN INSTANCE`"
        )
    change = changes.between(instance, instance, lost)
    return posing.pose(change, plan, new_plan, storage)


def unit(data: Data) -> str:
    """Return the unit of the objective."""
    return "us"


# --- the judge -------------------------------------------------------------------


def evaluate(data: Data, plan: plans.Recovery) -> Evaluation:
    """Judge a recovery: every rule it breaks, or the time of the busiest link."""
    book = _Book(data)
    broken = [v for n, t in enumerate(plan.transfers) for v in book.enter(n, t)]
    broken += book.unserved()
    if broken:
        return Evaluation(None, tuple(broken))
    return Evaluation(*_measure(data, book.read))


class _Piece(NamedTuple):
    """A piece on its way; `reader` is a GPU, or a node that reads for all of its."""

    reader: str
    node: str
    source: str
    medium: str
    unit: str
    number: int


class _Book:
    def __init__(self, data: Data) -> None:
        self.data = data
        self.alive = {node.name for node in data.nodes}
        self.shards = {
            (saved.place, saved.medium, name, saved.rank, saved.degree)
            for saved in data.saved
            for name in saved.units
        }
        self.needed = {
            (need.gpu, name): (need.rank, need.degree)
            for need in data.needs
            for name in need.units
        }
        self.served: Counter[tuple[str, str, int]] = Counter()
        self.read: set[_Piece] = set()

    def enter(self, number: int, transfer: plans.Transfer) -> Iterator[Violation]:
        """Serve the pieces of a transfer, unless it breaks a rule."""
        where = f"transfers[{number}]"
        wrong = [Violation(rule, where, by) for rule, by in self._faults(transfer)]
        yield from wrong
        if wrong:
            return
        first, last, of = transfer.part
        each = self.data.grid[transfer.unit] // of
        alone = self.data.loads == "each_gpu"
        reader = transfer.gpu if alone else transfer.node
        for piece in range(first * each, last * each):
            self.served[transfer.gpu, transfer.unit, piece] += 1
            lies = transfer.source, transfer.medium, transfer.unit, piece
            self.read.add(_Piece(reader, transfer.node, *lies))

    def _faults(self, transfer: plans.Transfer) -> Iterator[tuple[str, str]]:
        key = (transfer.gpu, transfer.unit)
        if key not in self.needed:
            yield "not_needed", f"{transfer.gpu} needs nothing of {transfer.unit!r}"
            return
        if transfer.source not in {*self.alive, CLOUD}:
            yield "source_lost", f"{transfer.source!r} is not alive"
        rank, degree = transfer.shard
        lies = (transfer.source, transfer.medium, transfer.unit, rank, degree)
        if lies not in self.shards:
            place = f"{transfer.medium} of {transfer.source}"
            yield "not_there", f"no shard {rank} of {degree} in the {place}"
        first, last, of = transfer.part
        if first >= last or last > of or self.data.grid[transfer.unit] % of:
            pieces = self.data.grid[transfer.unit]
            yield "off_grid", f"{first} to {last} of {of}; the unit has {pieces} pieces"
            return
        start, end = Fraction(first, of), Fraction(last, of)
        for rule, (r, d) in (
            ("outside_shard", transfer.shard),
            ("not_needed", self.needed[key]),
        ):
            if start < Fraction(r, d) or end > Fraction(r + 1, d):
                yield rule, f"{first} to {last} of {of} is not within {r} of {d}"

    def unserved(self) -> Iterator[Violation]:
        """Needed shards with pieces that came not at all, or more than once."""
        for (gpu, name), (rank, degree) in self.needed.items():
            width = self.data.grid[name] // degree
            pieces = range(rank * width, (rank + 1) * width)
            times = [self.served[gpu, name, piece] for piece in pieces]
            where = f"{gpu}, unit {name}"
            if missing := times.count(0):
                yield Violation("missing", where, f"{missing} of {width} pieces")
            if twice := sum(n > 1 for n in times):
                yield Violation("twice", where, f"{twice} of {width} pieces")


_Link = tuple[str, ...]  # words and names: joined they may read like another link's


def _measure(data: Data, read: Iterable[_Piece]) -> tuple[int, tuple[()], Document]:
    speed = {(node.name, "memory"): node.memory_bytes_per_s for node in data.nodes}
    speed |= {(node.name, "disk"): node.disk_bytes_per_s for node in data.nodes}
    network = {node.name: node.network_bytes_per_s for node in data.nodes}
    joined = {frozenset((p.first, p.second)): p.bytes_per_s for p in data.pairs}
    rate: dict[_Link, int] = {}
    load = defaultdict[_Link, Fraction](Fraction)
    ways = {"local": Fraction(0), "peer": Fraction(0), "cloud": Fraction(0)}
    for piece in read:
        size = data.piece_bytes[piece.unit]
        used: list[tuple[_Link, int]] = []
        if piece.source == CLOUD:
            shared = data.cloud_limit == "shared"
            of_cloud: _Link = (CLOUD,) if shared else ("cloud to ", piece.node)
            used.append((of_cloud, data.cloud_bytes_per_s or 0))
            ways["cloud"] += size
        else:
            store = (piece.source, piece.medium)
            used.append(((f"{piece.medium} of ", piece.source), speed[store]))
            ways["local" if piece.source == piece.node else "peer"] += size
            if piece.source != piece.node:
                used.append((("out of ", piece.source), network[piece.source]))
                used.append((("into ", piece.node), network[piece.node]))
                own = joined.get(frozenset((piece.source, piece.node)))
                if own is not None:
                    used.append(((piece.source, " to ", piece.node), own))
        for link, bandwidth in used:
            rate[link] = bandwidth
            load[link] += size
    busy = {link: ceil(load[link] * 10**6 / rate[link]) for link in sorted(load)}
    slowest = max(busy, key=lambda link: busy[link], default=None)
    makespan = busy[slowest] if slowest is not None else 0
    parts = {
        "recovery_us": makespan,
        "busiest": None if slowest is None else "".join(slowest),
        "bytes": {way: ceil(size) for way, size in ways.items()},
        "carried": {
            "".join(link): {"bytes": ceil(load[link]), "us": us}
            for link, us in busy.items()
        },
    }
    return makespan, (), parts
