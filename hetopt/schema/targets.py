"""Programs that run plans, and what each of them demands of a plan: data.

`Workload.runs_on` names a target; the plans of the instance are then those that it can
run. The judge names each rule that a plan breaks, searches keep to them, and exporters
(`hetopt.formats`) state no rule of a plan a second time. `any` has no rules: the
instances of papers have the spaces of their papers. `architecture` is no program: its
degrees divide what they cut, and that is all.

A tensor-parallel group cuts every layer into equal parts, so its degree divides the
attention heads, the key-value heads, and the width of the MLP or of an expert where the
model gives one (Megatron-LM, core/transformer/transformer_config.py; torchtitan and
HexiScale shard by heads as well). Megatron-LM takes multiples of the key-value heads,
too, and so does `architecture`: its GPUs gather what they cut, and share a head.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Literal, NamedTuple

from ..trainers.megatron import TABLE as MEGATRON
from ..trainers.megatron.relatives import FLAGSCALE
from ..trainers.table import Table

RunsOn = Literal[
    "any",
    "architecture",
    "executor",
    "megatron",
    "megatron_bridge",
    "torchtitan",
    "deepspeed",
    "flagscale",
    "hexiscale",
    "transformers",
    "llamafactory",
]


class Feature(StrEnum):
    """A feature is something that not every target can do, in words."""

    PIPELINES = "layers divided among stages (pipelines)"
    TENSOR_PARALLEL = "layers cut among GPUs (tensor parallelism)"
    UNEVEN_LAYERS = "stages with different numbers of layers"
    TOLD_LAYOUT = "virtual stages that are told, or the embedding or the loss alone"
    DIFFERENT_CUTS = "pipelines that cut the layers differently"
    DIFFERENT_BATCHES = "pipelines with different numbers of micro-batches"
    MIXED_DEGREES = "stages with different tensor-parallel degrees"
    MIXED_DEGREES_IN_STAGE = (
        "replicas of a stage with different tensor-parallel degrees"
    )
    MIXED_REPLICAS = "stages with different numbers of replicas"
    UNEQUAL_SAMPLES = "replicas of a stage with different numbers of samples"
    MIXED_TYPES = "stages on different GPU types"
    MIXED_TYPES_IN_STAGE = "replicas of a stage on different GPU types"
    MIXED_RECOMPUTE = "stages that recompute by different rules"
    # Of layers (`_LAYERS`):
    LISTED_PARAMETERS = "a model given by parameter counts, without its shape"
    LATENT = "latent attention (MLA)"
    MAMBA = "Mamba-2 layers"
    MAMBA_1 = "Mamba-1 layers"
    LINEAR = "layers of linear attention"
    CONVOLUTIONS = "layers of short convolutions"
    INDEXED = "sparse attention with an indexer (DSA)"
    GATED_ATTENTION = "attention whose output is gated"
    FEWER_KEYS = "attention without keys or values of its own"
    VALUE_WIDTH = "values and keys of different widths"
    NARROW_EXPERTS = "experts of narrower tokens than the layer's"
    UNLIKE_WIDTHS = "layers of different widths"
    MORE_PARTS = "layers of more parts than a mixer and an MLP"
    LAYER_TABLES = "embeddings of each layer"
    WINDOWS = "attention to a window or a chunk of the sequence"
    PLACED_EXPERTS = "experts in other layers than all after the first dense ones"
    SINGLE_PARTS = "layers with only attention or only an MLP"
    FURTHER_TOKENS = "layers that predict further tokens (MTP)"
    MORE_NORMS = "norms of queries and keys"
    POST_NORMS = "norms after attention and MLP"
    # Of how they are trained:
    ZERO_1 = "optimiser states divided among replicas (ZeRO 1)"
    INTERLEAVED = "virtual stages (interleaved 1F1B)"
    SELECTIVE = "selective recomputation"
    NOT_RECOMPUTED = "layers that are not recomputed"
    SINGLE_PRECISION = "training in single precision"
    FLOAT16 = "16-bit numbers as fp16 rather than bf16"
    BFLOAT16 = "16-bit numbers as bf16 rather than fp16"
    EXPERT_PARALLEL = "experts divided among GPUs (expert parallelism)"
    WIDE_UNDIVIDED = "fp32 gradient sums with bf16 and without ZeRO"
    # What the executor does not do (`_NOT_EXECUTED`):
    MODULES = "modules that are recomputed by name"
    ZERO_2 = "gradients divided among replicas, too (ZeRO 2)"
    ZERO_3 = "weights divided among replicas, too (ZeRO 3)"
    ZERO_GROUPS = "states divided in groups of replicas (HSDP)"
    CONTEXT_PARALLEL = "sequences divided among GPUs (context parallelism)"
    NO_MASTER = "16-bit weights without a master copy"
    SGD = "SGD instead of AdamW"
    MUON = "Muon instead of AdamW"
    ADAFACTOR = "Adafactor instead of AdamW"
    ADAMW_8BIT = "AdamW with 8-bit states"
    DIVIDED_OTHERS = "states of optimisers other than AdamW divided among replicas"
    HOSTED_STATES = "optimiser states in host memory"
    HOSTED_UNDIVIDED = "optimiser states in host memory without ZeRO"
    LORA = "adapters on frozen weights (LoRA)"
    QUANTISED = "frozen weights of four or eight bits"
    DIVIDED_BYTES = "frozen weights of eight bits divided among replicas (ZeRO 3)"


#: What is no fault of a plan: targets without it run the plan, but are not told it.
UNTOLD = frozenset({Feature.LISTED_PARAMETERS})


class Rule(StrEnum):
    """A rule is a demand that a target makes of a plan whose features it has."""

    FILLED = "at least as many micro-batches as stages"
    TIED_TOGETHER = "one stage where embedding and head are tied"
    TIED_ALIKE = "tied embedding and head cut in the same way"
    NEIGHBOURS = "hosts that serve neighbouring ranks"
    FURTHER_LAST = (
        "layers that predict further tokens in one virtual stage, the last of its GPUs"
    )
    WHOLE_SHARES = "a micro-batch that every stage's replicas share equally"
    HANDED_ON = "replicas that hand all of their samples to one"
    TOGETHER = "equal pipelines where their GPUs share experts"
    IN_STEP = (
        "replicas with the same number of micro-batches where they divide weights or "
        "gradients"
    )
    ONE_MAKER = "cards of one maker, as NCCL, RCCL and HCCL have no common group"
    FLAGCX = "cards of one maker, or of those that FlagCX joins: NVIDIA and AMD"


#: Of all programs whose GPUs meet in process groups of their maker's library.
_GROUPS = frozenset({Rule.ONE_MAKER})


class Target(NamedTuple):
    """The features that a target has, its further rules, and how messages name it."""

    supports: frozenset[Feature]
    rules: frozenset[Rule] = _GROUPS
    symmetric: bool = False  # every plan is a grid of stages x replicas x degree
    program: str = "this cluster"

    @property
    def whole(self) -> bool:
        """Return whether each GPU has all layers to itself."""
        return self.supports.isdisjoint(_MODEL_PARALLEL)

    @property
    def free(self) -> bool:
        """Return whether pipelines of one replica a stage may have any shape."""
        return self.supports >= _SHAPES


#: What all targets have that were made for more than replicas of one GPU.
_MODEL_PARALLEL = frozenset({Feature.PIPELINES, Feature.TENSOR_PARALLEL})
_MIXED_TYPES = {Feature.MIXED_TYPES, Feature.MIXED_TYPES_IN_STAGE}
_GRID = _MODEL_PARALLEL | _MIXED_TYPES | {Feature.UNEVEN_LAYERS}
_SHAPES = _GRID | {
    Feature.DIFFERENT_CUTS,
    Feature.DIFFERENT_BATCHES,
    Feature.MIXED_DEGREES,
    Feature.MIXED_DEGREES_IN_STAGE,
    Feature.UNEQUAL_SAMPLES,
}
_EACH = tuple(Feature)
#: What only targets take that do not write the model's shape.
_LAYERS = frozenset(
    _EACH[_EACH.index(Feature.LISTED_PARAMETERS) : _EACH.index(Feature.ZERO_1)]
)
#: How layers are trained that the executor has no words for.
_NOT_EXECUTED = _EACH[_EACH.index(Feature.MODULES) :]
_ZERO = (Feature.ZERO_1, Feature.ZERO_2, Feature.ZERO_3)
#: By which field of a trainer's table, and which of its values, it is given a feature.
FIELDS: Mapping[Feature, tuple[str, object]] = MappingProxyType(
    {
        Feature.PIPELINES: ("pp", 2),
        Feature.TENSOR_PARALLEL: ("tp", 2),
        Feature.UNEVEN_LAYERS: ("stage_layers", (2, 1)),
        Feature.TOLD_LAYOUT: ("parts", (0, 2)),
        Feature.INTERLEAVED: ("vp", 2),
        Feature.CONTEXT_PARALLEL: ("cp", 2),
        Feature.EXPERT_PARALLEL: ("ep", 2),
        Feature.ZERO_1: ("zero", 1),
        Feature.ZERO_2: ("zero", 2),
        Feature.ZERO_3: ("zero", 3),
        Feature.ZERO_GROUPS: ("zero_groups", 2),
        Feature.SELECTIVE: ("recompute", "selective"),
        Feature.NOT_RECOMPUTED: ("recompute", "none"),
        Feature.MODULES: ("modules", ("mlp",)),
        Feature.SINGLE_PRECISION: ("precision", "fp32"),
        Feature.FLOAT16: ("precision", "fp16_mixed"),
        Feature.BFLOAT16: ("precision", "bf16_mixed"),
        Feature.WIDE_UNDIVIDED: ("precision", "bf16_fp32_gradients"),
        Feature.NO_MASTER: ("precision", "bf16"),
        Feature.SGD: ("optimiser", "sgd"),
        Feature.MUON: ("optimiser", "muon"),
        Feature.ADAFACTOR: ("optimiser", "adafactor"),
        Feature.ADAMW_8BIT: ("optimiser", "adamw_8bit"),
        Feature.HOSTED_STATES: ("hosted", True),
        Feature.LORA: ("lora_rank", 8),
        Feature.LATENT: ("latent", True),
        Feature.WINDOWS: ("window", 128),
        Feature.PLACED_EXPERTS: ("expert_layers", [1, 0]),
        Feature.FURTHER_TOKENS: ("mtp_layers", 1),
        Feature.MORE_NORMS: ("qk_norm", True),
    }
)
OF_FEATURES = frozenset(name for name, _ in FIELDS.values())


def features_of(
    table: Table, lacks: frozenset[str] = frozenset()
) -> frozenset[Feature]:
    """Return the features that a trainer's table has options for."""
    return frozenset(
        feature
        for feature, (name, value) in FIELDS.items()
        if name not in lacks and table.has(name, value)
    )


#: Its distributed optimiser is Adam's, and only Adam goes to hosts
#: (megatron/core/optimizer, core 0.12 to 0.20).
_MEGATRON_LM = features_of(MEGATRON) | _MIXED_TYPES

#: Of trainers on transformers, whose models are the released ones: whole ones, one on
#: each GPU.
_REPLICAS = (
    _LAYERS
    | _MIXED_TYPES
    | {
        Feature.NOT_RECOMPUTED,
        Feature.SINGLE_PRECISION,
        Feature.BFLOAT16,
        Feature.WIDE_UNDIVIDED,
        Feature.LORA,
        Feature.QUANTISED,
    }
)

#: By the names that `runs_on` and exporters have.
TARGETS: Mapping[str, Target] = MappingProxyType(
    {
        "any": Target(frozenset(Feature), frozenset()),
        "architecture": Target(frozenset(Feature), frozenset()),
        "executor": Target(
            frozenset(Feature) - {*_NOT_EXECUTED, *_LAYERS, Feature.TOLD_LAYOUT}
            | {Feature.LISTED_PARAMETERS, Feature.PLACED_EXPERTS, Feature.MORE_NORMS},
            _GROUPS | {Rule.TOGETHER},
            program="our executor (hetopt run)",
        ),
        "megatron": Target(
            _MEGATRON_LM,
            _GROUPS | {Rule.FURTHER_LAST},
            symmetric=True,
            program="our Megatron-LM export",
        ),
        # Its Muon divides states, by whole matrices.
        "megatron_bridge": Target(
            _MEGATRON_LM - {Feature.MUON},
            _GROUPS | {Rule.FURTHER_LAST},
            symmetric=True,
            program="our Megatron-Bridge export",
        ),
        # Optimisers by name are its own or torch.optim's; ZeRO flattens what they
        # update, and has it on hosts (deepspeed/runtime/engine.py).
        "deepspeed": Target(
            _GRID
            | _LAYERS
            | {
                Feature.ZERO_1,
                Feature.NOT_RECOMPUTED,
                Feature.SINGLE_PRECISION,
                Feature.FLOAT16,
                Feature.BFLOAT16,
                Feature.SGD,
                Feature.HOSTED_STATES,
            },
            _GROUPS | {Rule.NEIGHBOURS},
            symmetric=True,
            program="our DeepSpeed export",
        ),
        "torchtitan": Target(
            _GRID
            | _LAYERS
            | {
                *_ZERO,
                Feature.ZERO_GROUPS,
                Feature.SELECTIVE,
                Feature.NOT_RECOMPUTED,
                Feature.BFLOAT16,
                Feature.WIDE_UNDIVIDED,
            },
            _GROUPS | {Rule.FILLED, Rule.TIED_TOGETHER},
            symmetric=True,
            program="our torchtitan export",
        ),
        # FlagCX joins NCCL's and RCCL's cards, not HCCL's: its page on backends (2026).
        "flagscale": Target(
            features_of(MEGATRON, FLAGSCALE.lacks) - {Feature.MUON}
            | {Feature.MIXED_DEGREES, Feature.MIXED_REPLICAS, Feature.MIXED_TYPES},
            frozenset(
                {Rule.NEIGHBOURS, Rule.WHOLE_SHARES, Rule.TIED_ALIKE, Rule.FLAGCX}
            ),
            program="our FlagScale export",
        ),
        "hexiscale": Target(
            _SHAPES | _LAYERS | {Feature.FLOAT16},
            _GROUPS | {Rule.HANDED_ON},
            program="our HexiScale export",
        ),
        # DDP, where each rank has its own arguments, and FSDP.
        "transformers": Target(
            _REPLICAS
            | {
                Feature.DIFFERENT_BATCHES,
                Feature.UNEQUAL_SAMPLES,
                Feature.MIXED_RECOMPUTE,
                Feature.NO_MASTER,
                Feature.ZERO_2,
                Feature.ZERO_3,
                Feature.ADAFACTOR,
                Feature.ADAMW_8BIT,
            },
            _GROUPS | {Rule.IN_STEP},
            program="our transformers export",
        ),
        # DDP, and DeepSpeed's ZeRO.
        "llamafactory": Target(
            _REPLICAS
            | {*_ZERO, Feature.HOSTED_STATES, Feature.ADAFACTOR, Feature.ADAMW_8BIT},
            symmetric=True,
            program="our LLaMA-Factory export",
        ),
    }
)
