"""Plans of all shapes for the exporters, and the instance that they are of."""

import json
from random import Random
from typing import Any

from random_plans import random_plan
from small_instances import small

from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance

Shape = tuple[int, int, int]  # layers, tensor-parallel degree, replicas


def instance(
    batch: int = 32, costs: dict[str, Any] | None = None, **model: Any
) -> Instance:
    """Two nodes of eight big GPUs and two of four small ones, with room to spare."""
    card = {"memory_gib": 80, "host_gbytes_per_s": 25}
    return small(
        "a0=big*8 a1=big*8 b0=small*4 b1=small*4",
        {"big": {"peak_tflops": 100, **card}, "small": {"peak_tflops": 50, **card}},
        model={"layers": 12, "hidden": 512, **model},
        rate=10,
        name="exported",
        sequence_length=128,
        global_batch=batch,
        micro_batch_sizes=[1, 2, 3, 4, 8],
        costs=costs or {},
    )


def pipeline(
    gpus: list[str], shapes: list[Shape], micro_batches: int, size: int
) -> Pipeline:
    """Stages of these shapes on the next GPUs; `gpus` is used up from the front."""
    stages, first = [], 0
    for layers, degree, replicas in shapes:
        groups = []
        for _ in range(replicas):
            mine = tuple(gpus.pop(0) for _ in range(degree))
            groups.append(Replica(gpus=mine, samples=size // replicas))
        stages.append(Stage(layers=(first, first + layers), replicas=tuple(groups)))
        first += layers
    return Pipeline(
        micro_batches=micro_batches, micro_batch_size=size, stages=tuple(stages)
    )


def one(shapes: list[Shape], size: int = 4, batch: int = 32) -> TrainingPlan:
    """One pipeline on the GPUs in the order of the cluster."""
    gpus = list(instance().planned_cluster.gpu_ids())
    return TrainingPlan(pipelines=(pipeline(gpus, shapes, batch // size, size),))


#: The arguments of Megatron of a run on them.
MEGATRON_RUN: dict[str, Any] = {
    **{"num_layers": 12, "hidden_size": 512, "tensor_model_parallel_size": 4},
    **{"pipeline_model_parallel_size": 3, "micro_batch_size": 2},
    **{"global_batch_size": 48, "seq_length": 128, "recompute_granularity": "full"},
}
EVEN = one([(6, 2, 2), (6, 2, 2)])
UNEVEN = one([(5, 4, 2), (4, 4, 2), (3, 4, 2)])
MIXED = one([(6, 4, 2), (4, 4, 2), (2, 1, 4)])


def asymmetric() -> TrainingPlan:
    """Two pipelines that cut the layers differently and count otherwise."""
    gpus = list(instance().planned_cluster.gpu_ids())
    return TrainingPlan(
        pipelines=(
            pipeline(gpus, [(6, 4, 1), (6, 4, 1)], 5, 4),
            pipeline(gpus, [(7, 4, 1), (5, 4, 1)], 3, 4),
        )
    )


def regular(seed: int) -> TrainingPlan:
    """A random plan of equal pipelines, with stages of random shapes."""
    rng = Random(f"regular/{seed}")
    cuts = sorted(rng.sample(range(1, 12), rng.randint(0, 3)))
    layers = [b - a for a, b in zip([0, *cuts], [*cuts, 12], strict=True)]
    count = rng.choice([1, 1, 2])
    room = 24 // (count * len(layers))
    equal = rng.random() < 0.5
    shapes: list[Shape] = []
    for number in layers:
        degree = rng.choice([t for t in (1, 2, 4) if t <= room])
        replicas = rng.choice([r for r in (1, 2, 4) if r * degree <= room])
        shapes.append(
            (number, *(shapes[0][1:] if equal and shapes else (degree, replicas)))
        )
    gpus = list(instance().planned_cluster.gpu_ids())
    if rng.random() < 0.3:
        gpus.sort(key=lambda gpu: gpu.rpartition(":")[2])  # round robin over the nodes
    made = tuple(pipeline(gpus, shapes, 32 // (4 * count), 4) for _ in range(count))
    return TrainingPlan(pipelines=made)


def valid(plan: TrainingPlan) -> bool:
    """Whether every group lies on one node, as the judge demands."""
    return all(
        len({gpu.rpartition(":")[0] for gpu in replica.gpus}) == 1
        for pipe in plan.pipelines
        for stage in pipe.stages
        for replica in stage.replicas
    )


# --- shapes that few targets take ------------------------------------------------


def alone(rows: list[list[tuple[str, int]]], batch: int = 32) -> TrainingPlan:
    """One pipeline whose replicas have a node each, with their first GPUs."""
    stages = []
    cuts = [12 * j // len(rows) for j in range(len(rows) + 1)]
    for j, row in enumerate(rows):
        replicas = tuple(
            Replica(gpus=tuple(f"{node}:{i}" for i in range(degree)), samples=1)
            for node, degree in row
        )
        stages.append(Stage(layers=(cuts[j], cuts[j + 1]), replicas=replicas))
    size = len(rows[0])
    one = Pipeline(
        micro_batches=batch // size, micro_batch_size=size, stages=tuple(stages)
    )
    return TrainingPlan(pipelines=(one,))


ALONE = [
    alone([[("a0", 8)], [("a1", 8)], [("b0", 4)], [("b1", 4)]]),
    alone([[("a0", 4), ("b0", 4)], [("a1", 4), ("b1", 2)]]),
    alone([[("a0", 2), ("a1", 2), ("b0", 2), ("b1", 2)]]),
    alone([[("b1", 4)], [("a1", 1)]]),
    alone([[("a0", 1), ("a1", 8)]]),
]


def unequal() -> TrainingPlan:
    """One pipeline of two replicas a stage that take 3 samples and 1, all along."""
    rows = [[("a0", 4, 3), ("b0", 4, 1)], [("a1", 4, 3), ("b1", 2, 1)]]
    stages = tuple(
        Stage(
            layers=(6 * j, 6 * j + 6),
            replicas=tuple(
                Replica(gpus=tuple(f"{node}:{i}" for i in range(t)), samples=samples)
                for node, t, samples in row
            ),
        )
        for j, row in enumerate(rows)
    )
    one = Pipeline(micro_batches=8, micro_batch_size=4, stages=stages)
    return TrainingPlan(pipelines=(one,))


def two_alike() -> TrainingPlan:
    """Two equal pipelines beside one that cuts the layers differently."""
    gpus = list(instance().planned_cluster.gpu_ids())
    equal = [pipeline(gpus, [(6, 2, 1), (6, 2, 1)], 6, 2) for _ in range(2)]
    other = pipeline(gpus, [(4, 2, 1), (8, 2, 1)], 4, 2)
    return TrainingPlan(pipelines=(*equal, other))


def whole(shares: list[tuple[str, int, int]]) -> TrainingPlan:
    """A whole model on each GPU, with its samples and its number of micro-batches."""
    made = [pipeline([gpu], [(12, 1, 1)], n, size) for gpu, size, n in shares]
    return TrainingPlan(pipelines=tuple(made))


WHOLE = [
    whole([(f"{node}:{i}", 2, 2) for node in ("a0", "b1") for i in range(4)]),
    whole([("a0:0", 3, 4), ("a0:1", 4, 3), ("b1:2", 4, 1), ("b1:3", 4, 1)]),
    whole([("a1:3", 4, 8)]),
    whole([("a1:3", 8, 2), ("b0:1", 8, 2)]),
]


#: Targets that put a whole model on every GPU.
OF_WHOLE = ("accelerate", "llamafactory", "transformers")


def even_for(target: str) -> TrainingPlan:
    """A plan of equal shares that a target has the shapes for, on the same hosts."""
    return WHOLE[0] if target in OF_WHOLE else EVEN


SHAPES = [
    EVEN,
    UNEVEN,
    MIXED,
    asymmetric(),
    unequal(),
    two_alike(),
    *ALONE,
    *WHOLE,
    *(plan for plan in map(regular, range(40)) if valid(plan)),
    *(random_plan(instance(), seed) for seed in range(10)),
]


#: What HexiScale is fixed to: one of its models, fp16, sequences of 4096 tokens.
_LLAMA = {
    "hidden": 4096,
    "heads": 32,
    "vocabulary": 32_000,
    "intermediate": 11_008,
    "gated": True,
}


def instance_for(
    target: str, batch: int = 32, costs: dict[str, Any] | None = None, **model: Any
) -> Instance:
    """The same machines, with a model and settings that a target runs."""
    if target != "hexiscale":
        return instance(batch, costs, **model)
    costs = {"precision": "fp16_mixed", **(costs or {})}
    text = instance(batch, costs, **{**_LLAMA, **model}).model_dump_json()
    tree = json.loads(text)
    tree["workload"]["sequence_length"] = 4096
    for gpu in tree["cluster"]["gpus"].values():
        gpu["memory_gib"] = 4096
    return Instance.model_validate_json(json.dumps(tree))
