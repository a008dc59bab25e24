"""A plan while one watches: the portfolio's search, heard of step by step."""

from time import monotonic

from .. import api, portfolio
from ..api.planning import answered
from ..api.starts import NOTHING, Known
from ..modelling import Limits
from ..portfolio import Hearing
from ..problems.training_plan import support
from ..result import Result
from ..schema import Instance


def searched(
    data: Instance, time_s: float, hearing: Hearing, known: Known = NOTHING
) -> Result | None:
    """Return what `hetopt.plan` finds in so many seconds, from what is known.

    The hearing is told of the cheap bound and of what is known before the search
    begins. Ctrl-C ends it and keeps what there is: None where that is nothing. Raises
    `Unsupported` where the program that has to run the plan can run none of the
    instance.
    """
    support.require(data)
    start, limits, starts = monotonic(), Limits(time_s), list[Result]()
    told = portfolio.Closing(hearing)
    try:
        told.knows(None, int(api.no_plan_is_shorter(data).value))
        if (proved := known.bound(data)) is not None:
            told.knows(None, int(proved.value))
        starts = known.results(data)
        for one in starts:
            told.knows(one.objective, None)
            hearing.tried(one.method.name, one)
        left = limits.after(monotonic() - start)
        found = portfolio.search(data, left, starts, told)
    except KeyboardInterrupt:  # before the search, which keeps what it has
        if not starts:
            return None
        found = portfolio.as_interrupted(starts[0])
    found = answered(found, known, limits.after(monotonic() - start))
    bound = None if found.bound is None else found.bound.value
    told.knows(found.objective, bound)
    return found
