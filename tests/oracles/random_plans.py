"""Seeded random training plans that keep every rule but, perhaps, memory."""

from itertools import pairwise
from random import Random

from random_alternatives import with_choices

from hetopt.costs import CostTable, under
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance
from hetopt.schema.groups import FIELDS


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

    It keeps every rule but memory and what interleaving and divided states ask for, and
    its stages are where times were measured. Most plans whose GPUs divide experts, or
    whose replicas divide states in groups, have pipelines that are alike.
    """
    split = rng.choice(instance.workload.splits)
    table = CostTable(under(instance, split=split))
    chosen = split.experts * split.groups * split.interleave > 1
    alike = rng.random() < (0.8 if chosen else 0.2)
    plan = _alike(rng, table) if alike else _different(rng, table)
    if plan is None:
        return None
    replicas = [r for p in plan.pipelines for s in p.stages for r in s.replicas]
    if not all(table.usable(r.node, r.degree, r.samples) for r in replicas):
        return None
    if instance.workload.costs.layout == "told" and rng.random() < 0.7:
        plan = _told(rng, plan, table.layers, split.interleave)
    said = dict(zip(FIELDS, split, strict=True))
    plan = with_choices(rng, instance, plan).model_copy(update=said)
    if split.groups > 1 and not plan.zero:  # which divide what ZeRO does
        zeros = [zero for zero in instance.workload.zeros if zero]
        plan = plan.model_copy(update={"zero": rng.choice(zeros)})
    return plan


def _told(rng: Random, plan: TrainingPlan, layers: int, v: int) -> TrainingPlan:
    """The plan with virtual stages of any layers, of which the ends may have none."""
    made = []
    for pipeline in plan.pipelines:
        count = len(pipeline.stages)
        if (inner := v * count - 1) > layers + 1:
            return plan
        cuts = sorted(rng.sample(range(-1, layers + 1), inner))
        cuts = [0, *(min(max(x, 0), layers) for x in cuts), layers]
        runs = [tuple(pairwise(cuts))[j::count] for j in range(count)]
        stages = tuple(
            Stage(layers=(own[0][0], own[-1][1]), replicas=one.replicas, runs=own)
            for one, own in zip(pipeline.stages, runs, strict=True)
        )
        made.append(pipeline.model_copy(update={"stages": stages}))
    return TrainingPlan(pipelines=tuple(made))


def _different(rng: Random, table: CostTable) -> TrainingPlan | None:
    """Pipelines of any sizes on any groups of GPUs."""
    instance, workload = table.instance, table.workload
    groups = _groups(instance, rng, table.split.context)
    rng.shuffle(groups)
    sizes = _filled(rng, len(groups), workload.global_batch, workload.micro_batch_sizes)
    return None if sizes is None else _of(rng, instance, groups, sizes)


def _alike(rng: Random, table: CostTable) -> TrainingPlan | None:
    """Equal pipelines of one replica a stage, on groups of equally many GPUs.

    So many that they divide experts and states, and interleave, as they must.
    """
    nodes, split, layers = table.cluster.nodes, table.split, table.layers
    kinds = {rng.choice(nodes).gpu}  # of one type, most likely
    if rng.random() < 0.2:
        kinds = {node.gpu for node in nodes}
    t = split.context * rng.randint(1, max(1, max(n.count for n in nodes) // 2))
    groups = [
        tuple(f"{node.name}:{i}" for i in range(first, first + t))
        for node in nodes
        for first in range(0, node.count - t + 1, t)
        if node.gpu in kinds
    ]
    rng.shuffle(groups)
    size = rng.choice(table.workload.micro_batch_sizes)
    most, rest = divmod(table.workload.global_batch, size)
    runs, r = split.interleave, split.groups
    shapes = [
        (count, stages)
        for count in range(1, min(most, len(groups)) + 1)
        for stages in range(1, min(layers // runs, len(groups) // count) + 1)
        if not (rest or most % count or count * t % split.experts)
        and (r == 1 or (count % r == 0 and count > r))
        and (runs == 1 or most // count % stages == 0)
    ]
    if not shapes:
        return None
    count, stages = rng.choice(shapes)
    free = layers - stages * runs  # layers beside those that every stage has
    cuts = sorted(rng.choices(range(free + 1), k=stages - 1))
    cuts = [0, *(at + runs * (j + 1) for j, at in enumerate(cuts)), layers]
    replicas = (Replica(gpus=gpus, samples=size) for gpus in groups)
    return TrainingPlan(
        pipelines=tuple(
            Pipeline(
                micro_batches=most // count,
                micro_batch_size=size,
                stages=tuple(
                    Stage(layers=span, replicas=(next(replicas),))
                    for span in pairwise(cuts)
                ),
            )
            for _ in range(count)
        )
    )


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


def _groups(instance: Instance, rng: Random, parts: int = 1) -> list[tuple[str, ...]]:
    """The GPUs of every node in groups of random sizes, multiples of `parts`."""
    groups = []
    for node in instance.planned_cluster.nodes:
        gpus = [f"{node.name}:{i}" for i in range(node.count)]
        rng.shuffle(gpus)
        while len(gpus) >= parts:
            size = parts * rng.randint(1, len(gpus) // parts)
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
