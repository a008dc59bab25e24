"""The best grid of a tiny instance: stages x replicas x degree, by trying all.

Every setting, degree, number of replicas and stages, size of micro-batches, way to cut
the layers, and every node for each group; replicas alone or sharing a micro-batch. The
judge decides what the target runs, and how long it takes.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import combinations, pairwise, product
from random import Random

from brute_force_training import random_tiny_instance
from random_alternatives import with_alternatives

from hetopt.errors import InstanceError
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.problems import training_plan as judge
from hetopt.schema import Instance
from hetopt.schema.targets import TARGETS

SYMMETRIC = [name for name, target in TARGETS.items() if target.symmetric]


def tiny_on_a_trainer(random: Random) -> Instance:
    """At most 4 GPUs for a trainer that runs grids alone, now and then with choices."""
    instance = random_tiny_instance(random, 4)
    if random.random() < 0.3:
        instance = with_alternatives(random, instance)
    return instance.on(random.choice(SYMMETRIC))


def best_grid(instance: Instance) -> int | None:
    """The least objective of a grid that the judge accepts; None if there is none."""
    found = []
    for plan in _grids(instance):
        try:
            judged = judge.evaluate(instance, plan)
        except InstanceError:  # a degree or size that was not measured
            continue
        if judged.valid:
            found.append(judged.objective)
    return min(found, default=None)


def _grids(instance: Instance) -> Iterator[TrainingPlan]:
    nodes = instance.planned_cluster.nodes
    for t in range(1, max(node.count for node in nodes) + 1):
        groups = {node.name: node.count // t for node in nodes}
        for count in range(1, sum(groups.values()) + 1):
            for held in product(groups, repeat=count):
                if any(n > groups[name] for name, n in Counter(held).items()):
                    continue
                for stages in range(1, min(count, instance.model.layers) + 1):
                    if count % stages == 0:
                        rows = [held[j::stages] for j in range(stages)]
                        yield from _of_rows(instance, t, rows)


def _of_rows(
    instance: Instance, t: int, rows: list[tuple[str, ...]]
) -> Iterator[TrainingPlan]:
    workload, replicas = instance.workload, len(rows[0])
    for size, together in product(workload.micro_batch_sizes, range(1, replicas + 1)):
        pipelines, rest = divmod(replicas, together)
        n, over = divmod(workload.global_batch, size * pipelines)
        if rest or over or size % together:
            continue
        for cuts in _cuts(instance.model.layers, len(rows)):
            for zero, rule in product(workload.zeros, workload.recomputes):
                yield _plan(t, rows, cuts, size, together, n, zero, rule)


def _cuts(layers: int, stages: int) -> Iterator[list[tuple[int, int]]]:
    for inner in combinations(range(1, layers), stages - 1):
        yield list(pairwise((0, *inner, layers)))


def _plan(t, rows, cuts, size, together, n, zero, rule) -> TrainingPlan:
    given: Counter[str] = Counter()

    def group(node: str) -> tuple[str, ...]:
        first = given[node]
        given[node] += t
        return tuple(f"{node}:{first + i}" for i in range(t))

    made = []
    for first in range(0, len(rows[0]), together):
        stages = [
            Stage(
                layers=span,
                recompute=rule,
                replicas=tuple(
                    Replica(gpus=group(node), samples=size // together)
                    for node in row[first : first + together]
                ),
            )
            for span, row in zip(cuts, rows, strict=True)
        ]
        made.append(
            Pipeline(micro_batches=n, micro_batch_size=size, stages=tuple(stages))
        )
    return TrainingPlan(pipelines=tuple(made), zero=zero)
