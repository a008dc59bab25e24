"""What the scripts of this folder share: medians, the machine, JSON lines."""

import argparse
import json
import re
import subprocess
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeVar
from unittest.mock import patch

import hetopt
from hetopt.bench import machine as measured_on
from hetopt.measuring.machine import description

RESULTS = Path(__file__).parent / "results"  # pages, and the lines that they show
DATED = re.compile(r"\n\*Made by \S+ (?P<commit>.*) \((?P<day>.*?)\)\.\*\n")
Answer = TypeVar("Answer")


def measured(solve: Callable[[], Answer], runs: int) -> tuple[Answer, float]:
    """The last result, and the median of the wall seconds of some runs."""
    seconds = []
    for _ in range(runs):
        started = perf_counter()
        result = solve()
        seconds.append(perf_counter() - started)
    return result, median(seconds)


def asked(about: str | None, limit_s: float) -> argparse.Namespace:
    """Return the words of a script: its limit, names of what runs, and `--page`."""
    parser = argparse.ArgumentParser(description=(about or "").split("\n", 1)[0])
    parser.add_argument("--limit", type=float, default=limit_s)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--page", action="store_true")
    return parser.parse_args()


def wanted(names: Iterable[str], given: argparse.Namespace) -> list[str]:
    """Return the names that have one of the words, none where only a page is made."""
    some = () if given.page else names
    return [x for x in some if not given.only or any(word in x for word in given.only)]


def by_cpu_clock(work: Callable[[], Answer]) -> Answer:
    """Return what work returns whose limits are CPU seconds of this process."""
    with patch("time.monotonic", time.process_time):
        return work()


def commit() -> str | None:
    """The commit that is measured, `+` where files differ from it; None outside git."""

    def git(*words: str) -> str:
        asked = ("git", "-C", str(Path(__file__).parent), *words)
        return subprocess.run(asked, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "*.py")
    return (git("rev-parse", "--short=10", "HEAD") + "+" * bool(changed)) or None


def publish(page: str | Path, text: str, lines: str | Path | None = None) -> None:
    """Write a page of results, which says below its title what made it, and when.

    That is told by the last row of `lines`; without them it is the code that runs now.
    Where no section says on what it ran, all rows do, in a last line.
    What rows do not tell stays as the page had it.
    """
    place = RESULTS / page
    old = place.read_text("utf-8") if place.is_file() else ""
    before = DATED.search(old)
    made, day = _measured_by(lines) if lines else (None, None)
    if before and lines and made in (None, before["commit"]):
        made, day = before["commit"], before["day"]
    made, day = made or commit() or "outside git", day or time.strftime("%Y-%m-%d")
    title, _, rest = text.partition("\n")
    rest = DATED.sub("", rest, count=1)
    if "cores, load" not in rest:
        rest += ran(kept(lines) if lines else [{"machine": here()}])
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(f"{title}\n{dated(made, day)}{rest}", encoding="utf-8")


def machine(found: Sequence[dict[str, Any]]) -> str:
    """What rows were measured on: the last one, all processors, the highest load."""
    on, loads = found[-1], [one["load"] or 0 for one in found]
    processors = " or ".join(sorted({str(one["processor"]) for one in found}))
    packages = [
        f"{name} {on[name]}"
        for name in ("numpy", "ortools", "pyscipopt", "pulp", "hetopt")
        if on.get(name)
    ]
    commits = sorted({str(one["commit"]) for one in found if one.get("commit")})
    return (
        f"{processors}, {on['cores']} cores, load {max(loads):g} at most, Python "
        f"{on['python']}, {', '.join(packages)}"
        f"{', commit ' * bool(commits)}{', '.join(commits)}"
    )


def ran(lines: list[dict[str, Any]]) -> str:
    """Return a line on what all rows were made on, and within which limits."""
    machines = [line["machine"] for line in lines if "machine" in line]
    if not machines or "load" not in machines[-1]:
        return ""
    limits = sorted({line["limit_s"] for line in lines if line.get("limit_s")})
    told = " or ".join(f"{limit:g}" for limit in limits)
    within = f"limit {told} s, " if limits else ""
    return f"\n*Single runs, seed 0, {within}{machine(machines)}.*\n"


def dated(made: str, day: str) -> str:
    """What stands below the title of a page."""
    return f"\n*Made by {hetopt.__version__}-dev {made} ({day}).*\n"


def _measured_by(lines: str | Path) -> tuple[str | None, str | None]:
    """Commit and day of the last row that names one, or of the head of a suite's."""
    made = day = None
    for row in kept(lines):
        on = row.get("machine")
        told = on.get("commit") if isinstance(on, dict) else None
        if told := told or row.get("commit"):
            made = told[:10] + "+" * told.endswith("+")
            begun = row.get("run") or row.get("started")
            day = begun[:10] if isinstance(begun, str) else None
    return made, day


def kept(file: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a results file, none where it is not there."""
    place = RESULTS / file
    if not place.is_file():
        return []
    return [json.loads(line) for line in place.read_text("utf-8").splitlines()]


def here(*packages: str) -> dict[str, Any]:
    """Return this machine, its load, versions and the commit."""
    return {
        **description(),
        "load": measured_on.load(),
        **measured_on.versions(("numpy", *packages)),
        "hetopt": hetopt.__version__,
        "commit": commit(),
    }


def keep(file: str | Path, found: dict[str, Any], *packages: str) -> None:
    """Append one line to a results file; `packages` are named with their versions."""
    where = here(*packages)
    RESULTS.mkdir(parents=True, exist_ok=True)
    with (RESULTS / file).open("a") as lines:
        lines.write(json.dumps({**found, "machine": where}) + "\n")
