"""Cost settings by one word: how each paper times and weighs, and each trainer runs.

A preset says what a source says, and leaves all else at its default. What papers print
is in `instances/README.md`, with the instances that are of each preset.
"""

from collections.abc import Mapping
from types import MappingProxyType

from ..text.documents import Fields

Groups = Mapping[str, Fields]

_HEXISCALE: Groups = {
    "compute": {"recompute": "full", "head": "omit"},
    "memory": {"bytes_per_parameter": 8, "activations": "checkpoint"},
    "schedule": {"in_flight": "one"},
}

PRESETS: Mapping[str, Groups] = MappingProxyType(
    {
        # Appendix A, Eq. 1-11.
        "hexiscale": _HEXISCALE,
        # The released planner, with the factors of its ZeRO-3.
        "hexiscale_released": {
            **_HEXISCALE,
            "schedule": {
                "in_flight": "one",
                "pipeline": "lockstep",
                "pipeline_factor": 1.8,
            },
            "updates": {"sync_factor": 1.65},
        },
        # Section IV: the lowest bandwidth among replicas; activations are kept.
        "autohet": {
            "compute": {"recompute": "none", "flash": True},
            "updates": {"sync": "bottleneck"},
        },
        # Its estimator: the lowest bandwidth among replicas.
        "metis": {
            "compute": {"recompute": "full"},
            "updates": {"sync": "bottleneck"},
        },
        # Eq. 9: gradients are exchanged behind the backward passes of earlier stages.
        "espresso": {
            "compute": {"recompute": "full", "flash": True, "head": "omit"},
            "updates": {"sync_overlap": "backward"},
        },
        # Megatron-LM in bf16: gradients in fp32 (`hetopt.schema.widths`), sequence
        # parallelism, the all-reduce of tied embeddings.
        "megatron": {
            "compute": {"recompute": "none", "flash": True, "sequence_parallel": True},
            "memory": {"precision": "bf16_fp32_gradients"},
            "updates": {"tied_sync": True},
        },
        # torchtitan: FSDP gathers weights for every micro-batch and reduces gradients
        # in fp32; PyTorch's own loss keeps the gradients of the logits.
        "torch": {
            "compute": {"recompute": "none", "flash": True, "sequence_parallel": True},
            "memory": {
                "precision": "bf16_fp32_gradients",
                "logit_gradients": True,
            },
            "updates": {"zero": 3, "gathers": "micro_batch"},
        },
    }
)
