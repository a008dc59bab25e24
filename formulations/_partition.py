"""Statements of layer partition share this: equal stages, plans by index."""

from collections.abc import Iterator
from itertools import pairwise

from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data, Stage


def _key(stage: Stage) -> tuple[object, ...]:
    """Return the fields by which stages may swap positions: all but the name."""
    return (stage.memory_mib, stage.layer_us, stage.hop_us, stage.layer_mib, stage.in_flight_mib)


def kinds(data: Data) -> list[list[int]]:
    """Return the stages that are equal but for the name and may swap, together."""
    if data.order == "given":
        return [[s] for s in range(len(data.stages))]
    equals: dict[tuple[object, ...], list[int]] = {}
    for s, stage in enumerate(data.stages):
        equals.setdefault(_key(stage), []).append(s)
    return list(equals.values())


def alike(data: Data) -> list[tuple[int, int]]:
    """Neighbours among stages that are equal but for the name, if they may swap."""
    return [pair for stages in kinds(data) for pair in pairwise(stages)]


def needs(data: Data) -> list[list[list[int]]]:
    """Return by stage and position the memory of each layer, with the micro-batches in flight there."""
    flights = [min(data.micro_batches, len(data.stages) - j) for j in range(len(data.stages))]
    return [
        [[m + held * a for m, a in zip(*data.needs(stage), strict=True)] for held in flights]
        for stage in data.stages
    ]


def in_order(data: Data, plan: Partition) -> Iterator[tuple[int, range, int]]:
    """Yield by position the index of the stage, its layers, its time.

    Equal stages come in the order of the data, as the statements ask.
    """
    number = {stage.name: s for s, stage in enumerate(data.stages)}
    first = 0
    for position, (name, size) in enumerate(zip(plan.order, plan.layers, strict=True)):
        s = number[name]
        if data.order == "free":
            earlier = [_key(data.stages[number[other]]) for other in plan.order[:position]]
            same = [x for x, stage in enumerate(data.stages) if _key(stage) == _key(data.stages[s])]
            s = same[earlier.count(_key(data.stages[s]))]
        stage, span = data.stages[s], range(first, first + size)
        hop = stage.hop_us if position < len(plan.order) - 1 else 0
        yield s, span, sum(stage.layer_us[l] for l in span) + hop
        first += size
