"""Pools of GPUs of RL post-training, as its programs name them.

What verl and NeMo-RL share: a pool of equal nodes that trains by Megatron-LM, one that
generates by engines of one degree, or both in turn.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from ...errors import InstanceError, Unsupported
from ...plans import PostTraining
from ...problems import post_training
from ...problems.training_plan.shapes import normal, split_of
from ...text.documents import Document
from .. import exporting


class Pools(NamedTuple):
    """The pools of a plan: nodes by name, GPUs of each, and degrees.

    `shared` says that both are the same GPUs. `megatron` has the trainer's degrees by
    the names of Megatron-LM's own configuration.
    """

    shared: bool
    trainers: list[str]
    training_gpus: int
    generators: list[str]
    engine_gpus: int
    degree: int
    megatron: dict[str, int]

    @property
    def head(self) -> str:
        """Return comment lines that name the nodes, which the programs choose."""
        rows = {"train": self.trainers, "generate": self.generators}
        return "".join(f"# {x}: {', '.join(names)}\n" for x, names in rows.items())


def pools(target: str, data: post_training.Data, plan: PostTraining) -> Pools:
    """Return the pools of a plan, for a target.

    Raises `InstanceError` for a plan that the judge refuses, and `Unsupported` for one
    that the target cannot express, with every reason.
    """
    if broken := post_training.evaluate(data, plan).violations:
        listed = "; ".join(map(str, broken[:5]))
        raise InstanceError(f"the plan breaks rules and cannot be exported: {listed}")
    instance = data.instance.with_workload(generation=None)
    if why := [
        *exporting.reasons("megatron", instance, plan.trains),
        *_uneven(plan),
    ]:
        raise Unsupported(
            f"not supported by {target}: {'; '.join(why)}; plan an instance with "
            "runs_on: megatron, or choose another plan"
        )
    training, serving = _used(plan)
    stages = normal(plan.trains).pipelines[0].stages
    split = split_of(instance, plan.trains)
    degrees = {
        "tensor_model_parallel_size": stages[0].replicas[0].degree // split.context,
        "pipeline_model_parallel_size": len(stages),
        "context_parallel_size": split.context,
        "expert_model_parallel_size": split.experts,
    }
    if split.interleave > 1:
        degrees["virtual_pipeline_model_parallel_size"] = split.interleave
    return Pools(
        plan.shared is not None,
        sorted(training),
        next(iter(training.values())),
        sorted(serving),
        next(iter(serving.values())),
        plan.engines[0].degree,
        degrees,
    )


def _used(plan: PostTraining) -> tuple[Counter[str], Counter[str]]:
    """Return the GPUs of each node that train, and those that generate."""
    trains = [gpu for replica in plan.trains.replicas() for gpu in replica.gpus]
    serves = [gpu for part in plan.engines for gpu in part.gpus]
    one, other = (Counter(x.rpartition(":")[0] for x in y) for y in (trains, serves))
    return one, other


def _uneven(plan: PostTraining) -> Iterator[str]:
    """Yield why a plan is not of two pools of equal nodes."""
    for half, used in zip(("training", "generating"), _used(plan), strict=True):
        if len(sizes := set(used.values())) > 1:
            listed = ", ".join(map(str, sorted(sizes)))
            yield f"{half} nodes have {listed} GPUs, it knows one number for all"
    if len(degrees := {part.degree for part in plan.engines}) > 1:
        listed = ", ".join(map(str, sorted(degrees)))
        yield f"engines have degrees {listed}, it knows one for all"
    if len({len(x.span) for one in plan.trains.pipelines for x in one.stages}) > 1:
        yield "stages have unlike numbers of layers"
    trains, serves = _used(plan)
    if plan.shared is not None and trains != serves:
        yield "engines and training share GPUs, and some have only one of them"


def written(target: str, words: Document) -> str:
    """Return a YAML file of words; a comment says whose."""
    from yaml import safe_dump

    about = f"# Placement for {target}: merge it into your own configuration.\n"
    return about + safe_dump(words, sort_keys=False)
