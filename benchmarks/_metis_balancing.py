"""Figure 6 of Metis: what balancing layers and samples is worth, by trying all.

Two stages, each with a GPU of two types; layers are cut evenly or anywhere, samples of
a micro-batch shared evenly or in any way. Every plan is priced by the judge.
"""

from collections.abc import Iterable
from itertools import product

import hetopt
from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan

INSTANCE = "metis/microbenchmark-gpt3-350m"
GROUPS = (("node0", "node1"), ("node2", "node3"))  # V100 and T4, T4 and P100


def plan(b: int, batch: int, layers: int, cut: int, first: list[int]) -> TrainingPlan:
    """Two stages; `first` are the samples of the first GPU of each group."""
    stages = tuple(
        Stage(
            layers=span,
            replicas=tuple(
                Replica(gpus=(f"{name}:0",), samples=samples)
                for name, samples in zip(group, (own, b - own), strict=True)
            ),
        )
        for group, span, own in zip(
            GROUPS, ((0, cut), (cut, layers)), first, strict=True
        )
    )
    pipeline = Pipeline(micro_batches=batch // b, micro_batch_size=b, stages=stages)
    return TrainingPlan(pipelines=(pipeline,))


def least_us(balance_layers: bool, balance_samples: bool) -> int:
    """Iteration time of the best plan, over all micro-batch sizes."""
    instance = hetopt.load(INSTANCE)
    layers, workload = instance.model.layers, instance.workload
    cuts = range(1, layers) if balance_layers else [layers // 2]
    found = []
    for b in (b for b in workload.micro_batch_sizes if b > 1):  # a sample for each GPU
        shares: Iterable[int] = range(1, b) if balance_samples else [b // 2]
        for cut, *first in product(cuts, shares, shares):
            made = plan(b, workload.global_batch, layers, cut, first)
            judged = hetopt.check(made, instance)
            if judged.valid:
                found.append(int(judged.objective))
    return min(found)
