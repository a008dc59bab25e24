"""Whether pipelines by counts of GPUs take the batch, for the check of counts."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from ....costs import CostTable
from .rows import Rows
from .stages import MORE, Able, Array, Case, Nodes, StageTables

Whole = npt.NDArray[np.int64]

_AT_ONCE = 24  # ranges of the slowest stage
_KEPT_ENTRIES = 60_000_000  # of sums that are looked at again
_FEW = 4  # micro-batches, from which on pipelines need the memory of so many


class Counts:
    """Refutes cases by counts of GPUs; tables of one instance."""

    def __init__(
        self, tables: list[CostTable], nodes: Sequence[Nodes], weights: Sequence[float]
    ) -> None:
        """As `StageTables` takes them."""
        self.batch = tables[0].workload.global_batch
        self._stages = StageTables(tables, nodes, weights)
        self._rows = Rows(nodes, tables[0].layers)
        self.sides = self._rows.sides
        self._known: dict[tuple[bytes, float], Array] = {}

    def refute(self, cases: Sequence[Case], left_us: float, ratio: float) -> bool:
        """Whether no plan has pipelines of the cases that take `left_us` or less.

        The cases have numbers of pipelines and of replicas in common.
        """
        if left_us < 0:
            return True
        ways = [(b, case) for case in cases for b in case.sizes]
        if cases[0].pipelines == (1, 1):
            return all(self._one(b, case, left_us) for b, case in ways)
        most = np.zeros(self.sides, np.int64)
        for b, case in ways:
            np.maximum(most, self._most(b, case, left_us, ratio), out=most)
        return self._taken(most, cases[0].pipelines) < self.batch

    # -- pipelines -------------------------------------------------------------------

    def _one(self, b: int, case: Case, left_us: float) -> bool:
        """Whether one pipeline of micro-batches of b sequences takes longer."""
        if self.batch % b:
            return True
        n = self.batch // b
        stages = self._stages.able(b, n, case._replace(pipelines=(1, 1), replicas=1))
        times, slowest = self._rows.times(stages), left_us / n * MORE
        while True:
            times = times[times <= slowest]
            if not len(times):
                return True
            least = float(self._rows.least(stages, times[-1:])[0].flat[-1])
            least = max(least, case.spent_us)
            if least > left_us:
                return True
            shorter = (left_us - least) / (n - 1) * MORE if n > 1 else math.inf
            if shorter >= times[-1]:
                return False
            slowest = shorter

    def _most(self, b: int, case: Case, left_us: float, ratio: float) -> Whole:
        """The most sequences that a pipeline takes, by the GPUs that it may use."""
        few = self._micro_batches(b, 1, case, left_us, ratio)
        many = self._micro_batches(b, _FEW, case, left_us, ratio)
        both: Whole = b * np.maximum(many, np.minimum(few, _FEW - 1))
        return np.minimum(both, self.batch)

    def _micro_batches(
        self, b: int, n: int, case: Case, left_us: float, ratio: float
    ) -> Whole:
        stages = self._stages.able(b, n, case)
        most = np.zeros(self.sides, np.int64)
        for low, found in self._ranges(stages, left_us, ratio):
            sums = np.maximum(found, case.spent_us)
            able = sums <= left_us
            many = np.full(self.sides, float(self.batch))
            if low > 0:
                many = np.where(able, left_us - sums, 0.0) / low * MORE + 1e-9
            taken = np.floor(np.minimum(many, self.batch)).astype(np.int64) + 1
            np.maximum(most, np.where(able, taken, 0), out=most)
        return most

    def _ranges(
        self, stages: Able, left_us: float, ratio: float
    ) -> Iterator[tuple[float, Array]]:
        """Least sums, where the slowest stage is from one time up to another."""
        lows, highs = [], []
        times = self._rows.times(stages)
        times = times[times <= left_us]
        while len(times):
            some = times <= times[0] * ratio
            lows.append(float(times[0]))
            highs.append(float(times[some][-1]))
            times = times[~some]
        key = stages.key
        new = [high for high in highs if (key, high) not in self._known]
        if len(self._known) * math.prod(self.sides) > _KEPT_ENTRIES:
            self._known.clear()
            new = highs
        for begin in range(0, len(new), _AT_ONCE):
            part = new[begin : begin + _AT_ONCE]
            found = self._rows.least(stages, np.array(part))
            self._known.update(((key, x), y) for x, y in zip(part, found, strict=True))
        yield from ((x, self._known[key, y]) for x, y in zip(lows, highs, strict=True))

    def _taken(self, most: Whole, count: tuple[int, int]) -> int:
        """The most sequences of so many pipelines together: one more at a time."""
        able = [tuple(use) for use in np.argwhere(most > 0).tolist()]
        best = np.where(most > 0, most, -(10**12))
        for number in range(2, min(count[1], sum(self.sides)) + 1):
            more = np.full_like(best, -(10**12))
            for use in able:
                rest = best[self._rows.without(use)]
                out = more[tuple(slice(u, None) for u in use)]
                np.maximum(out, rest + most[use], out=out)
            if number > count[0]:
                more = np.maximum(more, best)
            if (more == best).all():
                break
            best = more
        return int(best.flat[-1])
