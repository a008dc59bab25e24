"""Exact layer partition: paths on a lattice, a statement that CP-SAT proves.

A node of the lattice counts the stages of each kind that stand in front. Where there
are too many nodes or runs of layers, the statement with cuts takes its place.

Source: the problem is AutoHet's, Eq. 4; the method is our own.
"""

from dataclasses import replace
from typing import Any

from ..errors import Unsupported
from ..modelling import Limits
from ..plans import Partition
from ..problems.layer_partition import Data
from ..result import Result, Status
from ..solving import statements
from ..solving.run import Report

problem = "layer_partition"

_BACKEND = "cpsat"


def solve(
    data: Data,
    *,
    limits: Limits | None = None,
    warm_start: Partition | None = None,
    report: Report | None = None,
) -> Result:
    """Return the best partition with proof, or the best known and a bound at a limit.

    `InstanceError` where `warm_start` breaks a rule.
    """
    given = limits or Limits()
    found = _solved(data, limits=given, warm_start=warm_start, report=report)
    if found.status is Status.INFEASIBLE:
        left = given.after(sum(found.seconds.values()))
        found = replace(found, reasons=(_why_none(data, left),))
    return replace(found, method=replace(found.method, name=problem))


def _solved(data: Data, **how: Any) -> Result:
    try:
        named = "layer_partition_lattice"
        return statements.solve(problem, data, named, _BACKEND, **how)
    except Unsupported:
        named = "layer_partition_cuts"
        return statements.solve(problem, data, named, _BACKEND, **how)


def _why_none(data: Data, limits: Limits) -> str:
    """Return what a problem without a plan lacks: layers, or memory of stages.

    The memory is what is proved to be missing within the limits.
    """
    layers, stages = len(data.layer_mib), len(data.stages)
    if layers < stages:
        return (
            f"layers: {layers} there are, {stages} stages need one each, "
            f"{stages - layers} too few"
        )
    needs = map(data.needs, data.stages)
    most = max(sum(once) + data.micro_batches * sum(each) for once, each in needs)
    few = 0  # MiB more for every stage with which no partition fits
    while most - few > 1 and limits.time_s != 0:
        middle = (few + most) // 2
        larger = [
            stage.model_copy(update={"memory_mib": stage.memory_mib + middle})
            for stage in data.stages
        ]
        found = _solved(
            data.model_copy(update={"stages": tuple(larger)}), limits=limits
        )
        limits = limits.after(sum(found.seconds.values()))
        if found.status is Status.UNDECIDED:
            break
        few, most = (few, middle) if found.plan is not None else (middle, most)
    where = "in the given order" if data.order == "given" else "in any order"
    return (
        f"memory: no partition fits {where}; every stage needs at least {few + 1} MiB "
        "more"
    )
