"""Alpa-like: stages on uniform submeshes of averaged GPUs, by dynamic programming.

Alpa's inter-operator pass: the model is cut into stages, each on a submesh of 1, 2, 4,
... GPUs of a node or of whole nodes, with the dp x tp inside it that is cheapest; all
GPUs are used, and the sum of stage times plus (B - 1) times the slowest is the least
on GPUs of average speed. What it cannot use: that GPUs differ (a stage
gets layers as if its GPUs were average ones, its replicas equally many samples), device
groups that are no M x N grid, machines of different size (they are cut into equal
virtual nodes, `grid`). Its plans pay the slowest GPU's time when judged.

F(k, l, d; T) is the least sum of times of the last k stages, which hold the layers
from l on and use d GPUs, none of which takes longer than T:

    F(k, l, d; T) = min over sizes s, cuts m of t(k, s, l, m) + F(k - 1, m, d - s; T)

where that t is at most T. Counting stages from the end tells how many micro-batches
one holds. As in the paper, limits T that are nearer to the last one than some epsilon
are passed over, here 0.5 % of it: a plan is at most that much above the best.

Choices: an operator is a layer; inside a submesh dp x tp stands for Alpa's integer
programme; the programme prices a hop between stages as one between machines, and 1F1B
with hops paid by the sender, whatever the cost settings. The iteration time under
these settings decides between micro-batch sizes, as Alpa's number of micro-batches is
chosen by hand. A stage must fit the machine with the least memory. Stages take GPUs in
the instance's order, small ones the fullest node that has room.

Source: Zheng et al., OSDI 2022, section 5, algorithm 1; Metis, table 1, section 3.
"""

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import NoPlan, OutOfTime, keeping
from ..plans import TrainingPlan
from ..schema import Instance
from ..search.fast_cost import Slot
from .metis.costs import Laid, LineCost
from .metis.cuts import NEVER
from .metis.grid import Grid, replicas

problem: Literal["training_plan"] = "training_plan"
narrower = ("one_pipeline",)
Array = NDArray[np.int64]
_EPSILON = 5  # thousandths, by which the limit on the slowest stage falls at least


class Meshed(NamedTuple):
    """A stage on a submesh: `size` GPUs as dp x tp, and its layers."""

    size: int
    dp: int
    tp: int
    first: int
    last: int


def plan(
    data: Instance, *, seed: int = 0, deadline: float | None = None
) -> TrainingPlan:
    """Return the plan that is cheapest on averaged GPUs; `NoPlan` where none fits.

    `seed` has no effect.
    """

    line = LineCost(data, deadline)
    grid = Grid(line)
    best: tuple[int, int, int, list[Laid]] | None = None
    late = False
    with keeping(lambda: None if best is None else line.plan(*best[1:])):
        for b in line.sizes:
            n = line.micro_batches(b)
            programme = Programme(grid, b, n)
            try:
                programme.best()
            except OutOfTime:  # what it found by then is used
                late = True
            if programme.found is None:
                continue
            stages = place(grid, programme.found[1], b)
            if stages is None:
                continue
            # One plan more is looked at, whatever the time.
            line.cost.deadline = grid.averaged.cost.deadline = None
            if line.fits(n, stages):
                value = grid.averaged.iteration_us(n, stages)
                if best is None or value < best[0]:
                    best = value, n, b, stages
            line.cost.deadline = grid.averaged.cost.deadline = deadline
    if best is None:
        raise NoPlan(_reason(grid, late=late))
    return line.plan(*best[1:])


def place(grid: Grid, stages: Sequence[Meshed], b: int) -> list[Laid] | None:
    """The stages on machines; None where the nodes are too broken up for them."""
    left = [grid.width] * len(grid.nodes)
    found = []
    for stage in stages:
        fullest = sorted(
            (gpus, i)
            for i, gpus in enumerate(left)
            if gpus >= min(stage.size, grid.width)
        )
        count = max(1, stage.size // grid.width)
        if len(fullest) < count:
            return None
        chosen = sorted(i for _, i in fullest[:count])
        each = stage.size // count
        for i in chosen:
            left[i] -= each
        machines = [grid.nodes[i] for i in chosen for _ in range(each // stage.tp)]
        found.append(Laid(replicas(machines, stage.tp, b), stage.first, stage.last))
    return found


def _reason(grid: Grid, *, late: bool) -> str:
    if late:
        return "alpa_like: no plan that fits was found in time"
    workload = grid.line.instance.workload
    return (
        "alpa_like: no stages on uniform submeshes use all GPUs, have equal samples "
        "and fit the machine with the least memory; micro-batch sizes "
        f"{list(workload.micro_batch_sizes)}, global batch {workload.global_batch}"
    )


class Programme:
    """The programme for micro-batches of `b` sequences, `n` of them."""

    def __init__(self, grid: Grid, b: int, n: int) -> None:
        self.grid, self.b, self.n = grid, b, n
        self.found: tuple[int, list[Meshed]] | None = None
        self.layers = grid.line.layers
        sizes = [*grid.degrees, *range(2 * grid.width, grid.gpus + 1, grid.width)]
        # Of a thousand submeshes few have equal samples on all of their GPUs.
        self.sizes = [size for size in sizes if any(self._shapes(size))]
        self.most = min(grid.gpus, self.layers)
        cost = grid.line.cost
        self._speakers = [*{kind: node for node, kind in enumerate(cost.kind)}.values()]
        self._hop: dict[int, int] = {}
        self._runs: dict[tuple[int, int], Array] = {}
        self._times: dict[int, tuple[Array, Array]] = {}

    def best(self) -> tuple[int, list[Meshed]] | None:
        """The least sum of times plus (n - 1) slowest ones, to 0.5 %; its stages.

        Where `OutOfTime` ends the search, `found` is the best by then.
        """
        if not self.sizes or self.most * max(self.sizes) < self.grid.gpus:
            return None  # the GPUs are too many for the stages
        self._hop = self._usual_hops()
        for size in self.sizes:
            for t, s in self._shapes(size):
                if (t, s) not in self._runs:
                    self._runs[t, s] = self._run_us(t, s)
        limit = NEVER - 1
        while (stages := self._least(limit)) is not None:
            taus = [
                int(self._stage_us(k)[0][self.sizes.index(s.size), s.first, s.last])
                for k, s in zip(range(len(stages), 0, -1), stages, strict=True)
            ]
            value = sum(taus) + (self.n - 1) * max(taus)
            if self.found is None or value < self.found[0]:
                self.found = value, stages
            limit = min(max(taus) - 1, max(taus) * (1000 - _EPSILON) // 1000)
        return self.found

    # --- stages ------------------------------------------------------------------

    def _shapes(self, size: int) -> Iterator[tuple[int, int]]:
        """(tp, samples of a replica) of a submesh, with equal samples."""
        for t in self.grid.degrees:
            dp, left = divmod(size, t)
            if (
                not left
                and dp
                and self.b % dp == 0
                and self.grid.known(t, self.b // dp)
            ):
                yield t, self.b // dp

    def _usual_hops(self) -> dict[int, int]:
        """Hop between two machines, by the samples of a replica; 0 in one machine."""
        table = self.grid.line.cost.table
        links = table.cluster.links.present
        return {
            s: max((table.hop_over_us(link, s) for link in links), default=0)
            for s in range(1, self.b + 1)
        }

    def _run_us(self, t: int, s: int) -> Array:
        """Time of every run of layers on averaged GPUs, with a hop but at the end."""
        found = np.full((self.layers + 1, self.layers + 1), NEVER, np.int64)
        for first in range(self.layers):
            self.grid.line.cost.check()
            for last in range(first + 1, self.layers + 1):
                hop = 0 if last == self.layers else self._hop[s]
                found[first, last] = self.grid.time_us(t, s, first, last) + hop
        return found

    def _stage_us(self, k: int) -> tuple[Array, Array]:
        """Least time of every run of layers on every submesh, and its tp."""
        flight = min(k, max(self.n, 2)) if k > 1 else 1
        if flight not in self._times:
            shape = (len(self.sizes), self.layers + 1, self.layers + 1)
            times, degrees = np.full(shape, NEVER, np.int64), np.zeros(shape, np.int64)
            for i, size in enumerate(self.sizes):
                for t, s in self._shapes(size):
                    fits = self._runs_that_fit(t, s, size // t, flight)
                    us = np.where(fits, self._runs[t, s], NEVER)
                    degrees[i] = np.where(us < times[i], t, degrees[i])
                    times[i] = np.minimum(times[i], us)
            self._times[flight] = times, degrees
        return self._times[flight]

    def _runs_that_fit(self, t: int, s: int, dp: int, k: int) -> NDArray[np.bool_]:
        """Runs of layers that fit any machine as the k-th stage from the end."""
        found = np.zeros((self.layers + 1, self.layers + 1), bool)
        for first in range(self.layers):
            lasts = (self.layers,) if k == 1 else range(first + 1, self.layers)
            for last in lasts:
                if not self._fits(t, s, dp, k, first, last):
                    break
                found[first, last] = True
        return found

    def _fits(self, t: int, s: int, dp: int, k: int, first: int, last: int) -> bool:
        cost = self.grid.line.cost
        j = int(first > 0)
        return all(
            cost.need_mib(s, self.n, k + j, j, Slot(node, t, first, last), dp)
            <= cost.room[node]
            for node in self._speakers
        )

    # --- the programme -------------------------------------------------------------

    def _least(self, limit: int) -> list[Meshed] | None:
        """Stages of the least sum, none slower than the limit, on all GPUs."""
        gpus = self.grid.gpus
        sums = np.full((self.layers + 1, gpus + 1), NEVER, np.int64)
        sums[self.layers, 0] = 0
        rows, best = [sums], (NEVER, 0)
        for k in range(1, self.most + 1):
            self.grid.line.cost.check()
            rows.append(self._one_more(rows[-1], k, limit))
            best = min(best, (int(rows[-1][0, gpus]), k))
            if (rows[-1] >= NEVER).all():
                break
        return None if best[0] >= NEVER else self._walk(rows, best[1], limit)

    def _one_more(self, behind: Array, k: int, limit: int) -> Array:
        times, found = self._stage_us(k)[0], np.full_like(behind, NEVER)
        for i, size in enumerate(self.sizes):
            self.grid.line.cost.check()
            us = times[i]
            if not (us <= limit).any():
                continue
            allowed = np.where(us <= limit, us, NEVER)
            # (first, last) + (last, GPUs behind), least over the cut
            sums = (allowed[:, :, None] + behind[None, :, : -size or None]).min(axis=1)
            found[:, size:] = np.minimum(found[:, size:], sums)
        return np.minimum(found, NEVER)

    def _walk(self, rows: Sequence[Array], k: int, limit: int) -> list[Meshed]:
        stages, first, left = [], 0, self.grid.gpus
        while k:
            degrees = self._stage_us(k)[1]
            size, last = self._step(rows, k, limit, first, left)
            t = int(degrees[self.sizes.index(size), first, last])
            stages.append(Meshed(size, size // t, t, first, last))
            first, left, k = last, left - size, k - 1
        return stages

    def _step(
        self, rows: Sequence[Array], k: int, limit: int, first: int, left: int
    ) -> tuple[int, int]:
        times = self._stage_us(k)[0]
        choices = []
        for i, size in enumerate(self.sizes):
            if size <= left:
                us = np.where(times[i, first] <= limit, times[i, first], NEVER)
                sums = us + rows[k - 1][:, left - size]
                last = int(sums.argmin())
                choices.append((int(sums[last]), size, last))
        _, size, last = min(choices)
        return size, last
