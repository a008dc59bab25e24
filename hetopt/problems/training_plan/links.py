"""A training plan talks over links within nodes, or over those between them.

Counted are, in AutoHet's order of need:
- tensor-parallel groups of several GPUs;
- synchronising pairs: once a layer, every two replicas that hold it;
- hops: every two neighbouring stages, within a node where some replica of the one and
  some of the other share it.

Source: AutoHet, section III-C (NVLink within nodes, RDMA between them).
"""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from ...plans import Replica, Stage, TrainingPlan

Split = dict[str, int]  # "intra" and "inter", how many of each


def link_use(plan: TrainingPlan) -> dict[str, Split]:
    """Count the groups, pairs and hops on links within nodes, and between them."""
    stages = [pipeline.stages for pipeline in plan.pipelines]
    near = [_near(a, b) for row in stages for a, b in pairwise(row)]
    groups = [len(_nodes(r)) == 1 for r in plan.replicas() if r.degree > 1]
    return {
        "tensor_parallel": _count(sum(groups), len(groups)),
        "synchronisation": _pairs(stage for row in stages for stage in row),
        "hops": _count(sum(near), len(near)),
    }


def _nodes(replica: Replica) -> set[str]:
    return {gpu.rpartition(":")[0] for gpu in replica.gpus}


def _near(sender: Stage, receiver: Stage) -> bool:
    senders = {replica.node for replica in sender.replicas}
    return any(replica.node in senders for replica in receiver.replicas)


def _pairs(stages: Iterable[Stage]) -> Split:
    holders: dict[int, Counter[str]] = {}
    for stage in stages:
        nodes = Counter(replica.node for replica in stage.replicas)
        for layer in stage.span:
            holders.setdefault(layer, Counter()).update(nodes)
    rows = list(holders.values())
    within = sum(n * (n - 1) // 2 for row in rows for n in row.values())
    return _count(within, sum(row.total() * (row.total() - 1) // 2 for row in rows))


def _count(within: int, of: int) -> Split:
    return {"intra": within, "inter": of - within}
