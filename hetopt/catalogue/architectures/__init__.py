"""The model of a Hugging Face `config.json`.

That of any family is read by the names that the families share, and by what
`families` know of it; a key that is missing is an error that names it.
"""

import re

from ...errors import InstanceError, cut
from ...schema import MOST_LAYERS, ModelSpec
from ...schema.layers import MIXERS
from . import families, inner, kinds, mixers, remainder, shapes, vectors
from .families import Traits
from .keys import (
    DEPTH,
    Fields,
    Reading,
    incorrect,
    keys_of,
    need,
    number,
    unsupported,
    whole,
)
from .trainers import architecture

__all__ = ["from_config", "remarks"]

_OF_EXPERTS = re.compile(r"(^|_)(moe|experts?|topk|router|sparse|dense_replace)(_|$)")
_INDEXED = ("deepseek_v32", "glm_moe_dsa")
_OF_MAMBA = re.compile(r"mamba_|ssm_|time_step_")


def from_config(config: Fields, name: str, *, mtp: bool = True) -> ModelSpec:
    """Return the model of a Hugging Face `config.json`.

    Multimodal configurations are read by their `text_config`. `total_parameters` are
    those of the class in transformers, to the last one, for the families of
    `families.yaml`; of others norms and biases are taken as Llama's. Layers that
    predict further tokens are left out unless `mtp`. `remarks` say what is not
    modelled. Raises `InstanceError` for what is missing, and for a key that can change
    a layer and is not supported.
    """
    return _model(*_language(config), name, mtp=mtp)


def _model(config: Reading, family: str, name: str, *, mtp: bool) -> ModelSpec:
    """Return the model; raise for what was not read and can change its layers."""
    _refuse(config)
    layers = _layers(config)
    told = shapes.take(config, layers)
    fields: Fields = {
        "name": name,
        "layers": layers,
        "hidden": need(config, "hidden_size", "n_embd", "n_embed", "d_model"),
        "heads": need(config, "num_attention_heads", "n_head", "n_heads"),
        "vocabulary": need(config, "vocab_size"),
    }
    own = families.traits(config, family)
    fields |= {"gated": bool(own.gated), "tied_embeddings": own.tied}
    fields["kv_heads"] = _kv_heads(config, fields["heads"])
    fields["intermediate"] = _intermediate(config, family, fields["hidden"])
    fields |= _attention(config, family, own)
    made = shapes.lacking(_kinds(config, family, layers), told)
    shapes.of_family(config, family, told, made)
    if any(kind.endswith("experts") for kind in made):
        fields |= _experts(config, family, fields)
    fields |= _of_layers(config, family, fields, made, mtp=mtp)
    fields |= _of_shapes(config, family, own, fields, told)
    spec = _spec(fields)
    fields["other_parameters"] = vectors.beside_layers(config, family, own, spec)
    if (trained := architecture(config)) is not None:
        fields["architecture"] = trained.model_dump()
    remainder.refuse(config.unread, family, spec.layers - spec.mtp_layers)
    return _spec(fields)


def remarks(config: Fields) -> tuple[str, ...]:
    """Return what of a configuration is not modelled, in words."""
    outer = config
    reading, family = _language(config)
    spec = _model(reading, family, "model", mtp=False)
    found = []
    if not families.is_known(family):
        own = families.traits(reading, family)
        found.append(
            f"the family {cut(family or 'that model_type should name')!r}, whose "
            f"{families.assumption(reading, family, own)}"
        )
    if any(key in outer for key in inner.words("towers")):
        found.append("the towers of other inputs than text (vision_config ...)")
    if any(key in outer for key in inner.words("speech")):
        found.append("the parts that speak (talker_config ...)")
    if family in ("gpt_neox", "phi", "gptj"):
        found.append("attention beside the MLP: it is timed before it")
    if any(spec.of(kind).kv_products == 0 for kind in spec.kinds):
        found.append(
            "keys and values of an earlier layer, which a cut between both sends, too"
        )
    if whole(reading, "num_nextn_predict_layers"):
        found.append(
            "the logits of further tokens, which are timed and not weighed, and a cut "
            "between several such layers"
        )
    if told := remainder.unread_keys(reading.unread, spec.layers):
        found.append(f"keys that were not read: {cut(', '.join(told), 200)}")
    return tuple(found)


def _language(config: Fields) -> tuple[Reading, str]:
    """Return the configuration of the language model, with its family's defaults.

    Of a configuration around it, what is not read is about the other inputs.
    """
    whole_one, around = inner.language(config)
    for each in around:
        remainder.refuse_family(str(each.get("model_type", "")))
        inner.refuse(each)
    family = str(whole_one.get("model_type", ""))
    told = families.table()
    alike = (name for name, x in told["aliases"].items() if family in x.split())
    family = next(alike, family)
    remainder.refuse_family(family)
    reading = Reading(told["silent"].get(family, {}) | whole_one)
    if not families.is_known(family):
        reading.unknown = inner.class_of(config)
    reading.skip(remainder.unused_keys(whole_one, family))
    for each in around[:-1]:
        reading.skip(key for key in each if key not in around[-1])
    return reading, family


def _refuse(config: Reading) -> None:
    """Refuse what changes the layers in ways that the names of keys do not tell."""
    hidden = config.get("hidden_size")
    width = config.get("word_embed_proj_dim")
    if width not in (None, hidden):
        raise unsupported(
            "word_embed_proj_dim",
            f"embeddings of another width than the layers; found {cut(repr(width))}, "
            f"expected {hidden!r}",
        )
    for key in ("is_causal", "causal"):
        if config.get(key) is False:
            raise InstanceError(
                f"{key}: hetopt does not support encoders; found false, expected a "
                "causal language model"
            )


def _spec(fields: Fields) -> ModelSpec:
    from ...text.complaints import validated

    return validated(ModelSpec, fields, "config", file="")


def _layers(config: Reading) -> int:
    told = config.get("layers_block_type")
    if isinstance(told, list) and not any(key in config for key in DEPTH):
        return len(told)
    return _few("num_hidden_layers", need(config, *DEPTH))


def _few(key: str, layers: int) -> int:
    """Return a number of layers, before anything is made for each."""
    if not 0 <= layers <= MOST_LAYERS:
        raise incorrect(key, layers, f"at most {MOST_LAYERS} layers")
    return layers


def _kv_heads(config: Reading, heads: int) -> int:
    if config.get("multi_query") is True:
        config.skip(("num_key_value_heads", "num_kv_heads"))
        return 1
    return whole(config, "num_key_value_heads", "num_kv_heads") or heads


def _intermediate(config: Reading, family: str, hidden: int) -> int:
    keys = ["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"]
    if family == "llama4_text":  # `intermediate_size` is that of an expert
        keys.insert(0, "intermediate_size_mlp")
    if family == "lfm2":
        return _adjusted_width(config)
    if family == "granitemoehybrid" and not _number_of_experts(config):
        keys.insert(0, "shared_intermediate_size")
        config.skip(["intermediate_size"])
    return whole(config, *keys) or 4 * hidden


def _adjusted_width(config: Reading) -> int:
    """Return the width that LFM2's class makes of what its file says."""
    found = whole(config, "block_ff_dim") or need(config, "intermediate_size")
    config.skip(("intermediate_size", "block_use_swiglu"))
    step = whole(config, "block_multiple_of") or 256
    key = "block_ffn_dim_multiplier"
    factor = number(config.get(key) or 1, key)
    if config.get("block_auto_adjust_ff_dim", True) is False:
        return found
    found = int(factor * (2 * found // 3))
    return -(-found // step) * step


def _attention(config: Reading, family: str, own: Traits) -> Fields:
    """Widths of heads, and what is beside the products."""
    fields: Fields = {"attention_bias": own.attention_bias}
    fields |= {"post_norm": own.norms == 4, "qk_norm": own.qk_norm}
    fields |= {"gated_attention": own.gated_output}
    fields = {key: x for key, x in fields.items() if x not in ("none", False)}
    if family in _INDEXED and (found := mixers.indexer(config)):
        fields["indexer"] = found
    if config.get("kv_lora_rank") is None:
        width = whole(config, "head_dim", "attention_head_dim")
        values = whole(config, "v_head_dim")
        if values not in (None, width):
            raise unsupported(
                "v_head_dim",
                f"values of another width than keys; found {values}, expected {width}",
            )
        return fields | ({} if width is None else {"head_dim": width})
    config.skip(("head_dim", "qk_head_dim"))
    return fields | {
        "latent": {
            "query_rank": whole(config, "q_lora_rank") or 0,
            "key_rank": need(config, "kv_lora_rank"),
            "plain": need(config, "qk_nope_head_dim"),
            "rotary": need(config, "qk_rope_head_dim"),
            "value_dim": need(config, "v_head_dim"),
        }
    }


def _kinds(config: Reading, family: str, layers: int) -> kinds.Kinds:
    """Return the kind of each layer; keys of parts that no layer has change nothing."""
    experts = _number_of_experts(config)
    if family == "gemma4_text" and config.get("enable_moe_block") is not True:
        experts = None
    made = kinds.of_layers(config, family, layers, sparse=(experts or 0) > 1)
    parts = {part for kind in made for part in kind.split("+")}
    if "experts" not in parts and (experts is not None or family == "nemotron_h"):
        about = filter(_OF_EXPERTS.search, config.unread)
        config.skip({*about} - {*keys_of("experts")})
    if "mamba" not in parts and family in mixers.MAMBA_2:
        config.skip(filter(_OF_MAMBA.match, config.unread))
    return made


def _of_layers(
    config: Reading, family: str, fields: Fields, made: kinds.Kinds, *, mtp: bool
) -> Fields:
    """Return the fields of layers that are not all attention and an MLP."""
    layers = fields["layers"]
    key = "num_nextn_predict_layers"
    further = _few(key, whole(config, key) or 0)
    if family == "nemotron_h" or not mtp:
        further = 0  # Nemotron-H's further layers are blocks of their own
    made = made + made[-1:] * further
    found: Fields = {}
    if further:
        found |= {"layers": layers + further, "mtp_layers": further}
    if {*made} != {"attention+dense"}:
        found["layer_kinds"] = kinds.shortest(made)
    sparse = [x.endswith("experts") for x in made]
    if "experts" in fields and sparse == sorted(sparse) and "+" in made[0]:
        found["dense_layers"] = sparse.index(True)
    if any(x.startswith("window") for x in made):
        found["window"] = kinds.window(config, family)
        found |= {"chunked": True} if kinds.has_chunks(family) else {}
    for part in {part for kind in made for part in kind.split("+")} & {*MIXERS}:
        found[part] = mixers.fields(config, fields["hidden"], part)
    if family == vectors.WITH_INPUTS:
        rows = whole(config, "vocab_size_per_layer_input") or 0
        wide = whole(config, "hidden_size_per_layer_input") or 0
        found |= {"layer_table": wide * rows} if wide else {}
    if "experts" in fields and family == "nemotron_h":
        low = whole(config, "moe_latent_size")
        found |= {"expert_hidden": low} if low else {}
    return found


def _of_shapes(
    config: Reading, family: str, own: Traits, fields: Fields, told: shapes.Shapes
) -> Fields:
    """Return what of layers differs, and parameters that are in no matrix."""
    further: int = fields.get("mtp_layers", 0)
    told = [dict(x) for x in (*told, *told[-1:] * further)]
    listed: Fields = {"layer_shapes": told} if any(told) else {}
    beside = vectors.of_layers(config, family, own, _spec(fields | listed), told)
    found: Fields = {"vectors": beside} if beside else {}
    if any(told):
        found["layer_shapes"] = kinds.shortest(told)
    return found


def _number_of_experts(config: Reading) -> int | None:
    keys = keys_of("experts")
    experts = whole(config, *keys)
    if experts is not None and experts < 0:
        key = next(x for x in keys if x in config)
        raise incorrect(key, experts, "a number of experts, 0 where there are none")
    return experts


def _experts(config: Reading, family: str, dense: Fields) -> Fields:
    fields: Fields = {
        "experts": need(config, *keys_of("experts")),
        "active_experts": need(config, *keys_of("used_experts")),
        "shared_experts": whole(config, *keys_of("shared_experts")) or 0,
    }
    each = whole(config, "moe_intermediate_size")
    if family == "llama4_text":
        each = need(config, "intermediate_size")
        fields["shared_experts"] = 1
    if each is not None:
        fields["expert_intermediate"] = each
    widths = keys_of("shared_widths")
    if shared := whole(config, *widths):
        parted, rest = divmod(shared, each or dense["intermediate"])
        if rest:
            raise InstanceError(
                f"{next(x for x in widths if x in config)}: found {shared}, "
                f"expected a multiple of the experts' {each or dense['intermediate']}; "
                "give layer_parameters instead"
            )
        fields["shared_experts"] = parted
    return fields
