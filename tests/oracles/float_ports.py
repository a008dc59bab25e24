"""What the ports of nodes send, in plain floats and replica by replica.

Shares no line with `hetopt.problems.training_plan.ports` or `hetopt.search`: it
asks the float judge for links, sizes and holders, and rounds nothing.
"""

from collections import defaultdict
from typing import Any

from hetopt.plans import Stage, TrainingPlan

Bytes = dict[tuple[str, float], float]  # by node, and rate of the links


def busy(judge: Any, sent: Bytes, idle: dict[str, float] | None = None) -> float:
    """Seconds of the port that is busy longest, less what is `idle` of its node."""
    times = [0.0]
    for (node, rate), size in sent.items():
        if judge.nodes[node].adapters:
            times.append(size / rate - (idle or {}).get(node, 0.0))
    return max(times)


def rate(judge: Any, a: str, b: str) -> float:
    """Bytes/s between two nodes, in the slower direction."""
    return min(judge.link(a, b)[1], judge.link(b, a)[1])


def passes(judge: Any, plan: TrainingPlan) -> float:
    """Seconds for activations and for their gradients, of all pipelines."""
    sent: Bytes = defaultdict(float)
    for pipeline in plan.pipelines:
        stages = pipeline.stages
        borders = [(j, j + 1) for j in range(len(stages) - 1)] * judge.runs
        if len(stages) > 1:
            borders += [(len(stages) - 1, 0)] * (judge.runs - 1)
        for i, j in borders:
            size = judge.e * judge.S * judge.H * pipeline.micro_batches
            for one, other in ((stages[i], stages[j]), (stages[j], stages[i])):
                there = {replica.node for replica in other.replicas}
                for node in {replica.node for replica in one.replicas}:
                    more = samples(one, node) - samples(other, node)
                    if more > 0:
                        fastest = max(rate(judge, node, x) for x in there - {node})
                        sent[node, fastest] += more * size
    return busy(judge, sent)


def samples(stage: Stage, node: str) -> int:
    """Sequences of a micro-batch that a node has in a stage."""
    return sum(replica.samples for replica in stage.replicas if replica.node == node)


def sums(
    judge: Any, tensors: dict[Any, list[tuple[str, int]]], idle: dict[str, float]
) -> float:
    """Seconds for gradients of `tensors`, each among its holders."""
    sent: Bytes = defaultdict(float)
    for key, holders in tensors.items():
        size = judge.g * judge._size(key)
        far = 3 if judge.costs.zero == 3 else 2
        if judge.costs.zero_groups > 1:
            names, groups = [name for name, _ in holders], judge.costs.zero_groups
            m = max(1, len(names) // groups)
            for i in range(0, len(names), m):
                ring(judge, sent, names[i : i + m], far * size)
            for i in range(m):
                ring(judge, sent, names[i::m], 2 * size / m)
        else:
            c = judge.costs.context_parallel
            ring(judge, sent, [name for name, _ in holders] * c, far * size)
    return busy(judge, sent, idle)


def ties(judge: Any, plan: TrainingPlan) -> float:
    """Seconds for tied embeddings, of the ends of all pipelines."""
    sent: Bytes = defaultdict(float)
    for pipeline in plan.pipelines:
        if len(pipeline.stages) > 1:
            both = pipeline.stages[0].replicas + pipeline.stages[-1].replicas
            size = judge.g * judge.model.vocabulary * judge.H
            names = [replica.node for replica in both]
            passed = 3 if judge.costs.zero == 3 else 2
            ring(judge, sent, names * judge.costs.context_parallel, passed * size)
    return busy(judge, sent)


def ring(judge: Any, sent: Bytes, names: list[str], size: float) -> None:
    """A chunk for every member elsewhere leaves each node."""
    for node in set(names):
        for other in names:
            if other != node:
                sent[node, rate(judge, node, other)] += size / len(names)
