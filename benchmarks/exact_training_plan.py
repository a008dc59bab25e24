"""Gap against time of the exact training-plan method on the clusters of HexiScale.

    python benchmarks/exact_training_plan.py [--seconds 120] [--large-seconds 300]
        [--only NAME ...] [--out FILE]

One run an instance: prints the seconds at which each gap was reached, beside the best
planner's plan and the two simple families of plans that it has to meet, and appends a
JSON line an instance. Seconds are of this machine: run it alone.
"""

import argparse
from datetime import date
from pathlib import Path

from _measuring import RESULTS, keep

import hetopt
from hetopt import Limits
from hetopt.result import Result

MARKS = (0.2, 0.1, 0.05, 0.03, 0.02, 0.01)
SETTINGS = (
    "hexiscale/setting-1-llama2-7b",
    "hexiscale/setting-1-llama2-13b",
    "hexiscale/setting-2-llama2-7b",
    "hexiscale/setting-2-llama2-13b",
    "hexiscale/setting-3-llama-30b",
)
LARGE = ("hexiscale/large-240-llama-30b", "hexiscale/large-240-llama2-70b")
FILE = RESULTS / "exact_training_plan.jsonl"


def reached(result: Result, start_s: float) -> dict[str, float | None]:
    """Seconds from the start of the planners until each gap to the final plan."""
    assert result.objective is not None
    seconds: dict[str, float | None] = {}
    for mark in MARKS:
        seconds[f"{mark:.0%}"] = next(
            (
                round(start_s + point.seconds, 1)
                for point in result.trace
                if point.bound is not None
                and point.incumbent is not None
                and hetopt.gap(point.incumbent, point.bound) <= mark
            ),
            None,
        )
    return seconds


def row(name: str, limit_s: float) -> dict[str, object]:
    """Plan one instance from nothing and say how the gap closed."""
    result = hetopt.solve(hetopt.load(name), limits=limit_s)
    assert isinstance(result.objective, int)
    assert result.bound is not None
    return {
        "instance": name,
        "limit_s": limit_s,
        "seconds": round(result.seconds["solve"], 1),
        "iteration_s": result.objective / 1e6,
        "bound_s": float(result.bound.value) / 1e6,
        "gap": result.gap,
        "status": result.status.value,
        "reached_s": reached(result, 0.0),
        "date": date.today().isoformat(),
        "limits": Limits(time_s=limit_s).__dict__,
    }


def main() -> None:
    """Run the instances, print a table and append the rows to a file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--large-seconds", type=float, default=300)
    parser.add_argument("--only", nargs="*", default=[*SETTINGS, *LARGE])
    parser.add_argument("--out", type=Path, default=FILE)
    args = parser.parse_args()
    marks = "".join(f"{mark:>8.0%}" for mark in MARKS)
    print(f"{'instance':34} {'plan s':>8} {'bound s':>8} {'gap':>6}{marks}  (s to gap)")
    for name in args.only:
        limit = args.large_seconds if name in LARGE else args.seconds
        found = row(name, limit)
        keep(args.out.absolute(), found)
        times = found["reached_s"]
        assert isinstance(times, dict)
        shown = "".join(f"{'-' if t is None else t:>8}" for t in times.values())
        print(
            f"{name:34} {found['iteration_s']:8.2f} {found['bound_s']:8.2f} "
            f"{found['gap']:6.1%}{shown}",
            flush=True,
        )


if __name__ == "__main__":
    main()
