"""Frenzy beside opportunistic scheduling, Sia and proved rounds, as the paper compares.

    python benchmarks/frenzy.py [--philly CSV] [--pollux CSV] [--data FOLDER]
        [--only PART,...] [--again]

Parts: `queues` (its two clusters, 30 and 60 jobs, five seeds; the traces, where given),
`rounds` (seconds of a round, Sia's program and the exact one), `scale` (10,000 jobs on
1,000 GPUs, one decision on 10,000 GPUs),
`memory` (MARP beside measured peaks, those of FOLDER too: `_frenzy_memory.py`), `page`
(results/frenzy.md from the latest row of each case). Every row goes to
results/frenzy.jsonl; a queue whose rows are there is not run again but with `--again`.
"""

import argparse
import os
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import _frenzy_memory
import _frenzy_page
from _measuring import keep

from hetopt import registry
from hetopt.api import scheduling
from hetopt.exact import job_round
from hetopt.problems import job_round as job_rounds
from hetopt.problems import job_scheduling
from hetopt.problems.job_round import Data as RoundData
from hetopt.problems.job_scheduling import Data
from hetopt.scheduling import catalogue, simulator, traces, workloads
from hetopt.scheduling.idle import Idle
from hetopt.schema import Cluster
from hetopt.solving import statements

FILE = "frenzy.jsonl"
PACKAGES = ("ortools", "pulp")
SEEDS = range(5)
EVERY_S = {"simulator": 120.0, "testbed": 300.0}
CLUSTERS = {"simulator": catalogue.simulator, "testbed": catalogue.testbed}
# (label, policy, rounds, efficiency)
RUNS: tuple[tuple[str, str, bool | None, str], ...] = (
    ("frenzy", "frenzy", None, "per_gpu"),
    ("frenzy, throughput first", "frenzy", None, "throughput"),
    ("frenzy, with its type, throughput first", "frenzy_typed", None, "throughput"),
    ("frenzy, equal rounds", "frenzy", True, "per_gpu"),
    ("opportunistic", "opportunistic", None, "per_gpu"),
    ("opportunistic, equal rounds", "opportunistic", True, "per_gpu"),
    ("sia", "sia", None, "per_gpu"),
    ("sia, GPUs as asked", "sia_as_asked", None, "per_gpu"),
)


def with_efficiency(data: Data, word: str) -> Data:
    changed = data.assumptions.model_copy(update={"efficiency": word})
    return data.model_copy(update={"assumptions": changed})


def queues(
    philly: Path | None, pollux: Path | None
) -> Iterator[tuple[str, list[Data]]]:
    """Name and the queues of a row of the table."""
    for cluster, made in CLUSTERS.items():
        for jobs in (30, 60):
            name = f"{cluster}-{jobs}"
            every = EVERY_S[cluster]
            yield (
                name,
                [
                    workloads.queue(jobs, seed, made(), name, every_s=every)
                    for seed in SEEDS
                ],
            )
    for load in (0.5, 1.0):
        for cluster, made in CLUSTERS.items():
            most = {"simulator": 16, "testbed": 4}[cluster]
            if philly is not None:
                name = f"philly, {cluster}, load {load}"
                choices: dict[str, Any] = {"most_gpus": most, "jobs": 100, "load": load}
                yield (
                    name,
                    [
                        traces.queue(
                            philly,
                            made(),
                            name,
                            sample=traces.Sample(seed=seed, **choices),
                        )
                        for seed in SEEDS[:3]
                    ],
                )
            if pollux is not None:
                name = f"pollux, {cluster}, load {load}"
                yield (
                    name,
                    [
                        traces.queue(
                            pollux,
                            made(),
                            name,
                            sample=traces.Sample(
                                where={"set": "realistic", "workload": str(number)},
                                most_gpus=most,
                                load=load,
                            ),
                        )
                        for number in (1, 2, 3)
                    ],
                )


def compare(philly: Path | None, pollux: Path | None, again: bool) -> None:
    """Average completion by policy, beside frenzy's; medians of decision times."""
    known = {} if again else _frenzy_page.latest("queues", "queue", "policy")
    for name, data in queues(philly, pollux):
        average: dict[str, float] = {}
        for label, policy, rounds, word in RUNS:
            if (name, label) in known:
                average[label] = known[name, label]["completion_s"]
                continue
            outcomes = [
                scheduling.schedule(with_efficiency(d, word), [policy], rounds=rounds)[
                    0
                ]
                for d in data
            ]
            measured = [o.metrics for o in outcomes if o.metrics is not None]
            average[label] = fmean(m.average_completion_s for m in measured)
            found = {
                "part": "queues",
                "queue": name,
                "queues": len(data),
                "load": round(fmean(map(traces.offered_load, data)), 3),
                "policy": label,
                "completion_s": round(average[label], 1),
                "p99_s": round(fmean(m.p99_completion_s for m in measured), 1),
                "queueing_s": round(fmean(m.average_queueing_s for m in measured), 1),
                "makespan_s": round(fmean(m.makespan_s for m in measured), 1),
                "samples_per_second_of_a_job": round(
                    fmean(m.samples_per_second_of_a_job for m in measured), 3
                ),
                "trials": sum(m.trials for m in measured),
                "restarts": sum(m.restarts for m in measured),
                "decision_median_ms": round(
                    1e3 * median(m.decision_median_s or 0 for m in measured), 4
                ),
                "gap": round(fmean(o.result.gap or 0 for o in outcomes), 4),
            }
            keep(FILE, found, *PACKAGES)
            less = 1 - average["frenzy"] / average[label]
            print(
                f"{name:32} {label:28} {average[label]:12.1f} s  frenzy "
                f"{0 - less:+7.1%}  {found['decision_median_ms']:9.3f} ms  "
                f"trials {found['trials']}, restarts {found['restarts']}",
                flush=True,
            )


def one_by_one(round_: RoundData) -> RoundData:
    """The same jobs, each a class of its own: nothing is left to count."""
    classes = tuple(
        c.model_copy(update={"name": f"{c.name}/{i}", "jobs": 1})
        for c in round_.classes
        for i in range(c.jobs)
    )
    return round_.model_copy(update={"classes": classes})


def rounds() -> None:
    """Median seconds of a round and whether it is proved, by number of jobs."""
    for jobs in (20, 160, 640, 1280):
        queues = (
            workloads.queue(jobs, seed, catalogue.simulator(), "crowd", every_s=0)
            for seed in range(4)
        )
        problems = [job_rounds.data(data) for data in queues]
        for label, solve in (
            ("exact", job_round.solve),
            ("exact, no two jobs alike", lambda r: job_round.solve(one_by_one(r))),
            (
                "sia (CBC)",
                lambda r: statements.solve("job_round", r, "sia_round", "pulp"),
            ),
        ):
            seconds, proved = [], 0
            for round_ in problems:
                started = perf_counter()
                proved += solve(round_).status.value == "optimal"
                seconds.append(perf_counter() - started)
            found = {
                "part": "rounds",
                "jobs": jobs,
                "gpus": 44,
                "classes": len(problems[-1].classes),
                "method": label,
                "rounds": len(seconds),
                "proved": proved,
                "median_s": round(median(seconds), 4),
                "most_s": round(max(seconds), 4),
            }
            keep(FILE, found, *PACKAGES)
            print(found, flush=True)


def large(gpus: int) -> Cluster:
    """Half 2080Ti, three eighths A100, the rest RTX 6000, 8 a node."""
    n = gpus // 8
    kinds = ["RTX2080Ti"] * (n // 2) + ["A100-40G"] * (n * 3 // 8)
    kinds += ["RTX6000"] * (n - len(kinds))
    return catalogue.cluster([(kind, 8) for kind in kinds], 6.25)


def scale() -> None:
    """10,000 jobs on 1,000 GPUs; decisions of HAS on 10,000 GPUs, half of them busy."""
    data = workloads.queue(10_000, 1, large(1000), "large", every_s=5)
    started = perf_counter()
    run = simulator.simulate(data, "frenzy")
    seconds = perf_counter() - started
    if job_scheduling.evaluate(data, run.schedule).violations:
        raise SystemExit("the judge refuses the schedule")
    found: dict[str, Any] = {
        "part": "scale",
        "jobs": 10_000,
        "gpus": 1000,
        "load": round(traces.offered_load(data), 3),
        "simulation_s": round(seconds, 2),
    }
    keep(FILE, found, *PACKAGES)
    print(found, flush=True)

    data = workloads.queue(3000, 1, large(10_000), "huge", every_s=1)
    frenzy = registry.entry("scheduling.policies", "frenzy")
    policy, idle = frenzy.policy(data), Idle(data.cluster, frenzy.kinds(data))
    held, times = [], []
    for number, job in enumerate(data.jobs):
        trained = data.trained(job)
        policy.plans(trained)
        started = perf_counter()
        placed = policy.place(trained, idle)
        times.append(perf_counter() - started)
        if placed is not None:
            held.append([g for n, k in placed[1].items() for g in idle.take(n, k)])
        if number % 2 and held:
            idle.give(held.pop(0))
    found = {
        "part": "scale",
        "gpus": 10_000,
        "decisions": len(times),
        "median_ms": round(1e3 * median(times), 5),
        "most_ms": round(1e3 * max(times), 3),
    }
    keep(FILE, found, *PACKAGES)
    print(found, flush=True)


def memory(data: Path | None) -> None:
    """MARP's prediction of every run that it has a formula for."""
    begun = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime())
    for row in _frenzy_memory.rows(data):
        keep(FILE, {"part": "memory", "began": begun, **row}, *PACKAGES)
        print(row, flush=True)


def main(words: list[str] | None = None) -> None:
    """Run the parts asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--philly", type=Path, default=trace("philly_multi_gpu.csv"))
    parser.add_argument("--pollux", type=Path, default=trace("pollux_philly.csv"))
    parser.add_argument("--data", type=Path, help="folder of measurements")
    parser.add_argument("--only", default="queues,rounds,scale,memory,page")
    parser.add_argument(
        "--again", action="store_true", help="run what is known as well"
    )
    asked = parser.parse_args(words)
    parts = {
        "queues": lambda: compare(asked.philly, asked.pollux, asked.again),
        "rounds": rounds,
        "scale": scale,
        "memory": lambda: memory(asked.data),
        "page": _frenzy_page.write,
    }
    for name in asked.only.split(","):
        parts[name]()


def trace(name: str) -> Path | None:
    """Return a public trace in the folder that HETOPT_DATA names, where it has it."""
    place = Path(os.environ.get("HETOPT_DATA", "."), "traces", name)
    return place if place.is_file() else None


if __name__ == "__main__":
    main()
