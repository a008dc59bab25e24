"""Layer partition: a contiguous run of layers for each pipeline stage.

Given L layers and P stages with times layer_us[l], a hop, and memory. Each stage
takes at least one layer, contiguous, in the given order of stages or in any. At
position j (from 0) a stage needs
    sum layer_mib + min(K, P - j) sum in_flight_mib <= memory_mib.
time = sum layer_us + hop_us, no hop for the last position.
Minimise  `bottleneck` = max time,  or  `iteration` = sum time + (K - 1) max time.

Source: AutoHet, Eq. 4 (which prints g/l for l/g).
"""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from .. import plans
from ..errors import Unsupported
from ..schema import Count, Name, Record
from . import Evaluation, Violation

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
                f"in_flight_mib has {got} layers, layer_mib has {want}: "
                "list one number a layer"
            )
        for stage in self.stages:
            if (got := len(stage.layer_us)) != want:
                raise ValueError(
                    f"stage {stage.name!r} times {got} layers, layer_mib has {want}: "
                    "list one time a layer"
                )
        names = [stage.name for stage in self.stages]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise ValueError(
                f"stages of one name: {', '.join(twice)}: rename all but one"
            )
        return self


def data(instance: Any) -> Data:
    """Not posed by an instance: its stages come from a grouping and a mapping."""
    raise Unsupported(
        "layer_partition needs stages: write a problem file, or `hetopt plan` "
        "the whole instance"
    )


def unit(data: Data) -> str:
    """Unit of the objective."""
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
        what = f"{placed} layers placed, {len(data.layer_mib)} there are"
        broken.append(Violation("every_layer_once", "plan", what))
        return Evaluation(None, tuple(broken))
    times: list[int] = []
    first, count = 0, len(plan.order)
    for position, (name, size) in enumerate(zip(plan.order, plan.layers, strict=True)):
        stage, span = by_name[name], slice(first, first + size)
        held = min(data.micro_batches, count - position)
        need = sum(data.layer_mib[span]) + held * sum(data.in_flight_mib[span])
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
