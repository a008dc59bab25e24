"""Seeded random training plans that keep every rule but, perhaps, memory."""

from itertools import pairwise
from random import Random

from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance


def random_plan(instance: Instance, seed: int) -> TrainingPlan:
    """A plan of random pipelines on some of the instance's GPUs."""
    rng = Random(f"plan/{seed}")
    groups = _groups(instance, rng)
    rng.shuffle(groups)
    batch = instance.workload.global_batch
    count = rng.randint(1, min(len(groups), batch, 4))
    sizes = _batches(rng, count, batch, instance.workload.micro_batch_sizes)
    shares = [groups[i::count] for i in range(count)]
    return TrainingPlan(
        pipelines=tuple(
            _pipeline(rng, instance.model.layers, share, number, size)
            for share, (number, size) in zip(shares, sizes, strict=True)
        )
    )


def _groups(instance: Instance, rng: Random) -> list[tuple[str, ...]]:
    """The GPUs of every node, cut into tensor-parallel groups of random sizes."""
    groups = []
    for node in instance.planned_cluster.nodes:
        gpus = [f"{node.name}:{i}" for i in range(node.count)]
        rng.shuffle(gpus)
        while gpus:
            size = rng.randint(1, len(gpus))
            groups.append(tuple(gpus[:size]))
            del gpus[:size]
    return groups


def _batches(
    rng: Random, count: int, batch: int, sizes: tuple[int, ...]
) -> list[tuple[int, int]]:
    """(micro-batches, size) of each pipeline; 1 is among the sizes."""
    chosen = [rng.choice(sizes) for _ in range(count)]
    if sum(chosen) > batch:
        chosen = [1] * count
    numbers, rest = [1] * count, batch - sum(chosen)
    while fitting := [i for i in range(count) if chosen[i] <= rest]:
        i = rng.choice(fitting)
        numbers[i] += 1
        rest -= chosen[i]
    if rest:  # what no size divides goes through one by one
        numbers[0], chosen[0] = numbers[0] * chosen[0] + rest, 1
    return list(zip(numbers, chosen, strict=True))


def _pipeline(
    rng: Random, layers: int, groups: list[tuple[str, ...]], number: int, size: int
) -> Pipeline:
    stages = []
    most = rng.randint(1, min(layers, len(groups)))
    cuts = [0, *sorted(rng.sample(range(1, layers), most - 1)), layers]
    for position, (first, last) in enumerate(pairwise(cuts)):
        mine = groups[position::most][:size]
        mine = mine[: rng.randint(1, len(mine))]
        samples = [1] * len(mine)
        for _ in range(size - len(mine)):
            samples[rng.randrange(len(mine))] += 1
        stages.append(
            Stage(
                layers=(first, last),
                replicas=tuple(
                    Replica(gpus=gpus, samples=n)
                    for gpus, n in zip(mine, samples, strict=True)
                ),
            )
        )
    return Pipeline(micro_batches=number, micro_batch_size=size, stages=tuple(stages))
