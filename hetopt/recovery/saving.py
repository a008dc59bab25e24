"""Policies choose when to save a job's states along a trace; one bound holds for all.

The trace, the plans and the moves are those of a replay. What is left of each plan's
time is T us of training, ended by a loss, or by a move or the end of the trace. A save
stops the training for `stall` us after an iteration, and is on disk `write` us after it
began; the next one waits for it. An iteration takes u us. A policy that saves after
every n iterations does in T us

    whole = T div (n u + stall) rounds, and then min(n, rest div u) iterations.

Where a loss ends them, those count whose save was on disk in time; else all of them
count. A notice of at least `write` us before a loss is one more save, begun after the
last iteration that leaves time for it.

Young (1974): save every sqrt(2 C M) us, C the stall, M the mean time between losses.
Daly (2006): sqrt(2 C M) (1 + sqrt(C / 2 M) / 3 + C / 18 M) - C for C < 2 M, else M.
`adaptive` is Daly's with the M that was seen so far, and knows nothing of what comes.
`searched` is the best of INTERVALS equal intervals, which knows the trace: no equal
interval among these is better, and a trace of another week may want another one.

Bound: who knows the trace saves once before each loss, as late as it can. Any policy
that keeps k iterations of T us up to a loss has them on disk, one save at least began
after them, so that k u + write <= T: no policy keeps more than (T - write) div u, and
after other ends none more than T div u.

Sources: Young, A first order approximation to the optimum checkpoint interval (CACM
1974); Daly, A higher order estimate of the optimum checkpoint interval for restart
dumps (FGCS 2006), equation 37.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isqrt, sqrt
from typing import NamedTuple

from .replay import Replay

#: Intervals that are tried, evenly by their logarithm, from one iteration to all time.
INTERVALS = 400
YOUNG, DALY, ADAPTIVE, SEARCHED = NAMES = ("young", "daly", "adaptive", "searched")


class Saves(NamedTuple):
    """A save costs time, in us: training stands still, and until it is on disk.

    `notice` is how long before a loss one hears of it; 0 where nobody says.
    """

    stall_us: int
    write_us: int
    notice_us: int = 0


class Span(NamedTuple):
    """Time that a plan trained without a break; `lost`: a loss ended it."""

    train_us: int
    iteration_us: int
    lost: bool


@dataclass(frozen=True)
class Outcome:
    """A policy along the spans: iterations that count, and what was done in vain."""

    policy: str
    interval_us: int | None  # the last one, where it changed
    kept: int
    redone: int
    kept_us: int  # iterations that count, times what each took
    saves: int


@dataclass(frozen=True)
class Compared:
    """Policies side by side; `bound_us` is training time that no policy exceeds."""

    spans: tuple[Span, ...]
    losses: int
    mean_us: int | None  # between losses; None without
    outcomes: tuple[Outcome, ...]
    bound: int
    bound_us: int

    def lost_us(self, one: Outcome) -> int | None:
        """Return what a loss cost under a policy: training that does not count."""
        if not self.losses:
            return None
        return self._each_us(one.kept_us)

    @property
    def least_lost_us(self) -> int | None:
        """Return what a loss costs at least, whatever the policy."""
        return self._each_us(self.bound_us) if self.losses else None

    def _each_us(self, kept_us: int) -> int:
        """Return training that does not count, by loss."""
        whole = sum(span.train_us for span in self.spans)
        return (whole - kept_us) // self.losses

    @property
    def best(self) -> Outcome:
        """The policy that keeps most of the training, the first of equals."""
        return max(self.outcomes, key=lambda one: one.kept_us)

    def behind(self, one: Outcome) -> float:
        """Return how far a policy is from the best one, as a share of that."""
        most = self.best.kept_us
        return (most - one.kept_us) / most if most else 0.0

    def gap(self, one: Outcome) -> float:
        """Return how far a policy is from what none exceeds, as a share of that."""
        return (self.bound_us - one.kept_us) / self.bound_us if self.bound_us else 0.0


def spans(replay: Replay) -> tuple[Span, ...]:
    """Return the spans of a replay, in the order of time."""
    found = []
    for leg in replay.legs:
        if (trained := leg.end_us - leg.run.ready_us) > 0:
            found.append(Span(trained, leg.run.iteration_us, leg.lost))
    return tuple(found)


def young_us(stall_us: int, mean_us: int) -> int:
    """Return Young's interval, of training between two saves."""
    return isqrt(2 * stall_us * mean_us)


def daly_us(stall_us: int, mean_us: int) -> int:
    """Return Daly's interval, of training between two saves."""
    if stall_us >= 2 * mean_us:
        return mean_us
    share = stall_us / (2 * mean_us)
    grown = sqrt(2 * stall_us * mean_us) * (1 + sqrt(share) / 3 + share / 9)
    return max(1, round(grown) - stall_us)


def compare(
    along: Sequence[Span],
    saves: Saves,
    policies: Sequence[str] = NAMES,
    intervals_us: Sequence[int] = (),
) -> Compared:
    """Return what policies, and further equal intervals, make of the spans."""
    losses = sum(span.lost for span in along)
    whole = sum(span.train_us for span in along)
    mean = whole // losses if losses else None
    longest = max((span.train_us for span in along), default=1)
    outcomes = []
    for name in policies:
        if name == ADAPTIVE:
            outcomes.append(_adaptive(along, saves))
        elif name == SEARCHED:
            outcomes.append(_search(along, saves))
        else:
            rule = young_us if name == YOUNG else daly_us
            every = longest if mean is None else max(1, rule(saves.stall_us, mean))
            outcomes.append(equal(along, saves, every, name))
    for every in intervals_us:
        outcomes.append(equal(along, saves, every, f"every {every / 10**6:g} s"))
    kept = [_most(span, saves) for span in along]
    bound_us = sum(n * span.iteration_us for n, span in zip(kept, along, strict=True))
    return Compared(tuple(along), losses, mean, tuple(outcomes), sum(kept), bound_us)


def equal(along: Sequence[Span], saves: Saves, every_us: int, name: str) -> Outcome:
    """Return what equal intervals of training make of the spans."""
    kept = redone = kept_us = written = 0
    for span in along:
        done, counted, began = _span(span, saves, every_us)
        kept += counted
        redone += done - counted
        kept_us += counted * span.iteration_us
        written += began
    return Outcome(name, every_us, kept, redone, kept_us, written)


def _adaptive(along: Sequence[Span], saves: Saves) -> Outcome:
    """Return what Daly's interval makes of the spans, by what was seen at each save.

    Without a loss so far, M is taken for the time so far, one iteration at least.
    """
    seen_us = losses = every_us = kept = redone = kept_us = written = 0
    for span in along:
        now_us = done = durable = begun = 0
        last_us = span.train_us - saves.write_us
        while True:
            mean_us = max((seen_us + now_us) // max(losses, 1), span.iteration_us)
            every_us = max(1, daly_us(saves.stall_us, mean_us))
            each = _each(span, saves, every_us)
            if now_us + each * span.iteration_us > span.train_us:
                break
            now_us += each * span.iteration_us
            done, begun = done + each, begun + 1
            durable = done if now_us <= last_us else durable
            now_us += saves.stall_us
        last = done + max(0, span.train_us - now_us) // span.iteration_us
        counted = durable if span.lost else last
        if span.lost and saves.notice_us >= saves.write_us and now_us <= last_us:
            counted, begun = done + (last_us - now_us) // span.iteration_us, begun + 1
        kept, redone, written = kept + counted, redone + last - counted, written + begun
        kept_us += counted * span.iteration_us
        seen_us += span.train_us
        losses += span.lost
    return Outcome(ADAPTIVE, every_us or None, kept, redone, kept_us, written)


def _search(along: Sequence[Span], saves: Saves) -> Outcome:
    least = min((span.iteration_us for span in along), default=1)
    most = max((span.train_us for span in along), default=1) + 1
    grow = (most / least) ** (1 / (INTERVALS - 1))
    tried = [equal(along, saves, round(least * grow**i), SEARCHED)
             for i in range(INTERVALS)]  # fmt: skip
    return max(tried, key=lambda one: (one.kept_us, one.interval_us or 0))


def _span(span: Span, saves: Saves, every_us: int) -> tuple[int, int, int]:
    """Return iterations that were done, those that count, and saves that were begun."""
    each = _each(span, saves, every_us)
    done, begun = _by(span, saves, each, span.train_us)
    if not span.lost:
        return done, done, begun
    # The last save that was on disk in time began `write_us` before the end at least.
    _, durable = _by(span, saves, each, span.train_us - saves.write_us)
    counted = durable * each
    if saves.notice_us >= saves.write_us:
        told, _ = _by(span, saves, each, span.train_us - saves.write_us)
        if told > counted:
            counted, begun = told, begun + 1
    return max(done, counted), counted, begun


def _each(span: Span, saves: Saves, every_us: int) -> int:
    """Return iterations between two saves, of which the second waits for the first."""
    waited_us = max(every_us, saves.write_us - saves.stall_us)
    return max(1, -(-waited_us // span.iteration_us))


def _by(span: Span, saves: Saves, each: int, time_us: int) -> tuple[int, int]:
    """Return iterations done, and saves begun, by a time."""
    if time_us <= 0:
        return 0, 0
    training = each * span.iteration_us
    rounds, rest = divmod(time_us, training + saves.stall_us)
    begun = rounds + (rest >= training)
    return rounds * each + min(each, rest // span.iteration_us), begun


def _most(span: Span, saves: Saves) -> int:
    """Return the most iterations of a span that any policy keeps."""
    time_us = span.train_us - (saves.write_us if span.lost else 0)
    return max(0, time_us) // span.iteration_us
