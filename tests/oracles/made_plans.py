"""Plans for the executor that are made by hand, each asymmetric in its own way."""

from typing import Any

from runnable import RULES
from small_instances import small

from hetopt.plans import TrainingPlan
from hetopt.runtime.jobs import Job, Settings, job
from hetopt.schema import Instance
from hetopt.text.complaints import validated


def stage(first: int, last: int, *replicas: tuple[int, str], **more: Any) -> Any:
    """A stage; a replica is its samples and its GPUs."""
    rows = [{"gpus": gpus.split(), "samples": n} for n, gpus in replicas]
    return {"layers": [first, last], "replicas": rows, **more}


def pipeline(count: int, size: int, *stages: Any) -> Any:
    """A pipeline of so many micro-batches of a size."""
    return {"micro_batches": count, "micro_batch_size": size, "stages": [*stages]}


# Depths, cuts, degrees and micro-batches differ; the table is tied across stages of
# different degrees, and GPUs of a group are not in the order of their ranks.
MIXED = [
    pipeline(2, 1, stage(0, 4, (1, "a:2 a:0"))),
    pipeline(
        3,
        2,
        stage(0, 1, (2, "b:0"), recompute="full"),
        stage(1, 4, (2, "b:1"), recompute="none"),
    ),
]
# Replicas with different numbers of samples hand them on to a group of two GPUs.
UNEVEN = [
    pipeline(4, 2, stage(0, 3, (1, "a:1"), (1, "a:0")), stage(3, 4, (2, "b:0 b:1")))
]
# An inner stage, which has no words of its own.
DEEP = [
    pipeline(
        4,
        2,
        stage(0, 1, (2, "a:0")),
        stage(1, 3, (1, "a:1"), (1, "b:0")),
        stage(3, 4, (2, "b:1")),
    )
]
# Of the same batch as the others, on one GPU.
ALONE = [pipeline(8, 1, stage(0, 4, (1, "a:0")))]


def posed(
    pipelines: list[Any], tied: bool = False, **costs: Any
) -> tuple[Instance, TrainingPlan]:
    """An instance of two nodes, and hand-made pipelines on it."""
    data = small(
        *("a=x*4 b=x*4", {"x": (10, 16)}),
        model={"hidden": 16, "heads": 4, "vocabulary": 31, "tied_embeddings": tied}
        | {"gated": True, "kv_heads": 4, "intermediate": 20},
        rate=20,
        sequence_length=7,
        global_batch=sum(p["micro_batches"] * p["micro_batch_size"] for p in pipelines),
        micro_batch_sizes=(1, 2, 3),
        costs=costs,
        alternatives={"recompute": ("none", "full"), "zero": (0, 1)},
    )
    return data, validated(TrainingPlan, {"pipelines": pipelines}, "plan")


def made(pipelines: list[Any], tied: bool = False, **costs: Any) -> Job:
    """A job of hand-made pipelines, in double precision on CPUs."""
    settings = Settings(
        steps=3, cpu=True, precision="fp64", optimiser=RULES, timeout_s=30
    )
    return job(*posed(pipelines, tied, **costs), settings)


def with_settings(one: Job, **settings: Any) -> Job:
    """The same job under other settings."""
    return one.model_copy(update={"settings": one.settings.model_copy(update=settings)})
