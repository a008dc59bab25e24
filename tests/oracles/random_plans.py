"""Seeded random training plans that keep every rule but, perhaps, memory."""

from itertools import pairwise
from random import Random

from random_alternatives import with_choices

from hetopt.costs import CostTable
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance


def random_plan(instance: Instance, seed: int) -> TrainingPlan:
    """Random plan number `seed` of an instance, the same on every machine."""
    return plan_by(instance, Random(f"plan/{seed}"))


def plan_by(instance: Instance, rng: Random) -> TrainingPlan:
    """A plan of random pipelines on some of the instance's GPUs; 1 is among the sizes.

    Settings that it may choose are those of the workload.
    """
    groups = _groups(instance, rng)
    rng.shuffle(groups)
    batch = instance.workload.global_batch
    count = rng.randint(1, min(len(groups), batch, 4))
    sizes = _batches(rng, count, batch, instance.workload.micro_batch_sizes)
    return _of(rng, instance, groups, sizes)


def any_plan(instance: Instance, rng: Random) -> TrainingPlan | None:
    """A plan of any sizes and choices; None where a trial ends without one.

    It keeps every rule but memory and what interleaving asks for, and its stages are
    where times were measured.
    """
    groups = _groups(instance, rng)
    rng.shuffle(groups)
    workload = instance.workload
    sizes = _filled(rng, len(groups), workload.global_batch, workload.micro_batch_sizes)
    if sizes is None:
        return None
    plan = _of(rng, instance, groups, sizes)
    table = CostTable(instance)
    replicas = [r for p in plan.pipelines for s in p.stages for r in s.replicas]
    if not all(table.usable(r.node, r.degree, r.samples) for r in replicas):
        return None
    return with_choices(rng, instance, plan)


def _filled(
    rng: Random, most: int, batch: int, sizes: tuple[int, ...]
) -> list[tuple[int, int]] | None:
    """(micro-batches, size) of at most `most` pipelines that do the batch exactly."""
    chosen: list[list[int]] = []
    while batch:
        fitting = [size for size in sizes if size <= batch]
        if not fitting:
            return None
        size = rng.choice(fitting)
        number = rng.randint(1, batch // size)
        batch -= number * size
        chosen.append([number, size])
    while len(chosen) > most:  # what has one size can be one pipeline
        number, size = chosen.pop()
        mate = next((row for row in chosen if row[1] == size), None)
        if mate is None:
            return None
        mate[0] += number
    return [(number, size) for number, size in chosen]


def _of(
    rng: Random,
    instance: Instance,
    groups: list[tuple[str, ...]],
    sizes: list[tuple[int, int]],
) -> TrainingPlan:
    shares = [groups[i :: len(sizes)] for i in range(len(sizes))]
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
