"""Ways to refute times of an instance: by prices, and by whole pipelines as well."""

from typing import Any

from hetopt.exact import one_pipeline
from hetopt.exact.pipelines.bound import PipelineBound
from hetopt.modelling import Limits
from hetopt.schema import Instance

WAYS = ("prices", "whole")


def by_prices(
    only: Instance, least_us: float, most_us: float, alone_us: int = 0
) -> PipelineBound:
    """What refutes times between the two by prices, of one choice of settings."""
    return PipelineBound(only, int(most_us), int(least_us), alone_us=alone_us)


def by(
    way: str, only: Instance, least_us: float, most_us: float, alone_us: int = 0
) -> PipelineBound:
    """What refutes times in one of the `WAYS`: whole pipelines where prices do not."""
    times, whole = (int(most_us), int(least_us)), way == "whole"
    return PipelineBound(only, *times, alone_us=alone_us, whole=whole)


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


def least_alone_us(instance: Instance, than: int) -> int:
    """No pipeline alone takes less; 0: unknown. `than` is what some plan takes."""
    return one_pipeline.faster(instance, than, Limits(time_s=5), lambda plan: None)
