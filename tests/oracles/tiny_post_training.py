"""Tiny post-trainings of which every division, engine and training plan is tried."""

from collections.abc import Iterator
from itertools import combinations, product
from random import Random
from typing import Any

from brute_force_training import best_training_plan, random_tiny_instance

from hetopt.plans import Engines, PostTraining, TrainingPlan
from hetopt.problems.post_training import Data, evaluate
from hetopt.schema import Generation, Instance, Node


def drawn(rng: Random) -> Data:
    """Up to 4 GPUs and 12 answers, of which every plan can be tried."""
    instance = random_tiny_instance(rng, most_gpus=4)
    mean = rng.choice([1, 5, 40, 400])
    longest = mean * rng.choice([1, 2, 10])
    lengths = {"mean": mean, "longest": longest}
    generation = Generation.model_validate(
        {
            "answers": rng.choice([1, 2, 5, 12]),
            "prompt_tokens": rng.choice([1, 100, 2000]),
            "answer_tokens": rng.choice([lengths, (1, mean, longest)]),
            "staleness": rng.choice([0, 0.1, 0.5, 1, 3]),
            "scoring_passes": rng.choice([0, 1, 2]),
            "precision": rng.choice(["bf16", "fp8"]),
        }
    )
    cluster = instance.planned_cluster
    hosts = rng.choice([None, rng.choice([1.0, 20.0])])
    gpus = {
        name: gpu.model_copy(
            update={
                "memory_gbytes_per_s": rng.choice([20.0, 100.0, 500.0]),
                "host_gbytes_per_s": hosts,
                # Engines leave 2 GiB free.
                "memory_gib": gpu.memory_gib + rng.choice([2.4, 3.5]),
            }
        )
        for name, gpu in cluster.gpus.items()
    }
    room = rng.choice([None, None, 0.2, 4.0])
    nodes = [node.model_copy(update={"host_gib": room}) for node in cluster.nodes]
    if rng.random() < 0.15:
        nodes = nodes[:1]
    elif rng.random() < 0.4 and nodes[0].count * len(nodes) <= 4:  # engines on some
        nodes = [nodes[0].model_copy(update={"name": x.name}) for x in nodes]
    made = cluster.model_copy(update={"gpus": gpus}).only(nodes)
    update = {"micro_batch_sizes": (1,), "generation": generation}
    whole = instance.with_workload(**update).with_costs(reserve_mib=2400)
    whole = whole.model_copy(update={"cluster": made})
    divide = "gpus" if len(nodes) == 1 else rng.choice(["nodes", "nodes", "gpus"])
    return Data(instance=whole, divide=divide)


def best(data: Data) -> int | None:
    """The least time of a step in us, of all plans; None where there is none."""
    found = (evaluate(data, plan) for plan in plans(data))
    return min((x.objective for x in found if x.valid), default=None)


def plans(data: Data) -> Iterator[PostTraining]:
    """Yield all ways to divide GPUs, each with its best training plan."""
    nodes = data.instance.planned_cluster.nodes
    whole = trained(data.instance, [node.count for node in nodes])
    if whole is not None:
        for engines in _engines(data, [0] * len(nodes)):
            yield PostTraining(shared=whole[1], engines=engines)
    for counts in product(*(range(node.count + 1) for node in nodes)):
        if (found := trained(data.instance, counts)) is not None:
            for engines in _engines(data, counts):
                yield PostTraining(training=found[1], engines=engines)


def trained(instance: Instance, counts: Any) -> tuple[int, TrainingPlan] | None:
    """Return the best training plan on the first so many GPUs of each node."""
    cluster = instance.planned_cluster
    both = [(node, n) for node, n in zip(cluster.nodes, counts, strict=True) if n]
    some = [node.model_copy(update={"count": n}) for node, n in both]
    if not some:
        return None
    cut = instance.model_copy(update={"cluster": cluster.only(some)})
    return best_training_plan(cut)


def _engines(data: Data, counts: Any) -> Iterator[tuple[Engines, ...]]:
    """Yield all engines on the GPUs behind the first so many of each node."""
    nodes = data.instance.planned_cluster.nodes
    both = [*zip(nodes, counts, strict=True)]
    for groups in _families([node for node, n in both if n == 0]):
        across = [
            tuple(f"{x.name}:{i}" for x in y for i in range(x.count)) for y in groups
        ]
        whole = tuple(Engines(gpus=x, degree=len(x)) for x in across)
        each = []
        for node, n in both:
            alone = not any(node in group for group in groups)
            free = alone and (n == 0 or data.divide == "gpus")
            each.append([*_parts(node.name, n, node.count, 4)] if free else [()])
        for chosen in product(*each):
            if engines := (*whole, *(one for some in chosen for one in some)):
                yield engines


def _families(nodes: list[Node]) -> Iterator[list[tuple[Node, ...]]]:
    """Yield sets of disjoint groups of two nodes or more, which need not be alike."""
    if not nodes:
        yield []
        return
    yield from _families(nodes[1:])
    for size in range(1, len(nodes)):
        for some in combinations(nodes[1:], size):
            for more in _families([x for x in nodes[1:] if x not in some]):
                yield [(nodes[0], *some), *more]


def _parts(
    node: str, first: int, count: int, most: int
) -> Iterator[tuple[Engines, ...]]:
    yield ()
    for d in (4, 2, 1):
        if d <= min(most, count - first):
            gpus = tuple(f"{node}:{i}" for i in range(first, first + d))
            for more in _parts(node, first + d, count, d):
                yield (Engines(gpus=gpus, degree=d), *more)
