"""Both ways to refute times of an instance: by prices, and by counts of GPUs."""

from typing import Any

from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.exact.pipelines.levelling import levelled
from hetopt.exact.training_plan.counts.bound import prepared
from hetopt.exact.training_plan.counts.tree import CountedTree
from hetopt.schema import Instance
from hetopt.stages import StageTable

WAYS = ("prices", "counts")


def by_prices(
    only: Instance, least_us: float, most_us: float, alone_us: int = 0
) -> PipelineBound:
    """What refutes times between the two by prices, of one choice of settings."""
    counts = by_counts(only, least_us, most_us, alone_us)
    told = counts.counted if counts is not None and counts.rows.apart else None
    times = int(most_us), int(least_us)
    return PipelineBound(only, *times, alone_us=alone_us, counted=told)


def by_counts(
    only: Instance, least_us: float, most_us: float, alone_us: int = 0
) -> CountedTree | None:
    """The same by counts; None where these are too many."""
    whole = levelled(only)
    if (rows := prepared(StageTable(whole))) is None:
        return None
    same = {"alone_us": alone_us, "levelled": whole is not only}
    return CountedTree(rows, int(most_us), int(least_us), **same)  # type: ignore[arg-type]


def by(way: str, *given: Any) -> Any:
    """What refutes times in one of the `WAYS`; None where it cannot."""
    return {"prices": by_prices, "counts": by_counts}[way](*given)


def proves(refuter: Any, time_us: float, steps: int) -> bool:
    """Whether a time is refuted within so many steps."""
    return refutation(refuter, time_us, steps).proved


def refutation(refuter: Any, time_us: float, steps: int) -> Any:
    """The refutation of a time after so many steps, or its last one."""
    found = refuter.refute(int(time_us))
    for _ in range(steps):
        if not found.step():
            break
    return found
