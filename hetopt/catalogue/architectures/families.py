"""Families of models have traits that their `config.json` does not say.

Read off the families' classes in transformers 5.23 (`modeling_*.py`): which products
have biases, which norms there are and whether they have a bias, what is tied, and what
lies beside the layers.
"""

from typing import Literal, NamedTuple

from .keys import Reading, one_of

Biased = Literal["none", "qkv", "all"]


class Traits(NamedTuple):
    """Traits of one family."""

    gated: bool | None = None  # None: as the name of the activation says
    tied: bool = False  # where the configuration is silent
    attention_bias: Biased = "none"
    said_bias: Biased = "all"  # what a key that says so gives a bias
    bias_unless_said: bool = False
    mlp_bias: bool = False
    norms: int = 2  # of a layer
    norm_bias: bool = False
    qk_norm: bool = False
    qk_wide: bool = False  # one norm of all heads, not of each
    positions: int | None = None  # rows that learned ones have beside the context
    embedding_norm: bool = False
    head_bias: bool = False
    gated_output: bool = False  # of attention


_GPT = Traits(
    gated=False,
    tied=True,
    attention_bias="all",
    mlp_bias=True,
    norm_bias=True,
)
_SPLIT = Traits(gated=True, attention_bias="qkv")
_MPT = Traits(gated=False, tied=True)
_BIASED = _GPT._replace(positions=None)  # unless its configuration says otherwise
_GEMMA = Traits(gated=True, tied=True)
_LATENT = Traits(said_bias="none")  # their flag is false in all that are published
_GATED = Traits(qk_norm=True, gated_output=True)

FAMILIES: dict[str, Traits] = {
    "llama": Traits(),
    "llama4_text": Traits(),
    "mistral": Traits(),
    "ministral": Traits(),
    "mixtral": Traits(),
    "qwen2": Traits(attention_bias="qkv"),
    "qwen2_moe": Traits(said_bias="qkv", bias_unless_said=True),
    "qwen3": Traits(qk_norm=True),
    "qwen3_moe": Traits(qk_norm=True),
    "deepseek": Traits(),
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "kimi_k2": _LATENT,
    "gemma": _GEMMA,
    "gemma2": _GEMMA._replace(norms=4),
    "gemma3_text": _GEMMA._replace(norms=4, qk_norm=True),
    "gpt_oss": Traits(gated=True, attention_bias="all"),
    "nemotron_h": Traits(gated=False, norms=2),
    "glm": Traits(gated=True, said_bias="qkv", bias_unless_said=True),
    "glm4": Traits(gated=True, said_bias="qkv", norms=4),
    "glm4_moe": Traits(said_bias="qkv"),
    "phi3": Traits(gated=True, said_bias="none"),
    "phi": _GPT._replace(tied=False, norms=1, head_bias=True),
    "falcon": Traits(gated=False, tied=True, norm_bias=True, norms=1),
    "gpt2": _GPT._replace(positions=0),
    "opt": _GPT._replace(positions=2),
    "bloom": _GPT._replace(embedding_norm=True),
    "gpt_neox": _GPT._replace(tied=False, attention_bias="none", bias_unless_said=True),
    "gptj": _GPT._replace(tied=False, attention_bias="none", norms=1, head_bias=True),
    "starcoder2": _BIASED,
    "cohere": Traits(tied=True, norms=1),
    "cohere2": Traits(tied=True, norms=1),
    "seed_oss": Traits(said_bias="qkv"),
    **{"mpt": _MPT, "dbrx": Traits(gated=True), "minicpm": Traits(tied=True)},
    **{"qwen": _SPLIT, "chatglm": Traits(gated=True, said_bias="qkv")},
    "gpt_bigcode": _GPT._replace(positions=0),
    "internlm2": Traits(),
    "baichuan": Traits(),
    "phimoe": Traits(norm_bias=True),
    "arcee": Traits(gated=False),
    "glm4_moe_lite": _LATENT,
    "minicpm3": _LATENT._replace(tied=True),
    **dict.fromkeys(("ernie4_5", "ernie4_5_moe", "smollm3"), Traits(tied=True)),
    **dict.fromkeys(("granite", "granitemoe", "granitemoeshared"), Traits()),
    **dict.fromkeys(("granitemoehybrid", "bamba", "cwm", "exaone"), Traits()),
    **dict.fromkeys(("helium", "internlm3", "ministral3", "solar_open"), Traits()),
    **dict.fromkeys(
        ("exaone4", "exaone_moe", "hunyuan_v1_dense", "hunyuan_v1_moe", "hy_v3"),
        Traits(qk_norm=True),
    ),
    "dots1": Traits(qk_norm=True),
    **dict.fromkeys(("qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"), _GATED),
    **dict.fromkeys(
        (
            *("kimi_linear", "bailing_hybrid", "deepseek_v32", "glm_moe_dsa"),
            *("sarvam_mla", "youtu"),
        ),
        _LATENT,
    ),
    "longcat_flash": _LATENT,
    **dict.fromkeys(("minimax", "minimax_text_01", "minimax_m1"), Traits()),
    **dict.fromkeys(("falcon_h1", "jamba", "mimo_v2_flash", "nemotron-nas"), Traits()),
    **dict.fromkeys(
        ("lfm2", "lfm2_moe", "openelm"), Traits(gated=True, tied=True, qk_norm=True)
    ),
    **dict.fromkeys(
        ("gemma3n_text", "gemma4_text"), _GEMMA._replace(norms=4, qk_norm=True)
    ),
    "lfm3": Traits(gated=True, tied=True, qk_norm=True, norms=4),
    **dict.fromkeys(("hunyuan", "mellum", "flint"), Traits(qk_norm=True)),
    "afmoe": _GATED._replace(norms=4),
    "apertus": Traits(gated=False, qk_norm=True),
    "kolibri1": Traits(qk_norm=True, norms=4),
    **dict.fromkeys(("mamba", "falcon_mamba"), Traits(tied=True)),
    **dict.fromkeys(("hyperclovax", "mamba2"), Traits()),
    "flex_olmo": Traits(qk_norm=True, qk_wide=True),
    "olmo_hybrid": Traits(qk_norm=True, qk_wide=True),
    **dict.fromkeys(
        ("olmo2", "olmo3", "olmoe", "minimax_m2"), Traits(qk_norm=True, qk_wide=True)
    ),
}
_TIED = Traits(tied=True)
#: Others whose gate and ties are known, and whose norms and biases are not.
_OTHERS = {
    **dict.fromkeys(("bert", "roberta", "xlm-roberta"), _TIED),
    "bitnet": Traits(gated=True),
    **dict.fromkeys(("grok", "grok-1"), Traits(gated=True, tied=True, norms=4)),
    "vaultgemma": Traits(gated=True, tied=True),
}
_QK_NORMS = ("use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm")
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "gated")


def is_known(family: str) -> bool:
    """Return whether norms and biases of a family are known."""
    return family in FAMILIES


def assumption(config: Reading, family: str, own: Traits) -> str:
    """Return what is taken for granted of a family that is not known, in words."""
    words = "norms and biases are taken as Llama's"
    if not own.gated and family not in _OTHERS:
        words += "; its MLP is taken to have no gate"
        words += ", as its activation says" if _activation(config) else ""
    if "tie_word_embeddings" not in config and family not in _OTHERS:
        words += "; its head is taken to have weights of its own"
    return words


def traits(config: Reading, family: str) -> Traits:
    """Return the traits of a family; one that is not known counts as Llama."""
    found = FAMILIES.get(family) or _OTHERS.get(family) or Traits()
    said = config.get("attention_bias", config.get("qkv_bias"))
    if bool(said) if said is not None else found.bias_unless_said:
        found = found._replace(attention_bias=found.said_bias)
    if config.get("mlp_bias"):
        found = found._replace(mlp_bias=True)
    if family != "nemotron_h":  # whose flag is about its mixers
        found = _with_biases(found, config.get("use_bias"))
    if config.get("lm_head_bias"):
        found = found._replace(head_bias=True)
    if found.qk_norm:
        config.skip(_QK_NORMS)
    if family == "cohere" and config.get("use_qk_norm") is True:
        found = found._replace(qk_norm=True, qk_wide=True)
    if family == "falcon":
        found = _falcon(config, found)
    if not is_known(family) or family == "glm4_moe":
        found = _silent(config, found)
    if found.gated is None:
        activation = _activation(config) or ("silu" if is_known(family) else "")
        gated = activation.lower().startswith(_GATED_ACTIVATIONS)
        found = found._replace(gated=gated)
    tied = config.get("tie_word_embeddings", config.get("tie_embedding"))
    if family == "lfm3" and config.get("use_sandwich_norm") is False:
        found = found._replace(norms=2)
    if family == "hyperclovax" and config.get("use_post_norm") is True:
        found = found._replace(norms=4)
    if found.gated_output:
        config.skip(("attn_output_gate",))
    return found if tied is None else found._replace(tied=bool(tied))


def _with_biases(found: Traits, said: object) -> Traits:
    """Return the traits where one switch is for the biases of all products."""
    if said is True:
        return found._replace(attention_bias="all", mlp_bias=True)
    if said is False and found is _BIASED:
        return found._replace(attention_bias="none", mlp_bias=False)
    return found


def _silent(config: Reading, found: Traits) -> Traits:
    """Return the traits of a family that only its configuration tells."""
    if any([config.get(key) is True for key in _QK_NORMS]):
        found = found._replace(qk_norm=True)
    if config.get("use_qkv_bias") is True:
        found = found._replace(attention_bias="qkv")
    switches = ("gated_mlp", "use_gated_mlp", "mlp_gated", "use_glu", "glu")
    gated = [x for x in map(config.get, switches) if isinstance(x, bool)]
    return found._replace(gated=gated[0]) if gated else found


def _falcon(config: Reading, found: Traits) -> Traits:
    """Two norms with the newer decoder, or one behind the other; biases if said."""
    several = one_of(config, "num_ln_in_parallel_attn", (1, 2))
    newer = bool(config.get("new_decoder_architecture"))
    if several is None:
        several = 2 if newer or config.get("parallel_attn") is False else 1
    biased = bool(config.get("bias"))
    kind: Biased = "all" if biased else "none"
    return found._replace(norms=several, attention_bias=kind, mlp_bias=biased)


def _activation(config: Reading) -> str:
    names = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
    return next((str(x) for x in map(config.get, names) if x), "")
