"""How long commands take, by size: start, plans, queues, candidates a second, gaps.

    python benchmarks/scaling.py [--only start sizes queues candidates gaps]

Prints tables in Markdown and keeps nothing. Each command is a process of its own whose
clock is its own CPU seconds, so that a busy machine gives about the figures of an idle
one; peak memory is the operating system's. Plans begin from nothing (`--fresh`). All
tables take about half an hour of one core, `gaps` most of it.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch

from _pages import grid
from time_limits import _CPU_CLOCK

import hetopt
from hetopt.api.scheduling import load_queue
from hetopt.planners import islands
from hetopt.scheduling import simulator
from hetopt.search.improving import Search

STARTS = (
    ("--help",),
    ("plan", "tiny/two-nodes", "--time-limit", "0", "--json"),
    ("plan", "tiny/two-nodes", "--time-limit", "10", "--json"),
)
RUNS = 7  # of each start
SIZES = (8, 64, 512, 4096, 10_000)
QUEUES = (60, 500, 2000)
#: CPU seconds in which islands look for the plan that a walk begins from.
ISLANDS_S = 10
#: Candidates that a walk looks at, by instance: seconds each.
CANDIDATES = {
    "hexiscale/setting-1-llama2-7b": 400_000,
    "generated:unequal/512/0": 100_000,
    "generated:islands/4096/1": 40_000,
}
GAPS = (
    "hexiscale/setting-1-llama2-7b",
    "hexiscale/setting-3-llama-30b",
    "metis/t4-v100-64-gpt3-15b",
    "metis/t4-v100-32-wide-resnet-6.8b",
    "generated:islands/64/0",
    "hexiscale/large-240-llama2-70b",
)
LIMITS = (10, 20, 30, 60)
Rows = Iterator[list[str]]


class Ran(NamedTuple):
    """A process that came to its end, and the document that it printed, if any."""

    cpu_s: float
    peak_mib: int
    told: Any


def run(*words: str) -> Ran:
    """Run a command whose clock is its own CPU seconds."""
    with subprocess.Popen(
        [sys.executable, "-c", _CPU_CLOCK, *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as child:
        assert child.stdout is not None
        text = child.stdout.read()
        _, _, used = os.wait4(child.pid, 0)
    peak = used.ru_maxrss >> (20 if sys.platform == "darwin" else 10)
    told = json.loads(text) if "--json" in words else None
    return Ran(used.ru_utime + used.ru_stime, peak, told)


def planned(name: str, limit: int) -> Ran:
    """Run `hetopt plan` from nothing within a limit."""
    return run("plan", name, "--fresh", "--time-limit", str(limit), "--json")


def gap_of(told: Any) -> str:
    """Return a result's gap as people read it; its status where it has none."""
    gap = told.get("gap")
    return told["status"] if gap is None else f"{gap:.1%}"


def start() -> Rows:
    """Yield CPU seconds of whole commands, the medians of some runs."""
    yield ["command", "CPU, s", "peak, MiB"]
    for words in STARTS:
        runs = [run(*words) for _ in range(RUNS)]
        cpu = median(one.cpu_s for one in runs)
        peak = max(one.peak_mib for one in runs)
        yield [" ".join(words), f"{cpu:.2f}", str(peak)]


def sizes() -> Rows:
    """Yield the default plan in 10 s on generated clusters of each size."""
    yield ["instance", "CPU, s", "peak, MiB", "objective, s", "gap"]
    for family in ("unequal", "equal"):
        for size in SIZES:
            name = f"generated:{family}/{size}/0"
            ran = planned(name, 10)
            value = ran.told.get("objective")
            seconds = "–" if value is None else f"{value / 1e6:.3f}"
            cells = [f"{ran.cpu_s:.1f}", str(ran.peak_mib), seconds, gap_of(ran.told)]
            yield [name, *cells]


def queues() -> Rows:
    """Yield CPU seconds of simulated queues, policy by policy."""
    from hetopt import registry

    yield ["policy", *(f"{jobs:,} jobs, CPU s" for jobs in QUEUES)]
    data = [load_queue(f"generated:queue/{jobs}/0") for jobs in QUEUES]
    totals = [0.0] * len(QUEUES)
    for policy in registry.names("scheduling.policies"):
        cells = []
        for number, queue in enumerate(data):
            begun = time.process_time()
            simulator.simulate(queue, policy)
            spent = time.process_time() - begun
            totals[number] += spent
            cells.append(f"{spent:.2f}")
        yield [policy, *cells]
    yield ["all", *(f"{total:.1f}" for total in totals)]


def candidates() -> Rows:
    """Yield how many candidates a walk from the islands' plan looks at.

    What stages take is asked for once: the same walk again asks for little.
    """
    yield ["instance", "GPUs", "candidates a CPU second", "again"]
    for name, most in CANDIDATES.items():
        instance = hetopt.load(name)
        with patch("time.monotonic", time.process_time):
            plan = islands.plan(instance, deadline=time.monotonic() + ISLANDS_S)
        search = Search(instance, plan, visits_islands=False)
        rates = []
        for _ in range(2):
            begun = time.process_time()
            search.run(rounds=most)
            rates.append(f"{most / (time.process_time() - begun):,.0f}")
        yield [name, str(instance.planned_cluster.gpu_count), *rates]


def gaps() -> Rows:
    """Yield gaps of the default plan at equal CPU seconds, a run for each limit."""
    yield ["instance", *(f"{limit} s" for limit in LIMITS), "peak, MiB"]
    for name in GAPS:
        runs = [planned(name, limit) for limit in LIMITS]
        peak = max(one.peak_mib for one in runs)
        yield [name, *(gap_of(one.told) for one in runs), str(peak)]


TABLES: dict[str, Callable[[], Rows]] = {
    "start": start,
    "sizes": sizes,
    "queues": queues,
    "candidates": candidates,
    "gaps": gaps,
}


def main(words: list[str] | None = None) -> None:
    """Print the tables that were asked for, each when it is there."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=TABLES, default=[*TABLES])
    for name in parser.parse_args(words).only:
        headings, *rows = TABLES[name]()
        print(f"## {name}\n", *grid(headings, rows), "", sep="\n", flush=True)


if __name__ == "__main__":
    main()
