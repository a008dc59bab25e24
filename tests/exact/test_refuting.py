"""Refutations that are stopped and gone on with, and cases that two ways settle."""

from collections.abc import Iterator
from functools import partial
from itertools import count
from math import inf

import pytest

from hetopt.bounds.training_plan import training_plan_bound
from hetopt.errors import OutOfTime
from hetopt.exact.pipelines.schedule import Goals
from hetopt.exact.training_plan.refuting import Clock, Tightening, Times, _Progress
from hetopt.files.clusters import generate
from hetopt.result import Bound
from hetopt.schema import Instance


class Known:
    """A bound that is tightened, and what proves it."""

    def __init__(self, value: int) -> None:
        self.bound: Bound | None = Bound(value, "before")
        self.objective = None
        self.certificate = None

    def tighten(self, value: int, source: str) -> None:
        assert value > self.bound.value
        self.bound = Bound(value, source)

    def check(self) -> None:
        pass


@pytest.fixture(params=["unequal", "steep"])
def cluster(request: pytest.FixtureRequest) -> Instance:
    return generate(request.param, size="8", seed=0)


def _stop(looks: Iterator[int], stops: set[int]) -> None:
    if next(looks) in stops:
        raise OutOfTime


def test_what_is_stopped_goes_on_where_it_ended(cluster: Instance) -> None:
    lowest = int(training_plan_bound(cluster).value)
    at_once, stopped = Known(lowest), Known(lowest)
    for known, stops in ((at_once, set[int]()), (stopped, {2**i for i in range(20)})):
        clock = Clock(inf)
        found = Tightening(cluster, Times(lowest, 2 * lowest), clock)
        clock._check = partial(_stop, count(1), stops)  # once it is prepared
        found._goals = _Progress(
            Goals(gaps=(0.9, 0.8), first=0.9, near=1.0, patience=0.05)
        )  # fine ones take long
        while not found.ended:
            found.tighten(known)
    assert at_once.bound == stopped.bound
    assert at_once.bound.value > lowest


def test_refuting_ends_with_the_clock_and_keeps_it(cluster: Instance) -> None:
    lowest = int(training_plan_bound(cluster).value)
    reached = []
    for most in (40, 3_000):
        known, clock = Known(lowest), Clock(most, now=count().__next__)
        Tightening(cluster, Times(lowest, 2 * lowest), clock).tighten(known)
        reached.append(known.bound.value)
    assert lowest <= reached[0] <= reached[1]
    assert lowest < reached[1] <= 2 * lowest


def reached_by(patient: float, least: float) -> tuple[float, int]:
    """The finest goal that is reached, and how many were asked for.

    Those from `least` on can be; those from `patient` on are not put off.
    """
    gaps = (1.0, 0.5, 0.2, 0.1, 0.0)
    goals = _Progress(Goals(gaps=gaps, first=0.5, near=0.01, patience=0.05))
    found, asked = inf, 0
    while (goal := goals.next()) is not None:
        asked += 1
        if goal < patient and not goals.last:
            goals.postpone()
        else:
            goals.tell(refuted=goal >= least)
            found = min(found, goal) if goal >= least else found
    return found, asked


@pytest.mark.parametrize("least", [0.0, 0.13, 0.2, 0.7, 1.0])
def test_goals_that_are_postponed_come_again(least: float) -> None:
    at_once, _ = reached_by(0.0, least)
    assert least <= at_once <= 1.06 * least + 0.01
    for patient in (0.05, 0.15, 0.6, 2.0):
        found, asked = reached_by(patient, least)
        assert least <= found <= 1.06 * least + 0.01
        assert asked < 40
