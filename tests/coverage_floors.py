"""The command prints which share of lines the tests reach, package by package.

    pip install -e '.[test,coverage]'
    python tests/coverage_floors.py -n 2             # runs the default tests
    python tests/coverage_floors.py tests/costs      # or these, with pytest's options
    python tests/coverage_floors.py --data .coverage # or reads what was measured

Exit code 1 where a package of `FLOORS` is below its floor, or a test fails; the table
comes in either case. Processes that tests start count, too.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
#: What must be reached: where a wrong line is a wrong proof, or a wrong time. Their own
#: tests (tests/bounds, tests/costs and tests/exact) reach a point more.
FLOORS = {"hetopt/bounds": 0.95, "hetopt/costs": 0.96, "hetopt/exact": 0.96}


def package(file: str) -> str:
    """Return the folder of `hetopt`, or the top folder, that a file counts for."""
    parts = Path(file).parts
    deep = parts[0] == "hetopt" and len(parts) > 2
    return "/".join(parts[:2]) if deep else parts[0]


def shares(files: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Return lines reached, and lines that can be, of every package."""
    found: dict[str, tuple[int, int]] = {}
    for file, measured in files.items():
        name, told = package(file), measured["summary"]
        reached, there = found.get(name, (0, 0))
        reached += told["covered_lines"]
        found[name] = reached, there + told["num_statements"]
    return found


def below(found: Mapping[str, tuple[int, int]]) -> list[str]:
    """Return the packages that are below their floors; one that is absent is."""
    low = []
    for name, floor in FLOORS.items():
        reached, there = found.get(name, (0, 0))
        if reached < floor * there or not there:
            low.append(name)
    return low


def table(found: Mapping[str, tuple[int, int]]) -> str:
    """Return a Markdown table, a package a row."""
    rows = ["| package | lines | reached | floor |", "|---|---:|---:|---:|"]
    for name, (reached, there) in sorted(found.items()):
        share = f"{reached / there:.1%}" if there else "–"
        floor = f"{FLOORS[name]:.0%}" if name in FLOORS else ""
        rows.append(f"| {name} | {there} | {share} | {floor} |")
    return "\n".join(rows)


def measure(data: Path, words: list[str]) -> bool:
    """Run tests under coverage; return whether all of them passed.

    Files of all their processes are put together.
    """
    environment = {**os.environ, "COVERAGE_FILE": str(data)}
    command = [sys.executable, "-m", "coverage"]
    tests = [*command, "run", "-m", "pytest", "-q", *words]
    combine = [*command, "combine", "--quiet", str(data.parent)]
    passed = subprocess.run(tests, cwd=ROOT, env=environment, check=False)
    subprocess.run(combine, cwd=ROOT, env=environment, check=True)
    return passed.returncode == 0


def read(data: Path) -> dict[str, Any]:
    """Return what was measured, by file."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "coverage.json")
        words = ["json", "--quiet", "-o", str(out), "--data-file", str(data)]
        subprocess.run([sys.executable, "-m", "coverage", *words], cwd=ROOT, check=True)
        files: dict[str, Any] = json.loads(out.read_text("utf-8"))["files"]
    return files


def main() -> int:
    parser = argparse.ArgumentParser(description="Coverage by package, with floors.")
    parser.add_argument("--data", type=Path, help="read this file, and run nothing")
    given, words = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        data = given.data or Path(folder, ".coverage")
        passed = given.data is not None or measure(data, words)
        found = shares(read(data))
    low = below(found)
    print(table(found))
    for name in low:
        print(f"{name} is below its floor of {FLOORS[name]:.0%}")
    return 1 if low or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
