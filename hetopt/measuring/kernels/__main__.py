"""Measures raw rows where PyTorch is and hetopt's dependencies are not."""

import argparse
import json
import sys

from ...errors import HetoptError
from . import LEAST_S, MOST_S, measuring


def main() -> int:
    """Write rows as they come, one JSON object a line."""
    parser = argparse.ArgumentParser(
        prog="python -m hetopt.measuring.kernels",
        description="Micro-benchmarks of one GPU; `hetopt profile --constants OUT.json "
        "--rows FILE` fits constants to them.",
    )
    parser.add_argument("--out", required=True, metavar="FILE", help="Rows, JSON lines")
    parser.add_argument("--seconds", type=float, default=120, metavar="S")
    parser.add_argument("--cpu", action="store_true", help="Measure the CPU")
    given = parser.parse_args()
    if not LEAST_S <= given.seconds <= MOST_S:
        parser.error(f"--seconds: {LEAST_S} to {MOST_S}")
    try:
        with open(given.out, "w", encoding="utf-8") as file:
            device = "cpu" if given.cpu else "cuda"
            for row in measuring.rows(device, given.seconds):
                file.write(json.dumps(row) + "\n")
                file.flush()
    except (HetoptError, OSError) as error:
        sys.stderr.write(f"hetopt: {error}\n")
        return 2
    sys.stderr.write(f"written to {given.out}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
