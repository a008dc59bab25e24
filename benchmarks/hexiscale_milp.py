"""The joint MILP on HexiScale's settings: size, build, incumbent and bound in time.

    python benchmarks/hexiscale_milp.py [--instances NAME,...] [--backends NAME,...]
        [--time-limit S] [--threads N] [--out FILE]

Every run is warm-started with the best of the statement's obvious plans. One row a run
goes to stdout, one JSON line to FILE.
"""

import argparse
from pathlib import Path
from typing import Any

from _measuring import keep
from hetopt.formulations import hexiscale

from hetopt.files import load_instance
from hetopt.modelling import Limits, Model
from hetopt.schema import Instance
from hetopt.solving import statements

INSTANCES = "hexiscale/setting-1-llama2-7b,hexiscale/setting-2-llama2-7b"
COLUMNS = "instance backend variables rows build_s status objective_us bound_us gap"


class Tally(Model):
    """A model that counts: its variables are zeros."""

    def __init__(self) -> None:
        self.variables = self.rows = 0

    def binary(self, name: str) -> int:
        return self.integer(name, 0, 1)

    def integer(self, name: str, low: int, high: int) -> int:
        self.variables += 1
        return 0

    def total(self, terms: Any) -> int:
        return sum(terms)

    def add(self, family: str, index: Any, constraint: Any) -> None:
        self.rows += 1

    def minimise(self, expression: Any) -> None:
        """Nothing to count."""


def measure(instance: Instance, backend: str, limits: Limits) -> dict[str, Any]:
    """One run: what the statement is like, and what the back end learnt in time."""
    size = Tally()
    hexiscale.build(instance, size)
    obvious = hexiscale.Tables(instance).obvious
    result = statements.solve(
        "training_plan",
        instance,
        "hexiscale",
        backend,
        limits=limits,
        warm_start=obvious[1] if obvious else None,
    )
    return {
        "instance": instance.name,
        "backend": backend,
        "version": result.method.version,
        "threads": result.method.threads,
        "time_limit_s": limits.time_s,
        "variables": size.variables,
        "rows": size.rows,
        "build_s": round(result.seconds["build"], 2),
        "solve_s": round(result.seconds["solve"], 2),
        "status": result.status.value,
        "objective_us": result.objective,
        "bound_us": result.bound.value if result.bound else None,
        "gap": None if result.gap is None else round(result.gap, 4),
        "trace": [[p.seconds, p.incumbent, p.bound] for p in result.trace],
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--instances", default=INSTANCES)
    asked.add_argument("--backends", default="cpsat,scip")
    asked.add_argument("--time-limit", type=float, default=60)
    asked.add_argument("--threads", type=int, default=2)
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    limits = Limits(time_s=args.time_limit, threads=args.threads)
    print(COLUMNS)
    for name in args.instances.split(","):
        for backend in args.backends.split(","):
            row = measure(load_instance(name), backend, limits)
            print(*(row[column] for column in COLUMNS.split()), flush=True)
            if args.out is not None:
                keep(args.out.absolute(), row, "ortools", "pyscipopt")


if __name__ == "__main__":
    main()
