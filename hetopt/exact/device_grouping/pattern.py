"""Patterns: what one group may hold, by counts of each kind of device.

A group of P devices of total strength S has the ratio S / (K + P - 1). Asked for D
groups of a ratio of at least r = num/den (or above it), a group is worth

    slack = sum_i x_i (den g_i - num) - num (K - 1)  >=  0   (>= 1 when above)

which is linear in the counts x: the group pays num (K - 1), device i brings
w_i = den g_i - num. Summed over all groups the slack is known beforehand, W, so no
group has more than W to itself; near the best r few patterns remain.

A kind with w_i >= 0 is *harmless*: more of it never spoils a group. So it is enough
to look at groups from which no harmless device can be taken away, and to place the
devices left over anywhere afterwards. Harmful kinds must be placed exactly.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from ...plans import Group, Grouping
from ...problems.device_grouping import Data

Array = Any  # integers: int64, or Python's own where int64 would overflow
_SAFE = 2**61
_PIECE = 100_000
MOST = 300_000


class TooMany(Exception):
    """More patterns than can be handled."""


@dataclass(frozen=True)
class Kinds:
    """Device types with equal strength and memory are one kind."""

    count: tuple[int, ...]
    gflops: tuple[int, ...]
    memory_mib: tuple[int, ...]
    floor_mib: int

    @classmethod
    def of(cls, data: Data) -> "Kinds":
        """The kinds of a problem, strongest first."""
        counts: Counter[tuple[int, int]] = Counter()
        for gpu in data.gpus:
            counts[gpu.gflops, gpu.memory_mib] += gpu.count
        kinds = sorted(counts, reverse=True)
        return cls(
            count=tuple(counts[kind] for kind in kinds),
            gflops=tuple(g for g, _ in kinds),
            memory_mib=tuple(m for _, m in kinds),
            # Every device has memory: a floor of 1 MiB says "not empty".
            floor_mib=max(1, data.minimum_memory_mib),
        )

    @property
    def devices(self) -> int:
        """Number of devices N."""
        return sum(self.count)

    @cached_property
    def strength(self) -> int:
        """Compute of all devices."""
        return sum(g * c for g, c in zip(self.gflops, self.count, strict=True))

    @cached_property
    def memory(self) -> int:
        """Memory of all devices."""
        return sum(m * c for m, c in zip(self.memory_mib, self.count, strict=True))

    def closed_form(self, groups: int, k: int) -> Fraction:
        """No D groups all have a ratio above this: the mean, bubbles included."""
        return Fraction(self.strength, self.devices + groups * (k - 1))

    def ratio(self, counts: tuple[int, ...], k: int) -> Fraction:
        """Ratio of one group."""
        strength = sum(g * x for g, x in zip(self.gflops, counts, strict=True))
        return Fraction(strength, k + sum(counts) - 1)


@dataclass(frozen=True)
class Question:
    """Are there `groups` groups, each of a ratio of at least (or above) `ratio`?"""

    kinds: Kinds
    groups: int
    k: int
    ratio: Fraction
    above: bool = True

    @cached_property
    def weights(self) -> tuple[int, ...]:
        """Return what one more device of each kind adds to the slack of a group."""
        num, den = self.ratio.numerator, self.ratio.denominator
        return tuple(den * g - num for g in self.kinds.gflops)

    @cached_property
    def harmless(self) -> tuple[bool, ...]:
        """Kinds of which a group may always take one more."""
        return tuple(w >= 0 for w in self.weights)

    @cached_property
    def price(self) -> int:
        """Return what a group pays before its first device, above 0 slack."""
        return self.ratio.numerator * (self.k - 1) + int(self.above)

    @cached_property
    def spare(self) -> int:
        """Slack that all groups share; negative: there is no such grouping."""
        total = sum(w * c for w, c in zip(self.weights, self.kinds.count, strict=True))
        return total - self.groups * self.price

    @cached_property
    def spare_mib(self) -> int:
        """Memory beyond the floors of all groups; negative: no such grouping."""
        return self.kinds.memory - self.groups * self.kinds.floor_mib

    def refuted_by_totals(self) -> bool:
        """Tell whether strength, memory or number of the devices say no already."""
        return min(self.spare, self.spare_mib) < 0 or self.groups > self.kinds.devices

    @cached_property
    def dtype(self) -> Any:
        """Return the type of slack: Python's integers where 64 bits may not do."""
        largest = self.kinds.devices * max(map(abs, self.weights)) + self.price
        return np.int64 if max(largest, self.kinds.memory) < _SAFE else object


def patterns(question: Question, effort: int, check: Callable[[], None]) -> Array:
    """All minimal patterns, one a row, kinds in order.

    `TooMany` where `effort` rows do not suffice to look through them, or more than
    `MOST` of them are found.
    """
    width = len(question.kinds.count)
    # Harmful kinds first, so that slack only grows afterwards; the lightest kind
    # last, where its count is forced.
    order = sorted(
        range(width), key=lambda i: (question.harmless[i], -question.weights[i])
    )
    start = _Partial(
        np.zeros((1, width), dtype=np.int64),
        np.array([-question.price], dtype=question.dtype),
        np.array([-question.kinds.floor_mib], dtype=np.int64),
    )
    stack, found, looked_at = [(0, start)], [np.zeros((0, width), dtype=np.int64)], 0
    while stack:
        step, partial = stack.pop()
        if step == width:
            found.append(partial.rows[_minimal(question, partial)])
            if sum(map(len, found)) > MOST:
                raise TooMany
            continue
        check()
        for piece in _extended(question, order, step, partial):
            looked_at += len(piece.rows)
            if looked_at > effort:
                raise TooMany
            stack.append((step + 1, piece))
    return np.concatenate(found)


@dataclass(frozen=True)
class _Partial:
    """Patterns under construction: counts, and slack and memory beyond the least."""

    rows: Array
    slack: Array
    room: Array


def _extended(
    question: Question, order: list[int], step: int, partial: _Partial
) -> Iterator[_Partial]:
    """Every way to take devices of the next kind, in pieces that fit in memory."""
    i = order[step]
    low, high = _range(question, order[step + 1 :], i, partial.slack, partial.room)
    keep = np.flatnonzero(high >= low)
    low, times = low[keep].astype(np.int64), (high - low + 1)[keep].astype(np.int64)
    ends = np.cumsum(times)
    at = 0
    while at < len(keep):
        # The rows whose extensions start within one piece.
        past = ends[at] - times[at] + _PIECE
        to = max(at + 1, int(np.searchsorted(ends, past, side="right")))
        many, chosen = times[at:to], keep[at:to]
        offset = np.arange(int(many.sum())) - np.repeat(np.cumsum(many) - many, many)
        taken = np.repeat(low[at:to], many) + offset
        rows = np.repeat(partial.rows[chosen], many, axis=0)
        rows[:, i] = taken
        yield _Partial(
            rows,
            np.repeat(partial.slack[chosen], many)
            + taken.astype(question.dtype) * question.weights[i],
            np.repeat(partial.room[chosen], many)
            + taken * question.kinds.memory_mib[i],
        )
        at = to


def _range(
    question: Question, later: list[int], i: int, slack: Array, room: Array
) -> tuple[Array, Array]:
    """Least and most devices of kind i that a row can still take."""
    kinds, weight, size = question.kinds, question.weights[i], question.kinds.memory_mib
    reach = sum(max(0, question.weights[j]) * kinds.count[j] for j in later)
    reach_mib = sum(size[j] * kinds.count[j] for j in later)
    low = np.maximum(0, -((room + reach_mib) // size[i]))
    high = np.minimum(kinds.count[i], (question.spare_mib - room) // size[i])
    if weight < 0:
        return low, np.minimum(high, (slack + reach) // -weight)
    if weight == 0:
        short = np.where(slack < 0, kinds.count[i], 0)
        low = np.where(slack + reach < 0, kinds.count[i] + 1, low)
    else:
        short = -(slack // weight)
        low = np.maximum(low, -((slack + reach) // weight))
        high = np.minimum(high, (question.spare - slack) // weight)
    useful = np.maximum(0, np.maximum(short, -(room // size[i])))
    return low, np.minimum(high, useful)


def _minimal(question: Question, partial: _Partial) -> Array:
    """Rows within the spare slack that no harmless device can leave."""
    rows, slack, room = partial.rows, partial.slack, partial.room
    keep = (slack <= question.spare) & (room <= question.spare_mib)
    for i, harmless in enumerate(question.harmless):
        if harmless:
            loose = (slack >= question.weights[i]) & (
                room >= question.kinds.memory_mib[i]
            )
            keep &= ~((rows[:, i] > 0) & loose)
    return keep.astype(bool)


def complete(
    question: Question, groups: list[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """The groups with the devices left over, each given to the weakest group."""
    kinds = question.kinds
    left = np.array(kinds.count) - np.sum(np.array(groups), axis=0)
    found = [list(group) for group in groups]
    for i in np.flatnonzero(left):
        for _ in range(int(left[i])):
            weakest = min(found, key=lambda g: kinds.ratio(tuple(g), question.k))
            weakest[i] += 1
    return [tuple(group) for group in found]


def to_plan(data: Data, kinds: Kinds, groups: list[tuple[int, ...]]) -> Grouping:
    """Groups by kinds as a plan by types; types of one kind are dealt in order."""
    keys = list(zip(kinds.gflops, kinds.memory_mib, strict=True))
    stock: list[list[list[Any]]] = [
        [[g.type, g.count] for g in data.gpus if (g.gflops, g.memory_mib) == key]
        for key in keys
    ]
    found: Counter[tuple[tuple[str, int], ...]] = Counter()
    for group in sorted(groups, reverse=True):
        found[tuple(sorted(_deal(stock, group).items()))] += 1
    return Grouping(
        groups=tuple(
            Group(gpus=dict(gpus), copies=copies) for gpus, copies in found.items()
        )
    )


def _deal(stock: list[list[list[Any]]], group: tuple[int, ...]) -> dict[str, int]:
    gpus: dict[str, int] = {}
    for kind, wanted in enumerate(group):
        while wanted:
            name, there = stock[kind][0]
            dealt = min(wanted, there)
            gpus[name] = gpus.get(name, 0) + dealt
            stock[kind][0][1] -= dealt
            if dealt == there:
                stock[kind].pop(0)
            wanted -= dealt
    return gpus
