"""A measured run: what somebody trained, on what, how fast; one row of a file.

The fields are those of public collections of runs; what is not known is null, and
fields beyond these are left alone. Words of a row (precision, recomputation, overlap)
are as their authors wrote them: `description` says what they mean.
"""

from functools import partial
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from ...plans import TrainingPlan
from ...schema.record import SIZED

_OF_LISTS = BeforeValidator(partial(TrainingPlan.model_validate, strict=False))
_Whole = Annotated[int, Field(ge=0, le=10**12)]
_Some = Annotated[int, Field(ge=1, le=10**9)]
_Real = Annotated[float, Field(ge=0, lt=1e18), SIZED]
_Rate = Annotated[float, Field(gt=0, le=1e6), SIZED]
_Words = Annotated[str, Field(max_length=200)]


class Node(BaseModel):
    """A node of a run."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    gpu: str = Field(description="Card and memory: a100_80gb, gb200.")
    gpus: _Some
    name: str | None = Field(None, description="As the plan has it; else node0, ...")
    network: str | None = Field(None, description="Of the node, as `400 Gbps`.")
    intra_gbytes_per_s: _Rate | None = None


class Run(BaseModel):
    """One row: a model, its layout on GPUs, and what was measured."""

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    set: str | None = Field(None, description="The collection that the row is from.")
    model: str | None = None
    kind: str | None = Field(None, description="dense, moe, ...")

    layers: _Some | None = None
    hidden: _Some | None = None
    heads: _Some | None = None
    kv_heads: _Some | None = None
    head_dim: _Some | None = None
    intermediate: _Some | None = None
    gated: bool | None = None
    vocabulary: _Whole | None = None
    tied: bool | None = Field(None, description="Embedding and head are one matrix.")
    experts: _Whole | None = None
    experts_per_token: _Whole | None = None
    shared_experts: _Whole | None = None
    moe_intermediate: _Some | None = None
    moe_latent_size: _Some | None = Field(
        None, description="Width that routed experts take and give, if not hidden."
    )
    routing: str | None = Field(
        None, description="Of tokens to experts: forced balance, capacity, free."
    )
    shape_notes: str | None = None
    seq: _Some | None = None

    gpu: str | None = Field(None, description="Card and memory: a100_80gb, gb200.")
    gpus: _Some | None = None
    dp: _Some | None = None
    tp: _Some | None = None
    cp: _Some | None = None
    pp: _Some | None = None
    vp: _Some | None = None
    ep: _Some | None = Field(None, description="GPUs that experts are divided among.")
    etp: _Some | None = Field(None, description="GPUs that each expert is cut among.")
    mbs: _Some | None = Field(None, description="Sequences of a micro-batch.")
    gbs: _Some | None = Field(None, description="Sequences of the global batch.")
    ga: _Some | None = Field(None, description="Micro-batches of a pipeline.")
    zero: Annotated[int, Field(ge=0, le=3)] | None = None
    fsdp: str | int | None = None
    recompute: str | None = None
    activation_checkpointing: str | None = None
    overlap: str | None = None
    offload: str | None = None
    optimizer: str | None = None
    precision: str | None = None
    stage_layers: tuple[_Whole, ...] | None = None
    network: str | None = Field(None, description="Of a node, as `400 Gbps`.")
    nodes: _Some | Annotated[tuple[Node, ...], Field(min_length=1)] | None = Field(
        None, description="How many, or a list of them."
    )
    plan: Annotated[TrainingPlan, _OF_LISTS] | None = Field(
        None, description="On nodes that are listed; its GPUs are `node0:3`."
    )
    intra_gbytes_per_s: _Rate | None = Field(
        None, description="Of a GPU to others of its node, in one direction."
    )
    framework: str | None = Field(
        None, description="With its version or year: `Megatron-LM 2021`."
    )
    release: str | None = None
    attention: str | None = Field(
        None, description="The kernel: unfused, flash1, flash2, flash3, cudnn."
    )
    loss: str | None = Field(None, description="plain, fused, or chunked.")
    task: str | None = Field(None, description="pretrain, sft, lora, qlora.")
    lora_rank: _Some | None = None
    lora_targets: str | tuple[str, ...] | None = Field(
        None, description="all, attention, or the names of matrices."
    )
    lora_dropout: _Real | None = None
    frozen_bits: Literal[4, 8, 16] | None = Field(
        None, description="Of a frozen weight."
    )
    gradient_bits: Literal[16, 32] | None = Field(
        None, description="Of a gradient, as replicas exchange it."
    )
    layout_consistent: bool | None = None

    iteration_s: _Real | None = None
    tokens_per_s_gpu: _Real | None = None
    peak_gb: _Real | None = None
    peak_gib: _Real | None = None
    peak_allocated_mib: _Real | None = None
    peak_reserved_mib: _Real | None = None
    oom: bool | None = None
    statistic: str | None = Field(
        None, description="Whose memory: active, allocated, reserved, nvidia-smi."
    )

    notes: str | None = None
    citation: str | None = None
    licence: str | None = None

    @property
    def tokens(self) -> int | None:
        """Tokens of an iteration."""
        sequences = self.gbs or (self.plan.sequences if self.plan else None)
        return sequences * self.seq if sequences and self.seq else None

    @property
    def measured_s(self) -> float | None:
        """Seconds of an iteration, told or from tokens a second and GPU; None: not."""
        if self.iteration_s:
            return self.iteration_s
        gpus = self.gpus or (self.plan.gpu_count if self.plan else None)
        if self.tokens and self.tokens_per_s_gpu and gpus:
            return self.tokens / (self.tokens_per_s_gpu * gpus)
        return None

    @property
    def measured_gib(self) -> float | None:
        """The most memory that a GPU held, GiB; reserved before allocated."""
        if self.peak_gib is not None:
            return self.peak_gib
        if self.peak_gb is not None:
            return self.peak_gb
        for mib in (self.peak_reserved_mib, self.peak_allocated_mib):
            if mib is not None:
                return mib / 1024
        return None


#: Precisions by what names of models and of their products say, in this order.
_WORDS = {
    **{"mxfp4": "mxfp4", "fp4": "nvfp4", "int4": "int4", "w4a": "int4"},
    **{"mxfp8": "mxfp8", "fp8": "fp8", "int8": "int8", "w8a": "int8"},
    **{"bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16"},
    **{"gpt-oss": "mxfp4", "distill": "bf16", "deepseek-": "fp8"},  # as released
    **{"kimi-k2.5": "int4", "kimi-k2-thinking": "int4", "kimi-k2": "fp8"},
}
_NODE = 8  # GPUs of most machines


class Served(BaseModel):
    """One row: an engine, what it generated, and the time of a token.

    Names are AIConfigurator's. An engine has `tp_size` x `attention_dp_size` GPUs a
    stage, or, where that is more, `moe_tp_size` x `moe_ep_size`.
    """

    model_config = ConfigDict(extra="ignore", frozen=True, protected_namespaces=())

    backend: _Words = "vllm"
    model_path: _Words
    system: _Words
    precision: _Words = ""
    mode: _Words = "agg"
    isl: _Some = Field(description="Tokens of a prompt.")
    osl: _Some = Field(description="Tokens of an answer.")
    gemm_quant_mode: _Words = ""
    moe_quant_mode: _Words = ""
    batch_size: _Some = Field(description="Answers in flight, of an attention group.")
    tp_size: _Some = 1
    pp_size: _Some = 1
    attention_dp_size: _Whole = 1
    moe_tp_size: _Whole = 1
    moe_ep_size: _Whole = 1
    silicon_tpot_ms: Annotated[float, Field(gt=0, lt=1e9), SIZED] | None = None

    @property
    def set(self) -> str:
        """Return what errors are told by."""
        return f"{self.model_path} on {self.system}"

    @property
    def measured_s(self) -> float | None:
        """Return the seconds of a token."""
        return None if self.silicon_tpot_ms is None else self.silicon_tpot_ms / 1000

    @property
    def in_precision(self) -> str:
        """Return the precision of the weights, of mixtures that of the experts."""
        quantised = self.moe_quant_mode or self.gemm_quant_mode
        told = (self.precision.lower(), quantised.lower(), self.model_path.lower())
        said = (name for x in told for word, name in _WORDS.items() if word in x)
        return next(said, "bf16")

    def groups(self, *, sparse: bool) -> tuple[int, int]:
        """Return the GPUs of a stage, and the groups among them that attend alone.

        Some tables square the degrees of mixtures: 8 GPUs are tp 64 and moe 8 x 8.
        """
        side = self.attention_dp_size or 1
        gpus, tp, ep = self.tp_size * side, self.moe_tp_size, self.moe_ep_size
        if sparse and tp == ep and tp * ep == gpus > _NODE:
            return tp, (tp if side > 1 else 1)
        if sparse and ep == gpus and self.tp_size == side > 1:
            return side, side
        whole = max(gpus, tp * ep) if sparse else gpus
        return whole, max(1, whole // self.tp_size)
