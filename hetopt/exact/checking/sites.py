"""Sites: any division of the nodes, and what slow links between its parts mean.

The *share* of a site is the part of each layer's replicas that lie there, summed over
layers by size; shares of all sites are the size of all layers. A layer l with n
replicas, h of them in a site, sends each of these what n - h replicas elsewhere have,
over no faster link than the fastest between any two sites, of beta units a us:

    e_l (n - h) / n  <=  d beta S_l,     the sum of S_l over a stage  <=  S.

Stages of a pipeline share no GPU. So the layers that it holds in a site sum up to the
site's share and G beta S at most, where the site has G GPUs. With `sync: bottleneck` a
layer with all replicas in the site is in its share, and any other has e_l / 2 or less
within d beta S_l: that makes it twice G beta S.

A stage in two sites waits in both: for all but h / n in the one, and but h' / n in the
other, which are one together at the most. So its size is no more than twice d beta S.

The last stage of a pipeline in a site does not end the pipeline, in all sites but one.
It hands on to a stage in another site, or to one in several sites, one for each.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import permutations, product
from math import ceil, floor

from .sharing import Box
from .stages import MOST, UNIT, Stages

Names = tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Site:
    """Kinds of nodes of a site, and the most layers that a pipeline holds there."""

    kinds: tuple[int, ...]
    layers: int


class Sites:
    """Sites of a cluster of equal layers, none where the names are none."""

    def __init__(self, stages: Stages, names: Names) -> None:
        """Take the names of nodes by site, which are those that stages know of."""
        self._stages, self._names = stages, names

    @staticmethod
    def fault(stages: Stages, names: Names) -> str | None:
        """Tell what is wrong with names of nodes by site; None if nothing."""
        if not names:
            return None
        nodes = sorted(node.name for node in stages.table.cluster.nodes)
        if sorted(name for site in names for name in site) != nodes or not all(names):
            return "sites do not divide the nodes"
        costs = stages.costs
        if (
            not stages.equal
            or costs.updates.zero_groups > 1
            or costs.compute.expert_parallel > 1
        ):
            return "sites of layers that differ, or that groups synchronise"
        return None

    def __bool__(self) -> bool:
        return len(self._names) > 1

    @cached_property
    def _layer(self) -> Fraction:
        """Units of one layer."""
        own, whole = self._stages.own, self._stages.behind[-1] or 1
        return Fraction(UNIT * len(own) * own[0], whole)

    @cached_property
    def _links(self) -> set[int]:
        """Classes of the links between any two sites."""
        cluster = self._stages.table.cluster
        number, links = cluster.number, cluster.links
        return {
            links.between(number[x], number[y])
            for one, other in permutations(self._names, 2)
            for x, y in product(one, other)
        }

    @cached_property
    def _rate(self) -> Fraction | None:
        """Units that a GPU exchanges in a us over the fastest of these links."""
        links = self._stages.table.cluster.links
        rates = (Fraction(links.exactly(link)[1]) for link in self._links)
        return self._stages.rate(max(rates))

    def shares(self) -> tuple[tuple[int, int], ...]:
        """Return the ranges of the sites' shares of all plans."""
        whole = ceil(self._stages.layers * self._layer)
        return ((0, whole),) * len(self._names)

    def parts(self, box: Box, site: int, at: int) -> tuple[Box, Box] | None:
        """Return both sides of a division by a site's share; None where there is none.

        All shares together are what all layers have: others are no less, and no more,
        than that leaves them.
        """
        if site >= len(box.sites):
            return None
        low, high = box.sites[site]
        less, more = list(box.sites), list(box.sites)
        less[site], more[site] = (low, min(at, high)), (max(low, at), high)
        return self._summed(box, less), self._summed(box, more)

    def _summed(self, box: Box, shares: list[tuple[int, int]]) -> Box:
        whole = self._stages.layers * self._layer
        least, most = (sum(ends) for ends in zip(*shares, strict=True))
        found = tuple(
            (max(low, floor(whole) - most + high), min(high, ceil(whole) - least + low))
            for low, high in shares
        )
        return replace(box, sites=found)

    def of(self, box: Box, sync_us: int | None) -> list[Site]:
        """Return the sites in a box, whose stages synchronise for `sync_us`."""
        stages, found = self._stages, list[Site]()
        for number, names in enumerate(self._names):
            kinds = [c for c, x in enumerate(stages.kinds) if x.name in names]
            most = stages.layers
            if sync_us is not None and self._rate is not None and self._layer:
                gpus = sum(
                    stages.kinds[c].gpus * len(stages.kinds[c].nodes) for c in kinds
                )
                able = gpus * self._rate * sync_us
                if stages.costs.updates.sync != "ring":
                    able *= 2
                most = min(most, floor((box.sites[number][1] + able) / self._layer))
            found.append(Site(tuple(kinds), most))
        return found

    def across(self, sync_us: int | None) -> list[int]:
        """Return the most units of a stage in several sites, by its least degree."""
        widest = max(kind.gpus for kind in self._stages.kinds)
        if sync_us is None or self._rate is None:
            return [MOST] * (widest + 1)
        able = 2 * self._rate * sync_us
        return [min(MOST, floor(d * able)) for d in range(widest + 1)]
