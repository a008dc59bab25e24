"""Metis's evaluation again: search time, distance from the oracle, figures 4 and 5.

    python benchmarks/metis.py [SECTION ...] [--time-limit S] [--page]

Sections: `seconds` (search of the planner and of the oracle, 4 to 64 GPUs), `ablation`
(table 4's search without balancing), `gaps` (Metis, AMP, Alpa and Galvatron on
generated clusters against the proved optimum of one pipeline), `figures` (its clusters
and models, figures 4 and 5), `balancing` (figure 6). Every row goes to
results/metis.jsonl; results/metis.md shows the last row of each, `--page` writes it
alone. Single runs; seconds are of this machine, CPU seconds beside wall seconds.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from _measuring import keep, kept, publish
from _metis_balancing import INSTANCE, least_us
from _metis_instances import NON_UNIFORM, generated, uniform
from _metis_page import ORACLE, PLANNERS, Row, page, shown

import hetopt
from hetopt.planners import metis

METHODS = (ORACLE, *PLANNERS)
SEEDS = 2  # generated clusters of a kind
LINES, PAGE = "metis.jsonl", "metis.md"
PAPER_SECONDS = {4: 0.1, 8: 0.5, 16: 1.7, 32: 58.9, 64: 600.0}
# Table 4, times as long as Metis: the oracle's profiling and search; at the least, from
# 32 GPUs on. And minutes of Metis's profiling.
TABLE_4 = {
    4: (96, 17),
    8: (228, 108),
    16: (270, 480),
    32: (3171, 29e3),
    64: (3294, 5e6),
}
PROFILED_MIN = {4: 12.5, 8: 13.3, 16: 15.5, 32: 18.2, 64: 18.9}
PAPER_ABLATION = {4: 17.0, 8: 108.0}
SEARCHED = {
    4: "metis/t4-v100-4-gpt3-1.3b",
    8: "metis/t4-v100-8-gpt3-2.6b",
    16: "metis/t4-v100-16-gpt3-6.7b",
    32: "metis/t4-v100-32-gpt3-15b",
    64: "metis/t4-v100-64-gpt3-15b",
}


def run(instance: Any, method: str, limit_s: float) -> Row:
    """What a row says of one solve."""
    cpu = time.process_time()
    # As far as the published search goes, and no further than the limit.
    options = {"most_plans": 500_000} if method == "metis" else None
    result = hetopt.solve(instance, method, options=options, limits=limit_s)
    proved = result.problem == ORACLE
    return {
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


def by_method(
    instance: Any, limit_s: float, methods: tuple[str, ...] = METHODS
) -> dict[str, Row]:
    """Methods on one instance."""
    return {name: run(instance, name, limit_s) for name in methods}


# --- sections ----------------------------------------------------------------------


def seconds(limit_s: float) -> Iterator[Row]:
    """Search of the planner and of the oracle, and the gap between them."""
    for gpus, name in SEARCHED.items():
        instance = hetopt.load(name)
        found = by_method(instance, 4 * limit_s, (ORACLE, "metis"))
        yield {"case": name, "gpus": gpus, "paper_s": PAPER_SECONDS[gpus], **found}


def gaps(limit_s: float) -> Iterator[Row]:
    """Planners against the oracle on generated clusters."""
    for made in generated(SEEDS):
        yield {
            "case": made.instance.name,
            "gpus": made.gpus,
            "slower": made.slower,
            "memory": made.memory,
            **by_method(made.instance, limit_s),
        }


def figures(limit_s: float, methods: tuple[str, ...] = METHODS) -> Iterator[Row]:
    """Figure 4, then figure 5."""
    for model, pair, gpus, name in uniform():
        found = by_method(hetopt.load(name), limit_s, methods)
        yield {"case": name, "model": model, "pair": pair, "gpus": gpus, **found}
    for which in NON_UNIFORM:
        name = f"metis/nonuniform-{which}"
        found = by_method(hetopt.load(name), limit_s, methods)
        yield {"case": name, "model": "gpt3", "pair": "non-uniform", **found}


def ablation(limit_s: float) -> Iterator[Row]:
    """The planner's search beside that without balancing and DP-first search."""
    for gpus, theirs in PAPER_ABLATION.items():
        instance = hetopt.load(SEARCHED[gpus])
        ours = _searched_s(instance)
        without = _searched_s(instance, layer_balancing=False, dp_first=False)
        yield {
            "case": SEARCHED[gpus],
            "gpus": gpus,
            "metis_s": round(ours, 4),
            "without_s": round(without, 4),
            "times": without / ours,
            "paper": theirs,
        }


def _searched_s(instance: Any, **parts: bool) -> float:
    """CPU seconds of a whole search, median of five."""
    found = []
    for _ in range(5):
        cpu = time.process_time()
        metis.plan(instance, most_plans=10**9, **parts)
        found.append(time.process_time() - cpu)
    return median(found)


def balancing(limit_s: float) -> Iterator[Row]:
    """Layers and samples balanced or not, and any groups at all."""
    best = least_us(True, True)
    optimum = run(hetopt.load(INSTANCE), ORACLE, limit_s)["us"]
    for case, us, theirs in (
        ("nothing", least_us(False, False), 0.22),
        ("samples", least_us(False, True), 0.19),
        ("layers", least_us(True, False), None),
        ("both", best, 0),
        ("any groups", optimum, None),
    ):
        if us is not None:  # else the oracle has none within the limit
            yield {"case": case, "us": us, "above": us / best - 1, "paper": theirs}


WINDOW = 2  # layers whose memory Metis profiles at once (its k, not published)
DISTINCT = 3  # layers of GPT that differ: embedding, block, head


def oracle(_: float) -> Iterator[Row]:
    """Table 4: the oracle over the planner, of the latest search; profiling counted."""
    searched = [row for row in _rows() if row["section"] == "seconds"]
    for row in searched:
        profiling, search = TABLE_4[row["gpus"]]
        layers = hetopt.load(row["case"]).model.layers + DISTINCT - 1
        # Every run of layers on each of two types; and each layer that differs, and
        # windows of layers for the memory of one type.
        runs = 2 * sum((layers - n) * (n + 1) for n in range(layers))
        few = 2 * DISTINCT + sum((layers - n) * (n + 1) for n in range(WINDOW))
        yield {
            "case": row["case"],
            "gpus": row["gpus"],
            "search": row[ORACLE]["cpu_s"] / max(row["metis"]["cpu_s"], 0.01),
            "paper, search": search,
            "layers to profile": runs / few,
            "paper, profiling": profiling,
            "paper, minutes": PROFILED_MIN[row["gpus"]],
        }


SECTIONS: dict[str, Callable[[float], Iterator[Row]]] = {
    "seconds": seconds,
    "ablation": ablation,
    "gaps": gaps,
    "figures": figures,
    "oracle": oracle,
    "balancing": balancing,
}


def _rows() -> list[Row]:
    """The last row of every case."""
    latest: dict[tuple[str, str], Row] = {}
    for row in kept(LINES):
        latest[row["section"], row["case"]] = row
    return list(latest.values())


def main(words: list[str] | None = None) -> None:
    """Run the sections asked for, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", default=list(SECTIONS))
    parser.add_argument("--time-limit", type=float, default=60.0)
    parser.add_argument("--page", action="store_true")
    asked = parser.parse_args(words)
    for name in [] if asked.page else asked.sections:
        for row in SECTIONS[name](asked.time_limit):
            keep(LINES, {"section": name, "limit_s": asked.time_limit, **row})
            print(shown(row), flush=True)
    publish(PAGE, page(_rows()), LINES)


if __name__ == "__main__":
    main()
