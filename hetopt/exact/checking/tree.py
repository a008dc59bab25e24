"""The check of a certificate: its boxes are divided anew, its leaves refuted anew."""

from collections.abc import Iterator
from functools import cached_property, lru_cache, partial
from itertools import pairwise
from math import floor

from ...bounds.single_gpu import single_gpu_us
from ...modelling import look
from ...problems import Objective
from ...problems.training_plan import settings
from ...schema import Instance, exact
from ...solving.certificates import BoxCertificate, BoxTree
from ...solving.run import Halt
from .leaf import Leaf
from .on_nodes import OnNodes
from .packing import Packing
from .prices import Part, Prices
from .sharing import Box
from .stages import NONE_US, Stages

_ENOUGH = 10  # complaints, after which nothing more is checked
_HIDDEN = 5  # halvings of what may be synchronised unseen
_HALVINGS = 64  # of prices that are too large
_SHARERS = 16  # replicas among which states are divided, of stages of their own
_PARTED = 16  # tables of stages that are kept, with hosts as kinds of their own


def missing(
    instance: Instance, certificate: BoxCertificate, bound: Objective
) -> list[str]:
    """Return what is missing for `bound` to be proved; empty when it is.

    `Halt` says how many boxes were checked by the limit at which `look` ended it.
    """
    chosen = settings.variants(instance)
    each = (certificate, *certificate.further)
    if len(each) != len(chosen):
        return [f"{len(each)} certificates for {len(chosen)} choices of settings"]
    if quicker := [us for us in single_gpu_us(instance) if us < bound]:
        return [f"a plan on one GPU takes {min(quicker)} us, less than {bound}"]
    found: list[str] = []
    whole, done = sum(map(_leaves, each)), 0
    for given, mine in zip(chosen, each, strict=True):
        if not bound <= mine.time_us + 1:
            return [f"the certificate is of {mine.time_us} us, not of {bound}"]
        check = None
        try:
            check = Check(given, mine)
            found += check.run()
        except Halt as end:
            done += check.checked if check else 0
            raise Halt(end.stop, f"checked {done} of {whole} boxes") from None
        done += check.checked
    return found


def _leaves(certificate: BoxCertificate) -> int:
    count, left = 0, [certificate.tree]
    while left:
        parts = left.pop().parts()
        left += parts
        count += not parts
    return count


class Check:
    """The check of the certificate of one choice of settings."""

    def __init__(self, instance: Instance, certificate: BoxCertificate) -> None:
        """Read the instance's stages."""
        self._given = instance
        self._stages = Stages(instance)
        self._parted = lru_cache(_PARTED)(partial(Stages, instance))
        self._of = lru_cache(_PARTED)(self._stages_of)
        self._certificate = certificate
        costs, table = instance.workload.costs, self._stages.table
        self._pipeline, self._sync = (
            exact(costs.schedule.pipeline_factor),
            exact(costs.updates.sync_factor),
        )
        self._time = certificate.time_us - table.overhead_us - table.least_update_us
        self._found: list[str] = []
        self.checked = 0  # boxes that are refuted by themselves

    def run(self) -> list[str]:
        """Return what is missing for the certificate to be a proof."""
        stages, given = self._stages, self._certificate
        names = tuple(kind.name for kind in stages.kinds)
        if given.classes != names:
            return [f"classes {', '.join(given.classes)}, expected {', '.join(names)}"]
        gpus = sum(kind.gpus * len(kind.nodes) for kind in stages.kinds)
        most = max(1, min(gpus, stages.batch, stages.most_replicas))
        sizes = 0, len(stages.sizes) - 1
        hosts = tuple((0, len(kind.nodes)) for kind in stages.kinds)
        ranges = (0, None), (1, most), (1, most), sizes
        self._walk(given.tree, Box(*ranges, hosts=hosts))
        return self._found

    def _walk(self, tree: BoxTree | None, box: Box) -> None:
        look()
        if len(self._found) >= _ENOUGH or box.empty:
            return
        if tree is None:
            self._found.append(f"a box is left out: {_ranges_of(box)}")
        elif tree.split is None:
            if not self._refuted(tree, box):
                self._found.append(f"prices do not refute the box {_ranges_of(box)}")
            self.checked += 1
        else:
            at = tree.at or 0
            if tree.split == "host":
                parts = self._by_hosts(box, tree.kind or 0, at)
            else:
                parts = box.parts(tree.split, at, self._stages.sizes[-1])
            if parts is None:
                where = f"{tree.split} at {tree.at}"
                self._found.append(f"{where} does not divide the box {_ranges_of(box)}")
                return
            self._walk(tree.low, parts[0])
            self._walk(tree.high, parts[1])

    def _by_hosts(self, box: Box, kind: int, at: int) -> tuple[Box, Box] | None:
        if kind >= len(self._stages.kinds):
            return None
        return box.by_hosts(kind, at, self._stages.kinds[kind].gpus)

    # -- a leaf ---------------------------------------------------------------------

    def _refuted(self, leaf: BoxTree, box: Box) -> bool:
        left = floor((self._time - self._sync * box.sync[0]) / self._pipeline)
        if left >= NONE_US:
            return False
        stages, apart = self._stages, tuple[int, ...]()
        if leaf.whole:
            apart = box.apart([len(kind.nodes) for kind in stages.kinds])
        largest = stages.sizes[box.size[1]]
        # A pipeline has no more replicas of a layer than a micro-batch has sequences.
        replicas = 1 << (box.pipelines * largest - 1).bit_length()
        stages = self._of(apart if any(apart) else (), replicas)
        if any(apart):
            box = box.parted(apart)
        parts = [*self._parts(stages, box, left)] if left >= 0 else []
        parts = [part for part in parts if (part.options.times <= left).any()]
        if not parts:  # no stage is as quick
            return True
        if leaf.laid:
            sizes = stages.sizes[box.size[0] : box.size[1] + 1]
            alone = box.pipelines == 1 and sizes == [1]
            return alone and self._on_nodes.refute(left)
        prices = None
        if leaf.prices is not None:
            kinds, scale = len(self._stages.kinds), self._certificate.scale
            prices = Prices.of(leaf.prices, kinds, scale)
        if prices is None:
            return False
        if any(apart):
            prices = prices.parted(apart)
        for _ in range(_HALVINGS):
            if prices.fit(stages, box, largest, left):
                break
            prices = prices.halved()
        if not prices.scale or not prices.fit(stages, box, largest, left):
            return False
        leaves = [Leaf(stages, box, prices, part) for part in parts]
        if leaf.whole and not prices.fewest:
            return Packing(stages, box, prices, leaves).refuted()
        if not prices.refute(stages, box):
            return False
        return all(each.holds() for each in leaves)

    def _stages_of(self, apart: tuple[int, ...], replicas: int) -> Stages:
        stages = self._parted(apart) if apart else self._stages
        if not self._stages.costs.updates.zero or replicas > _SHARERS:
            return stages
        return stages.of_replicas(replicas)

    @cached_property
    def _on_nodes(self) -> OnNodes:
        return OnNodes(self._given)

    def _parts(self, stages: Stages, box: Box, left: int) -> Iterator[Part]:
        for b in stages.sizes[box.size[0] : box.size[1] + 1]:
            most = stages.batch // b
            if not most or (box.count[1] == 1 and stages.batch % b):
                continue
            for sync_us, spent_us in self._syncs(box):
                yield Part(stages.options(b), left, b * most, sync_us, spent_us)

    def _syncs(self, box: Box) -> list[tuple[int | None, int]]:
        """Return how long stages of a pipeline synchronise, and what is spent on that.

        Where backward passes hide it: those before stage j take B us and less than the
        stages. So S us of it and n - 1 slowest stages do not take less than

            pf ((n - 1) M + B) + sf max(0, S - B)  >=  pf (n - 1) M + min(pf, sf) S.
        """
        costs = self._stages.costs
        if costs.updates.sync_overlap == "none":
            return [(box.sync[1], 0)]
        least = min(self._pipeline, self._sync)
        if not least or costs.schedule.interleave > 1 or self._stages.inter is None:
            return [(None, 0)]
        most = floor(self._time / least)
        edges = sorted({0, *(most >> i for i in range(_HIDDEN + 1))})
        share = least / self._pipeline
        pairs = pairwise(edges) if len(edges) > 1 else [(0, 0)]
        return [(high, floor(share * low)) for low, high in pairs]


def _ranges_of(box: Box) -> str:
    ranges = vars(box) | {f"hosts {c}": x for c, x in enumerate(box.hosts)}
    del ranges["hosts"]
    return ", ".join(
        f"{name} {low} to {'any' if high is None else high}"
        for name, (low, high) in ranges.items()
    )
