"""Models that a target has no words for, and what its scripts are fixed to.

These are rules of an instance, whatever its plan: who breaks one has no plan there.
That a model is told by numbers of parameters alone is none of them: its plans are
real, and only who writes its shape asks for it.

HexiScale trains four models of its own, of any number of layers (llama/llama-config of
FlashFlex, commit 5ee1726): without grouped keys and values, as wide between the
matrices of the MLP as flash-attn makes it where nothing is told, on sequences of 4096
tokens. torchtitan has its own models, too (torchtitan/models, 0.3.0): those of Llama's
kind are told whole, others are the user's configuration of a family that it has.
"""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from ...schema import Instance, ModelSpec
from ...schema.fields import fields_of, has_wide_norms, violations
from ...schema.targets import OF_FEATURES, Feature
from ...trainers.megatron import TABLE
from . import shapes

#: HexiScale's names of models, by their width and attention heads.
HEXISCALE: Mapping[tuple[int, int], str] = MappingProxyType(
    {
        (4096, 32): "llama-7b",
        (5120, 40): "llama-13b",
        (6656, 52): "llama-30b",
        (8192, 64): "llama-70b",
    }
)
_VOCABULARY, _LENGTH = 32_000, 4096


#: Families that torchtitan has beside Llama's kind, by transformers' names.
_OF_TORCHTITAN = ("qwen3", "qwen3_moe")
_SHIPPED = "llama3, qwen3, qwen3_5, deepseek_v3, gpt_oss, kimi_k2_7"


def unfit(target: str, data: Instance) -> list[str]:
    """Return in words what of an instance a target cannot be told."""
    rule = _RULES.get(target)
    return [] if rule is None else list(rule(data))


def like_llama(model: ModelSpec) -> bool:
    """Return whether a model is one of Llama 3's kind, of any shape.

    It has RMSNorm, rope scaled as Llama's or not, a gated MLP, and neither biases nor
    experts nor norms of queries and keys.
    """
    of = model.architecture
    if of is None or of.rope_base is None or of.normalization != "rms":
        return False
    other = (of.bias, of.qkv_bias, of.query_key_norm, of.dropout, of.attention_dropout)
    if any(other) or model.experts or not model.gated or of.activation != "silu":
        return False
    return of.rope_scaling is None or of.rope_scaling.kind == "llama3"


def _torchtitan(data: Instance) -> Iterator[str]:
    told = data.model.architecture
    if told is None or like_llama(data.model) or told.family in _OF_TORCHTITAN:
        return
    if told.rope_scaling is not None and told.rope_scaling.kind != "llama3":
        yield f"rope scaling {told.rope_scaling.kind}"
    if told.family != "llama":
        yield f"models of the family {told.family} (torchtitan has {_SHIPPED})"


def _hexiscale(data: Instance) -> Iterator[str]:
    if (length := data.workload.sequence_length) != _LENGTH:
        yield f"it trains on sequences of {_LENGTH} tokens, not of {length}"
    model = data.model
    if (model.hidden, model.heads) not in HEXISCALE:
        known = (f"{name} of {h} with {n} heads" for (h, n), name in HEXISCALE.items())
        yield (
            f"its models are {', '.join(known)}, none has width {model.hidden} and "
            f"{model.heads} heads"
        )
    if model.kv_heads not in (None, model.heads) or model.head_dim is not None:
        yield "its models have no grouped keys, and no heads of another width"
    if model.vocabulary != _VOCABULARY:
        yield f"its vocabulary has {_VOCABULARY} tokens, not {model.vocabulary}"
    if model.tied_embeddings or model.experts:
        yield "its models have no tied embeddings and no experts"
    # flash_attn/modules/mlp.py, GatedMlp: 8/3 of the width, up to a multiple of 128.
    wide = -(-(8 * model.hidden // 3) // 128) * 128
    counted = model.layer_parameters or model.parameters_per_layer
    if not counted and (not model.gated or model.mlp_width != wide):
        yield f"its MLP is gated and {wide} wide"


def _with_adapters(data: Instance) -> Iterator[str]:
    """Megatron's own, and adapters as Megatron-Bridge's `CanonicalLoRA` has them."""
    yield from _megatron(data)
    lora = data.workload.costs.updates.lora
    if lora is not None and lora.beside == "all" and not data.model.gated:
        yield "its adapters of an MLP are beside gate and up, and this one has no gate"


def _with_peft(data: Instance) -> Iterator[str]:
    """`all-linear` is beside no expert, which transformers keeps in one tensor."""
    if data.workload.costs.updates.lora is not None and data.model.experts:
        yield "adapters of a model with experts, as instances count them"


def _megatron(data: Instance) -> Iterator[str]:
    length = data.workload.sequence_length
    if data.model.chunked and Feature.WINDOWS in shapes.of_layers(data.model, length):
        yield "attention within chunks of the sequence"
    if has_wide_norms(data.model):
        yield "norms of the queries and of the keys of all heads together"
    own = fields_of(data, 1)  # what a feature says is not said again
    yield from TABLE.unsupported({k: own[k] for k in own if k not in OF_FEATURES})
    yield from violations(data, 1)


_RULES: Mapping[str, Callable[[Instance], Iterator[str]]] = MappingProxyType(
    {
        "flagscale": _megatron,
        "hexiscale": _hexiscale,
        "llamafactory": _with_peft,
        "megatron": _with_adapters,
        "megatron_bridge": _with_adapters,
        "torchtitan": _torchtitan,
        "transformers": _with_peft,
    }
)
