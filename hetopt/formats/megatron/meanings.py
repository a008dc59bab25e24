"""Arguments of a Megatron-LM run that bear on time and memory beside its layout.

A run is judged in its own precision where that differs from the instance's by the width
of gradients alone: with --bf16 Megatron adds them up and reduces them in fp32, unless
--grad-reduce-in-bf16. Another kind of 16 bits, or products in fp8 that the instance
does not time, are a mismatch. Arguments that change time or memory and that no plan of
ours tells are named, never dropped.
"""

from collections.abc import Iterator, Mapping

from ...errors import InstanceError
from ...schema import Instance
from ..importing.current import same_adapters

#: Arguments of reinforcement learning: ms-swift's, Megatron-LM's own, and slime's.
_OF_ROLLOUTS = (
    *("rlhf-type", "perform-rl-step"),
    *("advantage-estimator", "rollout-batch-size", "rollout-num-gpus"),
)
_EIGHT_BITS = ("fp8", "mxfp8", "nvfp4")
#: Values of arguments with which nothing changes; those of flags are empty.
_USUAL: Mapping[str, tuple[str, ...]] = {
    "attention-backend": ("auto", "flash", "fused"),
    "attention-dropout": ("0", "0.0"),
    "moe-layer-freq": ("1",),
    "cp-comm-type": ("p2p",),
    "cuda-graph-impl": ("none",),
    "data-parallel-sharding-strategy": ("no_shard",),
    "encoder-tensor-model-parallel-size": ("0",),
    "encoder-pipeline-model-parallel-size": ("0",),
    "exp-avg-dtype": ("fp32", "torch.float32"),
    "exp-avg-sq-dtype": ("fp32", "torch.float32"),
    "fp8-param": ("False",),
    "optimizer-offload-fraction": ("1", "1.0"),
    "main-grads-dtype": ("fp32", "torch.float32"),
    "main-params-dtype": ("fp32", "torch.float32"),
    "recompute-num-layers": ("1",),
    "recompute-method": ("uniform",),
    "transformer-impl": ("transformer_engine",),
}
_OF_EXPERTS = ("moe-", "expert-")
#: Arguments that change time or memory, and of which plans and instances know nothing.
_NOT_READ = (
    *("fp8-param-gather", "fp8-param", "fp8-dot-product-attention"),
    *("fp8-multi-head-attention", "first-last-layers-bf16", "fp4-param-gather"),
    *("reuse-grad-buf-for-mxfp8-param-ag", "fp32-residual-connection"),
    *("use-precision-aware-optimizer", "main-grads-dtype", "main-params-dtype"),
    *("exp-avg-dtype", "exp-avg-sq-dtype"),
    *("optimizer-offload-fraction", "cpu-offloading", "cpu-offloading-num-layers"),
    *("fine-grained-activation-offloading", "offload-modules"),
    *("recompute-method", "recompute-num-layers", "recompute-modules"),
    *("distribute-saved-activations", "moe-layer-recompute"),
    *("use-megatron-fsdp", "use-custom-fsdp", "use-torch-fsdp2"),
    *("data-parallel-sharding-strategy", "use-tp-pp-dp-mapping"),
    *("overlap-grad-reduce", "overlap-param-gather", "tp-comm-overlap"),
    *("overlap-moe-expert-parallel-comm", "delay-wgrad-compute"),
    *("defer-embedding-wgrad-compute", "no-overlap-p2p-communication"),
    *("microbatch-group-size-per-vp-stage", "rampup-batch-size"),
    *("enable-cuda-graph", "external-cuda-graph", "cuda-graph-impl"),
    *("cross-entropy-loss-fusion", "transformer-impl", "moe-pad-expert-input-to-cap"),
    *("moe-expert-capacity-factor", "moe-enable-deepep", "moe-router-force-bias"),
    *("account-for-embedding-in-pipeline-split", "packing", "padding-free"),
    *("expert-tensor-parallel-size", "cp-comm-type", "attention-backend"),
    *("account-for-loss-in-pipeline-split", "fsdp-double-buffer", "nccl-ub"),
    *("step-batch-size-schedule", "microbatch-group-size-per-virtual-pipeline-stage"),
    *("hierarchical-context-parallel-sizes", "decoder-tp-comm-overlap"),
    *("overlap-p2p-communication-warmup-flush", "moe-shared-expert-overlap"),
    *("moe-token-dispatcher-type", "moe-flex-dispatcher-backend", "moe-layer-freq"),
    *("moe-use-legacy-grouped-gemm", "moe-router-padding-for-fp8"),
    *("moe-latent-size", "attention-output-gate", "window-size"),
    *("window-attn-skip-freq", "linear-attention-freq"),
    *("vision-pretraining", "freeze-LM", "freeze-ViT", "freeze-llm", "freeze-vit"),
    *("encoder-tensor-model-parallel-size", "encoder-pipeline-model-parallel-size"),
    *("te-fp8-format", "no-gradient-accumulation-fusion", "attention-dropout"),
    *("reset-attention-mask", "sft", "full-cuda-graph"),
    *("recompute-activation-layers-per-vp-stage", "swap-attention", "recompute-norm"),
)


def in_precision(
    given: Mapping[str, str], data: Instance, place: str
) -> tuple[Instance, list[str]]:
    """Return the instance in the run's precision, and notes of what differs.

    Raises `InstanceError` where the instance times or weighs another run.
    """
    if kind := next((name for name in _OF_ROLLOUTS if name in given), None):
        raise InstanceError(
            f"{place}: {kind}: found {given[kind] or 'it'}, expected training by the "
            "model's own loss (pt, sft): plans weigh no second model and no rollouts"
        )
    _same_products(given, data, place)
    _same_optimiser(given, data, place)
    adapters = given.get("lora-rank") if given.get("tuner-type") == "lora" else None
    same_adapters(adapters, data, place)
    notes = []
    told, own = precision_of(given), data.workload.costs.memory.precision
    if told is None and own != "fp32":
        notes.append(
            f"found neither --bf16 nor --fp16, which is fp32 for Megatron-LM: judged "
            f"in the instance's precision, {own or '16 bits'}"
        )
    elif told is not None and own is not None and told != own:
        if {told, own} != {"bf16_mixed", "bf16_fp32_gradients"}:
            raise InstanceError(
                f"{place}: precision: found {told}, expected {own} as the instance has "
                f"it; assemble one with -o precision={told}"
            )
        wide = "fp32" if told == "bf16_fp32_gradients" else "bf16"
        data = data.in_precision(told)
        notes.append(
            f"the run adds gradients up and reduces them in {wide}: judged with "
            f"precision {told}, the instance has {own}"
        )
    notes += _of_sequences(given, data)
    if unread := list(not_read(given)):
        notes.append(f"not read: {', '.join(unread)}")
    return data, notes


def _of_sequences(given: Mapping[str, str], data: Instance) -> Iterator[str]:
    """Yield that a run and its instance divide norms among GPUs or not."""
    told, own = (
        "sequence-parallel" in given,
        data.workload.costs.compute.sequence_parallel,
    )
    if given.get("tensor-model-parallel-size", "1") == "1" or told == own:
        return
    with_it, without = ("with", "without") if told else ("without", "with")
    yield f"the run is {with_it} --sequence-parallel: judged {without}, as the instance"


def precision_of(given: Mapping[str, str]) -> str | None:
    """Return the precision of a run by our name; None where no flag says it."""
    if "fp16" in given:
        return "fp16_mixed"
    if "bf16" not in given:
        return None
    narrow = "grad-reduce-in-bf16" in given
    return "bf16_mixed" if narrow else "bf16_fp32_gradients"


def not_read(given: Mapping[str, str]) -> Iterator[str]:
    """Arguments that change time or memory and that the judge does not know, in words.

    Recomputation of core attention is what `selective` is here.
    """
    for name in _NOT_READ:
        value = given.get(name)
        if value is None or value in _USUAL.get(name, ()):
            continue
        if name.startswith(_OF_EXPERTS) and "num-experts" not in given:
            continue
        if name == "recompute-modules" and "core_attn" in value and " " not in value:
            continue
        yield f"--{name}{f' {value}' if value else ''}"


def _same_products(given: Mapping[str, str], data: Instance, place: str) -> None:
    """A run with products of eight bits is of an instance that times them, and back."""
    calibration = data.workload.costs.compute.calibration
    timed = "bf16" if calibration is None else calibration.precision
    eight = "fp8-format" in given or "fp4-format" in given
    if eight == (timed in _EIGHT_BITS):
        return
    kind = "nvfp4" if "fp4-format" in given else "fp8"
    if eight and given.get("fp8-recipe") == "mxfp8":
        kind = "mxfp8"
    found, wanted = (kind, timed) if eight else ("16 bits", timed)
    remedy = f"products={kind}" if eight else "products=bf16"
    raise InstanceError(
        f"{place}: products of layers: found {found}, expected {wanted} as the "
        f"instance times them; assemble one with -o {remedy}"
    )


def _same_optimiser(given: Mapping[str, str], data: Instance, place: str) -> None:
    """Optimiser states are those that the instance weighs, and lie where it says."""
    hosted = "optimizer-cpu-offload" in given
    if hosted != data.workload.costs.memory.hosts_update:
        found, expected = ("hosts", "GPUs") if hosted else ("GPUs", "hosts")
        raise InstanceError(
            f"{place}: optimiser states: found on {found}, expected on {expected} as "
            f"the instance has it; assemble one {'with' if hosted else 'without'} "
            "-o offload=optimiser"
        )
    told, own = given.get("optimizer", "adam"), data.workload.costs.memory.optimiser
    if told == {"adamw": "adam"}.get(own, own):
        return
    raise InstanceError(
        f"{place}: optimizer: found {told}, expected {own} as the instance weighs it; "
        f"assemble one with -o optimiser={ {'adam': 'adamw'}.get(told, told) }"
    )
