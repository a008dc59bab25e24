"""Every plan of a tiny instance, tried one by one; the judge alone says its worth.

No bound, no pruning, no mathematics: what the methods are compared with must be too
simple to be wrong. Sizes: about 7 devices; 7 layers on 4 stages; 6 layers on 4 stages
of 3 offers.
"""

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise, permutations, product
from typing import Any

import tiny_post_training
import tiny_recoveries

from hetopt import problems
from hetopt.plans import Group, Grouping, Partition, Provisioning, RentedStage
from hetopt.problems import Objective


def best(problem: str, data: Any) -> Objective | None:
    """The best objective of all valid plans, None where there is none."""
    if problem in _BEST:
        return _BEST[problem](data)
    values = [value for value, _ in valid(problem, data)]
    if not values:
        return None
    pick = min if problems.get(problem).sense == "minimise" else max
    return pick(values)


def valid(problem: str, data: Any) -> Iterator[tuple[Objective, Any]]:
    """Every plan that the judge accepts, with its objective."""
    judge = problems.get(problem).evaluate
    for plan in PLANS[problem](data):
        found = judge(data, plan)
        if found.valid and found.objective is not None:
            yield found.objective, plan


def groupings(data: Any) -> Iterator[Grouping]:
    """Every multiset of groups that uses each device once."""
    types = [gpu.type for gpu in data.gpus]
    every = tuple(gpu.count for gpu in data.gpus)
    for parts in _multisets(every, every):
        groups = [
            Group(gpus={t: n for t, n in zip(types, part, strict=True) if n})
            for part in parts
        ]
        yield Grouping(groups=tuple(groups))


def _multisets(
    left: tuple[int, ...], largest: tuple[int, ...]
) -> Iterator[list[tuple[int, ...]]]:
    """`left` as a sum of nonzero vectors, none lexicographically above the last."""
    if not any(left):
        yield []
        return
    for part in product(*(range(n + 1) for n in left)):
        if any(part) and part <= largest:
            rest = tuple(a - b for a, b in zip(left, part, strict=True))
            for others in _multisets(rest, part):
                yield [part, *others]


def partitions(data: Any) -> Iterator[Partition]:
    """Every run of layers for every stage, in the given order or in all."""
    names = tuple(stage.name for stage in data.stages)
    orders = permutations(names) if data.order == "free" else [names]
    for order in orders:
        for sizes in compositions(len(data.layer_mib), len(names)):
            yield Partition(order=order, layers=sizes)


def provisionings(data: Any) -> Iterator[Provisioning]:
    """Every variant, degree, sequence of offers and split of the layers."""
    names = [offer.gpu for offer in data.offers]
    degrees = [(one.choice, d) for one in data.each for d in one.data_parallel]
    for said, d in degrees:
        for count in range(1, min(data.max_stages, data.layers) + 1):
            for gpus in product(names, repeat=count):
                for sizes in compositions(data.layers, count):
                    stages = [
                        RentedStage(gpu=gpu, layers=size)
                        for gpu, size in zip(gpus, sizes, strict=True)
                    ]
                    yield Provisioning(data_parallel=d, stages=tuple(stages), **said)


def _round_cost(data: Any) -> int:
    """The least cost of all assignments of jobs that the slots allow."""
    jobs = [
        [(None, 0, c.unserved), *((f.gpu, f.gpus, f.cost) for f in c.configurations)]
        for c in data.classes
        for _ in range(c.jobs)
    ]
    return min(
        sum(cost for _, _, cost in chosen)
        for chosen in product(*jobs)
        if all(
            sum(n for gpu, n, _ in chosen if gpu == s.gpu and n >= s.size) <= s.gpus
            for s in data.slots
        )
    )


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """`total` as an ordered sum of `parts` numbers of at least 1."""
    for cuts in combinations(range(1, total), parts - 1):
        yield tuple(b - a for a, b in pairwise((0, *cuts, total)))


PLANS = {
    "device_grouping": groupings,
    "layer_partition": partitions,
    "provisioning": provisionings,
}
_BEST: dict[str, Callable[[Any], int | None]] = {
    "job_round": _round_cost,
    "post_training": tiny_post_training.best,
    "recovery": tiny_recoveries.best,
}
