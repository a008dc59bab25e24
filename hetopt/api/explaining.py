"""The module explains where time and memory of a plan go, and what would help."""

from typing import TYPE_CHECKING

from .calling import (
    AnyLimits,
    AnyPlan,
    AnyProblem,
    AnyProgress,
    limits_of,
    progress_of,
)
from .judging import posed_training
from .starts import known_of

if TYPE_CHECKING:
    from ..explaining import Explanation


def explain(
    plan: AnyPlan,
    instance: AnyProblem | None = None,
    *,
    known: bool = True,
    limits: AnyLimits = None,
    progress: AnyProgress = None,
) -> "Explanation":
    """Explain where the time and memory of a training plan go, and what would help.

    Changes of hardware, settings and plan are judged and planned again within `limits`
    (0 leaves them out); without a limit the same seed gives the same answer. Planning
    starts from this plan or from the library's best; with `known` false only from this
    one. `plan` and `instance` are as in `check`. Raises
    `InstanceError` for a plan that cannot be timed and `Unsupported` for a plan of
    another problem.
    """
    from ..explaining import explain

    data, made = posed_training(plan, instance)
    starts = known_of(data).starts(data) if known else ()
    others = [(one.source, one.plan, one.objective) for one in starts]
    heard = progress_of(progress).started
    return explain(data, made, limits_of(limits), heard, others)
