"""Device grouping: the exact method and the statements, beside all groupings."""

from random import Random
from typing import Any

import brute_force

from hetopt.exact import device_grouping as exact
from soaking._subproblems import agree, posed, some_statement, stated

LARGEST = 10**9 - 1
MOST = 10**7

WEIGHT = 120


def draw(rng: Random) -> dict[str, Any]:
    """Up to 6 devices of up to 4 types; floors that are met exactly, or by 1 not."""
    kinds = rng.randint(1, 4)
    counts = [1] * kinds
    for _ in range(rng.randint(0, 6 - kinds)):
        counts[rng.randrange(kinds)] += 1
    strong = rng.choice([[1, 2, 3], [LARGEST, LARGEST - 1, 1], [1, 300, 989_000], [7]])
    large = rng.choice([[1], [8, 12, 16], [LARGEST, 1], [*range(1, 25)]])
    gpus = [
        {
            "type": f"T{i}",
            "count": count,
            "gflops": rng.choice([*strong, rng.randint(1, 20)]),
            "memory_mib": rng.choice(large),
        }
        for i, count in enumerate(counts)
    ]
    total = sum(gpu["count"] * gpu["memory_mib"] for gpu in gpus)
    groups = rng.choice([None, None, None, 1, 2, 3, sum(counts), sum(counts) + 1])
    even = total // (groups or rng.randint(1, sum(counts)))
    k = rng.choice([1, 1, 2, rng.randint(1, 8), rng.randint(1, 1000), MOST])
    fixed = rng.random() < 0.5
    least = [0, 1, even, even + 1, even - 1, total, total + 1, rng.randint(0, total)]
    data = {
        "gpus": gpus,
        "minimum_memory_mib": max(0, rng.choice(least)),
        "micro_batches": k if fixed else None,
        "global_batch_micro_batches": None if fixed else k,
        "groups": groups,
    }
    statement = some_statement(rng, "device_grouping", 0.05)
    return {"data": data, "statement": statement}


def check(data: dict[str, Any]) -> str:
    """The method's optimum is the best of all."""
    problem = posed("device_grouping", data["data"])
    best = brute_force.best("device_grouping", problem)
    if data["statement"]:
        return stated("device_grouping", problem, data["statement"], best)
    return agree(exact.solve(problem), best, problem)
