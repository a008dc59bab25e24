"""Pipelines as paths on a lattice: how many stages of each kind are placed so far.

A node is a vector of counts by kind of stage (equal times, memory and hop); a level
holds the nodes with j stages placed. For a limit B on the time of every stage,

    least[node, l] = least total time of the stages placed, holding layers 0..l-1,

by a sliding minimum: a stage from layer a to l adds T[l] - T[a] + hop with prefix sums
T, and may begin no earlier than where its time passes B or its memory its room. Both
are found by bisection on prefix sums, since no amount is negative. A level is done in
O(L log L) vector operations a kind, over all its nodes at once.

A given order of the stages is the lattice with one node a level.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...problems.layer_partition import Data

Array = Any  # of int64

# Far above any total of times: 1,000 stages x 10,000 layers x 1e9 us are 1e16.
NEVER = 2**60
_CHUNK = 4096  # nodes handled at once, to bound the memory of the tables


@dataclass(frozen=True)
class Kind:
    """Stages that may stand for each other; `members` are their positions in data."""

    times: Array  # prefix sums of layer_us, from 0
    once_mib: Array  # prefix sums of layer_mib
    each_mib: Array  # prefix sums of in_flight_mib
    memory_mib: int
    hop_us: int
    members: tuple[int, ...]

    @property
    def count(self) -> int:
        """Number of stages of this kind."""
        return len(self.members)


@dataclass(frozen=True)
class Path:
    """A cheapest pipeline under a limit: kinds and layers by position."""

    total_us: int
    slowest_us: int
    kinds: tuple[int, ...]
    layers: tuple[int, ...]


@dataclass(frozen=True)
class _Move:
    """One more stage of a kind: from nodes of a level to nodes of the next."""

    kind: int
    sources: Array
    targets: Array


def prefix(values: Sequence[int]) -> Array:
    """Sums of the first 0, 1, ... values."""
    return np.concatenate([[0], np.cumsum(np.array(values, dtype=np.int64))])


def kinds_of(data: Data) -> list[Kind]:
    """Stages of equal times, memory and hop put together, in order of appearance."""
    found: dict[Any, list[int]] = {}
    for number, stage in enumerate(data.stages):
        key = (stage.layer_us, *data.needs(stage), stage.memory_mib, stage.hop_us)
        found.setdefault(key, []).append(number)
    return [
        Kind(prefix(us), prefix(once), prefix(each), memory, hop, tuple(members))
        for (us, once, each, memory, hop), members in found.items()
    ]


class Lattice:
    """All orders of the kinds, or one order, with `shortest` to find the cheapest."""

    def __init__(
        self, data: Data, kinds: Sequence[Kind], order: Sequence[int] | None = None
    ) -> None:
        self.kinds = list(kinds)
        self.layers = len(data.layer_mib)
        self.stages = sum(kind.count for kind in kinds)
        self._micro_batches = data.micro_batches
        if order is None:
            self._levels, self._sizes = _all_orders([k.count for k in kinds])
        else:
            one = np.zeros(1, dtype=np.int64)
            self._levels = [[_Move(kind, one, one)] for kind in order]
            self._sizes = [1] * (self.stages + 1)

    @staticmethod
    def states(kinds: Sequence[Kind], layers: int) -> float:
        """Entries of the tables of the lattice of all orders."""
        return float(np.prod([k.count + 1.0 for k in kinds])) * (layers + 1)

    def shortest(
        self, limit_us: int, check: Callable[[], None], extra_mib: int = 0
    ) -> Path | None:
        """The cheapest path with no stage above the limit, None where there is none."""
        first = np.full((self.layers + 1, 1), NEVER, dtype=np.int64)
        first[0] = 0
        tables = [first]
        for level in range(self.stages):
            check()
            table = np.full(
                (self.layers + 1, self._sizes[level + 1]), NEVER, dtype=np.int64
            )
            for move, begin in self._moves(level, limit_us, extra_mib):
                self._relax(move, begin, self._hop(level, move.kind), tables, table)
            tables.append(table)
        total = int(tables[-1][-1, 0])
        return None if total >= NEVER else self._path_back(limit_us, extra_mib, tables)

    def _hop(self, level: int, kind: int) -> int:
        return 0 if level == self.stages - 1 else self.kinds[kind].hop_us

    def _moves(
        self, level: int, limit_us: int, extra_mib: int
    ) -> Iterator[tuple[_Move, Array]]:
        """Moves from a level, with the first layer a stage up to l may begin at."""
        held = min(self._micro_batches, self.stages - level)
        for move in self._levels[level]:
            kind = self.kinds[move.kind]
            need = kind.once_mib + held * kind.each_mib
            room = kind.memory_mib + extra_mib
            time = limit_us - self._hop(level, move.kind)
            begin = np.maximum(
                np.searchsorted(need, need - room),
                np.searchsorted(kind.times, kind.times - time),
            )
            yield move, begin

    def _relax(
        self, move: _Move, begin: Array, hop: int, tables: list[Array], table: Array
    ) -> None:
        times = self.kinds[move.kind].times[:, None]
        for at in range(0, len(move.sources), _CHUNK):
            sources = move.sources[at : at + _CHUNK]
            targets = move.targets[at : at + _CHUNK]
            least = _sliding_minimum(tables[-1][:, sources] - times, begin)
            least += times + hop
            least[least >= NEVER // 2] = NEVER
            table[:, targets] = np.minimum(table[:, targets], least)

    def _path_back(self, limit_us: int, extra_mib: int, tables: list[Array]) -> Path:
        end, node = self.layers, 0
        kinds, layers, slowest = [], [], 0
        for level in range(self.stages - 1, -1, -1):
            for move, begin in self._moves(level, limit_us, extra_mib):
                where = np.flatnonzero(move.targets == node)
                if not len(where):
                    continue
                source = int(move.sources[where[0]])
                times = self.kinds[move.kind].times
                spans = (
                    times[end] - times[begin[end] : end] + self._hop(level, move.kind)
                )
                sums = tables[level][begin[end] : end, source] + spans
                hits = np.flatnonzero(sums == tables[level + 1][end, node])
                if len(hits):
                    break
            start = int(begin[end]) + int(hits[0])
            slowest = max(slowest, int(spans[hits[0]]))
            kinds.append(move.kind)
            layers.append(end - start)
            end, node = start, source
        total = int(tables[-1][-1, 0])
        return Path(total, slowest, tuple(reversed(kinds)), tuple(reversed(layers)))


def _sliding_minimum(values: Array, begin: Array) -> Array:
    """Row l: minimum of rows begin[l] .. l - 1; `NEVER` where there are none."""
    out = np.full(values.shape, NEVER, dtype=np.int64)
    width = np.arange(len(values)) - begin
    power = np.where(width > 0, np.frexp(np.maximum(width, 1))[1] - 1, -1)
    window = values  # row a: minimum of rows a .. a + 2^step - 1
    for step in range(int(power.max(initial=-1)) + 1):
        ends = np.flatnonzero(power == step)
        out[ends] = np.minimum(window[begin[ends]], window[ends - 2**step])
        window = np.minimum(window[: -(2**step)], window[2**step :])
    return out


def _all_orders(counts: Sequence[int]) -> tuple[list[list[_Move]], list[int]]:
    """Moves by level, and the number of nodes of each level."""
    shape = tuple(n + 1 for n in counts)
    vectors = np.indices(shape).reshape(len(shape), -1)
    level_of = vectors.sum(axis=0)
    strides = np.array([int(np.prod(shape[i + 1 :])) for i in range(len(shape))])
    place = np.zeros(len(level_of), dtype=np.int64)
    nodes = [np.flatnonzero(level_of == j) for j in range(sum(counts) + 1)]
    for level in nodes:
        place[level] = np.arange(len(level))
    levels = []
    for level in nodes[:-1]:
        moves = []
        for kind, most in enumerate(counts):
            free = level[vectors[kind, level] < most]
            moves.append(_Move(kind, place[free], place[free + strides[kind]]))
        levels.append([move for move in moves if len(move.sources)])
    return levels, [len(level) for level in nodes]
