"""Layer partition: the exact method and the statements, beside all partitions."""

from random import Random
from typing import Any

import brute_force

from hetopt.exact import layer_partition as exact
from soaking._subproblems import agree, posed, some_statement, stated

LARGEST = 10**9 - 1

WEIGHT = 100


def draw(rng: Random) -> dict[str, Any]:
    """Up to 7 layers on up to 4 stages; memory that is met exactly, or by 1 not."""
    layers, count = rng.randint(1, 7), rng.choice([1, 2, 2, 3, 3, 4])
    sizes = rng.choice([[0], [1], [0, 1, 5], [*range(10)], [LARGEST, 1, 0]])
    held = rng.choice([[0], [1], [0, 1, 3], [LARGEST, 0]])
    times = rng.choice([[0], [1], [0, 1], [*range(31)], [LARGEST, LARGEST - 1, 1]])
    even = rng.random() < 0.4

    def row(values: list[int]) -> list[int]:
        if even:
            return [rng.choice(values)] * layers
        return [rng.choice(values) for _ in range(layers)]

    k = rng.choice([1, 1, 2, rng.randint(1, 5), 1000, 10**7])
    layer_mib, in_flight = row(sizes), row(held)
    stages: list[dict[str, Any]] = []
    for s in range(count):
        a = rng.randrange(layers)
        z = rng.randint(a + 1, layers)
        need = sum(layer_mib[a:z]) + min(k, rng.randint(1, count)) * sum(in_flight[a:z])
        room = rng.choice([need, need, need + 1, need - 1, 0, LARGEST])
        stages.append(
            {
                "name": f"s{s}",
                "memory_mib": min(LARGEST, max(0, room)),
                "layer_us": row(times),
                "hop_us": rng.choice([0, 0, 1, rng.randint(1, 20), LARGEST]),
            }
        )
        if s and rng.random() < 0.3:  # interchangeable but for the name
            stages[s] = {**stages[s - 1], "name": f"s{s}"}
    data = {
        "layer_mib": layer_mib,
        "in_flight_mib": in_flight,
        "stages": stages,
        "micro_batches": k,
        "objective": rng.choice(["bottleneck", "iteration"]),
        "order": rng.choice(["given", "free"]),
    }
    statement = some_statement(rng, "layer_partition", 0.04)
    return {"data": data, "statement": statement}


def check(data: dict[str, Any]) -> str:
    """The method's optimum is the best of all."""
    problem = posed("layer_partition", data["data"])
    best = brute_force.best("layer_partition", problem)
    if data["statement"]:
        return stated("layer_partition", problem, data["statement"], best)
    return agree(exact.solve(problem), best, problem)
