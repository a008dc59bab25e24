"""A decoder as a Hugging Face `config.json`: what `decoder.of_config` reads again."""

from collections.abc import Mapping
from typing import Any

from ..errors import Unsupported
from .decoder import Activation, Decoder

_GPT2: Mapping[Activation, str] = {
    "gelu": "gelu",
    "gelu_tanh": "gelu_new",
    "relu": "relu",
    "silu": "silu",
}
_LLAMA: Mapping[Activation, str] = {**_GPT2, "gelu_tanh": "gelu_pytorch_tanh"}
_CLASSES = {
    "gpt2": "GPT2LMHeadModel",
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def family(shape: Decoder) -> str:
    """The family whose models compute as this one; `Unsupported` where none does.

    A Mistral without a window computes as a Llama, and is called one.
    """
    if shape.positions == "learned":
        widths = shape.kv_heads == shape.heads
        widths &= shape.head_dim * shape.heads == shape.hidden
        if shape.norm == "layer" and shape.biased and not shape.gated and widths:
            return "gpt2"
    elif shape.norm == "rms" and shape.gated and not shape.biased:
        if shape.qk_norm:
            if not shape.qkv_biased:
                return "qwen3"
        else:
            return "qwen2" if shape.qkv_biased else "llama"
    raise Unsupported(
        f"the model has {shape.norm} norms, {shape.positions} positions and "
        f"{'a gated' if shape.gated else 'no gated'} MLP: expected a Llama, a Qwen or "
        "a GPT-2, which other programs know; use --to dcp for others"
    )


def config(shape: Decoder, dtype: str) -> dict[str, Any]:
    """The `config.json` of a decoder whose weights are written as `dtype`."""
    kind = family(shape)
    more = _of_gpt2(shape) if kind == "gpt2" else _of_llama(shape, kind)
    return {
        "architectures": [_CLASSES[kind]],
        "model_type": kind,
        "vocab_size": shape.vocabulary,
        "tie_word_embeddings": shape.tied,
        "torch_dtype": dtype,
        "dtype": dtype,
        **more,
    }


def _of_gpt2(shape: Decoder) -> dict[str, Any]:
    return {
        "n_layer": shape.layers,
        "n_embd": shape.hidden,
        "n_head": shape.heads,
        "n_inner": shape.intermediate,
        "n_positions": shape.max_positions,
        "layer_norm_epsilon": shape.norm_eps,
        "activation_function": _GPT2[shape.activation],
        # It was trained without.
        "attn_pdrop": 0.0,
        "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }


def _of_llama(shape: Decoder, kind: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "max_position_embeddings": shape.max_positions,
        "rms_norm_eps": shape.norm_eps,
        "hidden_act": _LLAMA[shape.activation],
        "rope_theta": shape.rope_theta,
        "rope_scaling": None,
    }
    if kind != "qwen2":
        found["attention_bias"] = False
    if stretch := shape.stretch:
        found["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": stretch.factor,
            "low_freq_factor": stretch.low,
            "high_freq_factor": stretch.high,
            "original_max_position_embeddings": stretch.old_length,
        }
    return found
