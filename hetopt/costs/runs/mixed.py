"""Runs on nodes that are not alike: what each group of GPUs of a plan is, in our terms.

A row tells its `nodes`, in order, and its `plan`, whose GPUs are `node0:3` where nodes
have no names. Every group of GPUs is read as one of a symmetric row of its own: its
node's card, its degree, the stages and layers of its pipeline, and as many replicas as
hold its layers.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Self

from ... import plans
from ..constants import Table
from ..formulas import iteration, memory
from ..formulas.architecture import Architecture
from ..formulas.iteration import Group, Pipeline, Stage
from ..formulas.machine import Machine
from . import machines
from .described import Described, NotModelled, systems, untold
from .description import architecture_of, framework_of, layout_of
from .rows import Node, Run

#: What a stage of a plan recomputes, in the words of rows.
_RECOMPUTED = {"full": "full", "selective": "selective: core_attn", "none": "none"}


class Mixed(NamedTuple):
    """A run of pipelines that are not alike, in the model's terms."""

    architecture: Architecture
    pipelines: tuple[Pipeline, ...]

    @property
    def parts(self) -> tuple[Described, ...]:
        """Every group of GPUs as one of a symmetric run."""
        return tuple(
            Described(group.machine, self.architecture, group.run)
            for group, _ in self._groups()
        )

    def _groups(self) -> Iterator[tuple[Group, int]]:
        for pipeline in self.pipelines:
            for j, stage in enumerate(pipeline.stages):
                yield from ((group, j) for group in stage.groups)

    def terms(self, c: Table) -> Mapping[str, float]:
        """Return the seconds of an iteration by term."""
        return iteration.terms(c, self.architecture, self.pipelines)

    def peak(self, c: Table) -> memory.Terms:
        """Return the bytes by term of the GPU that has most of them."""
        found = (
            memory.squeezed(c, group.machine, self._of(c, group, j))
            for group, j in self._groups()
        )
        return max(found, key=lambda terms: sum(terms.values()))

    def died(self, c: Table) -> float:
        """Return the chance that the GPU with least room runs out of memory."""
        return max(
            memory.chance(c, group.machine, self._of(c, group, j))
            for group, j in self._groups()
        )

    def _of(self, c: Table, group: Group, stage: int) -> memory.Terms:
        return memory.of_stage(c, group.machine, self.architecture, group.run, stage)

    def hosted(self, c: Table) -> float:
        """Return the bytes that the fullest host pins, at the least."""
        held: Counter[str | None] = Counter()
        for group, j in self._groups():
            each = memory.hosted(c, self.architecture, group.run, j)
            held[group.node] += math.ceil(each * group.run.tp)
        return max(held.values())

    def systems(self, model: str | None) -> tuple[str, ...]:
        """Return what one run may tell of another: framework and cards, and model."""
        cards = "+".join(sorted({part.machine.card for part in self.parts}))
        return systems(self.parts[0].layout, cards, model)

    @property
    def configuration(self) -> Hashable:
        """Return what runs have in common that differ in batches alone."""
        return tuple(
            (stage.first, stage.last, group.node, group.run.tp)
            for pipeline in self.pipelines
            for stage in pipeline.stages
            for group in stage.groups
        )

    def recomputing(self) -> Self:
        """Return the run if it recomputed everything."""
        return self._replace(
            pipelines=tuple(
                line._replace(stages=tuple(map(_recomputing, line.stages)))
                for line in self.pipelines
            )
        )


def _recomputing(stage: Stage) -> Stage:
    groups = (
        group._replace(run=replace(group.run, recompute="full", recomputed=1.0))
        for group in stage.groups
    )
    return stage._replace(groups=tuple(groups))


def mixed(run: Run) -> Mixed:
    """Return a run with a plan in the model's terms; `NotModelled` says why not."""
    plan = run.plan
    assert plan is not None
    nodes = _nodes(run)
    architecture = architecture_of(run)
    for fault in (*_divided(plan), *_faults(run, plan, nodes, architecture)):
        raise NotModelled(fault)
    known = {
        name: machines.of(_at(run, node), NotModelled) for name, node in nodes.items()
    }
    holders = Counter(
        layer
        for pipeline in plan.pipelines
        for stage in pipeline.stages
        for layer in stage.span
        for _ in stage.replicas
    )
    pipelines = tuple(
        Pipeline(
            pipeline.micro_batches,
            tuple(
                _stage(run, pipeline, stage, known, holders)
                for stage in pipeline.stages
            ),
        )
        for pipeline in plan.pipelines
    )
    return Mixed(architecture, pipelines)


def _stage(
    run: Run,
    pipeline: plans.Pipeline,
    stage: plans.Stage,
    known: Mapping[str, Machine],
    holders: Mapping[int, int],
) -> Stage:
    groups = []
    for replica in stage.replicas:
        layers = tuple(len(other.span) for other in pipeline.stages)
        told = {
            **{"dp": min(holders[layer] for layer in stage.span), "cp": 1, "ep": 1},
            **{"tp": replica.degree, "pp": len(layers), "stage_layers": layers},
            **{"mbs": replica.samples, "ga": pipeline.micro_batches, "gbs": None},
        }
        if run.plan is not None and run.plan.zero is not None:
            told["zero"] = run.plan.zero
        if stage.recompute is not None:
            told["recompute"] = _RECOMPUTED[stage.recompute]
        machine = known[replica.node]
        one = run.model_copy(update=told)
        layout = layout_of(one, machine, framework_of(run))
        groups.append(Group(machine, replica.node, layout))
    return Stage(stage.span.start, stage.span.stop, tuple(groups))


def _nodes(run: Run) -> dict[str, Node]:
    if not isinstance(run.nodes, tuple):
        raise untold(["nodes"], "the list of those that the plan is on")
    found: dict[str, Node] = {}
    for number, node in enumerate(run.nodes):
        name = node.name or f"node{number}"
        if name in found:
            raise NotModelled(f"two nodes are named {name}")
        found[name] = node
    return found


def _at(run: Run, node: Node) -> Run:
    """Return the row of a run on machines such as a node."""
    told = {
        "gpu": node.gpu,
        "gpus": node.gpus,
        "nodes": 1,
        "network": node.network or run.network,
        "intra_gbytes_per_s": node.intra_gbytes_per_s or run.intra_gbytes_per_s,
    }
    return run.model_copy(update=told)


def _divided(plan: plans.TrainingPlan) -> Iterator[str]:
    fields = ("context_parallel", "expert_parallel", "interleave", "zero_groups")
    for field in fields:
        if (degree := getattr(plan, field) or 1) > 1:
            yield f"{field} {degree} on nodes that are not alike"


def _faults(
    run: Run, plan: plans.TrainingPlan, nodes: Mapping[str, Node], a: Architecture
) -> Iterator[str]:
    """Yield what of a plan contradicts itself, its nodes, or its row."""
    if run.gbs is not None and run.gbs != plan.sequences:
        yield f"the plan trains {plan.sequences} sequences, gbs is {run.gbs}"
    used: Counter[str] = Counter()
    for pipeline in plan.pipelines:
        spans = [layer for stage in pipeline.stages for layer in stage.span]
        if spans != list(range(len(a.layers))):
            yield f"a pipeline's stages are not layers 0 to {len(a.layers)} in order"
        for stage in pipeline.stages:
            if not stage.span:
                yield "a stage has no layers"
            if sum(r.samples for r in stage.replicas) != pipeline.micro_batch_size:
                size = pipeline.micro_batch_size
                yield f"replicas do not share the {size} sequences of a micro-batch"
            for replica in stage.replicas:
                used.update(replica.gpus)
                for gpu in replica.gpus:
                    name, _, index = gpu.rpartition(":")
                    if name != replica.node:
                        yield f"a group has {replica.gpus[0]} and {gpu}: two nodes"
                    elif name not in nodes:
                        yield f"the plan has {gpu}, nodes are {', '.join(nodes)}"
                    elif int(index) >= nodes[name].gpus:
                        yield f"the plan has {gpu}, {name} has {nodes[name].gpus} GPUs"
    for gpu, times in used.items():
        if times > 1:
            yield f"the plan has {gpu} {times} times"
