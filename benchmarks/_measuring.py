"""What the scripts of this folder share: medians, the machine, JSON lines."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import hetopt
from hetopt.bench import machine
from hetopt.result import Result

RESULTS = Path(__file__).parent / "results"
Answer = TypeVar("Answer")


def measured(solve: Callable[[], Answer], runs: int) -> tuple[Answer, float]:
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


def commit() -> str | None:
    """The commit that is measured, `+` where files differ from it; None outside git."""

    def git(*words: str) -> str:
        asked = ("git", "-C", str(RESULTS.parent), *words)
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "*.py")
    return (git("rev-parse", "--short=10", "HEAD") + "+" * bool(changed)) or None


def keep(file: str | Path, found: dict[str, Any], *packages: str) -> None:
    """Append one line to a results file; `packages` are named with their versions."""
    where = {
        **machine.description(),
        "load": machine.load(),
        **machine.versions(("numpy", *packages)),
        "hetopt": hetopt.__version__,
        "commit": commit(),
    }
    RESULTS.mkdir(exist_ok=True)
    with (RESULTS / file).open("a") as lines:
        lines.write(json.dumps({**found, "machine": where}) + "\n")
