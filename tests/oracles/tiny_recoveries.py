"""Seeded random recoveries so small that every choice of sources can be tried."""

from collections.abc import Iterator
from itertools import product
from math import prod
from random import Random

from hetopt.plans import Recovery, Transfer
from hetopt.problems.recovery import (
    CLOUD,
    Data,
    Machine,
    Need,
    Pair,
    Saved,
    Unit,
    evaluate,
)

MOST = 1500  # recoveries of one problem


def tiny(seed: int) -> Data:
    """Up to 3 nodes, 3 units and about 7 pieces; some have no plan at all."""
    random = Random(f"recovery {seed}")
    nodes = tuple(
        Machine(
            name=f"n{i}",
            memory_bytes_per_s=random.choice([50, 100, 7]),
            disk_bytes_per_s=random.choice([3, 5, 10]),
            network_bytes_per_s=random.choice([4, 20, 50]),
        )
        for i in range(random.randint(1, 3))
    )
    units = tuple(
        Unit(name=str(i), parameters=random.choice([0, 4, 8, 12, 6]))
        for i in range(random.randint(1, 3))
    )
    cloud = random.random() < 0.8
    saved = [*_saved(random, units, nodes)]
    if cloud:
        every = tuple(unit.name for unit in units)
        row = Saved(place=CLOUD, medium="cloud", units=every, rank=0, degree=1)
        saved.append(row)
    joined = len(nodes) > 1 and random.random() < 0.4
    return Data(
        units=units,
        bytes_per_parameter=1,
        nodes=nodes,
        pairs=(Pair(first="n0", second="n1", bytes_per_s=random.choice([2, 30])),)
        if joined
        else (),
        cloud_bytes_per_s=random.choice([1, 2, 6]) if cloud else None,
        cloud_limit=random.choice(["shared", "each_node"]),
        loads=random.choice(["each_gpu", "once_a_node"]),
        saved=tuple(saved),
        needs=tuple(_needs(random, units, nodes)),
    )


def _saved(
    random: Random, units: tuple[Unit, ...], nodes: tuple[Machine, ...]
) -> Iterator[Saved]:
    degree = random.choice([1, 2])
    for unit in units:
        for rank in range(degree):
            for place in [*(node.name for node in nodes), "gone"]:
                for medium in ("disk", "memory"):
                    if random.random() < 0.25:
                        yield Saved(
                            place=place,
                            medium=medium,
                            units=(unit.name,),
                            rank=rank,
                            degree=degree,
                        )


def _needs(
    random: Random, units: tuple[Unit, ...], nodes: tuple[Machine, ...]
) -> Iterator[Need]:
    degree, left = random.choice([1, 2]), 4
    for node in nodes:
        for index in range(2):
            names = tuple(unit.name for unit in units if random.random() < 0.35)
            if names and left >= len(names):
                left -= len(names)
                yield Need(
                    gpu=f"{node.name}:{index}",
                    units=names,
                    rank=random.randrange(degree),
                    degree=degree,
                )


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


def few_enough(data: Data) -> bool:
    """Whether all recoveries can be tried."""
    return prod(map(len, ways(data))) <= MOST
