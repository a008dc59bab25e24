"""The exact method on 5 to 8 GPUs, equal nodes among them.

Every plan is looked at where few are, which are those of one layer and few pipelines;
else random ones and those of a planner. Outcomes tell GPUs, and several replicas.
"""

from random import Random
from typing import Any

import drawing
from claims import refuted, refuted_by_some, solved

_NODES = [
    *[(1,) * n for n in (5, 6, 7, 8)],
    *[(2, 2, 2), (2, 2, 2, 2), (3, 3), (4, 4), (1, 4), (2, 4), (5,), (8,), (2, 2, 1)],
    *[(1, 1, 1, 2), (1, 1, 2, 2), (6, 1), (4, 2, 2)],
]
_PIPELINES = 4  # the most that a plan may have where all plans are looked at

WEIGHT = 15


def draw(rng: Random) -> dict[str, Any]:
    """An instance, and a seed of plans; several replicas in about a third."""
    counts = rng.choice(_NODES)
    sizes = rng.choice([(1,), (1,), (1,), (1, 2), (2,), (3,)])
    tree = drawing.instance(
        rng,
        counts,
        layers=rng.choice([1, 1, 1, 1, 2, 2, 3]),
        batch=rng.choice([1, 2, 2, 3, 4, 6]) * min(sizes),
        sizes=sizes,
        even=rng.random() < 0.7,
    )
    return {"instance": tree, "plans": rng.randrange(10**9)}


def check(data: dict[str, Any]) -> str:
    """The word for what was proved, and how many plans it was held against."""
    instance = drawing.read(data["instance"])
    result = solved(instance, warm=False, time_s=0.1)
    workload, gpus = instance.workload, instance.planned_cluster.gpu_count
    pipelines = workload.global_batch // min(workload.micro_batch_sizes)
    where = f"{gpus} GPUs"
    if max(workload.micro_batch_sizes) > 1:
        where += ", several replicas"
    if instance.model.layers == 1 and pipelines <= _PIPELINES:
        return f"{where}, all plans: {refuted(instance, result)}"
    word = refuted_by_some(instance, result, Random(data["plans"]))
    return f"{where}, some plans: {word}"
