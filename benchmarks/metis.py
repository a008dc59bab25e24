"""Metis's evaluation again: search time, distance from the oracle, figures 4 and 5.

    python benchmarks/metis.py [SECTION ...] [--seeds N] [--time-limit S] [--page]

Sections: `seconds` (search of the planner and of the oracle, 4 to 64 GPUs), `gaps`
(Metis, AMP, Alpa and Galvatron on generated clusters against the proved optimum of one
pipeline), `figures` (its clusters and models, figures 4 and 5). Every row goes to
results/metis.jsonl; results/metis.md shows the last row of each, `--page` writes it
alone. Single runs; seconds are of this machine, CPU seconds beside wall seconds.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from _measuring import RESULTS, keep
from _metis_instances import NON_UNIFORM, generated, uniform
from _metis_page import ORACLE, PLANNERS, Row, page, shown

import hetopt
from hetopt.result import Result

LINES, PAGE = "metis.jsonl", "metis.md"
PAPER_SECONDS = {4: 0.1, 8: 0.5, 16: 1.7, 32: 58.9, 64: 600.0}
SEARCHED = {
    4: "metis/t4-v100-4-gpt3-1.3b",
    8: "metis/t4-v100-8-gpt3-2.6b",
    16: "metis/t4-v100-16-gpt3-6.7b",
    32: "metis/t4-v100-32-gpt3-15b",
    64: "metis/t4-v100-64-gpt3-15b",
}


def run(instance: Any, method: str, limit_s: float) -> tuple[Result, Row]:
    """One solve, and what a row says of it."""
    cpu = time.process_time()
    result = hetopt.solve(instance, method, time_limit=limit_s)
    proved = result.problem == ORACLE
    return result, {
        "us": result.objective,
        "seconds": round(result.seconds["solve"], 2),
        "cpu_s": round(time.process_time() - cpu, 2),
        "status": result.status.value,
        "stop": result.stop.value,
        "gpus_used": (
            sum(r.degree for r in result.plan.replicas()) if result.plan else None
        ),
        "bound_us": result.bound.value if proved and result.bound else None,
    }


def all_methods(instance: Any, limit_s: float) -> dict[str, Row]:
    """The oracle and every planner on one instance."""
    return {name: run(instance, name, limit_s)[1] for name in (ORACLE, *PLANNERS)}


# --- sections ----------------------------------------------------------------------


def seconds(asked: argparse.Namespace) -> Iterator[Row]:
    """Search of the planner and of the oracle, and the gap between them."""
    for gpus, name in SEARCHED.items():
        instance = hetopt.load(name)
        found = {
            m: run(instance, m, 4 * asked.time_limit)[1] for m in (ORACLE, "metis")
        }
        yield {"case": name, "gpus": gpus, "paper_s": PAPER_SECONDS[gpus], **found}


def gaps(asked: argparse.Namespace) -> Iterator[Row]:
    """Planners against the oracle on generated clusters."""
    for made in generated(asked.seeds):
        yield {
            "case": made.instance.name,
            "gpus": made.gpus,
            "slower": made.slower,
            "memory": made.memory,
            **all_methods(made.instance, asked.time_limit),
        }


def figures(asked: argparse.Namespace) -> Iterator[Row]:
    """Figure 4, then figure 5."""
    for model, pair, gpus, name in uniform():
        found = all_methods(hetopt.load(name), asked.time_limit)
        yield {"case": name, "model": model, "pair": pair, "gpus": gpus, **found}
    for which in NON_UNIFORM:
        name = f"metis/nonuniform-{which}"
        found = all_methods(hetopt.load(name), asked.time_limit)
        yield {"case": name, "model": "gpt3", "pair": "non-uniform", **found}


SECTIONS: dict[str, Callable[[argparse.Namespace], Iterator[Row]]] = {
    "seconds": seconds,
    "gaps": gaps,
    "figures": figures,
}


def _rows() -> list[Row]:
    """The last row of every case."""
    latest: dict[tuple[str, str], Row] = {}
    for line in (RESULTS / LINES).read_text().splitlines():
        row = json.loads(line)
        latest[row["section"], row["case"]] = row
    return list(latest.values())


def main() -> None:
    """Run the sections asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args()
    for name in [] if asked.page else asked.sections:
        for row in SECTIONS[name](asked):
            keep(LINES, {"section": name, **row})
            print(shown(row), flush=True)
    (RESULTS / PAGE).write_text(page(_rows()))


if __name__ == "__main__":
    main()
