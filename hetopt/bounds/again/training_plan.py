"""Total work, longest chain and crossing of training plans, from the judge's tables.

`bounds.training_plan` argues by formulas: what a sample costs at the least without
latencies and rounding. Here every degree and every number of samples that a replica may
have is looked up in the table by which the judge times it.

work   A replica of t GPUs with s of the samples of each of n micro-batches is busy
       for n times the time of its layers, and its pipeline lasts at least as long. Of
       the T that the longest pipeline takes, GPUs of kind c so spend at least
           w[c, l] = min over (t, s) of t us[c, t, s][l] / s
       for each sample of layer l. With a price y[c] >= 0 of a GPU's time,
           T sum_c N[c] y[c] >= B sum_l min_c y[c] w[c, l].
chain  Of m pipelines one has B / m sequences or more. Its first micro-batch passes all
       layers, in interleaved pipelines at least the slowest of them; during each of
       the others the stage with that layer is busy for it.

What must cross links between nodes beside the work is in `crossing` and `ports`. The
optimiser and what an iteration takes beside all that come to each. Of stages of ZeRO,
rules of recomputation and splits it is the least over all that the target runs. Plans
on a single GPU that take other times are judged one by one.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from fractions import Fraction
from math import ceil, inf

from ...costs import CostTable, Position, compute
from ...modelling import look
from ...problems.training_plan import settings
from ...result import Bound
from ...schema import Instance, exact
from ..single_gpu import single_gpu_us
from . import crossing, ports

WORK = "total work, by the judge's tables"
CHAIN = "longest chain of layers, by the judge's tables"
CROSSING = "total work and what crosses links, by code of its own"
PORTS = "total work and what ports carry, by code of its own"
BEST = "of each choice of settings the best of these arguments"
_NAMES = (WORK, CHAIN, CROSSING, PORTS)
_MIB = 2**20
_GAIN = 1 + 1e-12  # a smaller one is rounding
_STARTS = 24  # prices to climb from
_ROUNDS = 200  # of climbing, at the most

_Row = tuple[Fraction | None, ...]  # of a layer by kind; None: none can hold it


def derived(instance: Instance) -> list[Bound]:
    """Times in us that no plan of the instance is below, by each argument."""
    each = [_all(variant) for variant in settings.variants(instance)]
    singles = single_gpu_us(instance)
    found = [
        Bound(min([*values, *singles]), name)
        for values, name in zip(zip(*each, strict=True), _NAMES, strict=True)
    ]
    if len(each) > 1:
        found.append(Bound(min([*map(max, each), *singles]), BEST))
    return found


def _all(instance: Instance) -> tuple[int, int, int, int]:
    """Return each bound under one stage of ZeRO and one split; 0 for none."""
    own = CostTable(instance)
    tables = [own.under(rule) for rule in instance.workload.recomputes]
    kinds = _kinds(own)
    needs, once = _needs(tables, list(kinds.values()))
    costs = instance.workload.costs
    factor = exact(costs.schedule.pipeline_factor)
    end = own.least_update_us + ceil(exact(costs.schedule.iteration_overhead_us))
    work = _work_us(instance.workload.global_batch, list(kinds), needs)
    chain = _chain_us(tables, once)
    lightest = min(tables, key=lambda table: compute.passes(table.workload.costs))
    crossed = crossing.least_us(lightest, float(max(work, chain)))
    carried = ports.least_us(own, kinds, needs, max(work, chain))
    return (
        ceil(factor * work) + end,
        ceil(factor * chain) + end,
        0 if crossed is None else crossed + end,
        0 if carried is None else carried + end,
    )


def _kinds(table: CostTable) -> dict[tuple[int, object], str]:
    """A node that speaks for each kind; a kind's number of GPUs begins its key."""
    speakers: dict[object, str] = {}
    gpus: Counter[object] = Counter()
    for node in table.cluster.nodes:
        kind = (table.node_class[node.name], node.count)
        speakers.setdefault(kind, node.name)
        gpus[kind] += node.count
    return {(gpus[kind], kind): name for kind, name in speakers.items()}


# --- what layers need ------------------------------------------------------------


def _needs(
    tables: list[CostTable], nodes: list[str]
) -> tuple[Counter[_Row], list[Fraction]]:
    """Least GPU time of a sample by kind, with how many layers are so; least passes."""
    for fits in (True, False):
        rows = [
            (count, *_layer(tables, nodes, layer, fits=fits))
            for layer, count in _distinct(tables).items()
        ]
        # A layer that fits nowhere leaves no plan, and any bound holds.
        if all(any(w is not None for w in work) for _, work, _ in rows):
            break
    else:
        return Counter(), [Fraction(0)]
    work, passes = Counter[_Row](), list[Fraction]()
    for count, works, least in rows:
        work[works] += count
        passes += [least] * count
    if tables[0].workload.costs.compute.head == "include":
        head, least = _head(tables, nodes)
        work[head] += 1
        passes.append(least)
    return work, passes


def _distinct(tables: list[CostTable]) -> dict[int, int]:
    """A layer of each sort, and how many are of it."""
    table, model = tables[0], tables[0].model
    sorts: Counter[object] = Counter()
    first: dict[object, int] = {}
    rows = table.workload.costs.compute.profile
    calibrated = table.calibrated.sorts if table.calibrated else (None,) * table.layers
    for layer in range(table.layers):
        sort = (
            (model.parameters[layer], model.active_parameters[layer]),
            (model.kinds[layer], calibrated[layer]),
            tuple(row.layer_us[layer] for row in rows),
            table.profile.least_of_rows(layer),
        )
        first.setdefault(sort, layer)
        sorts[sort] += 1
    return {first[sort]: count for sort, count in sorts.items()}


def _layer(
    tables: list[CostTable], nodes: list[str], layer: int, *, fits: bool
) -> tuple[_Row, Fraction]:
    """Least GPU time of a sample by kind, and least time of a micro-batch."""
    look()
    work: list[Fraction | None] = []
    least: float | Fraction = inf
    for node in nodes:
        times = [
            (t, s, table.layer_us(node, t, s)[layer])
            for table in tables
            for t, s in _groups(table, node)
            if not fits or _holds(table, node, layer, t)
        ]
        work.append(min((Fraction(t * us, s) for t, s, us in times), default=None))
        least = min([least, *(us for _, _, us in times)])
    return tuple(work), Fraction(0) if least == inf else Fraction(least)


def _head(tables: list[CostTable], nodes: list[str]) -> tuple[_Row, Fraction]:
    """Return the least time of the head."""
    times = {
        node: [
            (t, s, table.head_us(node, t, s))
            for table in tables
            for t, s in _groups(table, node)
        ]
        for node in nodes
    }
    work = tuple(
        min((Fraction(t * us, s) for t, s, us in times[node]), default=None)
        for node in nodes
    )
    return work, Fraction(min(us for node in nodes for _, _, us in times[node]))


def _groups(table: CostTable, node: str) -> Iterator[tuple[int, int]]:
    """Degrees and numbers of samples that a replica on a node may have."""
    largest = max(table.workload.micro_batch_sizes)
    for t in range(1, table.cluster.node[node].count + 1):
        for s in range(1, largest + 1):
            if table.usable(node, t, s):
                yield t, s


def _holds(table: CostTable, node: str, layer: int, t: int) -> bool:
    """Tell whether a GPU has room for its part of a layer by itself amid a pipeline.

    Or of all layers, where there is no other stage.
    """
    costs = table.workload.costs
    if table.profile.weighs:
        mib = table.profile.least_mib(table.cluster.node[node].gpu, t, layer)
        return mib is not None and mib + costs.memory.reserve_mib <= table.memory_mib(
            node
        )
    stages = (range(layer, layer + 1), 3, 1), (range(table.layers), 1, 0)
    each = (
        table.stage_mib(node, span, (t, 1), Position(1, many, j))
        for span, many, j in stages
    )
    return any(sum(parts.values()) <= table.memory_mib(node) for parts in each)


# --- work ------------------------------------------------------------------------


def _work_us(
    batch: int, kinds: list[tuple[int, object]], work: Counter[_Row]
) -> Fraction:
    """The best of some prices; every price proves what it comes to."""
    if not work:
        return Fraction(0)
    gpus = [count for count, _ in kinds]
    rows = [
        ([inf if w is None else float(w) for w in row], count)
        for row, count in work.items()
    ]
    best = max(
        (_climbed(gpus, rows, y) for y in _starts(rows)),
        key=lambda y: _worth(gpus, rows, y),
    )
    prices = [Fraction(y) for y in best]
    earned = sum(
        count * min(w * y for w, y in zip(row, prices, strict=True) if w is not None)
        for row, count in work.items()
    )
    paid = sum(n * y for n, y in zip(gpus, prices, strict=True))
    return batch * Fraction(earned) / paid


_Weighed = list[tuple[list[float], int]]  # GPU time by kind, and layers that are so


def _starts(rows: _Weighed) -> list[list[float]]:
    """Speeds at all layers on the average, and at each by itself."""
    count = len(rows[0][0])
    finite = [[w for w, _ in _column(rows, c) if w < inf] for c in range(count)]
    speed = [len(held) / sum(held) if sum(held) else 1.0 for held in finite]
    own = (
        [1 / w if 0 < w < inf else y for w, y in zip(row, speed, strict=True)]
        for row, _ in rows[:_STARTS]
    )
    return [speed, *own]


def _column(rows: _Weighed, kind: int) -> Iterable[tuple[float, int]]:
    return ((row[kind], count) for row, count in rows)


def _worth(gpus: list[int], rows: _Weighed, prices: list[float]) -> float:
    earned = sum(
        count * min(w * y for w, y in zip(row, prices, strict=True) if w < inf)
        for row, count in rows
    )
    paid = sum(n * y for n, y in zip(gpus, prices, strict=True))
    return earned / paid if paid else 0.0


def _climbed(gpus: list[int], rows: _Weighed, prices: list[float]) -> list[float]:
    """Prices changed one at a time, to 0 or where a layer is as cheap on another kind.

    Between two such prices what is earned grows evenly, and so does what is paid.
    """
    best = _worth(gpus, rows, prices)
    for _ in range(_ROUNDS):
        before = best
        for kind in range(len(prices)):
            for y in _turns(rows, prices, kind):
                trial = [*prices[:kind], y, *prices[kind + 1 :]]
                if (worth := _worth(gpus, rows, trial)) > best * _GAIN:
                    best, prices = worth, trial
        if best == before:
            break
    return prices


def _turns(rows: _Weighed, prices: list[float], kind: int) -> set[float]:
    turns = {0.0}
    for row, _ in rows:
        pairs = enumerate(zip(row, prices, strict=True))
        others = [w * y for i, (w, y) in pairs if i != kind and w < inf]
        if others and 0 < row[kind] < inf:
            turns.add(min(others) / row[kind])
    return turns


# --- chain -----------------------------------------------------------------------


def _chain_us(tables: list[CostTable], once: list[Fraction]) -> Fraction:
    """Least time of the pipeline with the most sequences."""
    workload = tables[0].workload
    longest = -(-workload.global_batch // _most_pipelines(tables))
    passes = -(-longest // max(workload.micro_batch_sizes))
    slowest = max(once)
    first = (
        slowest if workload.costs.schedule.interleave > 1 else sum(once, Fraction(0))
    )
    return first + (passes - 1) * slowest


def _held_of_every_layer(table: CostTable) -> Fraction:
    """Parameters that a GPU has at the least that holds one of each layer's parts.

    An e-th of the experts lies on each of e GPUs, which may be of e pipelines.
    """
    e, model = table.workload.costs.compute.expert_parallel, table.model
    pairs = zip(model.parameters, model.routed_parameters, strict=True)
    return sum(
        (whole - routed + Fraction(routed, e) for whole, routed in pairs), Fraction(0)
    )


def _most_pipelines(tables: list[CostTable]) -> int:
    """Each has a GPU, a sequence, and its part of all states in its memory."""
    table = tables[0]
    most = min(table.cluster.gpu_count, table.workload.global_batch)
    room = sum(n.count * table.memory_mib(n.name) for n in table.cluster.nodes)
    if table.profile.weighs:
        held = Fraction(
            sum(table.profile.least_group_mib(layer) for layer in range(table.layers))
        )
    else:
        kept = min(each.workload.costs.kept_bytes for each in tables)
        held = Fraction(kept) * _held_of_every_layer(table) / _MIB
    return max(1, min(most, int(room / held))) if held else most
