"""Plans on a single GPU, where these take other times than tables say.

Calibrated layers take `pace` times as long where a plan has several GPUs. Tables of an
instance are of such plans, and so are bounds, proofs and searches. Plans on one GPU are
few: a type of node, a size of micro-batches, settings. The judge looks at each that may
be the best of its type.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise, product
from typing import NamedTuple

from ..caching import kept_by_digest
from ..costs import CostTable, Position
from ..plans import Pipeline, Replica, Stage, TrainingPlan
from ..problems import training_plan
from ..schema import Instance, exact
from ..schema.groups import FIELDS


class Single(NamedTuple):
    """A plan on one GPU, with its iteration time."""

    us: int
    plan: TrainingPlan


@kept_by_digest
def single_gpu_plans(instance: Instance) -> dict[str, Single]:
    """Return the best plan on one GPU of each type that has any.

    Empty where they take the times of the tables.
    """
    if not CostTable(instance).is_paced:
        return {}
    found: dict[str, Single] = {}
    for least_us, gpu, plan in sorted(_plans(instance), key=lambda row: row[0]):
        if gpu in found and least_us >= found[gpu].us:
            continue
        judged = training_plan.evaluate(instance, plan)
        if judged.valid and isinstance(judged.objective, int):
            best = Single(judged.objective, plan)
            found[gpu] = min(found.get(gpu, best), best, key=lambda one: one.us)
    return found


def single_gpu_us(instance: Instance) -> list[int]:
    """Return the times of these plans."""
    return [one.us for one in single_gpu_plans(instance).values()]


def offer_single_gpus(
    instance: Instance, offer: Callable[[TrainingPlan], object]
) -> None:
    """Offer these plans to who knows plans on several GPUs only."""
    for one in single_gpu_plans(instance).values():
        offer(one.plan)


def _plans(instance: Instance) -> Iterator[tuple[int, str, TrainingPlan]]:
    """Yield plans that fit, each with the type and no more than an iteration takes."""
    work, stop = instance.workload, instance.model.layers
    factor = exact(work.costs.schedule.pipeline_factor)
    # Nodes of one type take and hold as much, but for what hosts hold.
    nodes = {(x.gpu, x.host_gib): x.name for x in instance.planned_cluster.nodes}
    sizes = [b for b in {*work.micro_batch_sizes} if work.global_batch % b == 0]
    table = CostTable(instance, {name: 1 for name in [*nodes.values()][:1]})
    settings = product(work.recomputes, work.zeros, work.splits)
    for (rule, zero, split), (kind, node), b in product(settings, nodes.items(), sizes):
        own, n = table.under(rule, zero, split), work.global_batch // b
        if not own.usable(node, 1, b):
            continue
        need = own.stage_mib(node, range(stop), (1, b), Position(n, 1, 0), (1,) * stop)
        if sum(need.values()) > own.memory_mib(node):
            continue
        us = n * (sum(own.layer_us(node, 1, b)) + own.head_us(node, 1, b))
        replica = Replica(gpus=(f"{node}:0",), samples=b)
        told, runs = rule if rule != work.costs.compute.recompute else None, None
        if split.interleave > stop and work.costs.schedule.layout == "told":
            cuts = [0, *range(stop + 1), stop]  # ends without layers
            runs = tuple(pairwise(cuts[: split.interleave + 1]))
        stage = Stage(layers=(0, stop), replicas=(replica,), recompute=told, runs=runs)
        pipe = Pipeline(micro_batches=n, micro_batch_size=b, stages=(stage,))
        chosen = {"zero": zero, **dict(zip(FIELDS, split, strict=True))}
        other = {x: y for x, y in chosen.items() if y != work.costs.value(x)}
        plan = TrainingPlan(pipelines=(pipe,)).model_copy(update=other)
        yield int(factor * us), kind[0], plan
