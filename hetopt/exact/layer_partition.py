"""Exact layer partition: paths on a lattice, a statement that CP-SAT proves.

A node of the lattice counts the stages of each kind that stand in front. Where there
are too many nodes or runs of layers, the statement with cuts takes its place.

Source: the problem is AutoHet's, Eq. 4; the method is our own.
"""

from dataclasses import replace

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

    def by(statement: str) -> Result:
        return statements.solve(
            *(problem, data, statement, _BACKEND),
            limits=limits,
            warm_start=warm_start,
            report=report,
        )

    try:
        found = by("layer_partition_lattice")
    except Unsupported:
        found = by("layer_partition_cuts")
    if found.status is Status.INFEASIBLE:
        found = replace(found, reasons=(_why_none(data),))
    return replace(found, method=replace(found.method, name=problem))


def _why_none(data: Data) -> str:
    """Return what a problem without a plan lacks: layers, or memory of stages."""
    layers, stages = len(data.layer_mib), len(data.stages)
    if layers < stages:
        return (
            f"layers: {layers} there are, {stages} stages need one each, "
            f"{stages - layers} too few"
        )
    where = "in the given order" if data.order == "given" else "in any order"
    return f"memory: no partition fits {where}; add memory, or take other stages"
