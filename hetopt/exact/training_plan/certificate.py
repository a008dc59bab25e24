"""Bounds on training plans derived again from their certificate.

A certificate says how the possible plans were divided into cases and which prices
refute each (`bound`, `prices`). Here the divisions are carried out anew, and every
price list is checked against all pipelines by a plain dynamic program in doubles, for
every bottleneck that there can be: nothing is shared with the method but the cost
tables. What a layer is worth, and how finely bottlenecks are told apart, is the
certificate's choice, which is as valid as any other.

What doubles round away always counts against the certificate: a comparison that is
not clearly true, or that has no answer, refutes nothing.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, product
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...costs import CostTable
from ...errors import Unsupported
from ...problems import Objective
from ...problems.training_plan import settings
from ...schema import Instance, exact
from ...schema.rates import slower
from ...solving.certificates import Case, TrainingCertificate
from .again.counts import Counts
from .again.on_nodes import OnNodes
from .again.stages import Case as CountedCase
from .again.stages import Nodes

Array = npt.NDArray[np.float64]

_SHORT = 0.2  # of the time that a batch in one pipeline leaves for a bottleneck
_ROOM = 1e-6  # relative, for what doubles round
_ROUNDED = 1e-14  # relative, of a difference of two times,
_SUMMED = 1e-9  # and of a sum of prices
_MOST_CELLS = 5e7  # of a table of visits
_MOST_INTERVALS = 5_000
_ENOUGH = 10  # complaints, after which nothing more is checked
# What a replica is in its visit; in the last three its pipeline is in several sites.
_INNER, _OUT, _SHARED, _WHOLE, _HALF, _OFF, _BRIDGE, _SPLIT = range(8)
_MOST_NODES = 200  # all pairs of which are looked at where there are sites


@dataclass(frozen=True)
class _Box:
    """Ranges: of time, of the least replicas of a layer, of shares, and of pipelines.

    And of the number of their size of micro-batches and of their bottleneck in us.
    Shares are of nodes, and of sites where there are several.
    """

    sync: tuple[float, float]
    pipelines: tuple[int, int]
    low: tuple[float, ...]
    high: tuple[float, ...]
    sites_low: tuple[float, ...]
    sites_high: tuple[float, ...]
    count: tuple[int, int]
    size: tuple[int, int]
    bottleneck: tuple[float, float] = (0.0, math.inf)

    @property
    def most(self) -> int:
        """The most pipelines: one of each layer's replicas is in each."""
        return min(self.count[1], self.pipelines[1])

    @property
    def empty(self) -> bool:
        """Whether a range is."""
        ranges = (self.sync, self.pipelines, self.count, self.size, self.bottleneck)
        return any(low > high for low, high in ranges)


class _Reach(NamedTuple):
    """Layers that a GPU can synchronise with other nodes, and the node's own share.

    `part` is the most of a layer's replicas that fit into a node, each on one GPU;
    `alone` says that there is one pipeline at the most. `site` is the same of all nodes
    of the site and of other sites.
    """

    rate: float
    share: float
    part: float
    alone: bool = False
    site: "_Reach | None" = None

    def most(self, degree: int) -> float:
        """Layers of a replica: those of its rate are at least 1 - part of them all."""
        sent = degree * self.rate
        alone = sent / (1 - self.part) if self.part < 1 else math.inf
        most = min(sent + self.share, alone) * (1 + 2e-9) + 1e-9
        return most if self.site is None else min(most, self.site.most(degree))

    def shared(self, degree: int, here: int) -> float:
        """The same where `here` replicas at most are in the node, others are not."""
        sent = degree * self.rate * (here + 1)
        return min(self.most(degree), sent * (1 + 2e-9) + 1e-9)

    def joining(self, degree: int) -> float:
        """The same where the stage is in other sites, too.

        Of each layer one of its sites has half of all replicas or fewer, and none of
        them synchronises faster than the smallest.
        """
        assert self.site is not None
        return 2 * degree * self.site.rate * (1 + 2e-9) + 2e-9


class _Visits(NamedTuple):
    """By [k - 1, cells, bottleneck]; `claims` and `held` by [k - 1, cells]."""

    going: Array
    half: Array
    ended: Array
    leaving: Array
    split: Array
    claims: Array


def missing(
    instance: Instance, certificate: TrainingCertificate, bound: Objective
) -> list[str]:
    """What is missing for `bound` to be proved; empty when it is.

    `Unsupported` where tables would be too large.
    """
    chosen = settings.variants(instance)
    each = (certificate, *certificate.further)
    if len(each) != len(chosen):
        return [f"{len(each)} certificates for {len(chosen)} choices of settings"]
    found: list[str] = []
    for given, mine in zip(chosen, each, strict=True):
        if not bound <= int(mine.time_us) + 1:
            return [f"the certificate is of {mine.time_us} us, not of {bound}"]
        whole = _with_least_latency(given) if mine.levelled else given
        found += _Check(whole, mine, given).run()
    return found


def _with_least_latency(instance: Instance) -> Instance:
    """Every node with the least latency inside of all that are else its equals."""
    cluster = instance.planned_cluster
    fields = instance.model_dump(include={"cluster"})["cluster"]
    latencies: dict[Any, list[Any]] = {}
    for node, values in zip(cluster.nodes, fields["nodes"], strict=True):
        values.pop("intra_latency_us")
        values.pop("name")
        latencies.setdefault(tuple(values.items()), []).append(node.intra_latency_us)
    nodes = []
    for node, values in zip(cluster.nodes, fields["nodes"], strict=True):
        least = min(latencies[tuple(values.items())])
        nodes.append(node.model_copy(update={"intra_latency_us": least}))
    whole = cluster.model_copy(update={"nodes": tuple(nodes)})
    return instance.model_copy(update={"cluster": whole})


class _Runs(NamedTuple):
    """Least times of replicas by [degree, samples, worth of their run]; its size.

    `largest` is what the largest run weighs that fits, by degree.
    """

    us: Array
    weight: Array
    largest: list[float]


class _Block(NamedTuple):
    """What of a stage lies in one node, on k GPUs: its part in the visit and so on."""

    role: int
    k: int
    cells: int
    us: float  # of the slowest replica, with its hop
    share: float  # of a micro-batch
    weight: float


class _Size:
    """All that pipelines of micro-batches of b sequences can do."""

    def __init__(self, check: "_Check", b: int, finer: int) -> None:
        self.check, self.b = check, b
        self.parts = finer
        self.cells = sum(check.worths) * finer
        # Shares are whole numbers of cells, or are rounded up.
        self.exact = finer % b == 0 and min(check.worths) > 0
        table = check.table
        widest = max(node.count for node in table.cluster.nodes)
        if self.cells < max(widest, len(table.cluster.nodes)) and not self.exact:
            raise Unsupported("worths are too coarse: plan again to prove the bound")
        self._slowest: dict[tuple[Any, int], list[Array]] = {}
        self.grids = check.grids(self)
        for high, _ in self.grids:
            if 6.0 * (widest + 1) * (self.cells + 1) * len(high) > _MOST_CELLS:
                raise Unsupported(
                    f"nodes of {widest} GPUs and {self.cells} cells are more than a "
                    "check can hold: plan again to prove the bound"
                )
        self.kept: dict[Any, _Visits] = {}

    def blocks(self, kind: Any, reach: _Reach) -> Iterator[_Block]:
        """Blocks of replicas that can synchronise their runs, each with its hop."""
        check, b = self.check, self.b
        thirds = -(-2 * b // 3)
        some, whole, half = range(1, b), range(thirds, b + 1), range(1, thirds)
        every, small = range(1, b + 1), range(1, b // 3 + 1)
        # By what follows: a stage here, shared or not, elsewhere, none, another site.
        roles = [
            (0, ((_INNER, (b,)),), False),
            (1, ((_INNER, some), (_SHARED, some)), False),
            (2, ((_OUT, (b,)),), False),
            (3, ((_WHOLE, whole), (_HALF, half), (_SHARED, small)), False),
        ]
        if check.sites:
            roles.append((4, ((_OFF, every),), False))
            ends = (_SPLIT, half), (_BRIDGE, small)
            roles += [(1, ((_BRIDGE, some),), True), (3, ends, True)]
        for number, each, joining in roles:
            runs = check.runs_of(kind)[number == 3]
            if (kind, number) not in self._slowest:
                hops = check.hops_by_what_follows(kind)[number]
                self._slowest[kind, number] = self._by_degree(runs, hops)
            known = self._slowest[kind, number]
            slowest = self._able(known, runs.weight, reach, joining)
            samples = [(role, s) for role, numbers in each for s in numbers]
            for k, worth in product(range(1, len(slowest)), range(slowest.shape[2])):
                for role, s in samples:
                    us = float(slowest[k, s, worth])
                    if us < math.inf:
                        cells = max(1, -(-worth * s * self.parts // b))
                        weight = float(runs.weight[worth])
                        yield _Block(role, k, cells, us, s / b, weight)

    def _by_degree(self, runs: _Runs, hops: Array) -> list[Array]:
        """By the least degree that replicas may have, GPUs, samples and worth: the
        least time of a block's slowest replica, whatever it holds."""
        us = runs.us[:, : self.b + 1] + hops[None, : self.b + 1, None]
        return [self._slowest_of(us, t) for t in range(1, len(us))]

    def _able(
        self, found: list[Array], weight: Array, reach: _Reach, joining: bool
    ) -> Array:
        """The least of all degrees, of blocks that can synchronise what they hold.

        As many replicas are in the node as there are GPUs and samples for, and those
        of other pipelines. Only of stages `joining` sites, if asked.
        """
        b, gpus = self.b, len(found)
        best = np.full_like(found[0], math.inf)
        for t, slowest in enumerate(found, 1):
            together = reach.joining(t) if joining else math.inf
            for k, samples in product(range(t, gpus + 1), range(1, b + 1)):
                here = min(k // t, samples) if reach.alone else k // t + gpus - k
                most = reach.most(t) if samples == b else reach.shared(t, here)
                most = min(most, together)
                us = np.where(weight <= most, slowest[k, samples], math.inf)
                np.minimum(best[k, samples], us, out=best[k, samples])
        return best

    def _slowest_of(self, us: Array, least: int) -> Array:
        """The least time of the slowest of replicas on `least` GPUs or more."""
        slowest = np.full_like(us, math.inf)
        slowest[0, 0] = 0.0
        for k in range(least, len(us)):
            for samples in range(1, us.shape[1]):
                for s in range(1, samples + 1):
                    others = slowest[: k - least + 1, samples - s][::-1]
                    found = np.maximum(others, us[least : k + 1, s]).min(0)
                    np.minimum(slowest[k, samples], found, out=slowest[k, samples])
        slowest[0, 0] = math.inf
        return slowest

    def visits(self, kind: Any, reach: _Reach, level: int, fill: float) -> _Visits:
        """What a visit to a node takes at the least, where so much can synchronise."""
        key = (kind, reach, level, fill)
        if key not in self.kept:
            if len(self.kept) > 8:
                self.kept.clear()
            able = list(self.blocks(kind, reach))
            self.kept[key] = self._visits(kind, able, reach.rate, level, fill)
        return self.kept[key]

    def _visits(
        self, kind: Any, able: list[_Block], rate: float, level: int, fill: float
    ) -> _Visits:
        gpus = int(kind[1])
        high, inverse = self.grids[level]
        sorted_: dict[tuple[int, int], list[_Block]] = {}
        for block in able:
            sorted_.setdefault((block.role, block.k), []).append(block)
        stages = [
            [
                self._stage(sorted_.get((role, k), []), high, fill * inverse)
                for k in range(1, gpus + 1)
            ]
            for role in range(8)
        ]
        shape = (gpus + 1, self.cells + 1, len(high))
        inner = np.full(shape, np.inf)
        inner[0, 0] = 0
        self._behind(inner, stages[_INNER], inner)
        found = [np.full(shape, np.inf) for _ in range(5)]
        going, half, ended, leaving, split = found
        for role, out in (
            (_OUT, going),
            (_SHARED, going),
            (_HALF, half),
            (_WHOLE, ended),
            (_OFF, leaving),
            (_BRIDGE, leaving),
            (_SPLIT, split),
        ):
            self._behind(out, stages[role], inner)
        claims = self._claims(able, gpus, rate)
        return _Visits._make([*(table[1:] for table in found), claims])

    def _stage(self, able: list[_Block], high: Array, inverse: Array) -> Array:
        found = np.full((self.cells + 1, len(high)), np.inf)
        for block in able:
            if block.us <= high[-1]:
                fits = int(np.searchsorted(high, block.us))
                cost = block.share * block.us * inverse[fits:]
                row = found[block.cells, fits:]
                np.minimum(row, cost, out=row)
        return self._or_more(found)

    def _or_more(self, found: Array) -> Array:
        """What is worth more than a number of cells serves as well, where inexact."""
        if not self.exact:
            found[::-1] = np.minimum.accumulate(found[::-1], axis=0)
            found[0] = np.inf
        return found

    def _behind(self, out: Array, stages: list[Array], before: Array) -> None:
        """Visits that another block is added to, by growing numbers of GPUs."""
        for k in range(1, len(out)):
            for t in range(1, k + 1):
                stage = stages[t - 1]
                for w in np.flatnonzero(np.isfinite(stage[:, -1])).tolist():
                    rest = before[k - t, : self.cells + 1 - w] + stage[w]
                    np.minimum(out[k, w:], rest, out=out[k, w:])

    def _claims(self, able: list[_Block], gpus: int, rate: float) -> Array:
        """Least sums of what blocks weigh beyond what they can synchronise."""
        one = np.full((gpus + 1, self.cells + 1), np.inf)
        for block in able:
            over = block.share * max(0.0, block.weight - block.k * rate)
            at = (block.k, block.cells)
            one[at] = min(one[at], over)
        for t in range(1, gpus + 1):
            self._or_more(one[t])
        least = np.full((gpus + 1, self.cells + 1), np.inf)
        least[0, 0] = 0
        for k in range(1, gpus + 1):
            for t in range(1, k + 1):
                for w in np.flatnonzero(np.isfinite(one[t])).tolist():
                    rest = least[k - t, : self.cells + 1 - w] + one[t, w]
                    np.minimum(least[k, w:], rest, out=least[k, w:])
        claims: Array = np.where(np.isfinite(least[1:]), least[1:], 0.0)
        return claims * (np.arange(1, gpus + 1) / gpus)[:, None]

    def most_in(self, gpus: int, reach: _Reach) -> int:
        """Cells that a pipeline holds at the most on all GPUs of a site.

        All of them where cells are rounded up.
        """
        if not self.exact:
            return self.cells
        pairs = sorted(
            zip(self.check.weights, self.check.worths, strict=True),
            key=lambda pair: pair[0] / pair[1],
        )
        at = [*accumulate((worth * self.parts for _, worth in pairs), initial=0)]
        least = [*accumulate((weight for weight, _ in pairs), initial=0.0)]
        most = reach.most(gpus) * (1 + 1e-7) + 1e-7
        held = np.interp(np.arange(self.cells + 1), at, least)
        return int(np.flatnonzero(held <= most)[-1])

    def held(self, kind: Any, reach: _Reach) -> Array:
        """The most that replicas on k GPUs worth so much can hold, [k - 1, cells].

        No more than their memory has room for, and than they can synchronise.
        """
        layers = list(zip(self.check.weights, self.check.worths, strict=True))
        pairs = [pair for pair in layers if pair[1]]
        pairs.sort(key=lambda pair: -pair[0] / pair[1])
        free = sum(weight for weight, worth in layers if not worth)
        at = [0.0, *accumulate(worth * self.parts for _, worth in pairs)]
        total = [*accumulate((weight for weight, _ in pairs), initial=free)]
        most = self.b * np.interp(np.arange(self.cells + 1), at, total)
        room = np.array(self.check.room(kind, reach))[1:, None] + 1e-7
        held: Array = np.minimum(most[None, :], room) * (1 + 1e-7)
        return held


class _Check:
    def __init__(
        self,
        instance: Instance,
        certificate: TrainingCertificate,
        given: Instance | None = None,
    ) -> None:
        """Of an instance, or one that is levelled, and then as it was `given`."""
        self.table = CostTable(instance)
        self.given = given or instance
        self.tables = [self.table.under(rule) for rule in instance.workload.recomputes]
        self.costs = instance.workload.costs
        self.batch = instance.workload.global_batch
        self.layers = instance.model.layers
        self.certificate = certificate
        self.fill = 1 / self.costs.schedule.interleave
        self.time_us = certificate.time_us - float(
            self.costs.schedule.iteration_overhead_us
        )
        self.priced = (
            self.costs.updates.sync_overlap == "none"
            and self.costs.updates.sync_factor > 0
        )
        exchanged = self.table.exchanged
        routed = self.table.divided(exchanged)
        own = [p - r for p, r in zip(exchanged.layers, routed, strict=True)]
        self.average = sum(own) / len(own)
        self.weights = [p / (self.average or 1) for p in own]
        self.sample: dict[tuple[Any, ...], str] = {}
        names = [node.name for node in self.table.cluster.nodes]
        for name in names:
            self.sample.setdefault(self._kind_of(name), name)
        order = list(self.sample)
        self.sites = certificate.sites
        self.site_of = {name: i for i, site in enumerate(self.sites) for name in site}
        # Nodes of a kind stand together, kinds in the order of their first nodes.
        self.nodes = sorted(
            names,
            key=lambda x: (order.index(self._kind_of(x)), self.site_of.get(x, 0)),
        )
        self.kinds = [self._kind_of(name) for name in self.nodes]
        self.places = [
            (order.index(kind), self.site_of.get(name, 0))
            for name, kind in zip(self.nodes, self.kinds, strict=True)
        ]
        self._hops: dict[Any, tuple[Array, Array]] = {}
        self._off: dict[Any, Array] = {}
        self._runs: dict[Any, tuple[_Runs, _Runs]] = {}
        self.found: list[str] = []
        if self.sites and (reason := self._no_sites(names)):
            self.found.append(reason)
            return
        self.worths = certificate.worths or (1,) * self.layers
        if len(self.worths) != self.layers:
            self.found.append(f"{len(self.worths)} worths for {self.layers} layers")
            return
        asked = sorted(set(instance.workload.micro_batch_sizes))
        finer = certificate.finer or tuple(asked)
        if len(finer) != len(asked):
            self.found.append(f"{len(finer)} finer parts for {len(asked)} sizes")
            return
        self.sizes = [_Size(self, b, f) for b, f in zip(asked, finer, strict=True)]

    def _kind_of(self, name: str) -> tuple[Any, ...]:
        return (self.table.node_class[name], self.table.cluster.node[name].count)

    def _no_sites(self, names: list[str]) -> str:
        """Why the certificate's sites divide no such cluster; empty if they do."""
        if len(names) > _MOST_NODES:
            raise Unsupported(
                f"{len(names)} nodes in sites are more than a check can hold: plan "
                "again to prove the bound"
            )
        listed = sorted(name for site in self.sites for name in site)
        if listed != sorted(names) or not all(self.sites):
            return "sites do not divide the nodes"
        grouped = (
            self.costs.updates.zero_groups > 1 or self.costs.compute.expert_parallel > 1
        )
        return "sites where replicas synchronise in groups" if grouped else ""

    def _apart(self, name: str) -> list[str]:
        """Nodes in other sites, if there are any."""
        if not self.sites:
            return []
        return [x for x in self.nodes if self.site_of[x] != self.site_of[name]]

    @cached_property
    def _far_us(self) -> float:
        """What one GPU takes to synchronise a layer of average size across sites."""
        rates = (self.table.link(x, y)[1] for x in self.nodes for y in self._apart(x))
        if (fastest := max(rates, default=None)) is None:
            return 0.0
        return self._exchanged / float(fastest / 1_000_000)

    def grids(self, size: _Size) -> list[tuple[Array, Array]]:
        """Ends of intervals of bottlenecks, and 1 / their beginnings, by level.

        Pipelines whose stages are all within the first one could take the batch, and
        are held to that: then the inverse is 0.
        """
        most = self.time_us / float(self.costs.schedule.pipeline_factor)
        if self.certificate.ratios:
            least = self.certificate.least_us * size.b
            return [_intervals(least, most, r) for r in self.certificate.ratios]
        short = max(0.0, _SHORT * most / self.batch)
        free = _Reach(float(self.layers), 0.0, 1.0)
        times = {block.us for k in self.sample for block in size.blocks(k, free)}
        long = np.array(sorted(us for us in times if short < us <= most))
        return [(np.concatenate([[short], long]), np.concatenate([[0.0], 1 / long]))]

    @cached_property
    def most(self) -> int:
        """Samples of the largest micro-batches."""
        return max(self.table.workload.micro_batch_sizes)

    @cached_property
    def nearest(self) -> Array:
        """Least hops of all, by samples: of a stage that is shared between nodes."""
        nearest: Array = np.min([self.hops(kind)[0] for kind in self.sample], axis=0)
        return nearest

    def hops(self, kind: Any) -> tuple[Array, Array]:
        """Least times of hops within such a node, and out of it, by samples."""
        if kind not in self._hops:
            v, name = self.costs.schedule.interleave, self.sample[kind]
            least = [self._least_hops(name, s) for s in range(1, self.most + 1)]
            near = np.array([0.0, *(v * min(each) for each in least)])
            self._hops[kind] = near, np.array([0.0, *(v * out for _, out in least)])
        return self._hops[kind]

    def hops_by_what_follows(self, kind: Any) -> list[Array]:
        """A stage in the node, a shared stage, one elsewhere, none; another site."""
        inside, outside = self.hops(kind)
        none = np.zeros_like(inside)
        return [inside, self.nearest, outside, none, self._hops_off(kind)]

    def _hops_off(self, kind: Any) -> Array:
        """Least times of hops to another site, by samples; 0 where there is but one."""
        if kind not in self._off:
            off = np.zeros(self.most + 1)
            alike = zip(self.nodes, self.kinds, strict=True)
            mine = [name for name, each in alike if each == kind]
            for s in range(1, self.most + 1 if self.sites else 1):
                pairs = ((x, y) for x in mine for y in self._apart(x))
                least = (float(self.table.least_hop_us(x, y, s)) for x, y in pairs)
                off[s] = self.costs.schedule.interleave * min(least, default=math.inf)
            self._off[kind] = off
        return self._off[kind]

    def runs_of(self, kind: Any) -> tuple[_Runs, _Runs]:
        """Replicas of runs in the middle and at the end, on such a node."""
        if kind not in self._runs:
            name = self.sample[kind]
            self._runs[kind] = self._found(name, False), self._found(name, True)
        return self._runs[kind]

    def room(self, kind: Any, reach: _Reach) -> list[float]:
        """What replicas on so many GPUs hold at the most."""
        largest = map(max, *(runs.largest for runs in self.runs_of(kind)))
        able = [min(most, reach.most(t)) for t, most in enumerate(largest)]
        fits = [0.0]
        for k in range(1, len(able)):
            fits.append(max(map(add, able[1 : k + 1], reversed(fits))))
        return fits

    @cached_property
    def most_replicas(self) -> int:
        """The most that every layer can have: so many fit into all memory."""
        most = min(self.table.cluster.gpu_count, self.batch)
        once, free = sum(self.weights), _Reach(float(self.layers), 0.0, 1.0)
        if not once > 0:
            return most
        room = sum(self.room(kind, free)[-1] for kind in self.kinds)
        return max(1, min(most, math.floor(room / once * (1 + 1e-7))))

    def _found(self, name: str, last: bool) -> _Runs:
        gpus, whole = self.table.cluster.node[name].count, sum(self.worths)
        worths = list(accumulate(self.worths, initial=0))
        weights = list(accumulate(self.weights, initial=0.0))
        us = np.full((gpus + 1, self.most + 1, whole + 1), math.inf)
        weight, largest = np.full(whole + 1, math.inf), [0.0] * (gpus + 1)
        for t, s in product(range(1, gpus + 1), range(1, self.most + 1)):
            if not self.table.usable(name, t, s):
                continue
            for table in self.tables:
                times = list(accumulate(table.layer_us(name, t, s), initial=0))
                head = table.head_us(name, t, s) if last else 0
                for i, j in self.runs(table, name, t, s, last=last):
                    worth = worths[j] - worths[i]
                    took, large = times[j] - times[i] + head, weights[j] - weights[i]
                    us[t, s, worth] = min(us[t, s, worth], took)
                    weight[worth] = min(weight[worth], large)
                    largest[t] = max(largest[t], large)
        return _Runs(us, weight, largest)

    def _least_hops(self, name: str, s: int) -> tuple[float, float]:
        kind = self._kind_of(name)
        speakers = {k: x for x, k in zip(self.nodes, self.kinds, strict=True)}
        if self.table.cluster.inter.pairs:
            pairs = (
                (x, y)
                for x, k in zip(self.nodes, self.kinds, strict=True)
                if k == kind
                for y in self.nodes
                if y != x
            )
        else:
            other = (y for y in [*speakers.values(), *self.nodes] if y != name)
            pairs = ((name, y) for y in other)
        found = {self.table.least_hop_us(x, y, s) for x, y in pairs}
        out = float(min(found)) if found else math.inf
        if self.table.cluster.node[name].count == 1:
            return out, out
        return float(self.table.least_hop_us(name, name, s)), out

    def runs(
        self, table: CostTable, name: str, t: int, s: int, *, last: bool
    ) -> Iterator[tuple[int, int]]:
        """Runs of layers that fit at their best position; of equal ones the first."""
        if last:
            for i in reversed(range(self.layers)):
                stages = 2 if i else 1
                if not self._fits(table, name, t, s, (i, self.layers), stages):
                    return
                yield i, self.layers
            return
        times = set(table.layer_us(name, t, s)), set(self.worths), set(self.weights)
        alike = table.even and all(len(each) == 1 for each in times)
        longest = 0
        for i in range(1 if alike else self.layers):
            longest = max(longest, i)
            while longest < self.layers and self._fits(
                table, name, t, s, (i, longest + 1), 3
            ):
                longest += 1
            for j in range(i + 1, longest + 1):
                yield i, j

    def _fits(
        self,
        table: CostTable,
        name: str,
        t: int,
        s: int,
        run: tuple[int, int],
        stages: int,
    ) -> bool:
        j = min(stages - 1, 1)
        need = table.stage_mib(name, range(*run), t, s, 1, stages, j)
        return sum(need.values()) <= table.memory_mib(name)

    def run(self) -> list[str]:
        """Carry out the divisions and check every case."""
        if self.found:
            return self.found
        none, whole = (0.0,) * len(self.nodes), (float(self.layers),) * len(self.nodes)
        nothing, all_ = (each[:1] * len(self.sites) for each in (none, whole))
        most = self.most_replicas
        most_sync = self.certificate.most_sync_us
        ranges = [(0.0, math.inf)]
        if self.priced:
            ranges = [(0.0, most_sync), (most_sync, math.inf)]
        trees = self.certificate.cases
        if len(trees) != len(ranges):
            return [f"{len(trees)} first cases, {len(ranges)} expected"]
        for tree, sync in zip(trees, ranges, strict=True):
            sizes = (0, len(self.sizes) - 1)
            shares = none, whole, nothing, all_
            self._walk(tree, _Box(sync, (1, most), *shares, (1, most), sizes))
        return self.found

    def _walk(self, tree: Case | None, box: _Box) -> None:
        if len(self.found) >= _ENOUGH:
            return
        narrowed = self._narrowed(box)
        if narrowed is None:
            return
        if tree is None:
            self.found.append(f"a case is left out: {narrowed}")
        elif tree.laid:
            if not self._laid(narrowed):
                self.found.append(f"pipelines on nodes do not refute {narrowed}")
        elif tree.counts is not None:
            if not self._counted(narrowed):
                self.found.append(f"counts do not refute the case {narrowed}")
        elif tree.prices is not None:
            if not self._refuted(narrowed, tree.prices, tree.level):
                self.found.append(f"prices do not refute the case {narrowed}")
        elif (halves := self._halves(tree, narrowed)) is None:
            self.found.append(f"{tree.split} {tree.at} does not divide {narrowed}")
        else:
            self._walk(tree.low, halves[0])
            self._walk(tree.high, halves[1])

    def _halves(self, tree: Case, box: _Box) -> tuple[_Box, _Box] | None:
        """The box on both sides of a division; None where that lies outside."""
        at = tree.at
        assert at is not None
        if tree.split == "sync":
            (low, high) = box.sync
            if not low <= at <= high:
                return None
            return replace(box, sync=(low, at)), replace(box, sync=(at, high))
        if tree.split == "pipelines":
            # There may be fewer than were reckoned with: then one side is empty.
            few, many = _parted(box.pipelines, at)
            return replace(box, pipelines=few), replace(box, pipelines=many)
        if tree.split == "count":
            few, many = _parted(box.count, at)
            fewest, most = box.pipelines
            return (
                replace(box, count=few),
                replace(box, count=many, pipelines=(max(fewest, many[0]), most)),
            )
        if tree.split in ("size", "bottleneck"):
            if box.most > 1:  # each of several has its own
                return None
            if tree.split == "size":
                low_, high_ = _parted(box.size, at)
                return replace(box, size=low_), replace(box, size=high_)
            short, long = box.bottleneck
            return (
                replace(box, bottleneck=(short, min(at, long))),
                replace(box, bottleneck=(max(short, at), long)),
            )
        i = tree.node
        assert i is not None
        of_sites = tree.split == "site"
        lows = box.sites_low if of_sites else box.low
        highs = box.sites_high if of_sites else box.high
        if i >= len(lows) or not lows[i] <= at <= highs[i]:
            return None
        below = (*highs[:i], at, *highs[i + 1 :])
        above = (*lows[:i], at, *lows[i + 1 :])
        if of_sites:
            return replace(box, sites_high=below), replace(box, sites_low=above)
        return replace(box, high=below), replace(box, low=above)

    def _narrowed(self, box: _Box) -> _Box | None:
        """The box with shares in descending order among equal nodes, summing to L."""
        if box.empty:
            return None
        low, high = list(box.low), list(box.high)
        for i in range(1, len(low)):
            if self.places[i] == self.places[i - 1]:
                high[i] = min(high[i], high[i - 1])
        for i in range(len(low) - 1, 0, -1):
            if self.places[i] == self.places[i - 1]:
                low[i - 1] = max(low[i - 1], low[i])
        most = self._most_shares(low, high)
        sites = self._most_shares(box.sites_low, box.sites_high)
        if most is None or sites is None:
            return None
        return replace(box, low=tuple(low), high=most, sites_high=sites)

    def _most_shares(
        self, low: Sequence[float], high: Sequence[float]
    ) -> tuple[float, ...] | None:
        """The most that each can be where all are L together; None if they cannot."""
        slack = 1e-9 * self.layers
        rest = self.layers - sum(low)
        most = [min(h, x + rest + slack) for x, h in zip(low, high, strict=True)]
        over = any(h < x - 2 * slack for x, h in zip(low, most, strict=True))
        return None if over or rest < -slack else tuple(most)

    # -- one case ----------------------------------------------------------------

    @cached_property
    def _counts(self) -> Counts:
        nodes = [self._alike(kinds) for kinds in self._counted_together()]
        return Counts(self.tables, nodes, self.weights)

    def _alike(self, kinds: list[Any]) -> Nodes:
        """Nodes of some kinds, each as good as the best of them."""
        held = Counter(self.kinds)
        near, away = zip(*(self.hops(kind) for kind in kinds), strict=True)
        return Nodes(
            tuple(self.sample[kind] for kind in kinds),
            sum(held[kind] for kind in kinds),
            sum(held[kind] * int(kind[1]) for kind in kinds),
            max(int(kind[1]) for kind in kinds),
            np.min(near, axis=0),
            np.min(away, axis=0),
        )

    def _counted_together(self) -> list[list[Any]]:
        """Every kind of nodes once, with those that the certificate joins to it."""
        number = {
            self._kind_of(name): i
            for i, names in enumerate(self.certificate.together)
            for name in names
            if name in self.table.cluster.node
        }
        joined: dict[Any, list[Any]] = {}
        for kind in self.sample:
            joined.setdefault(number.get(kind, kind), []).append(kind)
        return list(joined.values())

    def _counted(self, box: _Box) -> bool:
        """Whether rows of stages in whole GPUs take longer than there is time for."""
        if self.costs.schedule.interleave > 1 or self.costs.compute.expert_parallel > 1:
            return False
        sizes = tuple(size.b for size in self.sizes[box.size[0] : box.size[1] + 1])
        # One pipeline has a replica for each sequence of a micro-batch, or fewer.
        fewest = max(box.count[0], math.ceil(box.pipelines[0] / sizes[-1]))
        case = CountedCase((fewest, box.most), box.pipelines[0], sizes)
        ways = [(0.0, box.sync[1])] if self.priced else self._hidden()
        cases = [
            case._replace(spent_us=spent, sync_us=most * (1 + 1e-12))
            for spent, most in ways
        ]
        return self._counts.refute(cases, self._left_us(box))

    def _laid(self, box: _Box) -> bool:
        """Whether one pipeline of micro-batches of one sequence takes longer."""
        low, high = box.size
        if box.most > 1 or low < high or self.sizes[low].b > 1:
            return False
        return self._on_nodes.refute(self._left_us(box))

    @cached_property
    def _on_nodes(self) -> OnNodes:
        return OnNodes(self.given)

    def _left_us(self, box: _Box) -> float:
        """What is left for pipelines; below 0 where there is nothing."""
        left = self.time_us - float(self.costs.updates.sync_factor) * box.sync[0]
        return (left + _ROUNDED * self.time_us) / float(
            self.costs.schedule.pipeline_factor
        )

    def _refuted(self, box: _Box, prices: tuple[float, ...], level: int) -> bool:
        """Whether no pipeline is worth more than its price, nor all the batch."""
        if (left := self._left_us(box)) < 0:
            return True
        shares = zip(self.places, box.high, strict=True)
        groups = sorted(Counter((*place, share) for place, share in shares).items())
        if len(prices) == 2 * len(groups) + 2:
            prices = (*prices, 0.0)  # of nothing owed
        if len(prices) != 2 * len(groups) + 3 or level >= len(self.sizes[0].grids):
            return False
        kinds = list(self.sample)
        gpus = [count * kinds[k][1] for (k, _, _), count in groups]
        owed = sum(self.weights)
        amounts = [*gpus, *[0] * len(gpus), self.layers, box.most, -owed]
        worths = np.array(prices) * amounts
        if not worths.sum() + _SUMMED * np.abs(worths).sum() < self.batch:
            return False
        return all(
            self._dear(size, box, prices, groups, (left, *way), level)
            for size in self.sizes[box.size[0] : box.size[1] + 1]
            for way in self._ranges(box)
        )

    def _ranges(self, box: _Box) -> Iterator[tuple[float, float, float]]:
        """What a pipeline spends on synchronising, and the layers that a GPU can.

        With other nodes and with other sites. Where backward passes hide it: of each
        range, S less what fills the pipeline remains, so that both together take S at
        the least.
        """
        near, far = self._spread_us(), self._far_us
        if len(ways := self._hidden()) == 1:
            yield 0.0, self._rate(box, near), self._rate(box, far)
            return
        every = float(self.layers)
        for spent, most in ways:
            near_rate, far_rate = (
                min(every, most / whole * (1 + 1e-12)) if whole else every
                for whole in (near, far)
            )
            yield spent, near_rate, far_rate

    def _hidden(self) -> list[tuple[float, float]]:
        """What a pipeline spends at the least where stages synchronise for a time.

        With the longest such time: ranges, or one where nothing hides what they do.
        """
        pipeline = float(self.costs.schedule.pipeline_factor)
        factor = min(pipeline, float(self.costs.updates.sync_factor))
        overlap = self.costs.updates.sync_overlap == "backward"
        if (
            not overlap
            or self.costs.schedule.interleave > 1
            or not self._spread_us() * factor
        ):
            return [(0.0, math.inf)]
        most, low, found = self.time_us / factor * (1 + 2e-9), 0.0, []
        for quarters in range(20, -1, -1):
            high = most / 2 ** (quarters / 4)
            # A little less is spent, and more allowed, than the method reckons with.
            found.append((low * factor / pipeline * (1 - 4e-9), high))
            low = high
        return found

    def _dear(
        self,
        size: _Size,
        box: _Box,
        prices: tuple[float, ...],
        groups: list[tuple[tuple[int, int, float], int]],
        times: tuple[float, float, float, float],
        level: int,
    ) -> bool:
        """Whether every pipeline of one size of micro-batches is worth its price.

        `times` is what is left of the time, what of it is spent on synchronising in
        place of filling the pipeline, and the rates of that.
        """
        left, spent, rate, far_rate = times
        fill = 0.0 if spent else self.fill
        left = max(0.0, left - spent)
        kinds = list(self.sample)
        ends, inverse = size.grids[level]
        least, most = box.bottleneck[0], min(box.bottleneck[1], 1e200)
        some = ends >= least * (1 - 1e-9)
        some &= (inverse == 0) | (inverse * most * (1 + 1e-9) >= 1)
        sites = self._reaches_of_sites(box, far_rate)
        limited, largest, joined = [], abs(prices[-2]), False
        for i, ((k, site, share), count) in enumerate(groups):
            part = min(1.0, int(kinds[k][1]) / box.pipelines[0])
            most_held = min(share, self.layers * part)
            of_site = sites[site] if sites else None
            reach = _Reach(rate, most_held, part, box.most == 1, of_site)
            joined |= bool(sites) and min(self.weights) <= reach.joining(kinds[k][1])
            found = size.visits(kinds[k], reach, level, fill)
            gpus = np.arange(1, int(kinds[k][1]) + 1)[:, None]
            balance = prices[len(groups) + i]
            goods = prices[i] * gpus + (prices[-3] + balance) * found.claims
            held = size.held(kinds[k], reach) / box.pipelines[0]
            goods = goods - (prices[-1] + balance) * held
            largest = max(largest, float(np.abs(goods).max()))
            cheap = [
                self._cheapest(size, size.b * table[:, :, some] + goods[:, :, None])
                for table in found[:5]
            ]
            limited.append((site, count, cheap))
        inverse = inverse[some]
        if not len(inverse):
            return True
        first = size.b * (self.fill + left * inverse)
        worth = np.where(inverse > 0, first, self.batch)
        wanted = worth + _ROOM * (worth + largest) - prices[-2]
        most_in = [
            size.most_in(gpus, reach)
            for gpus, reach in zip(self._site_gpus, sites, strict=True)
        ]
        # What is not surely dear enough when nodes may be visited at will.
        hard = ~(_least_price(limited, (most_in, joined), at_will=True) >= wanted)
        if not hard.any():
            return True
        few = [(i, n, [table[:, hard] for table in each]) for i, n, each in limited]
        lowest = _least_price(few, (most_in, joined), at_will=False)
        return bool((lowest >= wanted[hard]).all())

    @cached_property
    def _site_gpus(self) -> list[int]:
        node = self.table.cluster.node
        return [sum(node[name].count for name in names) for names in self.sites]

    def _reaches_of_sites(self, box: _Box, rate: float) -> list[_Reach]:
        """Of each site, what of it synchronises with others."""
        found = []
        for gpus, share in zip(self._site_gpus, box.sites_high, strict=True):
            part = min(1.0, gpus / box.pipelines[0])
            found.append(_Reach(rate, min(share, self.layers * part), part))
        return found

    def _cheapest(self, size: _Size, priced: Array) -> Array:
        least: Array = priced.min(0)
        if not size.exact:
            least[::-1] = np.minimum.accumulate(least[::-1], axis=0)
        return least

    def _spread_us(self) -> float:
        """What one GPU takes to synchronise a layer of average size across nodes."""
        inter = self.table.cluster.inter
        rates = [exact(slower(rate)) for rate in inter.pairs.rates]
        if inter.gbytes_per_s is not None:
            rates.append(exact(inter.gbytes_per_s))
        return self._exchanged / float(max(rates) * 1000) if rates else 0.0

    @cached_property
    def _exchanged(self) -> float:
        """Bytes of a layer of average size, in all passes."""
        return (
            self.costs.updates.sync_passes
            * self.costs.memory.gradient_bytes
            * self.average
        )

    def _rate(self, box: _Box, spread: float) -> float:
        if not (spread and self.priced) or math.isinf(box.sync[1]):
            return float(self.layers)
        # No less than it is, whatever was rounded.
        return box.sync[1] / spread * (1 + 1e-12)


def _intervals(least: float, most: float, ratio: float) -> tuple[Array, Array]:
    """The first one is from 0 to `least`."""
    edges = [least, least * ratio]
    while edges[-1] < most:
        edges.append(edges[-1] * ratio)
        if len(edges) > _MOST_INTERVALS:
            raise Unsupported("bottlenecks are told apart too finely: plan again")
    begins = np.array(edges[:-1])
    return np.array([least, *edges[1:]]), np.concatenate([[0.0], 1 / begins])


def _parted(whole: tuple[int, int], at: float) -> tuple[tuple[int, int], ...]:
    """A range of whole numbers up to `at`, and beyond."""
    low, high = whole
    return (low, min(int(at), high)), (max(int(at) + 1, low), high)


# Least prices: no end, half, the end; out of a site without one, and with half of one
_Tables = list[Array]
_STEPS = (
    *((0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2), (0, 2, 2), (2, 0, 2)),
    *((0, 3, 3), (3, 0, 3), (0, 4, 4), (4, 0, 4)),
)


def _least_price(
    groups: list[tuple[int, int, _Tables]],
    sites: tuple[list[int], bool],
    *,
    at_will: bool,
) -> Array:
    """Least price of a pipeline on groups of nodes: their site, how many, visits.

    Each node is visited once, or `at_will`. Of each of the `sites` a pipeline has so
    many cells at the most, and leaves it if its end is elsewhere; half of the end may
    be where stages join sites.
    """
    most_in, joined = sites
    if not most_in:
        nodes = [(count, tables) for _, count, tables in groups]
        last: Array = _visited(nodes, at_will)[2][-1]
        return last
    cells, intervals = groups[0][2][0].shape
    visits = []
    for site, most in enumerate(most_in):
        there = [
            (count, [table[: most + 1] for table in tables])
            for i, count, tables in groups
            if i == site
        ]
        found = _visited(there, at_will)
        whole = [np.full((cells, intervals), np.inf) for _ in range(5)]
        for end, state in ((0, 3), (2, 2), *([(1, 4)] if joined else [])):
            whole[end][: most + 1] = found[state]
        visits.append((1, whole))
    last = _visited(visits, at_will=False)[2][-1]
    return last


def _visited(groups: list[tuple[int, _Tables]], at_will: bool) -> _Tables:
    """Least prices by cells of what pipelines are that visit groups of nodes."""
    shape = groups[0][1][0].shape
    states = [np.full(shape, np.inf) for _ in range(5)]
    states[0][0] = 0
    if at_will:
        any_of = [np.minimum.reduce([each[e] for _, each in groups]) for e in range(5)]
        # Without an end first, as often as one likes; then at most two that have one.
        once = (0, 1, 1), (0, 2, 2), (1, 1, 2), (0, 3, 3), (0, 4, 4)
        for step in ((0, 0, 0), *once):
            _add(states, any_of, step, states)
        return states
    for count, visits in groups:
        for _ in range(min(count, shape[0] - 1)):
            new = [state.copy() for state in states]
            for step in _STEPS:
                _add(states, visits, step, new)
            if all(map(np.array_equal, new, states)):
                break
            states = new
    return states


def _add(before: _Tables, visits: _Tables, step: tuple[int, ...], out: _Tables) -> None:
    """Lower what comes of a state and a visit."""
    state, end, to = step
    able = np.flatnonzero(np.isfinite(visits[end]).any(axis=1))
    for w in range(1, len(out[to]) if len(able) else 1):
        some = able[(able > 0) & (able <= w)]
        if len(some):
            found = (visits[end][some] + before[state][w - some]).min(axis=0)
            np.minimum(out[to][w], found, out=out[to][w])
