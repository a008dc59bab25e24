"""The solvers on this machine, each tried on a small problem."""

import os
import sys
from dataclasses import dataclass

from .. import registry
from .._kernels import core
from ..errors import BackendMissing, HetoptError
from ..findings import Finding
from ..problems.layer_partition import Data
from ..result import Status, Stop
from ..text.documents import Document
from . import solving


@dataclass(frozen=True)
class Trial:
    """A solver library on a small problem: its answer is right, or the reason why not.

    `seconds` are those of the solve.
    """

    name: str
    reason: str | None
    version: str | None = None
    healthy: bool = False
    seconds: float | None = None


@dataclass(frozen=True)
class Diagnosis(Finding, layout="listing.diagnosis"):
    """What is installed, and what proofs run by."""

    hetopt: str
    python: str
    threads: int | None
    backends: tuple[Trial, ...]
    kernels: Document


# Three layers of 3, 1, 2 us on two equal stages: the best bottleneck is 3 us.
_TRIAL: dict[str, object] = {
    "layer_mib": [1, 1, 1],
    "in_flight_mib": [0, 0, 0],
    "micro_batches": 2,
    "objective": "bottleneck",
    "order": "given",
    "stages": [
        {"name": name, "memory_mib": 3, "layer_us": [3, 1, 2], "hop_us": 0}
        for name in ("first", "second")
    ],
}
_EXPECTED = 3
_LIMIT_S = 30.0  # of which a busy machine needs some for the first import


def _try(name: str) -> Trial:
    """Return whether a back end is there, and finds what it must."""
    trial = Data.model_validate(_TRIAL, strict=False)
    try:
        result = solving.solve(trial, backend=name, limits=_LIMIT_S)
    except BackendMissing as error:
        return Trial(name, str(error))
    except HetoptError as error:
        return Trial(name, f"the trial failed: {error}")
    seconds = round(sum(result.seconds.values()), 3)
    right = result.status is Status.OPTIMAL and result.objective == _EXPECTED
    reason = None
    if result.stop is Stop.TIME:
        reason = f"no answer within {_LIMIT_S:g} s: the machine is busy; try again"
    elif not right:
        reason = (
            f"found {result.objective} ({result.status.value}), expected {_EXPECTED}, "
            "optimal; install the solver again"
        )
    return Trial(name, reason, result.method.version, right, seconds)


def doctor() -> Diagnosis:
    """Try every solver library on a small problem, and say what is installed."""
    affinity = getattr(os, "sched_getaffinity", None)
    threads = len(affinity(0)) if affinity else os.cpu_count()
    tried = tuple(_try(name) for name in registry.names("backends"))
    kernels = {"active": "compiled", "reason": f"loaded {core.__file__}"}
    python = sys.version.split()[0]
    return Diagnosis(registry.version(), python, threads, tried, kernels)
