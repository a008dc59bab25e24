"""Least sums of stage times, kept: the same limits come again for every time."""

from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from hashlib import blake2b

import numpy as np

from .kinds import Array
from .replicas import Runs
from .rows import Laid, Rows
from .stages import Stages

FINEST = 1.0003  # between the beginnings of ranges
_ROUNDED = 1e-12  # relative, of powers
_KEPT_BYTES = 600_000_000
_FURTHER = 0.02  # of the most that is asked for


class Sums:
    """Least sums of rows of stages, by the GPUs that they use at most of each kind."""

    def __init__(self, rows: Rows, most_us: float) -> None:
        """Sums above `most_us` are infinite."""
        self._rows, self._most = rows, np.full(rows.sides, most_us)
        self._kept: dict[float, tuple[Array, Array]] = {}  # and up to which sums
        self._slowest: list[float] = []  # of what is kept, in ascending order
        self._ranges: dict[float, list[tuple[float, float]]] = {}
        self._none = np.zeros(rows.sides)
        self.times, self.sides = rows.times, rows.sides

    @property
    def nbytes(self) -> int:
        """Memory of all that is kept."""
        kept = sum(2 * sums.nbytes for sums, _ in self._kept.values())
        return self._rows.nbytes + kept

    def least(self, slowest_us: float, most_us: Array | None = None) -> Array:
        """Where no stage is slower than a time; of no interest beyond `most_us`.

        That is by GPUs, and not more of more of them.
        """
        most = self._most if most_us is None else most_us
        if slowest_us not in self._kept:
            insort(self._slowest, slowest_us)
        elif (self._kept[slowest_us][1] >= most).all():
            return self._kept[slowest_us][0]
        # The next time that is asked for is a little longer.
        most = np.minimum(self._most, most + _FURTHER * np.abs(most))
        if self._rows.whole(most):
            most = self._most
        self._kept[slowest_us] = self._rows.least(slowest_us, most), most
        return self._kept[slowest_us][0]

    def known(self, slowest_us: float) -> Array:
        """The same or less, without a walk: where stages may be slower, or no time."""
        place = bisect_left(self._slowest, slowest_us)
        if place == len(self._slowest):
            return self._none
        least, most = self._kept[self._slowest[place]]
        return np.maximum(0.0, np.minimum(least, most))

    def work(self, slowest_us: float) -> int:
        """Stages that are no slower than a time, times the numbers of GPUs."""
        return self._rows.work(slowest_us)

    def row(self, slowest_us: float) -> list[Laid]:
        """A row whose sum is the least; no stage in it is slower than a time."""
        return self._rows.least_row(slowest_us)

    def ranges(self, ratio: float) -> list[tuple[float, float]]:
        """Ranges of the slowest stage in us that grow by `ratio`.

        Those in which there is no row are left out.
        """
        if ratio not in self._ranges:
            found = intervals(self.times, ratio)
            first = bisect_left(
                found, True, key=lambda x: bool(self.least(x[1]).flat[-1] < np.inf)
            )
            self._ranges[ratio] = found[first:]
        return self._ranges[ratio]


def intervals(times: Array, ratio: float) -> list[tuple[float, float]]:
    """Ranges of ascending times: what they begin with, and the last time in each.

    They begin with powers of `ratio`, itself one of `FINEST`, whatever times there are:
    so a range of fewer times, or a finer one, never says less than a wider one.
    """
    finest = np.log(FINEST)
    steps = round(np.log(ratio) / finest)
    power = np.floor(np.log(np.maximum(times, 1.0)) / finest) // steps
    power[times < 1] = -1
    last = np.flatnonzero(np.diff(power, append=np.inf))
    lows = np.where(power < 0, 0.0, FINEST ** (power * steps) * (1 - _ROUNDED))
    return [(float(lows[i]), float(times[i])) for i in last]


class Kept:
    """Sums by their stages, as many as memory is given to, the last used."""

    def __init__(
        self, gpus: Sequence[int], most_us: float, check: Callable[[], None]
    ) -> None:
        """`gpus` are of each kind; `check()` is called before what takes long."""
        self._gpus, self.most_us, self._check = gpus, most_us, check
        self._sums: OrderedDict[bytes, Sums] = OrderedDict()
        self._digests: dict[Hashable, bytes] = {}

    def of(self, asked: Hashable, stages: Callable[[], Stages], runs: Runs) -> Sums:
        """The sums of the `stages` that are `asked` for, which are made if need be.

        Equal stages have the same sums, whatever was asked for.
        """
        key = self._digests.get(asked)
        if key is None or key not in self._sums:
            self._check()
            made = stages()
            key = self._digests[asked] = _digest(made)
            if key not in self._sums:
                self._sums[key] = Sums(Rows(made, runs, self._gpus), self.most_us)
                self._forget()
        self._sums.move_to_end(key)
        return self._sums[key]

    def _forget(self) -> None:
        while len(self._sums) > 1 and self._bytes() > _KEPT_BYTES:
            self._sums.popitem(last=False)

    def _bytes(self) -> int:
        return sum(sums.nbytes for sums in self._sums.values())


def _digest(stages: Stages) -> bytes:
    """Equal for equal stages."""
    digest = blake2b(digest_size=16)
    for table in (*stages.within, *stages.away, *stages.spread):
        digest.update(repr(table.shape).encode())  # the same numbers lie otherwise
        digest.update(np.ascontiguousarray(table).data)
    return digest.digest()
