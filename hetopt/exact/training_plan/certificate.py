"""Bounds on training plans derived again from their certificate.

A certificate says how the possible plans were divided into cases and which prices
refute each (`bound`, `prices`). Here the divisions are carried out
anew, and every price list is checked against all pipelines by a plain dynamic program
in doubles, for every bottleneck that there can be: nothing is shared with the method
but the cost tables. Layers must be equal, and a micro-batch one sequence.

What doubles round away always counts against the certificate: a comparison that is
not clearly true, or that has no answer, refutes nothing.
"""

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...costs import CostTable
from ...errors import Unsupported
from ...problems import Objective
from ...schema import Instance, exact
from ...schema.rates import slower
from ...solving.certificates import Case, TrainingCertificate

Array = npt.NDArray[np.float64]

_SHORT = 0.2  # of the time that a batch in one pipeline leaves for a bottleneck
_ROOM = 1e-6  # relative, for what doubles round
_ROUNDED = 1e-14  # relative, of a difference of two times,
_SUMMED = 1e-9  # and of a sum of prices
_MOST_CELLS = 3e8  # of a table of visits
_ENOUGH = 10  # complaints, after which nothing more is checked


@dataclass(frozen=True)
class _Box:
    sync: tuple[float, float]
    pipelines: tuple[int, int]
    low: tuple[float, ...]
    high: tuple[float, ...]


def missing(
    instance: Instance, certificate: TrainingCertificate, bound: Objective
) -> list[str]:
    """What is missing for `bound` to be proved; empty when it is.

    `Unsupported` for uneven layers, for micro-batches of several sequences, for
    interleaved pipelines and where a plan chooses its settings.
    """
    workload = instance.workload
    if not instance.model.even:
        raise Unsupported("layers are uneven: plan again to prove the bound")
    if max(workload.micro_batch_sizes) > 1:
        raise Unsupported("stages may have several replicas: plan again instead")
    if workload.costs.interleave > 1:
        raise Unsupported("pipelines are interleaved: plan again to prove the bound")
    if len(workload.recomputes) > 1 or len(workload.zeros) > 1:
        raise Unsupported("a plan chooses its settings: plan again instead")
    if not bound <= int(certificate.time_us) + 1:
        return [f"the certificate is of {certificate.time_us} us, not of {bound}"]
    return _Check(instance, certificate).run()


class _Check:
    def __init__(self, instance: Instance, certificate: TrainingCertificate) -> None:
        self.table = CostTable(instance)
        self.costs = instance.workload.costs
        self.batch = instance.workload.global_batch
        self.layers = instance.model.layers
        self.certificate = certificate
        self.time_us = certificate.time_us - float(self.costs.iteration_overhead_us)
        self.sample: dict[tuple[Any, ...], str] = {}
        names = [node.name for node in self.table.cluster.nodes]
        for name in names:
            self.sample.setdefault(self._kind_of(name), name)
        order = list(self.sample)
        # Nodes of a kind stand together, kinds in the order of their first nodes.
        self.nodes = sorted(names, key=lambda name: order.index(self._kind_of(name)))
        self.kinds = [self._kind_of(name) for name in self.nodes]
        self.hops = {kind: self._hops(kind) for kind in self.sample}
        self._refuse_what_is_too_large()
        self.high, self.inverse = self._bottlenecks()
        self.visits = lru_cache(64)(self._visits)
        self.found: list[str] = []

    def _kind_of(self, name: str) -> tuple[Any, ...]:
        node = self.table.cluster.node[name]
        return (node.gpu, node.count, node.intra_gbytes_per_s, node.intra_latency_us)

    def _refuse_what_is_too_large(self) -> None:
        stages = sum(int(kind[1]) for kind in self.sample) * self.layers
        widest = max(int(kind[1]) for kind in self.sample)
        if 3.0 * stages * (widest + 1) * (self.layers + 1) > _MOST_CELLS:
            raise Unsupported(
                f"nodes of {widest} GPUs and {self.layers} layers are more than a "
                "check can hold: plan again to prove the bound"
            )

    def _bottlenecks(self) -> tuple[Array, Array]:
        """Every time that a stage can take, and 1 / time; and one for all short ones.

        Pipelines whose stages are all that short could take the batch, and are held
        to that: then the inverse is 0.
        """
        most = self.time_us / float(self.costs.pipeline_factor)
        short = _SHORT * most / self.batch
        times = {
            self._stage_us(name, t, x, last) + hop
            for kind, name in self.sample.items()
            for t in range(1, int(kind[1]) + 1)
            for x in range(1, self.layers + 1)
            for last, hops in ((True, (0.0,)), (False, self.hops[kind]))
            for hop in hops
        }
        long = np.array(sorted(us for us in times if short < us <= most))
        return np.concatenate([[short], long]), np.concatenate([[0.0], 1 / long])

    def _hops(self, kind: tuple[Any, ...]) -> tuple[float, float]:
        """Least time of a hop within a node of the kind, and out of it."""
        name = self.sample[kind]
        others = [
            self.table.least_hop_us(x, y, 1)
            for x, k in zip(self.nodes, self.kinds, strict=True)
            if k == kind
            for y in self.nodes
            if y != x
        ]
        out = float(min(others)) if others else math.inf
        if int(kind[1]) == 1:
            return 0.0, out
        return min(float(self.table.least_hop_us(name, name, 1)), out), out

    def run(self) -> list[str]:
        """Carry out the divisions and check every case."""
        none, whole = (0.0,) * len(self.nodes), (float(self.layers),) * len(self.nodes)
        most = min(self.table.cluster.gpu_count, self.batch)
        most_sync = self.certificate.most_sync_us
        priced = self.costs.sync_overlap == "none" and self.costs.sync_factor > 0
        ranges = (
            [(0.0, most_sync), (most_sync, math.inf)] if priced else [(0.0, math.inf)]
        )
        trees = self.certificate.cases
        if len(trees) != len(ranges):
            return [f"{len(trees)} first cases, {len(ranges)} expected"]
        for tree, sync in zip(trees, ranges, strict=True):
            self._walk(tree, _Box(sync, (1, most), none, whole))
        return self.found

    def _walk(self, tree: Case | None, box: _Box) -> None:
        if len(self.found) >= _ENOUGH:
            return
        narrowed = self._narrowed(box)
        if narrowed is None:
            return
        if tree is None:
            self.found.append(f"a case is left out: {narrowed}")
        elif tree.prices is not None:
            if not self._refuted(narrowed, tree.prices):
                self.found.append(f"prices do not refute the case {narrowed}")
        elif (halves := self._halves(tree, narrowed)) is None:
            self.found.append(f"{tree.split} {tree.at} does not divide {narrowed}")
        else:
            self._walk(tree.low, halves[0])
            self._walk(tree.high, halves[1])

    def _halves(self, tree: Case, box: _Box) -> tuple[_Box, _Box] | None:
        """The box on both sides of a division; None where that lies outside."""
        at = tree.at
        assert at is not None
        if tree.split == "sync":
            (low, high) = box.sync
            if not low <= at <= high:
                return None
            return replace(box, sync=(low, at)), replace(box, sync=(at, high))
        if tree.split == "pipelines":
            fewest, most = box.pipelines
            if not fewest <= at < most:
                return None
            return (
                replace(box, pipelines=(fewest, int(at))),
                replace(box, pipelines=(int(at) + 1, most)),
            )
        i = tree.node
        assert i is not None
        if i >= len(box.low) or not box.low[i] <= at <= box.high[i]:
            return None
        below = (*box.high[:i], at, *box.high[i + 1 :])
        above = (*box.low[:i], at, *box.low[i + 1 :])
        return replace(box, high=below), replace(box, low=above)

    def _narrowed(self, box: _Box) -> _Box | None:
        """The box with shares in descending order among equal nodes, summing to L."""
        if box.sync[0] > box.sync[1] or box.pipelines[0] > box.pipelines[1]:
            return None
        low, high = list(box.low), list(box.high)
        for i in range(1, len(low)):
            if self.kinds[i] == self.kinds[i - 1]:
                high[i] = min(high[i], high[i - 1])
        for i in range(len(low) - 1, 0, -1):
            if self.kinds[i] == self.kinds[i - 1]:
                low[i - 1] = max(low[i - 1], low[i])
        slack = 1e-9 * self.layers
        rest = self.layers - sum(low)
        if rest < -slack:
            return None
        high = [min(h, x + rest + slack) for x, h in zip(low, high, strict=True)]
        if any(h < x - 2 * slack for x, h in zip(low, high, strict=True)):
            return None
        return _Box(box.sync, box.pipelines, tuple(low), tuple(high))

    # -- one case ----------------------------------------------------------------

    def _refuted(self, box: _Box, prices: tuple[float, ...]) -> bool:
        """Whether no pipeline is worth more than its price, nor all the batch."""
        left = self.time_us - float(self.costs.sync_factor) * box.sync[0]
        left += _ROUNDED * self.time_us
        if left < 0:
            return True
        left /= float(self.costs.pipeline_factor)
        order = {kind: number for number, kind in enumerate(self.sample)}
        groups = sorted(
            Counter(
                (order[kind], share)
                for kind, share in zip(self.kinds, box.high, strict=True)
            ).items()
        )
        if len(prices) != 2 * len(groups) + 2:
            return False
        kinds = list(self.sample)
        gpus = [count * kinds[k][1] for (k, _), count in groups]
        pipelines = min(box.pipelines[1], self.table.cluster.gpu_count, self.batch)
        value = float(np.dot(prices[: len(gpus)], gpus))
        value += prices[-2] * self.layers + prices[-1] * pipelines
        if not value * (1 + _SUMMED) < self.batch:
            return False
        rate = self._rate(box)
        onward = np.full((self.layers + 1, len(self.high)), np.inf)
        final = onward.copy()
        limited, largest = [], prices[-1]
        for i, ((k, share), count) in enumerate(groups):
            goods = self._price(
                kinds[k][1], rate, box, prices[i], prices[len(groups) + i], prices[-2]
            )
            largest = max(largest, float(np.abs(goods).max()))
            go, end = self.visits(kinds[k], rate, share)
            cheap = (go + goods).min(0), (end + goods).min(0)
            limited.append((count, *cheap))
            onward, final = np.minimum(onward, cheap[0]), np.minimum(final, cheap[1])
        samples = np.where(self.inverse > 0, 1 + left * self.inverse, self.batch)
        wanted = samples + _ROOM * (samples + largest) - prices[-1]
        # What is not surely dear enough when nodes may be visited at will.
        hard = ~(self._any_number(onward, final) >= wanted)
        if not hard.any():
            return True
        cost = self._limited([(n, o[:, hard], f[:, hard]) for n, o, f in limited])
        return bool((cost >= wanted[hard]).all())

    def _rate(self, box: _Box) -> float:
        inter = self.table.cluster.inter
        rates = [exact(slower(rate)) for rate in inter.pairs.rates]
        if inter.gbytes_per_s is not None:
            rates.append(exact(inter.gbytes_per_s))
        parameters = self.table.exchanged.layers[0]
        priced = self.costs.sync_overlap == "none" and self.costs.sync_factor > 0
        if not rates or not priced or not parameters or math.isinf(box.sync[1]):
            return float(self.layers)
        return box.sync[1] / float(4 * parameters / (max(rates) * 1000))

    def _price(
        self,
        gpus: int,
        rate: float,
        box: _Box,
        of_gpu: float,
        of_claim: float,
        of_share: float,
    ) -> Array:
        """Price of what a visit takes, by [k - 1, y, 1]."""
        k = np.arange(1, gpus + 1)[:, None]
        y = np.arange(self.layers + 1)[None, :]
        claim = k / gpus * np.maximum(0.0, y - k * rate)
        goods = of_gpu * k + (of_share + of_claim) * claim
        return (goods - of_claim * y / box.pipelines[0])[:, :, None]

    def _visits(
        self, kind: tuple[Any, ...], rate: float, share: float
    ) -> tuple[Array, Array]:
        """Least sum of stage times / bottleneck of visits that go on, and that end."""
        name, gpus = self.sample[kind], int(kind[1])
        within, out = self.hops[kind]
        holds = [
            min(self.layers, math.floor((t * rate + share) * (1 + 1e-9) + 1e-9))
            for t in range(gpus + 1)
        ]
        shape = (gpus + 1, self.layers + 1, len(self.high))
        inner, go, end = (np.full(shape, np.inf) for _ in range(3))
        inner[0, 0] = 0
        for k in range(1, gpus + 1):
            for t in range(1, k + 1):
                for x in range(1, holds[t] + 1):
                    before = inner[k - t, : self.layers + 1 - x]
                    for table, us in (
                        (inner, self._stage_us(name, t, x, False) + within),
                        (go, self._stage_us(name, t, x, False) + out),
                        (end, self._stage_us(name, t, x, True)),
                    ):
                        if us > self.high[-1]:
                            continue
                        fits = np.searchsorted(self.high, us)
                        cost = us * self.inverse[fits:]
                        part = table[k, x:, fits:]
                        np.minimum(part, before[:, fits:] + cost, out=part)
        for k in range(1, gpus + 1):
            go[k, holds[k] + 1 :] = np.inf
            end[k, holds[k] + 1 :] = np.inf
        return go[1:], end[1:]

    @lru_cache(None)  # noqa: B019 - dies with the check
    def _stage_us(self, name: str, t: int, x: int, last: bool) -> float:
        """Time of a stage of x layers; infinite where it does not fit at its best."""
        if not self.table.usable(name, t, 1):
            return math.inf
        stages, j = (1, 0) if last and x == self.layers else (2, 1) if last else (3, 1)
        if self._least_need_mib(name, t, x, stages, j) > self.table.memory_mib(name):
            return math.inf
        times = self.table.layer_us(name, t, 1)
        if last:
            return float(sum(times[-x:]) + self.table.head_us(name, t, 1))
        return float(min(sum(times[i : i + x]) for i in range(self.layers - x + 1)))

    def _least_need_mib(self, name: str, t: int, x: int, stages: int, j: int) -> int:
        """Least memory of x layers at a position; where measured, layers differ."""
        starts = range(self.layers - x + 1) if self.table.profile.weighs else range(1)
        return min(
            sum(
                self.table.stage_mib(name, range(i, i + x), t, 1, 1, stages, j).values()
            )
            for i in starts
        )

    def _any_number(self, onward: Array, final: Array) -> Array:
        """Least price of a pipeline that may visit as often as it likes."""
        going = np.full_like(onward, np.inf)
        going[0] = 0
        for y in range(1, self.layers + 1):
            going[y] = (onward[1 : y + 1] + going[y - 1 :: -1]).min(0)
        last: Array = (final[1:] + going[-2::-1]).min(0)
        return last

    def _limited(self, groups: list[tuple[int, Array, Array]]) -> Array:
        """The same with at most one visit a node."""
        shape = groups[0][1].shape
        going, ended = np.full(shape, np.inf), np.full(shape, np.inf)
        going[0] = 0
        for count, onward, final in groups:
            for _ in range(min(count, self.layers)):
                new_going, new_ended = going.copy(), ended.copy()
                for y in range(1, self.layers + 1):
                    rest = slice(0, self.layers + 1 - y)
                    np.minimum(
                        new_going[y:], going[rest] + onward[y], out=new_going[y:]
                    )
                    np.minimum(
                        new_ended[y:], ended[rest] + onward[y], out=new_ended[y:]
                    )
                    np.minimum(new_ended[y:], going[rest] + final[y], out=new_ended[y:])
                if np.array_equal(new_ended, ended) and np.array_equal(
                    new_going, going
                ):
                    break
                going, ended = new_going, new_ended
        last: Array = ended[-1]
        return last
