"""Megatron-LM's options.

Flags are those of `megatron/training/arguments.py` and of its configuration classes
(core_v0.13.0 to 0.20.0), and older ones that files still have. Data, tokenizer, rates
of the optimiser and checkpoints are the user's. Windows and sinks are core 0.15's, Muon
core 0.16's. Rules are those of `validate_args` and of `TransformerConfig`.
"""

import re
from collections.abc import Callable
from itertools import groupby

from ...text.documents import Fields as Values
from ..table import (
    ANY,
    NUMBER,
    OFF,
    ON,
    TEXT,
    Choice,
    Entry,
    Kind,
    Row,
    Rule,
    Table,
    Unread,
    never,
    words,
)
from .stages import EACH, ENDS, FIRST, LAST, LAYOUT, RUNS, STAGES, STAGES_BY_LAYERS

# --- kinds of its own ----------------------------------------------------------------


def pattern(bits: list[int]) -> str:
    """Return a list of layers as Megatron reads one, `([0]*3+[1]*29)`, `([1,0]*12)`."""
    for period in range(2, len(bits) // 2 + 1):
        times, rest = divmod(len(bits), period)
        if not rest and bits[:period] * times == bits and len(set(bits)) > 1:
            return f"([{','.join(map(str, bits[:period]))}]*{times})"
    runs = ((bit, len(list(run))) for bit, run in groupby(bits))
    return "(" + "+".join(f"[{bit}]*{count}" for bit, count in runs) + ")"


def bits_of(text: str) -> list[int] | None:
    """Return the layers of a pattern; None for `1`, every layer."""
    found: list[int] = []
    for items, times in re.findall(r"\[([01, ]{1,9999})\](?:\*([0-9]{1,4}))?", text):
        found += [int(bit) for bit in re.findall("[01]", items)] * int(times or 1)
    return found or None


def _window(text: str) -> int | None:
    """Megatron counts the tokens before a token, the instance this one, too."""
    found = re.fullmatch(r"\(?\[?(-?[0-9]{1,9}),? ?-?[0-9]{1,9}\]?\)?", text)
    return int(found[1]) + 1 if found else None


#: Of a layer, that are computed again by name.
MODULES = (
    *("core_attn", "layernorm", "mla_up_proj"),
    *("mlp", "moe", "moe_act", "shared_experts"),
)
BITS = Kind("a list of layers", bits_of, pattern)
WINDOW = Kind("two numbers of tokens", _window, lambda tokens: f"{tokens - 1},0")
NAMED = Kind(
    f"some of {', '.join(MODULES)}",
    lambda text: tuple(MODULES[MODULES.index(x)] for x in re.findall(r"[\w.-]+", text)),
    list,
)
SCALE = Kind("a whole number", float, int)

# --- the table -----------------------------------------------------------------------

_MLA = "multi-latent-attention"
HOSTED = {"optimizer-offload-fraction": 1.0, "use-precision-aware-optimizer": True}
SHARDED = "data-parallel-sharding-strategy"
FSDP = ("use-megatron-fsdp", "use-custom-fsdp")
_STRATEGIES = ("no_shard", "optim", "optim_grads", "optim_grads_params")


_LLAMA_3 = (1.0, 4.0, 8192)  # what it has of rope scaling besides the factor


def _fraction(field: str, what: str) -> Callable[[Values], str | None]:
    """Return the refusal of fractions, for which it has no word."""
    text = f"a {what} that is no whole number, "
    return lambda f: None if f[field] == int(f[field]) else f"{text}{f[field]}"


def _too_short(fields: Values) -> str | None:
    longest, length = fields["longest"], fields.get("seq", 0)
    if longest >= length:
        return None
    return f"learned positions of {longest} tokens on sequences of {length}"


def _like_llama_3(fields: Values) -> str | None:
    is_own = fields["rope_llama3"][1:] == _LLAMA_3
    return None if is_own else "a rope scaling other than that of Llama 3.1"


_UNREAD = (
    *("fp8-param-gather", "fp8-dot-product-attention", "fp8-multi-head-attention"),
    *("first-last-layers-bf16", "fp4-param-gather"),
    *("reuse-grad-buf-for-mxfp8-param-ag", "fp32-residual-connection"),
    *("use-precision-aware-optimizer", "cpu-offloading", "cpu-offloading-num-layers"),
    *("offload-modules", "fine-grained-activation-offloading"),
    *("recompute-method", "recompute-num-layers", "distribute-saved-activations"),
    *("moe-layer-recompute", "use-tp-pp-dp-mapping", "overlap-grad-reduce"),
    *("overlap-param-gather", "tp-comm-overlap", "overlap-moe-expert-parallel-comm"),
    *("delay-wgrad-compute", "defer-embedding-wgrad-compute"),
    *("no-overlap-p2p-communication", "microbatch-group-size-per-vp-stage"),
    *("rampup-batch-size", "enable-cuda-graph", "external-cuda-graph"),
    *("packing", "padding-free"),
    *("fsdp-double-buffer", "nccl-ub", "step-batch-size-schedule"),
    *("microbatch-group-size-per-virtual-pipeline-stage", "te-fp8-format"),
    *("hierarchical-context-parallel-sizes", "decoder-tp-comm-overlap"),
    *("overlap-p2p-communication-warmup-flush", "attention-output-gate"),
    *("linear-attention-freq", "vision-pretraining", "freeze-LM", "freeze-ViT"),
    *("freeze-llm", "freeze-vit", "no-gradient-accumulation-fusion"),
    *("reset-attention-mask", "sft", "full-cuda-graph"),
    *("recompute-activation-layers-per-vp-stage", "swap-attention", "recompute-norm"),
    *("window-size", "window-attn-skip-freq"),
)
_UNREAD_OF_EXPERTS = (
    *("moe-pad-expert-input-to-cap", "moe-expert-capacity-factor", "moe-enable-deepep"),
    *("moe-router-force-bias", "expert-tensor-parallel-size"),
    *("moe-shared-expert-overlap", "moe-token-dispatcher-type"),
    *("moe-flex-dispatcher-backend", "moe-latent-size", "moe-use-legacy-grouped-gemm"),
    "moe-router-padding-for-fp8",
)


TABLE = Table(
    "megatron",
    (
        Row("tensor-model-parallel-size", "tp"),
        Row("pipeline-model-parallel-size", "pp"),
        Row("micro-batch-size", "mbs"),
        Row("context-parallel-size", "cp", default=1),
        Row("expert-model-parallel-size", "ep", default=1),
        Row("expert-tensor-parallel-size", "etp"),
        STAGES,
        # The model.
        Row("num-layers", "layers"),
        Row("mtp-num-layers", "mtp_layers", default=0),
        Row("hidden-size", "hidden"),
        Row("num-attention-heads", "heads"),
        Row("seq-length", "seq"),
        Row("max-position-embeddings", "longest", refuses=_too_short),
        Row("global-batch-size", "gbs"),
        Row(
            "num-query-groups",
            "kv_heads",
            default=lambda fields: fields["heads"],
            adds={"group-query-attention": True},
            needs="group-query-attention",
        ),
        Row("kv-channels", "head_dim", default=lambda of: of["hidden"] // of["heads"]),
        Row("ffn-hidden-size", "intermediate"),
        Choice(
            "gated",
            {False: {}, True: {"swiglu": True}},
            synonyms=(
                (True, {"quick-geglu": True}),
                (True, {"geglu": True}),
                (True, {"gated-linear-unit": True}),  # Megatron-Bridge
                *((True, {"activation": f"{x}glu"}) for x in ("swi", "fast-swi", "ge")),
                *(
                    (True, {"activation": f"{x}glu"})
                    for x in ("fast-ge", "re", "fast-re")
                ),
                (False, {"activation": ANY}),
            ),
        ),
        Choice("activation", {"gelu": {}, "gelu_tanh": {}, "gated silu": {}}),
        Row("untie-embeddings-and-output-weights", "tied", OFF, default=True),
        Row(
            "vocab-size",
            "vocabulary",
            adds={"make-vocab-size-divisible-by": 1},
            when=lambda fields: (
                bool(fields["vocabulary"]) and fields["vocabulary"] % fields["tp"] == 0
            ),
        ),
        Row("qk-layernorm", "qk_norm", ON, default=False),
        Choice(
            "sinks",
            {False: {}, True: {"softmax-type": "learnable"}},
            synonyms=((False, {"softmax-type": ANY}),),
        ),
        Row("window-size", "window", WINDOW),
        Row("window-attn-skip-freq", "window_layers", BITS),
        Row(_MLA, "latent", ON, default=False),
        Row("q-lora-rank", "q_rank", default=0, needs=_MLA),
        Row("kv-lora-rank", "kv_rank", needs=_MLA),
        Row("qk-head-dim", "plain_dim", needs=_MLA),
        Row("qk-pos-emb-head-dim", "rotary_dim", needs=_MLA),
        Row("v-head-dim", "v_dim", needs=_MLA),
        Row("rope-type", "rope_type", TEXT, needs=_MLA),  # YaRN by default
        Choice(
            "mixers",
            {False: {}},
            synonyms=(
                (True, {"is-hybrid-model": True}),
                (True, {"hybrid-override-pattern": ANY}),
                (True, {"hybrid-layer-pattern": ANY}),
            ),
        ),
        Row("num-experts", "experts", default=0),
        Row("moe-router-topk", "experts_per_token"),
        Row("moe-ffn-hidden-size", "moe_intermediate"),
        Row("moe-shared-expert-intermediate-size", "shared_width", default=0),
        Row("moe-layer-freq", "expert_layers", BITS),
        Row("normalization", "norm", words(rms="RMSNorm", layer="LayerNorm")),
        Row("norm-epsilon", "norm_epsilon", NUMBER),
        Row("hidden-dropout", "dropout", NUMBER),
        Row("attention-dropout", "attention_dropout", NUMBER),
        Row(
            "position-embedding-type",
            "positions",
            words(rope="rope", learned="learned_absolute"),
        ),
        Row(
            "rotary-base",
            "rope_base",
            SCALE,
            refuses=_fraction("rope_base", "rope base"),
        ),
        Row(
            "rotary-seq-len-interpolation-factor",
            "rope_linear",
            SCALE,
            refuses=_fraction("rope_linear", "rope scaling"),
        ),
        Row(
            "rope-scaling-factor",
            "rope_llama3",
            Kind("a number", lambda text: (float(text), *_LLAMA_3), lambda of: of[0]),
            refuses=_like_llama_3,
            adds={"use-rope-scaling": True},
            needs="use-rope-scaling",
        ),
        Row("disable-bias-linear", "bias", OFF, default=True),
        Row("add-qkv-bias", "qkv_bias", ON, default=False),
        Row(
            "moe-aux-loss-coeff",
            "router_loss",
            NUMBER,
            adds={"moe-router-load-balancing-type": "aux_loss"},
        ),
        Row("moe-router-pre-softmax", "normalised", OFF, default=True),
        # How it is trained.
        Choice(
            "precision",
            {
                "fp32": {},
                "fp16_mixed": {"fp16": True},
                "bf16_mixed": {"bf16": True, "grad-reduce-in-bf16": True},
                "bf16_fp32_gradients": {"bf16": True},
            },
        ),
        Choice(
            "products",
            {
                "bf16": {},
                "fp8": {"fp8-format": "hybrid"},
                "mxfp8": {"fp8-format": "e4m3", "fp8-recipe": "mxfp8"},
                "nvfp4": {"fp4-format": "e2m1"},
            },
            synonyms=(
                ("fp8", {"fp8-format": ANY}),
                ("mxfp8", {"fp8-format": ANY, "fp8-recipe": "mxfp8"}),
                ("fp8", {"fp8-format": ANY, "fp8-recipe": ANY}),
                ("nvfp4", {"fp4-format": ANY}),
            ),
        ),
        Choice(
            "recompute",
            {
                "none": {},
                "selective": {"recompute-granularity": "selective"},
                "full": {"recompute-granularity": "full"},
            },
            adds={"full": {"recompute-method": "uniform", "recompute-num-layers": 1}},
            synonyms=(
                ("none", {"recompute-granularity": "none"}),
                ("selective", {"recompute-activations": True}),
                ("full", {"checkpoint-activations": True}),  # of 2022
            ),
        ),
        Row("recompute-modules", "modules", NAMED),
        Row("moe-grouped-gemm", "grouped", ON, default=False),  # moe_act needs it
        Row("cross-entropy-loss-fusion", "fused_loss", ON, default=False),
        Choice(
            "zero",
            {0: {}, 1: {"use-distributed-optimizer": True}},
            synonyms=(
                *(
                    (stage, {fsdp: True, SHARDED: kind})
                    for fsdp in FSDP
                    for stage, kind in enumerate(_STRATEGIES)
                ),
                (3, {"use-torch-fsdp2": True}),
                *((n, {"deepspeed": True, "zero-stage": n}) for n in range(4)),
            ),
        ),
        Row("num-distributed-optimizer-instances", "zero_groups", default=1),
        Row("sequence-parallel", "sequence_parallel", ON, default=False),
        Row(
            "optimizer",
            "optimiser",
            words(adamw="adam", sgd="sgd", muon="muon"),
            default="adamw",
        ),
        Choice(
            "hosted",
            {False: {}, True: {"optimizer-cpu-offload": True}},
            adds={True: HOSTED},
        ),
        # What no plan writes.
        Row("world-size", "gpus", when=never),
        Row("data-parallel-size", "dp", when=never),
        Row("gradient-accumulation-steps", "steps", when=never),
        Row("lora-rank", "lora_rank", when=never),
        Row("tuner-type", "tuner", TEXT, when=never),
    ),
    unread=(
        *map(Unread, _UNREAD),
        *(Unread(name, needs="num-experts") for name in _UNREAD_OF_EXPERTS),
        Unread("moe-layer-freq", ("1",), needs="num-experts"),
        Unread("attention-backend", ("auto", "flash", "fused")),
        Unread("attention-dropout", ("0", "0.0")),
        Unread("cp-comm-type", ("p2p",)),
        Unread("cuda-graph-impl", ("none",)),
        Unread("transformer-impl", ("transformer_engine",)),
        Unread("fp8-param", ("False",)),
        Unread("optimizer-offload-fraction", ("1", "1.0")),
        *(
            Unread(f"encoder-{one}-model-parallel-size", ("0",))
            for one in ("tensor", "pipeline")
        ),
        *(
            Unread(name, ("fp32", "torch.float32"))
            for name in (
                *("main-grads-dtype", "main-params-dtype"),
                *("exp-avg-dtype", "exp-avg-sq-dtype"),
            )
        ),
        *(Unread(name) for name in (*FSDP, "use-torch-fsdp2")),
        Unread(SHARDED, ("no_shard",)),
    ),
    rules=(
        Rule((LAYOUT,), excludes=(RUNS, EACH, FIRST, LAST)),
        *(Rule((x,), excludes=ENDS) for x in (LAYOUT, FIRST, LAST)),
        Rule((RUNS,), excludes=(EACH,)),
        Rule((EACH,), excludes=(FIRST, LAST)),
        *(
            Rule((f"hybrid-{x}-pattern",), excludes=(LAYOUT, RUNS, EACH))
            for x in ("layer", "override")
        ),
        Rule(("bf16",), excludes=("fp16",)),
        Rule(("fp8-format",), excludes=("fp4-format",)),
        Rule(("use-torch-fsdp2",), excludes=("use-distributed-optimizer", "fp16")),
        Rule(("use-torch-fsdp2",), excludes=("pipeline-model-parallel-size>1",)),
        Rule(("recompute-granularity=selective",), excludes=("recompute-method",)),
        Rule(("recompute-granularity=full",), needs=("recompute-method",)),
        Rule(("recompute-modules~mla_up_proj",), needs=(_MLA,)),
        Rule(("recompute-modules~moe_act",), needs=("moe-grouped-gemm",)),
        Rule(("optimizer-cpu-offload",), needs=("use-precision-aware-optimizer",)),
        Rule(("overlap-param-gather",), needs=("overlap-grad-reduce",)),
        Rule(("expert-model-parallel-size>1",), needs=("num-experts",)),
        Rule(
            ("num-experts", "tensor-model-parallel-size>1"),
            needs=("sequence-parallel",),
        ),
        Rule(
            ("num-experts", "tensor-model-parallel-size>1"),
            needs=("disable-bias-linear", "expert-tensor-parallel-size=1"),
        ),
        Rule(("mtp-num-layers",), needs=("position-embedding-type=rope",)),
    ),
)
#: By a flag that only some files have: what says a field there.
OLDER: dict[str, Entry] = {
    "deepspeed": Choice("zero", {n: {"zero-stage": n} for n in range(4)}),
    "checkpoint-activations": Choice(
        "recompute", {"none": {}, "full": {"checkpoint-activations": True}}
    ),
    EACH: STAGES_BY_LAYERS,
}
