"""HARP: stages inside sub-clusters of equal GPUs, links hidden by more warm-up.

HARP's planner cuts the model layer by layer over sub-clusters, each of equal GPUs:
parallelism inside a stage never leaves one, and between stages it looks for the least

    sum_j (T_j + 2 C_j) + (M - 1) max_j T_j

where T_j is the time of stage j, 2 C_j what its activations and gradients take to cross
to the next stage, and M the number of micro-batches: its schedule, a 1F1B with more
micro-batches in the warm-up before a slow link, hides the links from then on, so that
they do not set the pace. A dynamic programme over layers and GPUs, with a limit T on
the slowest stage, finds the least sum, and the limit is moved.

Source: Liang et al., EuroSys 2026 (arXiv 2509.24859): the objective, the sub-clusters
and what its schedule does. Ours, where we had no more of it:
- inside a stage dp x tp stands for its intra-operator pass: 1, 2, 4, ... GPUs of a node
  or whole nodes, equal samples for each replica, tensor parallelism inside a node;
- sub-clusters are nodes that are equal; they come in every order where there are four
  kinds or fewer, else by their speed, up and down; all GPUs are used, in at most
  `most_stages` stages;
- limits rise from the least that can be kept, by 2 % each, as long as a better plan may
  be there; stages of one GPU a replica stand for the receivers in the price of a link;
- stage j has w_j = w_{j+1} + 1 + ceil(2 C_j / max T) micro-batches in flight, which
  cover the link; where memory does not hold them it has one more than the next stage,
  and the link counts into its time; this, and the slowest synchronisation added,
  decides between orders and sizes of micro-batches.

The judge knows no such warm-up: by its settings a sender pays for its hop, so that
plans with slow links take longer there than HARP expects of its own schedule.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations
from math import ceil
from typing import Annotated, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from ..errors import NoPlan, in_time
from ..plans import TrainingPlan
from ..schema import Instance
from ..search.fast_cost import Slot
from .metis.costs import Laid, LineCost
from .metis.cuts import NEVER
from .metis.grid import replicas

problem: Literal["training_plan"] = "training_plan"
Array = NDArray[np.int64]
STEP = 1.02  # from one limit on the slowest stage to the next
_KINDS = 4  # sub-clusters whose orders are all tried


def plan(
    data: Instance,
    *,
    seed: int = 0,
    deadline: float | None = None,
    most_stages: Annotated[int, Field(ge=1)] = 16,
) -> TrainingPlan:
    """The plan of least estimated time; `NoPlan` where none fits. `seed` has no effect.

    Only plans of at most `most_stages` stages are looked at.
    """
    line = LineCost(data, deadline)
    best: tuple[int, int, int, list[Laid]] | None = None
    with in_time("harp", lambda: None if best is None else line.plan(*best[1:])):
        for b in line.sizes:
            n = line.micro_batches(b)
            for order in orders(line):
                programme = Programme(line, order, b, most_stages)
                for stages in programme.candidates(best[0] if best else NEVER):
                    if line.fits(n, stages):
                        value = estimate_us(line, n, stages)
                        if best is None or value < best[0]:
                            best = value, n, b, stages
    if best is not None:
        return line.plan(*best[1:])
    workload = data.workload
    raise NoPlan(
        f"harp: no stages on equal GPUs, {most_stages} at most, use all GPUs, have "
        "equal samples and fit; micro-batch sizes "
        f"{list(workload.micro_batch_sizes)}, global batch {workload.global_batch}"
    )


def estimate_us(line: LineCost, n: int, stages: Sequence[Laid]) -> int:
    """HARP's objective, links hidden where memory holds the warm-up; and the sync."""
    times = [line.compute_us(s.shares, s.first, s.last) for s in stages]
    hops = hops_us(line, stages)
    longest = warm_up(line, n, stages, times, hops)[1]
    sync = max(line.sync_us(stage) for stage in stages)
    return sum(times) + sum(hops) + (n - 1) * longest + sync


def hops_us(line: LineCost, stages: Sequence[Laid]) -> list[int]:
    """2 C_j of every stage, 0 behind the last."""
    ahead = pairwise(stage.shares for stage in stages)
    return [*(line.hop_us(row, after) for row, after in ahead), 0]


def warm_up(
    line: LineCost,
    n: int,
    stages: Sequence[Laid],
    times: Sequence[int],
    hops: Sequence[int],
) -> tuple[list[int], int]:
    """Micro-batches in flight on every stage, and the pace: the longest stage.

    A link that memory does not let be hidden counts into the time of its sender.
    """
    slowest, flights, paces = max(max(times), 1), [0], []
    for j in reversed(range(len(stages))):
        wanted = flights[-1] + 1 + ceil(hops[j] / slowest)
        held = min(n, wanted)
        hidden = not hops[j] or _holds(line, n, stages, j, held)
        flights.append(held if hidden else min(n, flights[-1] + 1))
        paces.append(times[j] + (0 if hidden else hops[j]))
    return flights[:0:-1], max(paces)


def _holds(line: LineCost, n: int, stages: Sequence[Laid], j: int, flight: int) -> bool:
    """Return whether stage j has memory for so many micro-batches in flight."""
    stage, first = stages[j], int(j > 0)
    return line.short_mib(n, flight + first, first, *stage) <= 0


def orders(line: LineCost) -> Iterator[list[int]]:
    """Nodes, sub-cluster by sub-cluster, in the orders that are tried."""
    cost = line.cost
    members: dict[tuple[int, int], list[int]] = {}
    for number, node in enumerate(cost.nodes):
        members.setdefault((cost.kind[number], node.count), []).append(number)
    groups = list(members.values())
    if len(groups) <= _KINDS:
        rows: list[Sequence[list[int]]] = list(permutations(groups))
    else:
        b = line.sizes[0] if line.sizes else 1
        groups.sort(key=lambda group: _layers_us(line, group[0], b))
        rows = [groups, groups[::-1]]
    for row in rows:
        yield [number for group in row for number in group]


def _layers_us(line: LineCost, node: int, b: int) -> int:
    degrees = line.cost.degrees(node, b)
    return min((line.cost.prefix(node, t, b)[0][-1] for t in degrees), default=NEVER)


class Mesh(NamedTuple):
    """GPUs of equal nodes next to each other: `size`, from position `at` on."""

    at: int
    size: int
    nodes: tuple[int, ...]


class Shape(NamedTuple):
    """dp x tp of a mesh."""

    dp: int
    tp: int


class Programme:
    """The dynamic programme over the layers and the GPUs of nodes in one order."""

    def __init__(
        self, line: LineCost, order: Sequence[int], b: int, most_stages: int
    ) -> None:
        self.line, self.b, self.n = line, b, line.micro_batches(b)
        self.layers = line.layers
        self.gpus = sum(line.cost.nodes[node].count for node in order)
        self.owner = [i for i in order for _ in range(line.cost.nodes[i].count)]
        self.most = min(self.gpus, self.layers, most_stages)
        self.meshes: dict[int, list[Mesh]] = {}
        for mesh in self._meshes(order):
            self.meshes.setdefault(mesh.at, []).append(mesh)
        self._tables: dict[tuple[int, ...], tuple[Array, list[Shape], Array]] = {}

    # --- submeshes ---------------------------------------------------------------

    def _meshes(self, order: Sequence[int]) -> Iterator[Mesh]:
        """Aligned 1, 2, 4, ... GPUs of a node, all of it, and 2, 4, ... whole nodes."""
        at, cost = 0, self.line.cost
        for i, node in enumerate(order):
            width = cost.nodes[node].count
            sizes = {1 << e for e in range(width.bit_length())} | {width}
            for size in sorted(sizes):
                for offset in range(0, width - size + 1, size):
                    yield Mesh(at + offset, size, (node,))
            kind = (cost.kind[node], width)
            alike = 1
            for other in order[i + 1 :]:
                if (cost.kind[other], cost.nodes[other].count) != kind:
                    break
                alike += 1
            for count in (c for c in range(2, alike + 1) if not c & (c - 1)):
                yield Mesh(at, count * width, tuple(order[i : i + count]))
            at += width

    def _shapes(self, mesh: Mesh) -> Iterator[Shape]:
        """Yield the degrees with equal samples whose times are known."""
        name, width = self.line.cost.names[mesh.nodes[0]], mesh.size // len(mesh.nodes)
        for tp in (t for t in range(1, width + 1) if width % t == 0):
            dp = mesh.size // tp
            usable = self.b % dp == 0
            if usable and self.line.cost.table.usable(name, tp, self.b // dp):
                yield Shape(dp, tp)

    def _table(self, mesh: Mesh) -> tuple[Array, list[Shape], Array]:
        """Return the least time and its shape, by stages from the end and layers."""
        cost = self.line.cost
        width, count = mesh.size // len(mesh.nodes), len(mesh.nodes)
        key = (cost.kind[mesh.nodes[0]], cost.nodes[mesh.nodes[0]].count, width, count)
        if key not in self._tables:
            shapes = list(self._shapes(mesh))
            side = self.layers + 1
            least = np.full((self.most + 1, side, side), NEVER, np.int64)
            chosen = np.zeros_like(least)
            for i, shape in enumerate(shapes):
                times = self._times(mesh.nodes[0], shape)
                chosen = np.where(times < least, i, chosen)
                least = np.minimum(least, times)
            self._tables[key] = least, shapes, chosen
        return self._tables[key]

    def _times(self, node: int, shape: Shape) -> Array:
        cost, samples, side = self.line.cost, self.b // shape.dp, self.layers + 1
        sums = np.array(cost.prefix(node, shape.tp, samples)[0], np.int64)
        runs = sums[None, :] - sums[:, None]
        runs[:, -1] += cost.head_us(node, shape.tp, samples)
        found = np.full((self.most + 1, side, side), NEVER, np.int64)
        for k in range(1, self.most + 1):
            cost.check()
            for first in range(self.layers):
                for last in self._ends_that_fit(node, shape, samples, k, first):
                    found[k, first, last] = runs[first, last]
        return found

    def _ends_that_fit(
        self, node: int, shape: Shape, samples: int, k: int, first: int
    ) -> range:
        """Ends of the runs from a layer on that fit as the k-th stage from the end."""
        cost, j = self.line.cost, int(first > 0)

        def fits(last: int) -> bool:
            slot = Slot(node, shape.tp, first, last)
            need = cost.need_mib(samples, self.n, k + j, j, slot, shape.dp)
            return need <= cost.room[node]

        if k == 1:
            low = self.layers if fits(self.layers) else self.layers + 1
            return range(low, self.layers + 1)
        ends = range(first + 1, self.layers)  # one that fits has shorter ones
        return ends[: bisect_left(ends, True, key=lambda last: not fits(last))]

    # --- the programme -----------------------------------------------------------

    def candidates(self, worst: int) -> Iterator[list[Laid]]:
        """Yield the stages of the least sum under rising limits on the slowest one.

        As long as the objective may be below `worst` or that of an earlier candidate.
        """
        sums = self._sums(NEVER - 1)
        least = int(sums[1:, 0, 0].min(initial=NEVER))
        if least >= NEVER:
            return
        loosest = self._walk(
            sums, NEVER - 1
        )  # no limit above its slowest stage matters
        top = max(self.line.compute_us(s.shares, s.first, s.last) for s in loosest)
        limit, slowest = self._least_limit(top) if self.n > 1 else (top, 0)
        while slowest <= top and least + (self.n - 1) * slowest < worst:
            stages = self._walk(self._sums(limit), limit)
            times = [self.line.compute_us(s.shares, s.first, s.last) for s in stages]
            value = sum(times) + (self.n - 1) * max(times)
            worst = min(worst, value + sum(hops_us(self.line, stages)))
            yield stages
            slowest = limit + 1
            limit = min(top, max(slowest, int(limit * STEP)))

    def _least_limit(self, top: int) -> tuple[int, int]:
        """A limit that can be kept, within a step of the least; the least there is."""
        kept, short = top, 0
        while kept > max(short * STEP, short + 1):
            middle = (kept + short) // 2
            if (self._sums(middle)[1:, 0, 0] < NEVER).any():
                kept = middle
            else:
                short = middle
        return kept, short

    def _sums(self, limit: int) -> Array:
        """Least sum of T + 2 C of k stages with the layers and GPUs from these on."""
        shape = (self.most + 1, self.layers + 1, self.gpus + 1)
        sums = np.full(shape, NEVER, np.int64)
        sums[0, self.layers, self.gpus] = 0
        for at in reversed(range(self.gpus)):
            for mesh in self.meshes.get(at, ()):
                self.line.cost.check()
                us = self._times_within(mesh, limit)
                found = (us[1:] + sums[:-1, None, :, at + mesh.size]).min(axis=2)
                sums[1:, :, at] = np.minimum(sums[1:, :, at], found)
        return np.minimum(sums, NEVER)

    def _times_within(self, mesh: Mesh, limit: int) -> Array:
        """Times up to a limit, each with the link to the next GPU in the order."""
        times, shapes, chosen = self._table(mesh)
        allowed = np.where(times <= limit, times, NEVER)
        end = mesh.at + mesh.size
        if end == self.gpus or not shapes:
            return allowed
        hops = [
            self.line.cost.hop_us(
                mesh.nodes[-1], self.owner[end], 1, self.b // shape.dp, shape.tp
            )
            for shape in shapes
        ]
        return allowed + np.array(hops, np.int64)[chosen]

    def _walk(self, sums: Array, limit: int) -> list[Laid]:
        k = int(sums[:, 0, 0].argmin())
        stages, first, at = [], 0, 0
        while k:
            ways = []
            for number, mesh in enumerate(self.meshes[at]):
                us = self._behind(sums, mesh, limit, k, first)
                ways.append((int(us.min()), number, int(us.argmin())))
            _, number, last = min(ways)
            mesh = self.meshes[at][number]
            _, shapes, chosen = self._table(mesh)
            dp, tp = shapes[int(chosen[k, first, last])]
            each = dp // len(mesh.nodes) if len(mesh.nodes) > 1 else dp
            machines = [node for node in mesh.nodes for _ in range(each)]
            stages.append(Laid(replicas(machines, tp, self.b), first, last))
            k, first, at = k - 1, last, at + mesh.size
        return stages

    def _behind(self, sums: Array, mesh: Mesh, limit: int, k: int, first: int) -> Array:
        found: Array = (
            self._times_within(mesh, limit)[k, first]
            + sums[k - 1, :, mesh.at + mesh.size]
        )
        return found
