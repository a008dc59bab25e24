"""Ever better iteration times are refuted, while they can be.

What is out of time goes on later where it ended: its goals, the boxes of the one that
it was at, and which of them are settled are kept. A goal that takes long is postponed:
one that can be refuted is often done in seconds, and one that cannot never is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from fractions import Fraction
from math import inf
from typing import NamedTuple

from ... import capability
from ...bounds.training_plan import training_plan_bound
from ...clock import monotonic
from ...errors import OutOfTime
from ...plans import TrainingPlan
from ...problems.training_plan import settings
from ...schema import Instance
from ...solving.certificates import BoxCertificate, joined
from ...solving.run import Run
from ..enumeration.boxes import BoxEnumeration, is_enumerated
from ..pipelines.bound import PipelineBound, Refutation
from ..pipelines.schedule import Goals, Schedule

_PRICED = "linear-programming bound"
_LISTED = "linear-programming bound, enumeration where it leaves a gap"
Records = list[BoxCertificate | None]
_LOOKS = 10_000  # at the clock, for what shares are of where there is no time limit


class Times(NamedTuple):
    """Iteration times to refute: those from `lowest_us` to `highest_us`.

    The first is proved, the last is that of a plan. No pipeline of micro-batches of one
    sequence takes less than `alone_us` by itself.
    """

    lowest_us: int
    highest_us: int
    alone_us: int = 0


class _Postponed(OutOfTime):
    """The goal that is at work has had the time that it was allowed."""


class Clock:
    """When something ends, and the part of it that is at work."""

    def __init__(
        self,
        end: float,
        check: Callable[[], None] = lambda: None,
        now: Callable[[], float] = monotonic,
        whole: float | None = None,
    ) -> None:
        """`end` is as `now()` tells instants; `check()` may end it before.

        Shares are of the `whole`, in place of what is left until the end.
        """
        self._check, self._now, self._end, self._last = check, now, end, end
        self._whole = end - now() if whole is None else whole
        self._allowed = inf

    def check(self) -> None:
        """Raise what `check()` does, and `OutOfTime` at the end of the part."""
        self._check()
        now = self._now()
        if now > self._end:
            raise OutOfTime
        if now > self._allowed:
            raise _Postponed

    @contextmanager
    def allowing(self, span: float) -> Iterator[Callable[[], float]]:
        """Postpone what takes longer; gives what tells how long it has taken."""
        begun = self._now()
        self._allowed = begun + span
        try:
            yield lambda: self._now() - begun
        finally:
            self._allowed = inf

    def span(self, share: float) -> float:
        """How long a share of the whole is."""
        return share * self._whole

    @contextmanager
    def ending(self, share: float) -> Iterator[None]:
        """End a part when a share of the whole is over, or with the whole."""
        self._end = min(self._last, self._now() + self.span(share))
        try:
            yield
        finally:
            self._end = self._last


def endless(check: Callable[[], None]) -> Clock:
    """Without a time limit, ways take turns by how often they look at the clock.

    So what is proved does not depend on how fast the machine is.
    """
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        check()

    return Clock(inf, look, lambda: looks, _LOOKS)


class Tightening:
    """Refutes ever better times by prices, under every choice of settings."""

    def __init__(
        self,
        instance: Instance,
        times: Times,
        clock: Clock,
        schedule: Schedule = Schedule(),  # noqa: B008 -- frozen
        offer: Callable[[TrainingPlan], int] | None = None,
    ) -> None:
        """Begin with these times; nothing is refuted where prices do not carry this.

        Where plans may be offered (`offer` returns their time), boxes are closed by
        listing all of their plans, too.
        """
        self._schedule, self._clock, self._lowest = schedule, clock, times.lowest_us
        #: Whether nothing is left to do.
        self.ended = not capability.carries("proof pipelines", instance)
        several = len(settings.split_variants(instance)) > 1
        lightest = () if self.ended else settings.lightest(instance)
        self._bounds = list[PipelineBound]()
        self._listing: BoxEnumeration | None = None
        place = dict[int, int]()  # of the bound, by number of a variant
        for number in sorted({*lightest}):
            variant = settings.variants(instance)[number]
            if several and training_plan_bound(variant).value >= times.highest_us:
                continue  # no plan of this way to divide is better
            place[number] = len(self._bounds)
            self._bounds.append(
                PipelineBound(
                    *(variant, times.highest_us, times.lowest_us, clock.check),
                    schedule=schedule,
                    alone_us=times.alone_us,
                    whole=True,
                )
            )
            if offer and is_enumerated(instance):
                self._listing = BoxEnumeration(
                    variant, times.highest_us, offer, clock.check
                )
                self._bounds[-1].listed = self._listing.closes
        #: Bounds whose certificates are of the choices; none where one has none.
        self._certified = list[int]()
        if {*lightest} <= {*place}:
            self._certified = [place[x] for x in lightest]
        self._few = all(bound.few for bound in self._bounds)
        self._begin(times.highest_us)
        self._at = -inf  # the time that is being refuted, under these choices
        self._begun: dict[int, Refutation] = {}
        self._spent = 0.0  # on goals that were reached

    def _begin(self, highest_us: int) -> None:
        plan = self._schedule
        self._highest = highest_us
        # Where all goals lie beyond what is proved, small steps take too long.
        is_far = highest_us > (1 + plan.goals.first) * self._lowest
        self._goals = _Progress(plan.few_goals if self._few or is_far else plan.goals)

    def tighten(self, run: Run, share: float = inf) -> None:
        """Tighten the bound of a run for a share of the time, from where it was."""
        with suppress(OutOfTime), self._clock.ending(share):
            while self._bounds:
                if run.objective is not None and run.objective < self._highest:
                    self._begin(int(run.objective))
                goal = self._goals.next()
                if goal is None:
                    self.ended = True
                    break
                # Nothing below the goal: at 0, nothing better than the incumbent.
                ratio = 1 + Fraction(goal)  # floats would round times of 17 digits up
                target = int(self._highest / ratio) - (1 if goal == 0 else 0)
                assert run.bound is not None
                if target <= run.bound.value:
                    self._goals.tell(refuted=True)
                elif (records := self._certificates(target)) is not None:
                    self._take(run, target, records)

    def _take(self, run: Run, target: int, records: Records) -> None:
        least, certificate, source = target + 1, None, _PRICED
        if self._certified:
            certificate = joined([records[i] for i in self._certified])
        if self._listing is not None:
            least = min(least, self._listing.value)
            if self._listing.closed and certificate is None:
                source = _LISTED
        run.tighten(least, source)
        run.certificate = certificate
        run.check()

    def _certificates(self, target: int) -> Records | None:
        """Return what refutes a time under each choice of settings, if anything.

        None where it cannot be refuted, or is postponed. The choice that was last to
        stand is asked first next time.
        """
        if target != self._at:
            self._at, self._begun = target, {}
        boxes = [len(bound.boxes) for bound in self._bounds]
        order = sorted(
            range(len(boxes)), key=lambda i: (i not in self._begun, -boxes[i])
        )
        span = max(self._clock.span(self._goals.patience), self._spent)
        try:
            with self._clock.allowing(inf if self._goals.last else span) as taken:
                proved = all(self._proves(i, target) for i in order)
        except _Postponed:
            # What is tried next settles the same cases, for another time.
            self._at = -inf
            self._goals.postpone()
            return None
        self._goals.tell(refuted=proved)
        if not proved:
            return None
        self._spent += taken()
        return [self._begun[i].certificate() for i in range(len(boxes))]

    def _proves(self, i: int, target: int) -> bool:
        """Go on with the refutation of a time by one of the bounds, to its end."""
        if i not in self._begun:
            self._begun[i] = self._bounds[i].refute(target)
        while self._begun[i].step():
            self._clock.check()
        return self._begun[i].proved


class _Progress:
    """Gaps that are asked for, each after what became of the last."""

    def __init__(self, goals: Goals) -> None:
        """Begin with the first of the goals."""
        self._goals = goals
        self._reached, self._failed = inf, -inf
        self._postponed: list[float] = []
        self._goal: float | None = None
        self.last = False  # nothing is postponed any more

    def next(self) -> float | None:
        """The next one; None where there is none."""
        if self._goal is None and not self.last:
            self._goal = self._between()
            self.last = self._goal is None
        if self._goal is None:
            self._goal = self._postponed.pop(0) if self._postponed else self._between()
        return self._goal

    def tell(self, *, refuted: bool) -> None:
        """Take what became of the last one."""
        goal = self._take_goal()
        if refuted:
            self._reached = goal
        else:
            self._failed = max(self._failed, goal)
        left = (gap for gap in self._postponed if self._failed < gap < self._reached)
        self._postponed = list(left)

    def postpone(self) -> None:
        """The last one takes long: easier ones come before it."""
        self._postponed = sorted([*self._postponed, self._take_goal()], reverse=True)

    def _take_goal(self) -> float:
        goal, self._goal = self._goal, None
        assert goal is not None
        return goal

    @property
    def patience(self) -> float:
        """Return the share of the time after which the next one is postponed."""
        goals = self._goals
        first = goals.first_patience if self._reached == inf else 1.0
        return min(goals.patience, first)

    def _between(self) -> float | None:
        """One between what is reached and what is hard, or the next of the gaps."""
        # Of those that failed or are postponed the easiest is hard.
        reached, hard = self._reached, max([self._failed, *self._postponed])
        goals = self._goals
        if reached == inf and hard == -inf:
            return goals.first
        if reached == inf:
            easier = [gap for gap in goals.gaps if gap > hard]
            enough = (gap for gap in easier if gap > goals.easier * hard)
            return min(enough, default=max(easier, default=None))
        if hard == -inf:
            return max((gap for gap in goals.gaps if gap < reached), default=None)
        far = reached - hard >= max(goals.near, goals.near_part * hard)
        return (reached + hard) / 2 if far else None
