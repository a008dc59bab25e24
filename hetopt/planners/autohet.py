"""AutoHet: its Algorithm 1, for every tensor-parallel degree that divides all nodes.

1. Grouping: devices (tensor-parallel groups of t GPUs) into D groups of balanced
   effective compute (Eq. 2 and 3), proved to be within a thousandth of the optimum:
   the last of it can take minutes at 300 GPUs. K = B / (b D).
2. Mapping: nodes and stages to groups (`map_stages`).
3. Balancing: layers to the stages of each group, exactly.
The plan of the least cost among all degrees and micro-batch sizes is kept.

Where it deviates from the paper, or the paper is silent:
- Eq. 1 is the instance's cost model; with `sync: bottleneck` T_sync is the volume over
  the lowest bandwidth, as in the paper, times a ring's 2 (n - 1) / n, which it omits.
- Eq. 4 minimises the slowest stage; here the layers minimise Eq. 1 of the group, sum
  plus (K - 1) times the slowest, since the exact method for that is at hand.
- MIN_mem is that of the states. Where stages then do not fit (activations, layers are
  not divisible), the grouping is solved again with an eighth fewer groups, at least
  one fewer, until they do.
- B / b need not be a multiple of D: the remainder goes, a micro-batch each, to the
  groups that end soonest.
- The mapping takes up the next type where one can no longer be shared by all groups.
- Eq. 5 sums the times of runs of 2^k layers; profiles here time single layers, whose
  sums they are.

Source: AutoHet, section III.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from typing import Annotated, Literal

from pydantic import Field

from ..clock import monotonic
from ..errors import InstanceError, NoPlan, OutOfTime, keeping
from ..exact import device_grouping
from ..modelling import Limits
from ..plans import Grouping, TrainingPlan
from ..problems.device_grouping import Data
from ..problems.device_grouping import data as grouping_of
from ..result import Result, Stop
from ..schema import Instance
from ..search.balancing import Balancer, Chain
from ..search.fast_cost import Best, FastCost, Pipe, Slot, stages_on
from ..search.symmetric import common_degrees, equal_cuts, measured, worst_shortage
from ..solving import statements

problem: Literal["training_plan"] = "training_plan"

Group = Mapping[str, int]  # devices of each GPU type
GroupingBy = Literal["method", "statement", "counts"]

_GAP = 1e-3  # of groupings
_STATEMENTS = {
    "statement": ("device_grouping", "scip"),
    "counts": ("device_grouping_counts", "cpsat"),
}


def plan(
    data: Instance,
    *,
    seed: int = 0,
    deadline: float | None = None,
    grouping: bool = True,
    mapping: bool = True,
    balancing: bool = True,
    grouping_by: GroupingBy = "method",
    micro_batches: Annotated[int, Field(ge=1)] | None = None,
) -> TrainingPlan:
    """Return the best plan of Algorithm 1; `NoPlan` says why not. `seed` has no effect.

    For the paper's breakdown: without `grouping` all devices are one pipeline; without
    `mapping` they are taken in the order of the nodes; without `balancing` stages have
    equal layers. Groups are found by the exact method; by the paper's own statement on
    SCIP, which proves about 8 devices in a second and 16 hardly ever; or by that of
    counts, on CP-SAT. Eq. 2 has a K of `micro_batches`, as in the paper; by default
    groups share the batch.
    """
    cost = FastCost(data, deadline)
    trial = Trial(cost, mapping=mapping, balancing=balancing)
    try:
        with keeping(trial.best.plan):
            _look_everywhere(
                cost, trial, deadline, grouping_by, micro_batches, grouping=grouping
            )
    except OutOfTime:
        return trial.best_plan("no plan was found in time")
    return trial.best_plan("no plan that fits was found")


def _look_everywhere(
    cost: FastCost,
    trial: "Trial",
    deadline: float | None,
    grouping_by: GroupingBy,
    micro_batches: int | None,
    *,
    grouping: bool,
) -> None:
    """Groups for every degree and micro-batch size; `OutOfTime` at the deadline."""
    data = cost.instance
    nodes = range(len(cost.nodes))
    batch = data.workload.global_batch
    for t in common_degrees(cost, nodes):
        for b in sorted(set(data.workload.micro_batch_sizes)):
            cost.check()
            if batch % b or not measured(cost, nodes, t, b):
                why = "not measured, or no divisor of the global batch"
                trial.reasons.append(f"tp {t}, micro-batches of {b}: {why}")
                continue
            proposals = iter([[_everything(cost, t)]])
            if grouping:
                where = f"tp {t}, micro-batches of {b}"
                try:
                    posed = grouping_data(cost, t, b, micro_batches)
                except InstanceError as error:  # sizes that no solver's table holds
                    trial.reasons.append(f"{where}: {error}")
                    continue
                proposals = _groupings(
                    posed, where, deadline, trial.reasons, grouping_by
                )
            for groups in proposals:
                if trial.fits(t, b, groups):
                    break
                cost.check()


class Trial:
    """Algorithm 1 from its line 10 on, for groups of devices: `t` GPUs of a node each.

    Keeps the best of the plans, and the reasons against others.
    """

    def __init__(self, cost: FastCost, *, mapping: bool, balancing: bool) -> None:
        self._cost = cost
        self._balancer = Balancer(cost)
        self._rows = map_stages if mapping else in_order
        self._balancing = balancing
        self.reasons: list[str] = []
        self.best = Best(cost)

    def best_plan(self, lacking: str) -> TrainingPlan:
        """Return the plan kept; `NoPlan` with the reasons where there is none."""
        if (plan := self.best.plan()) is None:
            why = "; ".join(self.reasons[:4])
            raise NoPlan(f"autohet: {lacking}" + (f" ({why})" if why else ""))
        return plan

    def fits(self, t: int, b: int, groups: Sequence[Group]) -> bool:
        """Plan these groups; False where they do not fit."""
        where = f"tp {t}, micro-batches of {b}, groups: {len(groups)}"
        cost, share = self._cost, self._cost.instance.workload.global_batch // b
        k, rest = divmod(share, len(groups))
        if not k:
            self.reasons.append(f"{where}: only {share} micro-batches for them")
            return False
        shapes = []
        for row in self._rows(cost, groups, t):
            slots = self._stages(row, t, b, k + bool(rest))
            if slots is None:
                layers = f"{cost.layers} layers do not fit on {len(row)} stages"
                self.reasons.append(f"{where}: {layers}")
                return False
            shapes.append(slots)
        pipes = self._share_rest(b, k, rest, shapes)
        if short := worst_shortage(cost, pipes):
            self.reasons.append(f"{where}: lacks {short}")
            return False
        self.best.offer(pipes)
        return True

    def _stages(
        self, row: Sequence[int], t: int, b: int, n: int
    ) -> tuple[Slot, ...] | None:
        if len(row) > self._cost.layers:
            return None
        chain: Chain = tuple((node, t) for node in row)
        if not self._balancing:
            return stages_on(chain, equal_cuts(self._cost.layers, len(row)))
        return self._balancer.balanced(b, n, chain)

    def _share_rest(
        self, b: int, k: int, rest: int, shapes: Sequence[tuple[Slot, ...]]
    ) -> tuple[Pipe, ...]:
        """K micro-batches each, and one more where that ends soonest."""
        cost = self._cost
        ends = [
            (cost.pipeline_us(k + 1, cost.timing(b, slots)), i)
            for i, slots in enumerate(shapes)
        ]
        heapify(ends)
        more = {heappop(ends)[1] for _ in range(rest)}
        return tuple(Pipe(k + (i in more), b, s) for i, s in enumerate(shapes))


def _everything(cost: FastCost, t: int) -> Group:
    devices: Counter[str] = Counter()
    for node in cost.nodes:
        devices[node.gpu] += node.count // t
    return devices


def _groupings(
    data: Data,
    where: str,
    deadline: float | None,
    reasons: list[str],
    by: GroupingBy = "method",
) -> Iterator[list[Group]]:
    """Yield the optimal grouping, then those with fewer and fewer groups."""
    while True:
        left = None if deadline is None else max(0.1, deadline - monotonic())
        result = best_grouping(data, by, Limits(time_s=left, gap=_GAP))
        if not isinstance(result.plan, Grouping):
            why = ", ".join(result.reasons) or "no grouping found"
            reasons.append(f"{where}: {why}")
            return
        groups: list[Group] = [
            group.gpus for group in result.plan.groups for _ in range(group.copies)
        ]
        yield groups
        count = len(groups)
        if count == 1:
            return
        data = data.model_copy(update={"groups": count - max(1, count // 8)})


def best_grouping(data: Data, by: GroupingBy, limits: Limits) -> Result:
    """Return the best grouping, by the exact method or by a statement on its solver."""
    if by == "method":
        result = device_grouping.solve(data, limits=limits)
    else:
        result = statements.solve(
            "device_grouping", data, *_STATEMENTS[by], limits=limits
        )
    if result.stop is Stop.INTERRUPTED:  # it ends the planner, too
        raise KeyboardInterrupt
    return result


def grouping_data(
    cost: FastCost, t: int, b: int, micro_batches: int | None = None
) -> Data:
    """Return the grouping problem whose devices are groups of `t` GPUs of one node.

    K is `micro_batches`; None: groups share the batch in micro-batches of `b`.
    """
    return grouping_of(
        cost.instance, tensor_parallel=t, micro_batch=b, micro_batches=micro_batches
    )


# --- which node serves which stage of which group: Algorithm 1, line 10 ------------


def compute_of(cost: FastCost) -> dict[str, float]:
    """Effective TFLOP/s of a GPU of each type."""
    gpus = cost.instance.planned_cluster.gpus
    return {name: gpu.peak_tflops * gpu.efficiency for name, gpu in gpus.items()}


def devices_of(cost: FastCost, t: int) -> dict[int, int]:
    """Free devices of each node."""
    return {i: node.count // t for i, node in enumerate(cost.nodes)}


def map_stages(cost: FastCost, groups: Sequence[Group], t: int) -> list[list[int]]:
    """Return the nodes of the stages of each group, in order.

    Types by ascending compute. While every group has a device of the type left and
    one node has one free for each group, these become the next stage of every group:
    the replicas of its layers share the links of that node. What is left follows,
    group by group, in the same order of types, from the node that has most free.
    """
    power = compute_of(cost)
    types = sorted(power, key=lambda name: (power[name], name))
    left = [Counter(group) for group in groups]
    free = devices_of(cost, t)
    rows: list[list[int]] = [[] for _ in groups]
    nodes = {name: _of(cost, name) for name in types}
    for name in types:
        while all(group[name] for group in left):
            node = next((i for i in nodes[name] if free[i] >= len(groups)), None)
            if node is None:
                break
            free[node] -= len(groups)
            for group, row in zip(left, rows, strict=True):
                group[name] -= 1
                row.append(node)
    # Of each type the node that has most free comes first, then the first one.
    heaps = {name: [(-free[i], i) for i in nodes[name]] for name in types}
    for heap in heaps.values():
        heapify(heap)
    for group, row in zip(left, rows, strict=True):
        cost.check()
        for name in types:
            for _ in range(group[name]):
                used, node = heaps[name][0]
                heapreplace(heaps[name], (used + 1, node))
                row.append(node)
    return rows


def in_order(cost: FastCost, groups: Sequence[Group], t: int) -> list[list[int]]:
    """The mapping switched off: devices by the order of nodes, and stages too."""
    free = devices_of(cost, t)
    rows = []
    waiting = {
        name: iter([i for i in _of(cost, name) for _ in range(free[i])])
        for name in compute_of(cost)
    }
    for group in groups:
        row = [next(waiting[name]) for name, n in group.items() for _ in range(n)]
        rows.append(sorted(row))
    return rows


def _of(cost: FastCost, name: str) -> list[int]:
    return [i for i, node in enumerate(cost.nodes) if node.gpu == name]
