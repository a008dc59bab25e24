"""Replicas of a stage on GPUs of named nodes, by how long the slowest takes.

They may be of unlike degrees. Within a time each node takes as many samples as the best
division of its GPUs does.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from math import inf
from typing import NamedTuple

from ..one_pipeline.cluster_tables import BIG, ClusterTables


class Placed(NamedTuple):
    """A stage on named nodes, by number: GPUs of each."""

    first: int
    last: int
    gpus: dict[int, int]
    hops: Sequence[float]  # us by samples


class Place(NamedTuple):
    """A place of a stage: the time of its pipeline, what it may synchronise, where."""

    micro_batches: int
    sequences: int
    sync_us: float
    from_end: int


class Held(NamedTuple):
    """A replica: the number of its node, its GPUs and its samples."""

    node: int
    gpus: int
    samples: int


def cheapest_replicas(
    cluster: ClusterTables, stage: Placed, place: Place
) -> list[Held] | None:
    """Return replicas that take least, and synchronise within the limit if able."""
    best: tuple[float, list[Held]] | None = None
    for t in range(1, max(stage.gpus.values(), default=0) + 1):
        slow = _Slowest(cluster, stage, place, t)
        us = slow.least_us()
        if us is None:
            continue
        found = slow.replicas(us)
        many = Counter(each.node for each in found)
        least = min(each.gpus for each in found)
        sync_us = cluster.sync_us(
            least, [*many.items()], range(stage.first, stage.last)
        )
        whole = place.micro_batches * us + max(0.0, sync_us - place.sync_us)
        if best is None or whole < best[0]:
            best = whole, found
    return best and best[1]


class _Slowest:
    """Replicas of a stage, of `t` GPUs or more, by how long the slowest takes."""

    def __init__(
        self, cluster: ClusterTables, stage: Placed, place: Place, t: int
    ) -> None:
        self._kind, self._gpus, self._b = cluster.kind, stage.gpus, place.sequences
        first, last = stage.first, stage.last
        #: By kind of nodes and degree: times of 1, 2, ... samples.
        self._us: dict[int, dict[int, list[float]]] = {}
        for node, gpus in stage.gpus.items():
            kind = cluster.kind[node]
            each = self._us.setdefault(kind, {})
            for d in range(t, gpus + 1):
                if d not in each:
                    run = first, last, place.from_end
                    n, b = place.micro_batches, self._b
                    times = cluster.times_us(kind, d, n, run, b).tolist()
                    each[d] = [
                        inf if us >= BIG else us + int(stage.hops[s])
                        for s, us in enumerate(times, start=1)
                    ]

    def least_us(self) -> float | None:
        """The least time within which they take all samples; None where none is."""
        every = {
            us for each in self._us.values() for row in each.values() for us in row
        }
        events = sorted(every - {inf})
        i = bisect_left(events, True, key=lambda us: self._taken(us) >= self._b)
        return events[i] if i < len(events) else None

    def _taken(self, us: float) -> int:
        most = {kind: self._most(kind, us) for kind in self._us}
        return sum(most[self._kind[node]][g][0] for node, g in self._gpus.items())

    def _most(self, kind: int, us: float) -> list[tuple[int, int]]:
        """The most samples within a time by GPUs of a node, and the last's degree."""
        able = {d: _most_samples(row, us) for d, row in self._us[kind].items()}
        found = [(0, 0)]
        for gpus in range(1, 1 + max(self._gpus.values())):
            ways = [
                (found[gpus - d][0] + s, d) for d, s in able.items() if d <= gpus and s
            ]
            found.append(max(ways, default=(0, 0), key=lambda way: way[0]))
        return found

    def replicas(self, us: float) -> list[Held]:
        """Such replicas that take all samples."""
        found, left = list[Held](), self._b
        for node, gpus in self._gpus.items():
            kind = self._kind[node]
            most = self._most(kind, us)
            while left and (degree := most[gpus][1]):
                samples = min(left, _most_samples(self._us[kind][degree], us))
                found.append(Held(node, degree, samples))
                left -= samples
                gpus -= degree
        return found


def _most_samples(times: Sequence[float], us: float) -> int:
    return max((s for s, took in enumerate(times, 1) if took <= us), default=0)
