"""Seeded random recoveries so small that every choice of sources can be tried."""

from itertools import product
from math import prod
from random import Random
from typing import Any

from hetopt.plans import Recovery, Transfer
from hetopt.problems.recovery import CLOUD, Data, evaluate

FASTEST = 10**15
MOST = 1500  # recoveries of one problem
MOST_PIECES = 7  # of all needs together


def tiny(seed: int) -> Data:
    """Recovery number `seed`, the same on every machine; some have no plan at all."""
    return drawn(Random(f"recovery {seed}"))


def drawn(rng: Random) -> Data:
    """Up to 3 nodes, 3 units and 7 pieces, of which every choice can be tried."""
    while True:
        data = _data(rng)
        pieces = sum(
            data.grid[name] // need.degree for need in data.needs for name in need.units
        )
        if pieces <= MOST_PIECES and prod(map(len, ways(data))) <= MOST:
            return data


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
    return Data.model_validate(tree, strict=False)


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


def ways(data: Data) -> list[list[Transfer]]:
    """For every needed piece: each transfer that could bring it."""
    alive = {CLOUD, *(node.name for node in data.nodes)}
    found = []
    for need in data.needs:
        for unit in need.units:
            grid = data.grid[unit]
            width = grid // need.degree
            for piece in range(need.rank * width, (need.rank + 1) * width):
                found.append(
                    [
                        Transfer(
                            gpu=need.gpu,
                            unit=unit,
                            shard=(saved.rank, saved.degree),
                            part=(piece, piece + 1, grid),
                            source=saved.place,
                            medium=saved.medium,
                        )
                        for saved in data.saved
                        if saved.place in alive
                        and unit in saved.units
                        and saved.rank * grid <= piece * saved.degree
                        and (piece + 1) * saved.degree <= (saved.rank + 1) * grid
                    ]
                )
    return found


def best(data: Data) -> int | None:
    """The least time of all recoveries, by the judge alone; None where none is."""
    times = []
    for chosen in product(*ways(data)):
        judged = evaluate(data, Recovery(transfers=chosen))
        assert judged.valid, judged.violations
        times.append(judged.objective)
    return min(times, default=None)
