"""Small mixtures of experts whose plans choose how they are divided."""

from typing import Any

from small_instances import small

from hetopt.costs.constants.shipped import values
from hetopt.schema import Instance

GPU = {"peak_tflops": 312, "memory_gib": 6, "memory_gbytes_per_s": 2039}
GPU |= {"card": "A100", "generation": "Ampere", "peaks": {"bf16": 312}}
CALIBRATION = {"framework": "megatron", "style": "fused", "kernel": "cudnn"}
CALIBRATION |= {"precision": "bf16", "spread": 0.1, "constants": dict(values())}


def mixture(counts: list[int], **more: Any) -> Instance:
    """A small mixture of experts on nodes of so many A100s."""
    costs = {"layer_times": "calibrated", "activations": "calibrated"}
    costs |= {"calibration": CALIBRATION, "sequence_parallel": True, "flash": True}
    shape = {"kv_heads": 4, "intermediate": 2048, "gated": True, "vocabulary": 8000}
    asked: dict[str, Any] = {
        **{"sequence_length": 8192, "global_batch": 4, "runs_on": "megatron"},
        "costs": costs,
        "alternatives": {
            **{"context_parallel": [1, 2], "expert_parallel": [1, 2, 4]},
            **{"zero": [0, 1], "recompute": ["none", "full"], "interleave": [1, 2]},
        },
    }
    return small(
        [
            {"name": f"n{i}", "gpu": "a", "count": count}
            | {"intra_gbytes_per_s": 300, "adapters": 2}
            for i, count in enumerate(counts)
        ],
        {"a": GPU},
        model={**shape, "experts": 4, "active_experts": 2, "dropout": False},
        inter=25,
        **(asked | more),
    )
