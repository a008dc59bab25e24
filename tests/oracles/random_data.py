"""Seeded random tiny problems that brute force can enumerate, some without any plan.

`tiny(problem, seed)` is the same on every machine: `random.Random(seed)` alone decides.
"""

from collections.abc import Callable
from random import Random
from typing import Any

import tiny_post_training
import tiny_recoveries

from hetopt.problems import device_grouping, job_round, layer_partition, provisioning


def tiny(problem: str, seed: int) -> Any:
    """The problem's data number `seed`."""
    return MAKERS[problem](Random(f"{problem} {seed}"))


def _grouping(random: Random) -> device_grouping.Data:
    """Up to 6 devices of up to 3 types; fixed, free and impossible group counts."""
    kinds = random.randint(1, 3)
    counts = [1] * kinds
    for _ in range(random.randint(0, 6 - kinds)):
        counts[random.randrange(kinds)] += 1
    gpus = tuple(
        device_grouping.DeviceType(
            type=f"T{i}",
            count=count,
            gflops=random.choice([1, 3, random.randint(1, 20), 142_000, 312_000]),
            memory_mib=random.choice([8, 12, random.randint(1, 24)]),
        )
        for i, count in enumerate(counts)
    )
    k = random.randint(1, 8)
    fixed = random.random() < 0.6
    return device_grouping.Data(
        gpus=gpus,
        minimum_memory_mib=random.choice([0, 10, 20, random.randint(0, 60)]),
        micro_batches=k if fixed else None,
        global_batch_micro_batches=None if fixed else k,
        groups=random.choice([None, None, 1, 2, 3]),
    )


def _partition(random: Random) -> layer_partition.Data:
    """Up to 6 layers on up to 3 stages, even or uneven, tight and loose memory."""
    layers, count = random.randint(1, 6), random.randint(1, 3)
    even = random.random() < 0.4
    layer_mib = _row(random, layers, 0, 9, even)
    in_flight = _row(random, layers, 0, 4, even)
    k = random.randint(1, 5)
    whole = sum(layer_mib) + min(k, count) * sum(in_flight)
    stages = [
        layer_partition.Stage(
            name=f"s{s}",
            memory_mib=random.randint(whole // count, whole + 1),
            layer_us=_row(random, layers, 0, 30, even),
            hop_us=random.choice([0, 0, random.randint(1, 20)]),
        )
        for s in range(count)
    ]
    if count > 1 and random.random() < 0.4:  # interchangeable but for the name
        stages[1] = stages[0].model_copy(update={"name": "s1"})
    if random.random() < 0.3:  # a stage of another degree weighs layers differently
        own = {
            "layer_mib": _row(random, layers, 0, 9, even),
            "in_flight_mib": _row(random, layers, 0, 4, even),
        }
        s = random.randrange(count)
        stages[s] = stages[s].model_copy(update=own)
    return layer_partition.Data(
        layer_mib=layer_mib,
        stages=tuple(stages),
        in_flight_mib=in_flight,
        micro_batches=k,
        objective=random.choice(["bottleneck", "iteration"]),
        order=random.choice(["given", "free"]),
    )


def _row(random: Random, n: int, low: int, high: int, even: bool) -> tuple[int, ...]:
    if even:
        return (random.randint(max(low, 1), high),) * n
    return tuple(random.randint(low, high) for _ in range(n))


def _provisioning(random: Random) -> provisioning.Data:
    """Up to 5 layers, 3 stages and 3 offers; a deadline, a budget or neither."""
    layers, k = random.randint(1, 5), random.randint(1, 4)
    degrees = random.choice([(1,), (2,), (1, 2)])
    offers = tuple(
        _offer(random, f"G{i}", layers, degrees) for i in range(random.randint(1, 3))
    )
    iterations = random.choice([1, 100])
    # Seconds of a middling plan: half of the deadlines bind, some cannot be met.
    scale = iterations * layers * 600 * (k + 1) * random.uniform(0.2, 4)
    aim = random.choice(["deadline", "deadline", "budget", "neither"])
    return provisioning.Data(
        layers=layers,
        micro_batches=k,
        data_parallel=degrees,
        max_stages=random.randint(1, 3),
        iterations=iterations,
        offers=offers,
        deadline_s=round(scale / 1e6, 6) if aim == "deadline" else None,
        budget_usd=round(scale / 3.6e9 * 4, 9) if aim == "budget" else None,
    )


def _offer(
    random: Random, gpu: str, layers: int, degrees: tuple[int, ...]
) -> provisioning.Offer:
    slow = random.randint(1, 4)
    return provisioning.Offer(
        gpu=gpu,
        quota=random.choice([0, 2, 2, 3, 4, 6]),
        usd_per_hour=random.choice([0.75, 1.0, 2.0, 2.5, 6.0]),
        memory_mib=random.randint(4, 6 * layers + 8),
        layer_mib=random.randint(1, 4),
        in_flight_mib=random.randint(0, 2),
        by_data_parallel={
            str(d): provisioning.Times(
                forward_us=random.randint(20, 200) * slow // d,
                backward_us=random.randint(40, 400) * slow // d,
                sync_us=random.randint(0, 1500),
            )
            for d in degrees
        },
    )


def _round(random: Random) -> job_round.Data:
    """Up to 6 jobs in up to 3 classes; slots of none, one, exactly enough GPUs."""
    types = [f"T{i}" for i in range(random.randint(1, 2))]
    costs = random.choice([[0], [0, 1], [*range(20)]])
    keys = [(gpu, size) for gpu in types for size in (1, 2, 4)]
    classes = [
        job_round.JobClass(
            name=f"c{c}",
            jobs=random.choice([1, 1, 2]),
            unserved=random.choice(costs),
            configurations=tuple(
                job_round.Configuration(gpu=gpu, gpus=size, cost=random.choice(costs))
                for gpu, size in random.sample(keys, random.randint(0, 3))
            ),
        )
        for c in range(random.randint(1, 3))
    ]
    slots = [
        job_round.Slots(
            gpu=gpu, size=size, gpus=random.choice([0, size, 2 * size, 3, 5, 10**7])
        )
        for gpu in types
        for size in (1, 2, 4)
        if size == 1 or random.random() < 0.7
    ]
    return job_round.Data(classes=tuple(classes), slots=tuple(slots))


MAKERS: dict[str, Callable[[Random], Any]] = {
    "device_grouping": _grouping,
    "job_round": _round,
    "layer_partition": _partition,
    "post_training": tiny_post_training.drawn,
    "provisioning": _provisioning,
    "recovery": tiny_recoveries.drawn,
}
