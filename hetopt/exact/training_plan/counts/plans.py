"""Plans of one pipeline: the least rows of stages, laid on named nodes.

A row says how many GPUs of each kind a stage uses, and which stages share a node. Here
chains of stages are laid on nodes, the longest first, and then what is spread. Samples
are shared anew, in replicas with the memory of the place that their stages have. A row
whose stages lie further from the end than was thought is sought again with the memory
of these places. What does not come out as the row has it is left to the judge.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from heapq import heappop, heappush
from math import inf, sqrt
from typing import NamedTuple

from ....plans import Pipeline, Replica, Stage, TrainingPlan
from ...one_pipeline.cluster_tables import ClusterTables
from .bound import CountBound
from .kinds import Kind
from .placed import Place, Placed, held
from .rows import Laid

_AGAIN = 4  # times at the most that a row is sought again
_PART = 0.25  # of a limit on synchronisation, as the next where there is no lower one
_PARTS = 7  # times that limits are looked at between two others


class _Syncs(NamedTuple):
    """Pipelines whose stages synchronise for some time between two limits in us.

    They take `us` for micro-batches up to the high limit, and `least_us` with both.
    Here limits were parted so many times.
    """

    parted: int
    least_us: float
    size: int
    low: float
    high: float
    us: float


def pipelines(
    bound: CountBound, most_us: Callable[[], float] = lambda: inf
) -> Iterator[TrainingPlan]:
    """Plans of one pipeline, of every size of micro-batches.

    They are better than `most_us()` by what their rows say. They may break rules that
    rows do not know: they are to be judged.
    """
    cluster, costs = ClusterTables(bound.instance), bound.instance.workload.costs
    weight = float(costs.sync_factor) / float(costs.pipeline_factor)
    batch = bound.instance.workload.global_batch
    # Widely apart ones first: what rows say at the least may be far from what is. And
    # small micro-batches, which leave less to be shared.
    even = [i for i, b in enumerate(bound.sizes) if not batch % b]
    queue = [_Syncs(2 * i, 0.0, size, 0.0, inf, inf) for i, size in enumerate(even)]
    while queue:
        parted, least_us, size, low, high, us = heappop(queue)
        if least_us >= most_us() or parted >= _PARTS:
            continue
        if us == inf:  # nothing is known of it
            us = yield from _rows(bound, cluster, (size, inf), most_us)
            if bound.sizes[size] > 1:  # or none is synchronised
                heappush(queue, _Syncs(parted, us, size, low, high, us))
            continue
        middle = sqrt(low * high) if low else _PART * min(us, high)
        less = yield from _rows(bound, cluster, (size, middle), most_us)
        below, above = less + weight * low, us + weight * middle
        heappush(queue, _Syncs(parted + 1, below, size, low, middle, less))
        if high < inf:
            heappush(queue, _Syncs(parted + 1, above, size, middle, high, us))


def _rows(
    bound: CountBound,
    cluster: ClusterTables,
    limits: tuple[int, float],
    most_us: Callable[[], float],
) -> Generator[TrainingPlan, None, float]:
    """Plans of a size of micro-batches within a limit; what their rows take."""
    size, sync_us = limits
    b = bound.sizes[size]
    behind, least = [0] * (cluster.layers + 1), inf
    for _ in range(1 + _AGAIN):
        us, row = bound.row(size, sync_us, behind, most_us())
        if not row:
            break
        least = min(least, us)
        placed = _Layout(cluster, bound.kinds).lay(row)
        n = bound.instance.workload.global_batch // b
        most = sync_us if sync_us < inf else 0.0
        plan = _plan(cluster, placed, Place(n, b, most, len(placed)))
        if plan is not None:
            yield plan
        deeper = [
            max(known, sum(stage.last > layer for stage in row))
            for layer, known in enumerate(behind)
        ]
        if deeper == behind:
            break
        behind = deeper
    return least


class _Layout:
    """Stages of a row, laid on nodes with GPUs that are free."""

    def __init__(self, cluster: ClusterTables, kinds: Sequence[Kind]) -> None:
        number = {name: i for i, name in enumerate(cluster.cost.names)}
        self._kinds = kinds
        self._nodes = [[number[name] for name in kind.nodes] for kind in kinds]
        self._free = list(cluster.count)

    def lay(self, row: Sequence[Laid]) -> list[Placed]:
        """The stages on nodes; a chain that fits no node is spread."""
        found: dict[int, dict[int, int]] = {}
        chains = _chains(row)
        # Beside a stage that is spread before a chain there is one GPU for it.
        for chain in sorted(chains, key=lambda c: -_gpus(row, c) - _joined(row, c)):
            node = self._node(row, chain)
            for i in chain:
                found[i] = self._taken(row[i], node)
        last = len(row) - 1
        for i, stage in enumerate(row):
            if not stage.packed:
                shared = [found.get(j, {}) for j in self._near(row, i)]
                found[i] = self._spread(stage, shared)
        hops = [self._hops(stage, i == last) for i, stage in enumerate(row)]
        return [
            Placed(stage.first, stage.last, found[i], hops[i])
            for i, stage in enumerate(row)
        ]

    def _node(self, row: Sequence[Laid], chain: range) -> int | None:
        """A node with room for a chain, and with the least that is left; or none."""
        wanted = _gpus(row, chain) + _joined(row, chain)
        (kind,) = (c for c, gpus in enumerate(row[chain[0]].use) if gpus)
        able = [node for node in self._nodes[kind] if self._free[node] >= wanted]
        return min(able, key=lambda node: self._free[node], default=None)

    def _taken(self, stage: Laid, node: int | None) -> dict[int, int]:
        if node is None:
            return self._spread(stage, [])
        self._free[node] -= sum(stage.use)
        return {node: sum(stage.use)}

    def _spread(self, stage: Laid, shared: Sequence[dict[int, int]]) -> dict[int, int]:
        """GPUs of several nodes: one of each node that is shared, then of empty ones.

        `shared` are the nodes of neighbours, one of which is to be this stage's, too.
        """
        gpus: dict[int, int] = {}
        left = list(stage.use)
        for nodes in shared:
            able = [(c, x) for c in range(len(left)) for x in self._nodes[c] if left[c]]
            able = [(c, x) for c, x in able if x in nodes and self._free[x]]
            if able and not nodes.keys() & gpus.keys():
                kind, node = max(able, key=lambda each: self._free[each[1]])
                self._take(gpus, node, 1)
                left[kind] -= 1
        for kind, wanted in enumerate(left):
            # Nodes that are used already, then whole ones.
            order = [(x not in gpus, -self._free[x], x) for x in self._nodes[kind]]
            for _, _, node in sorted(order):
                taken = min(wanted, self._free[node])
                self._take(gpus, node, taken)
                wanted -= taken
        return gpus

    def _take(self, gpus: dict[int, int], node: int, number: int) -> None:
        if number:
            gpus[node] = gpus.get(node, 0) + number
            self._free[node] -= number

    def _near(self, row: Sequence[Laid], i: int) -> list[int]:
        """Neighbours of a stage that share a node with it."""
        before = i and row[i - 1].together is not None
        return [i - 1] * bool(before) + [i + 1] * (row[i].together is not None)

    def _hops(self, stage: Laid, last: bool) -> Sequence[float]:
        """What a stage takes to hand on, by samples."""
        if last:
            return [0.0] * len(self._kinds[0].away_us)
        if stage.together is not None:
            return [*map(float, self._kinds[stage.together].within_us)]
        kinds = [self._kinds[c] for c, gpus in enumerate(stage.use) if gpus]
        return [
            min(map(float, us))
            for us in zip(*(kind.away_us for kind in kinds), strict=True)
        ]


def _chains(row: Sequence[Laid]) -> list[range]:
    """Stages that are in one node, one behind the other, by number."""
    found, begin = [], 0
    for i, stage in enumerate(row):
        goes_on = stage.together is not None and i + 1 < len(row) and row[i + 1].packed
        if stage.packed and not goes_on:
            found.append(range(begin, i + 1))
        if not (stage.packed and goes_on):
            begin = i + 1
    return found


def _gpus(row: Sequence[Laid], chain: range) -> int:
    return sum(sum(row[i].use) for i in chain)


def _joined(row: Sequence[Laid], chain: range) -> bool:
    """Whether a chain begins in a node of the stage before it."""
    return chain[0] > 0 and row[chain[0] - 1].together is not None


def _plan(
    cluster: ClusterTables, placed: list[Placed], first: Place
) -> TrainingPlan | None:
    """A plan of stages on nodes, the first of which is in such a place."""
    given = [0] * len(cluster.count)
    stages = []
    for i, stage in enumerate(placed):
        place = first._replace(from_end=first.from_end - i)
        found = held(cluster, stage, place)
        if found is None:
            return None
        replicas = []
        for node, t, samples in found:
            ids = range(given[node], given[node] + t)
            given[node] += t
            name = cluster.cost.names[node]
            gpus = tuple(f"{name}:{i}" for i in ids)
            replicas.append(Replica(gpus=gpus, samples=samples))
        layers = (stage.first, stage.last)
        stages.append(Stage(layers=layers, replicas=tuple(replicas)))
    pipeline = Pipeline(
        micro_batches=first.micro_batches,
        micro_batch_size=first.sequences,
        stages=tuple(stages),
    )
    return TrainingPlan(pipelines=(pipeline,))
