"""Parts that rules of device grouping share: numbers of groups, and the best.

A grouping is worked on as a list of groups, each a count of devices by the number of
their type in the data.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

from ..clock import monotonic
from ..errors import NoPlan
from ..plans import Group, Grouping
from ..problems.device_grouping import Data

Counts = list[int]  # devices of each type, in the order of the data
#: Numbers of groups that a rule is tried with; of more, so many evenly apart.
MOST_TRIED = 128


def numbers_of_groups(data: Data, most: int = MOST_TRIED) -> Iterator[int]:
    """Yield numbers of groups that memory and micro-batches allow, many first."""
    if data.groups is not None:
        yield data.groups
        return
    largest = data.devices
    if floor := data.minimum_memory_mib:
        room = sum(gpu.count * gpu.memory_mib for gpu in data.gpus)
        largest = min(largest, room // floor)
    if data.global_batch_micro_batches is not None:
        largest = min(largest, data.global_batch_micro_batches)
    step = max(1, -(-largest // most))
    yield from range(largest, 0, -step)
    if largest > 1 and (largest - 1) % step:
        yield 1


def strength(data: Data, counts: Sequence[int]) -> int:
    """Return the sum of a group's GFLOP/s, bubbles apart."""
    return sum(n * gpu.gflops for n, gpu in zip(counts, data.gpus, strict=True))


def memory_mib(data: Data, counts: Sequence[int]) -> int:
    """Return the memory of all devices of a group."""
    return sum(n * gpu.memory_mib for n, gpu in zip(counts, data.gpus, strict=True))


def effective(data: Data, counts: Sequence[int], k: int) -> Fraction:
    """Return a group's effective compute with `k` micro-batches; 0 of an empty one."""
    size = sum(counts)
    return Fraction(strength(data, counts) * k, k + size - 1) if size else Fraction(0)


def value(data: Data, groups: Sequence[Counts]) -> Fraction | None:
    """Return the objective of groups; None where one is too small for the model."""
    k = data.micro_batches_of(len(groups))
    if k < 1 or not all(map(any, groups)):
        return None
    if any(memory_mib(data, group) < data.minimum_memory_mib for group in groups):
        return None
    return len(groups) * min(effective(data, group, k) for group in groups)


def best_grouping(
    data: Data,
    name: str,
    make: Callable[[int], list[Counts] | None],
    deadline: float | None,
    numbers: Iterator[int] | None = None,
) -> Grouping:
    """Return the best of what a rule makes of each number of groups.

    `NoPlan` where none of them has the memory, or none was made in time.
    """
    best: tuple[Fraction, list[Counts]] | None = None
    late = False
    for number in numbers_of_groups(data) if numbers is None else numbers:
        if late := deadline is not None and monotonic() > deadline:
            break
        groups = make(number)
        if groups is None or (found := value(data, groups)) is None:
            continue
        if best is None or found > best[0]:
            best = found, groups
    if best is None:
        why = "was made in time" if late else "has the memory that the model needs"
        raise NoPlan(f"{name}: no grouping of all devices by this rule {why}")
    return as_plan(data, best[1])


def as_plan(data: Data, groups: Sequence[Counts]) -> Grouping:
    """Return groups as a plan, equal ones together."""
    copies = Counter(map(tuple, groups))
    return Grouping(
        groups=tuple(
            Group(
                gpus={g.type: n for g, n in zip(data.gpus, counts, strict=True) if n},
                copies=number,
            )
            for counts, number in copies.items()
        )
    )
