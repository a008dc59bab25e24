"""What a failing planner means for those beside it: a reason, and no more.

A planner may say that it has no plan (`NoPlan`), and it may fail: raise anything else,
or return a plan that the judge refuses. Where several are asked, the others go on and
the failure is told (`tried`); one that is asked for by name fails the call (`alone`).
`KeyboardInterrupt` passes through both.
"""

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from .. import problems
from ..errors import (
    HetoptError,
    MethodFailed,
    NoPlan,
    OutOfTime,
    PlanRejected,
    Unsupported,
)
from ..problems import Evaluation
from ..problems.training_plan import targets

Made = TypeVar("Made")


class Attempt(NamedTuple, Generic[Made]):
    """What was made, or why nothing was; `failed` tells a failure from `NoPlan`."""

    made: Made | None
    reason: str | None = None
    failed: bool = False


def alone(name: str, work: Callable[[], Made]) -> Attempt[Made]:
    """What `work` of the method `name` makes, where nothing else was asked for.

    Raises what is no word of there being no plan; what hetopt does not raise on purpose
    becomes `MethodFailed`.
    """
    try:
        return Attempt(work())
    except NoPlan as error:
        return Attempt(None, str(error))
    except OutOfTime:
        return Attempt(None, f"{name}: no plan was found in time")
    except HetoptError:
        raise
    except Exception as error:
        # The only place that takes them all: which ones a bug raises nobody knows.
        raise MethodFailed(name, error) from error


def tried(name: str, work: Callable[[], Made]) -> Attempt[Made]:
    """The same, where others are asked as well: every error of it is a reason."""
    try:
        return alone(name, work)
    except MethodFailed as error:
        return Attempt(None, str(error), failed=True)
    except Unsupported as error:
        return Attempt(None, str(error))
    except HetoptError as error:
        return Attempt(None, f"{name} failed: {error}; please report it", failed=True)


def judged(problem: str, data: Any, name: str, plan: Any) -> tuple[Any, Evaluation]:
    """A plan of the method `name` with its evaluation; `PlanRejected` if refused.

    Planners of papers know no targets: a plan that is right but for these is none.
    """
    found = problems.get(problem).evaluate(data, plan)
    if found.violations:
        if problem == "training_plan" and all(map(targets.of_target, found.violations)):
            raise NoPlan(f"{name}: {found.violations[0].by}")
        listed = "; ".join(map(str, found.violations[:5]))
        raise PlanRejected(f"{name} on {problem}: {listed}")
    return plan, found
