"""A lower bound on the iteration time of training plans, by a tree of boxes."""

from collections import OrderedDict
from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from math import floor, inf, isqrt, prod

import numpy as np
from pydantic import ValidationError

from ...bounds.single_gpu import single_gpu_us
from ...caching import cached_method
from ...errors import InternalError
from ...schema import Instance
from ...solving.certificates import BoxCertificate
from ...stages import NEVER, StageTable
from ...text.documents import Document
from .arcs import Arcs, arcs, least_cover
from .boxes import Box, Division
from .counts import IntegerMaster, Vectors
from .coupling import Coupling, Sharing
from .master import Master, Verdict
from .pricing import Array, Limits, Prices, Pricing, Rows, flat
from .schedule import Schedule
from .unordered import Segments, Unordered

_BITS = 58  # of what a path costs, all prices and times together
_SCALE = 1 << 21  # whole prices of one sequence, at the most
_MOST_BYTES = 1_000_000_000  # of arcs of one size of micro-batches
_KEPT_BYTES = 400_000_000  # of times of segments
_KEPT_COUPLINGS = 16  # of boxes with stages
_HALVES = 5  # ranges of what stages synchronise where backward passes hide it


#: Tells whether all plans of a box can be listed, with an effort of 0 or 1.
Listed = Callable[[Box, int], bool]


class _View:
    """Stages by class of nodes, or with hosts apart from others."""

    def __init__(
        self,
        table: StageTable,
        whole: StageTable,
        schedule: Schedule,
        check: Callable[[], None],
        apart: Container[str] = (),
    ) -> None:
        """Read a table, whose classes are those of `whole` or parts of them.

        Nodes that are `apart` are hosts, and others of their classes are not.
        """
        self.table, self._check = table, check
        self.vectors = Vectors(table, schedule)
        #: What a box says of arcs: boxes are looked at several times.
        self.coupling = lru_cache(_KEPT_COUPLINGS)(self._coupling)
        first = [each.nodes for each in whole.classes]
        #: Of which class each is a part, and whether nodes of it are hosts and others.
        self._of = [
            next(c for c, names in enumerate(first) if each.nodes[0] in names)
            for each in table.classes
        ]
        self._parted = [self._of.count(c) > 1 for c in self._of]
        self._apart = [each.nodes[0] in apart for each in table.classes]

    @cached_method
    def stages(self, size: int) -> Arcs:
        """Return the arcs of a size of micro-batches, by its number."""
        self._check()
        return arcs(self.table, self.table.sizes[size])

    def _coupling(self, size: int, sharing: Sharing) -> Coupling:
        return Coupling(self.table, self.stages(size), sharing)

    def hosts(self, box: Box) -> list[tuple[int, int]]:
        """Return the fewest and the most hosts of each class."""
        found = []
        columns = self._of, self.table.classes, self._parted, self._apart
        for c, one, parted, apart in zip(*columns, strict=True):
            low = box.hosts_low[c] if box.hosts_low else 0
            high = box.hosts_high[c] if box.hosts_high else len(one.nodes)
            found.append((low, high) if apart or not parted else (0, 0))
        return found

    def priced(self, proposed: Array) -> Array:
        """Return prices by these classes of prices by the whole ones."""
        count = (len(proposed) - 3) // 2
        each = proposed[:count], proposed[count : 2 * count]
        return np.concatenate([*(x[self._of] for x in each), proposed[2 * count :]])

    def merged(self, prices: Prices) -> Prices:
        """Return prices by the whole classes: the same of both parts of one."""
        first = [self._of.index(c) for c in range(max(self._of) + 1)]
        gpu, share = (
            tuple(row[i] for i in first) for row in (prices.gpu, prices.share)
        )
        return prices._replace(gpu=gpu, share=share)


class PipelineBound:
    """Refutes iteration times of one instance, whose stage of ZeRO and split are fixed.

    The boxes that it needed are kept: the next time begins with them.
    """

    def __init__(
        self,
        instance: Instance,
        most_us: int,
        least_us: int,
        check: Callable[[], None] = lambda: None,
        *,
        schedule: Schedule = Schedule(),  # noqa: B008 -- frozen
        alone_us: int = 0,
        whole: bool = False,
    ) -> None:
        """Prepare for times between `least_us` and `most_us`.

        `check()` is called before what takes long, and may raise. A plan of one
        pipeline, whose micro-batches have one sequence, takes `alone_us` or more.
        Pipelines may be looked at as a `whole`, too.
        """
        self.instance, self.check, self.schedule = instance, check, schedule
        self.most_us, self.least_us, self.alone_us = most_us, least_us, alone_us
        #: Of plans on one GPU, which tables do not time.
        self._single_us = min(single_gpu_us(instance), default=inf)
        self.whole = whole
        least, most = schedule.counting.early_labels
        self._early_labels = isqrt(least * most)
        #: Lists all plans of a box, none of which is better than the best one known.
        self.listed: Listed | None = None
        self.table = StageTable(instance)
        costs = instance.workload.costs
        self.pipeline_factor, self.sync_factor = self.table.factors
        self._runs = costs.schedule.interleave
        known = self.table.sync.inter is not None and self.sync_factor > 0
        #: Whether boxes have ranges of synchronisation; or each pipeline its own.
        self.priced = known and costs.updates.sync_overlap == "none"
        self.hidden = (
            known
            and costs.updates.sync_overlap != "none"
            and costs.schedule.interleave == 1
        )
        self.batch = instance.workload.global_batch
        #: Prices at which whole pipelines refuted the last box that they did.
        self._served: Array | None = None
        self._kept: OrderedDict[tuple[int, bytes], Segments] = OrderedDict()
        self._view = _View(self.table, self.table, schedule, check)
        self._views: dict[tuple[int, ...], _View] = {(): self._view}
        #: What a sequence is in whole prices; 0 where times are too long for proofs, or
        #: tables too large.
        self.scale = self._scaled(max(1, self._left(most_us, 0)))
        fits = self._bytes <= _MOST_BYTES
        if not fits:
            self.scale = 0
        sizes = range(len(self.table.sizes)) if fits else ()
        each = [*map(self._view.stages, sizes)]
        slowest = [_least_slowest(self.table, x) for x in each]
        self.least_slowest_us = slowest
        self.division = self._division(min(slowest, default=0))
        self.fair = _fair(self.table, each)
        self.first = self._first()
        self.boxes = list(self.first)
        #: Sequences that the last master took in a box that stands.
        self.taken = 0.0

    def _division(self, least_slowest_us: int) -> Division:
        most_sync = 0
        if self.priced:
            most_sync = floor((self.most_us - self.least_us) / self.sync_factor) + 1
        nodes, node_gpus, few = self._hosts()
        return Division(
            self.schedule,
            most_sync,
            self.table.sizes,
            least_slowest_us=least_slowest_us,
            batch=self.batch,
            nodes=nodes,
            node_gpus=node_gpus,
            few=few,
        )

    @property
    def _bytes(self) -> int:
        """Return about what arcs of the largest size take."""
        layers, most = self.table.layers, self.table.sizes[-1]
        gpus = self.table.node_gpus
        arcs_ = int((gpus * (gpus + 1) // 2 if most > 1 else gpus).sum())
        shared = int(gpus.sum()) * (most - 1) * len(self.table.runs)
        return 16 * (arcs_ * layers * (layers + 1) + shared)

    def _scaled(self, longest_us: int) -> int:
        """Return what a sequence is in whole prices where pipelines take so long.

        All that a path is worth then lies below 2^57, and all its stages' times below
        what stands for never. 0 where 64 bits do not carry that.
        """
        layers, gpus = self.table.layers, int(self.table.node_gpus.max())
        # Times are priced of whole segments, too, whose stages may be longest each.
        most = max(self.batch, layers, self.table.sizes[-1] * min(layers, gpus))
        bits = (8 * longest_us * self._runs * most).bit_length()
        if bits > _BITS or longest_us >= NEVER:
            return 0
        return min(_SCALE, 1 << (_BITS - bits))

    @property
    def few(self) -> bool:
        """Return whether numbers of GPUs are so few that counting comes early."""
        return self.whole and self._view.vectors.are_few

    def _hosts(self) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
        """Return nodes and their GPUs by class, where it matters which are hosts.

        And whether GPUs are few enough for hosts to be a class of their own.
        """
        if not self.priced:
            return (), (), False
        nodes, gpus = self.table.nodes.tolist(), self.table.node_gpus.tolist()
        pairs = zip(nodes, gpus, strict=True)
        halves = [(n // 2 * g + 1) * (-(-n // 2) * g + 1) for n, g in pairs]
        few = prod(halves) <= self.schedule.counting.few
        return tuple(nodes), tuple(gpus), few

    def _first(self) -> list[Box]:
        """Return boxes that cover all plans."""
        most = min(int(self.table.gpus.sum()), self.batch)
        if self.scale:  # tables are not too large
            most = min(most, self.table.most_replicas)
        most = max(1, most)
        sizes = 0, len(self.table.sizes) - 1
        edges: list[int | None] = [0, None]
        if self.priced:
            edges = [0, self.division.most_sync_us, None]
        return [
            Box(low or 0, high, 1, most, 1, most, *sizes)
            for low, high in pairwise(edges)
        ]

    def _left(self, time_us: int, sync_us: int) -> int:
        spare = time_us - self.table.overhead_us - self.sync_factor * sync_us
        return floor(spare / self.pipeline_factor)

    # -- one box --------------------------------------------------------------------

    def settles(self, box: Box, time_us: int) -> bool:
        """Tell whether no plan in the box takes `time_us` or less."""
        box.laid, box.proof, box.whole = False, None, None
        if time_us >= self._single_us:
            return False
        if box.listed or self._prices_settle(box, time_us):
            return True
        box.listed = self._is_listed(box, time_us)
        return box.listed

    def _is_listed(self, box: Box, time_us: int) -> bool:
        """Tell whether all plans of a box that stands can be listed.

        First where ranges are fine and prices nearly refute it; at last where nothing
        else is left to do.
        """
        left = self._left(time_us, box.sync_low_us)
        if self.listed is None or not self.scale:
            return False
        last = self.division.split(box, left) is None
        single, near = box.count_high == 1, self.schedule.listed_near * self.batch
        fine = self.division.is_fine(box) and (
            single or (box.replicas_low == box.replicas_high and self.taken <= near)
        )
        early = fine and not self.few
        if box.listings > last or not (last or early):
            return False
        if self.listed(box, int(last)):
            return True
        box.listings = 1 + last
        return False

    def _prices_settle(self, box: Box, time_us: int) -> bool:
        left = self._left(time_us, box.sync_low_us)
        if left < 0:
            return True
        if not self.scale:
            return False
        single = box.count_high == 1
        if single and time_us < self.alone_us and self.table.sizes[box.size_low] == 1:
            box.laid = box.size_high == box.size_low
            return box.laid  # the other sizes are looked at by themselves
        self.taken = inf
        split = self.division.split(box, left)
        # A single pipeline is cheap to count: none has to be put beside it.
        early = single or (self.few and not self.division.is_coarse(box))
        verdict = self.verdict(box, time_us)
        self.taken = verdict.taken
        if verdict.prices is not None:
            box.proof = verdict.prices
            return True
        near = verdict.taken <= self.schedule.counting.near * self.batch
        if not (near and (early or split is None) and self.whole):
            return False
        return self._whole(box, time_us, self._early_labels if split else inf)

    def _whole(self, box: Box, time_us: int, most_labels: float) -> bool:
        """Tell whether whole pipelines of a box take less than the batch.

        It may not, after so many labels.
        """
        if box.state.prices is None:
            return False
        view, left = self._view_of(box), self._left(time_us, box.sync_low_us)
        rows = replace(self._rows(box), gpus=tuple(view.table.gpus.tolist()))
        parts = self._parts(box, time_us, left, rows, view)
        hosts = tuple(low for low, _ in view.hosts(box))
        master = IntegerMaster(
            {number: pricing for number, pricing, _ in parts},
            *(rows, self.batch, self.scale, hosts),
            *(view.vectors, self.check),
        )
        ends = dict[int, tuple[int, int]]()
        for number, pricing, (low, high) in parts:
            begin, end = pricing.arcs.span(low, high)
            if begin < end:
                ends[number] = begin, end
        # Prices of another box may serve better.
        some = [box.state.prices, *(x for x in [self._served] if x is not None)]
        each = [np.maximum(view.priced(x), 0.0) for x in some]
        found = master.refute(each, ends, most_labels)
        box.whole = found and view.merged(found)
        if most_labels < inf:
            self._learn(refuted=box.whole is not None, exhausted=master.exhausted)
        if box.whole:
            self._served = some[master.chosen]
        return box.whole is not None

    def _learn(self, *, refuted: bool, exhausted: bool) -> None:
        """Count further in boxes that can be divided if that refutes them, or less."""
        least, most = self.schedule.counting.early_labels
        if refuted:
            self._early_labels = min(most, 2 * self._early_labels)
        elif exhausted:
            self._early_labels = max(least, self._early_labels // 2)

    def _view_of(self, box: Box) -> _View:
        """Return stages with hosts apart where it is known how many there are."""
        nodes = self.table.nodes.tolist()
        each = zip(box.hosts_low, box.hosts_high, nodes, strict=False)
        apart = tuple(low if low == high < n else 0 for low, high, n in each)
        key = apart if any(apart) else ()
        if key not in self._views:
            named = zip(apart, self.table.classes, strict=True)
            hosts = {name for number, one in named for name in one.nodes[:number]}
            table = StageTable(self.instance, apart=hosts)
            given = self.table, self.schedule, self.check
            self._views[key] = _View(table, *given, hosts)
        return self._views[key]

    def verdict(self, box: Box, time_us: int) -> Verdict:
        """Return prices that refute a box, or what a packing takes."""
        left = self._left(time_us, box.sync_low_us)
        rows = self._rows(box)
        parts, ranges = {}, {}
        for number, pricing, span in self._parts(box, time_us, left, rows):
            parts[number], ranges[number] = pricing, span
            if span[0] == 0:  # in no time a pipeline trains any number of sequences
                return Verdict(None, inf)
        if not parts:
            return Verdict(
                Prices((0,) * len(rows.gpus), (0,) * len(rows.gpus), 0, 0, 0)
            )
        master = Master(
            *(parts, rows, self.batch, self.scale, self.fair),
            *(self.schedule, self.check),
        )
        return master.refute(box.state, ranges)

    def _rows(self, box: Box) -> Rows:
        every = self.table.runs.number[0, self.table.layers]
        sync = self.table.sync
        return Rows(
            tuple(self.table.gpus.tolist()),
            int(sync.low[every]),
            int(sync.high[every]),
            box.replicas_low,
            min(box.count_high, box.replicas_high),
            max(box.count_low, -(-box.replicas_low // self.table.sizes[box.size_high])),
        )

    def _parts(
        self, box: Box, time_us: int, left: int, rows: Rows, view: _View | None = None
    ) -> list[tuple[int, Pricing, tuple[int, int]]]:
        """Return the parts of a box by number, and ranges of their slowest stages.

        Paths of a `view` are in order, others need not be where layers are equal. The
        number says size and the range of what is hidden: it is the same in the parts of
        a box.
        """
        found, own = [], view or self._view
        table = own.table
        bare = frozenset(c for c, (_, high) in enumerate(own.hosts(box)) if not high)
        for size in range(box.size_low, box.size_high + 1):
            b = self.table.sizes[size]
            if box.count_high == 1 and self.batch % b:
                continue
            for i, (sync, spent) in enumerate(self._syncs(box, time_us)):
                pipelines = box.replicas_low, box.count_low, rows.pipelines
                coupling = own.coupling(size, Sharing(*pipelines, sync, bare))
                limits = Limits(left, self.batch, spent)
                high = left
                if box.count_high == 1:  # it has the whole batch
                    high = left // -(-self.batch // b)
                if box.slowest_high_us is not None:
                    high = min(high, box.slowest_high_us)
                low = max(self.least_slowest_us[size], box.slowest_low_us)
                given = table, coupling, limits, rows
                if table.runs.equal and view is None:
                    known = self._segments(coupling)
                    pricing: Pricing = Unordered(*given, known)
                else:
                    pricing = Pricing(*given)
                found.append((size * (_HALVES + 2) + i, pricing, (low, high)))
        return found

    def _segments(self, coupling: Coupling) -> Segments:
        """Return segments: the same for couplings of a size that allow as much."""
        key = coupling.arcs.size, coupling.light.tobytes()
        if key not in self._kept:
            self._kept[key] = Segments(self.table, coupling.arcs, coupling.light)
            held = sum(each.nbytes for each in self._kept.values())
            while len(self._kept) > 1 and held > _KEPT_BYTES:
                held -= self._kept.popitem(last=False)[1].nbytes
        self._kept.move_to_end(key)
        return self._kept[key]

    def _syncs(self, box: Box, time_us: int) -> list[tuple[int | None, int]]:
        """Return how long stages of a pipeline synchronise, and what is spent on that.

        Where backward passes hide it, a stage that synchronises for S and a pipeline
        of n micro-batches take S and n - 1 slowest stages together, at the least.
        """
        if self.priced or not self.hidden:
            return [(box.sync_high_us, 0)]
        least = min(self.pipeline_factor, self.sync_factor)
        most = floor((time_us - self.table.overhead_us) / least)
        share = least / self.pipeline_factor
        edges = [0, *(most >> i for i in range(_HALVES, -1, -1))]
        return [
            (high, floor(share * low))
            for low, high in pairwise(edges)
            if high > low or not low
        ]

    # -- the tree ---------------------------------------------------------------------

    def refute(self, time_us: int) -> "Refutation":
        """Start refuting that any plan has an iteration of at most `time_us`."""
        if time_us > self.most_us:
            raise InternalError(f"asked of {time_us} us, prepared for {self.most_us}")
        return Refutation(self, time_us, self.boxes)

    def divide(self, box: Box, time_us: int) -> list[Box]:
        """Return the parts of a box, or nothing."""
        if not self.scale:
            return []
        box.split = self.division.split(box, self._left(time_us, box.sync_low_us))
        return [] if box.split is None else [box.split.low, box.split.high]


class Refutation:
    """The refutation of one time, box by box, so that a caller can stop between."""

    def __init__(
        self, bound: PipelineBound, time_us: int, boxes: Sequence[Box]
    ) -> None:
        """Begin with the boxes that are known."""
        self.bound, self.time_us = bound, time_us
        self.open = list(boxes)
        self.settled: list[Box] = []
        self.failed = False

    def step(self) -> bool:
        """Settle or divide one box; False when there is nothing left to do."""
        if self.failed or not self.open:
            return False
        box = self.open[-1]  # which stays where time is over before it is settled
        settled = self.bound.settles(box, self.time_us)
        self.open.pop()
        if settled:
            self.settled.append(box)
        elif parts := self.bound.divide(box, self.time_us):
            self.open += parts
        else:
            self.failed = True
            self.open.append(box)
        self.bound.boxes = self.settled + self.open
        return True

    @property
    def proved(self) -> bool:
        """Return whether every box is settled: no plan is as quick as `time_us`."""
        return not self.open and not self.failed

    def certificate(self) -> BoxCertificate | None:
        """Return what a checker needs, of a time that is proved; no later one is begun.

        None where there are more boxes than a file may have, or boxes that were listed.
        """
        bound = self.bound
        if any(box.listed for box in self.settled):
            return None
        trees = [self._tree(box) for box in bound.first]
        tree = trees[0]
        if len(trees) > 1:
            at = bound.division.most_sync_us
            tree = {"split": "sync", "at": at, "low": trees[0], "high": trees[1]}
        classes = tuple(each.nodes[0] for each in bound.table.classes)
        given: Document = {"time_us": self.time_us, "scale": bound.scale}
        given |= {"classes": classes, "tree": tree}
        try:
            return BoxCertificate.model_validate(given)
        except ValidationError:
            return None

    def _tree(self, box: Box) -> Document:
        if (split := box.split) is not None:
            parts = {"low": self._tree(split.low), "high": self._tree(split.high)}
            of = {"split": split.of, "kind": split.kind}
            return {**of, "at": split.at, **parts}
        if (y := box.proof or box.whole) is None:
            return {"laid": True} if box.laid else {}
        whole = True if box.whole else None
        prices = [*flat(y)]
        if y.pipelines < 0:  # of the fewest, which comes last
            prices[-2:] = [0, y.held, -y.pipelines]
        return {"prices": (*prices,), "whole": whole}


def _least_slowest(table: StageTable, each: Arcs) -> int:
    """Return a time that the slowest stage of every path takes; `NEVER` if none is."""
    us = np.minimum(each.inner, each.outer).min(0, initial=NEVER)
    if each.shared.size:
        first, last = np.nonzero(table.runs.number[: table.layers] >= 0)
        least = each.shared_us.min(1)[table.runs.number[first, last]]
        us[first, last] = np.minimum(us[first, last], least)
    found = least_cover(us, [0, *each.times.tolist()])
    return NEVER if found is None else found


def _fair(table: StageTable, each: Sequence[Arcs]) -> Array:
    """Return prices of GPUs in proportion to their speed, of other rows none."""
    found = np.zeros(2 * len(table.classes) + 3)
    length = np.arange(table.layers + 1)[None, :] - np.arange(table.layers)[:, None]
    for some in each:
        able = some.inner < NEVER
        us = np.maximum(some.inner, 1) * some.gpus[:, None, None]
        speed = np.where(able, length * some.size / us, 0.0).max((1, 2), initial=0.0)
        for c in range(len(table.classes)):
            mine = speed[some.kind == c]
            found[c] = max(found[c], float(mine.max(initial=0.0)))
    count = len(table.classes)
    found[:count] = np.maximum(found[:count], 1e-12 + 1e-6 * found[:count].max())
    return found
