"""The module has how users call hetopt: limits and progress.

`limits` is a number of wall seconds, a `Limits` or None, for no limit; the seconds are
for all that a function does from reading the instance on (in `compare`, for each
method). `progress` hears what is found meanwhile. Ctrl-C ends the work, and the result
holds what was known by then.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from .. import clock
from ..errors import UnknownName, Unsupported, WrongType, cut
from ..modelling import Limits
from ..plans import Plan
from ..result import Result
from ..schema import Instance, Record
from ..text.documents import Fields

Place = str | Path
Tree = Fields  # plain data, as a file would say it
AnyInstance = Place | Instance | Tree
AnyProblem = Place | Record | Tree
AnyPlan = Result | Place | Plan | Tree
Options = Fields
Words = Fields | Iterable[str]  # options by name, or each as `name=value`
Report = Callable[[Any, Any], None]


@runtime_checkable
class Progress(Protocol):
    """An object of this kind is told how far the work is."""

    @property
    def report(self) -> Report:
        """Called with the incumbent and the bound, each None while there is none.

        In `replay` with the changes that are done, and all.
        """

    @property
    def started(self) -> Callable[[str], None]:
        """Called with the name of each method before it begins."""


AnyLimits = Limits | float | None
AnyProgress = Progress | Report | None


class Listener(NamedTuple):
    """Progress that goes to these functions."""

    report: Report = lambda incumbent, bound: None
    started: Callable[[str], None] = lambda name: None


def not_one(what: str, found: object, expected: str) -> WrongType:
    """The error for an argument of a type that the function does not take."""
    shown = f"{cut(repr(found))} ({type(found).__name__})"
    return WrongType(f"{what}: found {shown}, expected {expected}", field=what)


def words_of(options: Words | None) -> list[str]:
    """Options as `name=value`, each as the command line takes it."""
    if isinstance(options, Mapping):
        return [f"{name}={value}" for name, value in options.items()]
    return [*(options or ())]


def several(instances: AnyProblem | Iterable[AnyProblem]) -> list[Any]:
    """The instances, or problems, of a function that takes one or several."""
    if isinstance(instances, str | Path | Record | Mapping):
        return [instances]
    if not isinstance(instances, Iterable):
        raise not_one("instances", instances, "one instance, or several in a list")
    return list(instances)


def limits_of(limits: AnyLimits, *, counts_work: bool = False) -> Limits:
    """The limits of a call; `Unsupported` for numbers that are none.

    And for a limit of work, where the function does not count its work, or several
    threads share it.
    """
    if not isinstance(limits, Limits | float | int | None):
        raise not_one("limits", limits, "a number of seconds, a hetopt.Limits or None")
    if not isinstance(limits, Limits):
        limits = Limits(time_s=limits)
    for word, value, least in (
        ("time_limit", limits.time_s, 0),
        ("gap", limits.gap, 0),
        ("threads", limits.threads, 1),
        ("seed", limits.seed, 0),
        ("work", limits.work, 0),
    ):
        if value is not None and (math.isnan(value) or value < least):
            raise Unsupported(f"{word} is {value}: expected at least {least}")
    if limits.work is not None and not counts_work:
        raise Unsupported("work is a limit of plan, solve and compare: give seconds")
    if limits.work is not None and limits.threads > 1:
        raise Unsupported(
            "--work needs a single thread, as the order of several is not fixed: leave "
            "out --threads"
        )
    return replace(limits, time_s=None) if limits.time_s == math.inf else limits


@contextmanager
def working(limits: Limits) -> Iterator[Limits]:
    """Limits to work within, whose seconds are counted where they limit work."""
    if limits.work is None:
        yield limits
        return
    with clock.counting(limits.work, limits.time_s) as seconds:
        yield replace(limits, time_s=seconds, work=None)


def done(found: Result, limits: Limits) -> Result:
    """The result of a method that says what work it might do."""
    return replace(found, method=replace(found.method, work=limits.work))


def worked(limits: Limits, find: Callable[..., Result]) -> Result:
    """What is found within `limits` of work or of time."""
    with working(limits) as mine:
        return done(find(limits=mine), limits)


def progress_of(progress: AnyProgress) -> Progress:
    """Progress with both of its functions; one function alone is its `report`."""
    if progress is None:
        return Listener()
    return progress if isinstance(progress, Progress) else Listener(report=progress)


def refuse_unknown(kind: str, names: Iterable[str], known: list[str]) -> None:
    """`UnknownName` for a name that is not there."""
    for name in names:
        if name not in known:
            raise UnknownName(kind, name, known)
