"""Absence of a plan is explained: a proof by counting GPUs, settings that would fit."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from ..bounds import covering
from ..bounds.impossible import unfit_settings
from ..clock import monotonic, wall
from ..costs import under
from ..modelling import Limits
from ..problems.training_plan.settings import state_choices
from ..result import Result, Status, Stop
from ..schema import Instance
from ..search.grid import RULES
from ..search.quick import replanned, time_of
from .shares import PORTFOLIO

_ROUNDS = 1_000  # candidates of a local search under one setting
_NAMES = {"recompute": "recomputation {}", "zero": "ZeRO-{}"}


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
    found = tuple(remedies(result.data, deadline=deadline, seed=limits.seed))
    spent = {**result.seconds, "remedies": wall() - start}
    return replace(result, reasons=(*result.reasons, *found), seconds=spent)


def _seconds(limits: Limits) -> float:
    left, most = limits.time_s, PORTFOLIO.remedies_s
    return most if left is None else min(left, most)


def remedies(
    instance: Instance, *, deadline: float | None = None, seed: int = 0
) -> Iterator[str]:
    """For an instance without a plan: settings not offered under which there is one.

    A sentence for each, with the iteration time of the best plan that was found, and
    one where no setting helps. One setting is changed; both where that does not help.
    """
    tried = helped = 0
    costs = instance.workload.costs
    own: dict[str, Any] = {
        "recompute": costs.compute.recompute,
        "zero": costs.updates.zero,
    }
    for changed in _not_offered(instance, own):
        if len(changed) > 1 and helped:
            break
        if deadline is not None and monotonic() >= deadline:
            break
        mine = under(instance, **{**own, **changed})
        if not state_choices(mine):
            continue  # the target has no such setting
        tried += 1
        found = replanned(mine, None, rounds=_ROUNDS, deadline=deadline, seed=seed)
        us = None if found is None else time_of(mine, found)
        if us is None:
            continue
        helped += 1
        names = " with ".join(_NAMES[k].format(v) for k, v in changed.items())
        options = " ".join(f"-o {k}={v}" for k, v in changed.items())
        time_s = f"{us / 1e6:,.1f} s" if us >= 10**6 else f"{us / 1e3:,.1f} ms"
        yield (
            f"{names} fits: {time_s} per iteration (`assemble {options}`, "
            "or in workload.costs)"
        )
    if tried and not helped:
        late = deadline is not None and monotonic() >= deadline
        yield (
            f"none of {tried} other settings of recomputation and ZeRO was found to fit"
            f"{' in the time that was left' if late else ''}"
        )


def other_settings(instance: Instance) -> dict[str, list[Any]]:
    """Return other rules of recomputation and of ZeRO, where costs tell them apart.

    Measured times are those of one rule, and what checkpoints alone are said to take
    (`activations: checkpoint`) is not all that other rules take.
    """
    found: dict[str, list[Any]] = {"recompute": [], "zero": []}
    costs = instance.workload.costs
    timed = costs.compute.layer_times == "profile"
    if not timed and costs.memory.activations != "checkpoint":
        found["recompute"] = [x for x in RULES if x != costs.compute.recompute]
    if not any(row.layer_mib for row in costs.compute.profile):
        found["zero"] = [x for x in range(4) if x != costs.updates.zero]
    return found


def _not_offered(instance: Instance, own: dict[str, Any]) -> list[dict[str, Any]]:
    """Return changes of recomputation and of ZeRO, those of one first."""
    workload = instance.workload
    every = ((own[name], *more) for name, more in other_settings(instance).items())
    changes = [
        {key: value for key, value in zip(own, pair, strict=True) if value != own[key]}
        for pair in product(*every)
        if pair[0] not in workload.recomputes or pair[1] not in workload.zeros
    ]
    return sorted(changes, key=len)
