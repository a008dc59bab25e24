"""Megatron-LM on A100-80GB: Table 5 of arXiv 2205.05198 as instances and plans.

Four models, recomputing everything, or the scores alone with sequence parallelism.
Data sheets: 312 dense 16-bit TFLOP/s, 2039 GB/s of HBM2e, 80 GB, eight adapters of
25 GB/s a node, through which a tensor-parallel group of eight sends side by side.
Within a node 230 GB/s, what NVIDIA's all-reduce test attains on its 300 GB/s.
"""

from typing import Any, NamedTuple

from hetopt.plans import Pipeline, Replica, Stage, TrainingPlan
from hetopt.schema import Instance

TP = 8


class Row(NamedTuple):
    """A model of the table; seconds with full, and with selective recomputation."""

    name: str
    hidden: int
    heads: int
    layers: int
    stages: int
    interleave: int
    batch: int
    micro_batch: int
    full_s: float
    selective_s: float

    @property
    def seconds(self) -> dict[str, float]:
        """An iteration's, as measured, by what is recomputed."""
        return {"full": self.full_s, "selective": self.selective_s}


TABLE_5 = (
    Row("22B", 6144, 64, 48, 1, 1, 4, 4, 1.42, 1.10),
    Row("175B", 12288, 96, 96, 8, 3, 64, 1, 18.13, 13.75),
    Row("530B", 20480, 128, 105, 35, 3, 280, 1, 49.05, 37.83),
    Row("1T", 25600, 160, 128, 64, 1, 512, 1, 94.42, 71.49),
)


def instance_of(row: Row, recompute: str, efficiency: float) -> Instance:
    """The model on one pipeline of nodes; `recompute` full or selective."""
    gpu = {
        "peak_tflops": 312.0,
        "efficiency": efficiency,
        "memory_gib": 80.0,
        "memory_gbytes_per_s": 2039.0,
    }
    nodes: list[dict[str, Any]] = [
        {"name": f"n{i}", "gpu": "A100", "count": TP, "intra_gbytes_per_s": 230.0}
        for i in range(row.stages)
    ]
    costs = {
        "precision": "bf16_fp32_gradients",
        "recompute": recompute,
        "sequence_parallel": recompute == "selective",
        "activations": "architecture",
        "interleave": row.interleave,
        "hops": "both",
    }
    document = {
        "name": f"{row.name}, {recompute}",
        "model": {
            "name": row.name,
            "layers": row.layers,
            "hidden": row.hidden,
            "heads": row.heads,
            "vocabulary": 51200,
            "tied_embeddings": True,
        },
        "workload": {
            "sequence_length": 2048,
            "global_batch": row.batch,
            "micro_batch_sizes": [row.micro_batch],
            "costs": costs,
        },
        "cluster": {
            "gpus": {"A100": gpu},
            "nodes": nodes,
            "inter": {"gbytes_per_s": 200.0},
        },
    }
    return Instance.model_validate(document, strict=False)


def plan_of(row: Row) -> TrainingPlan:
    """One pipeline, a node a stage, the layers in equal parts."""
    each = row.layers // row.stages
    stages = tuple(
        Stage(
            layers=(j * each, (j + 1) * each),
            replicas=(
                Replica(
                    gpus=tuple(f"n{j}:{i}" for i in range(TP)), samples=row.micro_batch
                ),
            ),
        )
        for j in range(row.stages)
    )
    pipeline = Pipeline(
        micro_batches=row.batch // row.micro_batch,
        micro_batch_size=row.micro_batch,
        stages=stages,
    )
    return TrainingPlan(pipelines=(pipeline,))
