"""Exact stages on named nodes: where they can lie, and what they take.

Samples are shared exactly: replicas of a class of nodes may take the numbers that fit,
each at its time; measured times may fall as samples grow, and some may be missing.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from itertools import chain, product
from typing import NamedTuple

from ...caching import cached_method
from .cluster_tables import BIG, ClusterTables
from .kinds import Kinds, Pattern, State

Places = tuple[tuple[int, int], ...]  # (node, replicas on it), nodes ascending
Free = tuple[int, ...]  # GPUs left, by node
Times = Sequence[Sequence[int]]  # by class: us of 1, 2, ... samples; BIG where none


class PlacedStage(NamedTuple):
    """A stage on its nodes."""

    first: int
    last: int
    t: int
    places: Places


class Stages:
    """Stages of `n` micro-batches of `b` sequences; what was computed is kept."""

    def __init__(self, cluster: ClusterTables, kinds: Kinds, n: int) -> None:
        self.cluster, self.kinds, self.b, self.n = cluster, kinds, kinds.b, n
        self._pairs = bool(cluster.instance.planned_cluster.inter.pairs)
        self._computing = lru_cache(None)(least_us)  # it dies with the object
        self._taus: dict[tuple[object, ...], tuple[int, int]] = {}

    # --- where ---------------------------------------------------------------------

    def places(
        self, pattern: Pattern, free: Free, later: PlacedStage | None
    ) -> Iterator[Places]:
        """Choices of nodes for a pattern, one of all that are alike."""
        behind = dict(later.places) if later else {}
        groups: list[list[list[int]]] = []
        for c in self.cluster.kinds:
            alike: dict[tuple[int, int, int], list[int]] = {}
            if pattern.replicas[c]:
                for node in self.cluster.members[c]:
                    if free[node] >= pattern.t:
                        key = self.cluster.alike[node], free[node], behind.get(node, 0)
                        alike.setdefault(key, []).append(node)
            groups.append(list(alike.values()))
        if pattern.on_one_node:
            for nodes in chain(*groups):
                if free[nodes[0]] >= pattern.t * pattern.total:
                    yield ((nodes[0], pattern.total),)
            return
        pairs = zip(pattern.replicas, groups, strict=True)
        for rows in product(*(_dealt(m, some, free, pattern.t) for m, some in pairs)):
            chosen = tuple(sorted(chain(*rows)))
            if len(chosen) > 1:
                yield chosen

    # --- what it takes ---------------------------------------------------------------

    def tau_us(self, placed: PlacedStage, k: int, later: PlacedStage | None) -> int:
        """Time of a stage at position `k` from the end, its hop included."""
        return self._best(placed, k, later)[0]

    def samples(
        self, placed: PlacedStage, k: int, later: PlacedStage | None
    ) -> dict[int, list[int]]:
        """Samples of the replicas on each node, for that time."""
        replicas = self._replicas(placed.places)
        most = self._best(placed, k, later)[1]
        times = self._times(placed, k)
        limit = self._computing(times, replicas, self.b, most)
        dealt = shared(times, replicas, self.b, most, limit)
        kind = self.cluster.kind
        return {
            node: [dealt[kind[node]].pop() for _ in range(count)]
            for node, count in placed.places
        }

    def sync_us(self, placed: PlacedStage) -> int:
        """Time to synchronise the stage's gradients."""
        if len(placed.places) == 1 and placed.places[0][1] == 1:
            return 0
        span = range(placed.first, placed.last)
        return self.cluster.sync_us(placed.t, placed.places, span)

    def state(self, placed: PlacedStage, free: Free) -> State:
        """The stage's state, where `free` GPUs are left after it."""
        classes = tuple(sorted({self.cluster.kind[node] for node, _ in placed.places}))
        room = free[placed.places[0][0]] if len(placed.places) == 1 else -1
        return State(classes, placed.t, room)

    @cached_method
    def _replicas(self, places: Places) -> tuple[int, ...]:
        counts = [0] * len(self.cluster.kinds)
        for node, count in places:
            counts[self.cluster.kind[node]] += count
        return tuple(counts)

    def _best(
        self, placed: PlacedStage, k: int, later: PlacedStage | None
    ) -> tuple[int, int]:
        """Least time, and the most samples that a replica takes for it."""
        replicas = self._replicas(placed.places)
        ways = self._ways(placed.places, later.places if later else ())
        t = later.t if later else 0
        place = self.place(placed.last, k)
        key = (placed.first, placed.last, placed.t, place, replicas, ways, t)
        if key not in self._taus:
            times = self._times(placed, k)
            share = -(-self.b // sum(replicas))
            floor = self._computing(times, replicas, self.b, self.b)
            best = BIG, self.b
            for most in range(share, self.b + 1):
                us = self._computing(times, replicas, self.b, most)
                if us < BIG:
                    best = min(best, (us + self._hop(ways, t, most), most))
                if us == floor:  # more samples lengthen the hop alone
                    break
            self._taus[key] = best
        return self._taus[key]

    @cached_method
    def _ways(self, places: Places, later: Places) -> frozenset[tuple[int, int]]:
        """Pairs of nodes that stand for all links from a stage to the next."""
        ends: dict[object, tuple[int, int]] = {}
        kind = self.cluster.kind
        for x, _ in places:
            for y, _ in later:
                key = (x, y) if self._pairs else (kind[x], kind[y], x == y)
                ends.setdefault(key, (x, y))
        if self._pairs:
            return frozenset(ends.values())
        return frozenset(self._representatives(x, y) for x, y in ends.values())

    def _representatives(self, x: int, y: int) -> tuple[int, int]:
        """The first pair of nodes with the same link as `x` and `y`."""
        members, kind = self.cluster.members, self.cluster.kind
        if x == y:
            node = max(members[kind[x]], key=lambda i: (self.cluster.count[i], -i))
            return node, node
        first = members[kind[x]][0]
        second = next(i for i in members[kind[y]] if i != first)
        return first, second

    @cached_method
    def _hop(self, ways: frozenset[tuple[int, int]], t: int, samples: int) -> int:
        return min(
            (self.cluster.cost.hop_us(x, y, t, samples, None) for x, y in ways),
            default=0,
        )

    def _times(self, placed: PlacedStage, k: int) -> tuple[tuple[int, ...], ...]:
        """Time of 1, 2, ... samples by class of nodes; BIG where they do not fit."""
        place = self.place(placed.last, k)
        return self._rows(placed.first, placed.last, place, placed.t)

    def place(self, last: int, k: int) -> int:
        """A position from the end that needs as much memory as `k` does."""
        if last == self.cluster.layers:
            return 1
        rule = self.cluster.cost.costs.schedule.in_flight
        return max(2, min(k, self.n)) if rule == "1f1b" else 2

    @cached_method
    def _rows(
        self, first: int, last: int, k: int, t: int
    ) -> tuple[tuple[int, ...], ...]:
        cluster, given = self.cluster, (t, self.n, (first, last, k), self.b)
        return tuple(tuple(cluster.times_us(c, *given).tolist()) for c in cluster.kinds)


def _dealt(m: int, groups: list[list[int]], free: Free, t: int) -> Iterator[Places]:
    """Ways to put `m` replicas on groups of nodes that are alike within."""
    if not groups:
        if m == 0:
            yield ()
        return
    nodes, rest = groups[0], groups[1:]
    most = free[nodes[0]] // t
    for here in range(min(m, most * len(nodes)) + 1):
        for counts in _falling(here, len(nodes), most):
            own = tuple(zip(nodes, counts, strict=False))
            for others in _dealt(m - here, rest, free, t):
                yield own + others


@lru_cache(10_000)
def _falling(total: int, parts: int, most: int) -> tuple[tuple[int, ...], ...]:
    """Falling rows of at most `parts` positive numbers up to `most`, by their sum."""
    if total == 0:
        return ((),)
    if parts == 0 or most == 0:
        return ()
    return tuple(
        (first, *others)
        for first in range(min(total, most), 0, -1)
        for others in _falling(total - first, parts - 1, first)
    )


# --- samples of a micro-batch to the replicas of a stage -------------------------


def least_us(times: Times, replicas: Sequence[int], b: int, most: int) -> int:
    """Least time of the slowest replica, none of which takes more than `most`.

    `replicas` by class take `b` samples together, each at least one. BIG where they
    cannot.
    """
    used = [row[:most] for row, m in zip(times, replicas, strict=True) if m]
    counts = [m for m in replicas if m]
    events = sorted({us for row in used for us in row if us < BIG})
    enough = partial(_enough, used, counts, b)
    return [*events, BIG][bisect_left(events, True, key=enough)]


def _enough(times: Times, counts: Sequence[int], b: int, limit: int) -> bool:
    """Tell whether `b` samples can be shared so that no replica exceeds the limit."""
    allowed = [[s + 1 for s, us in enumerate(row) if us <= limit] for row in times]
    if not all(allowed):
        return False
    if all(row[-1] == len(row) for row in allowed):  # 1, 2, ... without a gap
        most = sum(m * row[-1] for m, row in zip(counts, allowed, strict=True))
        return sum(counts) <= b <= most
    return bool(sums(allowed, counts, b)[-1] >> b & 1)


def sums(allowed: Sequence[Sequence[int]], counts: Sequence[int], b: int) -> list[int]:
    """Sums of the first 0, 1, 2, ... of those that take an allowed number each.

    Of each row so many do. Bit s is set where s, up to `b`, is such a sum.
    """
    found, within = [1], (1 << b + 1) - 1
    for row, m in zip(allowed, counts, strict=True):
        for _ in range(m):
            grown = 0
            for s in row:
                grown |= found[-1] << s
            found.append(grown & within)
    return found


def shared(
    times: Times, replicas: Sequence[int], b: int, most: int, limit: int
) -> list[list[int]]:
    """Samples of each replica, by class, within a limit that `least_us` found."""
    allowed = [
        [s + 1 for s, us in enumerate(row[:most]) if us <= limit] for row in times
    ]
    reached = sums(allowed, replicas, b)
    found: list[list[int]] = [[] for _ in replicas]
    left, place = b, len(reached) - 1
    for c in reversed(range(len(replicas))):
        for _ in range(replicas[c]):
            place -= 1
            # The nearest to an equal share that leaves a sum of the others.
            fair = left / (place + 1)
            ways = [
                s for s in allowed[c] if s <= left and reached[place] >> left - s & 1
            ]
            chosen = min(ways, key=lambda s: (abs(s - fair), s))
            found[c].append(chosen)
            left -= chosen
    return found
