"""The model of a Hugging Face `config.json`.

That of any family is read by the names that the families share, and by what
`families` know of it; a key that is missing is an error that names it.
"""

from ...errors import InstanceError
from ...schema import ModelSpec
from . import families, kinds, vectors
from .families import Traits
from .keys import Fields, need, whole
from .trainers import architecture

__all__ = ["from_config", "remarks"]

# Keys that published configurations leave out, by the defaults of the family's class in
# transformers.
_SILENT: dict[str, Fields] = {
    "gemma3_text": {
        "vocab_size": 262_208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
    },
    "qwen3": {"head_dim": 128},
}
_ALIASES = {"gemma3": "gemma3_text", "llama4": "llama4_text"}


def from_config(config: Fields, name: str, *, mtp: bool = True) -> ModelSpec:
    """The model of a Hugging Face `config.json`; `InstanceError` names what is missing.

    Multimodal configurations are read by their `text_config`. `total_parameters` are
    those of the class in transformers, to the last one, for the families of
    `families.FAMILIES`; of others norms and biases are taken as Llama's. Layers that
    predict further tokens are left out unless `mtp`. `remarks` say what is not
    modelled.
    """
    config, family = _language(config)
    _refuse(config)
    fields: Fields = {
        "name": name,
        "layers": _layers(config),
        "hidden": need(config, "hidden_size", "n_embd", "d_model"),
        "heads": need(config, "num_attention_heads", "n_head", "n_heads"),
        "vocabulary": need(config, "vocab_size"),
    }
    own = families.traits(config, family)
    fields |= {"gated": bool(own.gated), "tied_embeddings": own.tied}
    fields["kv_heads"] = _kv_heads(config, fields["heads"])
    fields["intermediate"] = _intermediate(config, family, fields["hidden"])
    fields |= _experts(config, family, fields) | _attention(config, own)
    fields |= _of_layers(config, family, fields, mtp)
    spec = _spec(fields)
    if told := vectors.of_parts(config, family, own, spec):
        fields["vectors"] = told
    fields["other_parameters"] = vectors.beside_layers(config, own, spec)
    if (trained := architecture(config)) is not None:
        fields["architecture"] = trained.model_dump()
    return _spec(fields)


def remarks(config: Fields) -> tuple[str, ...]:
    """What of a configuration is not modelled, in words."""
    outer = config
    config, family = _language(config)
    found = []
    if not families.known(family):
        found.append(
            f"the family {family or 'that model_type should name'!r}, whose norms and "
            "biases are taken as Llama's"
        )
    if any(key in outer for key in ("vision_config", "audio_config")):
        found.append("the towers of other inputs than text (vision_config ...)")
    if whole(config, "index_topk"):
        found.append("the sparse attention that an indexer chooses (index_topk)")
    if family in ("falcon", "gpt_neox", "phi", "gptj"):
        found.append("attention beside the MLP: it is timed before it")
    if whole(config, "num_nextn_predict_layers"):
        found.append(
            "the logits of further tokens, which are timed and not weighed, and a cut "
            "between several such layers"
        )
    return tuple(found)


def _language(config: Fields) -> tuple[Fields, str]:
    """The configuration of the language model, with its family's defaults."""
    inner = config.get("text_config")
    if isinstance(inner, dict):
        config = {**config, **inner}
        if "model_type" not in inner and "vision_config" in config:
            config = {**config, "model_type": f"{config.get('model_type', '')}"}
    family = str(config.get("model_type", ""))
    family = _ALIASES.get(family, family)
    return _SILENT.get(family, {}) | config, family


def _refuse(config: Fields) -> None:
    """What changes the shapes of layers in ways that no field tells."""
    for key, usual in (
        ("word_embed_proj_dim", config.get("hidden_size")),
        ("moe_latent_size", None),
        ("hidden_size_per_layer_input", None),
        ("num_kv_shared_layers", 0),
    ):
        if config.get(key) not in (None, usual):
            raise InstanceError(
                f"{key}: found {config[key]!r}, which is not modelled; give "
                "layer_parameters of an instance instead"
            )


def _spec(fields: Fields) -> ModelSpec:
    from ...text.complaints import validated

    return validated(ModelSpec, fields, "config", file="")


def _layers(config: Fields) -> int:
    told = config.get("layers_block_type")
    if isinstance(told, list) and "num_hidden_layers" not in config:
        return len(told)
    return need(config, "num_hidden_layers", "n_layer", "num_layers")


def _kv_heads(config: Fields, heads: int) -> int:
    newer = config.get("new_decoder_architecture") is True
    if config.get("multi_query") is True and not newer:
        return 1
    return whole(config, "num_key_value_heads", "num_kv_heads") or heads


def _intermediate(config: Fields, family: str, hidden: int) -> int:
    keys = ["intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"]
    if family == "llama4_text":  # `intermediate_size` is that of an expert
        keys.insert(0, "intermediate_size_mlp")
    return whole(config, *keys) or 4 * hidden


def _attention(config: Fields, own: Traits) -> Fields:
    """Widths of heads, and what is beside the products."""
    fields: Fields = {"attention_bias": own.attention_bias}
    fields |= {"post_norm": own.norms == 4, "qk_norm": own.qk_norm}
    fields = {key: x for key, x in fields.items() if x not in ("none", False)}
    if config.get("kv_lora_rank") is None:
        width = whole(config, "head_dim", "attention_head_dim")
        return fields | ({} if width is None else {"head_dim": width})
    return {
        "latent": {
            "query_rank": whole(config, "q_lora_rank") or 0,
            "key_rank": need(config, "kv_lora_rank"),
            "plain": need(config, "qk_nope_head_dim"),
            "rotary": need(config, "qk_rope_head_dim"),
            "value_dim": need(config, "v_head_dim"),
        }
    }


def _of_layers(config: Fields, family: str, fields: Fields, mtp: bool) -> Fields:
    """Kinds of layers, where they are not all attention and an MLP."""
    layers = fields["layers"]
    made = kinds.of_layers(config, family, layers, "experts" in fields)
    further = (whole(config, "num_nextn_predict_layers") or 0) if mtp else 0
    if family == "nemotron_h":
        further = 0  # its further layers are blocks of their own
    made += made[-1:] * further
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
        found |= {"chunked": True} if kinds.chunked(family) else {}
    if "mamba" in made:
        found["mamba"] = kinds.mamba(config)
    return found


def _experts(config: Fields, family: str, dense: Fields) -> Fields:
    layers = dense["layers"]
    experts = whole(config, "num_experts", "n_routed_experts", "num_local_experts")
    if not experts or experts == 1:
        return {}
    if family == "nemotron_h" and "experts" not in kinds.blocks(config, layers):
        return {}
    used = ("num_experts_per_tok", "num_experts_per_token", "moe_topk")
    fields: Fields = {
        "experts": experts,
        "active_experts": need(config, *used),
        "shared_experts": whole(config, "n_shared_experts") or 0,
    }
    each = whole(config, "moe_intermediate_size")
    if family == "llama4_text":
        each = need(config, "intermediate_size")
        fields["shared_experts"] = 1
    if each is not None:
        fields["expert_intermediate"] = each
    keys = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size")
    if shared := whole(config, *keys):
        parted, rest = divmod(shared, each or dense["intermediate"])
        if rest:
            raise InstanceError(
                f"{next(x for x in keys if x in config)}: found {shared}, expected a "
                f"multiple of the experts' {each}; give layer_parameters instead"
            )
        fields["shared_experts"] = parted
    return fields
