"""A part of a leaf, at prices: what its pipelines pay, and what they take.

A pipeline of n micro-batches of b sequences, whose GPUs have v virtual stages and
take t_j us, M the slowest, takes n M + (sum t_j - M) / v us or more. So within T, in
the interval [m, m'] of M, no more than b (v T + m - sum t_j) / (v m) sequences, and no
more than some W in all cases. Prices refute a box where each path pays for that: for
some share z of the first limit, from 0 to 1,

    z b Q sum t_j + v m price  >=  z b Q (v T + m) + (1 - z) Q W v m.

Intervals are not in the certificate: wide ones are divided, down to single times; and
any m up to the slowest stage will do, which a time that fails is tried with. Where
m is 0, so that n may be any number, z is 0, and any m > 0 says the same.
"""

from fractions import Fraction
from functools import cached_property
from itertools import pairwise

import numpy as np

from .paths import Paths
from .prices import NONE, Terms
from .segments import Segments
from .stages import Whole

WIDE = 1.25  # of intervals, to begin with
_PARTS = 4  # of an interval that was too wide
_BELOW = 64  # lower ends of an interval that are tried, one less
HALVES = 2, 1, 0  # of what a sequence is worth, that go by the limit by time

Span = tuple[int, int]  # of times, as places of the first one and past the last


class Leaf(Terms):
    """A part of a leaf: its pipelines, and prices."""

    @cached_property
    def times(self) -> Whole:
        """Times that the slowest stage may take."""
        times, high = self.part.options.times, self.part.left_us
        if self.box.count[1] == 1:
            high //= self.stages.batch // self.part.options.size
        if self.box.slowest[1] is not None:
            high = min(high, self.box.slowest[1])
        if self.box.slowest[0] > high:
            return times[:0]
        return times[: np.searchsorted(times, high, "right")]

    def ends(self, spans: list[Span]) -> tuple[Whole, Whole]:
        """Return the least slowest stage of each interval, and the largest."""
        lows = np.maximum(self.times[[x for x, _ in spans]], self.box.slowest[0])
        return lows, self.times[[y - 1 for _, y in spans]]

    def spans(self, ratio: float = WIDE) -> list[Span]:
        """Return intervals of all times that grow by a ratio."""
        found, at = [], 0
        while at < len(self.times):
            most = int(max(self.times[at], self.box.slowest[0]) * Fraction(str(ratio)))
            end = max(at + 1, int(np.searchsorted(self.times, most, "right")))
            found.append((at, end))
            at = end
        return found

    def is_wide(self, span: Span, ratio: float) -> bool:
        """Tell whether an interval has several times, which grow by more than that."""
        lows, highs = self.ends([span])
        several = span[1] - span[0] > 1
        return several and int(highs[0]) > int(lows[0]) * Fraction(str(ratio))

    def divided(self, span: Span) -> list[Span]:
        """Return the parts of an interval of several times."""
        begin, end = span
        low, high = int(self.times[begin]), int(self.times[end - 1])
        cuts = [low + (high - low) * i // _PARTS for i in range(1, _PARTS)]
        inner = {int(x) for x in np.searchsorted(self.times, cuts)}
        inner |= {(begin + end) // 2}
        edges = [begin, *sorted(x for x in inner if begin < x < end), end]
        return [*pairwise(edges)]

    def most(self, lows: Whole) -> Whole:
        """Return the most sequences of any pipeline, by the least slowest stage."""
        part = self.part
        most = np.full(len(lows), part.most, np.int64)
        if not part.spent_us:
            return most
        spare = part.left_us - part.spent_us
        able = part.options.size * (1 + max(0, spare) // np.maximum(lows, 1))
        able = able if spare >= 0 else np.zeros_like(lows)
        return np.where(lows == 0, most, np.minimum(most, able))

    def need(self, halves: int, lows: Whole, most: Whole) -> Whole:
        """Return what paths cost that are worth just what they cost.

        So many `halves` of what a sequence is worth go by time, the rest by the `most`
        sequences of any path.
        """
        part, scale = self.part, self.prices.scale
        v, mean = self.stages.costs.schedule.interleave, scale * halves // 2
        need = mean * part.options.size * (v * part.left_us + lows)
        need += (scale - mean) * most * v * lows
        found: Whole = need - v * lows * (self.prices.pipeline - self.prices.fewest)
        return found

    def us_cost(self, halves: int) -> int:
        """Return what a path costs for each us of its stages."""
        return self.prices.scale * halves // 2 * self.part.options.size

    # -- all pipelines ----------------------------------------------------------------

    def holds(self) -> bool:
        """Tell whether every pipeline pays for what it takes."""
        if not len(self.times):
            return True
        way = Segments(self) if self.stages.equal else Paths(self)
        spans = self.spans()
        while spans:
            some, spans = spans[-way.at_once :], spans[: -way.at_once]
            short = self._short(way, *self.ends(some))
            for span, failed in zip(some, short, strict=True):
                if failed and span[1] - span[0] > 1:
                    spans += self.divided(span)
                elif failed and not self._holds_below(way, int(self.times[span[0]])):
                    return False
        return True

    def _holds_below(self, way: Paths | Segments, high: int) -> bool:
        """Tell whether some lower end of an interval will do, whose last time it is.

        At lower ones paths that take longer than there is time for are worth less, and
        all others more.
        """
        lows = [high * i // _BELOW for i in range(_BELOW - 1, 0, -1)]
        some = np.array([low for low in lows if low], np.int64)
        for at in range(0, len(some), way.at_once):
            part = some[at : at + way.at_once]
            if not all(self._short(way, part, np.full_like(part, high))):
                return True
        return False

    def _short(self, way: Paths | Segments, lows: Whole, highs: Whole) -> list[bool]:
        """Tell of each interval whether a path may take more than it pays for."""
        found: list[bool] = (self.spare(way, lows, highs, enough=0)[0] < 0).tolist()
        return found

    def spare(
        self, way: Paths | Segments, lows: Whole, highs: Whole, enough: int = NONE
    ) -> tuple[Whole, Whole]:
        """Return by how much paths pay more than they take at the least, for each us.

        By interval, to `enough`; and the halves that say most. `NONE` where there is no
        path. Where stages take no time, the limit by time says nothing.
        """
        timeless = lows == 0
        most, lows = self.most(lows), np.maximum(lows, 1)
        v = self.stages.costs.schedule.interleave
        best, halves_of = np.full((2, len(lows)), -NONE, np.int64)
        for halves in HALVES:
            some = (best < enough) & ~(timeless & (halves > 0))
            if halves < HALVES[0]:
                # Paths may be limited by more than their time.
                us = self.part.options.size * (v * self.part.left_us + lows)
                some &= timeless | (most * v * lows < us)
            at = np.flatnonzero(some)
            if len(at):
                cost = way.least(self.us_cost(halves), lows[at], highs[at])
                more = (cost - self.need(halves, lows[at], most[at])) // (v * lows[at])
                more = np.where(cost < NONE // 2, more, NONE)
                halves_of[at] = np.where(more > best[at], halves, halves_of[at])
                best[at] = np.maximum(best[at], more)
        return best, halves_of
