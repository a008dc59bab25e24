"""Families of models have traits that their `config.json` does not say.

`families.yaml` has them, read off the families' classes in transformers.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple

from ...text.parsing import read_tree
from .keys import Fields, Reading

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


_QK_NORMS = ("use_qk_norm", "qk_norm", "qk_layernorm", "use_qk_layernorm")
_GATED_ACTIVATIONS = ("silu", "swish", "swiglu", "geglu", "gated")


@cache
def table() -> Fields:
    """Return what `families.yaml` says."""
    return read_tree(Path(__file__).parent.with_name("families.yaml"))


@cache
def _known() -> Mapping[str, Traits]:
    rows = table()["traits"]
    return {x: Traits(**row["traits"]) for row in rows for x in row["families"].split()}


def is_known(family: str) -> bool:
    """Return whether norms and biases of a family are known."""
    return family in _known()


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
    found = _known().get(family, Traits())
    said = config.get("attention_bias", config.get("qkv_bias"))
    if bool(said) if said is not None else found.bias_unless_said:
        found = found._replace(attention_bias=found.said_bias)
    if config.get("mlp_bias"):
        found = found._replace(mlp_bias=True)
    if family != "nemotron_h":  # whose flag is about its mixers
        found = _with_biases(found, family, config.get("use_bias"))
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


def _with_biases(found: Traits, family: str, said: object) -> Traits:
    """Return the traits where one switch is for the biases of all products."""
    if said is True:
        return found._replace(attention_bias="all", mlp_bias=True)
    if said is False and family == "starcoder2":
        return found._replace(attention_bias="none", mlp_bias=False)
    return found


def _silent(config: Reading, found: Traits) -> Traits:
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
