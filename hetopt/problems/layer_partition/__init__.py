"""Layer partition: a contiguous run of layers for each pipeline stage.

Given L layers and P stages with times layer_us[l], a hop, and memory. Each stage
takes at least one layer, contiguous, in the given order of stages or in any. At
position j (from 0) a stage needs
    sum layer_mib + min(K, P - j) sum in_flight_mib <= memory_mib,
where a stage may have numbers of its own for layer_mib and in_flight_mib: tensor
parallelism divides states, and not all of what is in flight.
time = sum layer_us + hop_us, no hop for the last position.
Minimise  `bottleneck` = max time,  or  `iteration` = sum time + (K - 1) max time.

Source: AutoHet, Eq. 4 (which prints g/l for l/g).
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ... import plans
from ...errors import InstanceError
from ...schema import Count, Instance, Name, Record, once, table_record
from .. import Evaluation, Violation

sense: Literal["minimise"] = "minimise"
Plan = plans.Partition

Amount = Annotated[int, Field(ge=0, lt=10**9)]


class Stage(Record):
    """A slot of the pipeline that layers can be put on."""

    name: Name
    memory_mib: Amount
    layer_us: tuple[Amount, ...] = Field(
        description="Time of each layer here, both passes."
    )
    hop_us: Amount = 0
    layer_mib: tuple[Amount, ...] | None = Field(
        default=None,
        description="Where layers take another memory here than elsewhere.",
    )
    in_flight_mib: tuple[Amount, ...] | None = Field(
        default=None, description="The same of a micro-batch in flight."
    )


class Data(Record):
    """A layer-partition problem file."""

    problem: Literal["layer_partition"] = "layer_partition"
    layer_mib: Annotated[tuple[Amount, ...], Field(min_length=1, max_length=10_000)]
    stages: Annotated[tuple[Stage, ...], Field(min_length=1, max_length=1_000)]
    in_flight_mib: tuple[Amount, ...]
    micro_batches: Count
    objective: Literal["bottleneck", "iteration"] = "iteration"
    order: Literal["given", "free"] = "given"

    @model_validator(mode="after")
    def _one_number_a_layer(self) -> Self:
        want = len(self.layer_mib)
        if (got := len(self.in_flight_mib)) != want:
            raise ValueError(
                f"in_flight_mib has {got} layers, layer_mib has {want}: list one "
                "number per layer"
            )
        for stage in self.stages:
            if (got := len(stage.layer_us)) != want:
                raise ValueError(
                    f"stage {stage.name!r} times {got} layers, layer_mib has {want}: "
                    "list one time per layer"
                )
            for own in (stage.layer_mib, stage.in_flight_mib):
                if own is not None and (got := len(own)) != want:
                    raise ValueError(
                        f"stage {stage.name!r} weighs {got} layers, layer_mib of the "
                        f"problem has {want}: list one number per layer"
                    )
        once("stages of one name", (stage.name for stage in self.stages))
        return self

    def needs(self, stage: Stage) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return MiB of each layer on a stage: once, and a micro-batch in flight."""
        once, each = stage.layer_mib, stage.in_flight_mib
        return (
            self.layer_mib if once is None else once,
            self.in_flight_mib if each is None else each,
        )


def data(
    instance: Instance,
    *,
    plan: plans.TrainingPlan | None = None,
    pipeline: Annotated[int, Field(ge=0)] = 0,
    stages: tuple[Name, ...] | None = None,
    tensor_parallel: Annotated[int, Field(ge=1)] | None = None,
    micro_batch: Annotated[int, Field(ge=1)] | None = None,
    micro_batches: Annotated[int, Field(ge=1)] | None = None,
    objective: Literal["bottleneck", "iteration"] = "iteration",
    order: Literal["given", "free"] = "given",
) -> Data:
    """Return the partition of one pipeline of a training plan, or of given stages.

    Offers are a cluster of all their machines, whose nodes are `OFFER#0`, `OFFER#1`.

    With a `plan` the stages are those of its `pipeline`. Without one there is a stage
    of `tensor_parallel` GPUs, by default 1, on each of the nodes that `stages` lists,
    by default as many as nodes have GPUs for, in their order; its `micro_batches` are
    by default those of `micro_batch` sequences that make up the global batch.
    """
    from ...costs.offers import as_cluster
    from . import posing

    instance = as_cluster(instance)
    if plan is not None:
        chosen = {
            "stages": stages,
            "tensor_parallel": tensor_parallel,
            "micro_batch": micro_batch,
            "micro_batches": micro_batches,
        }
        if told := [name for name, value in chosen.items() if value is not None]:
            raise InstanceError(
                f"found {', '.join(told)} and a plan, which defines them: leave them "
                "or the plan out"
            )
        line = posing.line_of_plan(instance, plan, pipeline)
    else:
        if pipeline:
            raise InstanceError(f"pipeline {pipeline} needs a plan: give plan")
        line = posing.line_of_nodes(
            instance, stages, tensor_parallel or 1, micro_batch, micro_batches
        )
    fields = posing.fields(line, order)
    where = f"instance {instance.name!r}"
    return table_record(Data, where, fields | {"objective": objective, "order": order})


def unit(data: Data) -> str:
    """Return the unit of the objective."""
    return "us"


def evaluate(data: Data, plan: plans.Partition) -> Evaluation:
    """Judge a partition."""
    by_name = {stage.name: stage for stage in data.stages}
    broken: list[Violation] = []
    if sorted(plan.order) != sorted(by_name):
        names = ", ".join(plan.order)
        what = f"expected each of {sorted(by_name)}"
        return Evaluation(None, (Violation("order", names, what),))
    given = tuple(stage.name for stage in data.stages)
    if data.order == "given" and plan.order != given:
        what = f"the order is given: {given}"
        broken.append(Violation("order", ", ".join(plan.order), what))
    if (placed := sum(plan.layers)) != len(data.layer_mib):
        what = f"{placed} layers placed, expected {len(data.layer_mib)}"
        broken.append(Violation("every_layer_once", "plan", what))
        return Evaluation(None, tuple(broken))
    times: list[int] = []
    first, count = 0, len(plan.order)
    for position, (name, size) in enumerate(zip(plan.order, plan.layers, strict=True)):
        stage, span = by_name[name], slice(first, first + size)
        held = min(data.micro_batches, count - position)
        once, each = data.needs(stage)
        need = sum(once[span]) + held * sum(each[span])
        if need > stage.memory_mib:
            what = f"{need - stage.memory_mib} MiB too much"
            broken.append(Violation("memory", name, what))
        hop = stage.hop_us if position < count - 1 else 0
        times.append(sum(stage.layer_us[span]) + hop)
        first += size
    objective = max(times)
    if data.objective == "iteration":
        objective = sum(times) + (data.micro_batches - 1) * max(times)
    return Evaluation(objective, tuple(broken), {"stage_us": times})
