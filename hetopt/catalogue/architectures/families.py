"""Families of models have traits that their `config.json` does not say.

Read off the families' classes in transformers 5.23 (`modeling_*.py`): which products
have biases, which norms there are and whether they have a bias, what is tied, and what
lies beside the layers.
"""

from typing import Literal, NamedTuple

from .keys import Reading

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
    gated=False, tied=True, attention_bias="all", mlp_bias=True, norm_bias=True
)
_BIASED = _GPT._replace(positions=None)  # unless its configuration says otherwise
_GEMMA = Traits(gated=True, tied=True)
_LATENT = Traits(said_bias="none")  # their flag is false in all that are published
_NORMED = Traits(qk_norm=True)
_GATED = _NORMED._replace(gated_output=True)

_ALIKE: tuple[tuple[Traits, str], ...] = (
    (
        Traits(),
        "llama llama4_text mistral ministral ministral3 mixtral deepseek internlm2 "
        "internlm3 baichuan granite granitemoe granitemoeshared granitemoehybrid bamba "
        "cwm exaone helium solar_open hyperclovax",
    ),
    (Traits(attention_bias="qkv"), "qwen2"),
    (Traits(said_bias="qkv", bias_unless_said=True), "qwen2_moe"),
    (
        _NORMED,
        "qwen3 qwen3_moe exaone4 exaone_moe hunyuan hunyuan_v1_dense hunyuan_v1_moe "
        "hy_v3 dots1 mellum flint",
    ),
    (
        _NORMED._replace(qk_wide=True),
        "flex_olmo olmo_hybrid olmo2 olmo3 olmoe minimax_m2",
    ),
    (_NORMED._replace(norms=4), "kolibri1"),
    (_NORMED._replace(gated=False), "apertus"),
    (_GATED, "qwen3_next qwen3_5_text qwen3_5_moe_text"),
    (_GATED._replace(norms=4), "afmoe"),
    (
        _LATENT,
        "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 glm4_moe_lite "
        "glm_moe_dsa sarvam_mla youtu",
    ),
    (_GEMMA, "gemma"),
    (_GEMMA._replace(norms=4), "gemma2 grok grok-1"),
    (_GEMMA._replace(norms=4, qk_norm=True), "gemma3_text gemma4_text"),
    (_GEMMA._replace(qk_norm=True), "lfm2 lfm2_moe"),
    (Traits(gated=True, attention_bias="all"), "gpt_oss"),
    (Traits(gated=False), "nemotron_h arcee"),
    (Traits(gated=True, said_bias="none"), "phi3"),
    (Traits(gated=True, said_bias="qkv", bias_unless_said=True), "glm"),
    (Traits(gated=True, said_bias="qkv", norms=4), "glm4"),
    (Traits(said_bias="qkv"), "glm4_moe seed_oss"),
    (Traits(norm_bias=True), "phimoe"),
    (Traits(tied=True, norms=1), "cohere cohere2"),
    (Traits(tied=True), "minicpm ernie4_5 ernie4_5_moe smollm3"),
    (_GPT._replace(positions=0), "gpt2 gpt_bigcode"),
    (_GPT._replace(positions=2), "opt"),
    (_GPT._replace(embedding_norm=True), "bloom"),
    (_GPT._replace(tied=False, norms=1, head_bias=True), "phi"),
    (
        _GPT._replace(tied=False, attention_bias="none", bias_unless_said=True),
        "gpt_neox",
    ),
    (_GPT._replace(tied=False, attention_bias="none", norms=1, head_bias=True), "gptj"),
    (_BIASED, "starcoder2"),
)
FAMILIES = {name: own for own, names in _ALIKE for name in names.split()}
_QK_NORMS = ("use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm")
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "gated")


def is_known(family: str) -> bool:
    """Return whether norms and biases of a family are known."""
    return family in FAMILIES


def assumption(config: Reading, family: str, own: Traits) -> str:
    """Return what is taken for granted of a family that is not known, in words."""
    words = "norms and biases are taken as Llama's"
    if not own.gated:
        words += "; its MLP is taken to have no gate"
        words += ", as its activation says" if _activation(config) else ""
    if "tie_word_embeddings" not in config:
        words += "; its head is taken to have weights of its own"
    return words


def traits(config: Reading, family: str) -> Traits:
    """Return the traits of a family; one that is not known counts as Llama."""
    found = FAMILIES.get(family, Traits())
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
    if not is_known(family) or family == "glm4_moe":
        found = _silent(config, found)
    if found.gated is None:
        activation = _activation(config) or ("silu" if is_known(family) else "")
        gated = activation.lower().startswith(_GATED_ACTIVATIONS)
        found = found._replace(gated=gated)
    tied = config.get("tie_word_embeddings", config.get("tie_embedding"))
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


def _activation(config: Reading) -> str:
    names = ("hidden_act", "hidden_activation", "activation_function", "mlp_hidden_act")
    return next((str(x) for x in map(config.get, names) if x), "")
