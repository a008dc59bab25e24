"""Failures of a planner beside others: a reason, and no more.

A planner may say that it has no plan (`NoPlan`), and it may fail: raise anything else,
or return a plan that the judge refuses. Where several are asked, the others go on and
the failure is told; one that is asked for by name fails the call. `KeyboardInterrupt`
passes through.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .. import problems, registry
from ..errors import (
    Ending,
    HetoptError,
    InternalError,
    MethodFailed,
    NoPlan,
    OutOfTime,
    PlanRejected,
    PluginBroken,
    Unsupported,
)
from ..problems import Evaluation
from ..problems.training_plan import hosts, targets

Made = TypeVar("Made")


@dataclass
class Attempt(Generic[Made]):
    """A plan that was made, or why none was; `failed` tells a failure from `NoPlan`."""

    made: Made | None = None
    reason: str | None = None
    failed: bool = False


@contextmanager
def blaming(name: str) -> Iterator[None]:
    """Turn what goes wrong within into a fault of the method, where it is a plug-in.

    That is what it raises, and what the judge says of its plans: `PluginBroken`.
    """
    try:
        yield
    except (Ending, MemoryError):
        raise
    except (Exception, SystemExit) as error:
        on_purpose = isinstance(error, HetoptError)
        if on_purpose and not isinstance(error, InternalError):
            raise
        if (file := registry.source_of(name)) is None:
            raise
        raise PluginBroken.by(file, error) from error


@contextmanager
def trial(name: str, *, several: bool) -> Iterator[Attempt[Any]]:
    """Let the method `name` work within; a word that there is no plan is a reason.

    What hetopt does not raise on purpose becomes `MethodFailed`, of a plug-in
    `PluginBroken`. Where `several` methods are asked, every error is a reason; else it
    is raised.
    """
    found = Attempt[Any]()
    try:
        try:
            with blaming(name):
                yield found
        except (HetoptError, OutOfTime):
            raise
        except Exception as error:
            # The only place that takes them all: which ones a bug raises nobody knows.
            raise MethodFailed(name, error) from error
    except NoPlan as error:
        found.reason = str(error)
    except OutOfTime:
        found.reason = f"{name}: no plan was found in time"
    except HetoptError as error:
        if not several:
            raise
        found.failed = not isinstance(error, Unsupported)
        found.reason = str(error)
        if found.failed and not isinstance(error, MethodFailed | PluginBroken):
            found.reason = f"{name} failed: {error}; please report it"


def tried(
    name: str, work: Callable[[], Made], *, several: bool = True
) -> Attempt[Made]:
    """Return what `work` of the method `name` makes, as `trial` has it."""
    with trial(name, several=several) as found:
        found.made = work()
    return found


def judged(
    problem: str, data: object, name: str, plan: object
) -> tuple[Any, Evaluation]:
    """A plan of the method `name` with its evaluation; `PlanRejected` if refused.

    Planners of papers know no targets, and none knows the memory of hosts: a plan that
    is right but for these is none.
    """
    found = problems.get(problem).evaluate(data, plan)
    if found.violations:
        if problem == "training_plan" and all(map(targets.of_target, found.violations)):
            raise NoPlan(f"{name}: {found.violations[0].by}")
        if hosts.alone(found.violations):
            first = found.violations[0]
            raise NoPlan(f"{name}: {first.where}: {first.by}")
        listed = "; ".join(map(str, found.violations[:5]))
        raise PlanRejected(f"{name} on {problem}: {listed}")
    return plan, found
