"""Boxes: ranges of what pipelines share, and how a box is divided.

The synchronisation time of all pipelines, the least number of replicas D that a layer
has, the number of pipelines; and where there is one pipeline, its size of micro-batches
and its slowest stage. The first boxes cover all plans, and the parts of a box cover it.
"""

from dataclasses import dataclass, field, replace
from math import isqrt
from typing import Literal

from .master import State
from .pricing import Prices
from .schedule import Schedule

Of = Literal["sync", "count", "replicas", "size", "slowest", "host"]


@dataclass
class Box:
    """Ranges, both ends included; None where there is no upper end.

    `sizes` are numbers of sizes of micro-batches. A *host* is a node that holds all
    replicas of some layer; `hosts` are how many there are of each class, () where
    nothing is known.
    `state` is what is known. `proof` are the prices that refuted the box, if it was not
    divided, or `whole` those at which whole pipelines did; or it is `laid` on named
    nodes. All plans of a box that was `listed` are known, those of its parts too.
    """

    sync_low_us: int
    sync_high_us: int | None
    replicas_low: int
    replicas_high: int
    count_low: int
    count_high: int
    size_low: int
    size_high: int
    slowest_low_us: int = 0
    slowest_high_us: int | None = None
    hosts_low: tuple[int, ...] = ()
    hosts_high: tuple[int, ...] = ()
    state: State = field(default_factory=State)
    proof: Prices | None = None
    whole: Prices | None = None
    laid: bool = False
    listed: bool = False
    listings: int = 0  # that were tried, and left the box open
    split: "Split | None" = None

    def part(self, **ranges: object) -> "Box":
        """Return a box with other ranges that begins with what is known of this one."""
        fields: dict[str, object] = {
            "state": self.state.inherited(),
            **{"proof": None, "whole": None, "laid": False},
            "split": None,
        }
        return replace(self, **{**fields, **ranges})  # type: ignore[arg-type]


@dataclass(frozen=True)
class Split:
    """How a box was divided: the low part goes up to `at`, the high one begins beyond.

    The low part of a split by count is a single pipeline; one by host is of the hosts
    of a class.
    """

    of: Of
    at: int
    low: Box
    high: Box
    kind: int | None = None


@dataclass(frozen=True)
class Division:
    """How boxes of an instance are divided.

    `most_sync_us` is what plans may synchronise, of which shares are shares; `sizes`
    are those of micro-batches; `nodes` are how many there are of each class, and
    `node_gpus` what each has. Numbers of hosts are divided if there are `few` GPUs.
    """

    schedule: Schedule
    most_sync_us: int
    sizes: tuple[int, ...]
    least_slowest_us: int
    batch: int
    nodes: tuple[int, ...] = ()
    node_gpus: tuple[int, ...] = ()
    few: bool = False

    def split(self, box: Box, left_us: int) -> Split | None:
        """Return the next division of a box; None where it is too narrow.

        What is gained first is mostly in coarse ranges of synchronisation, then in
        replicas; one pipeline is looked at apart. Pipelines have `left_us`.
        """
        plan = self.schedule
        single = box.count_high == 1
        if single and box.size_high > box.size_low and self.sizes[box.size_low] == 1:
            return self._by_size(box)  # nothing is synchronised in that of one
        if box.count_low == 1 and not single:
            return self.by_count(box)
        alone = single and self.sizes[box.size_high] == 1  # nothing is synchronised
        width = self._width(box)
        if width is None and box.sync_low_us:
            return None if alone else self._by_sync(box)
        several = box.replicas_high > box.replicas_low
        if width is not None and not alone:
            if width > plan.coarse:
                return self._by_sync(box)
            wide = 2 * box.replicas_high >= 3 * box.replicas_low
            if several and (wide or self.few):
                return self._by_replicas(box)
            if not several and (split := self._by_host(box)):
                return split
            if width > plan.fine:
                return self._by_sync(box)
            if several:
                return self._by_replicas(box)
        if width is None and several and not single:
            return self._by_replicas(box)  # each stage has ranges of its own
        if single:
            if box.size_high > box.size_low:
                return self._by_size(box)
            if split := self._by_slowest(box, left_us, 1.05):
                return split
        if width is not None and not alone and width > plan.finest:
            return self._by_sync(box)
        return self._by_slowest(box, left_us, 1.005) if single else None

    def is_fine(self, box: Box) -> bool:
        """Tell whether the range of synchronisation is fine, if that has any."""
        width = self._width(box)
        return width is None or width <= self.schedule.fine

    def is_coarse(self, box: Box) -> bool:
        """Tell whether a box is divided by what gains most: no effort pays before."""
        if box.count_low == 1 and box.count_high > 1:
            return True
        width = self._width(box)
        return width is not None and width > self.schedule.coarse

    def _width(self, box: Box) -> float | None:
        """Return the range of synchronisation, as a share; None where it has no end."""
        if box.sync_high_us is None:
            return None
        return (box.sync_high_us - box.sync_low_us) / max(1, self.most_sync_us)

    def _by_sync(self, box: Box) -> Split | None:
        low, high = box.sync_low_us, box.sync_high_us
        if high is None:  # at length there is no time left
            if not low or low > 64 * self.most_sync_us:
                return None
            at = 2 * low
        elif high - low < 2:
            return None
        else:
            at = (low + high) // 2
        return Split("sync", at, box.part(sync_high_us=at), box.part(sync_low_us=at))

    def by_count(self, box: Box) -> Split:
        """Return a single pipeline, and several."""
        single = box.part(
            count_high=1, replicas_high=min(box.replicas_high, self.sizes[-1])
        )
        several = box.part(count_low=2, replicas_low=max(2, box.replicas_low))
        return Split("count", 1, single, several)

    def _by_replicas(self, box: Box) -> Split:
        at = max(box.replicas_low, isqrt(box.replicas_low * box.replicas_high))
        at = min(at, box.replicas_high - 1)
        low = box.part(replicas_high=at, count_high=min(box.count_high, at))
        return Split("replicas", at, low, box.part(replicas_low=at + 1))

    def _by_host(self, box: Box) -> Split | None:
        """Divide by hosts of a class, first by whether there are any.

        Each pipeline has each layer, and so a GPU or more of each host. These have as
        many as a layer has replicas, or more.
        """
        able = [c for c, gpus in enumerate(self.node_gpus) if gpus >= box.replicas_low]
        if box.count_low < 2 or len(able) > self.schedule.hosts:
            return None
        low = box.hosts_low or (0,) * len(self.nodes)
        high = box.hosts_high or self.nodes
        for c in able:
            if not low[c] and high[c]:
                return self._at_host(box, low, high, c)
        for c in able:
            if low[c] < high[c] and self.few:
                return self._at_host(box, low, high, c)
        return None

    def _at_host(
        self, box: Box, low: tuple[int, ...], high: tuple[int, ...], c: int
    ) -> Split:
        at = low[c]
        less, more = list(high), list(low)
        less[c], more[c] = at, at + 1
        most = min(box.count_high, self.node_gpus[c])
        return Split(
            *("host", at),
            box.part(hosts_low=low, hosts_high=tuple(less)),
            box.part(hosts_low=tuple(more), hosts_high=high, count_high=most),
            kind=c,
        )

    def _by_size(self, box: Box) -> Split:
        at = (box.size_low + box.size_high) // 2
        if self.sizes[box.size_low] == 1:
            at = box.size_low
        return Split("size", at, box.part(size_high=at), box.part(size_low=at + 1))

    def _by_slowest(self, box: Box, left_us: int, ratio: float) -> Split | None:
        low = max(box.slowest_low_us, self.least_slowest_us, 1)
        high = left_us // max(1, -(-self.batch // self.sizes[box.size_high]))
        if box.slowest_high_us is not None:
            high = min(high, box.slowest_high_us)
        if high <= low * ratio or high - low < 2:
            return None
        at = max(low + 1, isqrt(low * high))
        first = box.part(slowest_high_us=at)
        return Split("slowest", at, first, box.part(slowest_low_us=at))
