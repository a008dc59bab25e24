"""`hetopt plan` without a plan: which other settings would make the model fit."""

import time
from dataclasses import replace

from ..bounds.impossible import unfit_settings
from ..modelling import Limits
from ..result import Result, Stop
from ..schema import Instance
from ..search.choosing import remedies

_MOST_S = 10.0


def remedied(result: Result, limits: Limits) -> Result:
    """The result with remedies among its reasons, where it has no plan.

    They are looked for after the work, for at most ten seconds of the time that the
    limits still leave; not after Ctrl-C.
    """
    if result.plan is not None or result.stop is Stop.INTERRUPTED:
        return result
    if result.problem != "training_plan" or not isinstance(result.data, Instance):
        return result
    if unfit_settings(result.data):  # then memory is not what is short
        return result
    seconds = _MOST_S if limits.time_s is None else min(_MOST_S, limits.time_s)
    start = time.monotonic()
    found = tuple(remedies(result.data, deadline=start + seconds, seed=limits.seed))
    spent = {**result.seconds, "remedies": time.monotonic() - start}
    return replace(result, reasons=(*result.reasons, *found), seconds=spent)
