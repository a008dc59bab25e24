"""Absence of a plan is explained: a proof by counting GPUs, settings that would fit."""

from dataclasses import replace

from ..bounds import covering
from ..bounds.impossible import unfit_settings
from ..clock import monotonic, wall
from ..modelling import Limits
from ..result import Result, Status, Stop
from ..schema import Instance
from ..search import choosing
from .shares import PORTFOLIO


def with_refutation(result: Result, limits: Limits) -> Result:
    """Return the result, or where it has no plan the proof that there is none.

    By counting GPUs, in a few seconds of what the limits leave; not after Ctrl-C.
    """
    if result.status is not Status.UNDECIDED or result.stop is Stop.INTERRUPTED:
        return result
    if (seconds := _seconds(limits)) <= 0:
        return result
    deadline = monotonic() + seconds
    if (why := covering.reason(result.data, deadline=deadline)) is None:
        return result
    return replace(result, reasons=(why,), status=Status.INFEASIBLE, stop=Stop.PROVED)


def add_remedies(result: Result, limits: Limits) -> Result:
    """Return the result with remedies among its reasons, where it has no plan.

    They are looked for after the work, for at most ten seconds of the time that the
    limits still leave; not after Ctrl-C.
    """
    if result.plan is not None or result.stop is Stop.INTERRUPTED:
        return result
    if result.problem != "training_plan" or not isinstance(result.data, Instance):
        return result
    if unfit_settings(result.data):
        return result  # memory is not what is short
    start, deadline = wall(), monotonic() + _seconds(limits)
    found = tuple(choosing.remedies(result.data, deadline=deadline, seed=limits.seed))
    spent = {**result.seconds, "remedies": wall() - start}
    return replace(result, reasons=(*result.reasons, *found), seconds=spent)


def _seconds(limits: Limits) -> float:
    left, most = limits.time_s, PORTFOLIO.remedies_s
    return most if left is None else min(left, most)
