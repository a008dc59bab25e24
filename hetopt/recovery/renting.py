"""Policies choose when to rent what spot nodes leave behind; one bound holds for all.

The trace, the plans and the moves are those of a replay. Between two changes of nodes
there are s USD an hour of spot nodes, and m USD an hour would rent all others. In T us
the job keeps, of iterations,

    without them   those of the replay: k, spread evenly over the time
    with them      T / w, where w is an iteration on all nodes

Renting may begin at any time, and ends when all nodes are there again. Its beginning
costs `stop` us of training on all nodes, and so does each loss of spot nodes meanwhile:
what a break costs in the replay, moves and work done twice.

    never, always   rent nothing; rent whatever is away
    after T         rent once nodes have been away for T
    searched        the best of these T, which knows the trace

A policy is as good as its USD per iteration that counts, spot nodes included.

Bound: in every segment cost and iterations are linear in the time at which renting
begins, so that for any price of an iteration the best policy that knows the trace rents
for whole segments. These are found by dynamic programming over segments, and the price
at which they come to nothing (Dinkelbach 1967) is the least USD per iteration.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from ..schema import Instance
from .replay import Leg, Replay
from .replay.traces import Moment

_HOUR_US = 3600 * 10**6
NEVER, ALWAYS, SEARCHED = NAMES = ("never", "always", "searched")


class Segment(NamedTuple):
    """Time between two changes of nodes; prices are in USD an hour.

    `kept` are iterations that count without renting; `lost`: nodes left as it began.
    """

    time_us: int
    kept: Fraction
    there_usd: Fraction
    missing_usd: Fraction
    lost: bool


class Whole(NamedTuple):
    """The whole cluster: time of an iteration on it, and what a break costs, in us."""

    iteration_us: int
    stop_us: int


@dataclass(frozen=True)
class _Sum:
    """Money that was spent, and iterations that count."""

    usd: Fraction = Fraction()
    kept: Fraction = Fraction()

    def __add__(self, other: "_Sum") -> "_Sum":
        return _Sum(self.usd + other.usd, self.kept + other.kept)

    def value(self, price: Fraction) -> Fraction:
        """Return the money where an iteration brings a price."""
        return self.usd - price * self.kept


@dataclass(frozen=True)
class Rented:
    """A policy along the segments; `after_us` is how long it waits, None for ever."""

    policy: str
    after_us: int | None
    usd: Fraction
    kept: Fraction

    @property
    def each_usd(self) -> Fraction | None:
        """Return what an iteration costs; None where none counts."""
        return self.usd / self.kept if self.kept > 0 else None


@dataclass(frozen=True)
class Prices:
    """Policies side by side; none has an iteration for less than `bound_usd`."""

    outcomes: tuple[Rented, ...]
    bound_usd: Fraction | None

    @property
    def best(self) -> Rented | None:
        """The policy with the cheapest iterations, the first of equals."""
        able = [one for one in self.outcomes if one.kept > 0]
        return min(able, key=lambda one: one.usd / one.kept, default=None)

    def gap(self, one: Rented) -> Fraction | None:
        """Return how far a policy is from what none falls below, as a share of that."""
        if one.each_usd is None or not self.bound_usd:
            return None
        return one.each_usd / self.bound_usd - 1


def segments(
    replay: Replay, moments: Sequence[Moment], data: Instance, spot: Fraction
) -> tuple[Segment, ...]:
    """Return the segments of a replay; spot nodes cost a share of what renting does."""
    cluster = data.planned_cluster
    rate = {
        node.name: node.count * Fraction(str(cluster.gpus[node.gpu].usd_per_hour))
        for node in cluster.nodes
    }
    found, before = list[Segment](), set(cluster.node)
    for moment, following in pairwise(moments):
        there = set(moment.nodes)
        start, stop = moment.time_us, following.time_us
        found.append(
            Segment(
                stop - start,
                sum((_share(leg, start, stop) for leg in replay.legs), Fraction()),
                spot * sum((rate[name] for name in there), Fraction()),
                sum((r for name, r in rate.items() if name not in there), Fraction()),
                bool(before - there),
            )
        )
        before = there
    return tuple(found)


def _share(leg: Leg, start_us: int, stop_us: int) -> Fraction:
    """Return the iterations of a leg that fall into a time."""
    trained = leg.end_us - leg.run.ready_us
    own = min(stop_us, leg.end_us) - max(start_us, leg.run.ready_us)
    if trained <= 0 or own <= 0:
        return Fraction()
    return Fraction(leg.iterations * own, trained)


def break_us(replay: Replay) -> int:
    """Return what a break costs on average: its move, and work that is done twice."""
    tally = replay.tally
    return (tally.recovery_us + tally.redone_us) // max(1, tally.moves)


def compare(along: Sequence[Segment], whole: Whole) -> Prices:
    """Return what the policies make of the segments, and what none falls below."""
    tried = [_after(along, whole, wait, SEARCHED) for wait in sorted({*_waits(along)})]
    never = replace(tried[-1], policy=NEVER, after_us=None)
    found = [never, replace(tried[0], policy=ALWAYS)]
    if able := [one for one in tried if one.kept > 0]:
        # Of equals the one that waits longest: it rents least.
        best = min(reversed(able), key=lambda one: one.usd / one.kept)
        found.append(replace(best, after_us=None) if best is tried[-1] else best)
        return Prices(tuple(found), _least_usd(along, whole, best))
    return Prices(tuple(found), None)


def _without(one: Segment) -> _Sum:
    return _Sum(one.there_usd * one.time_us / _HOUR_US, one.kept)


def _within(one: Segment, whole: Whole, begin_us: int, *, rented: bool) -> _Sum:
    """Return a segment in which renting begins after a time, or went on before."""
    if not one.missing_usd or begin_us >= one.time_us:
        return _without(one)
    time_us = one.time_us - begin_us
    usd = one.there_usd * one.time_us + one.missing_usd * time_us
    stops = 1 if one.lost or not rented else 0
    kept = one.kept * begin_us / one.time_us
    kept += Fraction(time_us - stops * whole.stop_us, whole.iteration_us)
    return _Sum(usd / _HOUR_US, kept)


def _waits(along: Sequence[Segment]) -> Iterator[int]:
    """Yield how long nodes have been away at each change, and that of no renting."""
    away, longest = 0, 0
    yield 0
    for one in along:
        away = away + one.time_us if one.missing_usd else 0
        longest = max(longest, away)
        yield away
    yield longest + 1


def _after(along: Sequence[Segment], whole: Whole, wait_us: int, name: str) -> Rented:
    """Return what it comes to if renting begins once nodes have been away so long."""
    total, away, rented = _Sum(), 0, False
    for one in along:
        if not one.missing_usd:
            away, rented = 0, False
        begin_us = max(0, wait_us - away)
        total += _within(one, whole, begin_us, rented=rented)
        if one.missing_usd:
            rented, away = begin_us < one.time_us, away + one.time_us
    return Rented(name, wait_us, total.usd, total.kept)


def _least_usd(along: Sequence[Segment], whole: Whole, known: Rented) -> Fraction:
    """Return the least USD per iteration of any choice, from a known one down."""
    price = known.usd / known.kept
    while (best := _cheapest(along, whole, price)).value(price) < 0:
        price = best.usd / best.kept
    return price


def _cheapest(along: Sequence[Segment], whole: Whole, price: Fraction) -> _Sum:
    """Return the best choice of segments where an iteration brings a price."""

    def value(one: _Sum) -> Fraction:
        return one.value(price)

    found = {False: _Sum()}  # by whether nodes are rented
    for one in along:
        following = {False: min(found.values(), key=value) + _without(one)}
        if one.missing_usd:
            following[True] = min(
                (
                    before + _within(one, whole, 0, rented=rented)
                    for rented, before in found.items()
                ),
                key=value,
            )
        found = following
    return min(found.values(), key=value)
