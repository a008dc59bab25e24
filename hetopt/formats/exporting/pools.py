"""Pools of GPUs of RL post-training, as its programs name them.

What verl and NeMo-RL share: a pool of equal nodes that trains by Megatron-LM, one that
generates by engines of one degree, or both in turn.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import NamedTuple

from ...errors import Unsupported
from ...plans import PostTraining
from ...problems.post_training import Data, evaluate
from ...problems.training_plan.shapes import normal, split_of
from ...text.documents import Document
from .. import exporting


class Pools(NamedTuple):
    """The pools of a plan: GPUs by node, as many of each, and degrees.

    `shared` says that both are the same GPUs. `megatron` has the trainer's degrees by
    the names of Megatron-LM's own configuration.
    """

    shared: bool
    training: Counter[str]
    serving: Counter[str]
    degree: int
    megatron: dict[str, int]
    staleness: Fraction


def placement(
    tool: str, words: Callable[[Pools], Document], data: Data, plan: PostTraining
) -> dict[str, str]:
    """Return `placement.yaml`, in a tool's words for the pools of a plan.

    Comments name the nodes, which the programs choose. Raises `InstanceError` for a
    plan that the judge refuses, and `Unsupported` for one that the tool cannot express,
    with every reason.
    """
    from yaml import safe_dump

    exporting.refuse_broken(evaluate(data, plan))
    instance, trains = data.instance.with_workload(generation=None), plan.trains
    both = trains.gpus_by_node, plan.engine_gpus_by_node
    if why := [*exporting.reasons("megatron", instance, trains), *_uneven(plan, *both)]:
        told = f"not supported by {tool.lower().replace('-', '_')}: {'; '.join(why)}"
        remedy = "plan an instance with runs_on: megatron, or choose another plan"
        raise Unsupported(f"{told}; {remedy}")
    stages, split = normal(trains).pipelines[0].stages, split_of(instance, trains)
    degrees = {
        "tensor_model_parallel_size": stages[0].replicas[0].degree // split.context,
        "pipeline_model_parallel_size": len(stages),
        "context_parallel_size": split.context,
        "expert_model_parallel_size": split.experts,
    }
    if split.interleave > 1:
        degrees["virtual_pipeline_model_parallel_size"] = split.interleave
    shared, degree = plan.shared is not None, plan.engines[0].degree
    made = words(Pools(shared, *both, degree, degrees, data.tables.staleness))
    rows = zip(("train", "generate"), both, strict=True)
    head = "".join(f"# {x}: {', '.join(sorted(nodes))}\n" for x, nodes in rows)
    head += f"# Placement for {tool}: merge it into your own configuration.\n"
    return {"placement.yaml": head + safe_dump(made, sort_keys=False)}


def _uneven(plan: PostTraining, *both: Counter[str]) -> Iterator[str]:
    """Yield why a plan is not of two pools of equal nodes."""
    for half, used in zip(("training", "generating"), both, strict=True):
        if len(sizes := {*used.values()}) > 1:
            listed = ", ".join(map(str, sorted(sizes)))
            yield f"{half} nodes have {listed} GPUs, it knows one number for all"
    if len(degrees := {part.degree for part in plan.engines}) > 1:
        listed = ", ".join(map(str, sorted(degrees)))
        yield f"engines have degrees {listed}, it knows one for all"
    if len({len(x.span) for x in plan.trains.stages()}) > 1:
        yield "stages have unlike numbers of layers"
    if plan.shared is not None and both[0] != both[1]:
        yield "engines and training share GPUs, and some have only one of them"
