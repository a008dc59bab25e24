"""One scheduling round: the exact method and statements, beside all assignments."""

from collections.abc import Iterator
from itertools import product
from random import Random
from typing import Any

from hetopt.exact import job_round as exact
from soaking._subproblems import agree, posed, some_statement, stated

LARGEST = 10**9 - 1

WEIGHT = 100


def draw(rng: Random) -> dict[str, Any]:
    """Up to 5 jobs in up to 3 classes; slots of none, one, exactly enough GPUs."""
    types = [f"T{i}" for i in range(rng.randint(1, 2))]
    costs = rng.choice([[0], [0, 1], [*range(20)], [LARGEST, LARGEST - 1, 0]])
    keys = [(gpu, size) for gpu in types for size in (1, 2, 4)]
    classes = [
        {
            "name": f"c{c}",
            "jobs": rng.choice([1, 1, 2]),
            "unserved": rng.choice(costs),
            "configurations": [
                {"gpu": gpu, "gpus": size, "cost": rng.choice(costs)}
                for gpu, size in rng.sample(keys, rng.randint(0, min(3, len(keys))))
            ],
        }
        for c in range(rng.randint(1, 3))
    ]
    slots = [
        {"gpu": gpu, "size": size, "gpus": rng.choice([0, size, 2 * size, 3, 5, 10**7])}
        for gpu in types
        for size in (1, 2, 4)
        if size == 1 or rng.random() < 0.7
    ]
    data = {"classes": classes, "slots": slots}
    statement = some_statement(rng, "job_round", 0.3)
    return {"data": data, "statement": statement}


def check(data: dict[str, Any]) -> str:
    """The method's optimum is the best of all."""
    problem = posed("job_round", data["data"])
    best = min(_costs(data["data"]))
    if data["statement"]:
        return stated("job_round", problem, data["statement"], best)
    return agree(exact.solve(problem), best, problem)


def _costs(data: dict[str, Any]) -> Iterator[int]:
    """The cost of every assignment that the slots allow."""
    jobs = [
        [(None, 0, c["unserved"])]
        + [(f["gpu"], f["gpus"], f["cost"]) for f in c["configurations"]]
        for c in data["classes"]
        for _ in range(c["jobs"])
    ]
    for chosen in product(*jobs):
        if all(
            sum(n for gpu, n, _ in chosen if gpu == s["gpu"] and n >= s["size"])
            <= s["gpus"]
            for s in data["slots"]
        ):
            yield sum(cost for _, _, cost in chosen)
