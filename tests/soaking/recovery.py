"""Recovery: exact method, certificates, planners and statements, beside all choices."""

from random import Random
from typing import Any

import tiny_recoveries

from hetopt import problems, registry
from hetopt.errors import NoPlan
from hetopt.exact import recovery as exact
from hetopt.problems.recovery import Data
from soaking import Contradiction
from soaking._subproblems import agree, posed, some_statement, stated

FASTEST = 10**15
MOST_PIECES = 7  # of all needs together

WEIGHT = 25


def draw(rng: Random) -> dict[str, Any]:
    """Up to 3 nodes, 3 units and 7 pieces; rates and sizes of 1, equal, or extreme."""
    while True:
        data = _data(rng)
        pieces = sum(
            data.grid[name] // need.degree for need in data.needs for name in need.units
        )
        if pieces <= MOST_PIECES and tiny_recoveries.few_enough(data):
            break
    tree = data.model_dump(mode="json")
    statement = some_statement(rng, "recovery", 0.05)
    return {"data": tree, "statement": statement}


def _data(rng: Random) -> Data:
    rates = rng.choice([[1], [1, 2], [3, 5, 10, 50], [FASTEST, 1], [FASTEST], [7, 10]])
    sizes = rng.choice([[0], [1], [0, 4, 6, 12], [1, 10**13]])
    names = rng.choice([("n0", "n1", "n2"), ("a", "a/b", "b/a"), ("x to", "x", "to x")])
    names = names[: rng.randint(1, 3)]
    nodes = [
        {
            "name": name,
            "memory_bytes_per_s": rng.choice(rates),
            "disk_bytes_per_s": rng.choice(rates),
            "network_bytes_per_s": rng.choice(rates),
        }
        for name in names
    ]
    units = [
        {"name": str(i), "parameters": rng.choice(sizes)}
        for i in range(rng.randint(1, 3))
    ]
    cloud = rng.random() < 0.7
    pairs = [
        {"first": a, "second": b, "bytes_per_s": rng.choice(rates)}
        for i, a in enumerate(names)
        for b in names[:i]
        if rng.random() < 0.3
    ]
    tree = {
        "units": units,
        "bytes_per_parameter": rng.choice([1, 1, 14, 64]),
        "nodes": nodes,
        "pairs": pairs,
        "cloud_bytes_per_s": rng.choice(rates) if cloud else None,
        "cloud_limit": rng.choice(["shared", "each_node"]),
        "loads": rng.choice(["each_gpu", "once_a_node"]),
        "slices": rng.choice([1, 1, 1, 2]),
        "saved": _saved(rng, units, names, cloud),
        "needs": _needs(rng, units, names),
    }
    data: Data = posed("recovery", tree)
    return data


def _saved(
    rng: Random, units: list[Any], names: tuple[str, ...], cloud: bool
) -> list[dict[str, Any]]:
    rows = []
    for unit in units:
        for degree in rng.choice([[1], [2], [1, 2], [3]]):
            for rank in range(degree):
                shard = {"units": [unit["name"]], "rank": rank, "degree": degree}
                rows += [
                    {**shard, "place": place, "medium": medium}
                    for place in (*names, "gone")
                    for medium in ("disk", "memory")
                    if rng.random() < 0.3
                ]
                if cloud and rng.random() < 0.8:
                    rows.append({**shard, "place": "cloud", "medium": "cloud"})
    return rows


def _needs(
    rng: Random, units: list[Any], names: tuple[str, ...]
) -> list[dict[str, Any]]:
    degree = rng.choice([1, 2])
    rows = []
    for name in names:
        for index in range(2):
            wanted = [unit["name"] for unit in units if rng.random() < 0.35]
            if wanted:
                rank = rng.randrange(degree)
                need = {"units": wanted, "rank": rank, "degree": degree}
                rows.append({**need, "gpu": f"{name}:{index}"})
    return rows


def check(data: dict[str, Any]) -> str:
    """The method's optimum is the best of all; its certificate shows that, no more."""
    problem = posed("recovery", data["data"])
    best = tiny_recoveries.best(problem)
    if data["statement"]:
        return stated("recovery", problem, data["statement"], best)
    found = agree(result := exact.solve(problem), best, problem)
    if best is None:
        return found
    if (bound := exact.bound(problem).value) > best:
        raise Contradiction(f"prices prove {bound}, the best is {best}: {problem}")
    if result.certificate is None:
        raise Contradiction(f"no certificate is left: {problem}")
    if missing := exact.recheck(problem, result.certificate, best):
        raise Contradiction(f"its own certificate is refused: {missing}: {problem}")
    for refuted in (None, best, best + 1):
        changed = result.certificate.model_copy(update={"refuted_us": refuted})
        if not exact.recheck(problem, changed, best + 1):
            raise Contradiction(f"{best + 1} is shown by {changed}: {problem}")
    _no_planner_is_better(problem, best)
    return found


def _no_planner_is_better(problem: Data, best: int) -> None:
    for name in registry.entries_for("planners", "recovery"):
        try:
            plan = registry.entry("planners", name).plan(problem)
        except NoPlan:
            continue
        judged = problems.get("recovery").evaluate(problem, plan)
        if not judged.valid or judged.objective < best:
            raise Contradiction(f"{name}: {judged}, the best is {best}: {problem}")
