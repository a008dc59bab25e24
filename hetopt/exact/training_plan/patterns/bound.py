"""A lower bound on the iteration time that prices hops, pipeline fill and gradients.

Let D pipelines hold every layer once each, and let gamma_v(l) be the share of them
that hold layer l in node v. A replica of l in node v on t GPUs synchronises with the
D (1 - gamma_v(l)) others across the inter-node link, so (cost-model.md, ring)

    sync_l >= 4 p_l / (t beta) (1 - gamma_v(l)),

(6 in place of 4 under ZeRO 3, and more where gradients are wider.)

If no stage synchronises for longer than s, then summed over the stages of a *visit*
(what one pipeline does in one node, on k GPUs)

    sum over its layers p_l <= k s beta / 4 + sum over its layers p_l gamma_v(l).

The last sum is at most the node's share  Gamma_v = sum_l p_l gamma_v(l),  and all the
shares together are  sum_l p_l:  nodes compete for being where the replicas are. A
*case* is a range of s, of D and of every Gamma_v. Within a case a pipeline has the
time left after the least s, and `prices` decides whether the pipelines that
are then possible can take the batch. Cases that are not refuted are divided; what is
gained first is mostly in s and D, so shares are divided last.

Equal nodes are interchangeable, so their shares are taken in descending order.

One pipeline alone has one size of micro-batches and one bottleneck, while a packing of
several may mix them: plans of one pipeline are cases of their own, which are divided by
size and by bottleneck as well. One of micro-batches of one sequence has one replica a
stage, and synchronises nothing: what the best of these takes is known from a search on
named nodes (`one_pipeline`), and settles its case.

With several replicas a stage gamma_v(l) is the part of *all* replicas of l that lie in
v, and D the least number of replicas that a layer has, which no number of pipelines
exceeds. Replicas of t GPUs with s of b samples that hold the run R obey, each weighted
with s / b,

    sum over r of (s_r / b) (p(R_r) - t_r s beta / 4)  <=  Gamma_v.

A node of C GPUs holds no more than C replicas of a layer: gamma_v(l) <= C / D. With a
block of k GPUs in replicas of t or more it holds no more than k / t + C - k, so that
1 - gamma_v(l) is at least 1 / (k / t + C - k + 1) where a stage is shared with others.

Where links between *sites* are slow, all of this holds of sites in place of nodes, too,
with the fastest of these links and shares of sites. A pipeline holds no more in a site
than all its GPUs there synchronise and the site's share:

    sum over its layers there p_l  <=  GPUs of the site x s beta' / 4 + Gamma_site,

and a stage whose next one is in another site hands on over a slow link.

Where prices refute a case but for little, whole pipelines are looked at by the GPUs
that they use (`counts`) before shares are divided.

Where backward passes hide synchronisation, a stage that synchronises for S hides no
more than what fills its pipeline: an iteration lasts S and n - 1 bottlenecks at the
least. Each pipeline then has its own range of S in place of the case's range of s, and
spends its least in place of filling.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import inf
from typing import Any, Literal, NamedTuple

import numpy as np
from pydantic import ValidationError

from ....schema import Instance
from ....solving import certificates
from ....solving.certificates import TrainingCertificate
from ...pipelines.boxes import Box
from ...pipelines.levelling import levelled
from ..blocks import Size
from ..counts import bound as counts
from ..node_kinds import Spread, fleet
from .convolution import Table
from .prices import Group, Part, Pricing
from .visits import Grid, VisitTables

# Grids of the bottleneck: the coarse one refutes most cases at a fifth of the price.
_RATIOS = (1.04, 1.008)
# Ranges of s are halved down to a coarse one, then whether pipelines cross to other
# sites, then the number of pipelines, then s down to a fine one, then shares: in the
# order of what a division is worth. There are no shares where GPUs are counted, and of
# one pipeline nothing else is to be told.
_COARSE, _FINE, _FINER, _FINEST = 1 / 8, 1 / 100, 1 / 1000, 1e-5
# Of the time, what stages synchronise where backward passes may hide it: halves, and
# where GPUs are counted in so many steps each.
_HALVES, _STEPS = 5, 4
_ABOVE, _SLACK = 1 + 1e-6, 1e-6  # relative, and layers, that rounding may hide
_NARROWEST = 1 / 256  # of the shares: not divided further
_WIDE_SITE, _NARROW_SITE = 1 / 4, 1 / 32  # those of sites, before s is fine and after
# Where sites are more than these their shares have too many ranges to come first. With
# less than so much of all layers in each site, all pipelines cross to others.
_FEW_SITES, _WHOLE_SITE = 2, 7 / 8
_NEARLY = 1.03  # times the batch, that patterns take: counts may tell what is left
_WIDE, _CLOSE = 1.1, 1.02  # ranges of a bottleneck before the replicas', and after


# A kind of nodes, their site, and the share that they may have.
_Group = tuple[int, int, float]


class Hidden(NamedTuple):
    """Layers that a GPU can synchronise, and the time that is spent at the least.

    With other nodes, and with other sites.
    """

    rate: float
    far_rate: float
    spent_us: float


@dataclass
class Case:
    """Ranges of the synchronisation time, of the replicas of a layer and of the shares.

    `pipelines` are the least replicas that a layer has, `count` how many pipelines
    there are; where that is one, its size of micro-batches, by number, and its
    bottleneck in us have ranges, too. Shares of nodes and of sites are in average
    layers. `prices`, by number of groups, are those that were found last: a good start
    for the next time, as are the kinds of nodes, by site, that were wanted more often
    than there are. `proof` are the prices that refuted the case, unless it was divided.
    """

    sync_low_us: float
    sync_high_us: float
    pipelines_low: int
    pipelines_high: int
    shares_low: tuple[float, ...]
    shares_high: tuple[float, ...]
    count_high: int
    sites_low: tuple[float, ...] = ()
    sites_high: tuple[float, ...] = ()
    count_low: int = 1
    size_low: int = 0
    size_high: int = 0
    bottleneck_low: float = 0.0
    bottleneck_high: float = inf
    prices: dict[int, tuple[float, ...]] = field(default_factory=dict)
    limited: frozenset[tuple[int, int]] = frozenset()
    proof: tuple[float, ...] = ()
    level: int = 0  # of the grid on which they did
    counted: float | None = None  # refuted by counts, with ranges of this ratio
    laid: bool = False  # refuted as all such pipelines on named nodes take longer
    wanted: tuple[float, Any] | None = None  # up to a time, as counts tell its parts
    near: bool = False  # where prices refute nearly all, and counts are asked
    split: "Split | None" = None

    @property
    def most(self) -> int:
        """The most pipelines: one of each layer's replicas is in each."""
        return min(self.count_high, self.pipelines_high)


@dataclass(frozen=True)
class Split:
    """How a case was divided: `of` what, for a share of which `node` or site, where.

    A part is None where the range that is left for it is empty.
    """

    of: certificates.Dimension
    node: int | None
    at: float
    low: Case | None
    high: Case | None

    @property
    def parts(self) -> list[Case]:
        """The parts that are not empty."""
        return [part for part in (self.low, self.high) if part is not None]


class PatternBound:
    """Refutes iteration times of one instance, and keeps the cases that it needed."""

    def __init__(
        self,
        instance: Instance,
        least_us: float,
        most_us: float,
        check: Callable[[], None] = lambda: None,
        known: counts.CountBound | None = None,
        alone_us: float = 0.0,
    ) -> None:
        """Prepare for times between `least_us` and `most_us`.

        `check()` is called before what takes long, and may raise. What is `known` of
        the instance by counts is not prepared again. A plan of one pipeline, whose
        micro-batches have one sequence, takes `alone_us` or more. A bound of a cluster
        with fewer kinds of nodes (`levelling`) takes its place where there are many.
        """
        self.given, instance = instance, levelled(instance)
        self.levelled = instance is not self.given
        known = known if known and known.instance == instance else None
        self._check = check
        self.least, self.most, self.alone = least_us, most_us, alone_us
        costs = instance.workload.costs
        self.instance = instance
        self.pipeline_factor = float(costs.pipeline_factor)
        self.sync_factor = float(costs.sync_factor)
        self.overhead_us = float(costs.iteration_overhead_us)
        self.fleet = known.fleet if known else fleet(instance, check)
        self.places = [*self._places()]
        self.site_gpus = [
            sum(instance.planned_cluster.node[name].count for name in site)
            for site in self.fleet.sites
        ]
        self.layers = instance.model.layers
        self.batch = instance.workload.global_batch
        # What backward passes may hide is each pipeline's own (`_hidden`).
        self.priced_sync = costs.sync_overlap == "none" and self.sync_factor > 0
        least = max(0.0, least_us - self.overhead_us) / self.pipeline_factor
        largest = max(1.0, most_us - self.overhead_us) / self.pipeline_factor
        # Any positive one will do, where layers may take no time at all.
        smallest = max(0.6 * least, 1e-6 * largest) / instance.workload.global_batch
        self.smallest_us = smallest
        self.tables = [
            self._tables(smallest, largest, ratio, check) for ratio in _RATIOS
        ]
        self.most_sync_us = (
            (most_us - least_us) / self.sync_factor if self.sync_factor else 0.0
        )
        self.most_pipelines = self._most_pipelines()
        self.most_held = [self._most_held(size) for size in self.fleet.sizes]
        self.least_held = {
            size.sequences: self._least_held(size) for size in self.fleet.sizes
        }
        known = known or counts.prepared(instance, self.fleet, check)
        self._counts = known and known.within(largest, check)
        self.counting = False  # several pipelines as well as one
        # Of one pipeline counts say more, unless kinds of nodes are together.
        self._lines = self._counts is not None and self._counts.apart
        #: First cases and those now, by counts and by prices, where they are paused.
        both = {by: self._first_cases() for by in (True, False)}
        self._paused = {by: (first, first) for by, first in both.items()}
        self.first, self.cases = self._paused[self.counting]

    def _places(self) -> Iterator[tuple[int, int]]:
        """Kind and site of every node; those of both together."""
        site_of = {name: i for i, site in enumerate(self.fleet.sites) for name in site}
        for number, kind in enumerate(self.fleet.kinds):
            for site in sorted(site_of.get(name, 0) for name in kind.nodes):
                yield number, site

    def _most_pipelines(self) -> int:
        """The most replicas that every layer can have: what all nodes have room for."""
        most = min(self.instance.planned_cluster.gpu_count, self.batch)
        once = float(self.fleet.layer_weights.sum())
        free = Spread(self.layers, 0.0, 1.0)
        rooms = [(k.room(free)[-1], k.nodes) for k in self.fleet.kinds]
        room = sum(float(most) * len(nodes) for most, nodes in rooms)
        if once <= 0:
            return most
        return max(1, min(most, int(room / once * (1 + 1e-9))))

    def _tables(
        self, least: float, most: float, ratio: float, check: Callable[[], None]
    ) -> VisitTables:
        """On a grid for each size: larger micro-batches are fewer."""
        fill = 1 / self.instance.workload.costs.interleave
        grids = tuple(
            Grid.between(least * size.sequences, most, ratio)
            for size in self.fleet.sizes
        )
        return VisitTables(self.fleet, grids, fill, check)

    def _most_held(self, size: Size) -> Table:
        """The most that replicas worth w cells hold, in average layers, by w.

        What shares of layers weigh is a knapsack: the heaviest for their worth first.
        A replica with one of b samples holds b times its share.
        """
        weights, worths = self.fleet.layer_weights, np.array(size.worths, float)
        free = worths == 0
        order = np.argsort(-weights[~free] / worths[~free], kind="stable")
        room = np.concatenate([[0], np.cumsum(worths[~free][order])]) * size.finer
        held = np.concatenate([[0], np.cumsum(weights[~free][order])])
        held += weights[free].sum()
        most: Table = np.interp(np.arange(size.cells + 1), room, held) * size.sequences
        return most

    def _least_held(self, size: Size) -> Table:
        """The least that a pipeline holds by what it is worth: the lightest first."""
        weights, worths = self.fleet.layer_weights, np.array(size.worths, float)
        order = np.argsort(weights / np.maximum(worths, 1e-9), kind="stable")
        at = np.concatenate([[0], np.cumsum(worths[order])]) * size.finer
        held = np.concatenate([[0], np.cumsum(weights[order])])
        least: Table = np.interp(np.arange(size.cells + 1), at, held)
        return least

    def _first_cases(self) -> list[Case]:
        nodes, most = len(self.places), self.most_pipelines
        sizes, sites = len(self.fleet.sizes), len(self.fleet.sites)
        none, whole = (0.0,) * nodes, (float(self.layers),) * nodes
        edges = [0.0, self.most_sync_us, inf] if self.priced_sync else [0.0, inf]
        return [
            Case(
                *(low, high, 1, most, none, whole, most),
                *((0.0,) * sites, (float(self.layers),) * sites),
                size_high=sizes - 1,
            )
            for low, high in pairwise(edges)
        ]

    def start(self, counting: bool) -> bool:
        """By counts alone, or by prices where there are several pipelines.

        From where that ended. Whether it is possible.
        """
        if counting and self._counts is None:
            return False
        self._paused[self.counting] = self.first, self.cases
        self.counting = counting
        self.first, self.cases = self._paused[counting]
        return True

    @property
    def counted_together(self) -> tuple[tuple[str, ...], ...]:
        """Kinds of nodes that are looked at as one where GPUs are counted."""
        kinds = self._counts.kinds if self._counts else []
        return tuple(kind.speakers for kind in kinds if len(kind.speakers) > 1)

    @property
    def counts_lines(self) -> bool:
        """Whether counts say more of one pipeline than prices do."""
        return self._lines

    @property
    def few_counts(self) -> bool:
        """Whether counts of GPUs are so few that they take less long than prices."""
        return self._counts is not None and self._counts.few

    def refute(self, time_us: float) -> "Refutation":
        """Start refuting that any plan has an iteration of at most `time_us`."""
        return Refutation(self, time_us, self.cases)

    def counted(self, box: Box, left_us: int, time_us: int) -> float | None:
        """How finely rows of stages refute a box; None where they do not."""
        case = Case(
            float(box.sync_low_us),
            inf if box.sync_high_us is None else float(box.sync_high_us),
            *(box.replicas_low, box.replicas_high, (), (), box.count_high),
            count_low=box.count_low,
            size_low=box.size_low,
            size_high=box.size_high,
            wanted=box.wanted,  # type: ignore[arg-type]
        )
        self._refuted_by_counts(case, float(left_us + 1), float(time_us))
        box.wanted = case.wanted
        return case.counted

    # -- one case ----------------------------------------------------------------

    def settled(self, case: Case, time_us: float) -> bool:
        """Whether no plan within the case has an iteration of at most `time_us`."""
        left = time_us - self.overhead_us - self.sync_factor * case.sync_low_us
        left /= self.pipeline_factor
        left += 1e-9 * abs(left) + 1e-12 * time_us  # factors and times were rounded
        known = left >= 0 and self._of_one_sequence(case) and time_us < self.alone
        if known and case.size_high > case.size_low:
            return False  # the other sizes are looked at apart
        case.laid = bool(known)
        if case.laid:
            return True
        if self.counting or (self._lines and case.most == 1):
            return self._refuted_by_counts(case, left, time_us)
        groups = self._groups(case)
        kinds = [group[:2] for group in groups]
        for level in range(len(_RATIOS)):
            pricing = self._pricing(case, groups, level, time_us)
            start = case.prices.get(len(groups))
            limited = (i for i, kind in enumerate(kinds) if kind in case.limited)
            verdict = pricing.refute(left, start, limited)
            case.limited |= {kinds[i] for i in verdict.limited}
            if verdict.refuted or level == 0:
                case.prices[len(pricing.groups)] = verdict.prices
            if verdict.refuted:
                case.proof, case.level = verdict.prices, level
                return True
            if verdict.taken > _RATIOS[level] ** 2 * self.batch:
                break  # intervals are not what makes the difference
        case.near = verdict.taken <= _NEARLY * self.batch and self._told(case)
        return case.near and self._refuted_by_counts(case, left, time_us)

    def _of_one_sequence(self, case: Case) -> bool:
        """Whether it is of single pipelines, some of micro-batches of one sequence."""
        smallest = self.fleet.sizes[case.size_low].sequences
        return bool(self.alone) and case.most == 1 and smallest == 1

    def _of_one_replica(self, case: Case) -> bool:
        """Whether stages have one each, if pipelines are single ones."""
        return self.fleet.sizes[case.size_high].sequences == 1

    def _told(self, case: Case) -> bool:
        """Whether counts may tell what prices do not but for shares of nodes."""
        if not self._lines or min(case.shares_high) < self.layers:
            return False
        split = self._split(case)
        return case.near or (split is not None and split.of == "share")

    def _refuted_by_counts(self, case: Case, left_us: float, time_us: float) -> bool:
        """Whether rows of stages take longer, in whole GPUs."""
        assert self._counts is not None
        case.counted = None
        if left_us >= 0 and case.count_low == 1 < case.most:
            return False  # one pipeline is looked at apart
        until_us, wanted = case.wanted or (-inf, None)
        # A pipeline has no more replicas of a layer than sequences in a micro-batch.
        largest = self.fleet.sizes[case.size_high].sequences
        some = counts.Range(
            max(case.count_low, -(-case.pipelines_low // largest)),
            case.most,
            case.pipelines_low,
            range(case.size_low, case.size_high + 1),
            tuple(self._synchronising(case, time_us, 1)),
            tuple(self._synchronising(case, time_us, _STEPS)),
            self._unknown_us(case),
            wanted if time_us <= until_us else None,
        )
        verdict = self._counts.refuted(some, left_us)
        case.counted = verdict.ratio
        case.wanted = None if verdict.wanted is None else (time_us, verdict.wanted)
        return verdict.ratio is not None

    def _unknown_us(self, case: Case) -> float:
        """By how much pipelines may have less time than the case leaves them."""
        if not self.priced_sync or np.isinf(case.sync_high_us):
            return 0.0
        width = case.sync_high_us - case.sync_low_us
        return self.sync_factor * width / self.pipeline_factor

    def _synchronising(
        self, case: Case, time_us: float, steps: int
    ) -> Iterator[counts.Synchronising]:
        """How long stages synchronise, and what a pipeline spends on that, hidden."""
        if self.priced_sync:
            yield counts.Synchronising(case.sync_high_us)
            return
        for low, high in self._hidden_us(time_us, steps):
            least = min(self.pipeline_factor, self.sync_factor)
            yield counts.Synchronising(high, low * least / self.pipeline_factor)

    def _groups(self, case: Case) -> dict[_Group, int]:
        """How many nodes are of one kind and may have one share, in order."""
        nodes = zip(self.places, case.shares_high, strict=True)
        return dict(sorted(Counter((*place, share) for place, share in nodes).items()))

    def _pricing(
        self, case: Case, groups: dict[_Group, int], level: int, time_us: float
    ) -> Pricing:
        kinds = self.fleet.kinds
        return Pricing(
            self.instance.workload.global_batch,
            float(self.layers),
            float(self.fleet.layer_weights.sum()),
            float(case.most),
            1 / self.instance.workload.costs.interleave,
            tuple(
                Group(count, kinds[kind].gpus, kinds[kind].speed, site)
                for (kind, site, _), count in groups.items()
            ),
            tuple(
                part
                for size in range(case.size_low, case.size_high + 1)
                for hidden in self._hidden(case, time_us)
                if (part := self._part(case, [*groups], level, size, hidden))
            ),
            self._check,
        )

    def _hidden(self, case: Case, time_us: float) -> list[Hidden]:
        """Ranges of what the stages of one pipeline synchronise, hidden or not."""
        ranges = self._hidden_us(time_us)
        spread, far = self.fleet.spread_us, self.fleet.far_us
        if len(ranges) == 1:
            return [Hidden(self._rate(case, spread), self._rate(case, far), 0.0)]
        layers = float(self.layers)
        least = min(self.pipeline_factor, self.sync_factor)
        return [
            Hidden(
                min(layers, high / spread),
                min(layers, high / far) if far else layers,
                low * least,
            )
            for low, high in ranges
        ]

    def _hidden_us(self, time_us: float, steps: int = 1) -> list[tuple[float, float]]:
        """Ranges of how long stages synchronise; one where nothing hides that."""
        costs = self.instance.workload.costs
        least = min(self.pipeline_factor, self.sync_factor)
        hidden = costs.sync_overlap != "none" and costs.interleave == 1
        if not (hidden and self.fleet.spread_us * least):
            return [(0.0, inf)]
        most = max(0.0, time_us - self.overhead_us) / least * (1 + 1e-9)
        parts = (2 ** (-i / steps) for i in range(_HALVES * steps, -1, -1))
        return [*pairwise((0.0, *(most * part for part in parts)))]

    def _part(
        self,
        case: Case,
        groups: list[_Group],
        level: int,
        size: int,
        hidden: Hidden,
    ) -> Part | None:
        """Pipelines of one size of micro-batches, in a case; None if there are none."""
        tables = self.tables[level]
        within = tables.grids[size].within(case.bottleneck_low, case.bottleneck_high)
        if within.start >= within.stop:
            return None
        spreads = [self._spread(case, hidden, group) for group in groups]
        visits = tuple(
            tables.visits(kind, size, spread, not hidden.spent_us).within(within)
            for (kind, _, _), spread in zip(groups, spreads, strict=True)
        )
        claims, held = [], []
        for (number, *_), spread, visit in zip(groups, spreads, visits, strict=True):
            kind = self.fleet.kinds[number]
            k = np.arange(1, kind.gpus + 1)[:, None]
            claims.append((k / kind.gpus * visit.claims).astype(np.float32))
            room = kind.room(spread)[1:, None] + _SLACK
            most = np.minimum(self.most_held[size][None, :], room) * _ABOVE
            held.append((most / case.pipelines_low).astype(np.float32))
        counted = self.fleet.sizes[size]
        return Part(
            counted.sequences,
            counted.cells,
            counted.exact,
            hidden.spent_us / self.pipeline_factor,
            tables.grids[size].of(within),
            visits,
            tuple(claims),
            tuple(held),
            tuple(self._most_in_sites(case, hidden, counted)),
            self._bridged(spreads),
        )

    def _spread(self, case: Case, hidden: Hidden, group: _Group) -> Spread:
        """What replicas may hold in nodes of a group: each layer has D or more."""
        kind, number, share = group
        part = min(1.0, self.fleet.kinds[kind].gpus / case.pipelines_low)
        most = min(share, part * self.layers)
        site = self._spread_of_site(case, hidden, number) if case.sites_high else None
        return Spread(hidden.rate, most, part, case.most == 1, site)

    def _spread_of_site(self, case: Case, hidden: Hidden, number: int) -> Spread:
        """The same of a site and what lies in others."""
        part = min(1.0, self.site_gpus[number] / case.pipelines_low)
        most = min(case.sites_high[number], part * self.layers)
        return Spread(hidden.far_rate, most, part)

    def _bridged(self, spreads: Sequence[Spread]) -> bool:
        """Whether any node is large enough for a stage in several sites."""
        lightest, most = self.fleet.layer_weights.min(), np.array(self.fleet.most_gpus)
        slack = 1e-9 * (1 + lightest)
        return any(lightest <= spread.bridged(most) + slack for spread in spreads)

    def _most_in_sites(self, case: Case, hidden: Hidden, size: Size) -> Iterator[int]:
        """Cells that one pipeline holds in each site; all where they are rounded up."""
        for number in range(len(case.sites_high)):
            spread = self._spread_of_site(case, hidden, number)
            most = float(spread.most(np.array(self.site_gpus[number])))
            held = self.least_held[size.sequences] <= most * _ABOVE + _SLACK
            yield int(np.flatnonzero(held)[-1]) if size.exact else size.cells

    def _rate(self, case: Case, spread: float) -> float:
        """Layers that one GPU can synchronise within the case's time."""
        if not self.priced_sync or not spread or np.isinf(case.sync_high_us):
            return float(self.layers)
        return case.sync_high_us / spread

    # -- division ----------------------------------------------------------------

    def divide(self, case: Case) -> list[Case]:
        """Parts of the case, without those that cannot be; empty where too narrow."""
        case.split = self._split(case)
        return case.split.parts if case.split is not None else []

    def _split(self, case: Case) -> Split | None:
        if self._of_one_sequence(case) and case.size_high > case.size_low:
            return self._split_of_size(case, case.size_low)
        of_sync = (case.sync_high_us - case.sync_low_us) / (self.most_sync_us or 1)
        if np.isinf(of_sync):
            if not self.sync_factor:
                return None
            if self.priced_sync:  # at length there is no time left
                at = 2 * case.sync_low_us
                return self._split_of_sync(case, at) if at else None
            of_sync = 0.0
        middle = (case.sync_low_us + case.sync_high_us) / 2
        several = case.pipelines_high > case.pipelines_low
        if of_sync > _COARSE and not (self.counting or self._lines):
            return self._split_of_sync(case, middle)
        if case.count_high > 1 and case.count_low == 1:
            return self._alone(case)
        if self.counting and case.most == 1 and self._of_one_replica(case):
            return None  # nothing synchronises
        if of_sync > _COARSE:
            return self._split_of_sync(case, middle)
        if case.most == 1 and (self.counting or self._lines):
            told = of_sync <= _FINEST
            return None if told else self._split_of_sync(case, middle)
        if case.most == 1:
            found = self._split_alone(case, _WIDE if several else _CLOSE)
            if found is not None:
                return found
        if crossing := self._split_of_crossing(case):
            return crossing
        many = several and len(case.sites_high) > _FEW_SITES
        if not many and (sites := self._split_of_sites(case, _WIDE_SITE)):
            return sites
        fine = _FINER if self.counting or case.near else _FINE
        if of_sync > fine and not several:
            return self._split_of_sync(case, middle)
        if several:
            at = int((case.pipelines_low * case.pipelines_high) ** 0.5)
            low = self._within(case, pipelines_high=at)
            return Split(
                "pipelines", None, at, low, self._within(case, pipelines_low=at + 1)
            )
        if self.counting:
            return None
        sites = self._split_of_sites(case, _NARROW_SITE)
        return sites or self._split_of_shares(case, "shares")

    def _split_of_crossing(self, case: Case) -> Split | None:
        """Whether pipelines must cross to other sites, and whether stages lie in two.

        They must unless a site has nearly all layers; stages do not unless there is
        time for it (`Spread.bridged`).
        """
        few = len(case.sites_high) <= _FEW_SITES
        if self.counting or case.most == 1 or few:
            return None
        at = _WHOLE_SITE * self.layers
        for i, share in enumerate(case.sites_low):
            if share < at < case.sites_high[i]:
                return self._split_of_share(case, "sites", i, at)
        lightest = float(self.fleet.layer_weights.min()) * (1 - _SLACK)
        bridged_us = lightest / 2 / self.fleet.most_gpus * self.fleet.far_us
        if self.priced_sync and case.sync_low_us < bridged_us < case.sync_high_us:
            return self._split_of_sync(case, bridged_us)
        return None

    def _split_of_sites(self, case: Case, narrowest: float) -> Split | None:
        if self.counting or case.most == 1:
            return None
        return self._split_of_shares(case, "sites", narrowest)

    def _split_of_shares(
        self, case: Case, of: Literal["shares", "sites"], narrowest: float = _NARROWEST
    ) -> Split | None:
        """In the middle of the widest share of a node or site, if it is wide."""
        lows, highs = getattr(case, f"{of}_low"), getattr(case, f"{of}_high")
        widths = [(y - x) / self.layers for x, y in zip(lows, highs, strict=True)]
        i = max(range(len(widths)), key=widths.__getitem__, default=None)
        if i is None or widths[i] < narrowest:
            return None
        return self._split_of_share(case, of, i, (lows[i] + highs[i]) / 2)

    def _split_of_share(
        self, case: Case, of: Literal["shares", "sites"], i: int, at: float
    ) -> Split:
        lows, highs = getattr(case, f"{of}_low"), getattr(case, f"{of}_high")
        low = self._within(case, **{f"{of}_high": _with(highs, i, at)})
        high = self._within(case, **{f"{of}_low": _with(lows, i, at)})
        return Split("share" if of == "shares" else "site", i, at, low, high)

    def _split_of_size(self, case: Case, at: int) -> Split:
        low = self._within(case, size_high=at)
        return Split("size", None, at, low, self._within(case, size_low=at + 1))

    def _split_of_sync(self, case: Case, at: float) -> Split:
        low = self._within(case, sync_high_us=at)
        return Split("sync", None, at, low, self._within(case, sync_low_us=at))

    def _alone(self, case: Case) -> Split:
        """One pipeline, or several: then every layer has as many replicas."""
        fewest = max(2, case.pipelines_low)
        low = self._within(case, count_high=1)
        high = None
        if fewest <= case.pipelines_high:
            high = self._within(case, count_low=2, pipelines_low=fewest)
        return Split("count", None, 1, low, high)

    def _split_alone(self, case: Case, ratio: float) -> Split | None:
        """By size, then by bottleneck until its range is narrow."""
        if case.size_high > case.size_low:
            return self._split_of_size(case, (case.size_low + case.size_high) // 2)
        high = self.tables[0].grids[case.size_low].high
        least = max(case.bottleneck_low, float(high[0]))
        most = min(case.bottleneck_high, float(high[-1]))
        if most <= least * ratio:
            return None
        at = (least * most) ** 0.5
        low = self._within(case, bottleneck_high=at)
        return Split("bottleneck", None, at, low, self._within(case, bottleneck_low=at))

    def _within(self, case: Case, **ranges: Any) -> Case | None:
        return self._tightened(replace(case, prices={}, proof=(), split=None, **ranges))

    def _tightened(self, case: Case) -> Case | None:
        """Ranges that follow from the order of equal nodes and the sum of shares."""
        low, high = list(case.shares_low), list(case.shares_high)
        nodes = range(1, len(low))
        for i in nodes:
            if self.places[i] == self.places[i - 1]:
                high[i] = min(high[i], high[i - 1])
        for i in reversed(nodes):
            if self.places[i] == self.places[i - 1]:
                low[i - 1] = max(low[i - 1], low[i])
        shares = _summing(low, high, self.layers)
        sites = _summing(case.sites_low, case.sites_high, self.layers)
        if shares is None or sites is None:
            return None
        return replace(
            case, shares_low=tuple(low), shares_high=shares, sites_high=sites
        )


class Refutation:
    """The refutation of one time, case by case, so that a caller can stop between."""

    def __init__(
        self, bound: PatternBound, time_us: float, cases: Sequence[Case]
    ) -> None:
        self.bound, self.time_us = bound, time_us
        self.open = list(cases)
        self.settled: list[Case] = []
        self.failed = False

    def step(self) -> bool:
        """Settle or divide one case; False when there is nothing left to do."""
        if self.failed or not self.open:
            return False
        case = self.open[-1]  # which stays where time is over before it is settled
        settled = self.bound.settled(case, self.time_us)
        self.open.pop()
        if settled:
            self.settled.append(case)
        elif parts := self.bound.divide(case):
            self.open += parts
        else:
            self.failed = True
            self.open.append(case)
        self.bound.cases = self.settled + self.open
        return True

    def cancel(self) -> None:
        """It is not gone on with."""

    @property
    def proved(self) -> bool:
        """Whether every case is settled: no plan is as quick as `time_us`."""
        return not self.open and not self.failed

    def certificate(self) -> TrainingCertificate | None:
        """The divisions and the prices that refute the time, for an independent check.

        None where there are more of them than a file may hold.
        """
        try:
            return TrainingCertificate(
                time_us=self.time_us,
                most_sync_us=self.bound.most_sync_us,
                cases=tuple(_tree(case) for case in self.bound.first),
                worths=self.bound.fleet.sizes[0].worths,
                finer=tuple(size.finer for size in self.bound.fleet.sizes),
                least_us=self.bound.smallest_us,
                ratios=_RATIOS,
                together=self.bound.counted_together,
                levelled=self.bound.levelled,
                sites=self.bound.fleet.sites,
            )
        except ValidationError:
            return None


def _tree(case: Case) -> certificates.Case:
    if case.laid:
        return certificates.Case(laid=True)
    if case.counted is not None:
        return certificates.Case(counts=case.counted)
    if case.split is None:
        prices = tuple(float(price) for price in case.proof)
        return certificates.Case(prices=prices, level=case.level)
    split = case.split
    return certificates.Case(
        split=split.of,
        node=split.node,
        at=split.at,
        low=None if split.low is None else _tree(split.low),
        high=None if split.high is None else _tree(split.high),
    )


def _summing(
    low: Sequence[float], high: Sequence[float], most: int
) -> tuple[float, ...] | None:
    """Upper ends of ranges of what sums to `most` at the most; None if it cannot."""
    total, slack = sum(low), 1e-9 * most
    if total > most + slack:
        return None
    found = tuple(
        min(h, most - total + x + slack) for x, h in zip(low, high, strict=True)
    )
    if any(h < x - 2 * slack for x, h in zip(low, found, strict=True)):
        return None
    return found


def _with(values: tuple[float, ...], i: int, value: float) -> tuple[float, ...]:
    return (*values[:i], value, *values[i + 1 :])
