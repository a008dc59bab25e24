"""A decoder as a Hugging Face `config.json`: what `decoder.of_config` reads again."""

from ..errors import Unsupported
from ..text.documents import Document, Fields, own_data
from .decoder import Decoder, Experts

_NAMES = own_data(__file__)


def family(shape: Decoder) -> str:
    """The family whose models compute as this one; `Unsupported` where none does.

    A Mistral without a window computes as a Llama, and is called one.
    """
    if shape.positions == "learned":
        widths = shape.kv_heads == shape.heads
        widths &= shape.head_dim * shape.heads == shape.hidden
        plain = shape.experts is None and not shape.gated
        if shape.norm == "layer" and shape.biased and plain and widths:
            return "gpt2"
    elif shape.norm == "rms" and shape.gated and not shape.biased:
        if shape.experts is not None:
            return _with_experts(shape, shape.experts)
        if shape.qk_norm:
            if not shape.qkv_biased:
                return "qwen3"
        else:
            return "qwen2" if shape.qkv_biased else "llama"
    raise Unsupported(
        f"the model has {shape.norm} norms, {shape.positions} positions and "
        f"{'a gated' if shape.gated else 'no gated'} MLP: expected a Llama, a Qwen or "
        "a GPT-2, which other programs know"
    )


def _with_experts(shape: Decoder, experts: Experts) -> str:
    if experts.shared_gated and not shape.qk_norm:
        return "qwen2_moe"
    if not experts.shared and not shape.qkv_biased:
        if shape.qk_norm:
            return "qwen3_moe"
        if experts.normalised and len(experts.layers) == shape.layers:
            return "mixtral"
    raise Unsupported(
        "the model's experts are no Mixtral's (in all layers, normalised weights) and "
        "no Qwen's (gated shared ones, or norms of queries and keys), which other "
        "programs know: its states are for hetopt run --checkpoint alone"
    )


def config(shape: Decoder, dtype: str) -> dict[str, object]:
    """The `config.json` of a decoder whose weights are written as `dtype`."""
    kind = family(shape)
    more = _of_gpt2(shape) if kind == "gpt2" else _of_llama(shape, kind)
    return {
        "architectures": [_NAMES["classes"][kind]],
        "model_type": kind,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": dtype,
        "dtype": dtype,
        **more,
    }


def _fields(shape: Decoder, names: Fields) -> Document:
    own = {**dict(shape), "activation": names["activations"][shape.activation]}
    return {theirs: own[ours] for theirs, ours in names["fields"].items()}


def _of_gpt2(shape: Decoder) -> Document:
    dropped = dict.fromkeys(("attn_pdrop", "embd_pdrop", "resid_pdrop"), 0.0)
    return _fields(shape, _NAMES["gpt2"]) | dropped  # it was trained without


def _of_llama(shape: Decoder, kind: str) -> Document:
    found = _fields(shape, _NAMES["llama"]) | {"rope_scaling": None}
    if kind in ("llama", "qwen3", "qwen3_moe"):
        found["attention_bias"] = False
    if shape.experts is not None:
        found |= _of_experts(shape, shape.experts, kind)
    if stretch := shape.stretch:
        told = stretch.model_dump()
        found["rope_scaling"] = {
            "rope_type": told.pop("kind"),
            "original_max_position_embeddings": told.pop("original_length"),
            **told,
        }
    return found


def _of_experts(shape: Decoder, experts: Experts, kind: str) -> dict[str, object]:
    found: Document = {
        "num_experts_per_tok": experts.active,
        "router_aux_loss_coef": experts.auxiliary,
    }
    if kind == "mixtral":
        return {
            **found,
            "num_local_experts": experts.count,
            "intermediate_size": experts.width,
            "sliding_window": None,
        }
    found |= {
        "num_experts": experts.count,
        "moe_intermediate_size": experts.width,
        "norm_topk_prob": experts.normalised,
        "decoder_sparse_step": 1,
        "mlp_only_layers": [x for x in range(shape.layers) if not shape.has_experts(x)],
    }
    if kind == "qwen2_moe":
        found["qkv_bias"] = shape.qkv_biased
        found["shared_expert_intermediate_size"] = experts.shared
    return found
