"""Stages as the checker knows them: times of all runs of layers, from the cost table.

Times are the least that the judge could give any such stage. A run is a pair of its
first layer and one past its last; pairs are in one list, by first layer, then by last.
Nothing here is shared with the engine but the cost model.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import accumulate, repeat

import numpy as np
import numpy.typing as npt

from ...costs import CostTable, Position
from ...errors import Unsupported
from ...modelling import look
from ...schema import Instance, exact

Whole = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

UNIT = 1 << 16  # parts of an average layer in which sizes are counted
MOST = 1 << 44  # us of a stage, or units of a run, that a check can hold
_KEPT = 64  # sets of segments, whose times are kept
NONE_US = MOST  # of a stage that there is not, or that is longer


@dataclass(frozen=True)
class Kind:
    """Nodes with equal GPUs, equally many, on equal links; by the first one's name.

    Links to other nodes are those of any of `alike`: of all nodes of that name.
    """

    name: str
    nodes: tuple[str, ...]
    gpus: int
    alike: tuple[str, ...]


@dataclass(frozen=True)
class Alone:
    """Stages in one node of a kind, on `gpus` GPUs, replicas of `degree` or more.

    They have up to `replicas` of them. Times are by run: where the next stage lies in
    the node, or in another one.
    """

    kind: int
    gpus: int
    degree: int
    replicas: int
    inner: Whole
    outer: Whole


@dataclass(frozen=True)
class Replicas:
    """Replicas of stages in several nodes: by number, and times by [run, i]."""

    kind: Whole
    degree: Whole
    samples: Whole
    us: Whole


@dataclass(frozen=True)
class Options:
    """All stages of pipelines of one size of micro-batches, and their times sorted."""

    size: int
    alone: tuple[Alone, ...]
    several: Replicas
    times: Whole


class Stages:
    """Stages of one instance, whose stage of ZeRO and split are fixed."""

    def __init__(self, instance: Instance, apart: tuple[int, ...] = ()) -> None:
        """Read the instance; it has a cluster.

        So many nodes of each kind are `apart`, as a kind of their own behind it.
        """
        self.table = CostTable(instance)
        workload = instance.workload
        self.costs, self.batch = workload.costs, workload.global_batch
        self.rules = [self.table.under(rule) for rule in workload.recomputes]
        self.layers = self.table.layers
        self.sizes = sorted(set(workload.micro_batch_sizes))
        self.kinds = _kinds(self.table, apart)
        pairs = np.triu_indices(self.layers + 1, 1)
        self.first, self.last = (side.astype(np.int64) for side in pairs)
        self.ends = self.last == self.layers
        #: Of each first layer, where its runs begin in the list.
        self.begin = np.searchsorted(self.first, np.arange(self.layers + 1))
        #: The most replicas of a layer, among which ZeRO divides, if that is known.
        self._sharers: int | None = None
        self._forget()
        self.intra = lru_cache(None)(self._find_intra)

    def _forget(self) -> None:
        self.options = lru_cache(None)(self._options)
        self._replica_us = lru_cache(None)(self._find_replica_us)
        self._segments: dict[object, dict[object, Whole]] = {}

    def of_replicas(self, most: int) -> "Stages":
        """Return the stages of plans no layer of which has more replicas than that."""
        found = copy(self)
        found._sharers = min(most, self.table.most_replicas)
        found._forget()
        return found

    def segment_us(self, *key: object) -> dict[object, Whole]:
        """Return times of segments that were computed before, to be added to."""
        if len(self._segments) > _KEPT:
            self._segments.clear()
        return self._segments.setdefault(key, {})

    # -- sizes ------------------------------------------------------------------------

    @cached_property
    def own(self) -> list[int]:
        """Parameters of each layer that rings of whole replicas exchange."""
        sent = self.table.exchanged
        divided = self.table.divided(sent)
        return [p - r for p, r in zip(sent.layers, divided, strict=True)]

    @cached_property
    def behind(self) -> list[int]:
        """Parameters of the layers before each one; embedding and head among them."""
        own, end = list(self.own), self.table.exchanged.end or 0
        own[0] += end
        own[-1] += end
        return [*accumulate(own, initial=0)]

    def _of_runs(self, extra: int) -> list[int]:
        pairs = zip(self.first.tolist(), self.last.tolist(), strict=True)
        up, down = UNIT * self.layers, self.behind[-1] or 1
        sizes = (self.behind[last] - self.behind[first] for first, last in pairs)
        return [(size * up + extra * (down - 1)) // down for size in sizes]

    @cached_property
    def low(self) -> Whole:
        """Sizes of runs in units, rounded down, and `MOST` at the most."""
        return np.array([min(size, MOST) for size in self._of_runs(0)], np.int64)

    @cached_property
    def high(self) -> Whole:
        """Sizes of runs in units, rounded up; `Unsupported` beyond what can be held."""
        found = self._of_runs(1)
        if max(found) > MOST:
            raise Unsupported(
                "embedding and layers differ too much in size for a check: plan again "
                "to prove the bound"
            )
        return np.array(found, np.int64)

    def rate(self, bytes_per_s: Fraction | None) -> Fraction | None:
        """Return the units that a GPU of a ring can exchange in a us."""
        passes = self.costs.updates.sync_passes * self.costs.memory.gradient_bytes
        each = self.costs.split.context * passes * self.behind[-1]
        if not bytes_per_s or not each:
            return None
        return bytes_per_s * UNIT * self.layers / (10**6 * each)

    @cached_property
    def inter(self) -> Fraction | None:
        """Units a us over the fastest link between nodes; None where there is none."""
        cluster = self.table.cluster
        if cluster.inter.pairs:
            rows = (cluster.links.row(cluster.number[x.name]) for x in cluster.nodes)
            links = set[int]().union(*(row.tolist() for row in rows)) - {-1}
            rates = (Fraction(cluster.links.exactly(link)[1]) for link in links)
            return self.rate(max(rates, default=None))
        if cluster.inter.gbytes_per_s is None:
            return None
        return self.rate(exact(cluster.inter.gbytes_per_s) * 10**9)

    def _find_intra(self, kind: int) -> Fraction | None:
        """Return units a us over the link inside such a node."""
        if self.kinds[kind].gpus == 1:
            return None
        name = self.kinds[kind].name
        return self.rate(Fraction(self.table.link(name, name)[1]))

    # -- equal layers -----------------------------------------------------------------

    @cached_property
    def equal(self) -> bool:
        """Return whether runs of as many layers are alike, but for the ends."""
        if not self.table.even or len(set(self.own)) > 1:
            return False
        return all(
            len(set(rule.layer_us(kind.name, t, s))) == 1
            for kind in self.kinds
            for t in range(1, kind.gpus + 1)
            for s in range(1, self.sizes[-1] + 1)
            if self.table.usable(kind.name, t, s)
            for rule in self.rules
        )

    # -- times -------------------------------------------------------------------------

    def _fitting(self, rule: CostTable, name: str, group: tuple[int, int]) -> Flags:
        """Tell for every run whether it fits while one micro-batch is kept.

        Interleaved, a stage has a layer or more for each of its v parts, and a pipeline
        of P stages no fewer than P micro-batches: with p stages behind it and a before,
        it keeps min(P, P + (p - a) / v) of them or more. That grows with p and with a,
        so the fewest there can be are asked for.
        """
        look()
        layers, room = self.layers, rule.memory_mib(name)
        parts = self.costs.schedule.interleave

        def fits(first: int, last: int) -> bool:
            j = min(1, first)
            stages = j + (1 if last == layers else 2)
            kept = 1 if parts == 1 else stages  # as the judge weighs P micro-batches
            need = rule.stage_mib(
                *(name, range(first, last), group, Position(kept, stages, j)),
                self._sharers,
            )
            return sum(need.values()) <= room

        # A part of a run that fits does so, too: bisect, or move on from the last one.
        begin = np.full(layers + 1, layers, np.int64)
        if rule.even:
            # Of equal layers in any order one in the middle stands for the first, which
            # keeps less where it is interleaved with one other stage.
            longest = _most(layers - 2, lambda x: fits(1, 1 + x) or fits(0, x))
            begin[2:layers] = np.maximum(1, np.arange(2, layers) - longest)
        else:
            at = 1
            for last in range(2, layers):
                while at < last and not fits(at, last):
                    at += 1
                begin[last] = at
        begin[layers] = layers - _most(layers - 1, lambda x: fits(layers - x, layers))
        found: Flags = (self.first >= begin[self.last]) & (self.first > 0)
        whole = _most(layers - 1, lambda x: fits(0, x))
        found |= (self.first == 0) & (self.last <= whole)
        found[layers - 1] = fits(0, layers)  # the run of all layers
        return found & (self.last - self.first >= parts)

    def _find_replica_us(self, number: int) -> Whole:
        """Return times of replicas without transfers, by [degree, samples, run]."""
        kind = self.kinds[number]
        shape = kind.gpus + 1, self.sizes[-1] + 1, len(self.first)
        found = np.full(shape, NONE_US, np.int64)
        for t in range(1, kind.gpus + 1):
            for s in range(1, self.sizes[-1] + 1):
                if not self.table.usable(kind.name, t, s):
                    continue
                for rule in self.rules:
                    each = (min(us, NONE_US) for us in rule.layer_us(kind.name, t, s))
                    before = np.array([*accumulate(each, initial=0)], np.int64)
                    took = before[self.last] - before[self.first]
                    took += self.ends * min(rule.head_us(kind.name, t, s), NONE_US)
                    able = self._fitting(rule, kind.name, (t, s))
                    some = np.minimum(found[t, s], took)
                    found[t, s] = np.where(able, some, found[t, s])
        return found

    @cached_property
    def most_replicas(self) -> int:
        """Return how many replicas of all layers have room together, at the most.

        In parameters: all that nodes can hold, of which a replica of each layer has its
        own. Of a node's GPUs, t hold the largest run that fits t of them.
        """
        weights = list(self.table.model.parameters)
        if not sum(weights):  # any weights do: these are of layers
            weights = [1] * self.layers
        behind = [*accumulate(weights, initial=0)]
        size = np.array(behind)[self.last] - np.array(behind)[self.first]
        room = 0
        for number, kind in enumerate(self.kinds):
            fits = np.any(self._replica_us(number) < NONE_US, axis=1)
            held = [0] * (kind.gpus + 1)
            for t in range(1, kind.gpus + 1):
                run = int(np.max(size, where=fits[t], initial=0))
                for k in range(t, kind.gpus + 1):
                    held[k] = max(held[k], held[k - t] + run)
            room += len(kind.nodes) * held[kind.gpus]
        return room // behind[-1]

    @cached_property
    def hops(self) -> list[tuple[Whole, Whole]]:
        """Least transfers of each kind by samples: inside the node, and to others."""
        return [self._hops_of(kind) for kind in self.kinds]

    def _hops_of(self, kind: Kind) -> tuple[Whole, Whole]:
        cluster, often = self.table.cluster, self.costs.schedule.interleave
        outer = [0] + [NONE_US] * self.sizes[-1]
        inner = list(outer)
        others = [node.name for node in cluster.nodes if node.name != kind.name]
        links: set[int] = set()
        if cluster.inter.pairs:
            for name in kind.alike:
                links |= {*cluster.links.row(cluster.number[name]).tolist()} - {-1}
        for s in range(1, self.sizes[-1] + 1):
            if links:
                us = min(self.table.hop_over_us(link, s) for link in links)
                outer[s] = min(NONE_US, often * us)
            elif others:
                us = self.table.least_hop_us(kind.name, others[0], s)
                outer[s] = min(NONE_US, often * us)
            inner[s] = outer[s]
            if kind.gpus > 1:
                us = self.table.least_hop_us(kind.name, kind.name, s)
                inner[s] = min(outer[s], often * us)
        return np.array(inner, np.int64), np.array(outer, np.int64)

    def _sent(self, us: Whole, hops: Whole) -> Whole:
        """Add transfers to times by [degree, samples, run]."""
        paid = np.where(self.ends, 0, hops[: us.shape[1], None])
        return np.minimum(us + paid, NONE_US)

    def _options(self, size: int) -> Options:
        alone: list[Alone] = []
        least = np.min([inner for inner, _ in self.hops], axis=0)
        rows: list[tuple[int, int, int]] = []
        several = list[Whole]()
        for number, kind in enumerate(self.kinds):
            us = self._replica_us(number)[:, : size + 1]
            alone += self._alone(number, us)
            sent = self._sent(us, least)
            for t in range(1, kind.gpus + 1):
                for s in range(1, size):
                    if (sent[t, s] < NONE_US).any():
                        rows.append((number, t, s))
                        several.append(sent[t, s])
        found = np.zeros((len(self.first), 0), np.int64)
        if several:
            found = np.stack(several, axis=1)
        columns = np.array(rows, np.int64).reshape(-1, 3).T
        every = [x for one in alone for x in (one.inner, one.outer)]
        some = [np.unique(x[x < NONE_US]) for x in (*every, found)]
        times = np.unique(np.concatenate(some))
        of_several = Replicas(columns[0], columns[1], columns[2], found)
        return Options(size, tuple(alone), of_several, times)

    def exits(self, options: "Options") -> Whole:
        """Return times of replicas of stages in several nodes: [exit, run, i].

        Exit 0 is to a stage in no node of theirs; exit 1 + c to one that is in one of
        their nodes, too, of kind c, which the last stage does not have.
        """
        several = options.several
        away = np.min([outer for _, outer in self.hops], axis=0)
        shape = 1 + len(self.kinds), *several.us.shape
        found = np.full(shape, NONE_US, np.int64)
        for number in range(len(self.kinds)):
            us = self._replica_us(number)[:, : options.size + 1]
            mine = np.flatnonzero(several.kind == number)
            t, s = several.degree[mine], several.samples[mine]
            for at, hops in enumerate([away, *(inner for inner, _ in self.hops)]):
                found[at][:, mine] = self._sent(us, hops)[t, s].T
        found[1:, self.ends] = NONE_US
        return found

    def _alone(self, number: int, us: Whole) -> Iterator[Alone]:
        """Yield stages in one node, none of which another one can stand for.

        A stage with as many replicas or more, of a higher degree or on fewer GPUs, that
        is nowhere slower, pays no more and may hold no less.
        """
        gpus, size = us.shape[0] - 1, us.shape[1] - 1
        sides = [self._sent(us, hops) for hops in self.hops[number]]
        made: dict[tuple[int, int], Alone] = {}
        for d in range(gpus, 0, -1):
            each = [_slowest(side, d) for side in sides]
            for k in range(d, gpus + 1):
                if size == 1 and k > d:
                    break
                most = min(size, k // d)
                one = Alone(number, k, d, most, *(us[k] for us in each))
                beside = (made.get(key) for key in ((k, d + 1), (k - 1, d)))
                needless = any(x is not None and _serves(x, one) for x in beside)
                if (one.inner < NONE_US).any() and not needless:
                    made[k, d] = one
        yield from (made[key] for key in sorted(made))


def _kinds(table: CostTable, apart: tuple[int, ...]) -> list[Kind]:
    groups: dict[object, list[str]] = {}
    for node in table.cluster.nodes:
        key = table.node_class[node.name], node.count
        groups.setdefault(key, []).append(node.name)
    counts = table.cluster.node
    found: list[Kind] = []
    for x, number in zip(groups.values(), apart or repeat(0), strict=False):
        parts = [tuple(x[number:]), tuple(x[:number])]
        gpus = counts[x[0]].count
        found += (Kind(x[0], part, gpus, tuple(x)) for part in parts if part)
    return found


def _serves(one: Alone, other: Alone) -> bool:
    return (
        one.replicas >= other.replicas
        and bool((one.inner <= other.inner).all())
        and bool((one.outer <= other.outer).all())
    )


def _most(most: int, holds: Callable[[int], bool]) -> int:
    """Return the largest number up to `most` that holds, if smaller ones do; or 0."""
    return bisect_left(range(1, most + 1), True, key=lambda x: not holds(x))


def _slowest(us: Whole, degree: int) -> Whole:
    """Return the least time of the slowest of replicas that share all samples.

    Each has `degree` GPUs or more, by [GPUs at most, run].
    """
    sides, samples, _ = us.shape
    best = np.full(us.shape, NONE_US, np.int64)
    best[:, 0] = 0
    for k in range(degree, sides):
        best[k] = best[k - 1]
        for t in range(degree, k + 1):
            for s in range(1, samples):
                slow = np.maximum(best[k - t, : samples - s], us[t, s])
                np.minimum(best[k, s:], slow, out=best[k, s:])
    found: Whole = best[:, -1]
    return found
