"""Queues: every policy and random schedules, beside the bound and a replay of our own.

The replay walks through the microseconds at which something begins or ends: it holds
each GPU for one job at a time, and counts steps as they end.
"""

from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

from hetopt import registry
from hetopt.errors import NoPlan
from hetopt.plans import Lease, Schedule, ScheduledJob
from hetopt.problems.job_scheduling import Data, Job, evaluate
from hetopt.result import Bound
from hetopt.scheduling.bounds import alone, one_machine
from hetopt.scheduling.certificate import average_us, recheck
from hetopt.scheduling.prices import bound_by_prices
from hetopt.scheduling.simulator import simulate
from soaking import Contradiction
from soaking.subproblems import posed

MICRO = 10**6

WEIGHT = 25


def draw(rng: Random) -> dict[str, Any]:
    """Up to 5 jobs of up to 2 models on up to 3 nodes, and what schedules them."""
    known = registry.names("scheduling.policies")
    return {
        "data": _data(rng),
        "policy": rng.choice([None, *known]),
        "rounds": rng.choice([None, None, True, False]),
        "seed": rng.randrange(10**6),
    }


def _data(rng: Random) -> dict[str, Any]:
    gpus = {
        name: {
            "peak_tflops": rng.choice([10, 10, 100]),
            "memory_gib": rng.choice([0.2, 0.6, 2, 80]),
            "efficiency": rng.choice([1, 0.5]),
            "memory_gbytes_per_s": rng.choice([None, None, 1, 1000]),
        }
        for name in ("A", "B")[: rng.randint(1, 2)]
    }
    counts = [rng.choice([1, 1, 2, 3, 4]) for _ in range(rng.randint(len(gpus), 3))]
    nodes = [
        {
            "name": f"n{i}",
            "gpu": [*gpus, *gpus, *gpus][i],
            "count": count,
            "intra_gbytes_per_s": rng.choice([1, 50]),
            "intra_latency_us": rng.choice([0, 5]),
        }
        for i, count in enumerate(counts)
    ]
    models = {
        name: {
            "spec": {
                "name": name,
                "layers": rng.choice([1, 2]),
                "hidden": rng.choice([64, 1024]),
                "heads": 8,
                "vocabulary": rng.choice([0, 1000]),
            },
            "sequence_length": rng.choice([1, 128]),
        }
        for name in ("small", "other")[: rng.randint(1, 2)]
    }
    jobs = [
        {
            "name": f"j{i}",
            "model": rng.choice(sorted(models)),
            "batch": rng.choice([1, 2, 4, 6]),
            "samples": rng.choice([1, 7, 100, 5000]),
            "submit_s": rng.choice([0, 0, 0.000001, 10, rng.randint(0, 200)]),
            "gpus": rng.randint(1, sum(counts)),
        }
        for i in range(rng.randint(1, 5))
    ]
    return {
        "name": "soaked",
        "cluster": {
            "gpus": gpus,
            "nodes": nodes,
            "inter": {
                "gbytes_per_s": rng.choice([0.1, 5]),
                "latency_us": rng.choice([0, 9]),
            },
        },
        "models": models,
        "jobs": jobs,
        "assumptions": {
            "memory": rng.choice(["marp", "cost_model"]),
            "launch_s": rng.choice([0, 1, 30]),
            "restart_s": rng.choice([0, 1, 60]),
            "trial_s": rng.choice([1, 120]),
            "round_s": rng.choice([10, 60, 1000]),
            "efficiency": rng.choice(["per_gpu", "throughput"]),
            "costs": {
                "recompute": rng.choice(["none", "full"]),
                "sync_overlap": rng.choice(["none", "backward"]),
                "reserve_mib": rng.choice([0, 100]),
            },
        },
    }


def check(data: dict[str, Any]) -> str:
    """What the policy does is a schedule, as long as it says, and above the bounds."""
    problem: Data = posed("job_scheduling", data["data"])
    if all(problem.refusal(job) for job in problem.jobs):
        return "infeasible"
    if data["policy"] is None:
        made, said = _random_schedule(Random(data["seed"]), problem), "random"
    else:
        try:
            run = simulate(problem, data["policy"], rounds=data["rounds"])
        except NoPlan:
            return f"{data['policy']}: no plan"
        made, said = run.schedule, data["policy"]
    judged = evaluate(problem, made)
    if judged.violations:
        raise Contradiction(f"{said}: {judged.violations}: {problem}")
    if (replayed := _replayed(problem, made)) != judged.objective:
        raise Contradiction(
            f"{said}: judged {judged.objective}, replayed {replayed}: {problem}"
        )
    found = [alone(problem), one_machine(problem)]
    if (by_prices := bound_by_prices(problem)) is not None:
        found.append(by_prices[0])
        again = average_us(problem, by_prices[1])
        found.append(Bound(again, "prices, looked at again"))
        if missing := recheck(problem, by_prices[1], by_prices[0].value):
            raise Contradiction(f"prices, looked at again: {missing}: {problem}")
    for bound in found:
        if bound.value > judged.objective:
            raise Contradiction(
                f"{said}: {judged.objective} is below {bound}: {problem}: {made}"
            )
    return said


def _replayed(data: Data, made: Schedule) -> Fraction:
    """The mean time of a job in the system, GPU by GPU and step by step."""
    held: dict[str, str] = {}
    events = []
    for entry in made.jobs:
        for lease in entry.leases:
            events.append((lease.end_us, 0, entry.job, lease))
            events.append((lease.start_us, 1, entry.job, lease))
    left = {job.name: -(-job.samples // job.batch) for job in data.jobs}
    jobs = {job.name: job for job in data.jobs}
    worked: set[str] = set()
    last: dict[str, int] = {}
    for now, begins, name, lease in sorted(events, key=lambda e: (e[0], e[1], e[2])):
        if begins:
            if any(gpu in held for gpu in lease.gpus):
                raise Contradiction(f"{name} gets GPUs that are held at {now}: {data}")
            held |= dict.fromkeys(lease.gpus, name)
            continue
        for gpu in lease.gpus:
            del held[gpu]
        last[name] = now
        if not lease.trial:
            again = name in worked
            left[name] -= _steps(data, jobs[name], lease, again)
            worked.add(name)
    if unfinished := [name for name in last if left[name]]:
        raise Contradiction(f"steps are left of {unfinished}: {left}: {data}")
    spans = [now - _us(jobs[name].submit_s) for name, now in last.items()]
    return Fraction(sum(spans), len(spans))


def _us(seconds: float) -> int:
    """Seconds as a file shows them, in whole microseconds, rounded up."""
    exactly = Fraction(str(seconds)) * MICRO
    return -(-exactly.numerator // exactly.denominator)


def _steps(data: Data, job: Job, lease: Lease, again: bool) -> int:
    """Whole steps that end within a lease."""
    given = data.assumptions
    begin = lease.start_us + _us(given.restart_s if again else given.launch_s)
    each, done = _step_us(data, job, lease), 0
    if lease.end_us - begin > 10**6 * each:  # too many to count one by one
        return (lease.end_us - begin) // each
    while begin + (done + 1) * each <= lease.end_us:
        done += 1
    return done


def _step_us(data: Data, job: Job, lease: Lease) -> int:
    """The time of a step, by the problem's own rates."""
    held = Counter(gpu.rpartition(":")[0] for gpu in lease.gpus)
    degrees = lease.data_parallel, lease.tensor_parallel
    return data.rates.step_us(data.trained(job), *degrees, held)


# --- random schedules --------------------------------------------------------------


def _random_schedule(rng: Random, data: Data) -> Schedule:
    """Jobs one after the other at random GPUs, some interrupted once or twice."""
    free = {
        f"{node.name}:{i}": 0 for node in data.cluster.nodes for i in range(node.count)
    }
    rows = {}
    for job in rng.sample(list(data.jobs), len(data.jobs)):
        refused = data.refusal(job)
        leases = () if refused else _random_leases(rng, data, job, free)
        rows[job.name] = ScheduledJob(job=job.name, leases=leases, refused=refused)
    return Schedule(jobs=tuple(rows[job.name] for job in data.jobs))


def _random_leases(
    rng: Random, data: Data, job: Job, free: dict[str, int]
) -> tuple[Lease, ...]:
    now, left, leases = _us(job.submit_s), job.steps, []
    for number in range(rng.choice([1, 1, 2, 3])):
        gpus, d, t = _random_gpus(rng, data, job)
        start = max([now, *(free[gpu] for gpu in gpus)])
        given = data.assumptions
        ready = start + _us(given.restart_s if number else given.launch_s)
        lease = Lease(
            start_us=start,
            end_us=start + 1,
            gpus=gpus,
            data_parallel=d,
            tensor_parallel=t,
        )
        each = _step_us(data, job, lease)
        whole = ready + left * each
        cut = rng.choice([start + 1, ready + 1, ready + left // 2 * each, whole])
        end = whole if number == 2 or cut >= whole or cut <= start else cut
        leases.append(lease.model_copy(update={"end_us": end}))
        free |= dict.fromkeys(gpus, end)
        now, left = end, left - max(0, end - ready) // each
        if end == whole:
            return tuple(leases)
    free |= dict.fromkeys(gpus, whole)
    return (*leases[:-1], leases[-1].model_copy(update={"end_us": whole}))


def _random_gpus(rng: Random, data: Data, job: Job) -> tuple[tuple[str, ...], int, int]:
    """GPUs of one type or of several that the job fits on."""
    trained = data.trained(job)
    option = rng.choice(data.rates.options(trained))
    d, t = option.data_parallel, option.tensor_parallel
    gpus = [
        f"{node.name}:{i}"
        for node in data.cluster.nodes
        for i in range(node.count)
        if node.gpu == option.gpu
        or (rng.random() < 0.5 and data.rates.fits(trained, node.gpu, d, t))
    ]
    return tuple(rng.sample(gpus, d * t)), d, t
