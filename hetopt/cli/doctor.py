"""The command `doctor` tries the solvers on this machine on a small problem."""

import os
import sys
from typing import TYPE_CHECKING

import typer

from .. import registry
from ..errors import BackendMissing, HetoptError
from ..text.documents import Document
from . import output
from .options import AsJson

if TYPE_CHECKING:
    from ..report.sheet import Sheet

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


def _try(name: str) -> Document:
    """Return whether a back end is there, and finds what it must."""
    from .. import api
    from ..problems.layer_partition import Data
    from ..result import Status, Stop

    found: Document = {"name": name, "version": None, "healthy": False}
    trial = Data.model_validate(_TRIAL, strict=False)
    try:
        result = api.solve(trial, backend=name, limits=_LIMIT_S)
    except BackendMissing as error:
        return found | {"seconds": None, "reason": str(error)}
    except HetoptError as error:
        return found | {"seconds": None, "reason": f"the trial failed: {error}"}
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
    found |= {"version": result.method.version, "healthy": right}
    return found | {"seconds": seconds, "reason": reason}


def findings() -> Document:
    """The machine, every back end, tried, and what proofs run by as a document."""
    from .._kernels import core

    affinity = getattr(os, "sched_getaffinity", None)
    threads = len(affinity(0)) if affinity else os.cpu_count()
    return {
        "hetopt": registry.version(),
        "python": sys.version.split()[0],
        "threads": threads,
        "backends": [_try(name) for name in registry.names("backends")],
        "kernels": {"active": "compiled", "reason": f"loaded {core.__file__}"},
    }


def doctor(as_json: AsJson = False) -> None:
    """Find the installed solvers, and try each on a small problem.

    Example: `hetopt doctor`
    """
    found = findings()
    output.present(found, lambda: _sheet(found), as_json=as_json)
    if not all(one["healthy"] for one in found["backends"]):
        raise typer.Exit(output.BAD_INPUT)


def _sheet(found: Document) -> "Sheet":
    from ..report.sheet import Section, Sheet, Table

    headings = ("back end", "version", "verdict")
    rows = (
        (
            one["name"],
            one["version"] or "",
            f"works, {one['seconds']} s" if one["healthy"] else one["reason"],
        )
        for one in found["backends"]
    )
    machine = "hetopt {hetopt}, Python {python}, {threads} threads".format(**found)
    table = Table.of(headings, rows, texts=headings)
    return Sheet("Solvers", (Section(table=table),), answer=machine)
