"""Names that Megatron-LM's relatives have for its options: forks and wrappers."""

from ..table import Dialect
from . import HOSTED
from .stages import FIRST, LAST, RUNS

#: Names that none of them uses in another sense: of logs, forks and wrappers.
NAMES = {
    **{"fp8": "fp8-format", "fp4": "fp4-format"},  # as a log prints them
    "virtual-pipeline-model-parallel-size": RUNS,
    "activations-checkpoint-granularity": "recompute-granularity",
    "activations-checkpoint-method": "recompute-method",
    "activations-checkpoint-num-layers": "recompute-num-layers",
    **{"encoder-seq-length": "seq-length", "sequence-length": "seq-length"},
    "train-type": "tuner-type",
    "per-device-train-batch-size": "micro-batch-size",  # LLaMA-Factory's adapter
    "cutoff-len": "seq-length",
    "num-gpus-per-node": "devices",
    # Of the configuration classes, as NeMo, Megatron-Bridge and Primus have them.
    "num-moe-experts": "num-experts",
    "layernorm-epsilon": "norm-epsilon",
    "num-layers-in-first-pipeline-stage": FIRST,
    "num-layers-in-last-pipeline-stage": LAST,
}
_OPPOSITE = {
    "share-embeddings-and-output-weights": "untie-embeddings-and-output-weights",
    "add-bias-linear": "disable-bias-linear",
}
MEGATRON = Dialect("Megatron-LM")
BRIDGE = Dialect(
    "Megatron-Bridge",
    names={
        "layernorm-epsilon": "norm-epsilon",
        "num-moe-experts": "num-experts",
        "rope-scaling": "use-rope-scaling",
        "seq-len-interpolation-factor": "rotary-seq-len-interpolation-factor",
        "virtual-pipeline-model-parallel-size": RUNS,
        **{"fp8": "fp8-format", "fp4": "fp4-format"},
    },
    opposite=_OPPOSITE,
    written={
        **dict.fromkeys(("global-batch-size", "micro-batch-size"), "train"),
        **dict.fromkeys(("optimizer", "optimizer-cpu-offload", *HOSTED), "optimizer"),
        **dict.fromkeys(
            ("use-distributed-optimizer", "num-distributed-optimizer-instances"), "ddp"
        ),
        # A precision has its own fp8, which overrides the model's.
        **dict.fromkeys(("fp8-format", "fp8-recipe", "fp4-format"), "mixed_precision"),
        # Said elsewhere: by the sequence, by the kind of query groups, by a recipe.
        **dict.fromkeys(("max-position-embeddings", "group-query-attention"), ""),
        **dict.fromkeys(("bf16", "fp16", "grad-reduce-in-bf16"), ""),
    },
)
NEMO = Dialect(
    "NeMo or Megatron-Bridge",
    names={**BRIDGE.names, "plugins": "precision"},  # of a recipe, bf16_mixed()
    opposite=_OPPOSITE,
    sections=frozenset(
        {
            *("model", "train", "trainer", "ddp", "optimizer", "optim", "strategy"),
            *("mixed_precision", "dataset", "data", "peft", "plugins", "comm_overlap"),
        }
    ),
)
SWIFT = Dialect("ms-swift")
FLAGSCALE = Dialect(
    "FlagScale",
    lacks=frozenset(
        {"cp", "ep", "vp", "zero_groups", "window", "hosted", "lora_rank", "mtp_layers"}
        | {"parts"}
    ),
    sections=frozenset({"system", "model"}),
    written={
        **dict.fromkeys(("sequence-parallel", "use-distributed-optimizer"), "system"),
        **{f"recompute-{x}": "system" for x in ("granularity", "method", "num-layers")},
        **dict.fromkeys(("bf16", "fp16", "grad-reduce-in-bf16"), "precision"),
    },
)
