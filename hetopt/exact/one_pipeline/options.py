"""Every stage by counts: which layers on which pattern, with its least times.

An option is a run of layers on a pattern, of a kind. Its computing time is the least
over all shares of the samples, its position the nearest to the end that memory allows
for what follows, so that no stage of a plan costs less than its option.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...result import Stop
from ...solving.run import Halt
from .cluster_tables import BIG, Array, ClusterTables
from .kinds import Kinds

MOST = 12_000_000  # options of one micro-batch size, about 60 bytes each


@dataclass(frozen=True)
class Options:
    """Columns of all options, sorted by last layer, first layer and kind."""

    first: Array
    last: Array
    kind: Array
    pattern: Array
    compute_us: Array
    sync_us: Array

    def __len__(self) -> int:
        return len(self.first)


class Builder:
    """Makes the options of one micro-batch size; `n` micro-batches."""

    def __init__(self, cluster: ClusterTables, kinds: Kinds, n: int) -> None:
        self.cluster, self.kinds, self.n = cluster, kinds, n
        #: Patterns by degree: their numbers and replicas, a row each.
        self._rows: dict[int, tuple[Array, Array]] = {}
        for t in sorted({p.t for p in kinds.patterns}):
            numbers = [i for i, p in enumerate(kinds.patterns) if p.t == t]
            replicas = np.array([kinds.patterns[i].replicas for i in numbers], np.int64)
            self._rows[t] = np.array(numbers, np.int64), replicas
        self._kind = np.array(kinds.of_pattern, np.int64)
        self._syncs = np.array([kinds.sync_sums(p) for p in kinds.patterns], np.int64)
        self._behind = [BIG] * (cluster.layers + 1)  # stages after a cut, at the least

    def build(self, check: Callable[[], None]) -> Options:
        """All options that fit; `Halt` where the tables would be too large.

        `check()` is called again and again, and may raise.
        """
        parts: list[tuple[Array, ...]] = []
        layers, total = self.cluster.layers, 0
        self._behind[layers] = 0
        for last in range(layers, 0, -1):
            check()
            if self._behind[last] >= BIG:
                continue
            k = self._behind[last] + 1
            for first in range(last - 1, -1, -1):
                found = self._run(first, last, k)
                if not found:
                    break  # a longer run fits nowhere either
                total += sum(len(part[0]) for part in found)
                if total > MOST:
                    raise Halt(Stop.MEMORY)
                parts += found
                self._behind[first] = min(self._behind[first], k)
        return self._sorted(parts)

    def _sorted(self, parts: list[tuple[Array, ...]]) -> Options:
        if not parts:
            return Options(*(np.zeros(0, np.int64) for _ in range(6)))
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.lexsort((columns[2], columns[0], columns[1]))
        return Options(*(column[order] for column in columns))

    def _run(self, first: int, last: int, k: int) -> list[tuple[Array, ...]]:
        found: list[tuple[Array, ...]] = []
        for t, (every, replicas) in self._rows.items():
            us = pattern_us(self._times(first, last, k, t), replicas)
            if (fits := us < BIG).any():
                numbers = every[fits]
                span = np.broadcast_to([[first], [last]], (2, len(numbers)))
                syncs = self.cluster.summed(self._syncs[numbers], first, last)
                found.append((*span, self._kind[numbers], numbers, us[fits], syncs))
        return found

    def _times(self, first: int, last: int, k: int, t: int) -> Array:
        """Least time of 1, 2, ... samples or more on a replica, by class of nodes."""
        cluster, run = self.cluster, (first, last, k)
        times = np.array(
            [cluster.times_us(c, t, self.n, run, self.kinds.b) for c in cluster.kinds]
        )
        least = np.minimum.accumulate(times[:, ::-1], axis=1)[:, ::-1]
        return np.ascontiguousarray(least)


def pattern_us(times: Array, replicas: Array) -> Array:
    """Return the least time of the slowest replica of each pattern, `BIG` for none.

    `times` [class, samples - 1] do not fall as samples grow, to as many as all replicas
    take together; each of the `replicas` [pattern, class] takes one or more.
    """
    instants = np.unique(times[times < BIG])
    most = np.array([np.searchsorted(row, instants, "right") for row in times])
    short = replicas @ most < times.shape[1]
    short |= (replicas > 0) @ (most == 0)
    found: Array = np.append(instants, BIG)[short.sum(axis=1)]
    return found
