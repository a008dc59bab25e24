"""The layer partition of one pipeline of an instance: its stages timed and weighed.

The stages are those of a pipeline of a training plan, or tensor-parallel groups on
named nodes. A stage of several replicas takes as long as the slowest of them. What a
stage takes beside its layers is told of the layer that it comes with: the head and its
logits of the last layer, the embedding of the first. What is there once a stage,
whatever its layers, is taken off its memory.

Memory is rounded up to MiB a layer, so that every partition fits the instance as well;
one that fills a GPU to its last MiB may not fit the problem. In a free order a stage
pays the dearest transfer to another stage, and keeps what it needs at the front.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ... import capability
from ...costs import CostTable, Position, fixed, memory
from ...errors import InstanceError, Unsupported
from ...plans import Pipeline, Replica, TrainingPlan
from ...plans import Stage as PlannedStage
from ...schema import Instance
from ...text.documents import Document
from ..training_plan import shapes

Fields = Document


@dataclass(frozen=True)
class Line:
    """A pipeline whose layers are to be chosen, under the settings of its plan."""

    table: CostTable
    pipeline: Pipeline
    holders: tuple[int, ...]  # replicas of each layer, among which ZeRO divides


def line_of_plan(instance: Instance, plan: TrainingPlan, number: int) -> Line:
    """Return pipeline `number` of a plan; `InstanceError` where there is none."""
    if not 0 <= number < len(plan.pipelines):
        raise InstanceError(
            f"pipeline: found {number}, expected one from 0 to "
            f"{len(plan.pipelines) - 1}, as the plan has {len(plan.pipelines)}; "
            "correct it"
        )
    table = shapes.table_of(instance, plan)
    holders = tuple(shapes.holders(plan, table.layers))
    if 0 in holders or max(x.layers[1] for x in plan.stages()) > table.layers:
        raise InstanceError(
            f"plan: found one whose layers are not the {table.layers} of instance "
            f"{instance.name!r}; give one that `hetopt check` accepts"
        )
    return Line(table, plan.pipelines[number], holders)


def line_of_nodes(
    instance: Instance,
    nodes: Sequence[str] | None,
    t: int,
    size: int | None,
    micro_batches: int | None,
) -> Line:
    """Return the pipeline with a stage of `t` GPUs on each of the nodes, in order.

    None is as many stages on every node as it has room for.
    """
    table = CostTable(instance)
    workload, known = instance.workload, table.cluster.node
    if nodes is None:
        every = table.cluster.nodes
        nodes = [node.name for node in every for _ in range(node.count // t)]
    for name, count in Counter(nodes).items():
        if name not in known:
            raise InstanceError(
                f"stages: found {name!r}, expected nodes of instance "
                f"{instance.name!r}, such as {next(iter(known))!r}; correct it"
            )
        if count * t > known[name].count:
            raise InstanceError(
                f"stages: found {count} stages of {t} GPUs on node {name!r}, which "
                f"has {known[name].count}; name it fewer times"
            )
    if not 0 < len(nodes) <= table.layers:
        raise InstanceError(
            f"stages: found {len(nodes)}, expected from 1 to {table.layers}, the "
            "layers of the model; give another tensor_parallel, or stages by name"
        )
    size = min(workload.micro_batch_sizes) if size is None else size
    taken: Counter[str] = Counter()
    stages = []
    for name in nodes:
        gpus = tuple(f"{name}:{taken[name] + i}" for i in range(t))
        taken[name] += t
        replica = Replica(gpus=gpus, samples=size)
        stages.append(PlannedStage(layers=(0, 0), replicas=(replica,)))
    pipeline = Pipeline(
        micro_batches=micro_batches or max(1, workload.global_batch // size),
        micro_batch_size=size,
        stages=tuple(stages),
    )
    return Line(CostTable(instance, taken), pipeline, (1,) * table.layers)


def fields(line: Line, order: str) -> Fields:
    """Return what the problem file says of a pipeline's stages and layers.

    Raises `Unsupported` for settings of the plan that the problem does not carry.
    """
    capability.require("problem layer_partition", fixed(line.table.instance))
    needs = [_needs(line, stage) for stage in line.pipeline.stages]
    layer_mib, in_flight_mib = needs[0]
    count = len(line.pipeline.stages)
    return {
        "layer_mib": layer_mib,
        "in_flight_mib": in_flight_mib,
        "micro_batches": line.pipeline.micro_batches,
        "stages": tuple(
            {
                "name": _name(line, j),
                "memory_mib": _memory_mib(line, j if order == "given" else 0),
                "layer_us": _layer_us(line, j),
                "hop_us": _hop_us(line, j, order) if count > 1 else 0,
                "layer_mib": None if once == layer_mib else once,
                "in_flight_mib": None if each == in_flight_mib else each,
            }
            for j, (once, each) in enumerate(needs)
        ),
    }


def _name(line: Line, j: int) -> str:
    nodes = dict.fromkeys(replica.node for replica in line.pipeline.stages[j].replicas)
    return f"{j}:{'+'.join(nodes)}"


# --- time ------------------------------------------------------------------------


def _layer_us(line: Line, j: int) -> tuple[int, ...]:
    """Return times of all layers on a stage, the head among those of the last one."""
    stage = line.pipeline.stages[j]
    table = line.table.under(stage.recompute)
    rows = []
    for node, t, samples in {(r.node, r.degree, r.samples) for r in stage.replicas}:
        times = list(table.layer_us(node, t, samples))
        times[-1] += line.table.head_us(node, t, samples)
        rows.append(tuple(times))
    slowest = max(rows, key=sum)
    if any(a > b for row in rows for a, b in zip(row, slowest, strict=True)):
        raise Unsupported(
            f"stage {j}: which of its replicas is the slowest depends on the layers, "
            "which layer_partition cannot express: give stages of equal replicas"
        )
    return slowest


def _hop_us(line: Line, j: int, order: str) -> int:
    """The transfer to the next stage; in a free order the dearest to any other."""
    stages = line.pipeline.stages
    if order == "given":
        return _between_us(line, j, j + 1) if j + 1 < len(stages) else 0
    return max(_between_us(line, j, i) for i in range(len(stages)) if i != j)


def _between_us(line: Line, sender: int, receiver: int) -> int:
    one, two = (line.pipeline.stages[j].replicas for j in (sender, receiver))
    samples = max(replica.samples for replica in one)
    return min(
        line.table.hop_us(x, y, t, samples, by)
        for x, by in {(replica.node, replica.degree) for replica in one}
        for y, t in {(replica.node, replica.degree) for replica in two}
    )


# --- memory ----------------------------------------------------------------------


def _needs(line: Line, stage: PlannedStage) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """MiB of each layer on a GPU of a stage: once, and a micro-batch in flight.

    Of several replicas those of the most samples and the least degree need the most.
    """
    found = [
        _needs_of(line, stage, node, t, samples)
        for node, t, samples in {(r.node, r.degree, r.samples) for r in stage.replicas}
    ]
    return (
        tuple(map(max, zip(*(once for once, _ in found), strict=True))),
        tuple(map(max, zip(*(each for _, each in found), strict=True))),
    )


def _needs_of(
    line: Line, stage: PlannedStage, node: str, t: int, samples: int
) -> tuple[list[int], list[int]]:
    table = line.table.under(stage.recompute)
    costs, layers = table.workload.costs, table.layers
    once, each = [], []
    for layer in range(layers):
        run = range(layer, layer + 1)
        parts = table.stage_mib(
            node, run, (t, samples), _place(line, layer), line.holders
        )
        held = parts["states"] + parts["ends"]
        kept = memory.mib(table.activations(t, samples).bytes(run, 1)[0])
        if (
            costs.memory.activations == "checkpoint"
            or costs.schedule.in_flight == "one"
        ):
            once.append(held + kept)
            each.append(0)
        elif costs.schedule.in_flight == "gpipe":
            once.append(held + line.pipeline.micro_batches * kept)
            each.append(0)
        else:
            once.append(held)
            each.append(kept)
    return once, each


def _place(line: Line, layer: int) -> Position:
    """Return the place of a stage that holds this layer alone, of one micro-batch."""
    ends = layer == 0, layer == line.table.layers - 1
    if all(ends) or (ends[0] and len(line.pipeline.stages) == 1):
        return Position(1, 1, 0)
    if len(line.pipeline.stages) == 1 or not any(ends):
        return Position(1, 3, 1)
    return Position(1, 2, 0 if ends[0] else 1)


def _memory_mib(line: Line, j: int) -> int:
    """Return a stage's memory for layers at a position, on the fullest of its GPUs."""
    stage = line.pipeline.stages[j]
    table = line.table.under(stage.recompute)
    costs, count = table.workload.costs, len(line.pipeline.stages)
    flight = memory.in_flight(costs, line.pipeline.micro_batches, count, j)
    every, rooms = range(table.layers), list[int]()
    for replica in stage.replicas:
        runs = table.activations(replica.degree, replica.samples)
        _, once = runs.bytes(every, flight)
        rooms.append(table.memory_mib(replica.node) - memory.mib(once))
    return max(0, min(rooms) - costs.memory.reserve_mib)
