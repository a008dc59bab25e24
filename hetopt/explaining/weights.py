"""The memory of each GPU is divided, in MiB; the parts add up to the judge's need.

Weights, gradients and optimiser states are rounded up together, as the cost model has
it: each part is what it adds to those before it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from ..costs import CostTable, Position, memory, parameters
from ..plans import Pipeline, Replica, Stage, TrainingPlan
from ..problems.training_plan.shapes import holders

#: Parts in the order in which they are shown, and what they are.
PARTS = {
    "weights": "weights of the layers",
    "gradients": "their gradients",
    "optimiser": "their optimiser states",
    "lora": "LoRA's adapters, their gradients and optimiser states",
    "measured_layers": "states and activations of the layers, from the profile",
    "embedding_and_head": "states of the embedding and of the head",
    "activations": "activations kept for micro-batches in flight",
    "logits": "logits of the last stage",
    "update": "copies of the optimiser, beyond what passes had",
    "reserve": "kept free by `reserve_mib`",
}


@dataclass(frozen=True)
class GpuMemory:
    """Every GPU of a replica holds these parts, and has this room."""

    pipeline: int
    stage: int
    replica: int
    gpus: tuple[str, ...]
    parts: dict[str, int]
    room_mib: int

    @property
    def need_mib(self) -> int:
        """All parts."""
        return sum(self.parts.values())

    @property
    def headroom_mib(self) -> int:
        """Return the memory left; negative where the parts do not fit."""
        return self.room_mib - self.need_mib


def gpu_memory(table: CostTable, plan: TrainingPlan) -> Iterator[GpuMemory]:
    """Yield a row for every replica of the plan that the `table` is of."""
    held = holders(plan, table.layers)
    for number, pipeline in enumerate(plan.pipelines):
        for j, stage in enumerate(pipeline.stages):
            for r, replica in enumerate(stage.replicas):
                yield GpuMemory(
                    number,
                    j,
                    r,
                    replica.gpus,
                    _parts(table.under(stage.recompute), pipeline, j, replica, held),
                    table.memory_mib(replica.node),
                )


def _parts(
    table: CostTable, pipeline: Pipeline, j: int, replica: Replica, holders: list[int]
) -> dict[str, int]:
    stage, last = pipeline.stages[j], len(pipeline.stages) - 1
    t, b = replica.degree, replica.samples
    whole = table.stage_mib(
        replica.node,
        stage.span,
        (t, b),
        Position(pipeline.micro_batches, last + 1, j),
        holders,
    )
    logits = 0
    if j == last and table.workload.costs.compute.head == "include":
        logits = memory.logits_mib(table.model, table.workload, t, b)
    if "layers" in whole:
        layers = {"measured_layers": whole["layers"]}
    else:
        layers = {
            **_states(table, stage, t, holders, whole["states"]),
            "activations": whole["activations"],
        }
    found = layers | {"embedding_and_head": whole["ends"] - logits, "logits": logits}
    found |= {part: x for part, x in whole.items() if part in ("update", "reserve")}
    return {part: found[part] for part in PARTS if part in found}


def _states(
    table: CostTable, stage: Stage, t: int, holders: list[int], whole: int
) -> dict[str, int]:
    """Weights, gradients and optimiser states; ZeRO divides the last ones first."""
    costs = table.workload.costs
    own = parameters.every(table.model, costs)
    shares = list(table.shares(stage.span, t, holders, own))
    found, before = {}, 0
    held = Fraction(0)
    for part, each, level in zip(
        ("weights", "gradients", "optimiser"),
        costs.layer_states,
        (3, 2, 1),
        strict=True,
    ):
        divided = costs.updates.zero >= level
        for p, n in shares:
            held += each * p / (costs.updates.sharers(n) if divided else 1)
        found[part], before = memory.mib(held) - before, memory.mib(held)
    if costs.updates.lora is not None:
        found = {"weights": found["weights"], "lora": whole - found["weights"]}
    return found
