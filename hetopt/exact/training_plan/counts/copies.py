"""Plans of equal pipelines, each in its own part of every node: copies of one row.

Of n pipelines each has an n-th of every node's GPUs, so that all replicas of a layer
lie in one node and synchronise there. One of them is a least row on the n-th part.
"""

from collections.abc import Callable, Iterator

from .... import capability
from ....costs import fixed
from ....plans import Pipeline, TrainingPlan
from ....schema import Instance
from ....stages import StageTable
from . import bound, plans


def pipelines(
    instance: Instance,
    most_us: Callable[[], float],
    check: Callable[[], None] = lambda: None,
) -> Iterator[TrainingPlan]:
    """Plans for any number of copies and any size of micro-batches.

    Their rows are better than plans of `most_us()`. They may break rules that rows do
    not know: they are to be judged. `check()` is called before what takes long, and may
    raise.
    """
    batch = instance.workload.global_batch
    for copies in range(max(n.count for n in instance.planned_cluster.nodes), 1, -1):
        for size in sorted(set(instance.workload.micro_batch_sizes)):
            check()
            number, rest = divmod(batch, size)
            if rest or number < copies:
                continue
            for plan in _rows(_part(instance, copies, size), most_us, check):
                yield _copied(instance, plan, copies)


def _rows(
    part: Instance, most_us: Callable[[], float], check: Callable[[], None]
) -> Iterator[TrainingPlan]:
    if not capability.carries("proof counts", fixed(part)):
        return
    rows = bound.prepared(StageTable(part), check)
    if rows is not None:
        yield from plans.pipelines(rows, lambda: rows.left_us(most_us()))


def _part(instance: Instance, copies: int, size: int) -> Instance:
    """What one of the pipelines has, with the most micro-batches of any."""
    cluster, workload = instance.planned_cluster, instance.workload
    nodes = [
        node.model_copy(update={"count": node.count // copies})
        for node in cluster.nodes
        if node.count >= copies
    ]
    batch = -(-workload.global_batch // (size * copies)) * size
    own = {"global_batch": batch, "micro_batch_sizes": (size,)}
    update = {
        "cluster": cluster.only(nodes),
        "workload": workload.model_copy(update=own),
    }
    return instance.model_copy(update=update)


def _copied(instance: Instance, plan: TrainingPlan, copies: int) -> TrainingPlan:
    (one,) = plan.pipelines
    nodes = instance.planned_cluster.node
    number = instance.workload.global_batch // one.micro_batch_size

    def copy(n: int) -> Pipeline:
        def moved(gpu: str) -> str:
            node, _, i = gpu.rpartition(":")
            return f"{node}:{int(i) + n * (nodes[node].count // copies)}"

        # Those before others have what cannot be shared evenly.
        own = number // copies + (n < number % copies)
        return one.on_gpus(moved).model_copy(update={"micro_batches": own})

    return TrainingPlan(pipelines=tuple(map(copy, range(copies))))
