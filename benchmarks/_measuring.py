"""What the scripts of this folder share: medians, the machine, JSON lines."""

import json
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import hetopt
from hetopt.bench import machine
from hetopt.result import Result

RESULTS = Path(__file__).parent / "results"
SINCE = "older than the code that came after."
DATED = re.compile(
    rf"\n\*Made by \S+ (?P<commit>.*) \((?P<day>.*)\); {re.escape(SINCE)}\*\n"
)
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


def publish(page: str | Path, text: str, lines: str | Path | None = None) -> None:
    """Write a page of results, which says below its title what made it, and when.

    That is told by the last row of `lines`; without them it is the code that runs now.
    What rows do not tell stays as the page had it.
    """
    place = RESULTS / page
    old = place.read_text("utf-8") if place.is_file() else ""
    before = DATED.search(old)
    made, day = _measured_by(RESULTS / lines) if lines else (None, None)
    if before and lines and made in (None, before["commit"]):
        made, day = before["commit"], before["day"]
    made, day = made or commit() or "outside git", day or time.strftime("%Y-%m-%d")
    title, _, rest = text.partition("\n")
    rest = DATED.sub("", rest, count=1)
    place.write_text(f"{title}\n{dated(made, day)}{rest}", encoding="utf-8")


def dated(made: str, day: str) -> str:
    """What stands below the title of a page."""
    return f"\n*Made by {hetopt.__version__}-dev {made} ({day}); {SINCE}*\n"


def _measured_by(lines: Path) -> tuple[str | None, str | None]:
    """Commit and day of the last row that names one, or of the head of a suite's."""
    made = day = None
    for row in map(json.loads, lines.read_text("utf-8").splitlines()):
        machine = row.get("machine")
        told = machine.get("commit") if isinstance(machine, dict) else None
        if told := told or row.get("commit"):
            made = told[:10] + "+" * told.endswith("+")
            begun = row.get("run") or row.get("started")
            day = begun[:10] if isinstance(begun, str) else None
    return made, day


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
