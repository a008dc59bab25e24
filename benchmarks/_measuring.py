"""What the scripts of this folder share: medians, the machine, JSON lines."""

import json
import os
import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import hetopt
from hetopt.result import Result

RESULTS = Path(__file__).parent / "results"


def measured(solve: Callable[[], Result], runs: int) -> tuple[Result, float]:
    """The last result, and the median of the wall seconds of some runs."""
    seconds = []
    for _ in range(runs):
        started = perf_counter()
        result = solve()
        seconds.append(perf_counter() - started)
    return result, median(seconds)


def row(name: str, result: Result, seconds: float, runs: int) -> dict[str, Any]:
    """What one line of a results file says."""
    return {
        "instance": name,
        "digest": result.digest,
        "method": result.method.__dict__,
        "status": result.status.value,
        "stop": result.stop.value,
        "objective": None if result.objective is None else float(result.objective),
        "gap": result.gap,
        "runs": runs,
        "seconds": round(seconds, 4),
    }


def show(found: dict[str, Any]) -> None:
    """One line on the terminal."""
    objective, gap = found["objective"], found["gap"]
    print(
        f"{found['instance']:44} {found['status']:>10}"
        f" {'' if objective is None else f'{objective:.6g}':>12}"
        f" {'' if gap is None else f'gap {gap:.4%}':>14} {found['seconds']:9.3f} s",
        flush=True,
    )


def keep(file: str, found: dict[str, Any], *packages: str) -> None:
    """Append one line to a results file; `packages` are named with their versions."""
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / file).open("a") as lines:
        lines.write(json.dumps({**found, "machine": _machine(*packages)}) + "\n")


def _machine(*packages: str) -> dict[str, Any]:
    pages, page_size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return {
        "processor": platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),  # an idle machine says 1 at most
        "memory_gib": round(pages * page_size / 2**30),
        "python": platform.python_version(),
        **{name: version(name) for name in ("numpy", *packages)},
        "hetopt": hetopt.__version__,
    }
