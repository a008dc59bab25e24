"""What the statements of layer partition share: equal stages, plans by index."""

from collections.abc import Iterator

from hetopt.plans import Partition
from hetopt.problems.layer_partition import Data, Stage


def alike(data: Data) -> list[tuple[int, int]]:
    """Neighbours among stages that are equal but for the name, if they may swap."""
    if data.order == "given":
        return []
    last: dict[tuple[object, ...], int] = {}
    pairs = []
    for s, stage in enumerate(data.stages):
        key = (stage.memory_mib, stage.layer_us, stage.hop_us)
        if key in last:
            pairs.append((last[key], s))
        last[key] = s
    return pairs


def in_order(data: Data, plan: Partition) -> Iterator[tuple[int, range, int]]:
    """By position: the index of the stage, its layers, its time.

    Equal stages come in the order of the data, as the statements ask.
    """
    order = _sorted_alike(data, [_index(data, name) for name in plan.order])
    first = 0
    for position, (s, size) in enumerate(zip(order, plan.layers, strict=True)):
        stage, span = data.stages[s], range(first, first + size)
        hop = stage.hop_us if position < len(order) - 1 else 0
        yield s, span, sum(stage.layer_us[l] for l in span) + hop
        first += size


def _index(data: Data, name: str) -> int:
    return next(s for s, stage in enumerate(data.stages) if stage.name == name)


def _sorted_alike(data: Data, order: list[int]) -> list[int]:
    if data.order == "given":
        return order

    def key(stage: Stage) -> tuple[object, ...]:
        return (stage.memory_mib, stage.layer_us, stage.hop_us)

    queues: dict[tuple[object, ...], list[int]] = {}
    for s, stage in enumerate(data.stages):
        queues.setdefault(key(stage), []).append(s)
    return [queues[key(data.stages[s])].pop(0) for s in order]
